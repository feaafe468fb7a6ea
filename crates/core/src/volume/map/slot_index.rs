//! The index of copies: the fast slot of each extent that has a copy there.
//!
//! A hash table of fixed size with open addressing and linear probing. An entry has four bytes: the slot, and in the bits that are left its
//! distance from the place that its hash names, and a tag from the same hash. The extent itself is in the row of the slot, which is read
//! only if distance and tag agree. Entries are in the order of their hashes (robin hood hashing), so a search for an extent without a copy
//! ends early, mostly within one cache line. Removal moves later entries back, so there are no tombstones. Nothing iterates over the table,
//! so the order of its entries has no effect on decisions.
//!
//! Five entries for four slots: 5 bytes per slot.

use alloc::vec;
use alloc::vec::Vec;

const EMPTY: u32 = u32::MAX;
/// Bits of a distance, as far as the slot's number leaves so many. A longer distance is stored as the highest one, and computed from the
/// row's extent when it is needed.
const DISTANCE_BITS: u32 = 4;

/// See the module. The functions get `owner`, the extent in the row of a slot.
#[derive(Clone, Debug)]
pub(super) struct SlotIndex {
    table: Vec<u32>,
    slot_bits: u32,
    /// The highest distance that can be stored.
    most: u32,
    tag_bits: u32,
}

impl SlotIndex {
    /// An empty index for slots below `slots`.
    pub(super) fn new(slots: u32) -> SlotIndex {
        // `slots` itself fits into these bits, so no entry has all bits set.
        let slot_bits = 32 - slots.leading_zeros();
        let distance = DISTANCE_BITS.min(32 - slot_bits);
        SlotIndex {
            table: vec![EMPTY; SlotIndex::len(slots)],
            slot_bits,
            most: (1 << distance) - 1,
            tag_bits: 32 - slot_bits - distance,
        }
    }
    fn len(slots: u32) -> usize {
        slots as usize / 4 * 5 + 8
    }
    /// Memory for `slots` slots, in bytes.
    pub(super) fn estimate(slots: u32) -> u64 {
        SlotIndex::len(slots) as u64 * 4
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.table.len() * 4
    }
    /// Address and size of the table.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.table.as_ptr().addr(), self.bytes())
    }
    /// The position that the hash of an extent names, and its tag.
    #[inline]
    fn hash(&self, e: u32) -> (usize, u32) {
        let h = u64::from(e).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let at = (u128::from(h) * self.table.len() as u128) >> 64;
        let tag = u64::from(h as u32) << self.tag_bits >> 32;
        (at as usize, tag as u32)
    }
    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.table.len() {
            0
        } else {
            at + 1
        }
    }
    #[inline]
    fn slot(&self, entry: u32) -> u32 {
        (u64::from(entry) & ((1 << self.slot_bits) - 1)) as u32
    }
    /// The stored distance of an entry, and its tag.
    #[inline]
    fn marks(&self, entry: u32) -> (u32, u32) {
        let marks = (u64::from(entry) >> self.slot_bits) as u32;
        let bits = self.most.count_ones();
        (marks & self.most, (u64::from(marks) >> bits) as u32)
    }
    fn entry(&self, slot: u32, distance: u32, tag: u32) -> u32 {
        let marks = u64::from(tag) << self.most.count_ones() | u64::from(distance.min(self.most));
        (marks << self.slot_bits) as u32 | slot
    }
    /// The distance of the entry at a position from that of its hash.
    fn distance(&self, at: usize, owner: impl Fn(u32) -> u32) -> u32 {
        let entry = self.table[at];
        let (stored, _) = self.marks(entry);
        if stored < self.most {
            return stored;
        }
        let (home, _) = self.hash(owner(self.slot(entry)));
        let back = if at < home { self.table.len() } else { 0 };
        (at + back - home) as u32
    }
    /// The position of the entry of an extent, and its slot.
    #[inline]
    fn find(&self, e: u32, owner: impl Fn(u32) -> u32) -> Option<(usize, u32)> {
        let (mut at, tag) = self.hash(e);
        let mut distance = 0;
        loop {
            let entry = self.table[at];
            if entry == EMPTY {
                return None;
            }
            let (stored, its) = self.marks(entry);
            if stored == distance && its == tag {
                let slot = self.slot(entry);
                if owner(slot) == e {
                    return Some((at, slot));
                }
            } else if stored < distance {
                return None;
            }
            // Once the highest distance is reached, every entry with it may be the one.
            distance = (distance + 1).min(self.most);
            at = self.after(at);
        }
    }
    /// The slot of the copy of an extent.
    #[inline]
    pub(super) fn get(&self, e: u32, owner: impl Fn(u32) -> u32) -> Option<u32> {
        self.find(e, owner).map(|(_, slot)| slot)
    }
    /// Adds an extent that is not in the index.
    pub(super) fn insert(&mut self, e: u32, slot: u32, owner: impl Fn(u32) -> u32) {
        let (mut at, tag) = self.hash(e);
        let mut distance = 0;
        while self.table[at] != EMPTY && self.distance(at, &owner) >= distance {
            distance += 1;
            at = self.after(at);
        }
        // The entries from here on move by one position.
        let mut next = self.entry(slot, distance, tag);
        while next != EMPTY {
            core::mem::swap(&mut self.table[at], &mut next);
            if next != EMPTY {
                let (distance, tag) = self.marks(next);
                next = self.entry(self.slot(next), distance + 1, tag);
            }
            at = self.after(at);
        }
    }
    /// Removes an extent. Its slot must still be that of the extent.
    pub(super) fn remove(&mut self, e: u32, owner: impl Fn(u32) -> u32) {
        let Some((mut hole, _)) = self.find(e, &owner) else {
            return;
        };
        loop {
            let at = self.after(hole);
            let entry = self.table[at];
            let distance = if entry == EMPTY {
                0
            } else {
                self.distance(at, &owner)
            };
            if distance == 0 {
                self.table[hole] = EMPTY;
                return;
            }
            let (_, tag) = self.marks(entry);
            self.table[hole] = self.entry(self.slot(entry), distance - 1, tag);
            hole = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use alloc::collections::BTreeMap;

    /// With every number of bits for distances and tags, with neighbours, extents at regular distances and random ones, the index agrees
    /// with a map.
    #[test]
    fn agrees_with_a_map() {
        for (slots, bits) in [
            (1, None),
            (100, None),
            (3000, None),
            (100, Some(0)),
            (100, Some(1)),
        ] {
            for step in [1u32, 4096, 0x9e37_79b1] {
                let mut index = SlotIndex::new(slots);
                if let Some(bits) = bits {
                    (index.most, index.tag_bits) = ((1 << bits) - 1, 0);
                }
                let mut rows = vec![u32::MAX; slots as usize];
                let mut model = BTreeMap::new();
                let mut random = SplitMix64::new(u64::from(slots ^ step));
                for turn in 0..20_000 {
                    let e = (random.below(u64::from(slots) * 3) as u32).wrapping_mul(step);
                    let owner = |s: u32| rows[s as usize];
                    assert_eq!(index.get(e, owner), model.get(&e).copied());
                    let fills = turn / 5000 % 2 == 0 || random.below(2) == 0;
                    if let Some(slot) = model.get(&e).copied().filter(|_| !fills) {
                        index.remove(e, owner);
                        rows[slot as usize] = u32::MAX;
                        model.remove(&e);
                    } else if fills && !model.contains_key(&e) {
                        let free = rows.iter().position(|o| *o == u32::MAX);
                        if let Some(slot) = free {
                            index.insert(e, slot as u32, owner);
                            rows[slot] = e;
                            model.insert(e, slot as u32);
                        }
                    }
                }
                for (e, slot) in &model {
                    assert_eq!(index.get(*e, |s| rows[s as usize]), Some(*slot));
                }
            }
        }
    }

    /// A full index is searched in few steps: the mean and the largest distance, for neighbours and for random extents.
    #[test]
    fn a_full_index_is_searched_in_few_steps() {
        let slots = 100_000u32;
        for step in [1u32, 16, 0x0101_0101] {
            let mut index = SlotIndex::new(slots);
            let owner = |s: u32| s.wrapping_mul(step);
            (0..slots).for_each(|s| index.insert(owner(s), s, owner));
            let used = (0..index.table.len()).filter(|&at| index.table[at] != EMPTY);
            let all: Vec<u32> = used.map(|at| index.distance(at, owner)).collect();
            let mean = f64::from(all.iter().sum::<u32>()) / f64::from(slots);
            let most = all.iter().max().copied().unwrap_or(0);
            assert!(mean < 2.5 && most < 40, "step {step}: {mean} {most}");
        }
    }

    #[test]
    fn the_largest_volume_has_an_index() {
        let mut index = SlotIndex::new(3);
        (index.slot_bits, index.most, index.tag_bits) = (32, 0, 0);
        assert_eq!(index.marks(u32::MAX - 2), (0, 0));
        let slot = u32::MAX - 2;
        index.insert(7, slot, |_| 7);
        assert_eq!(index.get(7, |_| 7), Some(slot));
        assert_eq!(SlotIndex::estimate(1 << 25) >> 25, 5);
    }
}
