//! The directory of a tier, the attributes of files, and the entries of a directory.

use super::names::path_of;
use super::number::{Mark, NAMES, is_mark};
use super::room::Asked;
use crate::tree::{COPIES, Facts, HIDDEN, INTENTS, Id, TEMPS, Time};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, Mode, OFlags, ResolveFlags, Statx, StatxAttributes,
    StatxFlags,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Space that is set aside for intents on a full tier.
const SPARE: &[u8] = b".isotherm/spare";
/// The file that a mount locks.
pub(crate) const LOCK: &[u8] = b".isotherm/lock";
const SPARE_BYTES: u64 = 256 << 10;
/// If a file system has fewer free inodes than this, it counts as full.
const FEW_FILES: u64 = 16;

/// The directory of a tier, which is kept open while it is mounted.
#[derive(Debug)]
pub struct Root {
    /// Its path.
    pub path: PathBuf,
    /// The directory.
    pub fd: OwnedFd,
    /// Device number of its file system.
    pub dev: u64,
    /// Whether its file system is on a local device, so that files change only through this kernel.
    pub local: bool,
    /// Whether the tier is absent. Then calls find nothing below it.
    pub absent: bool,
    /// Whether the space that was set aside for intents was released because the tier was full.
    pub(super) spare_released: AtomicBool,
    /// Whether it was full when it was mounted, and lacks the hidden directories. They are made when one is needed and there is space.
    pub(super) unprepared: AtomicBool,
    /// Whether this program made the hidden directory and no mount uses it yet.
    pub(super) fresh: AtomicBool,
    /// Whether two names cannot be exchanged on its file system.
    pub(super) no_exchange: AtomicBool,
    /// When its device last made a change durable for [`Root::prove_writable`].
    pub(super) proved: Mutex<Option<std::time::Instant>>,
    /// The last answer about its free space, if it is not local.
    pub(super) asked: Arc<Mutex<Asked>>,
}

fn time(t: rustix::fs::StatxTimestamp) -> Time {
    Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    }
}

pub(super) fn facts(s: &Statx) -> Facts {
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
        immutable: s
            .stx_attributes
            .intersects(UNREMOVABLE | StatxAttributes::VERITY),
        encrypted: s.stx_attributes.contains(StatxAttributes::ENCRYPTED),
    }
}

/// A file with one of these attributes cannot be removed or renamed, and neither can any name in a directory with one of them.
const UNREMOVABLE: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

pub(super) fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME
}

/// The attributes of an open file.
///
/// # Errors
/// A device error.
pub fn facts_of(fd: impl AsFd) -> Result<Facts, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted()).map(|s| facts(&s))
}

/// As [`facts_of`], as far as the kernel knows them: a network file system does not ask its server. They include what was written through
/// this kernel, except that the times may be from before the last writes.
pub(crate) fn cached_facts_of(fd: impl AsFd) -> Result<Facts, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, c"", flags, wanted()).map(|s| facts(&s))
}

/// Magic numbers of file systems on local devices: ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, tmpfs.
const LOCAL: [u64; 6] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0xca45_1a4e,
    0x0102_1994,
];

fn is_local(fd: &OwnedFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|s| LOCAL.contains(&(s.f_type as u64)))
}

impl Root {
    /// Opens the directory of a tier.
    ///
    /// # Errors
    /// It is not a directory, or may not be read.
    pub fn open(path: &Path) -> Result<Root, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let (dev, local) = (facts_of(&fd)?.dev, is_local(&fd));
        Ok(Root::new(path, fd, dev, local))
    }
    fn new(path: &Path, fd: OwnedFd, dev: u64, local: bool) -> Root {
        Root {
            path: path.to_owned(),
            fd,
            dev,
            local,
            absent: false,
            spare_released: AtomicBool::new(false),
            unprepared: AtomicBool::new(false),
            fresh: AtomicBool::new(false),
            no_exchange: AtomicBool::new(false),
            proved: Mutex::default(),
            asked: Arc::default(),
        }
    }
    /// A placeholder for an absent tier. No call finds anything below it.
    ///
    /// # Errors
    /// A system error.
    pub fn missing(path: &Path) -> Result<Root, Errno> {
        let fd = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let mut root = Root::new(path, fd, 0, false);
        (root.absent, root.spare_released) = (true, AtomicBool::new(true));
        Ok(root)
    }
    /// Creates the hidden directories.
    ///
    /// # Errors
    /// They cannot be created: no space, or read-only.
    pub fn prepare(&self) -> Result<(), Errno> {
        for dir in [HIDDEN, TEMPS, INTENTS, COPIES] {
            match rustix::fs::mkdirat(&self.fd, dir, Mode::from_raw_mode(0o700)) {
                Ok(()) if dir == HIDDEN => self.fresh.store(true, Ordering::SeqCst),
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
        self.reserve_spare();
        for dir in [&b"."[..], HIDDEN] {
            rustix::fs::fsync(self.directory(dir)?)?;
        }
        Ok(())
    }
    /// As [`Root::prepare`], for a tier that may be full: then its directories are made later. Returns whether they exist.
    ///
    /// # Errors
    /// As [`Root::prepare`], except that there is no space.
    pub(crate) fn prepare_if_room(&self) -> Result<bool, Errno> {
        match self.prepare() {
            Err(Errno::NOSPC | Errno::DQUOT) if self.local => {
                self.unprepared.store(true, Ordering::SeqCst);
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }
    /// Makes the directories that were put off.
    pub(super) fn prepare_now(&self) -> Result<(), Errno> {
        self.prepare()?;
        if self.is_exposed()? {
            return Err(Errno::PERM);
        }
        self.unprepared.store(false, Ordering::SeqCst);
        self.taken();
        Ok(())
    }
    /// A mount uses the tier from now on: its hidden directory stays.
    pub(crate) fn taken(&self) {
        self.fresh.store(false, Ordering::SeqCst);
    }
    /// Whether others than root and this user can change what is in the hidden directory: they could put links to files of others there.
    pub(crate) fn is_exposed(&self) -> Result<bool, Errno> {
        let f = facts_of(self.directory(HIDDEN)?)?;
        let ours = [0, rustix::process::geteuid().as_raw()].contains(&f.uid);
        Ok(self.local && (!ours || f.mode & 0o022 != 0))
    }
    /// Sets space aside for intents: a full tier can be emptied only by moves, and each move writes an intent. If it fails, no space is set
    /// aside.
    pub(crate) fn reserve_spare(&self) {
        let flags = OFlags::CREATE | OFlags::RDWR;
        let kept = self
            .open_at(SPARE, flags, 0o600)
            .and_then(|fd| rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, SPARE_BYTES));
        self.spare_released.store(kept.is_err(), Ordering::SeqCst);
        if kept.is_err() {
            let _ = rustix::fs::unlinkat(&self.fd, SPARE, AtFlags::empty());
        }
    }
    /// Releases the space that was set aside. Returns false if there is none.
    pub(crate) fn release_spare(&self) -> bool {
        !self.spare_released.swap(true, Ordering::SeqCst)
            && rustix::fs::unlinkat(&self.fd, SPARE, AtFlags::empty()).is_ok()
    }
    /// Runs a call. If the tier is full, the space that was set aside is released for it, and set aside again afterwards if it is there.
    pub(crate) fn with_spare<T>(
        &self,
        mut call: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match call() {
            Err(Errno::NOSPC | Errno::DQUOT) if self.release_spare() => {
                let done = call();
                self.reserve_spare();
                done
            }
            other => other,
        }
    }
    pub(crate) fn has_spare(&self) -> bool {
        self.absent || !self.spare_released.load(Ordering::SeqCst)
    }
    /// Opens a path without access to the device. Fails with EAGAIN if the kernel does not have the path in memory.
    ///
    /// # Errors
    /// A system error; EINVAL before Linux 5.12.
    pub(crate) fn open_cached(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_XDEV
            | ResolveFlags::CACHED;
        rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve)
    }
    /// The bytes of a file; `None` if there is none.
    pub(crate) fn read_whole(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let fd = match self.open_at(path, OFlags::RDONLY, 0) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        let read = std::fs::File::from(fd).read_to_end(&mut bytes);
        let read = read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
        read.map(|_| Some(bytes))
    }
    /// The names in a directory, in order.
    pub(crate) fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(self.directory(path)?)? {
            names.push(entry?.file_name().to_bytes().to_vec());
        }
        names.retain(|n| n != b"." && n != b"..");
        names.sort_unstable();
        Ok(names)
    }
    /// Opens a directory to sync or list it.
    ///
    /// # Errors
    /// A system error.
    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(path, OFlags::DIRECTORY | OFlags::RDONLY, 0)
    }
    /// Whether a name may be removed or renamed: see [`crate::tree::Tree::may_remove`].
    ///
    /// # Errors
    /// A device error.
    pub fn may_remove(&self, path: &[u8]) -> Result<bool, Errno> {
        let Some((dir, file)) = self.look(path)? else {
            return Ok(true);
        };
        let above = rustix::fs::statx(&dir, c"", AtFlags::EMPTY_PATH, wanted())?;
        if (file.stx_attributes | above.stx_attributes).intersects(UNREMOVABLE) {
            return Ok(false);
        }
        let user = rustix::process::geteuid();
        let owners = [file.stx_uid, above.stx_uid];
        if above.stx_mode & 0o1000 != 0 && !user.is_root() && !owners.contains(&user.as_raw()) {
            return Ok(false);
        }
        let access = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(CWD, path_of(dir.as_fd()), access, AtFlags::EACCESS) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
            Err(e) => Err(e),
        }
    }
    /// Whether the tier has less than `bytes` of free space, or hardly any free inodes.
    pub(crate) fn is_short(&self, bytes: u64) -> bool {
        rustix::fs::fstatvfs(&self.fd).is_ok_and(|s| {
            s.f_bavail * s.f_frsize < bytes || (s.f_files > 0 && s.f_favail < FEW_FILES)
        })
    }
}

impl Drop for Root {
    /// A mount that was refused leaves nothing in a directory that no mount has used: most likely it is the mount point of a disk that is
    /// missing, and what lies there is hidden as soon as the disk is back.
    fn drop(&mut self) {
        if !self.fresh.load(Ordering::SeqCst) {
            return;
        }
        for dir in [TEMPS, INTENTS, COPIES] {
            let _ = rustix::fs::unlinkat(&self.fd, dir, AtFlags::REMOVEDIR);
        }
        // Its id is stored by the mount that uses it.
        let ours = [SPARE, LOCK].map(|n| crate::tree::split(n).1.to_vec());
        let only_ours = self
            .list(HIDDEN)
            .is_ok_and(|all| all.iter().all(|n| ours.contains(n)));
        if only_ours {
            for name in [SPARE, LOCK] {
                let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
            }
            let _ = rustix::fs::unlinkat(&self.fd, HIDDEN, AtFlags::REMOVEDIR);
        }
    }
}

/// Gives this thread a working directory of its own, so that it can change it without affecting other threads. Returns false if the system
/// does not allow it.
pub(crate) fn own_working_directory() -> bool {
    // rustix marks this call as unsafe because of the flag that separates descriptor tables, which is not used here.
    #[expect(deprecated, reason = "the other name of the call is marked unsafe")]
    let done = rustix::thread::unshare(rustix::thread::UnshareFlags::FS);
    done.is_ok()
}

/// Accesses entries of one directory by name, so no path is walked.
pub(crate) struct DirEntries<'a> {
    dir: &'a OwnedFd,
    /// The path of the directory with a slash; `None` if it is this thread's working directory.
    prefix: Option<String>,
}

impl<'a> DirEntries<'a> {
    /// Entries of that directory. `own`: this thread has a working directory of its own ([`own_working_directory`]). Then names are
    /// resolved in it, because resolving a path through `/proc` costs more than twice as much as the call itself.
    pub(crate) fn new(dir: &'a OwnedFd, own: bool) -> DirEntries<'a> {
        use rustix::fd::AsRawFd;
        let inside = own && rustix::process::fchdir(dir).is_ok();
        let prefix = (!inside).then(|| format!("/proc/self/fd/{}/", dir.as_raw_fd()));
        DirEntries { dir, prefix }
    }
    /// The attributes of an entry.
    pub(crate) fn stat(&self, name: &CStr) -> Result<Option<Facts>, Errno> {
        match rustix::fs::statx(self.dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted()) {
            Ok(s) => Ok(Some(facts(&s))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }
    /// Calls `call` with a path of an entry.
    fn at<T>(&self, name: &CStr, call: impl FnOnce(&CStr) -> Result<T, Errno>) -> Result<T, Errno> {
        let Some(prefix) = &self.prefix else {
            return call(name);
        };
        let path = [prefix.as_bytes(), name.to_bytes()].concat();
        call(&CString::new(path).map_err(|_| Errno::INVAL)?)
    }
    /// Whether an entry has extended attributes besides the one with its number, and whether it may have that one.
    pub(crate) fn xattr_kinds(&self, name: &CStr) -> Result<(bool, bool), Errno> {
        let mut list = [0; 256];
        let listed = match self.at(name, |path| rustix::fs::llistxattr(path, &mut list)) {
            Ok(n) => &list[..n],
            // A longer list.
            Err(Errno::RANGE) => return Ok((true, true)),
            Err(Errno::OPNOTSUPP | Errno::NOENT) => return Ok((false, false)),
            Err(e) => return Err(e),
        };
        let mut names = listed.split(|b| *b == 0).filter(|n| !n.is_empty());
        let marked = names.clone().any(is_mark);
        Ok((names.any(|n| !is_mark(n)), marked))
    }
    /// The value of the attribute with the number.
    pub(crate) fn mark(&self, name: &CStr) -> Option<Mark> {
        NAMES.iter().find_map(|attribute| {
            let mut mark = Mark::default();
            let n = self.at(name, |path| {
                rustix::fs::lgetxattr(path, *attribute, &mut mark)
            });
            (n == Ok(mark.len())).then_some(mark)
        })
    }
}

/// Whether the path is the root's hidden directory or below it.
pub fn is_hidden(path: &[u8]) -> bool {
    path == HIDDEN || (path.starts_with(HIDDEN) && path.get(HIDDEN.len()) == Some(&b'/'))
}
