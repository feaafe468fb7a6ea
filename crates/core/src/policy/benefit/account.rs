//! The guard: an account of what copies save and what making them costs, in nanoseconds of the slow device.
//!
//! A hit earns what it saved. A fetch pays for the bytes that it reads beyond those asked for. A miss of an extent that was used lately
//! counts as a hit would: had it been fetched then, this would have been one. So the account says what fetching everything would be
//! worth, also while little is fetched. In debt, only extents that were used lately are copied. The balance stays between bounds,
//! in random reads of the slow device, so that a good hour does not pay for a bad one, nor a bad one spoil the next.

/// Random reads of the slow device that the account begins with, and between how many it stays.
const START: i64 = 4;
const LEAST: i64 = -20;
const MOST: i64 = 80;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    balance: i64,
}

impl Account {
    /// As it begins; `read`: nanoseconds of a random read of the slow device.
    pub fn open(read: u64) -> Account {
        Account {
            balance: START * bounded(read),
        }
    }
    /// Copies saved `ns` nanoseconds, or would have.
    pub fn earn(&mut self, ns: u64, read: u64) {
        self.balance = (self.balance + bounded(ns)).min(MOST * bounded(read));
    }
    /// Making one cost `ns` nanoseconds, or would have.
    pub fn pay(&mut self, ns: u64, read: u64) {
        self.balance = (self.balance - bounded(ns)).max(LEAST * bounded(read));
    }
    /// Copies have cost more than they saved.
    pub fn is_in_debt(self) -> bool {
        self.balance < 0
    }
    /// Nanoseconds.
    pub fn balance(self) -> i64 {
        self.balance
    }
}

/// Eighteen minutes at most: nothing overflows.
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
        // Fetches of which nothing is used again: 250 µs each.
        let fetches = (0..).take_while(|_| {
            a.pay(250_000, read);
            !a.is_in_debt()
        });
        assert_eq!(fetches.count(), 160);
        (0..10_000).for_each(|_| a.pay(250_000, read));
        assert_eq!(a.balance(), -200_000_000);
        // What is used again takes it out of debt.
        (0..20).for_each(|_| a.earn(read, read));
        assert!(!a.is_in_debt());
        (0..10_000).for_each(|_| a.earn(u64::MAX, read));
        assert_eq!(a.balance(), 800_000_000);
    }
}
