//! What the file system of a tier lacks.
//!
//! A tier may be any directory: of a network file system, of a user-level one, of one without owners. What is missing there is found out by
//! trying it on a hidden file when the tier is mounted, so that the administrator reads it once, and not in an error for each file. A move
//! needs none of it for files that do not use it: a file that does is refused, and stays complete where it is.

use super::root::Root;
use crate::tree::{TEMPS, Time, join};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, OFlags, RenameFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// An access list as Linux stores it (version 2): user 1 may read a file of mode 0600. Each entry has tag, permissions and id, for the owner,
/// user 1, the group, the mask, and all others.
const ACL: &[u8; 44] = b"\x02\0\0\0\
    \x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x01\0\0\0\
    \x04\0\0\0\xff\xff\xff\xff\x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

/// A time that a file system without nanoseconds cannot store.
const FINE: Time = Time {
    sec: 1_000_000_001,
    nsec: 123_456_789,
};

impl Root {
    /// What the file system of the tier lacks, in words, each with its consequence. Nothing is tried on the known file systems of local
    /// devices.
    ///
    /// # Errors
    /// The hidden file cannot be created, or a device error.
    pub(crate) fn lacks(&self) -> Result<Vec<&'static str>, Errno> {
        if self.local || self.absent {
            return Ok(Vec::new());
        }
        let [probe, other] = ["probe", "probe2"].map(|n| join(TEMPS, n.as_bytes()));
        let lacks = self.try_on(&probe, &other);
        for name in [&probe, &other] {
            // If this fails, the next mount removes it.
            let _ = self.unlink(name, AtFlags::empty());
        }
        lacks
    }
    /// Whether two names can be exchanged, as far as [`Root::lacks`] has tried.
    pub(crate) fn can_exchange(&self) -> bool {
        !self.no_exchange.load(Ordering::Relaxed)
    }
    /// As if the file system could not exchange names.
    #[cfg(test)]
    pub(crate) fn forbid_exchange(&self) {
        self.no_exchange.store(true, Ordering::Relaxed);
    }
    fn try_on(&self, probe: &[u8], other: &[u8]) -> Result<Vec<&'static str>, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = self.open_at(probe, flags, 0o600)?;
        let mut lacks = attributes(&fd)?;
        if super::root::facts_of(self.entry(probe)?)?.id != super::root::facts_of(&fd)?.id {
            lacks.push(
                "no lasting inode numbers: open files there will seem to be replaced; do not use it as a tier",
            );
        }
        match self.link(probe, other) {
            Ok(()) => self.unlink(other, AtFlags::empty())?,
            Err(_) => lacks.push(
                "no hard links: files with several names are not moved there, and none can be made there",
            ),
        }
        // Two files: the kernel does not ask the file system to exchange two names of one.
        self.open_at(other, flags, 0o600)?;
        match self.rename(probe, other, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.no_exchange.store(true, Ordering::Relaxed);
                lacks.push(
                    "no exchange of two names (RENAME_EXCHANGE): an exchange of files or directories that are there is refused",
                );
            }
            Err(e) => return Err(e),
        }
        if rustix::fs::fsync(self.directory(TEMPS)?).is_err() {
            lacks.push(
                "no fsync of directories: after a failure of its server or device, a file that was moved there can be missing",
            );
        }
        Ok(lacks)
    }
}

/// What it lacks for the attributes of files.
fn attributes(fd: &OwnedFd) -> Result<Vec<&'static str>, Errno> {
    let mut lacks = Vec::new();
    let set =
        |name: &str, value: &[u8]| rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty());
    if set("user.isotherm.probe", b"x").is_err() {
        lacks.push("no extended attributes: files that have some are not moved there");
    }
    if set("system.posix_acl_access", ACL).is_err() {
        lacks.push("no POSIX access lists: files that have one are not moved there");
    }
    let root = rustix::process::geteuid().is_root();
    if root && rustix::fs::fchown(fd, Some(Uid::from_raw(1)), Some(Gid::from_raw(1))).is_err() {
        lacks.push(
            "no owners that root can choose (NFS: the export needs no_root_squash): files of other users are not moved there, and cannot be made there",
        );
    }
    if !keeps_times(fd)? {
        lacks.push("no times in nanoseconds: times of files that are moved there are rounded");
    }
    Ok(lacks)
}

fn keeps_times(fd: impl AsFd) -> Result<bool, Errno> {
    let times = Timestamps {
        last_access: FINE.into(),
        last_modification: FINE.into(),
    };
    Ok(rustix::fs::futimens(&fd, &times).is_ok() && super::root::facts_of(&fd)?.mtime == FINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory is on a file system that has everything, whether or not it is known to be local.
    #[test]
    fn a_local_file_system_lacks_nothing_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut root = Root::open(dir.path()).unwrap();
        root.prepare().unwrap();
        root.local = false;
        let mut lacks = root.lacks().unwrap();
        // tmpfs can be built without them, and before Linux 6.6 it has none of those that users may set.
        lacks.retain(|l| !l.starts_with("no extended attributes") && !l.starts_with("no POSIX"));
        assert_eq!(lacks, Vec::<&str>::new());
        let left = std::fs::read_dir(dir.path().join(".isotherm/tmp")).unwrap();
        assert_eq!(left.count(), 0);
    }
}
