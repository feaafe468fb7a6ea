//! The wear budget: how many bytes a day the fastest tier may be written.
//!
//! A token bucket. It fills at the budget's rate, from empty, up to `burst` worth of it. Everything that is written to the
//! fastest tier is taken out of it: moves, requests and metadata. Requests are never refused, so it may go below zero; what
//! was overdrawn is worked off before anything is let in again.
//!
//! Admission tightens as it empties. Of what came in (the burst, or less while the budget is young) half is left or more:
//! every promotion, fetch and allocation passes. Below that, the share 2 · left / came in of them, and none that what is left
//! cannot pay. That is a proportional controller: with a demand of
//! D bytes a day and a budget of R < D the level settles where D · share = R, and what passes is thinned out evenly, so an
//! extent that is asked for often has more chances than one that is asked for once (admission by chance at a rate that
//! follows a write budget is what flash caches of content delivery networks do). Who passes follows the multiples of the
//! golden ratio: as even as chance, without its clusters, the same on every run, and in step with no periodic trace.
//!
//! Never false: moves write at most rate · window + burst bytes to the fastest tier in any window of time. So a move's bytes
//! are set aside when it starts, and what is set aside counts against the burst until it is written.

use crate::engine::Params;
use crate::units::Nanos;

const DAY: u128 = 86_400_000_000_000;
/// 2^32 over the golden ratio.
const GOLDEN: u32 = 0x9e37_79b9;
/// Minimum burst, in extents. A burst smaller than a move would never allow any move.
const LEAST_EXTENTS: u64 = 8;

/// State of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearBudget {
    /// Bytes that the fastest tier may be written in a day.
    pub bytes_per_day: u64,
    /// Maximum number of bytes that can be accumulated.
    pub burst_bytes: u64,
    /// Accumulated bytes; negative if requests wrote more than the budget.
    pub left_bytes: i64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Wear {
    bytes_per_day: u64,
    burst: Nanos,
    least: u64,
    level: i64,
    /// What came in since it began, no more than the burst: full is relative to that, or a young budget would pass as spent.
    came: i64,
    /// Of `level`, promised to moves that have not written yet.
    reserved: i64,
    /// Filled until then, and what is short of a whole byte, in bytes · ns a day.
    at: Nanos,
    rest: u64,
    asked: u32,
}

impl Wear {
    pub(in crate::engine) fn new(p: &Params, extent_bytes: u32, now: Nanos) -> Wear {
        let mut w = Wear {
            bytes_per_day: 0,
            burst: Nanos(0),
            least: LEAST_EXTENTS * u64::from(extent_bytes),
            level: 0,
            came: 0,
            reserved: 0,
            at: now,
            rest: 0,
            asked: 0,
        };
        w.set(p.wear_bytes_per_day, p.wear_burst);
        w
    }
    /// Sets another budget. A new budget begins empty.
    pub(in crate::engine) fn set(&mut self, bytes_per_day: Option<u64>, burst: Nanos) {
        if self.bytes_per_day == 0 {
            (self.level, self.came, self.rest) = (self.reserved, 0, 0);
        }
        self.bytes_per_day = bytes_per_day.unwrap_or(0);
        self.burst = burst;
        (self.level, self.came) = (self.level.min(self.cap()), self.came.min(self.cap()));
    }
    fn is_on(&self) -> bool {
        self.bytes_per_day > 0
    }
    fn cap(&self) -> i64 {
        let worth = u128::from(self.bytes_per_day) * u128::from(self.burst.0) / DAY;
        let cap = worth.max(u128::from(self.least));
        i64::try_from(cap).unwrap_or(i64::MAX)
    }
    /// It is `now`. Told before anything happens at that time: a full bucket runs over before it is emptied.
    #[inline]
    pub(in crate::engine) fn pass(&mut self, now: Nanos) {
        if self.is_on() {
            self.fill(now);
        } else {
            self.at = now;
        }
    }
    fn fill(&mut self, now: Nanos) {
        let gap = now.since(self.at);
        if gap.0 == 0 {
            return;
        }
        self.at = now;
        let due = u128::from(self.bytes_per_day) * u128::from(gap.0) + u128::from(self.rest);
        self.rest = (due % DAY) as u64;
        let whole = i64::try_from(due / DAY).unwrap_or(i64::MAX);
        self.level = self.level.saturating_add(whole).min(self.cap());
        self.came = self.came.saturating_add(whole).min(self.cap());
    }
    /// Whether a move to the fastest tier that writes `cost` bytes is admitted.
    pub(super) fn admits(&mut self, cost: i64) -> bool {
        if !self.is_on() {
            return true;
        }
        let left = self.level - self.reserved;
        let full = self.came.max(i64::try_from(self.least).unwrap_or(i64::MAX));
        if left < cost {
            return false;
        }
        if left >= full / 2 {
            return true;
        }
        self.asked = self.asked.wrapping_add(1);
        let turn = u128::from(self.asked.wrapping_mul(GOLDEN));
        // turn / 2^32 < 2 · left / full; neither is negative here.
        turn * (full as u128) < (left as u128) << 33
    }
    /// So many bytes are on their way to the fastest tier, `promised` of them set aside before.
    #[inline]
    pub(in crate::engine) fn wrote(&mut self, len: u32, promised: u32) {
        self.reserved -= i64::from(promised);
        if self.is_on() {
            self.level = self.level.saturating_sub(i64::from(len));
        }
    }
    /// So many bytes will be written by a move that starts: set them aside until it has.
    pub(super) fn reserve(&mut self, bytes: u32) {
        self.reserved += i64::from(bytes);
    }
    /// These are not needed after all.
    pub(super) fn release(&mut self, bytes: u32) {
        self.reserved -= i64::from(bytes);
    }
    /// What is left at the last event, if there is a budget.
    pub(in crate::engine) fn left(&self) -> Option<WearBudget> {
        self.is_on().then(|| WearBudget {
            bytes_per_day: self.bytes_per_day,
            burst_bytes: self.cap() as u64,
            left_bytes: self.level - self.reserved,
        })
    }
}
