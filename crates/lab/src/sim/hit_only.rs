//! Hit-only runs (docs/policy-rules.md section 0): the same policies under the null engine, without device time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use isotherm_core::ExtentId;
use isotherm_core::null::{NullCounters, NullEngine};
use isotherm_core::policy::Policy;
use isotherm_core::stats::CLASSES;
use isotherm_traces::{Op, Record, Stats};

use super::report::{ClassReport, Report};
use super::setup::Setup;
use super::shape::Shape;
use super::source::{Source, TraceFile};
use super::touched::{Rows, Touched, each_batch, span};
use super::{Watch, digest::Digest};
use crate::LabError;
use crate::hit_only::{self, ClassSums, HitOnlyError};

/// Sums over the requests after the warm-up.
#[derive(Clone, Debug, Default)]
struct Sums {
    requests: u64,
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
    classes: Vec<ClassSums>,
}

struct Play<P> {
    rows: Rows,
    /// The number of rows.
    count: u64,
    /// Whether a request touched what the first pass did not see.
    outside: bool,
    shift: u32,
    engine: NullEngine<P>,
    /// Number of requests so far, including the warm-up.
    seen: u64,
    sums: Sums,
    digest: Digest,
    warm_up: u64,
    /// The counters at the end of the warm-up.
    warm: NullCounters,
}

impl<P: Policy> Play<P> {
    fn request(&mut self, r: &Record) {
        self.seen += 1;
        if self.seen == self.warm_up + 1 {
            self.warm = self.engine.counters();
        }
        let counts = self.seen > self.warm_up;
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
        if first + (to - from) >= self.count {
            self.outside = true;
            return;
        }
        let inside = r.offset & ((1 << self.shift) - 1);
        let request = ((first << self.shift) + inside, r.len);
        let mut class = ClassSums {
            requests: 1,
            bytes: len,
            ..ClassSums::default()
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

/// The result of either player.
struct Played {
    /// Requests after the warm-up.
    sums: Sums,
    /// The engine's counters since the end of the warm-up.
    counters: NullCounters,
    /// Requests and accesses of the whole run.
    requests: u64,
    accesses: u64,
    fast_bytes: u64,
    touched: u64,
    /// Rows of the map, and bytes of map and policy.
    rows: u64,
    bytes: usize,
    digest: Digest,
    reader: Stats,
    wall: Duration,
    /// The part of `wall` in which the trace was read.
    reading: Duration,
}

impl Played {
    fn report(&self, setup: &Setup, trace: String) -> Report {
        let (s, c) = (&self.sums, &self.counters);
        let of_accesses = |n: u64| n as f64 / c.accesses.max(1) as f64;
        let seconds = self.wall.saturating_sub(self.reading).as_secs_f64();
        let rate = |n: u64| {
            if seconds > 0.0 {
                n as f64 / seconds
            } else {
                0.0
            }
        };
        Report {
            trace,
            policy: setup.policy.to_string(),
            extent_bytes: setup.extent_bytes,
            fast_bytes: self.fast_bytes,
            requests: s.requests,
            reads: s.reads,
            writes: s.writes,
            bytes_read: s.bytes_read,
            bytes_written: s.bytes_written,
            fast_hit_ratio: of_accesses(c.hits),
            fast_served_ratio: of_accesses(c.hits + c.placed_fast),
            accesses: c.accesses,
            promotions: c.promotions,
            demotions: c.demotions,
            fetches: c.fetches,
            evictions: c.evictions,
            writebacks: c.writebacks,
            refused: c.refused,
            migrated_bytes: (c.promotions + c.demotions + c.fetches + c.writebacks)
                * u64::from(setup.extent_bytes),
            by_class: by_class(&s.classes),
            hit_only: true,
            touched_extents: self.touched,
            seed: setup.seed,
            warm_up: setup.warm_up,
            digest: self.digest.text(),
            reader: self.reader,
            wall_s: self.wall.as_secs_f64(),
            reader_s: self.reading.as_secs_f64(),
            sim_rate_rps: rate(self.requests),
            sim_rate_accesses_per_s: rate(self.accesses),
            bytes_per_extent: self.bytes as f64 / self.rows as f64,
            ..Report::default()
        }
    }
}

/// Figures by class, without the classes that no request had.
fn by_class(classes: &[ClassSums]) -> BTreeMap<String, ClassReport> {
    let used = (0..).zip(classes).filter(|(_, k)| k.requests > 0);
    used.map(|(i, k): (usize, _)| {
        let class = ClassReport {
            accesses: k.accesses,
            fast_hits: k.hits,
            requests: k.requests,
            bytes: k.bytes,
            time_s: None,
            used: None,
        };
        (i.to_string(), class)
    })
    .collect()
}

/// The growth of the counters since the end of the warm-up.
fn since(c: &NullCounters, warm: &NullCounters) -> NullCounters {
    NullCounters {
        accesses: c.accesses - warm.accesses,
        hits: c.hits - warm.hits,
        placed_fast: c.placed_fast - warm.placed_fast,
        promotions: c.promotions - warm.promotions,
        demotions: c.demotions - warm.demotions,
        fetches: c.fetches - warm.fetches,
        evictions: c.evictions - warm.evictions,
        writebacks: c.writebacks - warm.writebacks,
        refused: c.refused - warm.refused,
    }
}

/// Uses the faster player of [`crate::hit_only`] for a trace file if the setup is a plain pair of devices without a warm-up; else `None`.
pub(super) fn fast(setup: &Setup, file: &TraceFile) -> Option<Result<Report, LabError>> {
    let pair = setup.tiers.len() == 2 && setup.tiers.iter().all(|t| t.devices.len() == 1);
    if !pair || setup.warm_up > 0 {
        return None;
    }
    Some(play_file(setup, file).map(|p| p.report(setup, file.label.clone())))
}

fn play_file(setup: &Setup, file: &TraceFile) -> Result<Played, LabError> {
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
    let mut classes = vec![ClassSums::default(); CLASSES];
    for (class, sums) in &r.by_class {
        classes[usize::from(*class) % CLASSES] = *sums;
    }
    Ok(Played {
        sums: Sums {
            requests: r.requests,
            reads: r.reads,
            writes: r.writes,
            bytes_read: r.bytes_read,
            bytes_written: r.bytes_written,
            classes,
        },
        counters: r.counters,
        requests: r.requests,
        accesses: r.counters.accesses,
        fast_bytes: r.fast_slots.saturating_mul(u64::from(setup.extent_bytes)),
        touched: r.touched,
        rows: r.rows,
        bytes: r.bytes,
        digest: r.digest,
        reader: r.reader,
        wall: r.wall,
        reading: r.reading,
    })
}

/// Plays `source` under `policy` without time.
pub(super) fn play<P: Policy>(
    setup: &Setup,
    source: &dyn Source,
    touched: &Touched,
    policy: P,
    watch: Option<&Watch>,
) -> Result<Report, LabError> {
    let begun = Instant::now();
    let places = (policy.uses(), policy.minds_gaps());
    let shape = Shape::new(setup, touched, places, &source.name())?;
    let mut play = Play {
        rows: shape.rows(touched),
        count: shape.extents,
        outside: false,
        shift: touched.shift,
        engine: NullEngine::new(shape.geometry()?, policy),
        seen: 0,
        sums: Sums {
            classes: vec![ClassSums::default(); CLASSES],
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
        watch.map_or(Ok(()), |w| w.note(play.seen))
    })?;
    touched.unchanged(&source.name(), setup.limit, &reader.stats(), play.outside)?;
    if play.seen <= setup.warm_up {
        return Err(LabError::setup(format!(
            "warm-up: the trace has only {} requests, nothing is left to count",
            play.seen
        )));
    }
    let counters = play.engine.counters();
    let played = Played {
        sums: play.sums,
        counters: since(&counters, &play.warm),
        requests: play.seen,
        accesses: counters.accesses,
        fast_bytes: shape.fast_bytes,
        touched: touched.extents.len(),
        rows: shape.extents,
        bytes: play.engine.bytes(),
        digest: play.digest,
        reader: reader.stats(),
        wall: begun.elapsed() + touched.reading,
        reading: reading + touched.reading,
    };
    Ok(played.report(setup, source.name()))
}
