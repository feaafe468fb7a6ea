//! The extents that a trace touches: collected in one pass and then numbered without gaps.
//!
//! A trace of a 2 TB disk that touches 1 GB needs rows for that 1 GB only. The order is kept, so ties that are broken by the lower extent
//! number are broken in the same way.
//!
//! Memory: 96 bytes per 512 neighbouring extents of which at least one is touched (0.19 bytes per extent if all are touched, 96 if they are
//! far apart), and a directory of 4 bytes per 512 extents up to the highest one, at most 64 MiB.

use std::collections::BTreeMap;

/// Extents per chunk: one cache line of bits.
const CHUNK_BITS: u32 = 9;
const WORDS: usize = 1 << (CHUNK_BITS - 6);
/// Chunks that the directory covers. Chunks with higher numbers are found in a tree.
const DIRECT: u64 = 1 << 24;

#[derive(Clone, Default)]
struct Chunk {
    bits: [u64; WORDS],
    /// For each word, the number of touched extents earlier in this chunk.
    before: [u16; WORDS],
    /// Touched extents before this chunk.
    base: u64,
    /// The chunk's number.
    key: u64,
}

/// A set of extents of one device.
#[derive(Default)]
pub struct Touched {
    chunks: Vec<Chunk>,
    /// Chunk number → index in `chunks` + 1.
    direct: Vec<u32>,
    far: BTreeMap<u64, u32>,
    /// The last chunk that was looked up, and its index. Neighbours hit it; other extents cost a search.
    last: (u64, u32),
}

/// The position of an extent in a [`Touched`], from which its rank is found without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    chunk: u32,
    bit: u16,
}

impl Spot {
    /// The position in 32 bits, if the index of the chunk fits into 23.
    #[inline]
    pub fn pack(self) -> Option<u32> {
        (self.chunk < 1 << (32 - CHUNK_BITS))
            .then_some(self.chunk << CHUNK_BITS | u32::from(self.bit))
    }
    /// The inverse of [`Spot::pack`].
    #[inline]
    pub fn unpack(packed: u32) -> Spot {
        Spot {
            chunk: packed >> CHUNK_BITS,
            bit: packed as u16 & ((1 << CHUNK_BITS) - 1),
        }
    }
}

impl Touched {
    /// The index of a chunk, which is created if needed.
    #[inline]
    fn chunk(&mut self, key: u64) -> u32 {
        if let Some(at) = self.direct.get(key as usize)
            && *at != 0
        {
            return at - 1;
        }
        self.chunk_slowly(key)
    }
    #[cold]
    fn chunk_slowly(&mut self, key: u64) -> u32 {
        if self.last.0 == key && self.last.1 != 0 {
            return self.last.1 - 1;
        }
        let new = self.chunks.len() as u32 + 1;
        let entry = if key < DIRECT {
            if self.direct.len() <= key as usize {
                self.direct.resize(key as usize + 1, 0);
            }
            &mut self.direct[key as usize]
        } else {
            self.far.entry(key).or_default()
        };
        if *entry == 0 {
            *entry = new;
            self.chunks.push(Chunk {
                key,
                ..Chunk::default()
            });
        }
        self.last = (key, *entry);
        *entry - 1
    }
    /// Adds an extent.
    #[inline]
    pub fn add(&mut self, extent: u64) -> Spot {
        let chunk = self.chunk(extent >> CHUNK_BITS);
        let bit = extent as u16 & ((1 << CHUNK_BITS) - 1);
        self.chunks[chunk as usize].bits[usize::from(bit >> 6)] |= 1 << (bit & 63);
        Spot { chunk, bit }
    }
    /// Adds the extent after each one that was added, so that extents that are not neighbours get numbers that are not neighbours, either.
    pub fn pad(&mut self) {
        let mut after = Vec::new();
        for at in 0..self.chunks.len() {
            let c = &mut self.chunks[at];
            let mut carry = 0;
            for bits in &mut c.bits {
                let out = *bits >> 63;
                *bits |= *bits << 1 | carry;
                carry = out;
            }
            let next = c.key + 1;
            if carry != 0 {
                after.push(next);
            }
        }
        // These are added at the end, so that the extents that are added here get no successor themselves.
        for key in after {
            self.add(key << CHUNK_BITS);
        }
    }
    /// Numbers the extents from `base` on, and returns the number after the last one. No extent may be added afterwards.
    pub fn number(&mut self, base: u64) -> u64 {
        let mut next = base;
        let near = self.direct.iter().copied().filter(|at| *at != 0);
        for at in near.chain(self.far.values().copied()) {
            let c = &mut self.chunks[at as usize - 1];
            c.base = next;
            let mut sum = 0;
            for (before, bits) in c.before.iter_mut().zip(c.bits) {
                *before = sum;
                sum += bits.count_ones() as u16;
            }
            next += u64::from(sum);
        }
        next
    }
    /// The number of an added extent.
    #[inline]
    pub fn rank(&self, spot: Spot) -> u64 {
        let c = &self.chunks[spot.chunk as usize];
        let word = usize::from(spot.bit >> 6);
        let below = c.bits[word] & ((1 << (spot.bit & 63)) - 1);
        c.base + u64::from(c.before[word]) + u64::from(below.count_ones())
    }
    /// Whether the extent at a position was added.
    #[inline]
    pub fn holds(&self, spot: Spot) -> bool {
        let c = &self.chunks[spot.chunk as usize];
        c.bits[usize::from(spot.bit >> 6)] >> (spot.bit & 63) & 1 != 0
    }
    /// The position of an extent. Unless [`Touched::holds`] it, nothing else is known about it.
    pub fn spot(&mut self, extent: u64) -> Spot {
        Spot {
            chunk: self.chunk(extent >> CHUNK_BITS),
            bit: extent as u16 & ((1 << CHUNK_BITS) - 1),
        }
    }
    /// The extent at a position.
    #[inline]
    pub fn extent(&self, spot: Spot) -> u64 {
        self.chunks[spot.chunk as usize].key << CHUNK_BITS | u64::from(spot.bit)
    }
    /// The lowest and the highest extent.
    pub fn ends(&self) -> Option<(u64, u64)> {
        let low = self.chunks.iter().min_by_key(|c| c.key)?;
        let high = self.chunks.iter().max_by_key(|c| c.key)?;
        let first = (0u64..).zip(low.bits).find(|(_, b)| *b != 0)?;
        let last = (0u64..).zip(high.bits).filter(|(_, b)| *b != 0).last()?;
        let from = first.0 * 64 + u64::from(first.1.trailing_zeros());
        let to = last.0 * 64 + 63 - u64::from(last.1.leading_zeros());
        Some((low.key << CHUNK_BITS | from, high.key << CHUNK_BITS | to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranks_are_those_of_the_sorted_set() {
        let mut random = isotherm_core::random::SplitMix64::new(3);
        for round in 0..20 {
            let (mut set, mut t) = (BTreeSet::new(), Touched::default());
            let mut spots = BTreeMap::new();
            for _ in 0..500 {
                let e = match random.below(3) {
                    0 => random.below(2000),
                    1 => random.below(1 << 30),
                    _ => (DIRECT << CHUNK_BITS) + random.below(1 << 12) * 777,
                };
                set.insert(e);
                spots.insert(e, t.add(e));
            }
            assert_eq!(t.number(round), round + set.len() as u64);
            assert_eq!(t.ends(), set.first().copied().zip(set.last().copied()));
            for (i, e) in (round..).zip(&set) {
                assert_eq!(t.rank(spots[e]), i);
                assert_eq!((t.spot(*e), t.extent(spots[e])), (spots[e], *e));
            }
            t.pad();
            let padded: BTreeSet<u64> = set.iter().flat_map(|e| [*e, e + 1]).collect();
            assert_eq!(t.number(round), round + padded.len() as u64);
            for (i, e) in (round..).zip(&padded) {
                if let Some(s) = spots.get(e) {
                    assert_eq!(t.rank(*s), i);
                }
            }
        }
    }
}
