//! The lengths of recent idle times (gaps) of the slow device.
//!
//! If a gap ends during a batch of cleans, a request waits. So the policy needs the probability that a gap which has lasted for a certain
//! time will last for the duration of a batch. It is estimated from a histogram of earlier gaps, with two counts for each octave of their
//! length. Old gaps have less weight.

use crate::units::Nanos;

/// Shorter gaps do not count, nanoseconds.
const MIN_GAP: u64 = 4_000_000;
/// Number of counts, two for each octave of length from [`MIN_GAP`] on. The last one counts all gaps from 196 s on.
const COUNTS: usize = 32;
/// When the counts add up to this number, all are halved.
const MAX_TOTAL: u32 = 256;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    counts: [u16; COUNTS],
    total: u32,
}

impl Gaps {
    fn bucket(length: Nanos) -> usize {
        let units = (length.0 / (MIN_GAP / 2)).max(2);
        let octave = units.ilog2();
        // The upper half of an octave has its own count.
        let upper = units >> (octave - 1) & 1;
        let place = 2 * (octave as usize - 1) + upper as usize;
        place.min(COUNTS - 1)
    }
    /// A gap of this length has ended.
    pub fn record(&mut self, length: Nanos) {
        if length.0 < MIN_GAP {
            return;
        }
        if self.total >= MAX_TOTAL {
            self.counts.iter_mut().for_each(|n| *n /= 2);
            self.total = self.counts.iter().map(|n| u32::from(*n)).sum();
        }
        self.counts[Gaps::bucket(length)] += 1;
        self.total += 1;
    }
    /// Number of gaps that lasted at least about as long as `length`.
    fn count_at_least(&self, length: Nanos) -> u32 {
        self.counts[Gaps::bucket(length)..]
            .iter()
            .map(|n| u32::from(*n))
            .sum()
    }
    /// Of 256 gaps that lasted at least `so_far`, the number that lasted at least `more` beyond that. `None`: fewer than four lasted
    /// `so_far`, which is too few for an estimate.
    pub fn survival(&self, so_far: Nanos, more: Nanos) -> Option<u32> {
        let all = self.count_at_least(so_far);
        // The present gap may be longer than all earlier ones.
        (all >= 4).then(|| 256 * self.count_at_least(so_far + more) / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_that_a_gap_goes_on() {
        let mut g = Gaps::default();
        let ms = Nanos::from_millis;
        assert_eq!(g.survival(ms(50), ms(50)), None);
        // Half of the gaps last 20 ms, half of them one second; gaps of 1 ms do not count.
        for _ in 0..50 {
            g.record(ms(20));
            g.record(ms(1000));
            g.record(ms(1));
        }
        assert_eq!(g.survival(ms(4), ms(2)), Some(256));
        assert_eq!(g.survival(ms(4), ms(60)), Some(128));
        assert_eq!(g.survival(ms(60), ms(100)), Some(256));
        assert_eq!(g.survival(ms(60), ms(2000)), Some(0));
        assert_eq!(g.survival(ms(4000), ms(1)), None);
        // Neither the length nor the number of gaps overflows.
        (0..100_000).for_each(|_| g.record(Nanos(u64::MAX / 2)));
        assert_eq!(g.survival(ms(60), ms(2000)), Some(256));
    }
}
