//! Data of files.

use crate::catalogue::NodeId;
use crate::copies::{EVICT_BYTES, Update};
use crate::disk::read_all;
use crate::live::{Backing, Live};
use crate::placement::Access;
use crate::recording::Op;
use crate::store::Store;
use crate::sync::lock;
use crate::tiers::Kind;
use crate::tree::{Tier, disks_in};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often one change of a file on the slowest tier has other files pushed to other disks there.
const PUSHES_MAX: u32 = 64;

impl Store {
    pub(crate) fn truncate(&self, node: NodeId, size: u64, strip: bool) -> Result<(), Errno> {
        if !self.cat().get(node).is_some_and(|n| n.is_file()) {
            return Err(Errno::INVAL);
        }
        let live = self.live(node)?;
        let start = self.recording.start();
        let done = self.with_room(&live, Update::Same, |fd, _| rustix::fs::ftruncate(fd, size));
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
        update: Update,
        f: impl Fn(&OwnedFd, bool) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.open_home(live)?;
        let (mut full, mut pushed) = (0u16, 0);
        loop {
            let tier = {
                let held = live.hold();
                let b = held.backing()?;
                let copy = held.copy();
                let _turn = copy.map(|_| lock(&live.update));
                let _wait = self.waits_for(b.tier, live.node, Kind::Write);
                let done = if b.writable {
                    f(&b.fd, true)
                } else {
                    Err(Errno::ROFS)
                };
                if let Some(copy) = copy {
                    let home = (b.tier, &b.fd, &done);
                    (self.copies).changed(&self.tiers, (live.node, copy), home, update, |fd| {
                        f(fd, false)
                    });
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
            let faster = (0..self.layout.tier_of(tier)).rev().filter(untried);
            pushed += 1;
            // Two writers on two full disks could push the same files to and fro.
            let push = self.layout.tier_of(tier) < self.layout.slowest() || pushed < PUSHES_MAX;
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
                let n = read_all(&home.fd, buffer, offset);
                if home.tier > 0 && copy.is_none() {
                    self.copies.heads.want(live.node, offset);
                }
                break n.map_err(|e| {
                    self.names
                        .device_error_of(&self.tiers, home.tier, live.node, e)
                })?;
            }
            drop(held);
            self.open_home(live)?;
        };
        live.mark_used();
        self.note(start, Op::Read, live.node, (offset, done as u64));
        self.placement
            .record(Access::new(live.node, false, offset, done as u32));
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
        let start = self.recording.start();
        self.give_way(live, offset, data.len() as u64);
        self.with_room(live, Update::Same, |fd, home| {
            crate::disk::write_all(fd, data, offset)?;
            if durable && home {
                rustix::fs::fdatasync(fd)
            } else {
                Ok(())
            }
        })?;
        self.note(start, Op::Write, live.node, (offset, data.len() as u64));
        self.placement
            .record(Access::new(live.node, true, offset, data.len() as u32));
        Ok(())
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
        let done = if data_only {
            rustix::fs::fdatasync(fd)
        } else {
            rustix::fs::fsync(fd)
        };
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
        let (path, on) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            (
                cat.path(node).ok_or(Errno::NOENT)?,
                n.dir().ok_or(Errno::NOTDIR)?.on,
            )
        };
        let on = self.present(on);
        for tier in disks_in(on) {
            let root = self.root(tier);
            let synced = root.directory(&path).and_then(rustix::fs::fsync);
            synced.map_err(|e| self.device_error(tier, &path, e))?;
        }
        Ok(())
    }
}
