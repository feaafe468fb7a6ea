//! Reuse distances from a sample of blocks: the size that an LRU cache needs for a given hit ratio.
//!
//! Fixed-size spatial sampling (SHARDS: Waldspurger, Park, Garthwaite, Ahmad; FAST '15). A block belongs to the sample if the hash of its
//! address is below a threshold, so either all of its accesses are sampled or none. The distance of an access is the number of distinct
//! sampled blocks since the last access to the same block, divided by the sampling rate. The rate begins at 1, so small traces are exact.
//! When the sample exceeds its bound, the threshold is lowered and blocks leave the sample. Memory is bounded: about 100 bytes per sampled
//! block. Time is O(log) per sampled access.

use isotherm_core::random::mix;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

/// Most blocks in the sample.
const SAMPLE_MAX: usize = 1 << 15;
/// Hashes are 24 bits wide, so rates are multiples of 2^-24.
const HASH_BITS: u32 = 24;
/// The number of histogram classes per octave of distance.
const PER_OCTAVE: f64 = 8.0;

/// The distribution of the reuse distances of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reuse {
    /// Always 4096: the unit that distances count.
    pub block_bytes: u32,
    /// Share of blocks in the sample at the end; 1 if the figures are exact.
    pub sampling_rate: f64,
    /// Accesses of 4 KiB, estimated from the sample.
    pub accesses: f64,
    /// Share of accesses to a block for the first time: no cache of any size hits them.
    pub first_ratio: f64,
    /// The median distance in bytes over all accesses that are not the first to their block; `None` if there are none.
    pub p50_bytes: Option<f64>,
    /// The 90th percentile of the same distances.
    pub p90_bytes: Option<f64>,
    /// The 99th percentile of the same distances.
    pub p99_bytes: Option<f64>,
    /// Pairs of cache size in bytes and hit ratio of an LRU cache of that size, both rising.
    pub lru_hit_ratio: Vec<(f64, f64)>,
}

/// A sampled block.
struct Seen {
    time: u64,
    hash: u32,
}

/// Computes the distances of a stream of accesses.
pub(crate) struct Distances {
    blocks: HashMap<(u32, u64), Seen>,
    /// Sampled blocks by hash. The ones with the largest hash leave the sample first.
    by_hash: BTreeSet<(u32, u32, u64)>,
    /// One mark per sampled block, at the time of its last access.
    marks: Fenwick,
    time: u64,
    /// Blocks with a hash below this are in the sample.
    threshold: u32,
    /// Accesses by class of distance, each scaled by the sampling rate at its time.
    counts: BTreeMap<u32, f64>,
    first: f64,
}

impl Default for Distances {
    fn default() -> Distances {
        Distances {
            blocks: HashMap::new(),
            by_hash: BTreeSet::new(),
            marks: Fenwick::new(4 * SAMPLE_MAX),
            time: 0,
            threshold: 1 << HASH_BITS,
            counts: BTreeMap::new(),
            first: 0.0,
        }
    }
}

/// A mix of all bits (the finaliser of splitmix64).
fn hash(device: u32, block: u64) -> u32 {
    (mix(block ^ (u64::from(device) << 40)) >> (64 - HASH_BITS)) as u32
}

impl Distances {
    /// An access to a block of 4 KiB.
    pub fn access(&mut self, device: u32, block: u64) {
        let hash = hash(device, block);
        if hash >= self.threshold {
            return;
        }
        if self.time as usize == self.marks.len() {
            self.renumber();
        }
        let rate = self.rate();
        let time = self.time;
        self.time += 1;
        if let Some(seen) = self.blocks.get_mut(&(device, block)) {
            let between = self.marks.sum(time as usize) - self.marks.sum(seen.time as usize + 1);
            self.marks.add(seen.time as usize, -1);
            seen.time = time;
            // The block itself counts: a block that is accessed twice in a row needs a cache of one block.
            let class = class_of((between + 1) as f64 / rate);
            *self.counts.entry(class).or_default() += 1.0 / rate;
        } else {
            self.first += 1.0 / rate;
            self.blocks.insert((device, block), Seen { time, hash });
            self.by_hash.insert((hash, device, block));
        }
        self.marks.add(time as usize, 1);
        while self.blocks.len() > SAMPLE_MAX {
            self.shrink();
        }
    }

    fn rate(&self) -> f64 {
        f64::from(self.threshold) / f64::from(1u32 << HASH_BITS)
    }

    /// Lowers the threshold to the largest hash in the sample; blocks with that hash leave.
    fn shrink(&mut self) {
        let Some(&(largest, ..)) = self.by_hash.last() else {
            return;
        };
        self.threshold = largest;
        for (_, device, block) in self.by_hash.split_off(&(largest, 0, 0)) {
            if let Some(seen) = self.blocks.remove(&(device, block)) {
                self.marks.add(seen.time as usize, -1);
            }
        }
    }

    /// Gives the sampled blocks the lowest times, in the same order, so that the tree has at most four times the size of the sample.
    fn renumber(&mut self) {
        let mut order: Vec<&mut Seen> = self.blocks.values_mut().collect();
        order.sort_unstable_by_key(|s| (s.time, s.hash));
        self.marks = Fenwick::new(self.marks.len());
        for (i, seen) in order.iter_mut().enumerate() {
            seen.time = i as u64;
            self.marks.add(i, 1);
        }
        self.time = order.len() as u64;
    }

    pub fn summary(&self) -> Reuse {
        let again: f64 = self.counts.values().sum();
        let accesses = again + self.first;
        let mut sum = 0.0;
        let mut curve = Vec::with_capacity(self.counts.len());
        for (&class, &count) in &self.counts {
            sum += count;
            curve.push((bytes_of(class), sum / accesses));
        }
        let percentile = |share: f64| {
            let at = share * again / accesses;
            curve
                .iter()
                .find(|(_, ratio)| *ratio >= at)
                .map(|(bytes, _)| *bytes)
        };
        let (p50_bytes, p90_bytes, p99_bytes) =
            (percentile(0.5), percentile(0.9), percentile(0.99));
        Reuse {
            block_bytes: 4096,
            sampling_rate: self.rate(),
            accesses,
            first_ratio: if accesses > 0.0 {
                self.first / accesses
            } else {
                0.0
            },
            p50_bytes,
            p90_bytes,
            p99_bytes,
            lru_hit_ratio: curve,
        }
    }
}

/// The class of a distance of 1 or more blocks. Small distances have a class each.
fn class_of(distance: f64) -> u32 {
    (distance.log2() * PER_OCTAVE).ceil().max(0.0) as u32
}

/// The largest distance of a class, in bytes.
fn bytes_of(class: u32) -> f64 {
    (f64::from(class) / PER_OCTAVE).exp2().floor() * 4096.0
}

/// A Fenwick tree: prefix sums in logarithmic time.
struct Fenwick(Vec<i64>);

impl Fenwick {
    fn new(n: usize) -> Fenwick {
        Fenwick(vec![0; n + 1])
    }

    fn len(&self) -> usize {
        self.0.len() - 1
    }

    fn add(&mut self, at: usize, by: i64) {
        let mut i = at + 1;
        while i < self.0.len() {
            self.0[i] += by;
            i += i & i.wrapping_neg();
        }
    }

    /// The sum of the elements before `end`.
    fn sum(&self, end: usize) -> i64 {
        let (mut i, mut sum) = (end, 0);
        while i > 0 {
            sum += self.0[i];
            i &= i - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hits of an LRU cache of `capacity` blocks, by brute force.
    fn lru(accesses: &[u64], capacity: usize) -> usize {
        let (mut stack, mut hits) = (Vec::new(), 0);
        for &a in accesses {
            if let Some(at) = stack.iter().position(|&b| b == a) {
                hits += usize::from(stack.len() - at <= capacity);
                stack.remove(at);
            }
            stack.push(a);
        }
        hits
    }

    /// A fixed walk with reuse near and far.
    fn walk(n: u64, span: u64) -> Vec<u64> {
        let mut r = isotherm_core::random::SplitMix64::new(12345);
        (0..n)
            .map(|_| {
                let near = r.below(3) == 0;
                r.below(if near { span / 50 } else { span })
            })
            .collect()
    }

    #[test]
    fn small_traces_are_exact() {
        let accesses = walk(20_000, 500);
        let mut d = Distances::default();
        for &b in &accesses {
            d.access(0, b);
        }
        let reuse = d.summary();
        assert!((reuse.sampling_rate - 1.0).abs() < 1e-12);
        for (bytes, ratio) in &reuse.lru_hit_ratio {
            let hits = lru(&accesses, (bytes / 4096.0) as usize);
            assert!(
                (ratio - hits as f64 / 20_000.0).abs() < 1e-9,
                "{bytes}: {ratio}, {hits} hits"
            );
        }
    }

    #[test]
    fn samples_are_near_the_truth() {
        // 300 000 blocks, of which the sample keeps a tenth.
        let accesses = walk(1_500_000, 300_000);
        let mut d = Distances::default();
        for &b in &accesses {
            d.access(0, b);
        }
        let reuse = d.summary();
        assert!(reuse.sampling_rate < 0.2 && d.blocks.len() <= SAMPLE_MAX);
        let distinct: std::collections::HashSet<u64> = accesses.iter().copied().collect();
        let first = distinct.len() as f64 / accesses.len() as f64;
        assert!(
            (reuse.first_ratio - first).abs() < 0.02,
            "{} for {first}",
            reuse.first_ratio
        );
        // Two thirds are uniform over 300 000 blocks and a third over 6 000. The third with short distances fits a cache of about 60 000
        // blocks.
        let near = reuse
            .lru_hit_ratio
            .iter()
            .rfind(|(b, _)| *b <= 60_000.0 * 4096.0)
            .map_or(0.0, |p| p.1);
        assert!((0.38..0.52).contains(&near), "{near}");
    }
}
