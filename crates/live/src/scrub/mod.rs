//! Reads all data of a volume while it is served, so that a place that cannot be read any more is found before it is needed. Blocks that
//! exist twice, at the home and in a clean copy, are compared.
//!
//! ```text
//! order: extents by the places of their homes ─► look: where is this run? ─► read it ─► look again ─► verdict ─ doubtful ─► doubts
//!                                                    │ pace: may the device be used now?                 read again, later ◄─┘
//! ```
//! A thread reads the members directly, beside the engine. The engine is only asked where extents are (`look.rs`): it does not know of these
//! reads, so they change no statistics of the policy, no timer of a sleeping disk and no figure of the volume. Each question is a slice of
//! work of a fraction of a millisecond on the engine's thread.
//!
//! # Why a difference is a difference
//!
//! A block that the map calls valid in the copy and not dirty has the same bytes at the home, *apart from writes in progress* (invariant of
//! the engine). The two reads are not made at the same moment, so a difference proves nothing by itself. It counts only after a **settled**
//! look: one query of the engine before both reads, one after, and between the two
//!
//! 1. the volume had not failed, and the engine was the same (it is opened again to record events),
//! 2. home and copy of the extent are the same, and the block is valid and clean in both queries,
//! 3. in both queries, the extent is held by no move, lock or waiting request, and no write is in progress to its home or its copy,
//! 4. no write to the member of the home was counted, and nothing on it was discarded,
//! 5. no move of this extent ended (the engine remembers the last 128; if more ended, the look is not settled).
//!
//! Then neither place was written between the queries. *The home*: a write is in progress from its start to its end, as the engine sees
//! both, and it is counted at its end. A write that overlaps the time between the queries was in progress in one of them (excluded by 3), or
//! began and ended in between (excluded by 4). This covers cleans whose write to the home has ended and is not recorded yet: the extent is
//! held until then. *The copy*: a request that writes to the copy alone makes its blocks dirty when it ends; they become clean again only
//! through a write to the home. A request that writes to both writes to the home. Slots of copies get other data only after the copy was
//! dropped, and the same slot belongs to the same extent again only after a fetch: both are moves that ended (excluded by 5), except that a
//! discard or a write to the home drops copies by themselves; then the block is invalid in the second query, or was written again since
//! (excluded by 4). So both reads returned what the devices hold, and the devices differ.
//!
//! A look that is not settled can clear a doubt and never confirm it. An extent whose looks are never settled because the volume is always
//! written is reported as not compared.
//!
//! A place that cannot be read counts if it could not be read in two looks in each of which it belonged to the extent throughout.
//!
//! What is not promised: data that is written or moved after its extent was read is not read again at its new place. A member without
//! O_DIRECT is read through the page cache.

mod doubts;
mod look;
mod order;
mod pace;
mod read;
#[cfg(test)]
mod tests;
mod verdict;

use crate::device::Device;
use crate::loss::Ranges;
use crate::server::Handle;
use isotherm_core::{ExtentId, MemberId, Slot};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doubts::Doubts;
use look::{Look, look};
pub(crate) use look::{MemberWork, members};
use order::Order;
pub(crate) use pace::{Next, Pace};
use read::Reader;

/// Most bytes of homes that are read between two queries of the engine. An extent may be larger.
const BATCH: usize = 1 << 20;
/// Most findings about devices that are listed.
const FINDINGS_MAX: usize = 1000;
/// Most ranges of a kind that are listed.
const RANGES_MAX: usize = 4000;

/// How to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Bytes per second, whether the volume is in use or not. `None`: as fast as the devices allow while they have no other work, and
    /// 4 MiB per second while they have.
    pub rate: Option<u64>,
    /// Whether to read from sleeping disks. Otherwise the scrub waits until requests have woken them.
    pub wake: bool,
}

/// The reason why a scrub waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It does not wait.
    #[default]
    None,
    /// Other work of the device, or the rate.
    Turn,
    /// A disk that sleeps.
    Sleep,
}

/// The progress of a scrub.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Bytes that were read, of homes and of copies.
    pub read: u64,
    /// Bytes of homes and copies at the start.
    pub total: u64,
    /// The reason why it waits.
    pub wait: Wait,
    /// The read in progress: number of the member, byte offset, time of its start.
    pub reading: Option<(usize, u64, Instant)>,
}

/// What the threads of a scrub share.
#[derive(Debug, Default)]
pub struct State {
    stop: AtomicBool,
    progress: Mutex<Progress>,
    /// What a test does between the reads of a home and of its copy, and after them.
    #[cfg(test)]
    between: tests::Between,
}

impl State {
    /// Ends the scrub before its next read.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The progress so far.
    pub fn progress(&self) -> Progress {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, but not after [`State::stop`].
    fn nap(&self, time: Duration) -> Result<(), Ended> {
        const STEP: Duration = Duration::from_millis(50);
        let end = Instant::now() + time;
        loop {
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}

/// The reason why a scrub ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// [`State::stop`] was called.
    Stopped,
    /// The volume is not served any more.
    Closed,
    /// The volume has failed, with the reason. From then on home and copy may differ because writes failed.
    Failed(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Stopped => f.write_str("it was stopped"),
            Ended::Closed => f.write_str("the volume was stopped"),
            Ended::Failed(why) => write!(f, "the volume failed: {why}"),
        }
    }
}

/// The findings of a scrub, also of one that ended early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Bytes that were read.
    pub read: u64,
    /// Number of extents with a home, at the start.
    pub mapped: u32,
    /// Number of extents with a copy and of those with a dirty copy, at the start.
    pub copies: (u32, u32),
    /// Number of members that are present.
    pub members: usize,
    /// Byte ranges of the volume that can be read from no member.
    pub lost: Ranges,
    /// Byte ranges of the volume that differ between home and copy.
    pub differing: Ranges,
    /// Byte ranges of the volume that could not be judged, because they were written or moved all the time.
    pub not_compared: Ranges,
    /// Places of devices that cannot be read, in words; at most 1000, then their number.
    pub bad_places: Vec<String>,
    /// The reason why it ended early.
    pub ended: Option<Ended>,
}

impl Found {
    /// Whether everything that was read is well.
    pub fn is_well(&self) -> bool {
        self.lost.is_empty() && self.differing.is_empty() && self.bad_places.is_empty()
    }

    /// Sorts and joins the ranges, and cuts lists that are too long.
    fn tidy(&mut self, bad: usize) {
        for (ranges, what) in [
            (&mut self.lost, "lost"),
            (&mut self.differing, "differing"),
            (&mut self.not_compared, "not compared"),
        ] {
            ranges.sort_unstable();
            ranges.dedup_by(|next, last| {
                let touches = next.0 <= last.1;
                last.1 = if touches { last.1.max(next.1) } else { last.1 };
                touches
            });
            if ranges.len() > RANGES_MAX {
                let more = ranges.len() - RANGES_MAX;
                ranges.truncate(RANGES_MAX);
                self.bad_places
                    .push(format!("{more} further ranges are {what}"));
            }
        }
        if bad > FINDINGS_MAX {
            let more = bad - FINDINGS_MAX;
            let what = format!("{more} further extents have places that cannot be read");
            self.bad_places.push(what);
        }
    }
}

/// Reads everything. Runs until all is read or one of the reasons of [`Ended`] occurs; a device that does not answer delays the end.
pub fn scrub(handle: &Handle, how: How, state: &State) -> Found {
    let mut scrub = Scrub {
        handle,
        state,
        pace: Pace::new(how),
        reader: Reader::new(BATCH.max(1 << handle.extent_shift())),
        doubts: Doubts::default(),
        found: Found::default(),
        bad: 0,
        woken: Vec::new(),
    };
    scrub.found.ended = scrub.all().err();
    scrub.put_to_sleep();
    let bad = scrub.bad;
    scrub.found.tidy(bad);
    scrub.found
}

/// A scrub in progress.
struct Scrub<'a> {
    handle: &'a Handle,
    state: &'a State,
    pace: Pace,
    reader: Reader,
    doubts: Doubts,
    found: Found,
    /// Number of extents with places that cannot be read.
    bad: usize,
    /// Members that were read while the engine had them in standby.
    woken: Vec<usize>,
}

impl Scrub<'_> {
    fn all(&mut self) -> Result<(), Ended> {
        self.begin()?;
        let mut order = Order::new(self.handle)?;
        let largest = BATCH >> self.handle.extent_shift();
        while let Some(run) = order.next_run(largest.max(1), self.handle, self.state)? {
            let done = self.run(&run)?;
            for ((_, e), done) in run.into_iter().zip(done) {
                if done {
                    order.done(e);
                }
            }
            if self.doubts.are_many() {
                self.resolve_doubts()?;
            }
        }
        self.resolve_doubts()?;
        // Extents that were elsewhere than expected in every pass.
        let shift = self.handle.extent_shift();
        for e in order.left() {
            let from = u64::from(e.0) << shift;
            self.found.not_compared.push((from, from + (1 << shift)));
        }
        Ok(())
    }

    /// Notes the extent of the work.
    fn begin(&mut self) -> Result<(), Ended> {
        let counts = self.handle.call(|e, w| {
            let map = &e.space().map;
            let here = w.devices().iter().flatten().count();
            (map.mapped(), map.copied(), map.dirty(), here)
        });
        let (mapped, copied, dirty, members) = counts.ok_or(Ended::Closed)?;
        self.found.mapped = mapped;
        self.found.copies = (copied, dirty);
        self.found.members = members;
        let slots = u64::from(mapped) + u64::from(copied);
        self.state.locked().total = slots << self.handle.extent_shift();
        Ok(())
    }

    /// Waits until `bytes` may be read of these extents, and returns the look that said so.
    fn when_due(&mut self, extents: &[ExtentId], bytes: u64) -> Result<Look, Ended> {
        loop {
            let seen = look(self.handle, extents, 0)?;
            let (wait, time) = match self.pace.next(&seen, Instant::now()) {
                Next::Go => {
                    self.note_woken(&seen);
                    self.pace.takes(bytes, Instant::now());
                    self.state.locked().wait = Wait::None;
                    self.state.nap(Duration::ZERO)?;
                    return Ok(seen);
                }
                Next::Later(wait, time) => (wait, time),
            };
            self.state.locked().wait = wait;
            self.state.nap(time)?;
        }
    }

    fn note_woken(&mut self, look: &Look) {
        for m in pace::used(look) {
            let asleep = look.members.get(m).is_some_and(|m| m.asleep);
            if asleep && !self.woken.contains(&m) {
                self.woken.push(m);
            }
        }
    }

    /// Sends members to standby again. The engine does not know that they were woken, so it would not do it before their next use.
    fn put_to_sleep(&self) {
        let asleep = self.handle.call(|e, w| {
            let members = e.counters().members.len() as u8;
            let asleep: Vec<bool> = (0..members).map(|m| e.is_asleep(MemberId(m))).collect();
            (asleep, std::sync::Arc::clone(w.devices()))
        });
        let Some((asleep, devices)) = asleep else {
            return;
        };
        for &m in &self.woken {
            if let (Some(true), Some(Some(device))) = (asleep.get(m), devices.get(m)) {
                // A disk that refuses stays awake until its next use.
                let _ = Device::standby(&device.file);
            }
        }
    }

    /// Reads extents whose homes were expected to lie one after the other. Returns for each whether it is done with; one that is elsewhere
    /// now is not.
    fn run(&mut self, run: &[(Slot, ExtentId)]) -> Result<Vec<bool>, Ended> {
        let extents: Vec<ExtentId> = run.iter().map(|r| r.1).collect();
        let size = 1usize << self.handle.extent_shift();
        let before = self.when_due(&extents, (run.len() * size) as u64)?;
        let expected: Vec<bool> = (run.iter().zip(&before.placed))
            .map(|(r, p)| p.home.is_some_and(|h| h.slot == r.0))
            .collect();
        let reads = self.reader.batch(&before, &expected, self.state);
        self.state.nap(Duration::ZERO)?;
        let after = look(self.handle, &extents, before.moves)?;
        let mut done = Vec::with_capacity(run.len());
        for (i, read) in reads.iter().enumerate() {
            let (b, a) = (&before.placed[i], &after.placed[i]);
            let gone = a.home.is_none();
            let Some(read) = read.as_ref().filter(|_| b.is_where(a)) else {
                done.push(gone);
                continue;
            };
            let judged = verdict::judge(b, a, &self.reader.halves(i, read), after.block);
            if !judged.is_well() {
                self.doubts.add(extents[i], judged.span(&a.blocks));
            }
            done.push(true);
        }
        self.state.locked().reading = None;
        self.found.read = self.state.locked().read;
        Ok(done)
    }

    /// Adds the places of a device that cannot be read to the findings.
    fn report_bad(&mut self, e: ExtentId, bad: &read::Bad, devices: &[Option<Device>]) {
        let Some(Some(device)) = devices.get(usize::from(bad.member.0)) else {
            return;
        };
        self.bad += 1;
        if self.bad <= FINDINGS_MAX {
            self.found.bad_places.push(format!(
                "{}: {} places of {} bytes in extent {e} cannot be read, the first at byte {} ({})",
                device.path.display(),
                bad.places,
                read::SMALL,
                bad.first,
                bad.error
            ));
        }
    }
}
