//! The measured cost of cleaning for requests: those that reach the slow device during a batch of cleans wait for it.

use crate::units::Nanos;

/// After this number of cleaned copies, earlier measurements count half.
const MAX_CLEANED: u64 = 1024;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Harm {
    /// Nanoseconds for which requests waited, and the number of copies that were cleaned.
    waited: u64,
    cleaned: u64,
    /// The estimated end of the batch in progress.
    until: Nanos,
}

impl Harm {
    /// A batch of `copies` cleans begins, which takes about `takes` nanoseconds of the slow device.
    pub fn begin_batch(&mut self, now: Nanos, copies: u64, takes: u64) {
        if self.cleaned >= MAX_CLEANED {
            (self.waited, self.cleaned) = (self.waited / 2, self.cleaned / 2);
        }
        self.cleaned += copies;
        self.until = now + Nanos(takes);
    }
    /// A request reaches the slow device during a batch. It waits until the estimated end of the batch, and at least `least` nanoseconds.
    pub fn request_waits(&mut self, now: Nanos, least: u64) {
        self.waited = self
            .waited
            .saturating_add(self.until.since(now).0.max(least));
    }
    /// A write went to the slow device because of this cost. Then nothing is cleaned and nothing new is measured, so the old
    /// measurement slowly loses weight.
    pub fn decay(&mut self) {
        self.waited -= self.waited / 512;
    }
    /// Nanoseconds for which requests waited, for each cleaned copy.
    pub fn wait_per_copy(self) -> u64 {
        self.waited / self.cleaned.max(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_during_a_batch_waits_for_its_end() {
        let ms = Nanos::from_millis;
        let mut h = Harm::default();
        assert_eq!(h.wait_per_copy(), 0);
        h.begin_batch(ms(0), 32, 100_000_000);
        h.request_waits(ms(60), 1_000_000);
        // After the estimated end, the minimum counts.
        h.request_waits(ms(140), 2_000_000);
        assert_eq!(h.wait_per_copy(), 42_000_000 / 32);
        let before = h.wait_per_copy();
        (0..512).for_each(|_| h.decay());
        assert!(h.wait_per_copy() < before / 2, "{}", h.wait_per_copy());
        // Batches for which no request waits make the mean small.
        (0..1000).for_each(|_| h.begin_batch(ms(1000), 64, 1));
        assert_eq!(h.wait_per_copy(), 0);
    }
}
