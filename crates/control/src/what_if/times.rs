//! The mean latency with other hits.
//!
//! What an access takes on flash is what the engine measures there. What one takes on the disk follows from the measured mean,
//! so queues and moves are included: disk = (mean − hits × flash) ÷ misses. With other hits the disk has another load. Two cases limit
//! the answer: requests wait at the disk as long as today (users that wait for each answer), or for as long as in a queue with the load
//! that is left (M/M/1, in which a request takes service ÷ (1 − load)).

use crate::shadow::Range;
use isotherm_answers::Between;

/// Most load of the disk of which a latency is predicted.
const LOAD_MOST: f64 = 0.95;

/// Times of accesses, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    fast: f64,
    disk: f64,
    service: f64,
    /// Misses of today, 0 to 1.
    misses: f64,
}

impl Times {
    /// The times behind a measured mean; `None` if there are too few misses to tell, or nothing is known of flash.
    pub(super) fn of(mean: f64, hits: f64, fast: f64, service: f64) -> Option<Times> {
        let misses = 1.0 - hits;
        let disk = (mean - hits * fast) / misses;
        (misses > 0.01 && fast > 0.0 && disk > fast).then(|| Times {
            fast,
            disk,
            service: if service > 0.0 {
                service.min(disk)
            } else {
                disk
            },
            misses,
        })
    }
    /// The mean latency with so many hits. See the module; `None`: the disk might not keep up.
    pub(super) fn mean(self, hits: Range) -> Option<Between> {
        let at = |h: f64| {
            let misses = 1.0 - h;
            let load = (1.0 - self.service / self.disk) * misses / self.misses;
            let alone = h * self.fast + misses * self.disk;
            let shared = h * self.fast + misses * self.service / (1.0 - load);
            (load < LOAD_MOST).then_some((alone, shared))
        };
        let all = [at(hits.low)?, at(hits.hits)?, at(hits.high)?];
        let each = || all.iter().flat_map(|a| [a.0, a.1]);
        Some(Between {
            value: f64::midpoint(all[1].0, all[1].1),
            low: each().fold(f64::INFINITY, f64::min),
            high: each().fold(0.0, f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(hits: f64) -> Range {
        Range {
            hits,
            low: hits,
            high: hits,
        }
    }

    #[test]
    fn the_mean_of_today_is_the_measured_one() {
        // 80 % hits of 0.1 ms; the disk's 10 ms are half waiting.
        let mean = 0.8 * 0.0001 + 0.2 * 0.010;
        let t = Times::of(mean, 0.8, 0.0001, 0.005).expect("known");
        let today = t.mean(range(0.8)).expect("it keeps up");
        for v in [today.low, today.value, today.high] {
            assert!((v - mean).abs() < 1e-9, "{today:?}");
        }
        // Half as many misses: between half of the disk's part, and less because queues are shorter (load 0.25, 6.67 ms).
        let more = t.mean(range(0.9)).expect("it keeps up");
        assert!((more.high - (0.9 * 0.0001 + 0.1 * 0.010)).abs() < 1e-9);
        assert!((more.low - (0.9 * 0.0001 + 0.1 * 0.005 / 0.75)).abs() < 1e-9);
        // Twice as many misses fill the disk: nothing is promised.
        assert_eq!(t.mean(range(0.6)), None);
        // Nothing misses, or flash looks slower than the disk: nothing is known.
        assert!(Times::of(0.0001, 1.0, 0.0001, 0.005).is_none());
        assert!(Times::of(0.0001, 0.5, 0.001, 0.005).is_none());
    }
}
