//! A token bucket, implemented as the generic cell rate algorithm (ITU-T I.371), which counts time instead of tokens.

use crate::units::Nanos;

/// The size of a bucket, as the time in which it is filled.
const BURST: Nanos = Nanos::from_millis(100);
const SECOND: u128 = 1_000_000_000;

/// A rate in bytes per second, and the time up to which it is used up.
///
/// In any time `t`, requests of at most `rate` · `t` + `rate` · 0.1 s bytes may begin. A request that is larger than the bucket may begin
/// only when the bucket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    bytes_per_s: u64,
    /// The time at which the rate will have covered everything taken so far (the theoretical arrival time of the algorithm).
    paid: Nanos,
}

impl Rate {
    /// A full bucket with a rate of `bytes_per_s`, at least 1.
    pub fn new(bytes_per_s: u64) -> Rate {
        Rate {
            bytes_per_s: bytes_per_s.max(1),
            paid: Nanos(0),
        }
    }

    /// The time that `bytes` take at the rate, rounded up.
    fn cost(&self, bytes: u64) -> Nanos {
        let ns = (u128::from(bytes) * SECOND).div_ceil(u128::from(self.bytes_per_s));
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX / 4))
    }

    /// The earliest time at which a request of `bytes` may begin.
    pub fn ready(&self, bytes: u64) -> Nanos {
        let cost = self.cost(bytes);
        (self.paid + cost).since(BURST.max(cost))
    }

    /// Counts a request of `bytes` that begins at `now`, whether the rate allows it or not.
    pub fn take(&mut self, now: Nanos, bytes: u64) {
        self.paid = self.paid.max(now) + self.cost(bytes);
    }

    /// The time for which the rate has not been used, at most 0.1 s. `None`: the rate is used up, so nothing more is due.
    pub fn overdue(&self, now: Nanos) -> Option<Nanos> {
        (self.paid <= now).then(|| now.since(self.paid).min(BURST))
    }

    /// Like [`Rate::take`], for a minimum rate: the unused part of the last 0.1 s can be used later.
    pub fn serve(&mut self, now: Nanos, bytes: u64) {
        self.paid = self.paid.max(now.since(BURST)) + self.cost(bytes);
    }

    /// Like [`Rate::serve`], for bytes that were served in addition to the minimum rate. They do not use up the rate beyond `now`.
    pub fn serve_extra(&mut self, now: Nanos, bytes: u64) {
        let before = self.paid.max(now);
        self.serve(now, bytes);
        self.paid = self.paid.min(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn no_window_has_more_than_rate_and_burst() {
        // Requests of mixed sizes, each of which begins as soon as the rate allows it. The test examines every window between two of these
        // times.
        for rate in [4096u64, 1_000_000, 50 << 20, 10_000_000_000] {
            let burst = rate / 10;
            let mut r = Rate::new(rate);
            let (mut now, mut random) = (MS(10), crate::random::SplitMix64::new(12345));
            let mut begun: alloc::vec::Vec<(Nanos, u64)> = alloc::vec::Vec::new();
            for i in 0..300 {
                let x = random.draw();
                let bytes = [512, 4096, 65_536, 1 << 20][(x >> 60) as usize % 4];
                if i % 37 == 0 {
                    now = now + MS(x >> 54);
                }
                now = now.max(r.ready(bytes));
                r.take(now, bytes);
                begun.push((now, bytes));
            }
            for (i, first) in begun.iter().enumerate() {
                let (mut sum, mut largest) = (0, 0);
                for (at, bytes) in &begun[i..] {
                    sum += bytes;
                    largest = largest.max(*bytes);
                    let time = u128::from(at.since(first.0).0);
                    let allowed = u128::from(rate) * time / SECOND;
                    let room = allowed + u128::from(burst.max(largest)) + 1;
                    assert!(u128::from(sum) <= room, "{rate}: {sum} in {time} ns");
                }
            }
        }
    }

    #[test]
    fn a_request_larger_than_the_bucket_waits_until_it_is_full() {
        let mut r = Rate::new(1 << 20);
        assert!(r.ready(32 << 20) <= MS(0));
        r.take(MS(0), 32 << 20);
        assert_eq!(r.ready(32 << 20), Nanos::from_secs(32));
        assert_eq!(r.ready(1), Nanos::from_secs(32) + Nanos(954) - BURST);
    }

    #[test]
    fn an_unused_minimum_rate_can_be_used_for_a_limited_time() {
        let mut r = Rate::new(1_000_000);
        assert_eq!(r.overdue(MS(5000)), Some(BURST));
        r.serve(MS(5000), 50_000);
        assert_eq!(r.overdue(MS(5000)), Some(MS(50)));
        r.serve(MS(5000), 100_000);
        assert_eq!(r.overdue(MS(5000)), None);
        assert_eq!(r.overdue(MS(5050)), Some(MS(0)));
        // The minimum rate is due again at once, even after a large number of additional bytes.
        r.serve_extra(MS(5050), 1 << 30);
        assert_eq!(r.overdue(MS(5051)), Some(MS(1)));
    }
}
