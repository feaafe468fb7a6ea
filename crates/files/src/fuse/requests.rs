//! Each request of the kernel, and its answer from the store.

use super::{
    Served, TTL, attr, errno, kind, negative_entry, node, number, request_capabilities, set_time,
};
use crate::data::SetAttr;
use crate::names::IfPresent;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

impl Filesystem for Served {
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
        let id = self.store.cat().child(node(parent), name.as_bytes());
        match id {
            Some(id) => self.entry(Ok(id), reply),
            // There is no such name. The kernel may cache that, too.
            None => reply.entry(&TTL, &negative_entry(), Generation(0)),
        }
    }
    fn forget(&self, _req: &Request, ino: INodeNo, n: u64) {
        self.forget_one(node(ino), n);
    }
    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.store.facts(node(ino)) {
            Ok(f) => reply.attr(&TTL, &attr(node(ino), &f)),
            Err(e) => reply.error(errno(e)),
        }
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
        match self.store.set_attr(node(ino), &set) {
            Ok(f) => reply.attr(&TTL, &attr(node(ino), &f)),
            Err(e) => reply.error(errno(e)),
        }
    }
    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.store.cat().get(node(ino)).and_then(|n| n.target()) {
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
        let (dir, creator, name) = (node(parent), Self::creator(req, umask), name.as_bytes());
        if mode & 0o170_000 == 0o100_000 || mode & 0o170_000 == 0 {
            let made = self.store.create(dir, name, mode, creator);
            self.entry(
                made.map(|(id, live, _)| {
                    self.store.release(&live);
                    id
                }),
                reply,
            );
            return;
        }
        let dev = rustix::fs::makedev(
            (rdev >> 8) & 0xfff,
            (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00),
        );
        self.entry(self.store.mknod(dir, name, mode, dev, creator), reply);
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
        let creator = Self::creator(req, umask);
        let made = self
            .store
            .mkdir(node(parent), name.as_bytes(), mode, creator);
        self.entry(made, reply);
    }
    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::empty(
            self.store.unlink(node(parent), name.as_bytes()).map(|_| ()),
            reply,
        );
    }
    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::empty(self.store.rmdir(node(parent), name.as_bytes()), reply);
    }
    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let creator = Self::creator(req, 0);
        self.entry(
            self.store
                .symlink(node(parent), name.as_bytes(), target, creator),
            reply,
        );
    }
    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            reply.error(errno(Errno::INVAL));
            return;
        }
        let if_present = if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            IfPresent::Exchange
        } else if flags.contains(RenameFlags::RENAME_NOREPLACE) {
            IfPresent::Refuse
        } else {
            IfPresent::Replace
        };
        let from = (node(parent), name.as_bytes());
        let to = (node(newparent), newname.as_bytes());
        Self::empty(self.store.rename(from, to, if_present), reply);
    }
    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let done = self
            .store
            .link(node(ino), node(newparent), newname.as_bytes());
        self.entry(done.map(|()| node(ino)), reply);
    }
    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_file(node(ino), req.pid(), flags, reply);
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
        self.read_file(fh, req.pid(), offset, size as usize, reply);
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
        match self.write_file(fh, offset, data, flags, strip) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(errno(e)),
        }
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
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close_file(node(ino), fh);
        reply.ok();
    }
    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        Self::empty(
            self.handle(fh)
                .and_then(|h| self.store.sync(&h.live, datasync)),
            reply,
        );
    }
    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.insert(fh, Arc::default());
        reply.opened(FileHandle(fh), FopenFlags::empty());
    }
    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.listed(node(ino), fh, offset, |id, next, name| {
            let mode = self.store.cat().get(id).map(|n| n.facts.mode);
            mode.is_some_and(|m| reply.add(number(id), next, kind(m), OsStr::from_bytes(name)))
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
        self.listed(node(ino), fh, offset, |id, next, name| {
            let dots = name == b"." || name == b"..";
            let Ok((attr, generation)) = self.refer(id) else {
                return false;
            };
            let full = reply.add(
                number(id),
                next,
                OsStr::from_bytes(name),
                &TTL,
                &attr,
                generation,
            );
            if full || dots {
                self.forget_one(id, 1);
            }
            full
        });
        reply.ok();
    }
    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&fh.0);
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
        Self::empty(self.store.sync_dir(node(ino)), reply);
    }
    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (mut blocks, mut free, mut avail, mut files, mut ffree) = (0, 0, 0, 0, 0);
        let mut devices = Vec::new();
        for root in self.store.roots.iter() {
            let Ok(s) = rustix::fs::fstatvfs(&root.fd) else {
                continue;
            };
            // Two tiers on one file system share its space.
            if root.absent || devices.contains(&root.dev) {
                continue;
            }
            devices.push(root.dev);
            let scale = |n: u64| n * s.f_frsize / 4096;
            blocks += scale(s.f_blocks);
            free += scale(s.f_bfree);
            avail += scale(s.f_bavail);
            files += s.f_files;
            ffree += s.f_ffree;
        }
        reply.statfs(blocks, free, avail, files, ffree, 4096, 255, 4096);
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
        let (id, name) = (node(ino), name.as_bytes());
        let done = match crate::control::query_name(name) {
            Some(what) => self
                .may_command(req)
                .and_then(|()| crate::control::command(&self.store, id, what, value)),
            None => self.store.set_xattr(id, name, value, flags as u32),
        };
        Self::empty(done, reply);
    }
    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (id, name) = (node(ino), name.as_bytes());
        let value = match crate::control::query_name(name) {
            Some(_) if size == 0 => return reply.size(crate::control::ANSWER_MAX as u32),
            Some(what) => self.answer(req, id, what),
            None => {
                let cat = self.store.cat();
                let found = cat.xattrs(id).iter().find(|x| x.0 == name);
                found.map(|x| x.1.clone()).ok_or(Errno::NODATA)
            }
        };
        Self::sized(value, size, reply);
    }
    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut list = Vec::new();
        for (name, _) in self.store.cat().xattrs(node(ino)) {
            list.extend_from_slice(name);
            list.push(0);
        }
        Self::sized(Ok(list), size, reply);
    }
    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::empty(self.store.remove_xattr(node(ino), name.as_bytes()), reply);
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
        let creator = Self::creator(req, umask);
        let made = self
            .store
            .create(node(parent), name.as_bytes(), mode, creator);
        match made {
            Ok((id, live, facts)) => self.created(id, live, &facts, reply),
            Err(e) => reply.error(errno(e)),
        }
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
        Self::empty(
            self.handle(fh).and_then(|h| {
                self.store.fallocate(&h.live, offset, length, mode)?;
                self.stripped(req, &h)
            }),
            reply,
        );
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
        let found = match (u64::try_from(offset), whence) {
            (Ok(at), 3 | 4) => self.seek(fh, at, whence == 4),
            _ => Err(Errno::INVAL),
        };
        match found {
            Ok(at) => reply.offset(at as i64),
            Err(e) => reply.error(errno(e)),
        }
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
        let copied = self.handle(fh_in).and_then(|a| {
            let b = self.handle(fh_out)?;
            let len = len.min(1 << 30);
            let copied = self
                .store
                .copy(&a.live, offset_in, &b.live, offset_out, len)?;
            self.stripped(req, &b)?;
            Ok(copied)
        });
        match copied {
            Ok(n) => reply.written(n as u32),
            Err(e) => reply.error(errno(e)),
        }
    }
}
