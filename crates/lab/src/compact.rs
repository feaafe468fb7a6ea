//! Numbers the extents that a trace touches, without gaps.
//!
//! A trace of a 2 TB disk that touches 1 GB needs rows for that 1 GB only. The order is kept, so ties that are broken by the lower extent
//! number are broken in the same way.
//!
//! Policies that look at addresses (streams, neighbours) need more: two extents must be neighbours here if and only if they are neighbours
//! on the device. For them [`Compact::number`] skips one number wherever there is a gap in the addresses.

use roaring::RoaringTreemap;

/// Extents per chunk. The bits of a chunk fill eight cache lines.
const CHUNK_BITS: u32 = 12;
const WORDS: usize = 1 << (CHUNK_BITS - 6);

/// Extent number in the trace → rank among the touched ones.
pub struct Compact {
    /// Chunk numbers, ascending.
    keys: Vec<u64>,
    chunks: Vec<Chunk>,
    /// Index of the last lookup, because neighbours are usually looked up next.
    last: usize,
    touched: u64,
    /// Number of runs of neighbours.
    runs: u64,
}

struct Chunk {
    /// Number of runs of neighbours that start before this chunk; and whether the extent before it is touched.
    runs: u64,
    joined: bool,
    /// For each word, the number of runs that start earlier in this chunk.
    runs_before: [u16; WORDS],
    /// Touched extents before this chunk.
    base: u64,
    /// For each word, the number of touched extents earlier in this chunk.
    before: [u16; WORDS],
    bits: [u64; WORDS],
}

impl Compact {
    /// Made from the set of touched extents.
    pub fn new(touched: &RoaringTreemap) -> Compact {
        let mut c = Compact {
            keys: Vec::new(),
            chunks: Vec::new(),
            last: 0,
            touched: touched.len(),
            runs: 0,
        };
        for (rank, extent) in (0u64..).zip(touched) {
            let key = extent >> CHUNK_BITS;
            if c.keys.last() != Some(&key) {
                c.keys.push(key);
                c.chunks.push(Chunk {
                    runs: 0,
                    joined: false,
                    runs_before: [0; WORDS],
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
        let (mut runs, mut last) = (0, None);
        for (key, chunk) in c.keys.iter().zip(&mut c.chunks) {
            let top = |bits: &[u64; WORDS]| bits[WORDS - 1] >> 63 == 1;
            chunk.joined = last.is_some_and(|(k, bits)| k + 1 == *key && top(&bits));
            chunk.runs = runs;
            let mut sum = 0;
            for w in 0..WORDS {
                chunk.runs_before[w] = sum;
                sum += chunk.starts(w).count_ones() as u16;
            }
            runs += u64::from(sum);
            last = Some((*key, chunk.bits));
        }
        c.runs = runs;
        c
    }

    /// All numbers in use are below this (see [`Compact::number`]).
    pub fn numbers(&self) -> u64 {
        self.touched + self.runs.saturating_sub(1)
    }

    /// The number of a touched extent: its rank plus the number of gaps in the addresses below it.
    pub fn number(&mut self, extent: u64) -> u64 {
        let rank = self.rank(extent);
        let chunk = &self.chunks[self.last];
        let w = word(extent);
        let upto = u64::MAX >> (63 - (extent & 63));
        let inside = (chunk.starts(w) & upto).count_ones();
        rank + chunk.runs + u64::from(chunk.runs_before[w]) + u64::from(inside) - 1
    }

    /// The number of touched extents.
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

impl Chunk {
    /// The bits of a word at which a run of neighbours starts.
    fn starts(&self, w: usize) -> u64 {
        let before = match w {
            0 => self.joined,
            _ => self.bits[w - 1] >> 63 == 1,
        };
        self.bits[w] & !(self.bits[w] << 1 | u64::from(before))
    }
}

fn word(extent: u64) -> usize {
    (extent >> 6) as usize & (WORDS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_go_on_over_words_and_chunks() {
        let all: Vec<u64> = [62, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8191, 12_288].into();
        let mut c = Compact::new(&all.iter().copied().collect());
        let numbers: Vec<u64> = all.iter().map(|e| c.number(*e)).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 5, 6, 8, 9, 10, 12, 14]);
        assert_eq!(c.numbers(), 15);
    }

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
            let mut next = 0;
            for (i, e) in all.iter().enumerate() {
                next += u64::from(i > 0 && all[i - 1] + 1 != *e);
                prop_assert_eq!(c.number(*e), next, "{}", e);
                next += 1;
            }
            prop_assert_eq!(c.numbers(), next);
            for e in [0, 63, 64, 4095, 4096, 19_999, u64::MAX >> 12] {
                prop_assert_eq!(c.rank(e), all.iter().filter(|x| **x < e).count() as u64);
            }
        }
    }
}
