//! A mount whose server was killed stays in the tree: every call on it fails with ENOTCONN. The next mount at that place removes it.

use crate::settings::SOURCE;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether an error is that of a mount without a server.
pub(crate) fn is_cut(e: &std::io::Error) -> bool {
    e.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

/// A path as the mount table has it.
fn escaped(path: &Path) -> Vec<u8> {
    let escape = |&b: &u8| match b {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
        _ => vec![b],
    };
    path.as_os_str()
        .as_bytes()
        .iter()
        .flat_map(escape)
        .collect()
}

/// Whether the topmost mount at `dir` has the source that this program states.
fn is_ours(table: &[u8], dir: &Path) -> bool {
    let point = escaped(dir);
    let kind = |line: &[u8]| -> Option<bool> {
        let mut words = line.split(|&b| b == b' ');
        (words.nth(4)? == &point[..]).then_some(())?;
        let mut words = words.skip_while(|w| *w != b"-").skip(1);
        let (kind, source) = (words.next()?, words.next()?);
        Some(kind.starts_with(b"fuse") && source.starts_with(SOURCE.as_bytes()))
    };
    let lines = table.split(|&b| b == b'\n');
    lines.filter_map(kind).next_back().unwrap_or(false)
}

/// Removes the mount at `dir`, which has no server any more, if this program made it. Returns whether it did.
pub(crate) fn clear(dir: &Path) -> bool {
    // The mount itself cannot be resolved.
    let Some(dir) = std::path::absolute(dir).ok().and_then(|dir| {
        let above = dir.parent()?.canonicalize().ok()?;
        Some(above.join(dir.file_name()?))
    }) else {
        return false;
    };
    if !is_ours(
        &std::fs::read("/proc/self/mountinfo").unwrap_or_default(),
        &dir,
    ) {
        return false;
    }
    let how = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(&dir, how) {
        Err(Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper.args(["-uz", "--"]).arg(&dir).stderr(Stdio::null());
            helper.status().is_ok_and(|s| s.success())
        }
        done => done.is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mount_of_this_program_on_top_is_ours() {
        let line =
            |point: &str, kind: &str| format!("36 35 0:42 / {point} rw shared:1 - {kind} rw\n");
        let ours = "fuse isotherm:/a";
        let dir = Path::new("/a b");
        for (table, is) in [
            (line("/a\\040b", ours), true),
            (line("/a\\040b", "fuse.x isotherm:/a"), true),
            (line("/a\\040b", "fuse.sshfs host:/a"), false),
            (line("/a", ours), false),
            (
                line("/a\\040b", ours) + &line("/a\\040b", "ext4 /dev/x"),
                false,
            ),
            (String::new(), false),
        ] {
            assert_eq!(is_ours(table.as_bytes(), dir), is, "{table}");
        }
    }
}
