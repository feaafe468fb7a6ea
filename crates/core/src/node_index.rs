//! An index of extents: finds the node of each extent that has one, for example the fast slot with its copy.
//!
//! A hash table of fixed size. An entry has four bytes: the node, and in the bits that are left a tag from the extent's hash. The extent
//! itself is in the caller's table of nodes, which is read only if the tag agrees. Sixteen entries are a bucket, one line of the processor's
//! cache, and all of its tags are compared at once, without a branch that the processor would have to guess. An entry whose bucket is full
//! goes to the next one with room. Each bucket counts the entries that passed over it, so a search ends at the first bucket that none has
//! passed, and a removal leaves nothing behind. (The F14 tables of Folly work in this way.) Nothing iterates over the table, so the order of
//! its entries has no effect on decisions.
//!
//! Five entries for four nodes: 5.1 bytes per node.

use alloc::vec;
use alloc::vec::Vec;

const EMPTY: u32 = u32::MAX;
/// Number of entries in a bucket.
const WIDTH: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u32; WIDTH]);

/// See the module. The functions get `owner`, the extent of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeIndex {
    buckets: Vec<Bucket>,
    /// For each bucket, the number of entries that are in a later one because it was full. At 255 it stays.
    passed: Vec<u8>,
    /// The bits of an entry that hold the node. The tag is in the others.
    node_mask: u32,
}

/// Where the hash of an extent leads: a bucket, and the tag in the bits of an entry.
#[derive(Clone, Copy)]
struct Hash {
    bucket: usize,
    tag: u32,
}

impl NodeIndex {
    /// An empty index for nodes below `nodes`.
    pub(crate) fn new(nodes: u32) -> NodeIndex {
        // `nodes` itself fits into these bits, so no entry has all bits set.
        let node_bits = 32 - nodes.leading_zeros();
        let buckets = NodeIndex::buckets(nodes);
        NodeIndex {
            buckets: vec![Bucket([EMPTY; WIDTH]); buckets],
            passed: vec![0; buckets],
            node_mask: ((1u64 << node_bits) - 1) as u32,
        }
    }
    fn buckets(nodes: u32) -> usize {
        (nodes as usize / 4 * 5 + 8).div_ceil(WIDTH)
    }
    /// Memory for `nodes` nodes, in bytes.
    pub(crate) fn estimate(nodes: u32) -> u64 {
        NodeIndex::buckets(nodes) as u64 * (size_of::<Bucket>() as u64 + 1)
    }
    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.len() * (size_of::<Bucket>() + 1)
    }
    /// Address and size of the table.
    pub(crate) fn place(&self) -> (usize, usize) {
        (
            self.buckets.as_ptr().addr(),
            size_of_val(self.buckets.as_slice()),
        )
    }
    #[inline]
    fn hash(&self, e: u32) -> Hash {
        let h = u64::from(e).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let bucket = (u128::from(h) * self.buckets.len() as u128) >> 64;
        Hash {
            bucket: bucket as usize,
            tag: h as u32 & !self.node_mask,
        }
    }
    #[inline]
    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() {
            0
        } else {
            bucket + 1
        }
    }
    /// A bit for each entry of a bucket that agrees with `tag` in the bits `mask`.
    #[inline]
    fn agreeing(&self, bucket: usize, mask: u32, tag: u32) -> u32 {
        let all = self.buckets[bucket].0.iter().enumerate();
        all.fold(0, |set, (i, entry)| {
            set | u32::from(entry & mask == tag) << i
        })
    }
    /// The bucket and the position there of the entry of an extent, and its node.
    #[inline]
    fn find(&self, e: u32, owner: impl Fn(u32) -> u32) -> Option<(usize, usize, u32)> {
        let Hash { mut bucket, tag } = self.hash(e);
        for _ in 0..self.buckets.len() {
            let mut agree = self.agreeing(bucket, !self.node_mask, tag);
            while agree != 0 {
                let i = agree.trailing_zeros() as usize % WIDTH;
                agree &= agree - 1;
                let entry = self.buckets[bucket].0[i];
                let node = entry & self.node_mask;
                if entry != EMPTY && owner(node) == e {
                    return Some((bucket, i, node));
                }
            }
            if self.passed[bucket] == 0 {
                return None;
            }
            bucket = self.after(bucket);
        }
        None
    }
    /// The node of an extent.
    #[inline]
    pub(crate) fn get(&self, e: u32, owner: impl Fn(u32) -> u32) -> Option<u32> {
        self.find(e, owner).map(|(_, _, node)| node)
    }
    /// Reads what [`NodeIndex::get`] reads first for this extent, so that it is in the processor's cache afterwards. The value has no meaning.
    #[inline]
    pub(crate) fn touch(&self, e: u32) -> u32 {
        let bucket = self.hash(e).bucket;
        self.buckets[bucket].0[0] ^ u32::from(self.passed[bucket])
    }
    /// Adds an extent that is not in the index.
    ///
    /// # Panics
    /// If there are more extents than nodes.
    pub(crate) fn insert(&mut self, e: u32, node: u32) {
        let Hash { mut bucket, tag } = self.hash(e);
        for _ in 0..self.buckets.len() {
            let free = self.agreeing(bucket, u32::MAX, EMPTY);
            if free != 0 {
                let i = free.trailing_zeros() as usize % WIDTH;
                self.buckets[bucket].0[i] = tag | node;
                return;
            }
            self.passed[bucket] = self.passed[bucket].saturating_add(1);
            bucket = self.after(bucket);
        }
        panic!("an index with more extents than nodes");
    }
    /// Removes an extent, whose node must still be that of the extent. Returns the node, if the extent had one.
    pub(crate) fn remove(&mut self, e: u32, owner: impl Fn(u32) -> u32) -> Option<u32> {
        let (at, i, node) = self.find(e, &owner)?;
        self.buckets[at].0[i] = EMPTY;
        let mut bucket = self.hash(e).bucket;
        while bucket != at {
            let passed = &mut self.passed[bucket];
            *passed -= u8::from(*passed < u8::MAX);
            bucket = self.after(bucket);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use alloc::collections::BTreeMap;

    /// For neighbours, extents at regular distances and random ones, with tags of many bits and of none, the index agrees with a map.
    #[test]
    fn agrees_with_a_map() {
        for (nodes, tags) in [(1, true), (100, true), (3000, true), (100, false)] {
            for step in [1u32, 4096, 0x9e37_79b1] {
                let mut index = NodeIndex::new(nodes);
                if !tags {
                    index.node_mask = u32::MAX;
                }
                let mut rows = vec![u32::MAX; nodes as usize];
                let mut model = BTreeMap::new();
                let mut random = SplitMix64::new(u64::from(nodes ^ step));
                for turn in 0..20_000 {
                    let e = (random.below(u64::from(nodes) * 3) as u32).wrapping_mul(step);
                    let owner = |s: u32| rows[s as usize];
                    assert_eq!(index.get(e, owner), model.get(&e).copied());
                    let fills = turn / 5000 % 2 == 0 || random.below(2) == 0;
                    if let Some(node) = model.get(&e).copied().filter(|_| !fills) {
                        assert_eq!(index.remove(e, owner), Some(node));
                        rows[node as usize] = u32::MAX;
                        model.remove(&e);
                    } else if fills && !model.contains_key(&e) {
                        let free = rows.iter().position(|o| *o == u32::MAX);
                        if let Some(node) = free {
                            index.insert(e, node as u32);
                            rows[node] = e;
                            model.insert(e, node as u32);
                        }
                    }
                }
                for (e, node) in &model {
                    assert_eq!(index.remove(*e, |s| rows[s as usize]), Some(*node));
                }
                // Nothing is left behind.
                assert!(index.passed.iter().all(|n| *n == 0));
                assert!(index.buckets.iter().all(|b| b.0 == [EMPTY; WIDTH]));
            }
        }
    }

    /// In a full index few entries are not in the first bucket that is searched, for neighbours and for other extents.
    #[test]
    fn a_full_index_is_searched_in_few_steps() {
        let nodes = 100_000u32;
        for step in [1u32, 16, 0x0101_0101] {
            let mut index = NodeIndex::new(nodes);
            (0..nodes).for_each(|s| index.insert(s.wrapping_mul(step), s));
            let passed: u32 = index.passed.iter().map(|n| u32::from(*n)).sum();
            let most = index.passed.iter().max();
            assert!(passed < nodes / 10, "step {step}: {passed}");
            assert!(most < Some(&60), "step {step}: {most:?}");
        }
        assert_eq!(size_of::<Bucket>(), 64);
    }

    #[test]
    fn the_largest_volume_has_an_index() {
        let mut index = NodeIndex::new(3);
        index.node_mask = u32::MAX;
        let node = u32::MAX - 2;
        index.insert(7, node);
        assert_eq!(index.get(7, |_| 7), Some(node));
        assert_eq!(NodeIndex::estimate(1 << 25) >> 25, 5);
    }
}
