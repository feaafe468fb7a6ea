//! A small hash table with numbers of extents or slots as keys, for the few of them on which some work is in progress.
//!
//! Open addressing, so that a look-up costs one or two loads however many entries there are, and nothing is allocated while the table
//! is large enough.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Marks an empty entry. It is above every number, because a geometry has at most 2³² − 1 extents and as many slots.
const NONE: u32 = u32::MAX;

/// Values by number.
#[derive(Clone)]
pub(crate) struct ByNumber<T> {
    table: Vec<(u32, T)>,
    used: usize,
}

impl<T: fmt::Debug> fmt::Debug for ByNumber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.table.iter().filter(|e| e.0 != NONE);
        f.debug_map().entries(used.map(|(n, v)| (n, v))).finish()
    }
}

impl<T: Copy + Default> ByNumber<T> {
    /// Room for `n` numbers before the table has to grow.
    pub(crate) fn new(n: usize) -> ByNumber<T> {
        ByNumber {
            table: vec![(NONE, T::default()); (n * 2).next_power_of_two().max(16)],
            used: 0,
        }
    }
    /// The first position that a number may have. The high bits of the product depend on all bits of the number, so numbers at regular
    /// distances spread as well as neighbours.
    fn home(&self, n: u32) -> usize {
        let bits = self.table.len().trailing_zeros();
        (n.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize
    }
    /// The position of a number's entry, or the free one in which it would be.
    fn find(&self, n: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut i = self.home(n);
        while self.table[i].0 != n && self.table[i].0 != NONE {
            i = (i + 1) & mask;
        }
        i
    }
    /// Whether no number has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }
    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.table.len() * size_of::<(u32, T)>()
    }
    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.table.fill((NONE, T::default()));
        self.used = 0;
    }
    /// The value of a number, if it has an entry.
    #[inline]
    pub(crate) fn get(&self, n: u32) -> Option<T> {
        if self.used == 0 {
            return None;
        }
        let (key, value) = self.table[self.find(n)];
        (key != NONE).then_some(value)
    }
    /// The value of a number. A number without an entry gets one with the default value.
    pub(crate) fn entry(&mut self, n: u32) -> &mut T {
        if (self.used + 1) * 2 > self.table.len() {
            self.grow();
        }
        let i = self.find(n);
        if self.table[i].0 == NONE {
            self.table[i] = (n, T::default());
            self.used += 1;
        }
        &mut self.table[i].1
    }
    fn grow(&mut self) {
        let larger = vec![(NONE, T::default()); self.table.len() * 2];
        for entry in core::mem::replace(&mut self.table, larger) {
            if entry.0 != NONE {
                let i = self.find(entry.0);
                self.table[i] = entry;
            }
        }
    }
    /// Removes a number's entry, if it has one. The entries behind it move up, so that none is lost behind the gap.
    pub(crate) fn remove(&mut self, n: u32) -> Option<T> {
        if self.used == 0 {
            return None;
        }
        let mask = self.table.len() - 1;
        let mut hole = self.find(n);
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

    /// The table and a `BTreeMap` agree for neighbouring numbers, for numbers at regular distances and for the highest numbers, also when
    /// the table grows.
    #[test]
    fn agrees_with_a_map() {
        for step in [1u32, 64, 1 << 20] {
            let mut random = SplitMix64::new(u64::from(step));
            let (mut table, mut map) = (ByNumber::new(4), BTreeMap::new());
            for turn in 0..20_000u32 {
                let e = (random.below(300) as u32).wrapping_mul(step);
                let e = if random.below(50) == 0 { NONE - 1 } else { e };
                match random.below(3) {
                    0 => {
                        *table.entry(e) = turn;
                        map.insert(e, turn);
                    }
                    1 => assert_eq!(table.remove(e), map.remove(&e)),
                    _ => {}
                }
                let probe = (random.below(300) as u32).wrapping_mul(step);
                assert_eq!(table.get(probe), map.get(&probe).copied());
                assert_eq!(table.get(e), map.get(&e).copied());
                assert_eq!(table.used, map.len());
            }
        }
    }
}
