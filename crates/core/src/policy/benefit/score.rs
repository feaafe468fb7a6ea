//! The score of an extent: the nanoseconds that the fast device saves on its accesses, added up and halved after every half-life, which is
//! a number of misses. A score has 8 bytes, and all values are integers.

use crate::divide::Divisor;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// The unit of scores is 2^10 ns, about a microsecond, so that they fit into 32 bits.
const SHIFT: u32 = 10;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// For each extent: its worth at its last access, and the clock then.
    entries: Vec<(u32, u32)>,
    /// Number of misses so far.
    clock: u32,
    /// The half-life in misses, and twice that number, as divisors; `None`: worth never decreases.
    half_life: Option<(Divisor, Divisor)>,
}

impl Scores {
    /// For a volume of `extents` extents. `half_life`: as in [`Scores::set_half_life`].
    pub fn new(extents: u32, half_life: u32) -> Scores {
        let mut scores = Scores {
            entries: vec![(0, 0); extents as usize],
            ..Scores::default()
        };
        scores.set_half_life(half_life);
        scores
    }
    /// Sets the number of misses after which worth has halved; 0: it never decreases.
    pub fn set_half_life(&mut self, misses: u32) {
        let misses = u64::from(misses);
        self.half_life = (misses > 0).then(|| (Divisor::new(misses), Divisor::new(2 * misses)));
    }
    /// The slow device served an access: advances the clock.
    pub fn advance_clock(&mut self) {
        self.clock = self.clock.wrapping_add(1);
    }
    /// Number of misses so far; it wraps.
    pub fn clock(&self) -> u32 {
        self.clock
    }
    /// An access to `e`, on which the fast device saves `saves` nanoseconds.
    pub fn touch(&mut self, e: UnitId, saves: u64) {
        let more = u32::try_from(saves >> SHIFT).unwrap_or(u32::MAX).max(1);
        let now = self.units(e).saturating_add(more);
        self.entries[e.0 as usize] = (now, self.clock);
    }
    /// The present worth of `e`, nanoseconds.
    pub fn worth(&self, e: UnitId) -> u64 {
        u64::from(self.units(e)) << SHIFT
    }
    /// The stored entry of `e`, for [`Scores::worth_of`]. If a caller reads the entries of several extents before it computes their worth,
    /// the cache misses overlap.
    #[inline]
    pub fn entry(&self, e: UnitId) -> (u32, u32) {
        self.entries[e.0 as usize]
    }
    /// [`Scores::worth`] of the extent with this entry.
    #[inline]
    pub fn worth_of(&self, entry: (u32, u32)) -> u64 {
        u64::from(self.units_of(entry)) << SHIFT
    }
    fn units(&self, e: UnitId) -> u32 {
        self.units_of(self.entry(e))
    }
    #[inline]
    fn units_of(&self, (units, then): (u32, u32)) -> u32 {
        let Some((half_life, twice)) = self.half_life else {
            return units;
        };
        let age = self.clock.wrapping_sub(then);
        let (halves, rest) = half_life.div_rem(age.into());
        if halves >= 32 {
            return 0;
        }
        let units = units >> halves;
        // Between two halvings worth decreases linearly.
        let (part, _) = twice.div_rem(u64::from(units) * rest);
        units - part as u32
    }
    /// `e` was discarded: its score becomes 0.
    pub fn forget(&mut self, e: UnitId) {
        self.entries[e.0 as usize] = (0, self.clock);
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u32, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worth_halves_with_misses() {
        let mut s = Scores::new(2, 10);
        let (a, b) = (UnitId(0), UnitId(1));
        s.touch(a, 8 << 20);
        assert_eq!((s.worth(a), s.worth(b)), (8 << 20, 0));
        (0..5).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(a), 6 << 20);
        (0..5).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(a), 4 << 20);
        s.touch(a, 1 << 20);
        assert_eq!(s.worth(a), 5 << 20);
        (0..320).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(a), 0);
        // Large sums do not overflow.
        (0..20).for_each(|_| s.touch(b, u64::MAX));
        assert_eq!(s.worth(b), u64::from(u32::MAX) << SHIFT);
        s.forget(b);
        assert_eq!(s.worth(b), 0);
        s.set_half_life(0);
        s.touch(b, 1 << 20);
        (0..320).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(b), 1 << 20);
    }
}
