//! The passes of a copy.
//!
//! The first pass copies what is in use, in the order of addresses; each other one copies what was written meanwhile. They end when what is
//! left can be copied in [`BUDGET`], at the speed of the last pass, whose places were scattered like those that are left.

use super::elsewhere::nowhere_else;
use super::stale::Stale;
use super::transfer::{AS_BEFORE, Places, Transfer, lost};
use super::{Copied, State, Wait};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::scrub::{How, MemberWork, Next, Pace, members};
use crate::server::Handle;
use isotherm_core::MemberId;
use isotherm_core::store;
use isotherm_core::volume::Space;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of the time in which requests wait that is for the copy of what is left.
const BUDGET: Duration = Duration::from_millis(300);
/// What can be copied in this time is copied without giving way to requests: it would grow meanwhile.
const SPRINT: Duration = Duration::from_secs(2);
/// Most bytes that are left for the time in which requests wait.
const LEFT_MAX: u64 = 64 << 20;
/// Most bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// After this many bytes the new device is flushed, so that its last flush is short.
const FLUSH_EVERY: u64 = 128 << 20;
/// Number of extents that one question to the engine is about.
const EXTENTS: u32 = 1 << 14;
/// Interval at which it is looked whether another member has what cannot be read.
const JUDGE_EVERY: Duration = Duration::from_secs(10);
/// Number of passes after which as much was left as before, from which on this is told.
const IN_VAIN: u32 = 2;

/// Time for a slot that is assumed while no pass over scattered places has told it: that of a disk, with its seeks.
const SCATTERED: Duration = Duration::from_millis(8);
/// Number of slots from which on a pass tells the time for a slot.
const TELLING: u64 = 8;

/// See the module.
pub(super) struct Passes {
    pace: Pace,
    /// Number of passes that have ended.
    ended: u32,
    /// Number of passes in a row after which as much was left as before.
    in_vain: u32,
    /// Time that a slot at a scattered place takes.
    per_slot: Duration,
    judged: Instant,
}

/// A copy, as its passes see it.
struct Job<'a> {
    handle: &'a Handle,
    state: &'a State,
    stale: &'a Arc<Stale>,
    places: &'a Arc<Places>,
}

fn closing() -> Error {
    let what = format!("the volume is closing; {AS_BEFORE}; asked for again, the copy begins anew");
    Error::new(ErrorKind::Volume, what)
}

impl Passes {
    /// `rate` is in bytes per second.
    pub fn new(rate: Option<u64>) -> Passes {
        Passes {
            pace: Pace::new(How { rate, wake: true }),
            ended: 0,
            in_vain: 0,
            per_slot: SCATTERED,
            judged: Instant::now(),
        }
    }

    /// Whether most of the data was copied.
    pub fn have_ended(&self) -> bool {
        self.ended > 1
    }

    /// Copies until little is left.
    pub fn run(
        &mut self,
        handle: &Handle,
        (copied, device): (&mut Copied, &Device),
        state: &State,
    ) -> Result<(), Error> {
        let Copied {
            source,
            places,
            stale,
            unreadable,
            bytes,
            limit,
            ..
        } = copied;
        let job = Job {
            handle,
            state,
            stale,
            places,
        };
        if self.ended == 0 {
            job.want_used()?;
        }
        let mut transfer = Transfer::new(source, device, places, unreadable, PIECE);
        loop {
            let before = stale.left();
            state.locked().pass = self.ended + 1;
            self.pass(&job, &mut transfer, bytes)?;
            transfer.flush()?;
            job.judge(&transfer)?;
            self.ended += 1;
            let left = stale.left();
            *limit = self.limit(places.extent() as u64);
            if self.ended > 1 && left <= *limit {
                return Ok(());
            }
            self.in_vain = if left >= before && left > 0 {
                self.in_vain + 1
            } else {
                0
            };
        }
    }

    /// The largest number of slots that can be copied while requests wait.
    fn limit(&self, extent: u64) -> u64 {
        let in_time = BUDGET.as_nanos() / self.per_slot.as_nanos().max(1);
        (in_time as u64).min(LEFT_MAX / extent).max(1)
    }

    fn pass(
        &mut self,
        job: &Job<'_>,
        transfer: &mut Transfer<'_>,
        bytes: &mut u64,
    ) -> Result<(), Error> {
        let extent = job.places.extent() as u64;
        let (begun, before) = (Instant::now(), *bytes);
        let (mut spent, mut flushed, mut next) = (Duration::ZERO, *bytes, 0);
        while let Some(first) = job.stale.next_due(next) {
            let joined =
                |n: &u32| job.stale.is_due(first + n) && job.places.joins(first, *n, first + n);
            let n = 1 + (1..transfer.most()).take_while(joined).count() as u32;
            self.when_due(job, u64::from(n) * extent)?;
            (first..first + n).for_each(|index| job.stale.take(index));
            let since = Instant::now();
            transfer.copy(first, n)?;
            spent += since.elapsed();
            next = first + n;
            *bytes += u64::from(n) * extent;
            if *bytes - flushed >= FLUSH_EVERY {
                flushed = *bytes;
                transfer.flush()?;
            }
            if !transfer.unreadable.is_empty() && self.judged.elapsed() >= JUDGE_EVERY {
                job.judge(transfer)?;
                self.judged = Instant::now();
            }
            job.tell(*bytes, (*bytes - before, begun.elapsed()));
        }
        let slots = (*bytes - before) / extent;
        if self.ended > 0 && slots >= TELLING {
            self.per_slot = spent / u32::try_from(slots).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// Waits until `bytes` may be read.
    fn when_due(&mut self, job: &Job<'_>, bytes: u64) -> Result<(), Error> {
        let place = job.places.place;
        let left = u32::try_from(job.stale.left()).unwrap_or(u32::MAX);
        let is_short = self.per_slot.saturating_mul(left) <= SPRINT;
        // Requests are not delayed for what does not get less.
        let sprints = self.ended > 0 && self.in_vain == 0 && is_short;
        let in_vain = self.in_vain >= IN_VAIN;
        loop {
            job.check()?;
            let work: Option<Vec<MemberWork>> = job.handle.call(|engine, _| members(engine));
            let work = work.ok_or_else(closing)?;
            let homes = [place];
            let (wait, time) = match self.pace.next_of(&work, (&homes, &homes), Instant::now()) {
                Next::Later(_, time) if !sprints => (Wait::Turn, time),
                _ => (Wait::None, Duration::ZERO),
            };
            job.state.locked().wait = if in_vain { Wait::Writes } else { wait };
            job.state.nap(time)?;
            if time.is_zero() {
                self.pace.takes(bytes, Instant::now());
                return Ok(());
            }
        }
    }
}

impl Job<'_> {
    /// Refuses to go on if the volume has failed or goes on without the member.
    fn check(&self) -> Result<(), Error> {
        let place = self.places.place;
        let why = if let Some(failure) = self.handle.failure() {
            format!("the volume has failed: {failure}")
        } else if self.handle.left_out().any(|m| usize::from(m) == place) {
            format!("member {place} has failed, and the volume goes on without it")
        } else {
            return Ok(());
        };
        let what = format!("{why}; the copy was given up");
        Err(Error::new(ErrorKind::Volume, what))
    }

    /// Runs `f` with parts of the map, one after the other.
    fn each_part<R: Send + 'static>(
        &self,
        f: impl Fn(&Space, Range<u32>) -> R + Clone + Send + 'static,
        mut take: impl FnMut(R),
    ) -> Result<(), Error> {
        let mut from: u32 = 0;
        loop {
            let f = f.clone();
            let part = self.handle.call(move |engine, _| {
                let space = engine.space();
                let end = from.saturating_add(EXTENTS).min(space.geo.extents);
                (from < end).then(|| (f(space, from..end), end))
            });
            match part.ok_or_else(closing)? {
                Some((part, end)) => {
                    take(part);
                    from = end;
                }
                None => return Ok(()),
            }
            self.state.nap(Duration::ZERO)?;
        }
    }

    /// What is in use is to be copied.
    fn want_used(&self) -> Result<(), Error> {
        let (stale, place) = (Arc::clone(self.stale), MemberId(self.places.place as u8));
        let want = move |space: &Space, extents| {
            for (_, index) in store::slots_of(space, place, extents) {
                stale.want(index);
            }
        };
        self.each_part(want, |()| ())?;
        let total = self.stale.left() * self.places.extent() as u64;
        let mut progress = self.state.locked();
        (progress.total_bytes, progress.left_bytes) = (total, total);
        Ok(())
    }

    /// Refuses to go on if something cannot be read that is needed and nowhere else. (What was written since is read again.)
    fn judge(&self, transfer: &Transfer<'_>) -> Result<(), Error> {
        let mut parts = transfer.unreadable.parts();
        parts.retain(|index, _| !self.stale.is_stale(*index));
        if parts.is_empty() {
            return Ok(());
        }
        let (parts, places) = (Arc::new(parts), Arc::clone(self.places));
        let mut found = Vec::new();
        let look = move |space: &Space, extents| nowhere_else(space, &places, &parts, extents);
        self.each_part(look, |part| found.extend(part))?;
        found.retain(|(index, _)| !self.stale.is_stale(*index));
        if found.is_empty() {
            return Ok(());
        }
        let ranges: Vec<(u64, u64)> = found.into_iter().map(|(_, range)| range).collect();
        let error = transfer.unreadable.error();
        Err(lost(transfer.source, &ranges, error))
    }

    /// Tells the progress. `now` are the bytes of this pass and the time that they took.
    fn tell(&self, bytes: u64, now: (u64, Duration)) {
        let left = self.stale.left() * self.places.extent() as u64;
        let time = now.1.as_secs_f64() * left as f64 / now.0.max(1) as f64;
        let mut progress = self.state.locked();
        (progress.copied_bytes, progress.left_bytes) = (bytes, left);
        progress.left = Duration::try_from_secs_f64(time).ok();
    }
}
