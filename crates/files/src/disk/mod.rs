//! Tiers as they are: directories of local or remote file systems, and the mover's calls on them.

mod attributes;
mod calls;
mod copy;

use crate::tree::{Facts, HIDDEN, INTENTS, Id, TEMPS, Time, parent};
pub(crate) use attributes::{Known, make_known};
pub use attributes::{Xattrs, same_attributes, xattrs};
pub use calls::Disk;
pub use copy::{copy_range, write_all};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set aside for intents on a full tier.
const SPARE: &[u8] = b".isotherm/spare";
const SPARE_BYTES: u64 = 256 << 10;

/// A tier's directory, open as long as it is mounted.
#[derive(Debug)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// The directory.
    pub fd: OwnedFd,
    /// Device of its file system.
    pub dev: u64,
    /// It is missing: nothing here leads to a directory.
    pub absent: bool,
    /// What was set aside for intents was given up, since the tier was full.
    spare_gone: AtomicBool,
}

fn time(t: rustix::fs::StatxTimestamp) -> Time {
    Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    }
}

fn facts(s: &Statx) -> Facts {
    let known = StatxFlags::from_bits_retain(s.stx_mask);
    let born = if known.contains(StatxFlags::BTIME) {
        (s.stx_btime.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(u64::from(s.stx_btime.tv_nsec))
    } else {
        0
    };
    Facts {
        id: Id {
            ino: s.stx_ino,
            born,
        },
        dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
        mode: u32::from(s.stx_mode),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
        size: s.stx_size,
        blocks: s.stx_blocks,
        atime: time(s.stx_atime),
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
    }
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME
}

/// What is known of an open file.
///
/// # Errors
/// The device's.
pub fn facts_of(fd: impl AsFd) -> Result<Facts, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted()).map(|s| facts(&s))
}

impl Root {
    /// Open a tier's directory.
    ///
    /// # Errors
    /// It is no directory, or may not be read.
    pub fn open(path: &Path) -> Result<Root, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let dev = facts_of(&fd)?.dev;
        Ok(Root {
            path: path.to_owned(),
            fd,
            dev,
            absent: false,
            spare_gone: AtomicBool::new(false),
        })
    }
    /// The place of a tier that is missing. No call finds anything below it.
    ///
    /// # Errors
    /// The system's.
    pub fn missing(path: &Path) -> Result<Root, Errno> {
        Ok(Root {
            path: path.to_owned(),
            fd: rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
            dev: 0,
            absent: true,
            spare_gone: AtomicBool::new(true),
        })
    }
    /// The hidden directories.
    ///
    /// # Errors
    /// They cannot be made: no room, or read-only.
    pub fn prepare(&self) -> Result<(), Errno> {
        for dir in [HIDDEN, TEMPS, INTENTS] {
            match rustix::fs::mkdirat(&self.fd, dir, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
        self.keep_spare();
        for dir in [&b"."[..], HIDDEN] {
            rustix::fs::fsync(self.directory(dir)?)?;
        }
        Ok(())
    }
    /// Set room aside for intents: a full tier can be emptied only by moves, and each writes one. Where that does not go there is none.
    pub(crate) fn keep_spare(&self) {
        let flags = OFlags::CREATE | OFlags::RDWR;
        let kept = self
            .open_at(SPARE, flags, 0o600)
            .and_then(|fd| rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, SPARE_BYTES));
        self.spare_gone.store(kept.is_err(), Ordering::SeqCst);
        if kept.is_err() {
            let _ = rustix::fs::unlinkat(&self.fd, SPARE, AtFlags::empty());
        }
    }
    /// Use what was set aside. False if there is nothing.
    pub(crate) fn give_spare(&self) -> bool {
        !self.spare_gone.swap(true, Ordering::SeqCst)
            && rustix::fs::unlinkat(&self.fd, SPARE, AtFlags::empty()).is_ok()
    }
    pub(crate) fn has_spare(&self) -> bool {
        self.absent || !self.spare_gone.load(Ordering::SeqCst)
    }
    /// Open something below, following no link and leaving the file system nowhere.
    ///
    /// # Errors
    /// The system's.
    pub fn open_at(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&self.fd, path, flags, mode, resolve) {
            Err(Errno::NOSYS) => rustix::fs::openat(&self.fd, path, flags, mode),
            other => other,
        }
    }
    /// A directory, to sync it or list it.
    ///
    /// # Errors
    /// The system's.
    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(path, OFlags::DIRECTORY | OFlags::RDONLY, 0)
    }
    /// For reading and writing; for reading if it cannot be written.
    ///
    /// # Errors
    /// The system's.
    pub fn open_data(&self, path: &[u8]) -> Result<(OwnedFd, bool), Errno> {
        match self.open_at(path, OFlags::RDWR | OFlags::NONBLOCK, 0) {
            Ok(fd) => Ok((fd, true)),
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::TXTBSY) => self
                .open_at(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)
                .map(|fd| (fd, false)),
            Err(e) => Err(e),
        }
    }
    /// What is there.
    ///
    /// # Errors
    /// The device's; nothing there is none.
    pub fn stat(&self, path: &[u8]) -> Result<Option<Facts>, Errno> {
        match rustix::fs::statx(&self.fd, path, AtFlags::SYMLINK_NOFOLLOW, wanted()) {
            Ok(s) => Ok(Some(facts(&s))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(e),
        }
    }
    /// Bytes free for files, and in all.
    ///
    /// # Errors
    /// The device's.
    pub fn room(&self) -> Result<(u64, u64), Errno> {
        if self.absent {
            return Ok((0, 0));
        }
        let s = rustix::fs::fstatvfs(&self.fd)?;
        Ok((s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize))
    }
    /// A path that the system calls without descriptors take, through the open root.
    pub fn through(&self, path: &[u8]) -> Vec<u8> {
        use rustix::fd::AsRawFd;
        let mut all = format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).into_bytes();
        all.extend_from_slice(path);
        all
    }
}

/// What is in one directory, asked by name: no path is walked.
pub(crate) struct Beside<'a> {
    dir: &'a OwnedFd,
    prefix: String,
}

impl<'a> Beside<'a> {
    /// In that directory.
    pub(crate) fn new(dir: &'a OwnedFd) -> Beside<'a> {
        use rustix::fd::AsRawFd;
        let prefix = format!("/proc/self/fd/{}/", dir.as_raw_fd());
        Beside { dir, prefix }
    }
    /// What is there.
    pub(crate) fn stat(&self, name: &CStr) -> Result<Option<Facts>, Errno> {
        match rustix::fs::statx(self.dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted()) {
            Ok(s) => Ok(Some(facts(&s))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }
    /// Has it extended attributes?
    pub(crate) fn has_xattrs(&self, name: &CStr) -> Result<bool, Errno> {
        let path = [self.prefix.as_bytes(), name.to_bytes()].concat();
        match rustix::fs::llistxattr_query(&path[..]) {
            Ok(n) => Ok(n > 0),
            Err(Errno::OPNOTSUPP | Errno::NOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Is the path the root's hidden directory or below it?
pub fn is_hidden(path: &[u8]) -> bool {
    path == HIDDEN || (path.starts_with(HIDDEN) && path.get(HIDDEN.len()) == Some(&b'/'))
}

/// The directory that a path is in, for the system calls.
pub fn dir_of(path: &[u8]) -> &[u8] {
    parent(path)
}
