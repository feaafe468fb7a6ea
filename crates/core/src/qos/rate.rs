//! A token bucket as a value: the generic cell rate algorithm (ITU-T I.371), in time instead of tokens.

use crate::units::Nanos;

/// A bucket is never larger than what its rate gives in so long.
const BURST: Nanos = Nanos::from_millis(100);
const SECOND: u128 = 1_000_000_000;

/// Bytes a second, and how far they are used up.
///
/// In any time `t` it lets through no more than `rate` · `t` + `rate` · 0.1 s bytes, and one request that is larger than the bucket
/// begins only when the bucket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    bytes_per_s: u64,
    /// When everything that was taken so far will have been paid for (the theoretical arrival time of the algorithm).
    paid: Nanos,
}

impl Rate {
    /// A full bucket of that many bytes a second, at least 1.
    pub fn new(bytes_per_s: u64) -> Rate {
        Rate {
            bytes_per_s: bytes_per_s.max(1),
            paid: Nanos(0),
        }
    }

    /// The time in which the rate gives `bytes`, rounded up.
    fn cost(&self, bytes: u64) -> Nanos {
        let ns = (u128::from(bytes) * SECOND).div_ceil(u128::from(self.bytes_per_s));
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX / 4))
    }

    /// When `bytes` may begin at the earliest.
    pub fn ready(&self, bytes: u64) -> Nanos {
        let cost = self.cost(bytes);
        (self.paid + cost).since(BURST.max(cost))
    }

    /// They begin at `now`, allowed or not.
    pub fn take(&mut self, now: Nanos, bytes: u64) {
        self.paid = self.paid.max(now) + self.cost(bytes);
    }

    /// How long more could have been taken than was, at most 0.1 s; `None`: nothing is owed to whoever takes.
    pub fn overdue(&self, now: Nanos) -> Option<Nanos> {
        (self.paid <= now).then(|| now.since(self.paid).min(BURST))
    }

    /// As [`Rate::take`], for a rate that is owed instead of allowed: what was not taken can be caught up on for 0.1 s.
    pub fn serve(&mut self, now: Nanos, bytes: u64) {
        self.paid = self.paid.max(now.since(BURST)) + self.cost(bytes);
    }

    /// As [`Rate::serve`], for bytes that came beside what is owed: they never put it off beyond `now`.
    pub fn gift(&mut self, now: Nanos, bytes: u64) {
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
        // Any mix of sizes, begun as soon as allowed: every window between two beginnings is looked at.
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
    fn what_is_owed_is_caught_up_on_for_a_while_only() {
        let mut r = Rate::new(1_000_000);
        assert_eq!(r.overdue(MS(5000)), Some(BURST));
        r.serve(MS(5000), 50_000);
        assert_eq!(r.overdue(MS(5000)), Some(MS(50)));
        r.serve(MS(5000), 100_000);
        assert_eq!(r.overdue(MS(5000)), None);
        assert_eq!(r.overdue(MS(5050)), Some(MS(0)));
        // However much came beside it, it is owed again at once.
        r.gift(MS(5050), 1 << 30);
        assert_eq!(r.overdue(MS(5051)), Some(MS(1)));
    }
}
