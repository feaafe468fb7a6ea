//! Ranges: the parts of large files of slower tiers that are used most, kept on the fastest. Such a file is not copied or moved as a whole by
//! its policy: of an image of a disk, 2 % may be hot.
//!
//! All ranges have the same length and lie in one file without a name on the fastest tier, so a crash or an unmount leaves none of them. Which
//! ones are there is decided by the policy of the mount, in the core's null engine over a cache of that many slots (`table.rs`): a range
//! gets the slot that the engine gave it when it is read the next time.
//!
//! ```text
//!  read:   in a slot? ─ yes ─► read it there          write:  begin (no fill may end) ─► write at home ─► write the ranges in slots
//!             │ no                                                                          │ failed, or not a write of bytes
//!             ▼                                                                             ▼
//!          has the engine given it a slot? ─► read it whole at home ─► write the slot    these ranges are dropped
//!                                               └─► no change since? ─► it is in the slot
//! ```
//!
//! What makes a range wrong is the same as for a copy (`copies/mod.rs`), and is found by the same comparisons: when the file is opened at its
//! home, and when its last user closes it. A move and the removal of the last name drop all.
//!
//! Ranges take only space that is free below the upper mark and beside the reserve. Whoever needs space on the fastest tier gets theirs first.

mod table;

use crate::catalogue::NodeId;
use crate::disk::{Root, facts_of, read_all, write_all};
use crate::mutants::{Mutant, broken};
pub use crate::settings::RangeSettings;
use crate::settings::Settings;
use crate::sync::lock;
use crate::tiers::Tiers;
use crate::tree::{COPIES, Facts, Tier, join};
use isotherm_answers::files::{FileRanges, Ranges as Figures};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FallocateFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use table::{Found, Table};

/// Bytes of a range.
pub const RANGE: u64 = 1 << table::SHIFT;

/// A change of a file, as its copy and its ranges need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// These bytes were written there.
    Write(u64, &'a [u8]),
    /// The file ends there now.
    Cut(u64),
    /// Bytes from there on, so many at most, are others. On a copy the same call might give other bytes.
    Other(u64, u64),
}

impl Change<'_> {
    /// The bytes that may be others: the first one, and the one behind the last.
    fn bytes(&self) -> (u64, u64) {
        match *self {
            Change::Write(at, data) => (at, at + data.len() as u64),
            Change::Cut(at) => (at, u64::MAX),
            Change::Other(at, len) => (at, at.saturating_add(len)),
        }
    }
}

/// The file with the slots, and what is in them.
#[derive(Debug)]
struct Cache {
    fd: OwnedFd,
    table: Mutex<Table>,
}

/// All ranges, and figures.
#[derive(Debug, Default)]
pub struct Ranges {
    settings: RangeSettings,
    policy: String,
    /// Made when the first large file is opened; none if it cannot be.
    cache: OnceLock<Option<Cache>>,
    /// Space that ranges take, in bytes.
    pub used: AtomicU64,
    /// Space of all copies, which counts for the quota.
    copied: Arc<AtomicU64>,
    /// Number of ranges that were read from slower tiers to be kept.
    pub made: AtomicU64,
    /// Number of reads that were served from ranges, in pieces of one range.
    pub hits: AtomicU64,
    /// Bytes of these reads.
    pub hit_bytes: AtomicU64,
    /// Number of such pieces of the same files that were read at home.
    pub misses: AtomicU64,
}

impl Ranges {
    pub(crate) fn new(settings: &Settings, copied: Arc<AtomicU64>) -> Ranges {
        Ranges {
            settings: settings.ranges_wanted(),
            policy: settings.policy.clone(),
            copied,
            ..Ranges::default()
        }
    }
    /// Whether a file of that size on that tier has ranges, and is not copied or moved as a whole by its policy.
    pub fn takes(&self, tier: Tier, bytes: u64) -> bool {
        self.settings.takes(tier, bytes)
    }
    fn cache(&self) -> Option<&Cache> {
        self.cache.get()?.as_ref()
    }
    /// The file with the slots, on a fastest tier with so many bytes in all.
    fn make(&self, fast: &Root, all: u64) -> Option<Cache> {
        let bytes = u128::from(all) * u128::from(self.settings.percent.min(100)) / 100;
        let table = Table::new(bytes as u64 / RANGE, &self.policy)?;
        let path = join(COPIES, b"ranges");
        let (fd, named) = fast.new_file(&path, 0o600).ok()?;
        if named {
            rustix::fs::unlinkat(&fast.fd, &path[..], AtFlags::empty()).ok()?;
        }
        let table = Mutex::new(table);
        Some(Cache { fd, table })
    }
    /// A file was opened at its home on that tier, where it has these attributes. Returns whether it has ranges from now on. What is there of
    /// it is dropped if somebody has changed the file since.
    pub(crate) fn opened(&self, tiers: &Tiers, node: NodeId, tier: Tier, now: &Facts) -> bool {
        if !self.takes(tier, now.size) {
            self.forget(node);
            return false;
        }
        let make = || self.make(tiers.root(0), tiers.room(0).1);
        let Some(cache) = self.cache.get_or_init(make) else {
            return false;
        };
        lock(&cache.table).opened(node, now)
    }
    /// Reads a file that has ranges and is open at its home.
    ///
    /// # Errors
    /// Those of the file at its home.
    pub(crate) fn read(
        &self,
        tiers: &Tiers,
        node: NodeId,
        home: &OwnedFd,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let part = (RANGE - at % RANGE).min((buffer.len() - done) as u64);
            let piece = &mut buffer[done..done + part as usize];
            let n = match self.cache() {
                Some(cache) => self.read_piece(tiers, cache, node, (home, at), piece)?,
                None => read_all(home, piece, at)?,
            };
            done += n;
            if (n as u64) < part {
                break;
            }
        }
        Ok(done)
    }
    /// Reads bytes of one range.
    fn read_piece(
        &self,
        tiers: &Tiers,
        cache: &Cache,
        node: NodeId,
        (home, at): (&OwnedFd, u64),
        piece: &mut [u8],
    ) -> Result<usize, Errno> {
        let index = at / RANGE;
        let found = lock(&cache.table).find(node, at, piece.len() as u32);
        if let Found::There(slot) = found {
            let from = u64::from(slot) * RANGE + at % RANGE;
            let read = read_all(&cache.fd, piece, from);
            let whole = read == Ok(piece.len());
            lock(&cache.table).unpin(slot, !whole);
            if whole {
                self.hits.fetch_add(1, Ordering::Relaxed);
                self.hit_bytes
                    .fetch_add(piece.len() as u64, Ordering::Relaxed);
                return Ok(piece.len());
            }
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        if let Found::Wanted(slot) = found
            && let Some(fill) = self.begin_fill(tiers, cache, (node, index), slot)
        {
            let mut bytes = vec![0; RANGE as usize];
            let read = read_all(home, &mut bytes, index * RANGE);
            let whole = read == Ok(bytes.len());
            self.end_fill(cache, &fill, whole.then_some(&bytes));
            if let Ok(n) = read {
                let from = (at % RANGE) as usize;
                let n = n.saturating_sub(from).min(piece.len());
                piece[..n].copy_from_slice(&bytes[from..from + n]);
                return Ok(n);
            }
        }
        read_all(home, piece, at)
    }
    /// Prepares a slot for a range that will be read at home from now on.
    fn begin_fill(
        &self,
        tiers: &Tiers,
        cache: &Cache,
        range: (NodeId, u64),
        slot: u32,
    ) -> Option<table::Fill> {
        let may_grow = !tiers.is_short(0);
        let (fill, grows) = lock(&cache.table).begin_fill(range, slot, may_grow)?;
        if grows {
            self.count(RANGE as i64);
        }
        Some(fill)
    }
    /// Puts the bytes of a range into its slot, unless the file may have been changed since they were read.
    fn end_fill(&self, cache: &Cache, fill: &table::Fill, bytes: Option<&Vec<u8>>) {
        let at = u64::from(fill.slot) * RANGE;
        let good = bytes.is_some_and(|b| write_all(&cache.fd, b, at).is_ok());
        if lock(&cache.table).end_fill(fill, good) {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn count(&self, bytes: i64) {
        for sum in [&self.used, &*self.copied] {
            let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |b| {
                Some(b.saturating_add_signed(bytes))
            });
        }
    }
    /// A file that has ranges is changed from now on, until [`Changing::end`]. The caller lets only one change of it happen at a time.
    pub(crate) fn begin_change(&self, node: NodeId) -> Option<Changing<'_>> {
        let cache = self.cache()?;
        let begun = lock(&cache.table).begin_change(node);
        begun.then(|| Changing {
            ranges: self,
            cache,
            node,
            ended: false,
        })
    }
    /// A user set the times of a file, which changed its attributes at home from `before` to `now`. Its bytes are the same.
    pub(crate) fn times_set(&self, node: NodeId, before: &Facts, now: &Facts) {
        if let Some(cache) = self.cache() {
            lock(&cache.table).times_set(node, before, now);
        }
    }
    /// A file that has these attributes at home is closed. If somebody changed it there in the meantime, its ranges are dropped.
    pub(crate) fn closed(&self, node: NodeId, now: Option<&Facts>) {
        if let Some(cache) = self.cache() {
            lock(&cache.table).closed(node, now);
        }
    }
    /// Drops the ranges of a file. The next [`Ranges::sweep`] gives their space back; this function makes no system call.
    pub(crate) fn forget(&self, node: NodeId) {
        if let Some(cache) = self.cache() {
            lock(&cache.table).forget(node);
        }
    }
    /// Gives the space of slots back that are not used any more. Returns its bytes.
    pub(crate) fn sweep(&self) -> u64 {
        let Some(cache) = self.cache() else { return 0 };
        let unused = lock(&cache.table).take_unused();
        for slot in &unused {
            let (at, how) = (
                u64::from(*slot) * RANGE,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            );
            // A file system that cannot do it keeps the space until the unmount.
            let _ = rustix::fs::fallocate(&cache.fd, how, at, RANGE);
        }
        let freed = unused.len() as u64 * RANGE;
        if freed > 0 {
            lock(&cache.table).swept(&unused);
            self.count(-(freed as i64));
        }
        freed
    }
    /// Drops ranges until about that many bytes are free. Returns how many are.
    pub fn give_way(&self, bytes: u64) -> u64 {
        let Some(cache) = self.cache() else { return 0 };
        lock(&cache.table).give_way(bytes.div_ceil(RANGE));
        self.sweep()
    }
    /// The ranges of a file, if it has some.
    pub fn of(&self, node: NodeId) -> Option<FileRanges> {
        let (ranges, hits) = lock(&self.cache()?.table).of(node)?;
        Some(FileRanges {
            ranges,
            bytes: ranges * RANGE,
            hits,
        })
    }
    /// The figures for `stats`; none if no file was large enough yet.
    pub(crate) fn figures(&self) -> Option<Figures> {
        let cache = self.cache()?;
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let (files, ranges, bytes_max) = lock(&cache.table).count();
        Some(Figures {
            length_bytes: RANGE,
            files,
            ranges,
            bytes: get(&self.used),
            bytes_max,
            made: get(&self.made),
            hits: get(&self.hits),
            hit_bytes: get(&self.hit_bytes),
            misses: get(&self.misses),
        })
    }
}

/// A change of a file that has ranges. If it is dropped, all of them are.
pub(crate) struct Changing<'a> {
    ranges: &'a Ranges,
    cache: &'a Cache,
    node: NodeId,
    ended: bool,
}

impl Changing<'_> {
    /// The change was made at home, or failed and may be done in part: the same is done to the ranges.
    pub(crate) fn end(mut self, home: &OwnedFd, done: bool, change: &Change<'_>) {
        self.ended = true;
        let (first, behind) = change.bytes();
        if let (Change::Write(at, data), true) = (change, done) {
            self.write(*at, data);
        } else if !(matches!(change, Change::Cut(_)) && broken(Mutant::KeepCutRange)) {
            lock(&self.cache.table).drop_between(self.node, first, behind);
        }
        let now = facts_of(home).ok();
        lock(&self.cache.table).end_change(self.node, now.as_ref());
    }
    /// Writes bytes to the ranges that are in slots.
    fn write(&self, at: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let to = at + done as u64;
            let part = (RANGE - to % RANGE).min((data.len() - done) as u64) as usize;
            let piece = &data[done..done + part];
            done += part;
            let slot = lock(&self.cache.table).find_to_write(self.node, to, part as u32);
            let Some(slot) = slot else { continue };
            let place = u64::from(slot) * RANGE + to % RANGE;
            let bad =
                !broken(Mutant::ForgetRange) && write_all(&self.cache.fd, piece, place).is_err();
            lock(&self.cache.table).unpin(slot, bad);
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.ranges.forget(self.node);
        }
    }
}

#[cfg(test)]
mod tests;
