//! New files of writes that were killed before the file had its name. Nobody else removes them, and each is as large as what was written.
//!
//! A file is removed only if all of this holds, because a name alone proves nothing in a directory that others can change:
//!
//! - its name is one that [`crate::New`] gives, and it is a regular file without other names;
//! - it belongs to this process' user, and was last written an hour ago or longer;
//! - nobody holds its lock, which each writer takes when it makes the file. A writer that was killed, or whose machine was, holds none.
//!
//! Whoever owns the directory can give such a name to another file of this user that lies there. He could as well remove that file himself.

use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat,
    unlinkat,
};

use crate::place::{PREFIX, Place};

/// A file that was written later than this is left alone.
const AGE: Duration = Duration::from_secs(3600);
/// Number of names that are looked at: such a directory holds few, and a write must not take long because of others.
const NAMES_MAX: usize = 4096;

/// Marks a new file as one whose writer lives, as long as it is open.
pub(crate) fn mark(file: &File) {
    // Without locks on this file system, nothing is removed there either.
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Removes the leftovers in the directory of a file that was just written. Nobody needs to know whether it could.
pub(crate) fn sweep(place: &Place) {
    let _ = try_sweep(place);
}

fn try_sweep(place: &Place) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(&place.dir, c".", flags, Mode::empty())?;
    for entry in Dir::read_from(&dir)?.take(NAMES_MAX) {
        let entry = entry?;
        let name = entry.file_name();
        if is_ours(name.to_bytes()) && is_left(place, name) {
            unlinkat(&place.dir, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn is_ours(name: &[u8]) -> bool {
    let number = name.strip_prefix(PREFIX.as_bytes());
    let is_digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    number.is_some_and(|n| n.len() == 16 && n.iter().all(is_digit))
}

fn is_left(place: &Place, name: &std::ffi::CStr) -> bool {
    // What is no regular file is not opened.
    let seen = statat(&place.dir, name, AtFlags::SYMLINK_NOFOLLOW);
    if !seen.is_ok_and(|s| may_go(&s)) {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&place.dir, name, flags, Mode::empty()) else {
        return false;
    };
    fstat(&file).is_ok_and(|s| may_go(&s))
        && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn may_go(s: &Stat) -> bool {
    let written = u64::try_from(s.st_mtime).unwrap_or_default();
    let written = UNIX_EPOCH.checked_add(Duration::from_secs(written));
    let age = written.and_then(|w| SystemTime::now().duration_since(w).ok());
    FileType::from_raw_mode(s.st_mode) == FileType::RegularFile
        && s.st_nlink == 1
        && s.st_uid == rustix::process::geteuid().as_raw()
        && age.is_some_and(|a| a >= AGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{New, replace};
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{chown, symlink};
    use std::path::Path;

    fn age(file: &Path, by: Duration) {
        let f = File::options().write(true).open(file).expect("opened");
        f.set_modified(SystemTime::now() - by).expect("set");
    }

    #[test]
    fn only_what_a_killed_write_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let own = |n: u8| format!(".isotherm-{n:016x}");
        let stays: Vec<String> = (1..6)
            .map(own)
            .chain(
                [
                    ".isotherm-0123456789abcde",
                    ".isotherm-0123456789abcdefa",
                    ".isotherm-0123456789ABCDEF",
                    "isotherm-0123456789abcdef",
                    "other",
                ]
                .map(String::from),
            )
            .collect();
        for name in stays.iter().chain(&[own(0)]) {
            fs::write(at(name), "left").expect("written");
            age(&at(name), 2 * AGE);
        }
        // Of the names that fit: one is new, one is a link, one has another name, one is another user's, one has a writer that lives.
        age(&at(&own(1)), AGE / 2);
        fs::remove_file(at(&own(2))).expect("removed");
        symlink("other", at(&own(2))).expect("made");
        fs::hard_link(at(&own(3)), at("second")).expect("made");
        if chown(at(&own(4)), Some(65_534), None).is_err() {
            eprintln!("skipped: another user's file needs root");
            age(&at(&own(4)), Duration::ZERO);
        }
        let writer = File::open(at(&own(5))).expect("opened");
        mark(&writer);
        fs::create_dir(at(&own(6))).expect("made");

        replace(&at("v"), 0o600, |f| f.write_all(b"new")).expect("written");
        assert!(!at(&own(0)).exists());
        for name in stays.iter().chain(&[own(6)]) {
            assert!(fs::symlink_metadata(at(name)).is_ok(), "{name}");
        }
        drop(writer);
        replace(&at("v"), 0o600, |f| f.write_all(b"new")).expect("written");
        assert!(!at(&own(5)).exists(), "its writer has ended");
    }

    /// What a writer makes is marked and has such a name, so that it is found later, and not while it is written.
    #[test]
    fn a_writer_marks_its_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let v = dir.path().join("v");
        let (new, file) = New::beside(&dir.path().join("w"), 0o600).expect("made");
        file.set_modified(SystemTime::now() - 2 * AGE).expect("set");
        let others = || {
            let all = fs::read_dir(dir.path()).expect("read");
            all.count() - usize::from(v.exists())
        };
        replace(&v, 0o600, |f| f.write_all(b"new")).expect("written");
        assert_eq!(others(), 1, "it is being written");
        // The writer is killed.
        std::mem::forget(new);
        drop(file);
        replace(&v, 0o600, |f| f.write_all(b"new")).expect("written");
        assert_eq!(others(), 0);
    }
}
