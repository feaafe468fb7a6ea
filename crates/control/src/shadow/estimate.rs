//! From counts of groups to a hit ratio with its error, and the correction by what the volume measures.

use super::sampler::GROUPS;

/// Student's t for 95 % on both sides and [`GROUPS`] − 1 degrees of freedom.
const T95: f64 = 2.365;

/// A hit ratio and half of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Share of the accesses that find their extent on flash, 0 to 1.
    pub hits: f64,
    /// The error.
    pub error: f64,
}

/// A hit ratio and the range in which it lies, all from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The most probable value.
    pub hits: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
}

impl Estimate {
    /// From the misses of each group, and from those of one shadow of all groups together (`whole`), which counts. `expected`: accesses of
    /// a group if the sample had exactly its share of all accesses. The difference between this and the sample's own accesses counts as
    /// hits, because it comes from extents that are accessed very often (SHARDS-adj).
    ///
    /// Two errors are added. That of the sample follows from the spread of the groups, and is 0 if all extents are sampled. That of the
    /// miniature: a policy with an eighth of the flash and of the extents does not do exactly the same. The groups differ from the whole
    /// by this much after three halvings, so for each of the `halvings` from the volume to the sample a third of it is taken.
    pub fn of(
        groups: &[u64; GROUPS as usize],
        whole: u64,
        expected: f64,
        halvings: u32,
    ) -> Estimate {
        let (n, expected) = (f64::from(GROUPS), expected.max(1.0));
        let ratios = groups.map(|m| m as f64 / expected);
        let misses = whole as f64 / (n * expected);
        let mean = ratios.iter().sum::<f64>() / n;
        let spread = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let unseen = 1.0 - 0.5f64.powi(halvings as i32);
        let steps = f64::from(halvings) / f64::from(GROUPS.ilog2());
        Estimate {
            hits: (1.0 - misses).clamp(0.0, 1.0),
            error: T95 * (spread / n * unseen).sqrt() + (mean - misses).abs() * steps,
        }
    }
    /// The range without a correction.
    pub fn range(self) -> Range {
        Range {
            hits: self.hits,
            low: (self.hits - self.error).max(0.0),
            high: (self.hits + self.error).min(1.0),
        }
    }
    /// The range with the correction that makes `present`, the estimate for the settings of today, equal to what is `measured`. The odds
    /// of a hit are multiplied, so the result is a ratio again. Nobody knows whether the difference is the same at other settings: the
    /// range contains the values with and without the correction.
    pub fn corrected(self, present: Estimate, measured: f64) -> Range {
        let by = odds(measured) / odds(present.hits);
        let fix = |h: f64| {
            let o = odds(h) * by;
            o / (1.0 + o)
        };
        let raw = self.range();
        Range {
            hits: fix(self.hits),
            low: raw.low.min(fix(raw.low)),
            high: raw.high.max(fix(raw.high)),
        }
    }
}

fn odds(h: f64) -> f64 {
    let h = h.clamp(1e-6, 1.0 - 1e-6);
    h / (1.0 - h)
}

impl Range {
    /// At a size between two steps of the ladder: `part` of the way from `a` to `b` in the logarithm of the size. The hit ratio grows with
    /// the size, so it is between those of the two steps.
    pub fn between(a: Range, b: Range, part: f64) -> Range {
        Range {
            hits: a.hits + (b.hits - a.hits) * part,
            low: a.low.min(b.low),
            high: a.high.max(b.high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_the_groups_is_the_error() {
        let same = Estimate::of(&[25; 8], 200, 100.0, 3);
        assert_eq!((same.hits, same.error), (0.75, 0.0));
        let spread = [20, 30, 20, 30, 20, 30, 20, 30];
        let apart = |halvings| Estimate::of(&spread, 200, 100.0, halvings);
        assert!((apart(9).hits - 0.75).abs() < 1e-12);
        // Standard deviation 0.0535, divided by the root of 8, times 2.365.
        assert!((apart(9).error - 0.0447).abs() < 1e-3, "{:?}", apart(9));
        // All extents are in the sample.
        assert!(apart(0).error <= 0.0);
        // The groups have 5 % more misses than the whole, after three halvings; from the volume to the sample there are six.
        let small = Estimate::of(&[30; 8], 200, 100.0, 6);
        assert!((small.hits - 0.75).abs() < 1e-12 && (small.error - 0.1).abs() < 1e-9);
        // More misses than accesses were expected: no negative ratio.
        assert!(Estimate::of(&[200; 8], 1600, 100.0, 1).hits <= 0.0);
    }

    #[test]
    fn the_correction_makes_the_present_what_is_measured() {
        let e = |hits| Estimate { hits, error: 0.01 };
        let now = e(0.5).corrected(e(0.5), 0.6);
        assert!((now.hits - 0.6).abs() < 1e-9);
        assert!(now.low <= 0.49 && now.high >= 0.609, "{now:?}");
        let more = e(0.9).corrected(e(0.5), 0.6);
        assert!(more.hits > 0.9 && more.high < 1.0, "{more:?}");
        // At the edges nothing leaves 0 to 1.
        for (a, b, m) in [(0.0, 0.0, 1.0), (1.0, 1.0, 0.0), (0.3, 0.0, 0.5)] {
            let r = e(a).corrected(e(b), m);
            assert!(r.low >= 0.0 && r.low <= r.hits && r.hits <= r.high && r.high <= 1.0);
        }
    }
}
