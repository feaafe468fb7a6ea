//! How long a disk stays awake after its standby timer has ended, while sleep-aware mode is on.
//!
//! A wake-up takes as much energy as staying awake for a while (its *break-even time*). If most lulls end soon after the timer, sleep takes
//! more energy than it saves, and each request that ends a lull waits for the disk. So the lengths of the last lulls are kept, and the
//! disk goes to sleep at the time at which these lulls would have taken the least energy: at the end of the timer, or when a lull has
//! lasted longer than one of them. That is never later than the break-even time after the end of the timer, so even if the lulls change,
//! waiting costs at most as much as one wake-up each time.
//!
//! If the disk has a budget of starts ([`super::starts`]) and would exceed it, it goes to sleep so late that the budget would have sufficed
//! for these lulls: the longest ones get the starts that there are.
//!
//! The timer is a setting of the user, so a disk never goes to sleep sooner than it says. If the energy of a wake-up is unknown, it sleeps
//! when the timer ends.

use super::starts::Starts;
use crate::units::Nanos;

/// Number of lulls that are kept.
const KEPT: usize = 16;
/// Before this number of lulls is known, the timer alone decides.
const ENOUGH: usize = 4;
/// The lulls of one member that lasted at least as long as its timer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lulls {
    lengths: [Nanos; KEPT],
    /// When each of them ended.
    ends: [Nanos; KEPT],
    /// Number of lulls so far.
    seen: usize,
    /// The time after the end of the timer for which the disk stays awake.
    extra: Nanos,
    /// When the disk last woke up. Work in the background wakes it without counting as use.
    woke: Nanos,
    /// When the lull began in which the disk was last sent to sleep.
    slept_in: Nanos,
}

/// What a member's timer and its costs say about sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    /// The time without use after which the disk may sleep.
    pub after: Nanos,
    /// The break-even time; 0: unknown.
    pub even: Nanos,
}

impl Lulls {
    /// The time without use after which the disk goes to sleep; `after` is its timer.
    #[inline]
    pub(super) fn patience(&self, after: Nanos) -> Nanos {
        after + self.extra
    }
    /// The disk is sent to sleep; a request last used it at `used`.
    pub(super) fn sleeps(&mut self, used: Nanos) {
        self.slept_in = used.max(self.woke);
    }
    /// The disk wakes up; returns the length of the lull.
    pub(super) fn wakes(&mut self, now: Nanos) -> Nanos {
        self.woke = now;
        now.since(self.slept_in)
    }
    /// The length of the lull of a disk that is awake, and that a request last used at `used`.
    pub(super) fn length(&self, used: Nanos, now: Nanos) -> Nanos {
        now.since(used.max(self.woke))
    }
    /// A lull of this `length` ended `now`.
    pub(super) fn ended(&mut self, now: Nanos, length: Nanos, of: Timer, starts: Option<&Starts>) {
        if length < of.after {
            return;
        }
        self.lengths[self.seen % KEPT] = length;
        self.ends[self.seen % KEPT] = now;
        self.seen += 1;
        let n = self.seen.min(KEPT);
        self.extra = Nanos(0);
        if n < ENOUGH {
            return;
        }
        let known = &self.lengths[..n];
        let first = (0..n).map(|i| self.ends[i].since(known[i])).min();
        let span = now.since(first.unwrap_or(now));
        let most = starts.map_or(u64::MAX, |s| s.allowed(now, span));
        // No more than the break-even time after the timer is worth waiting for, except to keep the budget.
        let latest = of.after + of.even;
        let fits = |until: Nanos| known.iter().filter(|&&n| n > until).count() as u64 <= most;
        let choices = || core::iter::once(of.after).chain(known.iter().copied());
        let best = choices()
            .filter(|&until| until <= latest && fits(until))
            .min_by_key(|&until| (cost(known, of, until), until))
            .or_else(|| choices().filter(|&until| fits(until)).min());
        self.extra = best.map_or(Nanos(0), |until| until.since(of.after));
    }
}

/// The energy of these lulls from the end of the timer on, as time awake, if the disk goes to sleep after `until`.
fn cost(lulls: &[Nanos], timer: Timer, until: Nanos) -> u64 {
    let of = |&n: &Nanos| {
        let awake = n.min(until).since(timer.after);
        let wakes = if n > until { timer.even } else { Nanos(0) };
        (awake + wakes).0
    };
    lulls.iter().map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Nanos = Nanos::from_secs;

    fn timer(after: u64, even: u64) -> Timer {
        Timer {
            after: S(after),
            even: S(even),
        }
    }

    #[test]
    fn short_lulls_keep_the_disk_awake_and_long_ones_do_not() {
        let of = timer(60, 112);
        let mut l = Lulls::default();
        let end = |l: &mut Lulls, n| l.ended(S(0), S(n), of, None);
        for n in [70, 65, 68] {
            end(&mut l, n);
            assert_eq!(l.patience(of.after), S(60), "too few are known");
        }
        // Lulls below the timer say nothing: the disk would not have slept.
        end(&mut l, 59);
        assert_eq!(l.patience(of.after), S(60));
        end(&mut l, 62);
        assert_eq!(l.patience(of.after), S(70));
        // Half of the lulls last an hour: 4 × 10 s awake save 4 wake-ups of 112 s.
        (0..4).for_each(|_| end(&mut l, 3600));
        assert_eq!(l.patience(of.after), S(70));
        // 16 long ones in succession are all that is remembered.
        (0..KEPT).for_each(|_| end(&mut l, 3600));
        assert_eq!(l.patience(of.after), S(60));
    }

    #[test]
    fn waiting_never_costs_more_than_a_wake_up() {
        let mut random = crate::random::SplitMix64::new(7);
        for _ in 0..200 {
            let (mut l, of) = (
                Lulls::default(),
                timer(1 + random.below(100), random.below(125)),
            );
            for _ in 0..40 {
                l.ended(S(0), S(random.below(400)), of, None);
                let patience = l.patience(of.after);
                assert!(patience >= of.after && patience <= of.after + of.even);
            }
        }
        // Without a known energy the timer decides; the largest lengths do not overflow.
        let mut l = Lulls::default();
        (0..40).for_each(|_| l.ended(Nanos::MAX, Nanos::MAX, timer(5, 0), None));
        assert_eq!(l.patience(S(5)), S(5));
    }

    #[test]
    fn the_longest_lulls_get_the_starts_that_the_budget_has() {
        // Each lull follows one minute of work. Whatever the budget saves up is used up.
        let (of, lengths) = (timer(60, 30), [300, 400, 900]);
        let after_lulls = |interval| {
            let (mut l, mut now) = (Lulls::default(), S(0));
            let mut starts = Starts::new(Some(S(interval)), now).unwrap();
            for n in lengths.iter().cycle().take(15) {
                now = now + S(60 + n);
                while starts.ready() <= now {
                    starts.take(now);
                }
                l.ended(now, S(*n), of, Some(&starts));
            }
            l.patience(of.after)
        };
        // 15 lulls take 8900 s, with one minute before the first.
        assert_eq!(after_lulls(500), S(60), "all have a start");
        assert_eq!(after_lulls(800), S(300), "ten have one");
        assert_eq!(after_lulls(1700), S(400));
        assert_eq!(after_lulls(10_000), S(900));
    }
}
