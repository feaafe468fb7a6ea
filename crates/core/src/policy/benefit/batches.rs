//! The measured time that a batch of cleans under load takes of the slow device.
//!
//! This time cannot be computed from the time of a write: an extent has several runs of dirty blocks, and a commit round makes the slow
//! device empty its write cache while requests wait. So the policy measures the time from the beginning of a batch to its end, and
//! subtracts the time that the slow device worked for requests meanwhile.

use crate::units::Nanos;

/// At least 1 / `LEAST` of the measured time counts as the batch's own.
const LEAST: u64 = 2;
/// A new batch replaces 1 / `SHARE` of the mean.
const SHARE: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batches {
    /// The batch in progress: its start, and the number of its copies.
    began: Option<(Nanos, u64)>,
    /// Nanoseconds of device time for requests that arrived during the batch.
    beside: u64,
    /// Mean nanoseconds for each copy in recent batches; 0: not known.
    each: u64,
}

impl Batches {
    /// A batch of `copies` begins.
    pub fn begins(&mut self, now: Nanos, copies: u64) {
        self.began = (copies > 0).then_some((now, copies));
        self.beside = 0;
    }
    /// A request arrives that takes `ns` nanoseconds of the slow device.
    pub fn beside(&mut self, ns: u64) {
        self.beside = self.beside.saturating_add(ns);
    }
    /// The batch has ended: each copy was cleaned, or its clean was refused or failed. Does nothing if no batch was begun here (one
    /// in idle time is not measured).
    pub fn ended(&mut self, now: Nanos) {
        let Some((then, copies)) = self.began.take() else {
            return;
        };
        let all = now.since(then).0;
        let own = all.saturating_sub(self.beside).max(all / LEAST);
        let each = (own / copies).max(1);
        self.each = if self.each == 0 {
            each
        } else {
            self.each - self.each / SHARE + each / SHARE
        };
    }
    /// Mean nanoseconds for each copy; `None`: no batch has ended yet.
    pub fn each(&self) -> Option<u64> {
        (self.each > 0).then_some(self.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_measured_less_what_others_took() {
        let ms = Nanos::from_millis;
        let mut b = Batches::default();
        b.ended(ms(5));
        assert_eq!(b.each(), None);
        b.begins(ms(1000), 10);
        b.beside(40_000_000);
        b.ended(ms(1140));
        assert_eq!(b.each(), Some(10_000_000));
        // No batch was begun, so these cleans belong to idle time and are not measured.
        b.ended(ms(9000));
        assert_eq!(b.each(), Some(10_000_000));
        b.begins(ms(10_000), 10);
        b.beside(u64::MAX);
        b.beside(1);
        b.ended(ms(10_400));
        assert_eq!(b.each(), Some(7_500_000 + 5_000_000));
        b.begins(ms(11_000), 0);
        b.ended(ms(12_000));
        assert_eq!(b.each(), Some(12_500_000));
    }
}
