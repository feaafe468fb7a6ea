//! The guard of fetches: an account of what copies save and what it costs to make them, in nanoseconds of the slow device.
//!
//! A hit adds the time that it saved. A fetch subtracts the time of the bytes that it reads beyond the request, and of one write to flash.
//! A miss of a recently used extent adds the same as a hit: if the extent had been fetched then, the miss would be a hit. So the account
//! shows the value of fetching everything, also while little is fetched. While the balance is negative, only recently used extents are
//! copied. The balance is limited on both sides to a number of random reads of the slow device, so that the savings of one hour do not
//! pay for the losses of the next, and losses do not prevent copies for long.

use super::{Benefit, FAST};
use crate::policy::{Access, View};

/// The initial balance, in random reads of the slow device.
const START_BALANCE: i64 = 4;
/// The limits of the balance, in random reads of the slow device.
const MIN_BALANCE: i64 = -20;
const MAX_BALANCE: i64 = 80;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    balance: i64,
}

impl Account {
    /// The account at the start. `read`: nanoseconds of a random read of the slow device.
    pub fn open(read: u64) -> Account {
        Account {
            balance: START_BALANCE * bounded(read),
        }
    }
    /// A copy saved `ns` nanoseconds, or would have saved them if it had been made. `read`: as in [`Account::open`].
    pub fn earn(&mut self, ns: u64, read: u64) {
        self.balance = (self.balance + bounded(ns)).min(MAX_BALANCE * bounded(read));
    }
    /// To make a copy cost `ns` nanoseconds, or would have. `read`: as in [`Account::open`].
    pub fn pay(&mut self, ns: u64, read: u64) {
        self.balance = (self.balance - bounded(ns)).max(MIN_BALANCE * bounded(read));
    }
    /// Whether copies have cost more than they saved.
    pub fn is_negative(self) -> bool {
        self.balance < 0
    }
    /// The balance, nanoseconds.
    pub fn balance(self) -> i64 {
        self.balance
    }
}

impl Benefit {
    /// Nanoseconds of device time that the fast device saves on an access. Writes count like reads: a write that a disk's write cache
    /// accepts at once costs a seek later.
    pub(super) fn time_saved(view: &View<'_>) -> u64 {
        let (fast, slow) = (view.cost(FAST), view.cost(view.slowest()));
        let busy = slow.read.0.saturating_sub(fast.read.0);
        busy.max(Benefit::wait_saved(view)).max(1)
    }
    /// Nanoseconds that a request waits less for the fast device, if the slow one is hardly slower by device time. A drive that serves many
    /// requests at a time ends one every 10 µs while each of them waits for 300 µs; an idle one takes 50 µs for the only one that it has. Then
    /// only what requests wait tells which is the slower one. 0: the device times tell.
    fn wait_saved(view: &View<'_>) -> u64 {
        let (fast, slow) = (view.cost(FAST).read.0, view.cost(view.slowest()).read.0);
        if slow / 2 >= fast {
            return 0;
        }
        let waits = |t| view.latencies(t).read.0;
        waits(view.slowest()).saturating_sub(waits(FAST))
    }
    /// Nanoseconds of the slow device that a copy saves if it serves this access.
    pub(super) fn hit_saves(view: &View<'_>, access: &Access) -> u64 {
        if access.write {
            return Benefit::deferred_write_time(view).0;
        }
        Benefit::time_saved(view)
    }
    /// The worth of one access: the same with all weights, and with a wake-up if the slow device sleeps.
    pub(super) fn value_saved(&self, view: &View<'_>) -> u64 {
        let (fast, slow) = (view.cost(FAST), view.cost(view.slowest()));
        let w = &self.settings.weights;
        let wake = if self.avoids_wake_up(view) {
            w.wake(slow)
        } else {
            0
        };
        w.read(slow)
            .saturating_sub(w.read(fast))
            .max(w.time(Benefit::wait_saved(view)))
            .max(1)
            .saturating_add(wake)
    }
    /// Whether the slow device sleeps and its sleep has a value (energy has a weight).
    pub(super) fn avoids_wake_up(&self, view: &View<'_>) -> bool {
        self.settings.weights.values_sleep() && view.load(view.slowest()).asleep
    }
}

/// Limits a time to 18 minutes, so that sums cannot overflow.
fn bounded(ns: u64) -> i64 {
    ns.clamp(1, 1 << 40) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debt_begins_and_ends_within_bounds() {
        let read = 10_000_000;
        let mut a = Account::open(read);
        assert_eq!(a.balance(), 40_000_000);
        // Fetches of data that is not used again cost 250 µs each.
        let fetches = (0..).take_while(|_| {
            a.pay(250_000, read);
            !a.is_negative()
        });
        assert_eq!(fetches.count(), 160);
        (0..10_000).for_each(|_| a.pay(250_000, read));
        assert_eq!(a.balance(), -200_000_000);
        // Accesses to data that is used again make the balance positive.
        (0..20).for_each(|_| a.earn(read, read));
        assert!(!a.is_negative());
        (0..10_000).for_each(|_| a.earn(u64::MAX, read));
        assert_eq!(a.balance(), 800_000_000);
    }
}
