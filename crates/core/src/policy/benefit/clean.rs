//! When dirty data is written home, and how much of it at once.

use super::shadow::ShadowAccess;
use super::without::Part;
use super::{Benefit, LULL, millis};
use crate::policy::{Access, Action, View};
use crate::units::Nanos;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// Maximum number of cleans that one call in idle time proposes.
const MAX_CLEANS: usize = 64;
/// Maximum number of dirty extents that one call examines.
const MAX_EXAMINED: u32 = 256;
/// Minimum number of cleans in a batch (or all that are dirty, if fewer): the cost of a commit round is then a quarter of the batch.
const MIN_BATCH: usize = 16;
/// The time of a commit round on the slow device, in writes at random places. It equals about six writes that a write cache has sorted.
const ROUND_WRITES: usize = 2;
/// If more than 1 / `UNSETTLED_SHARE` of flash is dirty, data is cleaned that has not settled. On small flash bursts of writes found no clean
/// copy to replace when this was 4/5. Of 4/5, 1/2, 3/10, 1/4, 1/5 and 1/8 on the tuning traces, 1/2 changes nothing and the smaller ones gain
/// alike, but for one trace of periodic writes (msr-rsrch_1), which depends on the moment at which a batch begins, for better or worse.
const UNSETTLED_SHARE: u64 = 5;
/// If 1 / `DIRTY_SHARE` of flash is dirty, cleaning may take half of the time for which the slow device has been idle; less if less is dirty.
const DIRTY_SHARE: u32 = 4;
/// Number of cleans in a batch under load. In long batches fewer requests wait for a commit round.
const LOAD_BATCH: usize = 64;

impl Benefit {
    /// Whether more than 80 % of flash is dirty.
    pub(super) fn is_mostly_dirty(&self) -> bool {
        u64::from(self.dirty.len()) * 10 > u64::from(self.fast_slots) * 8
    }
    /// Device time of a write at a random place of the slow device. If that has a write cache, the seek comes later, but it is counted.
    fn random_write_time(view: &View<'_>) -> Nanos {
        let slow = view.cost(view.slowest());
        Nanos(slow.write.max(slow.read).0.max(1))
    }
    /// Device time that a write at a random place still needs after the slow device has accepted it into its write cache.
    pub(super) fn deferred_write_time(view: &View<'_>) -> Nanos {
        view.cost(view.slowest()).debt(false)
    }
    /// Proposes cleans in idle time: as many as fit into a part of the time for which the slow device has been idle
    /// ([`Benefit::idle_write_budget`]). The commit round that makes them durable costs as much as several writes, so a batch has at least
    /// [`MIN_BATCH`] cleans, or all.
    pub(super) fn clean_in_idle_time(
        &mut self,
        view: &View<'_>,
        quiet: Nanos,
        wanted: &mut Vec<Action>,
    ) {
        let few = MIN_BATCH.min(self.dirty.len() as usize);
        let room = self.idle_write_budget(view, quiet);
        if room < ROUND_WRITES + few {
            return;
        }
        let most = room.saturating_sub(ROUND_WRITES).min(MAX_CLEANS);
        self.propose_cleans(view, most, u64::MAX, wanted);
    }
    /// Proposes cleans under load, because the time that was lost for lack of clean copies has reached the time of a batch. Only copies are
    /// cleaned that are worth less than the extents that were missed.
    pub(super) fn clean_under_load(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        let cost = self.load_batch_time(view);
        self.regret.subtract(cost);
        let before = self.cleaning;
        self.propose_cleans(view, LOAD_BATCH, self.regret.max_worth(), wanted);
        let found = u64::from(self.cleaning - before);
        self.batches.begin(view.now(), found);
    }
    /// Nanoseconds of the slow device for a batch of cleans under load: as measured, or, before the first batch, an estimate from the time
    /// of its writes and its commit round.
    pub(super) fn load_batch_time(&self, view: &View<'_>) -> u64 {
        if let Some(each) = self.batches.time_per_copy() {
            return each.saturating_mul(LOAD_BATCH as u64);
        }
        let each = Benefit::deferred_write_time(view).max(view.cost(view.slowest()).write);
        each.0 * LOAD_BATCH as u64 + ROUND_WRITES as u64 * Benefit::random_write_time(view).0
    }
    /// Proposes up to `most` cleans of copies that are worth less than `bar`. If `bar` is `u64::MAX` (idle time) and little of flash is dirty
    /// ([`UNSETTLED_SHARE`]), only settled copies are cleaned.
    fn propose_cleans(&mut self, view: &View<'_>, most: usize, bar: u64, wanted: &mut Vec<Action>) {
        let now = millis(view.now());
        let urgent = u64::from(self.dirty.len()) * UNSETTLED_SHARE > u64::from(self.fast_slots);
        let settled = millis(self.settings.settled);
        let (mut found, mut from) = (0, self.clean_cursor);
        for _ in 0..MAX_EXAMINED.min(self.dirty.len()) {
            let next = self.dirty.first_from(from);
            let Some(e) = next.or_else(|| self.dirty.first_from(0)) else {
                break;
            };
            from = e.0 + 1;
            let Some(s) = view.copy(e).filter(|_| view.is_dirty(e)) else {
                if view.in_flight(e) == 0 && !view.is_held(e) {
                    // The write failed, or the copy no longer exists.
                    self.dirty.remove(e);
                }
                continue;
            };
            let age = self
                .last_written_ms
                .get(s.index() as usize)
                .map_or(0, |w| now.wrapping_sub(*w));
            let wait = age < settled && !urgent && bar == u64::MAX;
            if view.is_held(e) || wait || self.worth(view, e) >= bar {
                continue;
            }
            wanted.push(Action::Clean { extent: e });
            found += 1;
            if found == most {
                break;
            }
        }
        self.cleaning += found as u32;
        self.clean_cursor = from;
    }
    /// Number of writes at random places that the slow device may get now. Together they take at most half of the time for which the device
    /// has been `quiet`.
    ///
    /// While little is dirty, enough copies are clean, so cleaning gains nothing yet; but requests that arrive during a batch would still
    /// wait. So, while less than 1 / [`DIRTY_SHARE`] of flash is dirty, less than half of the time is used, in proportion to the dirty data.
    fn idle_write_budget(&self, view: &View<'_>, quiet: Nanos) -> usize {
        let each = Benefit::random_write_time(view).0;
        let needed = (self.fast_slots / DIRTY_SHARE).max(1);
        let part = u128::from(self.dirty.len().min(needed));
        let half = u128::from(quiet.0 / 2) * part / u128::from(needed);
        let room = half as u64 / each;
        room.min((MAX_CLEANS + ROUND_WRITES) as u64) as usize
    }
    /// Tells the model of the slow device alone about an access.
    pub(super) fn update_shadow(&mut self, view: &View<'_>, access: &Access, goes_on: bool) {
        let seen = ShadowAccess {
            extent: access.extent,
            write: access.write,
            goes_on,
            deferred: Benefit::deferred_write_time(view).0,
        };
        let mut slow = *view.cost(view.slowest());
        // For flash, the response time of writes is measured; so it must be for the disk. Its cost of a write is no such time: each write of
        // a batch takes less device time than a single write.
        let lone = view.latencies(view.slowest()).lone_write;
        if lone.0 > 0 {
            slow.write = lone;
        }
        self.shadow.access(access.now, &slow, seen);
    }
    /// Whether writes should leave the slow device alone: it sleeps, or may soon go to sleep, and energy has a weight.
    pub(super) fn spares_slow_device(&self, view: &View<'_>) -> bool {
        if !self.settings.weights.values_sleep() {
            return false;
        }
        let load = view.load(view.slowest());
        load.asleep || load.quiet >= LULL
    }
    /// Whether writes bypass flash because the slow device alone would answer them sooner.
    pub(super) fn writes_bypass_flash(&self, view: &View<'_>) -> bool {
        self.settings.guard
            && self.has(Part::Alone)
            && !self.spares_slow_device(view)
            && self.shadow.writes_bypass_flash()
    }
    /// Whether a write to an extent with a copy goes home, because writes bypass flash. This needs a clean copy, which is then dropped
    /// without a record. The write of a dirty copy stays on flash, because dropping that copy would need a durable record first.
    pub(super) fn write_bypasses_copy(&self, view: &View<'_>, e: UnitId) -> bool {
        let is_clean = !self.dirty.contains(e) && !view.is_dirty(e);
        is_clean && self.writes_bypass_flash(view) && !view.is_held(e) && !self.is_pinned(view, e)
    }
}
