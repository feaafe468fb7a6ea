//! Hit-only runs (docs/policy-rules.md section 0): the same policies under the null engine, without device time.

use std::time::{Duration, Instant};

use isotherm_core::ExtentId;
use isotherm_core::null::{NullCounters, NullEngine};
use isotherm_core::policy::Policy;
use isotherm_core::stats::CLASSES;
use isotherm_traces::{Op, Record};

use super::report::{ClassReport, Report};
use super::setup::Setup;
use super::shape::Shape;
use super::source::{Source, TraceFile};
use super::touched::{Rows, Touched, each_batch, span};
use super::{Watch, digest::Digest};
use crate::LabError;
use crate::hit_only::{self, HitOnlyError};

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    accesses: u64,
    hits: u64,
    requests: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    seen: u64,
    requests: u64,
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
    classes: Vec<Class>,
}

struct Play<P> {
    rows: Rows,
    shift: u32,
    engine: NullEngine<P>,
    sums: Sums,
    digest: Digest,
    warm_up: u64,
    warm: NullCounters,
}

impl<P: Policy> Play<P> {
    fn request(&mut self, r: &Record) {
        self.sums.seen += 1;
        if self.sums.seen == self.warm_up + 1 {
            self.warm = self.engine.counters();
        }
        let counts = self.sums.seen > self.warm_up;
        let s = &mut self.sums;
        s.requests += u64::from(counts);
        let write = match r.op {
            Op::Read => false,
            Op::Write => true,
            // In a run without devices, flushes and discards neither place nor touch data.
            Op::Flush | Op::Discard => return,
        };
        let len = u64::from(r.len);
        if counts && write {
            s.writes += 1;
            s.bytes_written += len;
        } else if counts {
            s.reads += 1;
            s.bytes_read += len;
        }
        let (from, to) = span(r, self.shift);
        // Neighbours in the trace are neighbours in the rows, so a request stays in one piece.
        let first = self.rows.row(from);
        let inside = r.offset & ((1 << self.shift) - 1);
        let request = ((first << self.shift) + inside, r.len);
        let mut class = Class {
            requests: 1,
            bytes: len,
            ..Class::default()
        };
        for row in first..=first + (to - from) {
            let e = ExtentId(row as u32);
            let hit = self.engine.access(r.time, e, write, r.class, request);
            class.accesses += 1;
            class.hits += u64::from(hit);
            self.digest.mix(row << 1 | u64::from(hit));
        }
        if counts {
            let c = &mut s.classes[usize::from(r.class) % CLASSES];
            c.accesses += class.accesses;
            c.hits += class.hits;
            c.requests += class.requests;
            c.bytes += class.bytes;
        }
    }
}

/// Uses the faster player of [`crate::hit_only`] for a trace file if the setup is a plain pair of devices without a warm-up; else `None`.
pub(super) fn fast(setup: &Setup, file: &TraceFile) -> Option<Result<Report, LabError>> {
    let pair = setup.tiers.len() == 2 && setup.tiers.iter().all(|t| t.devices.len() == 1);
    if !pair || setup.warm_up > 0 {
        return None;
    }
    Some(fast_report(setup, file))
}

#[expect(clippy::too_many_lines, reason = "to be divided")]
fn fast_report(setup: &Setup, file: &TraceFile) -> Result<Report, LabError> {
    setup.check()?;
    let mut options = file.options.clone();
    options.limit = match (options.limit, setup.limit) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let shift = setup.extent_bytes.trailing_zeros();
    let size = setup.tiers[0].size;
    let params: Vec<_> = (setup.policy.params.iter())
        .map(|(k, v)| (k.as_str(), v.value()))
        .collect();
    let how = hit_only::Setup {
        policy: &setup.policy.name,
        params: &params,
        extent_shift: shift,
        fast_slots: &|touched| {
            size.bytes()
                .map_or_else(|| size.of(touched), |b| b >> shift)
        },
        keep_bytes: hit_only::KEEP_BYTES,
    };
    let r =
        hit_only::hit_only(|| isotherm_traces::open(&file.path, &options), &how).map_err(|e| {
            match e {
                HitOnlyError::Trace(e) => LabError::Trace(e),
                other => LabError::setup(format!("{}: {other}", file.label)),
            }
        })?;
    let c = r.counters;
    let seconds = r.wall.saturating_sub(r.reading).as_secs_f64();
    let rate = |n: u64| {
        if seconds > 0.0 {
            n as f64 / seconds
        } else {
            0.0
        }
    };
    let by_class = (r.by_class.iter())
        .map(|(class, k)| {
            let class_report = ClassReport {
                accesses: k.accesses,
                fast_hits: k.hits,
                requests: k.requests,
                bytes: k.bytes,
                time_s: None,
                used: None,
            };
            (class.to_string(), class_report)
        })
        .collect();
    Ok(Report {
        trace: file.label.clone(),
        policy: setup.policy.to_string(),
        extent_bytes: setup.extent_bytes,
        fast_bytes: r.fast_slots.saturating_mul(u64::from(setup.extent_bytes)),
        requests: r.requests,
        reads: r.reads,
        writes: r.writes,
        bytes_read: r.bytes_read,
        bytes_written: r.bytes_written,
        fast_hit_ratio: c.hits as f64 / c.accesses.max(1) as f64,
        fast_served_ratio: (c.hits + c.placed_fast) as f64 / c.accesses.max(1) as f64,
        accesses: c.accesses,
        promotions: c.promotions,
        demotions: c.demotions,
        fetches: c.fetches,
        evictions: c.evictions,
        writebacks: c.writebacks,
        refused: c.refused,
        migrated_bytes: (c.promotions + c.demotions + c.fetches + c.writebacks)
            * u64::from(setup.extent_bytes),
        by_class,
        hit_only: true,
        touched_extents: r.touched,
        seed: setup.seed,
        digest: r.digest.text(),
        reader: r.reader,
        wall_s: r.wall.as_secs_f64(),
        reader_s: r.reading.as_secs_f64(),
        sim_rate_rps: rate(r.requests),
        sim_rate_accesses_per_s: rate(c.accesses),
        bytes_per_extent: r.bytes as f64 / r.rows as f64,
        ..Report::default()
    })
}

/// Plays `source` under `policy` without time.
#[expect(clippy::too_many_lines, reason = "to be divided")]
pub(super) fn play<P: Policy>(
    setup: &Setup,
    source: &dyn Source,
    touched: &Touched,
    policy: P,
    watch: Option<&Watch>,
) -> Result<Report, LabError> {
    let begun = Instant::now();
    let shape = Shape::new(setup, touched, policy.minds_gaps(), &source.name())?;
    let mut play = Play {
        rows: shape.rows(touched),
        shift: touched.shift,
        engine: NullEngine::new(shape.geometry()?, policy),
        sums: Sums {
            classes: vec![Class::default(); CLASSES],
            ..Sums::default()
        },
        digest: Digest::default(),
        warm_up: setup.warm_up,
        warm: NullCounters::default(),
    };
    let mut reader = source.open()?;
    let mut reading = Duration::ZERO;
    each_batch(reader.as_mut(), setup.limit, &mut reading, |batch| {
        for r in batch {
            let mut r = *r;
            touched.devices.map(&mut r);
            play.request(&r);
        }
        watch.map_or(Ok(()), |w| w.note(play.sums.seen))
    })?;
    if play.sums.seen <= setup.warm_up {
        return Err(LabError::setup(format!(
            "warm-up: the trace has only {} requests, nothing is left to count",
            play.sums.seen
        )));
    }
    let wall = begun.elapsed() + touched.reading;
    let (c, w) = (play.engine.counters(), play.warm);
    let accesses = c.accesses - w.accesses;
    let (promotions, demotions) = (c.promotions - w.promotions, c.demotions - w.demotions);
    let (fetches, writebacks) = (c.fetches - w.fetches, c.writebacks - w.writebacks);
    let seconds = begun.elapsed().saturating_sub(reading).as_secs_f64();
    let rate = |n: u64| {
        if seconds > 0.0 {
            n as f64 / seconds
        } else {
            0.0
        }
    };
    let by_class = (0..)
        .zip(&play.sums.classes)
        .filter(|(_, k)| k.requests > 0)
        .map(|(i, k): (usize, _)| {
            (
                i.to_string(),
                ClassReport {
                    accesses: k.accesses,
                    fast_hits: k.hits,
                    requests: k.requests,
                    bytes: k.bytes,
                    time_s: None,
                    used: None,
                },
            )
        })
        .collect();
    Ok(Report {
        trace: source.name(),
        policy: setup.policy.to_string(),
        extent_bytes: setup.extent_bytes,
        fast_bytes: shape.fast_bytes,
        requests: play.sums.requests,
        reads: play.sums.reads,
        writes: play.sums.writes,
        bytes_read: play.sums.bytes_read,
        bytes_written: play.sums.bytes_written,
        fast_hit_ratio: (c.hits - w.hits) as f64 / accesses.max(1) as f64,
        fast_served_ratio: (c.hits - w.hits + c.placed_fast - w.placed_fast) as f64
            / accesses.max(1) as f64,
        accesses,
        promotions,
        demotions,
        fetches,
        evictions: c.evictions - w.evictions,
        writebacks,
        refused: c.refused - w.refused,
        migrated_bytes: (promotions + demotions + fetches + writebacks)
            * u64::from(setup.extent_bytes),
        by_class,
        hit_only: true,
        touched_extents: touched.extents.len(),
        seed: setup.seed,
        warm_up: setup.warm_up,
        digest: play.digest.text(),
        reader: reader.stats(),
        wall_s: wall.as_secs_f64(),
        reader_s: (reading + touched.reading).as_secs_f64(),
        sim_rate_rps: rate(play.sums.seen),
        sim_rate_accesses_per_s: rate(c.accesses),
        bytes_per_extent: play.engine.bytes() as f64 / shape.extents as f64,
        ..Report::default()
    })
}
