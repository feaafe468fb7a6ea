//! Maps extent numbers to nodes, for the few extents that a policy remembers in addition to those with a copy.

use alloc::vec;
use alloc::vec::Vec;

/// A hash table of fixed size with open addressing. An entry has 8 bytes, and at most three quarters of the entries are used, so a key
/// takes 11 to 21 bytes.
///
/// Nothing iterates over it, so the order of its entries has no effect on decisions. Removal moves later entries back, so there are no
/// tombstones.
#[derive(Clone, Debug)]
pub struct Index {
    /// (extent, node); the node is [`NONE`] in an empty entry.
    table: Vec<(u32, u32)>,
    shift: u32,
}

const NONE: u32 = u32::MAX;

impl Index {
    /// Creates an index for at most `keys` keys.
    pub fn new(keys: u32) -> Index {
        let bits = (keys as usize * 4 / 3 + 2).next_power_of_two().ilog2();
        Index {
            table: vec![(0, NONE); 1 << bits],
            shift: 64 - bits,
        }
    }
    #[inline]
    fn start(&self, key: u32) -> usize {
        (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }
    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }
    /// The position of the key, or the empty position where it would be inserted.
    #[inline]
    fn find(&self, key: u32) -> usize {
        let mut at = self.start(key);
        while self.table[at].1 != NONE && self.table[at].0 != key {
            at = self.after(at);
        }
        at
    }
    /// The node of a key.
    #[inline]
    pub fn get(&self, key: u32) -> Option<u32> {
        let node = self.table[self.find(key)].1;
        (node != NONE).then_some(node)
    }
    /// Sets the node of a key.
    pub fn insert(&mut self, key: u32, node: u32) {
        let at = self.find(key);
        self.table[at] = (key, node);
    }
    /// Removes a key; returns its node.
    pub fn remove(&mut self, key: u32) -> Option<u32> {
        let mut hole = self.find(key);
        let node = self.table[hole].1;
        if node == NONE {
            return None;
        }
        let mut at = hole;
        loop {
            at = self.after(at);
            if self.table[at].1 == NONE {
                break;
            }
            // The entry may move back to the hole only if its search starts at or before the hole (circularly).
            let start = self.start(self.table[at].0);
            let mask = self.table.len() - 1;
            if (at.wrapping_sub(start) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.table[hole] = self.table[at];
                hole = at;
            }
        }
        self.table[hole].1 = NONE;
        Some(node)
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.table.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map() {
        for keys in [1u32, 2, 3, 100, 1000] {
            let (mut index, mut model) = (Index::new(keys), BTreeMap::new());
            let mut random = crate::random::SplitMix64::new(u64::from(keys));
            for step in 0..20_000u32 {
                let key = random.below(u64::from(keys) * 2) as u32 * 4096;
                if model.contains_key(&key) {
                    assert_eq!(index.remove(key), model.remove(&key));
                } else if model.len() < keys as usize {
                    index.insert(key, step);
                    model.insert(key, step);
                }
                assert_eq!(index.get(key), model.get(&key).copied());
            }
            for key in 0..keys * 2 {
                assert_eq!(index.get(key * 4096), model.get(&(key * 4096)).copied());
            }
        }
    }
}
