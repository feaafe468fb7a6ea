//! What is lost because flash is full of dirty data, and when that pays for cleaning under load.
//!
//! Cleaning waits for the slow device to be quiet. Where that never is, as in a closed loop, all copies become dirty in the end, and nothing
//! new can be copied. So what that costs is added up: a miss of an extent that was used lately would have been a hit, had a dirty
//! copy that is worth less been clean. Once as much is lost as a batch of cleans takes of the slow device, that batch is done, quiet or
//! not. That costs at most twice what it would have cost to know from the beginning that it pays (to rent until the rent is the price,
//! then to buy: Karlin, Manasse, Rudolph, Sleator, Algorithmica 3, 1988). Both sides are times of the slow device, and whoever
//! waits for it waits for either, so its queue counts on neither.

/// What was lost is forgotten beyond so many batches.
const MOST: u64 = 2;
/// The part of the mean worth that a new one replaces.
const SHARE: u64 = 16;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regret {
    /// Nanoseconds of the slow device.
    lost: u64,
    /// What the extents that were missed were worth, on average.
    worth: u64,
}

impl Regret {
    /// A miss took the slow device `lost` nanoseconds; its extent is worth so much.
    pub fn missed(&mut self, lost: u64, worth: u64) {
        self.lost = self.lost.saturating_add(lost);
        self.worth = if self.worth == 0 {
            worth
        } else {
            self.worth - self.worth / SHARE + worth / SHARE
        };
    }
    /// Is anything lost? If not, no batch pays.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.lost > 0
    }
    /// Does a batch pay that takes `cost` nanoseconds?
    pub fn pays(&self, cost: u64) -> bool {
        self.lost >= cost.max(1)
    }
    /// A batch began.
    pub fn paid(&mut self, cost: u64) {
        self.lost = self
            .lost
            .min(cost.saturating_mul(MOST))
            .saturating_sub(cost);
    }
    /// What a copy must be worth less than to be cleaned: others would not go for those who come.
    pub fn bar(&self) -> u64 {
        self.worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_done_when_as_much_is_lost() {
        let mut r = Regret::default();
        assert!(!r.pays(0));
        (0..9).for_each(|_| r.missed(1_000, 8_000));
        assert!(!r.pays(10_000));
        r.missed(1_000, 8_000);
        assert!(r.pays(10_000) && r.bar() == 8_000);
        r.paid(10_000);
        assert!(!r.pays(1));
        // However much was lost: at most one more batch follows at once.
        (0..1_000).for_each(|_| r.missed(1_000, 24_000));
        r.paid(10_000);
        assert!(r.pays(10_000));
        r.paid(10_000);
        assert!(!r.pays(1));
        assert!((20_000..=24_000).contains(&r.bar()), "{}", r.bar());
    }
}
