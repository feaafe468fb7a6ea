//! How long the slow device is left alone: lengths of the gaps between requests to it, lately.
//!
//! Cleaning in a gap that ends meanwhile keeps a request waiting, so what counts is the chance that a gap which has lasted so long
//! lasts so much longer. It is taken from the gaps that came before, counted by length, two counts an octave; old ones count less.

use crate::units::Nanos;

/// Gaps shorter than this are none.
const LEAST: u64 = 4_000_000;
/// Two an octave from [`LEAST`]: the last holds all from three days on.
const COUNTS: usize = 32;
/// All counts are halved when there are so many gaps.
const KEPT: u32 = 256;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    of: [u16; COUNTS],
    all: u32,
}

impl Gaps {
    fn place(length: Nanos) -> usize {
        let units = (length.0 / (LEAST / 2)).max(2);
        let octave = units.ilog2();
        // The upper half of an octave is a count of its own.
        let upper = units >> (octave - 1) & 1;
        let place = 2 * (octave as usize - 1) + upper as usize;
        place.min(COUNTS - 1)
    }
    /// A gap of that length has ended.
    pub fn ended(&mut self, length: Nanos) {
        if length.0 < LEAST {
            return;
        }
        if self.all >= KEPT {
            self.of.iter_mut().for_each(|n| *n /= 2);
            self.all = self.of.iter().map(|n| u32::from(*n)).sum();
        }
        self.of[Gaps::place(length)] += 1;
        self.all += 1;
    }
    /// Gaps that lasted that long.
    fn lasted(&self, length: Nanos) -> u32 {
        self.of[Gaps::place(length)..]
            .iter()
            .map(|n| u32::from(*n))
            .sum()
    }
    /// Of gaps that lasted `so_far`, how many of 256 lasted `more` beyond that. `None`: too few did to tell.
    pub fn chance(&self, so_far: Nanos, more: Nanos) -> Option<u32> {
        let all = self.lasted(so_far);
        // The gap under way may be longer than all before it.
        (all >= 4).then(|| 256 * self.lasted(so_far + more) / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_that_a_gap_goes_on() {
        let mut g = Gaps::default();
        let ms = Nanos::from_millis;
        assert_eq!(g.chance(ms(50), ms(50)), None);
        // Half of them 20 ms, half of them a second.
        for _ in 0..50 {
            g.ended(ms(20));
            g.ended(ms(1000));
            g.ended(ms(1));
        }
        assert_eq!(g.chance(ms(4), ms(2)), Some(256));
        assert_eq!(g.chance(ms(4), ms(60)), Some(128));
        assert_eq!(g.chance(ms(60), ms(100)), Some(256));
        assert_eq!(g.chance(ms(60), ms(2000)), Some(0));
        assert_eq!(g.chance(ms(4000), ms(1)), None);
        // However long, however many.
        (0..100_000).for_each(|_| g.ended(Nanos(u64::MAX / 2)));
        assert_eq!(g.chance(ms(60), ms(2000)), Some(256));
    }
}
