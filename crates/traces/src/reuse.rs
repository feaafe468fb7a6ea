//! Reuse distances from a sample of blocks: the size that an LRU cache needs for a given hit ratio.
//!
//! Fixed-size spatial sampling (SHARDS: Waldspurger, Park, Garthwaite, Ahmad; FAST '15). A block belongs to the sample if the hash of its
//! address is below a threshold, so either all of its accesses are sampled or none. The distance of an access is the number of distinct
//! sampled blocks since the last access to the same block, divided by the sampling rate. The rate begins at 1, so small traces are exact.
//! When the sample exceeds its bound, the threshold is lowered and blocks leave the sample. Memory is bounded: about 100 bytes per sampled
//! block. Time is O(log) per sampled access.
//!
//! Hits are all accesses, which are counted, without the misses, which are estimated: few hot blocks, which the sample may hold or not, hardly
//! miss (the correction SHARDS-adj has the same aim). First accesses are counted as well, and the misses are scaled by what the sample made of
//! their number. The error has two parts: that of the sample is estimated from groups of its blocks, and that of the distances from the number
//! of sampled blocks that each distance counts.

use isotherm_core::random::mix;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

/// Most blocks in the sample.
const SAMPLE_MAX: usize = 1 << 15;
/// Hashes are 24 bits wide, so rates are multiples of 2^-24.
const HASH_BITS: u32 = 24;
/// The number of histogram classes per octave of distance.
const PER_OCTAVE: f64 = 8.0;
/// Groups of sampled blocks, whose differences show the error of the sample.
const GROUPS: usize = 32;
/// Distances of fewer sampled blocks are too vague for a point of the curve.
const LEAST: f64 = 32.0;
/// Standard errors within which the whole curve lies.
const WIDE: f64 = 3.0;

/// The distribution of the reuse distances of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reuse {
    /// Always 4096: the unit that distances count.
    pub block_bytes: u32,
    /// Share of blocks in the sample at the end; 1 if the figures are exact.
    pub sampling_rate: f64,
    /// Accesses of 4 KiB.
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
    /// The most by which a hit ratio of the list may be wrong, in 95 of 100 traces; 0 if the figures are exact.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub lru_error: f64,
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
    /// Accesses by class of distance and group of blocks, each scaled by the sampling rate at its time.
    counts: BTreeMap<u32, [f64; GROUPS]>,
    first: [f64; GROUPS],
    /// All accesses, sampled or not.
    accesses: u64,
    /// Most blocks in the sample.
    most: usize,
}

impl Default for Distances {
    fn default() -> Distances {
        Distances::with_sample(SAMPLE_MAX)
    }
}

impl Distances {
    /// At most `most` blocks are in the sample.
    fn with_sample(most: usize) -> Distances {
        Distances {
            blocks: HashMap::new(),
            by_hash: BTreeSet::new(),
            marks: Fenwick::new(4 * most),
            time: 0,
            threshold: 1 << HASH_BITS,
            counts: BTreeMap::new(),
            first: [0.0; GROUPS],
            accesses: 0,
            most,
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
        self.accesses += 1;
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
            // The block itself counts: a block that is accessed twice in a row needs a cache of one block. It is surely sampled, the
            // others are sampled at this rate.
            let class = class_of(between as f64 / rate + 1.0);
            self.counts.entry(class).or_default()[hash as usize % GROUPS] += 1.0 / rate;
        } else {
            self.first[hash as usize % GROUPS] += 1.0 / rate;
            self.blocks.insert((device, block), Seen { time, hash });
            self.by_hash.insert((hash, device, block));
        }
        self.marks.add(time as usize, 1);
        while self.blocks.len() > self.most {
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

    /// The figures; `distinct` is the number of different blocks, if it is known.
    pub fn summary(&self, distinct: Option<u64>) -> Reuse {
        let all = self.accesses.max(1) as f64;
        let sampled: f64 = self.first.iter().sum();
        let known = distinct.filter(|_| sampled > 0.0);
        let scale = known.map_or(1.0, |n| n as f64 / sampled);
        let mut misses = self.first;
        // From the largest distance down: what is farther than a class misses in a cache of its size.
        let mut points: Vec<Point> = Vec::with_capacity(self.counts.len());
        for (&class, counts) in self.counts.iter().rev() {
            let missed: f64 = misses.iter().sum();
            // Where the first accesses are known, only what the misses differ from their proportion to these can be wrong.
            let share = known.map_or(0.0, |_| missed / sampled);
            let rest = std::array::from_fn(|g| misses[g] - share * self.first[g]);
            points.push(Point {
                class,
                ratio: (1.0 - missed * scale / all).clamp(0.0, 1.0),
                error: self.spread(&rest) * scale / all,
            });
            misses = std::array::from_fn(|g| misses[g] + counts[g]);
        }
        points.reverse();
        let most = points.last().map_or(0.0, |p| p.ratio);
        let percentile = |share: f64| {
            let found = points.iter().find(|p| p.ratio >= share * most);
            found.map(|p| bytes_of(p.class))
        };
        let (p50_bytes, p90_bytes, p99_bytes) =
            (percentile(0.5), percentile(0.9), percentile(0.99));
        let rate = self.rate();
        let fit = |p: &&Point| self.is_exact() || distance_of(p.class) * rate >= LEAST;
        let first = sampled * scale / all;
        let error = points.iter().filter(fit).map(|p| self.error(p, &points));
        Reuse {
            block_bytes: 4096,
            sampling_rate: rate,
            accesses: self.accesses as f64,
            first_ratio: first.min(1.0),
            p50_bytes,
            p90_bytes,
            p99_bytes,
            lru_error: error.fold(0.0, f64::max),
            lru_hit_ratio: points
                .iter()
                .filter(fit)
                .map(|p| (bytes_of(p.class), p.ratio))
                .collect(),
        }
    }

    fn is_exact(&self) -> bool {
        self.threshold == 1 << HASH_BITS
    }

    /// The standard error of a sum, from the sums of the groups of sampled blocks.
    fn spread(&self, sums: &[f64; GROUPS]) -> f64 {
        let n = GROUPS as f64;
        let mean = sums.iter().sum::<f64>() / n;
        let squares: f64 = sums.iter().map(|s| (s - mean).powi(2)).sum();
        (squares * n / (n - 1.0) * (1.0 - self.rate())).sqrt()
    }

    /// The error of a point of the curve: that of its misses, and what a wrong distance moves past it.
    fn error(&self, at: &Point, points: &[Point]) -> f64 {
        if self.is_exact() {
            return 0.0;
        }
        let distance = distance_of(at.class);
        let vague = ((1.0 - self.rate()) / (self.rate() * distance)).sqrt();
        // Within a class, distances are taken to be spread evenly.
        let ratio_at = |distance: f64| {
            let class = distance.max(1.0).log2() * PER_OCTAVE;
            let above = points.partition_point(|p| f64::from(p.class) < class);
            let ratio = |i: usize| points.get(i).map_or(0.0, |p| p.ratio);
            let below = above.checked_sub(1).map_or(0.0, ratio);
            let Some(point) = points.get(above) else {
                return below;
            };
            let part = (class - f64::from(point.class) + 1.0).max(0.0);
            below + (point.ratio - below) * part
        };
        let less = at.ratio - ratio_at(distance * (1.0 - vague));
        let more = ratio_at(distance * (1.0 + vague)) - at.ratio;
        WIDE * at.error + less.max(more)
    }
}

/// A point of the curve of hit ratios, with the standard error of its misses.
struct Point {
    class: u32,
    ratio: f64,
    error: f64,
}

/// The class of a distance of 1 or more blocks. Small distances have a class each.
fn class_of(distance: f64) -> u32 {
    (distance.log2() * PER_OCTAVE).ceil().max(0.0) as u32
}

/// The largest distance of a class, in blocks.
fn distance_of(class: u32) -> f64 {
    (f64::from(class) / PER_OCTAVE).exp2().floor()
}

/// The largest distance of a class, in bytes.
fn bytes_of(class: u32) -> f64 {
    distance_of(class) * 4096.0
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
        let reuse = d.summary(None);
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
        let reuse = d.summary(None);
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

    /// The sampled curve of skewed traces is within the error that it states of the exact one, in 95 of 100 at least.
    #[test]
    fn the_stated_error_holds() {
        let (mut within, mut stated, mut wrong) = (0, 0.0, 0.0_f64);
        for seed in 0..100 {
            let mut r = isotherm_core::random::SplitMix64::new(seed);
            let (span, skew) = (4_000_u64 << (seed % 3), 1.0 + (seed % 7) as f64);
            let mut sampled = Distances::with_sample(512);
            let mut exact = Distances::default();
            for _ in 0..20_000 {
                // A power of a uniform number: few blocks are hot, and the more the larger the power.
                let u = r.below(1 << 30) as f64 / f64::from(1 << 30);
                let block = (u.powf(skew) * span as f64) as u64 + (seed << 32);
                sampled.access(0, block);
                exact.access(0, block);
            }
            let exact = exact.summary(None);
            let distinct = (exact.first_ratio * exact.accesses).round() as u64;
            // Every other one knows the number of different blocks.
            let sampled = sampled.summary((seed % 2 == 0).then_some(distinct));
            assert!(exact.lru_error.total_cmp(&0.0).is_eq() && sampled.sampling_rate <= 1.0);
            let truth = |bytes: f64| {
                let below = exact.lru_hit_ratio.iter().rfind(|p| p.0 <= bytes);
                below.map_or(0.0, |p| p.1)
            };
            let off = sampled
                .lru_hit_ratio
                .iter()
                .map(|&(b, h)| (h - truth(b)).abs());
            let off = off.fold(0.0, f64::max);
            within += u32::from(off <= sampled.lru_error);
            (stated, wrong) = (stated + sampled.lru_error, wrong + off);
        }
        assert!(
            within >= 95,
            "{within} of 100; stated {stated}, wrong {wrong}"
        );
        // An error that is ten times the difference would say nothing.
        assert!(stated < 10.0 * wrong, "stated {stated}, wrong {wrong}");
    }
}
