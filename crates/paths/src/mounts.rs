//! The mount table of this process: the one parser of `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of the file system, which tells a mount from a later one on the same directory.
    pub device: String,
    /// The mount point.
    pub point: PathBuf,
    /// File system type with subtype, e.g. `fuse.sshfs`.
    pub kind: String,
    /// What is mounted: a device, an export, or a word of the file system's own; empty if the kernel gives none.
    pub source: PathBuf,
}

/// The device number as the mount table has it.
#[must_use]
pub fn device_words(number: u64) -> String {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    format!("{major}:{minor}")
}

/// All mounts, in the order in which they were made: of several at one place the last one is on top.
///
/// # Errors
/// `/proc` cannot be read.
pub fn mounts() -> io::Result<Vec<Mount>> {
    std::fs::read("/proc/self/mountinfo").map(|table| parse_mounts(&table))
}

/// The mounts of a table; what is no line of one is left out.
#[must_use]
pub fn parse_mounts(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|b| *b == b'\n').filter_map(line);
    lines.map(|(mount, _)| mount).collect()
}

/// Where something is in its own file system, wherever that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `major:minor` of the file system.
    pub device: String,
    /// The path from its root.
    pub path: PathBuf,
}

/// The place of what has that real path, by a table of mounts; `None` if the table does not say.
#[must_use]
pub fn place(table: &[u8], path: &Path) -> Option<Place> {
    let lines = table.split(|b| *b == b'\n').filter_map(line);
    let above = lines.filter(|(mount, _)| path.starts_with(&mount.point));
    // Of several at one place the last one is on top.
    let (mount, root) = above.max_by_key(|(mount, _)| mount.point.components().count())?;
    let below = path.strip_prefix(&mount.point).ok()?;
    Some(Place {
        device: mount.device,
        path: root.components().chain(below.components()).collect(),
    })
}

/// The mount of a line, and which directory of the file system it shows.
fn line(line: &[u8]) -> Option<(Mount, PathBuf)> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mut fields = line.split(|b| *b == b' ');
    let device = text(fields.nth(2)?);
    let root = unescaped(fields.next()?);
    let point = unescaped(fields.next()?);
    // Before the dash there may be any number of optional fields.
    let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
    let mount = Mount {
        device,
        point,
        kind: text(rest.next()?),
        source: unescaped(rest.next().unwrap_or_default()),
    };
    Some((mount, root))
}

/// Decodes a path of a table in `/proc`: space, tab, newline and backslash are written as a backslash and three octal digits.
#[must_use]
pub fn unescaped(text: &[u8]) -> PathBuf {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(&b) = text.get(at) {
        let digits = text.get(at + 1..at + 4).filter(|_| b == b'\\');
        let digits = digits.filter(|d| d.iter().all(|c| (b'0'..=b'7').contains(c)));
        let code = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        out.push(code.unwrap_or(b));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_place_under_all_of_its_paths() {
        let table = br"25 1 8:1 / / rw - ext4 /dev/sda1 rw
26 25 8:2 / /data rw - ext4 /dev/sdb1 rw
27 25 8:2 /films/new /mnt/bind rw - ext4 /dev/sdb1 rw";
        let place = |path: &str| {
            let place = place(table, Path::new(path)).unwrap();
            format!("{} {}", place.device, place.path.display())
        };
        assert_eq!(place("/data/films/new/a"), "8:2 /films/new/a");
        assert_eq!(place("/mnt/bind/a"), "8:2 /films/new/a");
        assert_eq!(place("/mnt/bind"), "8:2 /films/new");
        assert_eq!(place("/mnt/binder"), "8:1 /mnt/binder");
    }

    #[test]
    fn lines_are_read_with_and_without_optional_fields() {
        let table = br"36 35 0:52 / /mnt/a\040b\134c rw,noatime shared:1 master:2 - fuse.isotherm isotherm:a\040b rw,user_id=0
25 1 8:1 / / rw - ext4 /dev/sda1 rw
25 1 8:1 / / rw
40 1 0:9 / /none rw - tmpfs

";
        let all = parse_mounts(table);
        assert_eq!(
            all[0],
            Mount {
                device: "0:52".into(),
                point: r"/mnt/a b\c".into(),
                kind: "fuse.isotherm".into(),
                source: "isotherm:a b".into()
            }
        );
        assert_eq!((&all[1].kind[..], &all[1].device[..]), ("ext4", "8:1"));
        assert_eq!((all.len(), &all[2].source), (3, &PathBuf::new()));
    }

    #[test]
    fn a_backslash_that_is_no_escape_stays() {
        assert_eq!(
            unescaped(br"a\9b\04\+12\777"),
            Path::new(r"a\9b\04\+12\777")
        );
    }
}
