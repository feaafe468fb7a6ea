//! What an extent was worth lately: nanoseconds that its accesses would have cost the slow device beyond the fast one, halved
//! with every so many misses. 8 bytes an extent; integers only.

use crate::divide::Divisor;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// Scores are kept in units of 2^10 ns, about a microsecond, so that they fit into 32 bits.
const SHIFT: u32 = 10;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// By extent: worth, and the clock when that was right.
    of: Vec<(u32, u32)>,
    /// Misses so far.
    clock: u32,
    /// Misses in which worth halves, and twice as many; `None`: it never does.
    half_life: Option<(Divisor, Divisor)>,
}

impl Scores {
    /// For that many extents.
    pub fn new(extents: u32, half_life: u32) -> Scores {
        let mut scores = Scores {
            of: vec![(0, 0); extents as usize],
            ..Scores::default()
        };
        scores.set_half_life(half_life);
        scores
    }
    /// Worth halves in so many misses from now on, or never (0).
    pub fn set_half_life(&mut self, misses: u32) {
        let misses = u64::from(misses);
        self.half_life = (misses > 0).then(|| (Divisor::new(misses), Divisor::new(2 * misses)));
    }
    /// An access was served by the slow device.
    pub fn missed(&mut self) {
        self.clock = self.clock.wrapping_add(1);
    }
    /// An access to `e` came, which the fast device serves `saves` nanoseconds sooner.
    pub fn touch(&mut self, e: UnitId, saves: u64) {
        let more = u32::try_from(saves >> SHIFT).unwrap_or(u32::MAX).max(1);
        let now = self.units(e).saturating_add(more);
        self.of[e.0 as usize] = (now, self.clock);
    }
    /// Nanoseconds that accesses of `e` cost lately.
    pub fn worth(&self, e: UnitId) -> u64 {
        u64::from(self.units(e)) << SHIFT
    }
    /// What is kept of `e`, for [`Scores::worth_of`]. Reading the entries of several extents before their worth lets the cache misses overlap.
    #[inline]
    pub fn entry(&self, e: UnitId) -> (u32, u32) {
        self.of[e.0 as usize]
    }
    /// [`Scores::worth`] of the extent with that entry.
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
        // Between two halvings in a straight line.
        let (part, _) = twice.div_rem(u64::from(units) * rest);
        units - part as u32
    }
    /// `e` holds nothing any more.
    pub fn forget(&mut self, e: UnitId) {
        self.of[e.0 as usize] = (0, self.clock);
    }
    /// Memory, bytes.
    pub fn bytes(&self) -> usize {
        self.of.capacity() * size_of::<(u32, u32)>()
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
        (0..5).for_each(|_| s.missed());
        assert_eq!(s.worth(a), 6 << 20);
        (0..5).for_each(|_| s.missed());
        assert_eq!(s.worth(a), 4 << 20);
        s.touch(a, 1 << 20);
        assert_eq!(s.worth(a), 5 << 20);
        (0..320).for_each(|_| s.missed());
        assert_eq!(s.worth(a), 0);
        // However often: no overflow.
        (0..20).for_each(|_| s.touch(b, u64::MAX));
        assert_eq!(s.worth(b), u64::from(u32::MAX) << SHIFT);
        s.forget(b);
        assert_eq!(s.worth(b), 0);
        s.set_half_life(0);
        s.touch(b, 1 << 20);
        (0..320).for_each(|_| s.missed());
        assert_eq!(s.worth(b), 1 << 20);
    }
}
