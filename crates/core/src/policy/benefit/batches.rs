//! What a batch of cleans under load takes of the slow device, as seen.
//!
//! What cleaning takes cannot be told from what a write takes: an extent has several runs of dirty blocks, and a round makes the slow device
//! empty its cache of writes while requests wait. So the time from the begin of a batch to its end is measured, less what the slow device
//! did for others meanwhile.

use crate::units::Nanos;

/// Of the measured time, at least one part in so many is the batch's.
const LEAST: u64 = 2;
/// The part of the mean that a new batch replaces.
const SHARE: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batches {
    /// The batch under way: when it began, and its copies.
    began: Option<(Nanos, u64)>,
    /// Nanoseconds for requests that came meanwhile.
    beside: u64,
    /// Nanoseconds for each copy, of late; 0: not known.
    each: u64,
}

impl Batches {
    /// A batch of `copies` begins.
    pub fn begins(&mut self, now: Nanos, copies: u64) {
        self.began = (copies > 0).then_some((now, copies));
        self.beside = 0;
    }
    /// A request comes that the slow device works for so many nanoseconds.
    pub fn beside(&mut self, ns: u64) {
        self.beside = self.beside.saturating_add(ns);
    }
    /// All copies of the batch are clean, or were given up.
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
    /// Nanoseconds for a copy; `None`: no batch has ended.
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
        // Nobody began a batch: what settles now is that of the idle time.
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
