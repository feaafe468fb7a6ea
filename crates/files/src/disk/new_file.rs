//! Files in `.isotherm` that are written whole or not at all.

use super::copy::write_all;
use super::root::Root;
use crate::mutants::step;
use crate::tree::HIDDEN;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::PathBuf;

/// A new file, which is called `NAME.new` until it is complete. Dropping it removes it, because an incomplete file would take the last space of
/// a full tier.
///
/// The name is fixed, so a write that was killed leaves one file at most, which the next write removes. It is never written to: what has the
/// name is removed, and the file is made by a call that takes no existing one and follows no link. All calls go through the directory that was
/// opened.
pub(crate) struct NewFile {
    dir: OwnedFd,
    /// Its name now, and the one that it will have.
    names: (Vec<u8>, Vec<u8>),
    published: bool,
    /// Its disk, for faults in tests.
    disk: PathBuf,
    /// The open file.
    pub(crate) fd: OwnedFd,
}

impl NewFile {
    /// Makes the file that is to be called `name` in `.isotherm` of this tier.
    ///
    /// # Errors
    /// A system error: `EEXIST` if somebody else makes that file at this moment, `ELOOP` or `ENOTDIR` if `.isotherm` is a link.
    pub(crate) fn make(root: &Root, name: &[u8]) -> Result<NewFile, Errno> {
        step(&root.path)?;
        let dir = root.open_at(HIDDEN, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let new = [name, b".new"].concat();
        match rustix::fs::unlinkat(&dir, &new[..], AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&dir, &new[..], flags, Mode::from_raw_mode(0o600))?;
        Ok(NewFile {
            dir,
            names: (new, name.to_vec()),
            published: false,
            disk: root.path.clone(),
            fd,
        })
    }

    /// Writes these bytes to the file that is to be called `name`.
    pub(crate) fn write(root: &Root, name: &[u8], bytes: &[u8]) -> Result<(), Errno> {
        let new = NewFile::make(root, name)?;
        write_all(&new.fd, bytes, 0)?;
        new.publish()
    }

    /// Gives the file its name, durably.
    ///
    /// # Errors
    /// A system error; nothing is changed then.
    pub(crate) fn publish(mut self) -> Result<(), Errno> {
        step(&self.disk)?;
        rustix::fs::fsync(&self.fd)?;
        let (new, name) = &self.names;
        step(&self.disk)?;
        rustix::fs::renameat(&self.dir, &new[..], &self.dir, &name[..])?;
        self.published = true;
        step(&self.disk)?;
        match rustix::fs::fsync(&self.dir) {
            // Some remote file systems do not support syncing directories.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(()),
            other => other,
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.published {
            let _ = rustix::fs::unlinkat(&self.dir, &self.names.0[..], AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::write_all;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_written_through_what_is_planted() {
        for kind in ["nothing", "file", "link", "dangling link", "hard link"] {
            let dir = tempfile::tempdir().unwrap();
            let (hidden, victim) = (dir.path().join(".isotherm"), dir.path().join("victim"));
            fs::create_dir(&hidden).unwrap();
            fs::write(&victim, "precious").unwrap();
            for name in ["a.json.new", "a.json"] {
                let at = hidden.join(name);
                match kind {
                    "file" => fs::write(&at, "a longer text than the new one").unwrap(),
                    "link" => symlink(&victim, &at).unwrap(),
                    "dangling link" => symlink(dir.path().join("nowhere"), &at).unwrap(),
                    "hard link" => fs::hard_link(&victim, &at).unwrap(),
                    _ => {}
                }
            }
            let root = Root::open(dir.path()).unwrap();
            let before = fs::read(hidden.join("a.json")).ok();
            // A write that fails changes nothing.
            let new = NewFile::make(&root, b"a.json").unwrap();
            write_all(&new.fd, b"half", 0).unwrap();
            drop(new);
            assert_eq!(fs::read(hidden.join("a.json")).ok(), before, "{kind}");
            assert!(!hidden.join("a.json.new").exists(), "{kind}");

            let new = NewFile::make(&root, b"a.json").unwrap();
            write_all(&new.fd, b"whole", 0).unwrap();
            new.publish().unwrap();
            let made = hidden.join("a.json");
            assert!(fs::symlink_metadata(&made).unwrap().is_file(), "{kind}");
            assert_eq!(fs::read(&made).unwrap(), b"whole", "{kind}");
            assert_eq!(fs::read(&victim).unwrap(), b"precious", "{kind}");
            assert!(!dir.path().join("nowhere").exists(), "{kind}");
            assert_eq!(fs::read_dir(&hidden).unwrap().count(), 1, "{kind}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("a.json.new"), "precious").unwrap();
        symlink(&elsewhere, dir.path().join(".isotherm")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let refused = NewFile::make(&root, b"a.json").err();
        assert!(matches!(refused, Some(Errno::LOOP | Errno::NOTDIR)));
        let kept = fs::read(elsewhere.join("a.json.new")).unwrap();
        assert_eq!(kept, b"precious");
    }
}
