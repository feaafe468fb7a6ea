//! The limit of dirty data, `dirty_max`: a share of the tiers that are faster than the slowest.
//!
//! Cleaning begins above nine tenths of it and ends at eight tenths. It goes on under load, and wakes a disk that sleeps, as the limit is about
//! what is lost with flash. A write that would make more than the limit dirty goes to the home as well, as with write-through. It does not wait
//! for the cleaning instead: that may take any time, and a place that no data can be written to would hold up every client. So such a write
//! takes the time that the disk needs for it, and if the disk fails it, that one has the error. Writes in progress count, so the limit holds
//! exactly, unless it is lowered or the volume was opened with more.

use super::Background;
use super::drain::Step;
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::mutants::Mutant;
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::Space;

/// Longest delay before the next attempt, while no data can be written home.
const REST_MAX: Nanos = Nanos::from_secs(2);
/// The first such delay.
const REST: Nanos = Nanos::from_millis(20);
/// Largest number of copies that are looked at in one step.
const LOOKS: u32 = 64;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limit {
    /// Largest number of dirty blocks.
    most: Option<u64>,
    /// Whether cleaning goes on.
    cleans: bool,
    hand: u32,
}

impl Limit {
    /// `share`: of the faster tiers, in millionths.
    pub(super) fn set(&mut self, share: Option<u32>, space: &Space) {
        let slots = space.geo.tier_slots(space.geo.slowest()).start;
        let blocks = u64::from(slots) * u64::from(space.geo.blocks_per_extent());
        self.most = share.map(|n| (blocks.saturating_mul(u64::from(n)) / 1_000_000).max(1));
    }
    pub(super) fn cleans(&self) -> bool {
        self.cleans
    }
    /// Begins or ends the cleaning, for this number of dirty blocks, where a write wants to make `more` dirty. Returns whether it begins.
    pub(super) fn look(&mut self, dirty: u64, more: u64) -> bool {
        let before = self.cleans;
        let without = |tenths: u64| {
            self.most
                .map_or(u64::MAX, |m| m - (m * tenths).div_ceil(10))
        };
        self.cleans = dirty > without(2) && (before || dirty + more > without(1));
        self.cleans && !before
    }
}

/// Whether data can be written home: after attempts all of which failed, the next ones are made later and later.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    done: u64,
    failed: u64,
    rest: Nanos,
}

impl Attempts {
    /// Looks at the numbers of attempts that succeeded and failed so far. Returns the least delay before the next ones.
    pub(super) fn note(&mut self, done: u64, failed: u64) -> Nanos {
        if done > self.done {
            self.rest = Nanos(0);
        } else if failed > self.failed {
            self.rest = Nanos(self.rest.0 * 2).clamp(REST, REST_MAX);
        }
        (self.done, self.failed) = (done, failed);
        self.rest
    }
    /// Whether the last attempts failed.
    pub(super) fn fail(&self) -> bool {
        self.rest > Nanos(0)
    }
}

impl Background {
    pub(in crate::engine) fn set_dirty_max(&mut self, share: Option<u32>, space: &Space) {
        self.drain.limit.set(share, space);
    }
    /// The limit of dirty data in bytes, if there is one.
    pub(in crate::engine) fn dirty_max(&self, space: &Space) -> Option<u64> {
        Some(self.drain.limit.most? << space.geo.block_shift)
    }
    /// Whether the last attempts to write dirty data home have failed.
    pub(in crate::engine) fn cleaning_fails(&self, space: &Space) -> bool {
        space.map.dirty() > 0 && self.drain.attempts.fail()
    }
}

impl Globals {
    /// More is dirty than before, or is wanted dirty by `more` blocks, or there is another limit.
    pub(in crate::engine) fn heed_limit(&mut self, more: u64) {
        let (dirty, now) = (self.space.map.all_dirty_blocks(), self.clock);
        if self.background.drain.limit.look(dirty, more) {
            self.background.drain.begin(now);
        }
    }

    /// Whether a write to the copy would make more dirty than there may be. `coming`: number of blocks that writes in progress make dirty.
    #[inline]
    pub(in crate::engine) fn is_at_limit(
        &mut self,
        e: ExtentId,
        (from, to): (u32, u32),
        coming: u64,
    ) -> bool {
        let Some(most) = self.background.drain.limit.most else {
            return false;
        };
        let (map, more) = (&self.space.map, coming + u64::from(to - from));
        if map.all_dirty_blocks() + more <= most || map.all_dirty(e, from, to) {
            return false;
        }
        self.heed_limit(more);
        !self.broken(Mutant::PassDirtyMax)
    }
}

impl Parts<'_> {
    /// Cleans some copies, if there is too much dirty data. Returns whether that has begun for any.
    pub(super) fn limit_step(&mut self) -> bool {
        let mut begun = false;
        for _ in 0..LOOKS {
            let Limit { cleans, hand, .. } = self.globals.background.drain.limit;
            if !cleans {
                break;
            }
            let Some(slot) = self.globals.space.map.next_copy(Slot(hand), true) else {
                break;
            };
            self.globals.steps += 1;
            let how = self.drain_slot(slot);
            if how == Step::NoBuffer {
                break;
            }
            self.globals.background.drain.limit.hand = slot.0 + 1;
            begun |= how == Step::Begun;
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_goes_on_until_there_is_room() {
        let mut l = Limit {
            most: Some(100),
            ..Limit::default()
        };
        let seen = [90, 91, 95, 81, 80, 85, 91].map(|n| (l.look(n, 0), l.cleans));
        let (no, begins, goes_on) = ((false, false), (true, true), (false, true));
        assert_eq!(seen, [no, begins, goes_on, goes_on, no, no, begins]);
        assert!(l.look(81, 0) || l.cleans);
        l.most = None;
        assert!(!l.look(1000, 0) && !l.cleans, "a limit that is lifted");
        // A write that does not fit begins it, unless nothing would get room.
        l.most = Some(10);
        assert!(!l.look(8, 3) && l.look(9, 3) && !l.look(8, 0));
        l.most = Some(1);
        assert!(l.look(1, 0) && !l.look(0, 1) && !l.cleans);
    }

    #[test]
    fn attempts_that_fail_are_made_later() {
        let mut a = Attempts::default();
        assert_eq!(a.note(5, 0), Nanos(0));
        let rests = [8, 16, 16, 24].map(|failed| a.note(5, failed));
        assert_eq!(rests, [20, 40, 40, 80].map(Nanos::from_millis));
        for failed in 30..60 {
            a.note(5, failed);
        }
        assert_eq!((a.rest, a.fail()), (REST_MAX, true));
        a.note(6, 60);
        assert!(!a.fail());
    }
}
