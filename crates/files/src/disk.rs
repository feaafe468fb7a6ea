//! Tiers as they are: directories of local or remote file systems, and the mover's calls on them.

use crate::tree::{At, Facts, HIDDEN, INTENTS, Id, TEMPS, Tier, Time, Tree, above, parent};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom, Statx, StatxFlags,
    Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tier's directory, open as long as it is mounted.
#[derive(Debug)]
pub struct Root {
    /// Where it is.
    pub path: PathBuf,
    /// The directory.
    pub fd: OwnedFd,
    /// Device of its file system.
    pub dev: u64,
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
        for dir in [&b"."[..], HIDDEN] {
            rustix::fs::fsync(self.directory(dir)?)?;
        }
        Ok(())
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

/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Longest value and list that Linux has.
const XATTR_MAX: usize = 65_536;

fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == 0).filter(|n| !n.is_empty())
}

/// All extended attributes of something below a root, not following a link.
///
/// # Errors
/// The device's; a file system without attributes has none.
pub fn xattrs(root: &Root, path: &[u8]) -> Result<Xattrs, Errno> {
    let path = &root.through(path)[..];
    // Most files have none, which needs no buffer.
    match rustix::fs::llistxattr_query(path) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(e) => return Err(e),
    }
    let mut list = vec![0; XATTR_MAX];
    let n = rustix::fs::llistxattr(path, &mut list[..])?;
    let mut all = Vec::new();
    for name in names(&list[..n]) {
        let mut value = vec![0; XATTR_MAX];
        let n = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(n);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

fn xattrs_of(fd: impl AsFd) -> Result<Xattrs, Errno> {
    let mut list = vec![0; XATTR_MAX];
    let n = match rustix::fs::flistxattr(&fd, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        n => n?,
    };
    let mut all = Vec::new();
    for name in names(&list[..n]) {
        let mut value = vec![0; XATTR_MAX];
        let n = rustix::fs::fgetxattr(&fd, name, &mut value[..])?;
        value.truncate(n);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

fn spec(t: Time) -> Timespec {
    Timespec {
        tv_sec: t.sec,
        tv_nsec: i64::from(t.nsec),
    }
}

/// Owner, mode, extended attributes and times of one open file to another.
///
/// # Errors
/// The target's file system cannot hold one of them, or the device's.
pub fn same_attributes(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    let f = facts_of(&from)?;
    rustix::fs::fchown(
        &to,
        Some(rustix::fs::Uid::from_raw(f.uid)),
        Some(rustix::fs::Gid::from_raw(f.gid)),
    )?;
    rustix::fs::fchmod(&to, Mode::from_raw_mode(f.mode & 0o7777))?;
    for (name, value) in xattrs_of(&from)? {
        match rustix::fs::fsetxattr(&to, &name[..], &value, XattrFlags::empty()) {
            // Labels that the system gives by itself.
            Err(Errno::OPNOTSUPP | Errno::PERM) if name == b"security.selinux" => {}
            other => other?,
        }
    }
    rustix::fs::futimens(
        &to,
        &Timestamps {
            last_access: spec(f.atime),
            last_modification: spec(f.mtime),
        },
    )
}

/// The mover's calls on real directories.
pub struct Disk {
    roots: Arc<Vec<Root>>,
    /// Source and copy that are being worked on.
    pair: Option<(At, OwnedFd, At, OwnedFd)>,
}

impl Disk {
    /// Over these tiers.
    pub fn new(roots: Arc<Vec<Root>>) -> Disk {
        Disk { roots, pair: None }
    }
    fn root(&self, tier: Tier) -> Result<&Root, Errno> {
        self.roots.get(usize::from(tier)).ok_or(Errno::NODEV)
    }
    fn pair(&mut self, from: &At, to: &At) -> Result<(&OwnedFd, &OwnedFd), Errno> {
        let same = |p: &(At, OwnedFd, At, OwnedFd)| p.0 == *from && p.2 == *to;
        if !self.pair.as_ref().is_some_and(same) {
            let source = self.root(from.tier)?;
            let source = source.open_at(&from.path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
            let target = self.root(to.tier)?.open_at(&to.path, OFlags::RDWR, 0)?;
            self.pair = Some((from.clone(), source, to.clone(), target));
        }
        let (_, a, _, b) = self.pair.as_ref().ok_or(Errno::BADF)?;
        Ok((a, b))
    }
}

fn next_data(fd: &OwnedFd, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => return Ok(None),
        // No holes are told of.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, size))),
        other => other?,
    };
    let end = rustix::fs::seek(fd, SeekFrom::Hole(start)).unwrap_or(size);
    Ok(Some((start, end)))
}

/// Copy a range, in the kernel where that can, else through memory. Bytes copied; fewer at the end of the file.
///
/// # Errors
/// The devices'.
pub fn copy_range(from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> Result<u64, Errno> {
    let (mut a, mut b, mut done) = (offset, offset, 0);
    while done < len {
        let want = (len - done) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut a), to, Some(&mut b), want) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_by_hand(from, to, offset + done, len - done).map(|n| n + done);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn copy_by_hand(from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> Result<u64, Errno> {
    let mut buffer = vec![0u8; len.min(1 << 20) as usize];
    let mut done = 0;
    while done < len {
        let want = (len - done).min(buffer.len() as u64) as usize;
        let n = rustix::io::retry_on_intr(|| {
            rustix::io::pread(from, &mut buffer[..want], offset + done)
        })?;
        if n == 0 {
            break;
        }
        write_all(to, &buffer[..n], offset + done)?;
        done += n as u64;
    }
    Ok(done)
}

/// Write all bytes.
///
/// # Errors
/// The device's.
pub fn write_all(fd: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match rustix::io::pwrite(fd, &bytes[done..], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl Tree for Disk {
    fn tiers(&self) -> Tier {
        self.roots.len() as Tier
    }
    fn stat(&mut self, at: &At) -> Result<Option<Facts>, Errno> {
        self.root(at.tier)?.stat(&at.path)
    }
    fn create(&mut self, at: &At, bytes: u64) -> Result<(), Errno> {
        self.pair = None;
        let root = self.root(at.tier)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = root.open_at(&at.path, flags, 0o600)?;
        // Room is asked for before anything is copied; a file with holes needs less, so only what is free counts.
        let (free, _) = root.room()?;
        let keep = FallocateFlags::KEEP_SIZE;
        let reserved = if bytes > free {
            Err(Errno::NOSPC)
        } else if bytes >= 1 << 20 {
            match rustix::fs::fallocate(&fd, keep, 0, bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
                other => other,
            }
        } else {
            Ok(())
        };
        if reserved.is_err() {
            rustix::fs::unlinkat(&root.fd, &at.path[..], AtFlags::empty())?;
        }
        reserved
    }
    fn copy(&mut self, from: &At, to: &At, offset: u64, len: u64) -> Result<Option<u64>, Errno> {
        let (source, target) = self.pair(from, to)?;
        let f = facts_of(source)?;
        let sparse = f.blocks * 512 < f.size;
        if offset == 0 {
            if sparse {
                // What was set aside would fill the holes.
                rustix::fs::ftruncate(target, 0)?;
            }
            rustix::fs::ftruncate(target, f.size)?;
        }
        let range = if sparse {
            next_data(source, offset, f.size)?
        } else {
            Some((offset, f.size))
        };
        let Some((start, end)) = range.filter(|r| r.0 < f.size) else {
            return Ok(None);
        };
        let want = (end - start).min(len);
        let done = copy_range(source, target, start, want)?;
        let next = start + done;
        Ok((done > 0 && next < f.size).then_some(next))
    }
    fn copy_attributes(&mut self, from: &At, to: &At) -> Result<(), Errno> {
        let (source, target) = self.pair(from, to)?;
        same_attributes(source, target)
    }
    fn write(&mut self, at: &At, bytes: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = self.root(at.tier)?.open_at(&at.path, flags, 0o600)?;
        write_all(&fd, bytes, 0)
    }
    fn read(&mut self, at: &At) -> Result<Vec<u8>, Errno> {
        let fd = self.root(at.tier)?.open_at(&at.path, OFlags::RDONLY, 0)?;
        let size = facts_of(&fd)?.size.min(1 << 24);
        let mut bytes = vec![0; size as usize];
        let mut done = 0;
        while done < bytes.len() {
            let n = rustix::io::pread(&fd, &mut bytes[done..], done as u64)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        bytes.truncate(done);
        Ok(bytes)
    }
    fn list(&mut self, at: &At) -> Result<Vec<Vec<u8>>, Errno> {
        let dir = match self.root(at.tier)?.directory(&at.path) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
    fn sync_file(&mut self, at: &At) -> Result<(), Errno> {
        if let Some((_, _, to, fd)) = &self.pair
            && to == at
        {
            return rustix::fs::fsync(fd);
        }
        let fd = self.root(at.tier)?.open_at(&at.path, OFlags::RDONLY, 0)?;
        rustix::fs::fsync(fd)
    }
    fn sync_dir(&mut self, at: &At) -> Result<(), Errno> {
        let dir = self.root(at.tier)?.directory(&at.path)?;
        match rustix::fs::fsync(dir) {
            // Some remote file systems do not sync directories at all.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(()),
            other => other,
        }
    }
    fn make_parents(&mut self, at: &At) -> Result<(), Errno> {
        let mut missing: Vec<&[u8]> = Vec::new();
        for dir in above(&at.path) {
            match rustix::fs::statx(
                &self.root(at.tier)?.fd,
                dir,
                AtFlags::SYMLINK_NOFOLLOW,
                wanted(),
            ) {
                Ok(s) if u32::from(s.stx_mode) & 0o170_000 == 0o040_000 => break,
                Ok(_) => return Err(Errno::NOTDIR),
                Err(Errno::NOENT) => missing.push(dir),
                Err(e) => return Err(e),
            }
        }
        let root = self.root(at.tier)?;
        for dir in missing.into_iter().rev() {
            rustix::fs::mkdirat(&root.fd, dir, Mode::from_raw_mode(0o700))?;
            let new = root.directory(dir)?;
            let others = self.roots.iter().enumerate();
            let mut others = others.filter(|o| o.0 != usize::from(at.tier));
            if let Some(like) = others.find_map(|(_, r)| r.directory(dir).ok()) {
                same_attributes(like, new)?;
            }
        }
        Ok(())
    }
    fn rename(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        let fd = &self.root(from.tier)?.fd;
        rustix::fs::renameat(fd, &from.path[..], fd, to)
    }
    fn exchange(&mut self, a: &At, b: &[u8]) -> Result<(), Errno> {
        let fd = &self.root(a.tier)?.fd;
        rustix::fs::renameat_with(fd, &a.path[..], fd, b, RenameFlags::EXCHANGE)
    }
    fn link(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        let fd = &self.root(from.tier)?.fd;
        rustix::fs::linkat(fd, &from.path[..], fd, to, AtFlags::empty())
    }
    fn unlink(&mut self, at: &At) -> Result<(), Errno> {
        if self.pair.as_ref().is_some_and(|p| p.2 == *at) {
            self.pair = None;
        }
        let fd = &self.root(at.tier)?.fd;
        rustix::fs::unlinkat(fd, &at.path[..], AtFlags::empty())
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
