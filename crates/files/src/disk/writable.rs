//! Whether the file system of a tier still accepts changes.
//!
//! A file system that has met an error becomes read-only (ext4 with `errors=remount-ro`, Btrfs), and a disk can fail between two writes.
//! Neither `access` nor `statvfs` shows the former in all kernels (ext4 since Linux 6.15), and what is in memory can still be read.

use super::root::Root;
use crate::sync::lock;
use crate::tree::Time;
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// A file of the tier that no user sees, and whose times mean nothing.
const LOCK: &[u8] = b".isotherm/lock";
/// The device itself is asked at most once in this time, because that may cost a turn of a disk.
const PROVED_FOR: Duration = Duration::from_secs(1);

impl Root {
    /// See [`crate::tree::Tree::prove_writable`].
    pub(crate) fn prove_writable(&self) -> Result<(), Errno> {
        if self.absent {
            return Err(Errno::NODEV);
        }
        let set = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let mut times = Timestamps {
            last_access: set(0, UTIME_NOW),
            last_modification: set(0, UTIME_NOW),
        };
        let fd = match self.open_at(LOCK, OFlags::CREATE | OFlags::RDONLY, 0o600) {
            // A full tier may lack it. The tier's directory keeps its times.
            Err(Errno::NOENT | Errno::NOSPC | Errno::DQUOT) => {
                let fd = self.directory(b".")?;
                let Time { sec, nsec } = super::root::facts_of(&fd)?.mtime;
                times.last_access = set(0, UTIME_OMIT);
                times.last_modification = set(sec, nsec.into());
                fd
            }
            other => other?,
        };
        rustix::fs::futimens(&fd, &times)?;
        let proved = || lock(&self.proved);
        if proved().is_some_and(|when| when.elapsed() < PROVED_FOR) {
            return Ok(());
        }
        rustix::fs::fsync(&fd)?;
        *proved() = Some(Instant::now());
        Ok(())
    }
}
