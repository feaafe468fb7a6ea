//! A small hash table with extents as keys, for the few extents on which some work is in progress.
//!
//! Open addressing, so that a look-up costs one or two loads however many entries there are, and nothing is allocated while the table
//! is large enough.

use crate::units::ExtentId;
use alloc::vec;
use alloc::vec::Vec;

/// Marks an empty entry. It is above every extent number, because a geometry has at most 2³² − 1 extents.
const NONE: u32 = u32::MAX;

/// Values by extent.
#[derive(Clone, Debug)]
pub(super) struct ByExtent<T> {
    table: Vec<(u32, T)>,
    used: usize,
}

impl<T: Copy + Default> ByExtent<T> {
    /// Room for `n` extents before the table has to grow.
    pub(super) fn new(n: usize) -> ByExtent<T> {
        ByExtent {
            table: vec![(NONE, T::default()); (n * 2).next_power_of_two().max(16)],
            used: 0,
        }
    }
    /// The first position that an extent may have. The high bits of the product depend on all bits of the number, so extents at regular
    /// distances spread as well as neighbours.
    fn home(&self, e: u32) -> usize {
        let bits = self.table.len().trailing_zeros();
        (e.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize
    }
    /// The position of an extent's entry, or the free one in which it would be.
    fn find(&self, e: ExtentId) -> usize {
        let mask = self.table.len() - 1;
        let mut i = self.home(e.0);
        while self.table[i].0 != e.0 && self.table[i].0 != NONE {
            i = (i + 1) & mask;
        }
        i
    }
    /// The value of an extent, if it has an entry.
    #[inline]
    pub(super) fn get(&self, e: ExtentId) -> Option<T> {
        if self.used == 0 {
            return None;
        }
        let (key, value) = self.table[self.find(e)];
        (key != NONE).then_some(value)
    }
    /// The value of an extent. An extent without an entry gets one with the default value.
    pub(super) fn entry(&mut self, e: ExtentId) -> &mut T {
        if (self.used + 1) * 2 > self.table.len() {
            self.grow();
        }
        let i = self.find(e);
        if self.table[i].0 == NONE {
            self.table[i] = (e.0, T::default());
            self.used += 1;
        }
        &mut self.table[i].1
    }
    fn grow(&mut self) {
        let larger = vec![(NONE, T::default()); self.table.len() * 2];
        for entry in core::mem::replace(&mut self.table, larger) {
            if entry.0 != NONE {
                let i = self.find(ExtentId(entry.0));
                self.table[i] = entry;
            }
        }
    }
    /// Removes an extent's entry, if it has one. The entries behind it move up, so that none is lost behind the gap.
    pub(super) fn remove(&mut self, e: ExtentId) -> Option<T> {
        let mask = self.table.len() - 1;
        let mut hole = self.find(e);
        let (key, value) = self.table[hole];
        if key == NONE {
            return None;
        }
        self.used -= 1;
        let mut i = (hole + 1) & mask;
        while self.table[i].0 != NONE {
            let home = self.home(self.table[i].0);
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.table[hole] = self.table[i];
                hole = i;
            }
            i = (i + 1) & mask;
        }
        self.table[hole].0 = NONE;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use alloc::collections::BTreeMap;

    /// The table and a `BTreeMap` agree for neighbouring extents, for extents at regular distances and for the highest numbers, also when
    /// the table grows.
    #[test]
    fn agrees_with_a_map() {
        for step in [1u32, 64, 1 << 20] {
            let mut random = SplitMix64::new(u64::from(step));
            let (mut table, mut map) = (ByExtent::new(4), BTreeMap::new());
            for turn in 0..20_000u32 {
                let e = ExtentId((random.below(300) as u32).wrapping_mul(step));
                let e = if random.below(50) == 0 {
                    ExtentId(NONE - 1)
                } else {
                    e
                };
                match random.below(3) {
                    0 => {
                        *table.entry(e) = turn;
                        map.insert(e, turn);
                    }
                    1 => assert_eq!(table.remove(e), map.remove(&e)),
                    _ => {}
                }
                let probe = ExtentId((random.below(300) as u32).wrapping_mul(step));
                assert_eq!(table.get(probe), map.get(&probe).copied());
                assert_eq!(table.get(e), map.get(&e).copied());
                assert_eq!(table.used, map.len());
            }
        }
    }
}
