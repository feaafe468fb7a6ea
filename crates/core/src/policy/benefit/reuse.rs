//! What a copy of each class of data saves, as measured: the prior for extents of which little is known.
//!
//! The class of an access says something about the use of its data. Journals and directories are used again soon, the data of a film is
//! not; and a film is read in long requests, whose seek is divided among many extents. So some accesses are drawn as *trials*. When as many
//! misses as flash has slots have passed, the extent has been used again or not. In the first case, a copy would have saved the extent's
//! share of the time that the request took the slow device. It does not matter whether there was a copy, so the measurement does not
//! depend on the decisions that follow from it.
//!
//! The mean saving of the trials of a class, divided by the mean of all trials, is the *ratio* of the class. The *factor* by which it counts
//! is closer to 1 by half, because small differences between classes do not last: a ratio between 2/3 and 3/2 counts as 1, and a larger or
//! smaller one is divided or multiplied by 3/2. If all accesses have the same class, its factor is exactly 1.

use crate::volume::UnitId;
use alloc::collections::VecDeque;

const CLASSES: usize = crate::stats::CLASSES;
/// Maximum number of trials in progress.
const TRIALS: u32 = 512;
/// When there were this number of trials, all counts are halved, so that older ones have less weight.
const MAX_COUNTED: u32 = 4 * TRIALS;
/// The mean of all trials counts as much as this number of trials of the class itself.
const PRIOR: u64 = 8;
/// A factor of 1, and the smallest and the largest factor.
const ONE: u64 = 256;
const FACTORS: (u64, u64) = (ONE / 16, ONE * 16);
/// Number of accesses to which the factor of a class applies.
const EVIDENCE: u64 = 2;
/// After this number of trials the factors are computed again.
const EVERY: u32 = 8;

/// An access whose extent is looked at again later.
#[derive(Clone, Copy, Debug)]
struct Trial {
    unit: UnitId,
    /// The clock of the scores at the access.
    clock: u32,
    /// What a copy saves if the extent is used again, nanoseconds.
    value: u32,
    class: u8,
}

/// Number of trials, and the sum of what copies would have saved, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    trials: u32,
    saved: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Reuse {
    trials: VecDeque<Trial>,
    /// The clock from which the next access is a trial.
    next: u32,
    counts: [Count; CLASSES],
    total: Count,
    /// For each class, in 1/256.
    factors: [u16; CLASSES],
}

impl Default for Reuse {
    fn default() -> Reuse {
        Reuse {
            trials: VecDeque::new(),
            next: 0,
            counts: [Count::default(); CLASSES],
            total: Count::default(),
            factors: [ONE as u16; CLASSES],
        }
    }
}

/// A ratio in 1/256 as a factor: closer to 1 by half.
fn damped(ratio: u64) -> u64 {
    if ratio > ONE {
        (ratio * 2 / 3).max(ONE)
    } else {
        (ratio * 3 / 2).min(ONE)
    }
}

impl Reuse {
    /// Whether the next access is a trial. `clock`: the clock of the scores, misses.
    #[inline]
    pub fn is_due(&self, clock: u32) -> bool {
        clock.wrapping_sub(self.next) < 1 << 31
    }
    /// Begins a trial: an access to `unit` with `class` at `clock`. If the extent is used again within `window` misses, a copy saves `value`
    /// nanoseconds. Ends the trials for which this time has passed; `last_use` returns the clock of an extent's last access, or `None` if
    /// the extent was discarded.
    pub fn begin(
        &mut self,
        (unit, class): (UnitId, u8),
        clock: u32,
        window: u32,
        value: u64,
        last_use: impl Fn(UnitId) -> Option<u32>,
    ) {
        self.next = clock.wrapping_add(window.div_ceil(TRIALS).max(1));
        while let Some(&t) = self.trials.front() {
            if clock.wrapping_sub(t.clock) < window {
                break;
            }
            self.trials.pop_front();
            let is_later = |at: u32| (1..1 << 31).contains(&at.wrapping_sub(t.clock));
            self.count(t, last_use(t.unit).is_some_and(is_later));
        }
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        self.trials.push_back(Trial {
            unit,
            clock,
            value,
            class: class % CLASSES as u8,
        });
    }
    fn count(&mut self, t: Trial, is_reused: bool) {
        let saved = if is_reused { u64::from(t.value) } else { 0 };
        for c in [&mut self.counts[usize::from(t.class)], &mut self.total] {
            c.trials += 1;
            c.saved += saved;
        }
        if self.total.trials.is_multiple_of(EVERY) {
            self.compute_factors();
        }
        if self.total.trials >= MAX_COUNTED {
            self.total = Count::default();
            for c in &mut self.counts {
                *c = Count {
                    trials: c.trials / 2,
                    saved: c.saved / 2,
                };
                self.total.trials += c.trials;
                self.total.saved += c.saved;
            }
        }
    }
    fn compute_factors(&mut self) {
        // All products fit into 64 bits: there are at most 2^11 trials, each of which saves less than 2^32 ns.
        let (trials, saved) = (u64::from(self.total.trials), self.total.saved);
        for (factor, c) in self.factors.iter_mut().zip(&self.counts) {
            if c.trials == 0 {
                // The result would be 1. Most classes have no data.
                *factor = ONE as u16;
                continue;
            }
            let own = c.saved * trials + PRIOR * saved;
            let all = (u64::from(c.trials) + PRIOR) * saved;
            let ratio = (own * ONE).checked_div(all).unwrap_or(ONE);
            *factor = damped(ratio).clamp(FACTORS.0, FACTORS.1) as u16;
        }
    }
    /// The worth of an extent of `class` whose accesses are worth `worth`. The factor of the class applies to as much of it as [`EVIDENCE`]
    /// accesses are worth, of which each is worth `one`. What exceeds this is the extent's own evidence, and counts in full.
    #[inline]
    pub fn weigh(&self, worth: u64, class: u8, one: u64) -> u64 {
        let factor = u64::from(self.factors[usize::from(class) % CLASSES]);
        if factor == ONE {
            return worth;
        }
        let first = worth.min(one.saturating_mul(EVIDENCE));
        (worth - first).saturating_add(first.saturating_mul(factor) / ONE)
    }
    /// The factor of a class, and the mean saving of a copy of any class, nanoseconds; `None`: nothing was measured.
    pub fn compare(&self, class: u8) -> Option<(f64, u64)> {
        let mean = self.total.saved.checked_div(self.total.trials.into())?;
        let factor = self.factors[usize::from(class) % CLASSES];
        Some((f64::from(factor) / ONE as f64, mean))
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.trials.capacity() * size_of::<Trial>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const WINDOW: u32 = 100;

    /// One access at each clock; `next` returns extent, class and value. Extents of class 7 are used again after ten misses.
    fn measured(clocks: u32, next: impl Fn(u32) -> (u32, u8, u64)) -> Reuse {
        let mut r = Reuse::default();
        let mut last: Vec<Option<u32>> = alloc::vec![None; 100_000];
        for clock in 1..=clocks {
            let (unit, class, value) = next(clock);
            assert!(r.is_due(clock));
            let now = |e: UnitId| last[e.0 as usize];
            r.begin((UnitId(unit), class), clock, WINDOW, value, now);
            last[unit as usize] = Some(clock);
        }
        r
    }

    #[test]
    fn a_class_that_is_used_again_counts_more() {
        let r = measured(1000, |clock| match clock % 4 {
            0 => (clock % 10, 7, 1000),
            _ => (clock, 14, 1000),
        });
        let (journal, mean) = r.compare(7).unwrap_or_default();
        let (film, _) = r.compare(14).unwrap_or_default();
        // A quarter of the accesses save 1000 ns: four times the mean, less the damping.
        assert!((220..=280).contains(&mean), "{mean}");
        assert!((2.3..2.7).contains(&journal), "{journal}");
        assert!(film < 0.1, "{film}");
        assert_eq!(r.compare(9).map(|c| c.0), Some(1.0), "never seen");
        // Worth that exceeds two accesses is not changed.
        assert_eq!(r.weigh(5000, 9, 1000), 5000);
        let weighed = r.weigh(5000, 14, 1000);
        assert!((3000..3250).contains(&weighed), "{weighed}");
        assert!(r.weigh(1000, 7, 1000) > 2 * r.weigh(1000, 9, 1000));
        assert_eq!(r.weigh(u64::MAX, 7, u64::MAX), u64::MAX / ONE);
    }

    #[test]
    fn the_share_of_a_request_counts() {
        // All are used again. A block of a film saves a tenth, because its request is ten times as long.
        let r = measured(2000, |clock| match clock % 2 {
            0 => (clock % 10, 7, 1000),
            _ => (1000 + clock % 10, 14, 100),
        });
        let of = |class| r.compare(class).map_or(0.0, |c| c.0);
        assert!(of(7) > 1.1 && of(14) < 0.4, "{} {}", of(7), of(14));
    }

    #[test]
    fn one_class_changes_nothing_and_counts_stay_bounded() {
        let r = measured(50_000, |clock| (clock % 60 + clock % 7 * 1000, 14, 12_345));
        assert_eq!(r.compare(14).map(|c| c.0), Some(1.0));
        assert!((0..10_000).step_by(77).all(|w| r.weigh(w, 14, 500) == w));
        assert!(r.total.trials <= MAX_COUNTED && r.trials.len() <= TRIALS as usize + 1);
        assert_eq!(r.total, r.counts[14]);
        // Discarded extents are not used again, and nothing overflows.
        let mut r = Reuse::default();
        for clock in (0..3_000_000_000u32).step_by(1_000_000) {
            let last_use = |e: UnitId| (e.0 == 1).then_some(clock);
            r.begin((UnitId(0), 3), clock, 1, u64::MAX, last_use);
            r.begin((UnitId(1), 4), clock, 1, u64::MAX, last_use);
        }
        assert!(r.compare(4).is_some_and(|c| c.0 > 1.0));
        assert!(r.compare(3).is_some_and(|c| c.0 < 0.1));
    }

    #[test]
    fn small_differences_do_not_count() {
        assert_eq!([ONE, ONE * 7 / 5, ONE * 3 / 4].map(damped), [ONE; 3]);
        assert_eq!([ONE * 3, ONE / 2].map(damped), [ONE * 2, ONE * 3 / 4]);
    }
}
