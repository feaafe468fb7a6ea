//! The extents that a trace touches, numbered without gaps.
//!
//! A trace of a 2 TB disk that touches 1 GB needs rows for that 1 GB only. Order is kept, so ties that break by the lower
//! extent number break the same way.

use roaring::RoaringTreemap;

/// Extents of one chunk. Eight cache lines of bits a chunk.
const CHUNK_BITS: u32 = 12;
const WORDS: usize = 1 << (CHUNK_BITS - 6);

/// Extent number in the trace → rank among the touched ones.
pub struct Compact {
    /// Chunk numbers, ascending.
    keys: Vec<u64>,
    chunks: Vec<Chunk>,
    /// Where the last lookup ended: neighbours are asked for next.
    last: usize,
    touched: u64,
}

struct Chunk {
    /// Touched extents before this chunk.
    base: u64,
    /// Touched extents of this chunk before each word.
    before: [u16; WORDS],
    bits: [u64; WORDS],
}

impl Compact {
    /// From the touched extents.
    pub fn new(touched: &RoaringTreemap) -> Compact {
        let mut c = Compact {
            keys: Vec::new(),
            chunks: Vec::new(),
            last: 0,
            touched: touched.len(),
        };
        for (rank, extent) in (0u64..).zip(touched) {
            let key = extent >> CHUNK_BITS;
            if c.keys.last() != Some(&key) {
                c.keys.push(key);
                c.chunks.push(Chunk {
                    base: rank,
                    before: [0; WORDS],
                    bits: [0; WORDS],
                });
            }
            let at = c.chunks.len() - 1;
            c.chunks[at].bits[word(extent)] |= 1 << (extent & 63);
        }
        for chunk in &mut c.chunks {
            let mut sum = 0;
            for (before, bits) in chunk.before.iter_mut().zip(chunk.bits) {
                *before = sum;
                sum += bits.count_ones() as u16;
            }
        }
        c
    }

    /// How many extents are touched.
    pub fn touched(&self) -> u64 {
        self.touched
    }

    /// The number of touched extents below `extent`.
    pub fn rank(&mut self, extent: u64) -> u64 {
        let key = extent >> CHUNK_BITS;
        if self.keys.get(self.last) != Some(&key) {
            self.last = self.keys.partition_point(|k| *k < key);
        }
        match self.chunks.get(self.last) {
            Some(c) if self.keys[self.last] == key => {
                let w = word(extent);
                let below = c.bits[w] & ((1 << (extent & 63)) - 1);
                c.base + u64::from(c.before[w]) + u64::from(below.count_ones())
            }
            Some(c) => c.base,
            None => self.touched,
        }
    }
}

fn word(extent: u64) -> usize {
    (extent >> 6) as usize & (WORDS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_are_those_of_the_sorted_set(
            near in prop::collection::btree_set(0u64..20_000, 0..200),
            far in prop::collection::btree_set(0u64..u64::MAX >> 12, 0..20),
        ) {
            let all: Vec<u64> = near.union(&far).copied().collect();
            let mut c = Compact::new(&all.iter().copied().collect());
            prop_assert_eq!(c.touched(), all.len() as u64);
            for (i, e) in all.iter().enumerate() {
                prop_assert_eq!(c.rank(*e), i as u64);
            }
            for e in [0, 63, 64, 4095, 4096, 19_999, u64::MAX >> 12] {
                prop_assert_eq!(c.rank(e), all.iter().filter(|x| **x < e).count() as u64);
            }
        }
    }
}
