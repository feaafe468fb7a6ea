//! What cleaning costs those who come meanwhile, as seen: requests to the slow device that find a batch under way wait for it.

use crate::units::Nanos;

/// What was seen counts half when so many copies were cleaned.
const KEPT: u64 = 1024;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Harm {
    /// Nanoseconds that requests waited, and copies that were cleaned.
    waited: u64,
    cleaned: u64,
    /// When the batch under way is thought to end.
    until: Nanos,
}

impl Harm {
    /// A batch of `copies` begins, which takes the slow device about `takes` nanoseconds.
    pub fn cleans(&mut self, now: Nanos, copies: u64, takes: u64) {
        if self.cleaned >= KEPT {
            (self.waited, self.cleaned) = (self.waited / 2, self.cleaned / 2);
        }
        self.cleaned += copies;
        self.until = now + Nanos(takes);
    }
    /// A request comes to the slow device while a batch is under way; it waits for `least` nanoseconds at least.
    pub fn comes(&mut self, now: Nanos, least: u64) {
        self.waited = self
            .waited
            .saturating_add(self.until.since(now).0.max(least));
    }
    /// A write went to the slow device instead: what was seen is a little older.
    pub fn fades(&mut self) {
        self.waited -= self.waited / 512;
    }
    /// Nanoseconds that requests waited for each copy that was cleaned.
    pub fn each(self) -> u64 {
        self.waited / self.cleaned.max(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_during_a_batch_waits_for_its_end() {
        let ms = Nanos::from_millis;
        let mut h = Harm::default();
        assert_eq!(h.each(), 0);
        h.cleans(ms(0), 32, 100_000_000);
        h.comes(ms(60), 1_000_000);
        // Over time, it takes as long as what is least.
        h.comes(ms(140), 2_000_000);
        assert_eq!(h.each(), 42_000_000 / 32);
        let before = h.each();
        (0..512).for_each(|_| h.fades());
        assert!(h.each() < before / 2, "{}", h.each());
        // Batches that hurt nobody make it small.
        (0..1000).for_each(|_| h.cleans(ms(1000), 64, 1));
        assert_eq!(h.each(), 0);
    }
}
