//! Data of files: reads, writes, syncs; space and holes; copies from file to file.

use crate::catalogue::{self, NodeId};
use crate::copies::EVICT_BYTES;
use crate::copies::ranges::Change;
use crate::disk::{copy_range, read_all, write_counted};
use crate::live::{Backing, Live};
use crate::placement::Access;
use crate::recording::Op;
use crate::store::Store;
use crate::sync::lock;
use crate::tiers::Kind;
use crate::tree::{Tier, disks_in};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How often one change of a file on the slowest tier has other files pushed to other disks there.
const PUSHES_MAX: u32 = 64;

/// Calls of fallocate(2) after which a range holds no data.
const GIVES_UP: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::ZERO_RANGE);

/// Bytes of space that a write of that range may need: what lies behind the beginning of the next hole, or behind the end of the file.
pub(crate) fn growth(fd: &OwnedFd, offset: u64, bytes: u64) -> u64 {
    let end = offset.saturating_add(bytes);
    // Behind the end of the file there is no hole to be found, and space is needed from the first byte on.
    let hole = rustix::fs::seek(fd, SeekFrom::Hole(offset)).unwrap_or(offset);
    end.saturating_sub(hole.max(offset))
}

impl Store {
    pub(crate) fn truncate(&self, node: NodeId, size: u64, strip: bool) -> Result<(), Errno> {
        if !self.cat().get(node).is_some_and(|n| n.is_file()) {
            return Err(Errno::INVAL);
        }
        let live = self.live(node)?;
        let start = self.recording.start();
        let done = self.with_room(&live, &Change::Cut(size), |fd, _| {
            rustix::fs::ftruncate(fd, size)
        });
        self.note(start, Op::Drop, node, (size, u64::MAX - size));
        let done = match done {
            Ok(()) if strip => self.strip_rights(&live),
            done => done,
        };
        self.release(&live);
        done
    }
    /// Changes data, at home and then on the copy; the second argument of `f` is true for the home. If the disk is full, the file moves to
    /// another one with space, of the same tier first, then of slower ones, and the change is tried again. A disk that was full for this
    /// change is not tried twice, so it ends.
    pub(crate) fn with_room<T>(
        &self,
        live: &Arc<Live>,
        change: &Change<'_>,
        f: impl Fn(&OwnedFd, bool) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.change_with_room(live, change, f).inspect_err(|_| {
            // A part of it may be done. The kernel would go on with the size from before.
            self.open.tell_kernel(self.names.shown_number(live.node));
        })
    }
    fn change_with_room<T>(
        &self,
        live: &Arc<Live>,
        change: &Change<'_>,
        f: impl Fn(&OwnedFd, bool) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.open_home(live)?;
        let (mut full, mut pushed) = (0u16, 0);
        loop {
            let tier = {
                let held = live.hold();
                let b = held.backing()?;
                let copy = held.copy();
                let ranged = held.is_ranged();
                let _turn = (copy.is_some() || ranged).then(|| lock(&live.update));
                let ranges = &self.copies.ranges;
                let changing = ranged.then(|| ranges.begin_change(live.node)).flatten();
                let _wait = self.waits_for(b.tier, live.node, Kind::Write);
                let done = if b.writable {
                    f(&b.fd, true)
                } else {
                    Err(Errno::ROFS)
                };
                if let Some(copy) = copy {
                    let home = (b.tier, &b.fd, &done);
                    (self.copies).changed(&self.tiers, (live.node, copy), home, change, |fd| {
                        f(fd, false)
                    });
                }
                if let Some(changing) = changing {
                    changing.end(&b.fd, done.is_ok(), change);
                }
                live.mark_changed();
                match done {
                    Err(Errno::NOSPC | Errno::DQUOT) => b.tier,
                    Ok(done) => {
                        drop(held);
                        self.forget_capabilities(live.node)?;
                        return Ok(done);
                    }
                    Err(e) => {
                        let tier = b.tier;
                        drop(held);
                        return Err(self.names.device_error_of(&self.tiers, tier, live.node, e));
                    }
                }
            };
            self.room_changed(tier);
            if tier == 0 && self.copies.evict(&self.tiers, EVICT_BYTES) {
                continue;
            }
            full |= 1 << tier;
            let untried = |d: &Tier| full & (1 << *d) == 0;
            let beyond = self.beyond(tier).into_iter().filter(untried);
            let faster = (0..self.layout().tier_of(tier)).rev().filter(untried);
            pushed += 1;
            // Two writers on two full disks could push the same files to and fro.
            let push = self.layout().tier_of(tier) < self.layout().slowest() || pushed < PUSHES_MAX;
            let again = self.spill(live.node, tier, beyond)
                || push && self.push_out(tier, full)
                || self.spill(live.node, tier, faster);
            if !again {
                return Err(Errno::NOSPC);
            }
        }
    }
    /// Reads into the buffer. The result is shorter than requested only at the end of the file.
    ///
    /// # Errors
    /// A device error.
    pub fn read(&self, live: &Live, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let start = self.recording.start();
        let done = loop {
            let held = live.hold();
            let copy = held.copy();
            if let Some(copy) = copy.filter(|c| c.covers(offset, buffer.len() as u64)) {
                if let Ok(n) = copy.with(|fd| read_all(fd, buffer, offset)) {
                    self.copies.reads.fetch_add(1, Ordering::Relaxed);
                    break n;
                }
                self.copies.invalidate(&self.tiers, live.node, copy);
            }
            if let Ok(home) = held.backing() {
                let _wait = self.waits_for(home.tier, live.node, Kind::Read);
                let n = if held.is_ranged() {
                    let ranges = &self.copies.ranges;
                    ranges.read(&self.tiers, live.node, &home.fd, offset, buffer)
                } else {
                    read_all(&home.fd, buffer, offset)
                };
                if home.tier > 0 && copy.is_none() {
                    self.copies.heads.want(live.node, offset);
                }
                break n.map_err(|e| {
                    (self.names).device_error_of(&self.tiers, home.tier, live.node, e)
                })?;
            }
            drop(held);
            self.open_home(live)?;
        };
        live.mark_used();
        self.note(start, Op::Read, live.node, (offset, done as u64));
        (self.placement).record(Access::new(live.node, false, offset, done as u32));
        Ok(done)
    }
    /// Writes the whole buffer.
    ///
    /// # Errors
    /// No tier has space, or a device error.
    pub fn write(
        &self,
        live: &Arc<Live>,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<(), Errno> {
        match self.write_some(live, offset, data, durable)? {
            n if n < data.len() => Err(Errno::NOSPC),
            _ => Ok(()),
        }
    }
    /// As [`Store::write`], but if only the first bytes can be written, returns their number, which is not 0. As an error, a program would
    /// take it for nothing written, and would have those bytes twice once there is space again.
    pub(crate) fn write_some(
        &self,
        live: &Arc<Live>,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<usize, Errno> {
        let start = self.recording.start();
        self.give_way(live, offset, data.len() as u64);
        let begun = Cell::new(0);
        let all = self.with_room(live, &Change::Write(offset, data), |fd, home| {
            let mut done = 0;
            let written = write_counted(fd, data, offset, &mut done);
            if home {
                begun.set(if written.is_err() { done } else { 0 });
            }
            written?;
            if durable && home {
                live.syncs.carry_out(|| rustix::fs::fdatasync(fd))
            } else {
                Ok(())
            }
        });
        let written = match all {
            Ok(()) => data.len(),
            Err(e) if begun.get() == 0 => return Err(e),
            Err(_) => {
                self.forget_capabilities(live.node)?;
                if durable {
                    self.sync(live, true)?;
                }
                begun.get()
            }
        };
        self.note(start, Op::Write, live.node, (offset, written as u64));
        (self.placement).record(Access::new(live.node, true, offset, written as u32));
        Ok(written)
    }
    /// Makes a file durable.
    ///
    /// # Errors
    /// A device error.
    pub fn sync(&self, live: &Live, data_only: bool) -> Result<(), Errno> {
        let start = self.recording.start();
        self.open_home(live)?;
        let held = live.hold();
        let Backing { tier, fd, .. } = held.backing()?;
        let _wait = self.waits_for(*tier, live.node, Kind::Sync);
        let done = live.syncs.carry_out(|| {
            if data_only {
                rustix::fs::fdatasync(fd)
            } else {
                rustix::fs::fsync(fd)
            }
        });
        match done {
            Ok(()) => self.device_answered(*tier),
            Err(e) => return Err(self.names.device_error_of(&self.tiers, *tier, live.node, e)),
        }
        self.note(start, Op::Sync, live.node, (0, 0));
        Ok(())
    }
    /// Makes a directory durable on every tier that has it.
    ///
    /// # Errors
    /// A device error.
    pub fn sync_dir(&self, node: NodeId) -> Result<(), Errno> {
        let known = self.names.known(node)?;
        if known.kind != catalogue::Kind::Dir {
            return Err(Errno::NOTDIR);
        }
        let path = known.path;
        for tier in disks_in(self.present(known.on)) {
            let root = self.root(tier);
            let synced = root.directory(&path).and_then(rustix::fs::fsync);
            synced.map_err(|e| self.device_error(tier, &path, e))?;
        }
        Ok(())
    }
    /// Preallocates space, punches holes or zeroes a range, as fallocate(2).
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn fallocate(
        &self,
        live: &Arc<Live>,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let flags = FallocateFlags::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        let start = self.recording.start();
        // Whatever moves bytes to other places moves all that follow.
        let cuts = !flags
            .difference(GIVES_UP | FallocateFlags::KEEP_SIZE)
            .is_empty();
        let change = Change::Other(offset, if cuts { u64::MAX } else { len });
        self.with_room(live, &change, |fd, _| {
            rustix::fs::fallocate(fd, flags, offset, len)
        })?;
        if flags.intersects(GIVES_UP) {
            self.note(start, Op::Drop, live.node, (offset, len));
        }
        Ok(())
    }
    /// The next data or hole. A copy answers for the file: it has the same bytes, and its holes are zeros.
    ///
    /// # Errors
    /// There is none after the offset, or a device error.
    pub fn seek(&self, live: &Live, offset: u64, hole: bool) -> Result<u64, Errno> {
        let to = if hole {
            SeekFrom::Hole(offset)
        } else {
            SeekFrom::Data(offset)
        };
        rustix::fs::seek(self.source_of(live, 0, u64::MAX)?, to)
    }
    /// Copies a range from one file to another, or within one.
    ///
    /// # Errors
    /// There is no space, or a device error.
    pub fn copy(
        &self,
        from: &Live,
        a: u64,
        to: &Arc<Live>,
        b: u64,
        len: u64,
    ) -> Result<u64, Errno> {
        // Ranges with the same offset in two files are the common case (cp). For all other ranges the kernel falls back to reads and writes.
        if a != b || from.node == to.node {
            return Err(Errno::XDEV);
        }
        let source = self.source_of(from, a, len)?;
        // The source may be moved in the meantime. The copy is then made from its old descriptor, which has the same bytes.
        let start = self.recording.start();
        let change = Change::Other(a, len);
        let copied = self.with_room(to, &change, |fd, _| copy_range(&source, fd, a, len))?;
        from.mark_used();
        let bytes = u32::try_from(copied).unwrap_or(u32::MAX);
        for (node, op, write) in [(from.node, Op::Read, false), (to.node, Op::Write, true)] {
            self.note(start, op, node, (a, copied));
            self.placement.record(Access::new(node, write, a, bytes));
        }
        Ok(copied)
    }
    /// A descriptor of these bytes of a file: of its copy if that is valid and holds them, so that the disk at home is not woken, else of the file at home.
    fn source_of(&self, live: &Live, offset: u64, len: u64) -> Result<OwnedFd, Errno> {
        loop {
            let held = live.hold();
            let dup = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
            let copy = held.copy().filter(|c| c.covers(offset, len));
            if let Some(Ok(fd)) = copy.map(|c| c.with(dup)) {
                return Ok(fd);
            }
            if let Ok(fd) = held.fd() {
                return dup(fd);
            }
            drop(held);
            self.open_home(live)?;
        }
    }
    /// Records an operation on a file that began at `start` and ends now, if there is a recording.
    fn note(&self, start: Option<Instant>, op: Op, node: NodeId, range: (u64, u64)) {
        let Some(start) = start else { return };
        let known = self.cat().get(node).map(|n| n.facts.size);
        let Some(size) = known else {
            return;
        };
        // The catalogue has the size of a growing file only after the file is closed.
        let size = match op {
            Op::Read | Op::Write => size.max(range.0 + range.1),
            // A truncation gives up everything from an offset on; a hole ends before.
            Op::Drop if range.0.saturating_add(range.1) == u64::MAX => size.min(range.0),
            Op::Sync | Op::Drop => size,
        };
        self.recording.note(start, op, (node, size), range);
    }
}
