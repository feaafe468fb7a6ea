//! The measured time that a batch of cleans under load takes of the slow device.
//!
//! This time cannot be computed from the time of a write: an extent has several runs of dirty blocks, and a commit round makes the slow
//! device empty its write cache while requests wait. So the policy measures the time from the beginning of a batch to its end, and
//! subtracts the time that the slow device worked for requests meanwhile.

use crate::units::Nanos;

/// At least 1 / `MIN_OWN` of the measured time counts as the batch's own.
const MIN_OWN: u64 = 2;
/// A new batch replaces 1 / `SHARE` of the mean.
const SHARE: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batches {
    /// The batch in progress: its start, and the number of its copies.
    in_progress: Option<(Nanos, u64)>,
    /// Nanoseconds of device time for requests that arrived during the batch.
    request_time: u64,
    /// Mean nanoseconds for each copy in recent batches; 0: not known.
    per_copy: u64,
}

impl Batches {
    /// A batch of `copies` begins.
    pub fn begin(&mut self, now: Nanos, copies: u64) {
        self.in_progress = (copies > 0).then_some((now, copies));
        self.request_time = 0;
    }
    /// A request arrives that takes `ns` nanoseconds of the slow device.
    pub fn add_request_time(&mut self, ns: u64) {
        self.request_time = self.request_time.saturating_add(ns);
    }
    /// The batch has ended: each copy was cleaned, or its clean was refused or failed. Does nothing if no batch was begun here (one
    /// in idle time is not measured).
    pub fn end(&mut self, now: Nanos) {
        let Some((then, copies)) = self.in_progress.take() else {
            return;
        };
        let all = now.since(then).0;
        let own = all.saturating_sub(self.request_time).max(all / MIN_OWN);
        let each = (own / copies).max(1);
        self.per_copy = if self.per_copy == 0 {
            each
        } else {
            self.per_copy - self.per_copy / SHARE + each / SHARE
        };
    }
    /// Mean nanoseconds for each copy; `None`: no batch has ended yet.
    pub fn time_per_copy(&self) -> Option<u64> {
        (self.per_copy > 0).then_some(self.per_copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_measured_less_what_others_took() {
        let ms = Nanos::from_millis;
        let mut b = Batches::default();
        b.end(ms(5));
        assert_eq!(b.time_per_copy(), None);
        b.begin(ms(1000), 10);
        b.add_request_time(40_000_000);
        b.end(ms(1140));
        assert_eq!(b.time_per_copy(), Some(10_000_000));
        // No batch was begun, so these cleans belong to idle time and are not measured.
        b.end(ms(9000));
        assert_eq!(b.time_per_copy(), Some(10_000_000));
        b.begin(ms(10_000), 10);
        b.add_request_time(u64::MAX);
        b.add_request_time(1);
        b.end(ms(10_400));
        assert_eq!(b.time_per_copy(), Some(7_500_000 + 5_000_000));
        b.begin(ms(11_000), 0);
        b.end(ms(12_000));
        assert_eq!(b.time_per_copy(), Some(12_500_000));
    }
}
