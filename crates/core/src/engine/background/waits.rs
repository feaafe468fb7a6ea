//! The cap on waits for wake-ups: the share of the requests that may wait until a sleeping disk is ready.
//!
//! Every request that is answered adds the share to a credit, and every request that waited for a wake-up takes 1 from it. A disk is sent to
//! sleep only while the credit is at least the number of requests that lately waited for one wake-up, and at least 1. The credit is limited
//! to the share of [`RECENT`] requests, so a calm month does not pay for a bad day. A debt is never forgiven, only repaid.
//!
//! So of any `n` requests in succession at most share × (n + [`RECENT`]) wait, and of the first `n` at most share × n, plus in either case
//! the requests that wait for one wake-up of each disk (several may wait for one, and they are only known when they have come). A disk stays
//! awake while nothing is requested and the credit does not suffice.
//!
//! A woken disk is ready when the first operation has ended that took at least half of the time of a wake-up (any operation if no data sheet
//! states that time), since the disk's own cache can answer others before. A request counts as one that waited if it was in progress then.
//! That can also be one which another device was serving at that moment, so the count is rather too high.

use crate::units::Nanos;

/// Number of requests whose share can be saved up.
const RECENT: i64 = 10_000;
/// The credit that one waiting request takes. Shares are stated in these units, too.
const ONE: i64 = 1_000_000;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// In millionths; `None`: no cap.
    share: Option<u32>,
    credit: i64,
    /// Requests that waited since a disk was last sent to sleep, and the number to expect for a wake-up.
    waited: u32,
    expected: u32,
    /// When a woken disk last was ready.
    ready: Option<Nanos>,
    /// Since when the credit has sufficed.
    since: Nanos,
}

impl Waits {
    pub(super) fn new(share: Option<u32>, now: Nanos) -> Waits {
        Waits {
            share,
            since: now,
            ..Waits::default()
        }
    }
    /// Sets another share. The credit is kept, unless there was no cap.
    pub(super) fn set(&mut self, share: Option<u32>, now: Nanos) {
        if share == self.share {
            return;
        }
        if self.share.is_none() || share.is_none() {
            self.credit = 0;
        }
        (self.share, self.since) = (share, now);
        self.credit = self.credit.min(self.most());
    }
    fn most(&self) -> i64 {
        i64::from(self.share.unwrap_or(0)).saturating_mul(RECENT)
    }
    /// The time since which a disk may be sent to sleep; `None` while it may not.
    #[inline]
    pub(super) fn allowed_since(&self) -> Option<Nanos> {
        (self.share.is_none() || self.credit >= self.needed()).then_some(self.since)
    }
    fn needed(&self) -> i64 {
        (i64::from(self.expected.max(self.waited).max(1)) * ONE).min(self.most())
    }
    /// A woken disk is ready.
    pub(super) fn woken(&mut self, now: Nanos) {
        self.ready = Some(now);
    }
    /// A request that arrived at `arrived` is answered. Returns whether it waited for a wake-up.
    #[inline]
    pub(super) fn answered(&mut self, arrived: Nanos, now: Nanos) -> bool {
        let waited = self.ready.is_some_and(|t| arrived < t);
        self.waited = self.waited.saturating_add(u32::from(waited));
        let Some(share) = self.share else {
            return waited;
        };
        let before = self.credit >= self.needed();
        let takes = if waited { ONE } else { 0 };
        self.credit = (self.credit + i64::from(share) - takes).min(self.most());
        if !before && self.credit >= self.needed() {
            self.since = now;
        }
        waited
    }
    /// A disk is sent to sleep.
    pub(super) fn sleeps(&mut self) {
        let fewer = self.expected - self.expected.div_ceil(4);
        self.expected = fewer.max(self.waited);
        self.waited = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    const S: fn(u64) -> Nanos = Nanos::from_secs;

    #[test]
    fn a_hundredth_may_wait() {
        let mut w = Waits::new(Some(10_000), S(0));
        for i in 0..99 {
            assert!(!w.answered(S(i), S(i)));
            assert_eq!(w.allowed_since(), None);
        }
        w.answered(S(99), S(99));
        assert_eq!(w.allowed_since(), Some(S(99)));
        w.sleeps();
        w.woken(S(120));
        // Three wait, the fourth comes later.
        assert!((0..3).all(|_| w.answered(S(110), S(120))));
        assert!(!w.answered(S(120), S(121)));
        assert_eq!(w.allowed_since(), None);
        // 2 are owed, and three must be saved up, because three may wait again.
        assert!(!(0..495).any(|_| w.answered(S(130), S(131))));
        assert!(w.allowed_since().is_none());
        assert!(!w.answered(S(130), S(132)));
        assert_eq!(w.allowed_since(), Some(S(132)));
        // The next time, too, even if nothing had waited in between.
        w.sleeps();
        w.answered(S(133), S(133));
        assert_eq!(w.needed(), 3 * ONE);
        w.sleeps();
        assert_eq!(w.needed(), 2 * ONE);
    }

    #[test]
    fn without_a_cap_nothing_is_held_and_waits_are_counted() {
        let mut w = Waits::new(None, S(3));
        w.woken(S(10));
        assert!(w.answered(S(9), S(10)) && !w.answered(S(10), S(10)));
        assert_eq!(w.allowed_since(), Some(S(3)));
        w.set(Some(10_000), S(11));
        assert_eq!(w.allowed_since(), None);
        w.set(None, S(12));
        assert_eq!(w.allowed_since(), Some(S(12)));
    }

    #[test]
    fn the_share_of_those_that_wait_is_bounded() {
        let mut random = SplitMix64::new(5);
        for _ in 0..100 {
            let share = 100 + random.below(50_000) as u32;
            let mut w = Waits::new(Some(share), S(0));
            let (mut all, mut waited, mut most, mut asleep) = (0u64, 0, 0, false);
            for t in 1..20_000 {
                let now = S(t);
                if asleep && random.below(10) == 0 {
                    w.woken(now);
                    asleep = false;
                    let n = 1 + random.below(50);
                    most = most.max(n);
                    for _ in 0..n {
                        assert!(w.answered(S(t - 1), now));
                    }
                    (all, waited) = (all + n, waited + n);
                } else {
                    assert!(!w.answered(now, now));
                    all += 1;
                }
                if !asleep && w.allowed_since().is_some() {
                    w.sleeps();
                    asleep = true;
                }
                let bound = all * u64::from(share) / 1_000_000 + most;
                assert!(waited <= bound, "{waited} of {all}, share {share}");
            }
        }
    }
}
