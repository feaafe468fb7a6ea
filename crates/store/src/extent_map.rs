//! Runs of blocks and where each lies: an ordered map whose runs never overlap.

use std::collections::BTreeMap;

/// The place of a run's first block.
pub trait Place: Copy {
    /// The place of the block that lies `blocks` after this one.
    #[must_use]
    fn advance(self, blocks: u64) -> Self;
    /// Whether a run of `blocks` blocks at this place and one at `next` are one run.
    fn joins(self, blocks: u64, next: Self) -> bool;
}

/// A map from blocks to places. About 64 bytes of memory for each run.
#[derive(Clone, Debug)]
pub struct ExtentMap<P> {
    runs: BTreeMap<u64, (u64, P)>,
    blocks: u64,
}

impl<P> Default for ExtentMap<P> {
    fn default() -> ExtentMap<P> {
        ExtentMap {
            runs: BTreeMap::new(),
            blocks: 0,
        }
    }
}

impl<P: Place> ExtentMap<P> {
    /// Number of blocks that have a place.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Whether no block has a place.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All runs in order: first block, blocks, place.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, P)> + '_ {
        self.runs.iter().map(|(&start, &(len, p))| (start, len, p))
    }

    /// Takes the places of `len` blocks at `start` away, and calls `gone` for each run that was there.
    pub fn remove(&mut self, start: u64, len: u64, mut gone: impl FnMut(u64, u64, P)) {
        let end = start + len;
        if let Some((&first, &(had, place))) = self.runs.range(..start).next_back()
            && first + had > start
        {
            self.runs.insert(first, (start - first, place));
            let tail = place.advance(start - first);
            self.runs.insert(start, (first + had - start, tail));
        }
        while let Some((&first, &(had, place))) = self.runs.range(start..end).next() {
            self.runs.remove(&first);
            let inside = had.min(end - first);
            if inside < had {
                self.runs.insert(end, (had - inside, place.advance(inside)));
            }
            self.blocks -= inside;
            gone(first, inside, place);
        }
    }

    /// Puts `len` blocks at `start` to `place`; `gone` is called for what they had before.
    pub fn insert(&mut self, start: u64, len: u64, place: P, gone: impl FnMut(u64, u64, P)) {
        if len == 0 {
            return;
        }
        self.remove(start, len, gone);
        self.blocks += len;
        if let Some((&first, (had, before))) = self.runs.range_mut(..start).next_back()
            && first + *had == start
            && before.joins(*had, place)
        {
            *had += len;
            return;
        }
        self.runs.insert(start, (len, place));
    }

    /// Calls `each` for the parts of `len` blocks at `start`, in order: first block, blocks, place if it has one.
    pub fn over(&self, start: u64, len: u64, mut each: impl FnMut(u64, u64, Option<P>)) {
        let (mut at, end) = (start, start + len);
        let before = self.runs.range(..start).next_back();
        let reaching = before.filter(|(first, (had, _))| *first + had > start);
        for (&first, &(had, place)) in reaching.into_iter().chain(self.runs.range(start..end)) {
            if first > at {
                each(at, first - at, None);
                at = first;
            }
            let part = (first + had).min(end) - at;
            each(at, part, Some(place.advance(at - first)));
            at += part;
        }
        if at < end {
            each(at, end - at, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Place for u64 {
        fn advance(self, blocks: u64) -> u64 {
            self + blocks
        }
        fn joins(self, blocks: u64, next: u64) -> bool {
            self + blocks == next
        }
    }

    /// Against an array of places, block by block.
    #[test]
    fn agrees_with_an_array() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let (mut map, mut array) = (ExtentMap::default(), [None; 64]);
        for round in 0..20_000 {
            let start = next(64);
            let len = 1 + next(64 - start);
            let span = start as usize..(start + len) as usize;
            let mut gone = 0;
            let had = array[span.clone()].iter().flatten().count() as u64;
            if next(4) == 0 {
                map.remove(start, len, |_, n, _| gone += n);
                array[span].fill(None);
            } else {
                let place = if next(2) == 0 { start } else { round * 100 };
                map.insert(start, len, place, |_, n, _| gone += n);
                for (i, a) in array[span].iter_mut().enumerate() {
                    *a = Some(place + i as u64);
                }
            }
            assert_eq!(gone, had);
            let (from, many) = (next(32), next(32));
            let mut seen = Vec::new();
            map.over(from, many, |at, n, p| {
                assert_eq!(at, from + seen.len() as u64);
                seen.extend((0..n).map(|i| p.map(|p| p + i)));
            });
            assert_eq!(seen, array[from as usize..(from + many) as usize]);
            assert_eq!(map.blocks(), array.iter().flatten().count() as u64);
        }
    }
}
