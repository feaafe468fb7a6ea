//! Distributions: Zipf ranks in constant time, weighted tables, and scattered addresses.

use rand::RngExt;

use super::run::Rng;

/// Draws an index by weight with Walker's alias method: one random number per draw.
#[derive(Clone, Debug)]
pub(super) struct Alias {
    /// The threshold, as a share of 2^32, below which the column itself is drawn; otherwise its alias.
    columns: Vec<(u32, u32)>,
    shift: u32,
}

impl Alias {
    /// Weights must be finite and not all zero; at most 2^24 of them.
    pub fn new(weights: &[f64]) -> Alias {
        // The number of columns is a power of two, so that a shift gives the index.
        let n = weights.len().next_power_of_two().max(2);
        let total: f64 = weights.iter().sum();
        let mut scaled: Vec<f64> = weights.iter().map(|w| w / total * n as f64).collect();
        scaled.resize(n, 0.0);
        let mut columns: Vec<(u32, u32)> = (0..n as u32).map(|i| (u32::MAX, i)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..n).partition(|&i| scaled[i] < 1.0);
        while let (Some(&s), Some(&l)) = (small.last(), large.last()) {
            small.pop();
            columns[s] = ((scaled[s] * 4_294_967_296.0) as u32, l as u32);
            scaled[l] -= 1.0 - scaled[s];
            if scaled[l] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        // What remains here differs from 1 by rounding only, except that an empty column must never be drawn.
        for s in small {
            if scaled[s] == 0.0 {
                columns[s] = (0, 0);
            }
        }
        Alias {
            columns,
            shift: 64 - n.trailing_zeros(),
        }
    }

    /// The index for 64 random bits. The high bits choose the column, the low 32 bits decide between it and its alias.
    pub fn pick(&self, bits: u64) -> usize {
        let at = (bits >> self.shift) as usize;
        let (keep, other) = self.columns[at];
        if (bits as u32) < keep {
            at
        } else {
            other as usize
        }
    }
}

/// The number of ranks with a weight of their own. The ranks after them are grouped into segments.
const HEAD: u64 = 1 << 14;
/// A segment's length is its first rank divided by this, so a weight within it is off by at most s/64.
const SEGMENT: u64 = 64;

/// Zipf ranks 0…n−1: rank r has weight (r + 1)^−s. The first 16 384 ranks are exact. Later ranks share a weight within segments whose
/// length is 1/64 of their first rank. A draw takes two random numbers and no logarithm, because a workload may need a billion draws.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    alias: Alias,
    /// The first rank and the number of ranks of each column.
    columns: Vec<(u64, u32)>,
}

impl Zipf {
    /// `n` of 1…2^40 ranks, exponent `s` of 0…5.
    pub fn new(n: u64, s: f64) -> Zipf {
        Zipf::flattened(n, s, 0.0)
    }

    /// Zipf-Mandelbrot: rank r has weight (r + 1 + q)^−s, so roughly the first `q` ≥ 0 ranks have nearly equal weights.
    pub fn flattened(n: u64, s: f64, q: f64) -> Zipf {
        let (mut columns, mut weights) = (Vec::new(), Vec::new());
        let mut rank = 0;
        while rank < n {
            let ranks = if rank < HEAD {
                1
            } else {
                (rank / SEGMENT).min(n - rank)
            };
            columns.push((rank, ranks as u32));
            // The weight in the middle of the segment is used for the whole segment.
            let middle = rank as f64 + f64::midpoint(ranks as f64, 1.0);
            weights.push(ranks as f64 * (middle + q).powf(-s));
            rank += ranks;
        }
        Zipf {
            alias: Alias::new(&weights),
            columns,
        }
    }

    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let (first, ranks) = self.columns[self.alias.pick(rng.random())];
        if ranks == 1 {
            return first;
        }
        first + ((u64::from(rng.random::<u32>()) * u64::from(ranks)) >> 32)
    }
}

/// A one-to-one mapping of 0…n−1 to itself that separates neighbours, so that the hot ranks are spread over the whole volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scatter {
    n: u64,
    factor: u64,
    /// n − 1 if n is a power of two; the division is then a mask.
    mask: Option<u64>,
}

impl Scatter {
    /// `n` of 1…2^32.
    pub fn new(n: u64) -> Scatter {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        // Near the golden section of n, so that successive ranks are spread evenly.
        let golden = (n as f64 * 0.618_033_988_749_894_9) as u64;
        let factor = (golden.max(1)..=golden.max(n))
            .find(|&f| gcd(f, n) == 1)
            .unwrap_or(1);
        Scatter {
            n,
            factor,
            mask: n.is_power_of_two().then(|| n - 1),
        }
    }

    pub fn place(self, rank: u64) -> u64 {
        let product = rank.wrapping_mul(self.factor);
        self.mask
            .map_or_else(|| product % self.n, |mask| product & mask)
    }
}

/// Random sizes by weight.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    alias: Alias,
    sizes: Vec<u64>,
}

impl Sizes {
    /// Pairs of size in bytes and weight.
    pub fn new(table: &[(u64, f64)]) -> Sizes {
        let weights: Vec<f64> = table.iter().map(|t| t.1).collect();
        Sizes {
            alias: Alias::new(&weights),
            sizes: table.iter().map(|t| t.0).collect(),
        }
    }

    pub fn draw(&self, rng: &mut Rng) -> u64 {
        self.sizes[self.alias.pick(rng.random())]
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn alias_draws_by_weight() {
        let alias = Alias::new(&[1.0, 0.0, 3.0]);
        let mut rng = Rng::seed_from_u64(7);
        let mut counts = [0u32; 4];
        for _ in 0..400_000 {
            counts[alias.pick(rng.random())] += 1;
        }
        assert_eq!((counts[1], counts[3]), (0, 0));
        let share = f64::from(counts[0]) / 400_000.0;
        assert!((share - 0.25).abs() < 0.005, "{share}");
    }

    #[test]
    fn zipf_has_the_weights_of_zipf() {
        // The expected share of each decade of ranks, against the exact sums.
        let (n, s) = (1_000_000u64, 0.9);
        let zipf = Zipf::new(n, s);
        let weight =
            |from: u64, to: u64| (from..to).map(|r| ((r + 1) as f64).powf(-s)).sum::<f64>();
        let total = weight(0, n);
        let mut rng = Rng::seed_from_u64(3);
        let draws = 1_000_000;
        let mut ranks: Vec<u64> = (0..draws).map(|_| zipf.rank(&mut rng)).collect();
        ranks.sort_unstable();
        assert!(ranks[ranks.len() - 1] < n);
        for (from, to) in [
            (0, 1),
            (1, 10),
            (10, 1000),
            (1000, 20_000),
            (20_000, 100_000),
            (100_000, n),
        ] {
            let seen = ranks.partition_point(|&r| r < to) - ranks.partition_point(|&r| r < from);
            let (seen, due) = (seen as f64 / f64::from(draws), weight(from, to) / total);
            assert!(
                (seen - due).abs() < 0.003,
                "ranks {from}..{to}: {seen} for {due}"
            );
        }
    }

    #[test]
    fn scatter_is_one_to_one() {
        for n in [1u64, 2, 7, 64, 1000, 4099] {
            let s = Scatter::new(n);
            let mut seen: Vec<u64> = (0..n).map(|r| s.place(r)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..n), "{n}");
        }
    }
}
