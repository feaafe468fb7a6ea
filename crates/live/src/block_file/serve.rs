//! The file system of one file: all calls but reads, writes and fsyncs, which never come here (`calls.rs`).

mod ranges;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request, TimeOrNow,
};

use super::Options;
use super::calls::is_durable;
use super::wire::MAX_IO;
use crate::port::Port;

/// `lseek`, in `linux/fs.h`.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

const ROOT: INodeNo = INodeNo::ROOT;
pub(super) const FILE: INodeNo = INodeNo(2);
/// Names and attributes never change while the volume is served, so the kernel need not query them again. If the volume grows, the kernel is
/// told to forget the attributes of the file ([`super::Mount::resized`]).
const FOREVER: Duration = Duration::from_secs(24 * 3600);
/// The volume as a directory with one file.
pub(super) struct Volume {
    port: Arc<dyn Port>,
    name: OsString,
    read_only: bool,
    max_background: u16,
    /// Largest read or write request, bytes.
    max_io: u32,
    root: FileAttr,
    file: FileAttr,
    /// Set when the file may no longer be opened.
    shut: Arc<AtomicBool>,
    /// Unit of `statfs`; the loop driver takes it for the granularity of discards.
    unit: u32,
}

impl Volume {
    pub(super) fn new(
        port: Arc<dyn Port>,
        name: &str,
        options: &Options,
        shut: Arc<AtomicBool>,
    ) -> Volume {
        let (read_only, unit) = (port.read_only(), port.block_bytes().max(512));
        let now = SystemTime::now();
        let file = FileAttr {
            ino: FILE,
            // See `attributes`.
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: FileType::RegularFile,
            perm: if read_only { 0o400 } else { 0o600 },
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            // The kernel stores only its logarithm.
            blksize: options
                .preferred_bytes
                .clamp(4096, 16 << 20)
                .next_power_of_two(),
            flags: 0,
        };
        let root = FileAttr {
            ino: ROOT,
            kind: FileType::Directory,
            perm: if options.allow_other { 0o755 } else { 0o700 },
            nlink: 2,
            ..file
        };
        let max_background = options.max_background.max(1);
        Volume {
            shut,
            port,
            name: name.into(),
            read_only,
            max_background,
            max_io: if options.ring {
                super::ring::LARGEST
            } else {
                MAX_IO
            },
            root,
            file,
            unit,
        }
    }

    /// The size of the file, which is that of the volume.
    fn size(&self) -> u64 {
        self.port.volume_bytes()
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let size = self.size();
        match ino {
            ROOT => Some(self.root),
            FILE => Some(FileAttr {
                size,
                blocks: size.div_ceil(512),
                ..self.file
            }),
            _ => None,
        }
    }

    /// The error for a change of the directory, which never changes; a read-only volume has an error of its own, as in other file systems.
    fn refusal(&self) -> Errno {
        if self.read_only {
            Errno::EROFS
        } else {
            Errno::EPERM
        }
    }

    /// Bytes of `offset..offset + len` inside the volume.
    fn inside(&self, offset: u64, len: u64) -> u64 {
        len.min(self.size().saturating_sub(offset))
    }
}

impl Filesystem for Volume {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // These calls may be refused: an older kernel has its own limit or lacks the feature, and the file works nevertheless.
        let _ = config.set_max_write(self.max_io);
        if let Err(most) = config.set_max_readahead(self.max_io) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(self.max_background);
        for ability in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(ability);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let file = self.attributes(FILE);
        match file.filter(|_| parent == ROOT && name == self.name) {
            Some(file) => reply.entry(&FOREVER, &file, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Times are accepted and forgotten (no program relies on those of a device node); everything else is refused, a size too unless it is
    /// the present one.
    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(ino) else {
            return reply.error(Errno::ENOENT);
        };
        let changes_size = size.is_some_and(|s| s != attributes.size);
        if self.read_only
            || changes_size
            || mode.is_some()
            || uid.is_some()
            || gid.is_some()
            || flags.is_some()
        {
            return reply.error(self.refusal());
        }
        reply.attr(&FOREVER, &attributes);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.shut.load(Ordering::Acquire) {
            return reply.error(Errno::ESHUTDOWN);
        }
        if self.read_only && flags.acc_mode() != fuser::OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let how = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        // `fallocate` comes without the flags of the descriptor, so the handle has the one that matters to it.
        reply.opened(FileHandle(u64::from(is_durable(flags.0))), how);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.change_range(offset, length, mode, fh.0 != 0, reply);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let found = match u64::try_from(offset) {
            Ok(offset) if offset < self.size() => self.seek(offset, data),
            _ => Err(Errno::ENXIO),
        };
        match found {
            Ok(at) => reply.offset(at as i64),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (ROOT, FileType::Directory, OsStr::new(".")),
            (ROOT, FileType::Directory, OsStr::new("..")),
            (FILE, FileType::RegularFile, self.name.as_os_str()),
        ];
        for (next, (ino, kind, name)) in (1u64..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // Full: no file can be created here, whatever the volume's own free space.
        reply.statfs(
            self.size() / u64::from(self.unit),
            0,
            0,
            1,
            0,
            self.unit,
            255,
            self.unit,
        );
    }

    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        // The kernel remembers this answer and does not call again.
        reply.error(Errno::ENOSYS);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refusal());
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refusal());
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &std::path::Path, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refusal());
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(self.refusal());
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(self.refusal());
    }
}
