//! Estimates hit ratios from samples of the extents: miniature runs, for traces that are too long to be played in full.
//!
//! Spatial sampling (SHARDS: Waldspurger, Park, Garthwaite, Ahmad; FAST '15): an extent belongs to a sample if the hash of its address is
//! in the sample's range, so either all of its accesses are sampled or none. A policy plays the sample on a fast tier that is smaller by
//! the same rate (miniature simulation: Waldspurger, Saemundsson, Ahmad, Park; ATC '17), so it works for every replacement and not only for
//! LRU. A sample may have more or fewer accesses than its share, depending on whether hot extents are in it. The difference counts as hits
//! (SHARDS-adj).
//!
//! [`REPEATS`] samples without a common extent are played. Their mean is the estimate. Its error is half of the 95 % confidence interval by
//! Student's t, computed from the spread of the samples.
//!
//! The trace is read once, whatever the number of sizes and policies. Memory: 64 bytes per sampled access.

use isotherm_core::random::mix;
use isotherm_traces::{Op, Record};

use crate::LabError;
use crate::policy_spec::PolicySpec;
use crate::sim::{
    Begin, Memory, Report, Run, SampleReport, Setup, Source, Watch, each_batch, span,
};
use crate::size::Size;

/// Number of samples that are played. No two of them have a common extent.
pub const REPEATS: usize = 4;
/// Student's t for 95 % on both sides and [`REPEATS`] - 1 degrees of freedom.
const T95: f64 = 3.182;
/// Fewest slots of a sample's fast tier. With fewer, rounding would have more effect than the policy.
const SLOTS_MIN: u64 = 16;

/// Samples of a trace that are ready to be played.
pub struct Samples {
    name: String,
    rate: f64,
    shift: u32,
    warm_up: u64,
    limit: Option<u64>,
    parts: Vec<Part>,
    /// Counts of the whole trace after the warm-up.
    whole: Counts,
}

/// One sample.
struct Part {
    accesses: Memory,
    /// Number of its accesses before the end of the warm-up.
    warm_up: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
    accesses: u64,
}

/// A mix of all bits (the finaliser of SplitMix64).
fn hash(device: u32, extent: u64) -> u64 {
    mix(extent ^ (u64::from(device) << 44) ^ 0x9e37_79b9_7f4a_7c15)
}

/// Checks that the rate is in the range of [`Samples::read`].
///
/// # Errors
/// The rate is out of range; the message names the range.
pub fn check_rate(rate: f64) -> Result<f64, String> {
    let most = 1.0 / REPEATS as f64;
    if (1e-6..=most).contains(&rate) {
        Ok(rate)
    } else {
        Err(format!(
            "sample: must be within 0.000001 and {most} ({REPEATS} samples of that size are played)"
        ))
    }
}

/// Checks that a sample can represent this policy.
///
/// # Errors
/// The policy uses data that a sample does not keep; the message names it.
fn fits(policy: &PolicySpec) -> Result<(), LabError> {
    let built = policy.build().map_err(LabError::Setup)?;
    let caching = isotherm_core::policy::PRESETS
        .iter()
        .any(|p| p.name == policy.name && p.kind() == "caching");
    if built.minds_gaps() || !caching {
        return Err(LabError::setup(format!(
            "sample: `{policy}` looks at neighbours, at addresses or at moves a plan, which a sample of extents does not keep: \
             only caching policies that go by single extents can be sampled (lru, arc, s3-fifo, sieve, ...)"
        )));
    }
    Ok(())
}

impl Samples {
    /// Reads the trace once and keeps the accesses of [`REPEATS`] samples, each with a share `rate` of the extents. Extent size, limit and
    /// warm-up are those of `setup`.
    ///
    /// # Errors
    /// The trace cannot be read, or the rate is out of range.
    pub fn read(source: &dyn Source, setup: &Setup, rate: f64) -> Result<Samples, LabError> {
        check_rate(rate).map_err(LabError::Setup)?;
        setup.check()?;
        let shift = setup.extent_bytes.trailing_zeros();
        let width = (rate * 2f64.powi(64)) as u64;
        let mut records: Vec<Vec<Record>> = vec![Vec::new(); REPEATS];
        let mut warm = [0u64; REPEATS];
        let (mut seen, mut whole) = (0u64, Counts::default());
        let mut reading = std::time::Duration::ZERO;
        let mut reader = source.open()?;
        each_batch(reader.as_mut(), setup.limit, &mut reading, |batch| {
            for r in batch {
                if seen == setup.warm_up {
                    for (w, kept) in warm.iter_mut().zip(&records) {
                        *w = kept.len() as u64;
                    }
                }
                seen += 1;
                let counts = seen > setup.warm_up;
                whole.requests += u64::from(counts);
                if !matches!(r.op, Op::Read | Op::Write) {
                    continue;
                }
                let (from, to) = span(r, shift);
                if counts {
                    whole.add(r, to - from + 1);
                }
                for extent in from..=to {
                    let part = (hash(r.device, extent) / width.max(1)) as usize;
                    if let Some(kept) = records.get_mut(part) {
                        kept.push(piece(r, extent, shift));
                    }
                }
            }
            Ok(())
        })?;
        if seen <= setup.warm_up {
            return Err(LabError::setup(format!(
                "warm-up: the trace has only {seen} requests, nothing is left to count"
            )));
        }
        let name = source.name();
        let parts = records.into_iter().zip(warm);
        Ok(Samples {
            parts: parts
                .map(|(records, warm_up)| Part {
                    accesses: Memory::new(&name, records),
                    warm_up,
                })
                .collect(),
            name,
            rate,
            shift,
            warm_up: setup.warm_up,
            limit: setup.limit,
            whole,
        })
    }

    /// The estimate for `setup`. Its policy and sizes may differ from those with which the trace was read.
    ///
    /// # Errors
    /// The policy cannot be sampled, or the sample is too small for the sizes.
    pub fn run(&self, setup: &Setup, watch: Option<&Watch>) -> Result<Report, LabError> {
        fits(&setup.policy)?;
        let same = (
            setup.extent_bytes.trailing_zeros(),
            setup.warm_up,
            setup.limit,
        );
        if same != (self.shift, self.warm_up, self.limit) {
            return Err(LabError::setup(
                "sample: was read for another extent size, limit or warm-up",
            ));
        }
        let mut reports = Vec::new();
        for part in &self.parts {
            let small = self.shrunk(setup, part)?;
            let run = Run::new(&small, &part.accesses);
            let run = match watch {
                Some(w) => run.watch(w),
                None => run,
            };
            let report = run.hit_only()?;
            let slots = report.fast_bytes >> self.shift;
            if slots < SLOTS_MIN {
                return Err(self.too_small(&format!("{slots} slots"), "on tier 0"));
            }
            reports.push(report);
        }
        Ok(self.join(setup, &reports))
    }

    /// The tiers, made smaller by the rate.
    fn shrunk(&self, setup: &Setup, part: &Part) -> Result<Setup, LabError> {
        let mut small = Setup {
            warm_up: part.warm_up,
            begin: Begin::default(),
            limit: None,
            ..setup.clone()
        };
        if part.accesses.records.len() as u64 <= part.warm_up {
            return Err(self.too_small("no access", "after the warm-up"));
        }
        let last = small.tiers.len() - 1;
        for (i, tier) in small.tiers.iter_mut().take(last).enumerate() {
            if let Some(bytes) = tier.size.bytes() {
                let fewer = (bytes as f64 * self.rate).round() as u64;
                tier.size = Size::Bytes(fewer.max(1 << self.shift));
                if fewer >> self.shift < SLOTS_MIN {
                    let slots = format!("{} slots", fewer >> self.shift);
                    return Err(self.too_small(&slots, &format!("on tier {i}")));
                }
            }
        }
        Ok(small)
    }

    fn too_small(&self, what: &str, place: &str) -> LabError {
        LabError::setup(format!(
            "{}: sample: a share of {} has {what} {place} (at least {SLOTS_MIN} slots are needed): take a larger sample",
            self.name, self.rate
        ))
    }

    fn join(&self, setup: &Setup, reports: &[Report]) -> Report {
        let n = reports.len() as f64;
        let expected = self.whole.accesses as f64 * self.rate;
        // The difference between the sample's number of accesses and its share counts as hits.
        let adjusted = |r: &Report, ratio: f64| {
            let misses = (1.0 - ratio) * r.accesses as f64;
            (1.0 - misses / expected.max(1.0)).clamp(0.0, 1.0)
        };
        let mean = |of: &dyn Fn(&Report) -> f64| reports.iter().map(of).sum::<f64>() / n;
        let hits = mean(&|r| adjusted(r, r.fast_hit_ratio));
        let spread = reports
            .iter()
            .map(|r| (adjusted(r, r.fast_hit_ratio) - hits).powi(2))
            .sum::<f64>()
            / (n - 1.0);
        let scaled = |of: &dyn Fn(&Report) -> u64| (mean(&|r| of(r) as f64) / self.rate) as u64;
        let sampled: u64 = reports.iter().map(|r| r.accesses).sum();
        let first = reports.first().cloned().unwrap_or_default();
        Report {
            trace: self.name.clone(),
            policy: setup.policy.to_string(),
            fast_bytes: setup.tiers[0]
                .size
                .bytes()
                .unwrap_or_else(|| scaled(&|r| r.fast_bytes)),
            requests: self.whole.requests,
            reads: self.whole.reads,
            writes: self.whole.writes,
            bytes_read: self.whole.bytes_read,
            bytes_written: self.whole.bytes_written,
            accesses: self.whole.accesses,
            fast_hit_ratio: hits,
            fast_served_ratio: mean(&|r| adjusted(r, r.fast_served_ratio)),
            promotions: scaled(&|r| r.promotions),
            demotions: scaled(&|r| r.demotions),
            fetches: scaled(&|r| r.fetches),
            evictions: scaled(&|r| r.evictions),
            writebacks: scaled(&|r| r.writebacks),
            refused: scaled(&|r| r.refused),
            migrated_bytes: scaled(&|r| r.migrated_bytes),
            touched_extents: scaled(&|r| r.touched_extents),
            warm_up: self.warm_up,
            by_class: std::collections::BTreeMap::default(),
            sample: Some(SampleReport {
                rate: self.rate,
                samples: reports.len() as u64,
                accesses: sampled,
                fast_hit_ratio_error: T95 * (spread / n).sqrt(),
            }),
            wall_s: reports.iter().map(|r| r.wall_s).sum(),
            reader_s: reports.iter().map(|r| r.reader_s).sum(),
            ..first
        }
    }
}

impl Counts {
    fn add(&mut self, r: &Record, extents: u64) {
        self.accesses += extents;
        if r.op == Op::Write {
            self.writes += 1;
            self.bytes_written += u64::from(r.len);
        } else {
            self.reads += 1;
            self.bytes_read += u64::from(r.len);
        }
    }
}

/// The part of a request that is in one of its extents, as a request of its own.
fn piece(r: &Record, extent: u64, shift: u32) -> Record {
    let (start, size) = (extent << shift, 1u64 << shift);
    let from = r.offset.max(start);
    let to = r.end().min(start + size);
    Record {
        offset: from,
        len: (to - from) as u32,
        ..*r
    }
}
