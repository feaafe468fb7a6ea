//! How long a disk stays awake after its standby timer has ended, while sleep-aware mode is on.
//!
//! A wake-up takes as much energy as staying awake for a while (its *break-even time*). If most lulls end soon after the timer, sleep takes
//! more energy than it saves, and each request that ends a lull waits for the disk. So the lengths of the last lulls are kept, and the
//! disk goes to sleep at the time at which these lulls would have taken the least energy: at the end of the timer, or when a lull has
//! lasted longer than one of them. That is never later than the break-even time after the end of the timer, so even if the lulls change,
//! waiting costs at most as much as one wake-up each time.
//!
//! The timer is a setting of the user, so a disk never goes to sleep sooner than it says. If the energy of a wake-up is unknown, it sleeps
//! when the timer ends.

use crate::units::Nanos;

/// Number of lulls that are kept.
const KEPT: usize = 16;
/// Before this number of lulls is known, the timer alone decides.
const ENOUGH: usize = 4;
/// Power that sleep saves, watts. Data sheets of 3.5-inch disks say 3 to 7.5; measured costs do not include it.
const SAVED_W: u64 = 4;

/// The lulls of one member that lasted at least as long as its timer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lulls {
    lengths: [Nanos; KEPT],
    /// Number of lulls so far.
    seen: usize,
    /// The time after the end of the timer for which the disk stays awake.
    extra: Nanos,
    /// When the disk last woke up. Work in the background wakes it without counting as use.
    woke: Nanos,
    /// When the lull began in which the disk was last sent to sleep.
    slept_in: Nanos,
}

/// The break-even time of a wake-up that takes `wake_uj` microjoules.
pub(super) fn break_even(wake_uj: u64) -> Nanos {
    Nanos(wake_uj.saturating_mul(1000) / SAVED_W)
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
    /// A lull of this `length` ended.
    pub(super) fn ended(&mut self, length: Nanos, after: Nanos, even: Nanos) {
        if length < after {
            return;
        }
        self.lengths[self.seen % KEPT] = length;
        self.seen += 1;
        let known = &self.lengths[..self.seen.min(KEPT)];
        self.extra = Nanos(0);
        if known.len() < ENOUGH {
            return;
        }
        let mut least = cost(known, after, after, even);
        for &until in known.iter().filter(|&&n| n <= after + even) {
            let this = cost(known, after, until, even);
            if this < least {
                least = this;
                self.extra = until.max(after) - after;
            }
        }
    }
}

/// The energy of these lulls from the end of the timer on, as time awake, if the disk goes to sleep after `until`.
fn cost(lulls: &[Nanos], after: Nanos, until: Nanos, even: Nanos) -> u64 {
    let of = |&n: &Nanos| {
        let awake = n.min(until).since(after);
        awake.0 + if n > until { even.0 } else { 0 }
    };
    lulls.iter().map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Nanos = Nanos::from_secs;

    #[test]
    fn short_lulls_keep_the_disk_awake_and_long_ones_do_not() {
        let (after, even) = (S(60), break_even(450_000_000));
        assert_eq!(even, Nanos::from_millis(112_500));
        let mut l = Lulls::default();
        for n in [70, 65, 68] {
            l.ended(S(n), after, even);
            assert_eq!(l.patience(after), after, "too few are known");
        }
        // Lulls below the timer say nothing: the disk would not have slept.
        l.ended(S(59), after, even);
        assert_eq!(l.patience(after), after);
        l.ended(S(62), after, even);
        assert_eq!(l.patience(after), S(70));
        // Half of the lulls last an hour: 4 × 10 s awake save 4 wake-ups of 112 s.
        (0..4).for_each(|_| l.ended(S(3600), after, even));
        assert_eq!(l.patience(after), S(70));
        // 16 long ones in succession are all that is remembered.
        (0..KEPT).for_each(|_| l.ended(S(3600), after, even));
        assert_eq!(l.patience(after), after);
    }

    #[test]
    fn waiting_never_costs_more_than_a_wake_up() {
        let mut random = crate::random::SplitMix64::new(7);
        for _ in 0..200 {
            let (mut l, after) = (Lulls::default(), S(1 + random.below(100)));
            let even = break_even(random.below(500) * 1_000_000);
            for _ in 0..40 {
                l.ended(S(random.below(400)), after, even);
                let patience = l.patience(after);
                assert!(patience >= after && patience <= after + even);
            }
        }
        // Without a known energy the timer decides; the largest lengths do not overflow.
        let mut l = Lulls::default();
        (0..40).for_each(|_| l.ended(Nanos(u64::MAX), S(5), break_even(0)));
        assert_eq!(l.patience(S(5)), S(5));
    }
}
