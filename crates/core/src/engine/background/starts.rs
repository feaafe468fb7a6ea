//! The budget of starts: how often a disk may be stopped and started again.
//!
//! Data sheets state the number of start-stop cycles of a disk's life. Divided by the wanted years, this is a rate. The budget is a bucket
//! that fills with time: each start takes the time between two starts at that rate (the *interval*), and the time of a day can be saved up.
//! While less than one interval is saved, the disk stays awake.
//!
//! A new budget begins with one start, which is repaid before it fills, so that a disk may sleep soon after the service has started.
//! So within a time `t` since the beginning there are at most max(1, t ÷ interval) starts, and within any other time `t` at most
//! (t + a day) ÷ interval, or (t ÷ interval) + 1 if that is more. The state is not stored: a restart of the service begins a new budget.
//!
//! A start is taken from the budget when the disk is sent to sleep. One that the drive refuses is not given back.

use crate::units::Nanos;

/// The longest time that is saved up.
const SAVED_MAX: Nanos = Nanos::from_secs(86_400);

/// The state of the budget of starts of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartBudget {
    /// Time between two starts at the budget's rate.
    pub interval: Nanos,
    /// Time that is saved up; one interval is one start.
    pub saved: Nanos,
    /// When one more start is possible; a time that has passed if it is possible now.
    pub next: Nanos,
}

impl StartBudget {
    /// Number of starts that are left.
    pub fn left(&self) -> f64 {
        self.saved.0 as f64 / self.interval.0 as f64
    }
    /// Number of starts in a day at the budget's rate.
    pub fn per_day(&self) -> f64 {
        86_400e9 / self.interval.0 as f64
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Starts {
    interval: Nanos,
    /// Time that was saved up at `at`. After the beginning, `at` is in the future.
    saved: Nanos,
    at: Nanos,
}

impl Starts {
    /// A budget that begins `now`; `None` without an interval.
    pub(super) fn new(interval: Option<Nanos>, now: Nanos) -> Option<Starts> {
        interval.filter(|i| i.0 > 0).map(|interval| Starts {
            interval,
            saved: interval,
            at: now + interval,
        })
    }
    pub(super) fn interval(&self) -> Nanos {
        self.interval
    }
    fn saved(&self, now: Nanos) -> Nanos {
        (self.saved + now.since(self.at)).min(SAVED_MAX.max(self.interval))
    }
    /// The time from which on one start is possible.
    pub(super) fn ready(&self) -> Nanos {
        let lacks = self.interval.since(self.saved);
        if lacks.0 == 0 {
            Nanos(0)
        } else {
            self.at + lacks
        }
    }
    /// The disk is sent to sleep.
    pub(super) fn take(&mut self, now: Nanos) {
        self.saved = self.saved(now).since(self.interval);
        self.at = self.at.max(now);
    }
    /// Number of starts that a time `span` up to `now` and what is saved allow.
    pub(super) fn allowed(&self, now: Nanos, span: Nanos) -> u64 {
        (self.saved(now) + span).0 / self.interval.0
    }
    pub(super) fn state(&self, now: Nanos) -> StartBudget {
        StartBudget {
            interval: self.interval,
            saved: self.saved(now),
            next: self.ready(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use alloc::vec::Vec;

    const S: fn(u64) -> Nanos = Nanos::from_secs;

    #[test]
    fn the_first_start_is_free_and_repaid() {
        assert!(Starts::new(None, S(5)).is_none() && Starts::new(Some(Nanos(0)), S(5)).is_none());
        let mut s = Starts::new(Some(S(100)), S(1000)).unwrap();
        assert!(s.ready() <= S(1000));
        s.take(S(1010));
        assert_eq!(s.ready(), S(1200));
        s.take(S(1200));
        assert_eq!(s.ready(), S(1300));
        // Without a start the time of a day is saved, in whole and broken intervals.
        assert_eq!(s.state(S(1_000_000)).saved, SAVED_MAX);
        assert_eq!(s.allowed(S(1_000_000), S(50)), 864);
        assert_eq!(s.allowed(S(1_000_000), S(100)), 865);
    }

    #[test]
    fn an_interval_of_more_than_a_day_can_be_saved() {
        let mut s = Starts::new(Some(S(200_000)), S(0)).unwrap();
        s.take(S(9));
        assert_eq!(s.ready(), S(400_000));
        assert_eq!(s.state(S(900_000)).saved, S(200_000));
    }

    #[test]
    fn no_window_has_more_starts_than_the_bound() {
        let mut random = SplitMix64::new(11);
        for _ in 0..200 {
            let interval = S(1 + random.below(40_000));
            let mut s = Starts::new(Some(interval), S(0)).unwrap();
            let (mut now, mut taken) = (S(0), Vec::new());
            for _ in 0..300 {
                now = now + Nanos(random.below(interval.0 * 3));
                // As often as possible, or only once.
                while s.ready() <= now && random.below(8) > 0 {
                    s.take(now);
                    taken.push(now);
                }
            }
            for (i, from) in taken.iter().enumerate() {
                assert!((i as u64) < (from.0 / interval.0).max(1), "{i} {from:?}");
                for (n, to) in taken[i..].iter().enumerate() {
                    let saved = SAVED_MAX.max(interval).0;
                    let most = (to.since(*from).0 + saved) / interval.0;
                    assert!((n as u64) < most, "{} in {:?}", n + 1, to.since(*from));
                }
            }
        }
    }
}
