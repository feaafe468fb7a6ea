//! The measured time that a batch of cleans under load takes of the slow device.
//!
//! This time cannot be computed from the time of a write: an extent has several runs of dirty blocks, and a commit round makes the slow
//! device empty its write cache while requests wait. So the policy measures the time from the beginning of a batch to its end, and
//! subtracts the time that the slow device worked for requests meanwhile.
//!
//! A batch is one long piece of work. If requests arrive at their own times, many of them wait for all of it, although each miss that the
//! batch prevents would delay few requests. So the queue is measured, too: if more requests waited during a batch than usually do, its
//! time counts by that factor more. In a closed loop the number of waiting requests is always the same, so the factor is 1.

use crate::units::Nanos;

/// At least 1 / `MIN_OWN` of the measured time counts as the batch's own.
const MIN_OWN: u64 = 2;
/// A new batch replaces 1 / `SHARE` of the mean.
const SHARE: u64 = 4;
/// A new request replaces 1 / `QUEUE_SHARE` of the mean queue.
const QUEUE_SHARE: u64 = 64;
/// Maximum of the factor by which a queue makes a batch more expensive.
const MAX_FACTOR: u128 = 256;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batches {
    /// The batch in progress: its start, and the number of its copies.
    in_progress: Option<(Nanos, u64)>,
    /// Nanoseconds of device time for requests that arrived during the batch.
    request_time: u64,
    /// Mean nanoseconds for each copy in recent batches; 0: not known.
    per_copy: u64,
    /// Nanoseconds for which requests waited for the slow device during the batch, added up until the time `until`.
    waited: u64,
    until: Nanos,
    /// Mean number of requests that waited when one arrived outside of batches, in 256ths.
    usual_queue: u64,
}

impl Batches {
    /// A batch of `copies` begins.
    pub fn begin(&mut self, now: Nanos, copies: u64) {
        self.in_progress = (copies > 0).then_some((now, copies));
        self.request_time = 0;
        (self.waited, self.until) = (0, now);
    }
    /// The slow device gets a request, or the batch ends; `waiting` requests wait for that device.
    pub fn note_queue(&mut self, now: Nanos, waiting: u32) {
        let waiting = u64::from(waiting);
        if self.in_progress.is_none() {
            self.usual_queue =
                self.usual_queue - self.usual_queue / QUEUE_SHARE + 256 * waiting / QUEUE_SHARE;
            return;
        }
        let more = now.since(self.until).0.saturating_mul(waiting);
        self.waited = self.waited.saturating_add(more);
        self.until = now;
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
        let each = (own / copies).max(1).saturating_mul(self.queue_factor(all));
        self.per_copy = if self.per_copy == 0 {
            each
        } else {
            self.per_copy - self.per_copy / SHARE + each / SHARE
        };
    }
    /// The mean number of requests that waited during a batch of `all` nanoseconds, as a multiple of the usual number plus one, rounded
    /// down; at least 1. (The one is the request that a miss itself delays.)
    fn queue_factor(&self, all: u64) -> u64 {
        let usual = u128::from(all.max(1)) * u128::from(256 + self.usual_queue);
        (u128::from(self.waited) * 256 / usual).clamp(1, MAX_FACTOR) as u64
    }
    /// Mean nanoseconds for each copy, with the queue that it causes; `None`: no batch has ended yet.
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

    #[test]
    fn a_batch_that_makes_a_queue_costs_more() {
        let ms = Nanos::from_millis;
        let measured = |usual: u32, waiting: u32| {
            let mut b = Batches::default();
            (0..1000).for_each(|_| b.note_queue(ms(0), usual));
            b.begin(ms(1000), 10);
            (1..=10).for_each(|i| b.note_queue(ms(1000 + 10 * i), waiting));
            b.end(ms(1100));
            b.time_per_copy()
        };
        // 10 copies in 100 ms. Nobody waits; as many wait as usual, as in a closed loop; 40 wait where hardly anyone did.
        assert_eq!(measured(0, 0), Some(10_000_000));
        assert_eq!(measured(32, 32), Some(10_000_000));
        assert_eq!(measured(0, 40), Some(400_000_000));
        assert_eq!(measured(0, u32::MAX), Some(2_560_000_000));
        assert!(measured(3, 40) > Some(90_000_000));
    }
}
