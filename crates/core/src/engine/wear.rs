//! The wear budget: the number of bytes per day that may be written to the fastest tier.
//!
//! The budget is a token bucket. It starts empty and fills at the budget's rate, up to the number of bytes for the time `burst`. All writes
//! to the fastest tier are subtracted from it: moves, requests and metadata. Requests are never refused, so the level may become negative.
//! Nothing is admitted until the level is positive again.
//!
//! Admission becomes stricter as the bucket empties. Let *received* be the bytes received so far, at most the burst. If half of it or more
//! is left, every promotion, fetch and allocation is admitted. Below that, only the share 2 · left / received of them is admitted, and none
//! that needs more bytes than are left. This is a proportional controller: with a demand of D bytes a day and a budget of R < D, the level
//! settles where D · share = R. The admitted actions are evenly spaced, so an extent that is proposed often has more chances than one that
//! is proposed once (flash caches of content delivery networks admit at random, at a rate that follows a write budget). The choice follows
//! the multiples of the golden ratio. Like a random choice, it does not resonate with a periodic trace, but it has no clusters and is the
//! same in every run.
//!
//! Invariant: moves write at most rate · window + burst bytes to the fastest tier in any window of time. For this, a move's bytes are
//! reserved when it starts, and reserved bytes count against the burst until they are written.

use super::Params;
use crate::units::Nanos;

const DAY: u128 = 86_400_000_000_000;
/// 2^32 divided by the golden ratio.
const GOLDEN: u32 = 0x9e37_79b9;
/// Minimum burst, in extents. A burst smaller than a move would never allow any move.
const LEAST_EXTENTS: u64 = 8;

/// State of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearBudget {
    /// Bytes that may be written to the fastest tier each day.
    pub bytes_per_day: u64,
    /// Maximum number of bytes that can be accumulated.
    pub burst_bytes: u64,
    /// Accumulated bytes; negative if requests wrote more than the budget.
    pub left_bytes: i64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Wear {
    bytes_per_day: u64,
    burst: Nanos,
    least: u64,
    level: i64,
    /// Bytes received since the budget was set, at most the burst. The level is compared with this value; compared with the burst, a new
    /// budget would seem to be used up.
    received: i64,
    /// The part of `level` that is reserved for moves that have not written yet.
    reserved: i64,
    /// The time up to which the bucket was filled, and the remainder of less than one byte, in units of 1/`DAY` byte.
    at: Nanos,
    rest: u64,
    asked: u32,
}

impl Wear {
    pub(super) fn new(p: &Params, extent_bytes: u32, now: Nanos) -> Wear {
        let mut w = Wear {
            bytes_per_day: 0,
            burst: Nanos(0),
            least: LEAST_EXTENTS * u64::from(extent_bytes),
            level: 0,
            received: 0,
            reserved: 0,
            at: now,
            rest: 0,
            asked: 0,
        };
        w.set(p.wear_bytes_per_day, p.wear_burst);
        w
    }
    /// Sets another budget. If there was none before, the new one starts empty.
    pub(super) fn set(&mut self, bytes_per_day: Option<u64>, burst: Nanos) {
        if self.bytes_per_day == 0 {
            (self.level, self.received, self.rest) = (self.reserved, 0, 0);
        }
        self.bytes_per_day = bytes_per_day.unwrap_or(0);
        self.burst = burst;
        (self.level, self.received) = (self.level.min(self.cap()), self.received.min(self.cap()));
    }
    fn is_on(&self) -> bool {
        self.bytes_per_day > 0
    }
    fn cap(&self) -> i64 {
        let worth = u128::from(self.bytes_per_day) * u128::from(self.burst.0) / DAY;
        let cap = worth.max(u128::from(self.least));
        i64::try_from(cap).unwrap_or(i64::MAX)
    }
    /// Sets the present time. This is called before anything else at that time, so a full bucket overflows before bytes are taken from it.
    #[inline]
    pub(super) fn set_time(&mut self, now: Nanos) {
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
        self.received = self.received.saturating_add(whole).min(self.cap());
    }
    /// Whether a move to the fastest tier that writes `cost` bytes is admitted.
    pub(super) fn admits(&mut self, cost: i64) -> bool {
        if !self.is_on() {
            return true;
        }
        let left = self.level - self.reserved;
        let full = self
            .received
            .max(i64::try_from(self.least).unwrap_or(i64::MAX));
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
    /// A write of `len` bytes to the fastest tier begins; `promised` of them were reserved before.
    #[inline]
    pub(super) fn wrote(&mut self, len: u32, promised: u32) {
        self.reserved -= i64::from(promised);
        if self.is_on() {
            self.level = self.level.saturating_sub(i64::from(len));
        }
    }
    /// Reserves the bytes that a starting move will write, until it writes them.
    pub(super) fn reserve(&mut self, bytes: u32) {
        self.reserved += i64::from(bytes);
    }
    /// Releases reserved bytes that are not needed.
    pub(super) fn release(&mut self, bytes: u32) {
        self.reserved -= i64::from(bytes);
    }
    /// Bytes that are reserved.
    pub(super) fn reserved(&self) -> i64 {
        self.reserved
    }
    /// The budget at the last event, if there is one.
    pub(super) fn left(&self) -> Option<WearBudget> {
        self.is_on().then(|| WearBudget {
            bytes_per_day: self.bytes_per_day,
            burst_bytes: self.cap() as u64,
            left_bytes: self.level - self.reserved,
        })
    }
}
