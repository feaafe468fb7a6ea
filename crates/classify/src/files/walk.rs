//! Walks all files below a mount point, and gives the class and the ranges of each.

use super::rules::{Facts, Rules};
use super::{Place, Ranges, fiemap};
use crate::classes;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest value of the attribute that is accepted.
const ATTRIBUTE_MAX: usize = 64;

/// The settings of a walk.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rules.
    pub rules: Rules,
    /// Rules that apply after `rules`.
    pub open_cas: crate::opencas::Import,
    /// Whether files without a matching rule or attribute are left out; otherwise they have the class of their size.
    pub only_rules: bool,
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Number of files and directories with ranges.
    pub files: u64,
    /// Files whose class is from an attribute.
    pub by_attribute: u64,
    /// Files whose class is from a rule.
    pub by_rule: u64,
    /// Files whose attribute names no class, so that it is ignored.
    pub wrong_attribute: u64,
    /// The first of them, and the value of its attribute.
    pub wrong: Option<(PathBuf, String)>,
    /// Files that could not be examined: they were removed during the walk, or may not be opened.
    pub failed: u64,
    /// First byte of the volume, bytes, class; in ascending order.
    pub ranges: Ranges,
}

/// The class in the attribute `user.isotherm.class` of a file; `None` if it has no such attribute.
///
/// # Errors
/// The value is neither a number up to 63 nor the name of a class. The error is the value.
pub fn class_attribute(file: &File) -> Result<Option<u8>, String> {
    let mut value = [0; ATTRIBUTE_MAX];
    let n = match rustix::fs::fgetxattr(file, c"user.isotherm.class", &mut value) {
        Ok(n) => n,
        Err(Errno::RANGE) => return Err(format!("over {ATTRIBUTE_MAX} bytes")),
        Err(_) => return Ok(None),
    };
    let value = String::from_utf8_lossy(&value[..n]);
    match classes::parse(value.trim()) {
        Some(class) => Ok(Some(class)),
        None => Err(value.into_owned()),
    }
}

/// Walks the file system mounted at `root`, whose location is `place`. Other file systems mounted below are skipped.
///
/// # Errors
/// `root` cannot be read, or the file system does not support FIEMAP.
pub fn walk(root: &Path, place: &Place, options: &Options) -> io::Result<Walked> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let mut out = Walked::default();
    let mut said = false;
    for entry in walkdir::WalkDir::new(root).same_file_system(true) {
        let Ok(entry) = entry else {
            out.failed += 1;
            continue;
        };
        let kind = entry.file_type();
        if !kind.is_file() && !kind.is_dir() {
            continue;
        }
        match one(&entry, root, now, options, &mut out) {
            Ok(Some((pieces, class))) => {
                said = true;
                out.files += u64::from(!pieces.is_empty());
                let placed = pieces
                    .into_iter()
                    .map(|(at, n)| (place.offset + at, n, class));
                out.ranges.extend(placed);
            }
            Ok(None) => {}
            Err(e) if !said && Errno::from_io_error(&e) == Some(Errno::OPNOTSUPP) => {
                return Err(io::Error::other(format!(
                    "{}: its file system cannot say where files are (FIEMAP)",
                    root.display()
                )));
            }
            Err(_) => out.failed += 1,
        }
    }
    out.ranges.sort_unstable();
    Ok(out)
}

/// Pieces of a file, and their class.
type Seen = (Vec<(u64, u64)>, u8);

fn one(
    entry: &walkdir::DirEntry,
    root: &Path,
    now: u64,
    options: &Options,
    out: &mut Walked,
) -> io::Result<Option<Seen>> {
    // If the file has become a pipe, opening it must not block.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(entry.path())?;
    let meta = file.metadata()?;
    let named = class_attribute(&file).unwrap_or_else(|value| {
        out.wrong_attribute += 1;
        out.wrong
            .get_or_insert_with(|| (entry.path().to_owned(), value));
        None
    });
    out.by_attribute += u64::from(named.is_some());
    let by_rule = || {
        let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
        let facts = Facts {
            path,
            size: meta.len(),
            owner: meta.uid(),
            age_s: now.saturating_sub(u64::try_from(meta.mtime()).unwrap_or(0)),
        };
        let by_rule = options.rules.class(facts);
        by_rule.or_else(|| options.open_cas.of_file(facts, root))
    };
    let class = match named {
        Some(class) => class,
        None if meta.is_dir() && options.only_rules => return Ok(None),
        None if meta.is_dir() => classes::DIRECTORY,
        None => match by_rule() {
            Some(class) => {
                out.by_rule += 1;
                class
            }
            None if options.only_rules => return Ok(None),
            None => classes::of_file_size(meta.len()),
        },
    };
    Ok(Some((fiemap::extents(&file)?, class)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_names_a_class_or_is_said_to_be_wrong() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(class_attribute(&file), Ok(None));
        let long = "x".repeat(ATTRIBUTE_MAX + 1);
        for (value, class) in [
            ("12", Ok(Some(12))),
            (" journal\n", Ok(classes::parse("journal"))),
            ("99", Err("99".to_owned())),
            ("film", Err("film".to_owned())),
            (&long, Err(format!("over {ATTRIBUTE_MAX} bytes"))),
        ] {
            let flags = rustix::fs::XattrFlags::empty();
            let name = c"user.isotherm.class";
            if rustix::fs::fsetxattr(&file, name, value.as_bytes(), flags).is_err() {
                println!("SKIPPED: this file system has no extended attributes");
                return;
            }
            assert_eq!(class_attribute(&file), class, "{value}");
        }
    }
}
