//! Values of units that have no copy, in a table whose size follows from the flash: it forgets the units that were used longest ago.
//!
//! The table is set-associative. A set holds [`WAYS`] units in 64 bytes, one line of the processor's cache, in the order of their last use,
//! so that neither a search nor a replacement reads another line. A unit's set and its tag within the set together are its number, so a tag
//! needs 16 bits only. If the table has room for all units, each of them has an entry of its own and none is ever forgotten; otherwise the
//! sets of neighbours, and of units at regular distances, are spread.

use super::UnitId;
use crate::divide::Divisor;
use alloc::vec;
use alloc::vec::Vec;

/// Number of entries of a set.
const WAYS: usize = 6;
/// Largest tag. Tag 0 marks a free entry.
const TAG_MOST: u64 = u16::MAX as u64 - 1;
/// Number of entries that a table has even if there are fewer fast slots, as far as there are units: small volumes forget nothing.
pub const PAST_FLOOR: u32 = 1 << 20;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set<T> {
    /// The units, the last used one first.
    tags: [u16; WAYS],
    values: [T; WAYS],
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Past<T> {
    sets: Vec<Set<T>>,
    by: Divisor,
}

impl<T: Copy + Default> Past<T> {
    /// Number of entries of the table of a volume with `units` units and `fast` slots on the faster tiers: one for each of these slots, or
    /// `floor` if that is more, but not more than there are units.
    #[must_use]
    pub fn entries(units: u32, fast: u32, floor: u32) -> u32 {
        fast.max(floor).min(units)
    }
    /// Memory of a table with so many entries, in bytes.
    #[must_use]
    pub fn estimate(entries: u32) -> u64 {
        u64::from(entries).div_ceil(WAYS as u64) * size_of::<Set<T>>() as u64
    }
    /// An empty table with `entries` entries for units below `units`.
    #[must_use]
    pub fn new(units: u32, entries: u32) -> Past<T> {
        let sets = u64::from(entries).div_ceil(WAYS as u64).max(1);
        let sets = sets.max(u64::from(units).div_ceil(TAG_MOST));
        let free = Set {
            tags: [0; WAYS],
            values: [T::default(); WAYS],
        };
        Past {
            sets: vec![free; sets as usize],
            by: Divisor::new(sets),
        }
    }
    /// The set of a unit, and its tag there.
    #[inline]
    fn place(&self, e: UnitId) -> (usize, u16) {
        let (tag, low) = self.by.div_rem(e.0.into());
        // Each tag moves the units that have it by another distance. Two units of one tag never meet.
        let spread = (tag as u32).wrapping_mul(0x9e37_79b1);
        let by = (u64::from(spread) * self.by.get()) >> 32;
        let at = low + by;
        let over = if at >= self.by.get() {
            self.by.get()
        } else {
            0
        };
        ((at - over) as usize, tag as u16 + 1)
    }
    /// The value of a unit, if it has an entry.
    #[inline]
    pub fn get(&self, e: UnitId) -> Option<T> {
        let (set, tag) = self.place(e);
        let set = &self.sets[set];
        let i = set.tags.iter().position(|t| *t == tag)?;
        Some(set.values[i])
    }
    /// Sets the value of a unit, which is the last used one of its set from now on. If it had no entry and the set has no free one, the unit
    /// of the set that was used longest ago is forgotten.
    #[inline]
    pub fn put(&mut self, e: UnitId, value: T) {
        let (set, tag) = self.place(e);
        let set = &mut self.sets[set];
        let known = set.tags.iter().position(|t| *t == tag);
        let n = known.unwrap_or(WAYS - 1);
        set.tags[..=n].rotate_right(1);
        set.values[..=n].rotate_right(1);
        (set.tags[0], set.values[0]) = (tag, value);
    }
    /// Removes the entry of a unit. Returns its value, if it had one.
    pub fn take(&mut self, e: UnitId) -> Option<T> {
        let (set, tag) = self.place(e);
        let set = &mut self.sets[set];
        let i = set.tags.iter().position(|t| *t == tag)?;
        let value = set.values[i];
        set.tags[i..].rotate_left(1);
        set.values[i..].rotate_left(1);
        set.tags[WAYS - 1] = 0;
        Some(value)
    }
    /// Memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sets.len() * size_of::<Set<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use alloc::collections::BTreeMap;

    #[test]
    fn a_set_is_one_cache_line() {
        assert_eq!(size_of::<Set<(u32, u32)>>(), 64);
        // Also at the largest volume a tag has 16 bits.
        for (units, entries) in [(u32::MAX - 1, PAST_FLOOR), (1 << 27, PAST_FLOOR), (7, 3)] {
            let by = Past::<u16>::new(units, entries).by.get();
            assert!(u64::from(units) / by < TAG_MOST);
        }
    }

    #[test]
    fn a_table_for_all_units_forgets_none() {
        for units in [1, 5, 6, 7, 1000, 4099] {
            let mut past = Past::new(units, units);
            let mut random = SplitMix64::new(u64::from(units));
            let mut model = BTreeMap::new();
            for n in 0..20_000u32 {
                let e = random.below(units.into()) as u32;
                if random.below(3) == 0 {
                    assert_eq!(past.take(UnitId(e)), model.remove(&e));
                } else {
                    past.put(UnitId(e), n);
                    model.insert(e, n);
                }
                let e = random.below(units.into()) as u32;
                assert_eq!(past.get(UnitId(e)), model.get(&e).copied());
            }
        }
    }

    /// A full table forgets what was used longest ago, in each set, and nothing that was used lately.
    #[test]
    fn a_full_table_keeps_what_was_used_last() {
        let (units, entries) = (100_000, 6000);
        let mut past = Past::new(units, entries);
        (0..units).for_each(|e| past.put(UnitId(e), e));
        let kept = |from: u32, to: u32| (from..to).filter(|&e| past.get(UnitId(e)) == Some(e));
        assert_eq!(kept(0, units).count(), 6000, "every entry is used");
        assert!(kept(units - 3000, units).count() > 2990);
        assert_eq!(kept(0, units / 2).count(), 0);
        // Units at regular distances do not share few sets.
        for step in [64, 256, 1000, 1024] {
            let mut past = Past::new(units * 10, entries);
            let some = || (0..units * 10).step_by(step).take(3000);
            some().for_each(|e| past.put(UnitId(e), e));
            let left = some().filter(|&e| past.get(UnitId(e)).is_some()).count();
            let all = some().count();
            assert!(left * 3 > all * 2, "step {step}: {left} of {all}");
        }
        assert_eq!(Past::<u32>::estimate(entries), past.bytes() as u64);
    }
}
