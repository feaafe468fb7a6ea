//! The score of an extent: the nanoseconds that the fast device saves on its accesses, added up and halved after every half-life, which is
//! a number of misses. A score has 8 bytes, and all values are integers.
//!
//! In a large cache volume ([`PerUnit`]) the scores of as many extents without a copy are known as flash has slots. An extent that is
//! forgotten there was used before as many misses, so its worth had fallen to a tenth.

use crate::divide::Divisor;
use crate::policy::{PerUnit, View};
use crate::volume::{Position, UnitId};

/// The unit of scores is 2^10 ns, about a microsecond, so that they fit into 32 bits.
const SHIFT: u32 = 10;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// For each extent: its worth at its last access, and the clock then.
    entries: PerUnit<(u32, u32)>,
    /// Number of misses so far.
    clock: u32,
    /// The half-life in misses, and twice that number, as divisors; `None`: worth never decreases.
    half_life: Option<(Divisor, Divisor)>,
}

impl Scores {
    /// For the volume of this view. `half_life`: as in [`Scores::set_half_life`].
    pub fn new(view: &View<'_>, half_life: u32) -> Scores {
        let mut scores = Scores {
            entries: PerUnit::new(view),
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
    /// An access to `e`, whose copy is in this position, on which the fast device saves `saves` nanoseconds.
    #[inline]
    pub fn touch(&mut self, e: UnitId, copy: Option<Position>, saves: u64) {
        let more = u32::try_from(saves >> SHIFT).unwrap_or(u32::MAX).max(1);
        let now = self.units_of(self.entry(e, copy)).saturating_add(more);
        self.entries.set(e, copy, (now, self.clock));
    }
    /// The present worth of `e`, whose copy is in this position, nanoseconds.
    #[inline]
    pub fn worth(&self, e: UnitId, copy: Option<Position>) -> u64 {
        self.worth_of(self.entry(e, copy))
    }
    /// The stored entry of `e`, for [`Scores::worth_of`].
    #[inline]
    pub fn entry(&self, e: UnitId, copy: Option<Position>) -> (u32, u32) {
        self.entries.get(e, copy)
    }
    /// The entries of several extents, with the positions of their copies.
    #[inline]
    pub fn entries(
        &self,
        extents: impl Iterator<Item = (UnitId, Position)>,
        entries: &mut [(u32, u32)],
    ) {
        self.entries.get_all(extents, entries);
    }
    /// `e` has a copy in this position from now on.
    pub fn copied(&mut self, e: UnitId, at: Position) {
        self.entries.copied(e, at);
    }
    /// The copy of `e` in this position is gone.
    pub fn uncopied(&mut self, e: UnitId, at: Position) {
        self.entries.uncopied(e, at);
    }
    /// [`Scores::worth`] of the extent with this entry.
    #[inline]
    pub fn worth_of(&self, entry: (u32, u32)) -> u64 {
        u64::from(self.units_of(entry)) << SHIFT
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
    /// `e`, which has no copy, was discarded: its score becomes 0.
    pub fn forget(&mut self, e: UnitId) {
        self.entries.forget(e);
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worth_halves_with_misses() {
        let mut s = Scores {
            entries: PerUnit::Units(alloc::vec![(0, 0); 2]),
            ..Scores::default()
        };
        s.set_half_life(10);
        let (a, b) = (UnitId(0), UnitId(1));
        s.touch(a, None, 8 << 20);
        assert_eq!((s.worth(a, None), s.worth(b, None)), (8 << 20, 0));
        (0..5).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(a, None), 6 << 20);
        (0..5).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(a, None), 4 << 20);
        s.touch(a, None, 1 << 20);
        assert_eq!(s.worth(a, None), 5 << 20);
        (0..320).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(a, None), 0);
        // Large sums do not overflow.
        (0..20).for_each(|_| s.touch(b, None, u64::MAX));
        assert_eq!(s.worth(b, None), u64::from(u32::MAX) << SHIFT);
        s.forget(b);
        assert_eq!(s.worth(b, None), 0);
        s.set_half_life(0);
        s.touch(b, None, 1 << 20);
        (0..320).for_each(|_| s.advance_clock());
        assert_eq!(s.worth(b, None), 1 << 20);
    }
}
