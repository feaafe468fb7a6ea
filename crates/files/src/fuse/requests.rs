//! Each request of the kernel, and its answer from the store.

use super::{
    Front, Served, TTL, errno, if_present, kind, negative_entry, request_capabilities, set_time,
};
use crate::attributes::SetAttr;
use crate::sync::lock;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// The node that the kernel knows by a number. If it is gone, the answer is ESTALE: then the kernel looks the name up again, and the user of
/// a file handle gets the error.
macro_rules! node {
    ($served:expr, $ino:expr, $reply:expr) => {
        match $served.node($ino) {
            Some(id) => id,
            None => return $reply.error(errno(Errno::STALE)),
        }
    };
}

impl Filesystem for Front {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        request_capabilities(self.io, config);
        Ok(())
    }
    fn destroy(&mut self) {
        self.ended.say();
    }
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name.len() > crate::names::NAME_MAX {
            return reply.error(errno(Errno::NAMETOOLONG));
        }
        let at = node!(self, parent, reply);
        match self.named(at, name.as_bytes()) {
            Err(e) => reply.error(errno(e)),
            Ok(Some(id)) => self.run(self.facts_wait(id), move |s| s.entry(Ok(id), reply)),
            // There is no such name. The kernel may cache that, too.
            Ok(None) => reply.entry(&TTL, &negative_entry(), Generation(0)),
        }
    }
    fn forget(&self, _req: &Request, ino: INodeNo, n: u64) {
        self.forget_one(ino, n);
    }
    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let id = node!(self, ino, reply);
        self.run(self.facts_wait(id), move |s| match s.store.facts(id) {
            Ok(f) => reply.attr(&TTL, &s.attr(id, &f)),
            Err(e) => reply.error(errno(e)),
        });
    }
    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            strip: size.is_some() && req.uid() != 0,
            mode,
            uid,
            gid,
            size,
            atime: set_time(atime),
            mtime: set_time(mtime),
        };
        let id = node!(self, ino, reply);
        self.run(self.change_waits(id), move |s| {
            match s.store.set_attr(id, &set) {
                Ok(f) => reply.attr(&TTL, &s.attr(id, &f)),
                Err(e) => reply.error(errno(e)),
            }
        });
    }
    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let id = node!(self, ino, reply);
        match self.store.cat().get(id).and_then(|n| n.target()) {
            Some(to) => reply.data(to),
            None => reply.error(errno(Errno::INVAL)),
        }
    }
    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (dir, creator) = (node!(self, parent, reply), Served::creator(req, umask));
        let name = name.as_bytes().to_vec();
        let dev = rustix::fs::makedev(
            (rdev >> 8) & 0xfff,
            (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00),
        );
        self.run(self.creation_waits(), move |s| {
            let made = if matches!(mode & 0o170_000, 0o100_000 | 0) {
                let made = s.store.create(dir, &name, mode, creator);
                made.map(|(id, live, _)| {
                    s.store.release(&live);
                    id
                })
            } else {
                s.store.mknod(dir, &name, mode, dev, creator)
            };
            s.entry(made, reply);
        });
    }
    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (dir, creator) = (node!(self, parent, reply), Served::creator(req, umask));
        let name = name.as_bytes().to_vec();
        self.run(self.creation_waits(), move |s| {
            s.entry(s.store.mkdir(dir, &name, mode, creator), reply);
        });
    }
    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (node!(self, parent, reply), name.as_bytes().to_vec());
        self.run(self.name_waits(dir, &name), move |s| {
            Served::empty(s.store.unlink(dir, &name).map(|_| ()), reply);
        });
    }
    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (node!(self, parent, reply), name.as_bytes().to_vec());
        self.run(self.name_waits(dir, &name), move |s| {
            Served::empty(s.store.rmdir(dir, &name), reply);
        });
    }
    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes().to_vec();
        let (dir, creator) = (node!(self, parent, reply), Served::creator(req, 0));
        let name = name.as_bytes().to_vec();
        self.run(self.creation_waits(), move |s| {
            s.entry(s.store.symlink(dir, &name, &target, creator), reply);
        });
    }
    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let whiteout = flags.contains(RenameFlags::RENAME_WHITEOUT);
        let whiteout = whiteout.then(|| Served::creator(req, 0));
        let if_present = if_present(flags);
        let (dir, name) = (node!(self, parent, reply), name.as_bytes().to_vec());
        let (to, new_name) = (node!(self, newparent, reply), newname.as_bytes().to_vec());
        let waits = self.name_waits(dir, &name) || self.name_waits(to, &new_name);
        self.run(waits, move |s| {
            let (from, to) = ((dir, &name[..]), (to, &new_name[..]));
            let done = s.store.rename_leaving(from, to, if_present, whiteout);
            Served::empty(done, reply);
        });
    }
    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (id, dir) = (node!(self, ino, reply), node!(self, newparent, reply));
        let name = newname.as_bytes().to_vec();
        self.run(self.change_waits(id), move |s| {
            s.entry(s.store.link(id, dir, &name).map(|()| id), reply);
        });
    }
    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (id, pid) = (node!(self, ino, reply), req.pid());
        if let Err(e) = self.may_open(req) {
            return reply.error(errno(e));
        }
        // It waits for the end of a move, and that for the other tier.
        let waits = self.is_slow(id) || self.facts_wait(id);
        self.run(waits, move |s| s.open_file(ino, pid, flags, reply));
    }
    fn read(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let pid = req.pid();
        self.run(self.use_waits(fh, false), move |s| {
            s.read_file(fh, pid, offset, size as usize, reply);
        });
    }
    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let strip = how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        if let Some(_turn) = self.helpers.turn(self.use_waits(fh, true)) {
            return self.write_file(fh, offset, data, flags, strip, reply);
        }
        let (s, data) = (Arc::clone(&self.0), data.to_vec());
        self.helpers
            .hand_over(move || s.write_file(fh, offset, &data, flags, strip, reply));
    }
    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // There is nothing to flush, and the kernel keeps the locks, so it need not ask again.
        reply.error(errno(Errno::NOSYS));
    }
    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.run(self.use_waits(fh, false), move |s| {
            s.close_file(fh);
            reply.ok();
        });
    }
    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.run(self.use_waits(fh, false), move |s| {
            let done = s.handle(fh).and_then(|h| {
                let done = s.store.sync(&h.live, datasync);
                h.live.syncs.tell(&h.told, done)
            });
            Served::empty(done, reply);
        });
    }
    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(self.new_listing(), FopenFlags::empty());
    }
    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let dir = node!(self, ino, reply);
        self.listed(dir, fh, offset, |id, next, name| {
            let cat = self.store.cat();
            let (mode, shown) = (cat.get(id).map(|n| n.facts.mode), cat.shown_number(id));
            drop(cat);
            let name = OsStr::from_bytes(name);
            mode.is_some_and(|m| reply.add(INodeNo(shown), next, kind(m), name))
        });
        reply.ok();
    }
    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let dir = node!(self, ino, reply);
        let waits = self.store.names.may_wait() || self.has_remote();
        self.run(waits, move |s| {
            s.list_with_attributes(dir, fh, offset, &mut reply);
            reply.ok();
        });
    }
    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.lists).remove(&fh.0);
        reply.ok();
    }
    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let id = node!(self, ino, reply);
        self.run(self.is_slow(id), move |s| {
            Served::empty(s.store.sync_dir(id), reply);
        });
    }
    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.run(self.has_remote(), move |s| s.space(reply));
    }
    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (id, name) = (node!(self, ino, reply), name.as_bytes().to_vec());
        let (value, may) = (value.to_vec(), self.may_command(req));
        self.run(self.change_waits(id), move |s| {
            let done = match crate::control::query_name(&name) {
                Some(what) => {
                    may.and_then(|()| crate::control::command(&s.store, id, what, &value))
                }
                None => s.store.set_xattr(id, &name, &value, flags as u32),
            };
            Served::empty(done, reply);
        });
    }
    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (id, name) = (node!(self, ino, reply), name.as_bytes());
        let value = match crate::control::query_name(name) {
            Some(_) if size == 0 => return reply.size(crate::control::ANSWER_MAX as u32),
            // It may be `check`, which reads all tiers.
            Some(what) => {
                let (may, what) = (self.may_command(req).is_ok(), what.to_owned());
                return self.run(true, move |s| {
                    Served::sized(s.answer(may, id, &what), size, reply);
                });
            }
            None => {
                let cat = self.store.cat();
                let found = cat.xattrs(id).iter().find(|x| x.0 == name);
                found.map(|x| x.1.clone()).ok_or(Errno::NODATA)
            }
        };
        Served::sized(value, size, reply);
    }
    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let id = node!(self, ino, reply);
        Served::sized(Ok(self.xattr_names(id)), size, reply);
    }
    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (id, name) = (node!(self, ino, reply), name.as_bytes().to_vec());
        self.run(self.change_waits(id), move |s| {
            Served::empty(s.store.remove_xattr(id, &name), reply);
        });
    }
    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (dir, creator) = (node!(self, parent, reply), Served::creator(req, umask));
        let name = name.as_bytes().to_vec();
        if let Err(e) = self.may_open(req) {
            return reply.error(errno(e));
        }
        self.run(self.creation_waits(), move |s| {
            match s.store.create(dir, &name, mode, creator) {
                Ok((id, live, facts)) => s.created(id, live, &facts, reply),
                Err(e) => reply.error(errno(e)),
            }
        });
    }
    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let uid = req.uid();
        self.run(self.use_waits(fh, true), move |s| {
            let done = s.handle(fh).and_then(|h| {
                let takes =
                    u64::from(mode & FallocateFlags::PUNCH_HOLE.bits() as i32 == 0) * length;
                let _space = s.claim(&h, offset, takes)?;
                s.store.fallocate(&h.live, offset, length, mode)?;
                s.stripped(uid, &h)
            });
            Served::empty(done, reply);
        });
    }
    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // SEEK_DATA is 3 and SEEK_HOLE is 4. The kernel handles the others itself.
        self.run(true, move |s| {
            let found = match (u64::try_from(offset), whence) {
                (Ok(at), 3 | 4) => s.seek(fh, at, whence == 4),
                _ => Err(Errno::INVAL),
            };
            match found {
                Ok(at) => reply.offset(at as i64),
                Err(e) => reply.error(errno(e)),
            }
        });
    }
    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let uid = req.uid();
        let waits = self.use_waits(fh_in, false) || self.use_waits(fh_out, true);
        self.run(waits, move |s| {
            match s.copy_range(uid, (fh_in, offset_in), (fh_out, offset_out), len) {
                Ok(n) => reply.written(n as u32),
                Err(e) => reply.error(errno(e)),
            }
        });
    }
}
