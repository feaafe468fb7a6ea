//! The map of the media cache: the blocks of each band whose newest data is in the log.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Blocks of 4 KiB, the physical sector that the host sees.
pub(crate) const BLOCK: u64 = 4096;

#[derive(Clone, Copy, Debug)]
struct Extent {
    blocks: u64,
    /// Position in the log, counted without wrapping, so that it orders extents by age.
    at: u64,
}

/// A part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// From the band: first block, number of blocks.
    Home(u64, u64),
    /// From the log: block of the log counted without wrapping, number of blocks.
    Log(u64, u64),
}

/// Extents of the log by home block. They do not overlap.
#[derive(Debug)]
pub(crate) struct Log {
    extents: BTreeMap<u64, Extent>,
    band_blocks: u64,
    size_blocks: u64,
    limit: usize,
    used: u64,
    head: u64,
    /// Number of extents of each band that has any.
    dirty: HashMap<u64, u32>,
    /// Bands in the order in which they became dirty. It may name bands that are clean again.
    order: VecDeque<u64>,
}

impl Log {
    pub fn new(size_blocks: u64, band_blocks: u64, limit: usize) -> Log {
        Log {
            extents: BTreeMap::new(),
            band_blocks,
            size_blocks,
            limit,
            used: 0,
            head: 0,
            dirty: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Whether there is room for `blocks` more. One write may split an extent in two, which is the reason for the margin.
    pub fn fits(&self, blocks: u64) -> bool {
        (self.used + blocks <= self.size_blocks && self.extents.len() + 2 < self.limit)
            || self.used == 0
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub fn used_blocks(&self) -> u64 {
        self.used
    }

    /// The end of the log, counted without wrapping.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The position of `at` within the tracks of the log.
    pub fn place(&self, at: u64) -> u64 {
        at % self.size_blocks
    }

    /// Appends `blocks` of one band, the newest data of `first…`. Returns their position.
    pub fn append(&mut self, first: u64, blocks: u64) -> u64 {
        self.forget(first, blocks, u64::MAX);
        // No write wraps around the end of the log.
        if self.place(self.head) + blocks > self.size_blocks {
            self.head = self.head.next_multiple_of(self.size_blocks);
        }
        let at = self.head;
        self.head += blocks;
        self.insert(first, Extent { blocks, at });
        at
    }

    fn insert(&mut self, first: u64, e: Extent) {
        let band = first / self.band_blocks;
        let count = self.dirty.entry(band).or_insert(0);
        if *count == 0 {
            self.order.push_back(band);
        }
        *count += 1;
        self.used += e.blocks;
        self.extents.insert(first, e);
    }

    fn remove(&mut self, first: u64) -> Option<Extent> {
        let e = self.extents.remove(&first)?;
        self.used -= e.blocks;
        let band = first / self.band_blocks;
        if let Some(count) = self.dirty.get_mut(&band) {
            *count -= 1;
            if *count == 0 {
                self.dirty.remove(&band);
            }
        }
        Some(e)
    }

    /// The band now has the same or newer data of `first…`, so the extents that were written to the log before `until` are dropped.
    pub fn forget(&mut self, first: u64, blocks: u64, until: u64) {
        let end = first + blocks;
        let before = self
            .extents
            .range(..first)
            .next_back()
            .filter(|(s, e)| **s + e.blocks > first)
            .map(|(s, _)| *s);
        let starts: Vec<u64> = before
            .into_iter()
            .chain(self.extents.range(first..end).map(|(s, _)| *s))
            .filter(|s| self.extents[s].at < until)
            .collect();
        for start in starts {
            let Some(e) = self.remove(start) else {
                continue;
            };
            if start < first {
                let kept = first - start;
                self.insert(
                    start,
                    Extent {
                        blocks: kept,
                        at: e.at,
                    },
                );
            }
            if start + e.blocks > end {
                let cut = end - start;
                self.insert(
                    end,
                    Extent {
                        blocks: e.blocks - cut,
                        at: e.at + cut,
                    },
                );
            }
        }
    }

    /// The parts of a read, in order.
    pub fn pieces(&self, first: u64, blocks: u64, out: &mut Vec<Piece>) {
        let end = first + blocks;
        let mut at = first;
        let before = self.extents.range(..first).next_back();
        for (&start, e) in before.into_iter().chain(self.extents.range(first..end)) {
            let stop = (start + e.blocks).min(end);
            if stop <= at {
                continue;
            }
            if start > at {
                out.push(Piece::Home(at, start - at));
                at = start;
            }
            out.push(Piece::Log(e.at + (at - start), stop - at));
            at = stop;
        }
        if at < end {
            out.push(Piece::Home(at, end - at));
        }
    }

    /// The band that has been dirty longest. It is removed from the order.
    pub fn oldest(&mut self) -> Option<u64> {
        while let Some(band) = self.order.pop_front() {
            if self.dirty.contains_key(&band) {
                return Some(band);
            }
        }
        None
    }

    /// Puts a band that is still dirty at the end of the order.
    pub fn requeue(&mut self, band: u64) {
        if self.dirty.contains_key(&band) {
            self.order.push_back(band);
        }
    }

    /// The block after the last one of the band that the log holds. `out` receives the pieces in the log with the newest data.
    pub fn of_band(&self, band: u64, out: &mut Vec<Piece>) -> u64 {
        let first = band * self.band_blocks;
        let mut end = first;
        for (start, e) in self.extents.range(first..first + self.band_blocks) {
            out.push(Piece::Log(e.at, e.blocks));
            end = start + e.blocks;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the map with a flat array that holds the place of each block's newest data.
    #[test]
    fn the_map_agrees_with_a_flat_array() {
        let blocks = 256u64;
        let mut log = Log::new(4096, 64, 10_000);
        let mut flat: Vec<Option<u64>> = vec![None; blocks as usize];
        let mut random = isotherm_core::random::SplitMix64::new(7);
        let mut next = |n| random.below(n);
        for _ in 0..5000 {
            let first = next(blocks);
            // Writes are split at the borders of bands.
            let n = (1 + next(16)).min(64 - first % 64);
            let range = first as usize..(first + n) as usize;
            match next(5) {
                0 => {
                    log.forget(first, n, u64::MAX);
                    flat[range].fill(None);
                }
                1 => {
                    let until = log.head().saturating_sub(next(200));
                    log.forget(first, n, until);
                    // An extent is counted at its first block. The flat array knows blocks only, so the comparison is by block.
                    let mut after = vec![None; blocks as usize];
                    let mut pieces = Vec::new();
                    log.pieces(0, blocks, &mut pieces);
                    let mut at = 0;
                    for p in &pieces {
                        match *p {
                            Piece::Home(_, n) => at += n,
                            Piece::Log(from, n) => {
                                for i in 0..n {
                                    after[(at + i) as usize] = Some(from + i);
                                }
                                at += n;
                            }
                        }
                    }
                    for (b, (was, is)) in flat.iter().zip(&after).enumerate() {
                        assert!(is == was || (is.is_none() && range.contains(&b)));
                    }
                    flat = after;
                }
                _ => {
                    let at = log.append(first, n);
                    for i in 0..n {
                        flat[(first + i) as usize] = Some(at + i);
                    }
                }
            }
            assert_eq!(log.used_blocks(), flat.iter().flatten().count() as u64);
            let (from, len) = (next(blocks), 1 + next(40));
            let len = len.min(blocks - from);
            let mut pieces = Vec::new();
            log.pieces(from, len, &mut pieces);
            let mut at = from;
            for p in pieces {
                let n = match p {
                    Piece::Home(first, n) => {
                        assert_eq!(first, at);
                        assert!((at..at + n).all(|b| flat[b as usize].is_none()));
                        n
                    }
                    Piece::Log(place, n) => {
                        assert!((0..n).all(|i| flat[(at + i) as usize] == Some(place + i)));
                        n
                    }
                };
                at += n;
            }
            assert_eq!(at, from + len);
        }
    }
}
