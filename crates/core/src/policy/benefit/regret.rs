//! The time that is lost because flash is full of dirty data, and when this loss justifies cleaning under load.
//!
//! Normally, cleaning waits until the slow device is idle. If it is never idle, as in a closed loop, all copies become dirty in the end, and
//! no new copies can be made. So the policy adds up what this costs: a miss of a recently used extent would have been a hit if a dirty
//! copy of lower worth had been clean. As soon as the loss equals the time that a batch of cleans takes of the slow device, a batch is
//! written, even if the device is busy. The total cost is at most twice that of a policy which knows from the beginning whether cleaning
//! pays (the ski rental problem: Karlin, Manasse, Rudolph, Sleator, Algorithmica 3, 1988). Both sides are device time, and
//! requests in the queue wait for both alike, so the length of the queue is counted on neither side.

/// The loss that is kept is at most the cost of this number of batches.
const MAX_BATCHES: u64 = 2;
/// A new value replaces 1 / `SHARE` of the mean.
const SHARE: u64 = 16;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regret {
    /// The loss, nanoseconds of the slow device.
    lost: u64,
    /// The mean worth of the extents that were missed, nanoseconds.
    worth: u64,
}

impl Regret {
    /// A miss lost `lost` nanoseconds; its extent has this `worth`.
    pub fn add_loss(&mut self, lost: u64, worth: u64) {
        self.lost = self.lost.saturating_add(lost);
        self.worth = if self.worth == 0 {
            worth
        } else {
            self.worth - self.worth / SHARE + worth / SHARE
        };
    }
    /// Whether there is any loss; if not, no batch pays.
    #[inline]
    pub fn has_loss(&self) -> bool {
        self.lost > 0
    }
    /// Whether a batch that takes `cost` nanoseconds pays.
    pub fn justifies(&self, cost: u64) -> bool {
        self.lost >= cost.max(1)
    }
    /// A batch began: subtracts its cost.
    pub fn subtract(&mut self, cost: u64) {
        self.lost = self
            .lost
            .min(cost.saturating_mul(MAX_BATCHES))
            .saturating_sub(cost);
    }
    /// The bound of worth for copies to be cleaned. Copies that are worth more would not be evicted for the extents that are missed.
    pub fn max_worth(&self) -> u64 {
        self.worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_done_when_as_much_is_lost() {
        let mut r = Regret::default();
        assert!(!r.justifies(0));
        (0..9).for_each(|_| r.add_loss(1_000, 8_000));
        assert!(!r.justifies(10_000));
        r.add_loss(1_000, 8_000);
        assert!(r.justifies(10_000) && r.max_worth() == 8_000);
        r.subtract(10_000);
        assert!(!r.justifies(1));
        // After a large loss, at most one more batch follows immediately.
        (0..1_000).for_each(|_| r.add_loss(1_000, 24_000));
        r.subtract(10_000);
        assert!(r.justifies(10_000));
        r.subtract(10_000);
        assert!(!r.justifies(1));
        assert!(
            (20_000..=24_000).contains(&r.max_worth()),
            "{}",
            r.max_worth()
        );
    }
}
