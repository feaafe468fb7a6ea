//! Opening, reading and writing.

use super::gate::Claim;
use super::{Handle, Served, TTL, errno, libc_accmode};
use crate::catalogue::NodeId;
use crate::live::{Live, Need};
use crate::placement::Access;
use crate::sync::{lock, write_lock};
use crate::tree::{Facts, Tier};
use fuser::{
    FileHandle, FopenFlags, INodeNo, OpenFlags, ReplyCreate, ReplyData, ReplyDirectoryPlus,
    ReplyOpen, ReplyStatfs, ReplyWrite,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

thread_local! {
    /// The read buffer of this session thread, as large as its largest read so far.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Served {
    pub(super) fn open_file(&self, ino: INodeNo, pid: u32, flags: OpenFlags, reply: ReplyOpen) {
        let Some(id) = self.node(ino) else {
            return reply.error(errno(Errno::STALE));
        };
        let wrote = flags.0 & libc_accmode() != 0;
        let need = if wrote || self.io.passes() {
            Need::Home
        } else {
            Need::Data
        };
        let before = self.store.cat().get(id).map(|n| n.facts);
        let opened = self.store.live_for(id, need);
        // If only the copy of the file is open, its disk was not accessed, so the process did not use the disk.
        let asleep = matches!(&opened, Ok((live, _)) if live.hold().backing().is_err());
        if !asleep {
            self.store.names.used_by(&self.store.tiers, id, pid);
        }
        let (live, opened) = match opened {
            Ok(live) => live,
            Err(e) => return reply.error(errno(e)),
        };
        // Others have put another file there, which has another number. The kernel looks the name up and opens that one; a handle is stale.
        if self.node(ino) != Some(id) {
            self.store.release(&live);
            return reply.error(errno(Errno::STALE));
        }
        if wrote && opened.is_none() && self.store.lost_its_name(&live) {
            self.store.release(&live);
            return reply.error(errno(Errno::BUSY));
        }
        // The kernel appends at the end that it knows, over what others have added since. After this error it looks the name up, which
        // tells it the end, and opens the file again.
        let size = |f: Option<Facts>| f.map(|f| f.size);
        if wrote && opened.is_some() && size(opened) != size(before) {
            if let Some(now) = opened {
                self.store.names.seen(&self.store.tiers, id, now);
            }
            lock(&self.forgotten).insert(id);
            self.store.release(&live);
            return reply.error(errno(Errno::STALE));
        }
        let passes = self.passes(&live, wrote, |fd| reply.open_backing(fd));
        let now = opened.or_else(|| if asleep { before } else { live.facts().ok() });
        let fh = self.keep(Handle {
            told: live.syncs.user(),
            live,
            passes: passes.clone(),
            wrote,
        });
        if let Some(p) = passes {
            (self.store.placement).record(Access::new(id, wrote, 0, 1 << 16));
            return reply.opened_passthrough(fh, p.flags(), &p.id);
        }
        // If the file was changed directly on its tier since its attributes were last read, the kernel's cache must not be used.
        let keep = matches!((before, now), (Some(a), Some(b)) if a.version() == b.version());
        let keep = keep && !lock(&self.forgotten).remove(&id);
        if !keep {
            if let Some(now) = now {
                self.store.names.seen(&self.store.tiers, id, now);
            }
            self.store.open.tell_kernel(ino.0);
        }
        // Writes of an earlier passthrough handle did not reach that cache.
        let flags = if keep && !self.io.passes() {
            FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::empty()
        };
        reply.opened(fh, flags);
    }
    /// Reports that a file was created and is open.
    pub(super) fn created(&self, id: NodeId, live: Arc<Live>, facts: &Facts, reply: ReplyCreate) {
        let passes = self.passes(&live, true, |fd| reply.open_backing(fd));
        if !self.store.cat_mut().refer(id) {
            if let Some(p) = &passes {
                self.passed(p);
            }
            self.store.release(&live);
            return reply.error(errno(Errno::NOENT));
        }
        let attr = self.attr(id, facts);
        let generation = self.generation(attr.ino);
        let fh = self.keep(Handle {
            told: live.syncs.user(),
            live,
            passes: passes.clone(),
            wrote: true,
        });
        match passes {
            Some(p) => {
                reply.created_passthrough(&TTL, &attr, generation, fh, p.flags(), &p.id);
            }
            None => reply.created(&TTL, &attr, generation, fh, FopenFlags::FOPEN_KEEP_CACHE),
        }
    }
    pub(super) fn close_file(&self, fh: FileHandle) {
        let mut all = write_lock(&self.handles);
        let Some(h) = all.remove(&fh.0) else { return };
        drop(all);
        if h.maps() {
            h.live.mappers.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(p) = &h.passes {
            self.passed(p);
            // The kernel read and changed the file without notice.
            h.live.mark_used();
            if h.wrote {
                let write = Access::new(h.live.node, true, 0, 1 << 16);
                self.store.placement.record(write);
            }
        }
        self.store.release(&h.live);
    }
    pub(super) fn read_file(
        &self,
        fh: FileHandle,
        pid: u32,
        offset: u64,
        size: usize,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let buffer = &mut buffer[..size];
            let read = self.handle(fh).and_then(|h| {
                let asleep = h.live.hold().backing().is_err();
                let read = self.store.read(&h.live, offset, buffer);
                if asleep && h.live.hold().backing().is_ok() {
                    (self.store.names).used_by(&self.store.tiers, h.live.node, pid);
                }
                read
            });
            match read {
                Ok(n) => reply.data(&buffer[..n]),
                Err(e) => reply.error(errno(e)),
            }
        });
    }
    /// A part of a listing, from an offset on, with the attributes of each file.
    pub(super) fn list_with_attributes(
        &self,
        dir: NodeId,
        fh: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) {
        self.listed(dir, fh, offset, |id, next, name| {
            let dots = name == b"." || name == b"..";
            let Ok(attr) = self.refer(id) else {
                return false;
            };
            let name = OsStr::from_bytes(name);
            let generation = self.generation(attr.ino);
            let full = reply.add(attr.ino, next, name, &TTL, &attr, generation);
            if full || dots {
                self.forget_one(attr.ino, 1);
            }
            full
        });
    }
    /// Space of all disks together, within the quotas.
    pub(super) fn space(&self, reply: ReplyStatfs) {
        let (mut blocks, mut free, mut avail, mut files, mut ffree) = (0, 0, 0, 0, 0);
        let roots = &self.store.roots;
        for disk in crate::disk::apart(roots, 0..roots.len() as Tier) {
            let root = &roots[usize::from(disk)];
            // A disk that has not answered for a while is left out.
            if root.hangs() {
                continue;
            }
            let Ok(s) = rustix::fs::fstatvfs(&root.fd) else {
                continue;
            };
            let scale = |n: u64| n * s.f_frsize / 4096;
            blocks += scale(s.f_blocks);
            free += scale(s.f_bfree);
            avail += scale(s.f_bavail);
            files += s.f_files;
            ffree += s.f_ffree;
        }
        if let Some((rest, all)) = self.store.room_in_quotas() {
            (free, avail) = (free.min(rest / 4096), avail.min(rest / 4096));
            blocks = blocks.min(all / 4096);
        }
        reply.statfs(blocks, free, avail, files, ffree, 4096, 255, 4096);
    }
    pub(super) fn write_file(
        &self,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        flags: OpenFlags,
        strip: bool,
        reply: ReplyWrite,
    ) {
        let durable = OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC);
        let done = self.handle(fh).and_then(|handle| {
            let _space = self.claim(&handle, offset, data.len() as u64)?;
            let live = &handle.live;
            let written = self.store.write_some(live, offset, data, durable)?;
            if strip {
                self.store.strip_rights(live)?;
            }
            Ok(written)
        });
        match done {
            Ok(n) => reply.written(n as u32),
            Err(e) => reply.error(errno(e)),
        }
    }
    /// Copies at most `len` bytes from a place in one file to a place in another. Returns the number of bytes copied.
    pub(super) fn copy_range(
        &self,
        uid: u32,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        len: u64,
    ) -> Result<u64, Errno> {
        let (a, b) = (self.handle(from.0)?, self.handle(to.0)?);
        let len = len.min(1 << 30);
        let _space = self.claim(&b, to.1, len)?;
        let copied = self.store.copy(&a.live, from.1, &b.live, to.1, len)?;
        self.stripped(uid, &b)?;
        Ok(copied)
    }
    /// Space for a change of a file, see [`Gate::claim`].
    pub(super) fn claim(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<Claim<'_>>, Errno> {
        let gate = self.gate.as_ref();
        gate.map_or(Ok(None), |g| g.claim(&handle.live, offset, bytes))
    }
    /// Removes set-user-ID rights after a call that changed data and for which the kernel does not say whether they must be removed.
    pub(super) fn stripped(&self, uid: u32, handle: &Handle) -> Result<(), Errno> {
        if !self.io.passes() && uid != 0 {
            return self.store.strip_rights(&handle.live);
        }
        Ok(())
    }
}
