//! The virtual world: the engine that serves volumes, over device models, in virtual time.
//!
//! ```text
//!   Source ─► touched (first pass) ─► Shape ─► Engine + models ─► World::play ─► Report
//! ```
//! | file | content |
//! |---|---|
//! | `setup.rs` | the settings of a run |
//! | `source.rs` | sources of requests |
//! | `touched.rs` | the first pass; rows of the map |
//! | `shape.rs` | slots, members, the volume's metadata, the engine over it |
//! | `spread.rs` | the places on the drive of the slots of the slowest tier |
//! | `feed.rs` | converts records to requests |
//! | `world.rs` | time, devices, replies |
//! | `rest.rs` | the pause after the warm-up |
//! | `sums.rs` | the sums of a run |
//! | `observe.rs` | series over time |
//! | `phases.rs` | figures by phase and class |
//! | `hit_only.rs` | the same policies without time |
//! | `report.rs` | the figures of a run |
//!
//! Nothing here decides placement, and decisions depend on setup and trace only: equal runs give equal [`Report::digest`]s.

mod cost;
mod digest;
mod feed;
mod hit_only;
mod observe;
mod phases;
mod report;
mod rest;
mod setup;
mod shape;
mod source;
mod spread;
mod sums;
mod touched;
mod world;

pub use cost::Cost;
pub use digest::Digest;
pub use isotherm_models::cost::Used;
pub use observe::{Heat, MemberSeries, SIZE_BINS, Series};
pub use phases::{Phase, PhaseClass, Reply};
pub use report::{ClassReport, MemberUsage, MixedCopies, MoveReport, Report, SampleReport, Usage};
pub use setup::{
    Begin, Device, Model, Observe, Setup, Tier, TimeMode, check_setting, parse_span, span_name,
};
pub use shape::{Drive, Place, SLOTS_MAX, Shape};
pub use source::{BATCH, Memory, Records, Source, Synthetic, TraceFile, Volumes};
pub(crate) use touched::each_batch;
pub use touched::{Rows, Touched, span, touched};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use isotherm_core::policy::Policy;
use isotherm_models::{DeviceModel, PowerState};

use crate::LabError;
use feed::Feed;
use observe::Observer;
use world::{Mark, World};

/// Shows the progress of a run to another thread, and lets it stop the run.
#[derive(Debug, Default)]
pub struct Watch {
    /// Requests submitted.
    pub requests: AtomicU64,
    /// Requests of the trace, known after the first pass; 0 before.
    pub total: AtomicU64,
    /// Set to end the run with [`LabError::Stopped`].
    pub stop: AtomicBool,
}

impl Watch {
    fn note(&self, requests: u64) -> Result<(), LabError> {
        self.requests.store(requests, Ordering::Relaxed);
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Stopped);
        }
        Ok(())
    }
}

/// Makes a device model for each member, in place of the setup's: `(tier, bytes)` → model.
pub type MakeModel<'a> = &'a dyn Fn(u8, u64) -> Box<dyn DeviceModel>;

/// A run with its optional settings.
pub struct Run<'a> {
    setup: &'a Setup,
    source: &'a dyn Source,
    touched: Option<&'a Touched>,
    policy: Option<Box<dyn Policy>>,
    models: Option<MakeModel<'a>>,
    watch: Option<&'a Watch>,
    phases: &'a [u64],
}

/// Plays `source` under `setup`, with times and energy.
///
/// # Errors
/// The trace cannot be read, or setup, trace and devices do not fit together.
pub fn run(setup: &Setup, source: &dyn Source) -> Result<Report, LabError> {
    Run::new(setup, source).full()
}

/// Plays `source` under the policy of `setup`, without devices.
///
/// # Errors
/// As [`run`].
pub fn hit_only(setup: &Setup, source: &dyn Source) -> Result<Report, LabError> {
    Run::new(setup, source).hit_only()
}

/// Plays the trace file under the policy of `setup`, without devices, with the fastest player that supports the setup.
///
/// # Errors
/// As [`run`].
pub fn hit_only_file(
    setup: &Setup,
    file: &TraceFile,
    watch: Option<&Watch>,
) -> Result<Report, LabError> {
    if let Some(report) = hit_only::fast(setup, file) {
        return report;
    }
    let run = Run::new(setup, file);
    match watch {
        Some(w) => run.watch(w).hit_only(),
        None => run.hit_only(),
    }
}

impl<'a> Run<'a> {
    /// As [`run`]; the other methods add settings.
    pub fn new(setup: &'a Setup, source: &'a dyn Source) -> Run<'a> {
        Run {
            setup,
            source,
            touched: None,
            policy: None,
            models: None,
            watch: None,
            phases: &[],
        }
    }
    /// Uses a first pass that was made earlier for the same trace, limit and extent size.
    #[must_use]
    pub fn touched(mut self, touched: &'a Touched) -> Run<'a> {
        self.touched = Some(touched);
        self
    }
    /// Uses this policy in place of the one in the setup.
    #[must_use]
    pub fn policy(mut self, policy: Box<dyn Policy>) -> Run<'a> {
        self.policy = Some(policy);
        self
    }
    /// Uses these models in place of the setup's devices.
    #[must_use]
    pub fn models(mut self, make: MakeModel<'a>) -> Run<'a> {
        self.models = Some(make);
        self
    }
    /// Reports by phase, given the number of requests before each phase in ascending order, and keeps the times of every reply.
    #[must_use]
    pub fn phases(mut self, begins: &'a [u64]) -> Run<'a> {
        self.phases = begins;
        self
    }
    /// Shows the progress of the run in `watch`.
    #[must_use]
    pub fn watch(mut self, watch: &'a Watch) -> Run<'a> {
        self.watch = Some(watch);
        self
    }

    fn prepare<'b>(&self, own: &'b mut Option<Touched>) -> Result<&'b Touched, LabError>
    where
        'a: 'b,
    {
        self.setup.check()?;
        let shift = self.setup.extent_bytes.trailing_zeros();
        let touched = match self.touched {
            Some(t) if t.shift == shift => t,
            Some(_) => {
                return Err(LabError::setup(
                    "the first pass was for another extent size",
                ));
            }
            None => own.insert(touched(self.source, shift, self.setup.limit)?),
        };
        if let Some(w) = self.watch {
            w.total.store(touched.requests, Ordering::Relaxed);
        }
        Ok(touched)
    }
    fn build_policy(&mut self) -> Result<Box<dyn Policy>, LabError> {
        match self.policy.take() {
            Some(p) => Ok(p),
            None => self.setup.policy.build().map_err(LabError::Setup),
        }
    }

    /// Plays without devices.
    ///
    /// # Errors
    /// As [`run`].
    pub fn hit_only(mut self) -> Result<Report, LabError> {
        let (source, setup, watch) = (self.source, self.setup, self.watch);
        let policy = self.build_policy()?;
        let mut own = None;
        let touched = self.prepare(&mut own)?;
        hit_only::play(setup, source, touched, policy, watch)
    }

    /// Plays with devices, times and energy.
    ///
    /// # Errors
    /// As [`run`].
    #[expect(clippy::too_many_lines, reason = "to be divided")]
    pub fn full(mut self) -> Result<Report, LabError> {
        let begun = Instant::now();
        let (source, setup, watch, make) = (self.source, self.setup, self.watch, self.models);
        let policy = self.build_policy()?;
        let first_pass = self.touched.is_none();
        let mut own = None;
        let touched = self.prepare(&mut own)?;
        let shape = Shape::new(setup, touched, policy.minds_gaps(), &source.name())?;
        let (mut engine, drives) = shape.build(setup, touched, policy)?;
        let mut devices = Vec::new();
        for (d, p) in drives.iter().zip(&shape.members) {
            let model = match make {
                Some(make) => make(p.tier, d.reach()),
                None => d.model()?,
            };
            devices.push((model, p.tier, d.spread.clone()));
        }
        let observer = (setup.observe != Observe::default()).then(|| {
            let bytes = shape.extents << shape.shift;
            Observer::new(setup.observe, bytes, setup.tiers.len(), devices.len())
        });
        let feed = Feed::new(
            source.open()?,
            &touched.devices,
            shape.rows(touched),
            shape.shift,
            setup.limit,
            setup.discards,
        );
        let played = Instant::now();
        let mut world = World::new(devices, feed, setup.time, setup.warm_up, observer);
        world.rest = rest::Rest::of(setup.begin.rest_s);
        if !self.phases.is_empty() {
            let phases = phases::Phases::new(self.phases, shape.extents, shape.shift);
            world.phases = Some(Box::new(phases));
        }
        let (begin, end) = world.play(&mut engine, watch)?;
        let simulating = played.elapsed();
        let names: Vec<(String, u8)> = shape
            .members
            .iter()
            .map(|m| (m.name.clone(), m.tier))
            .collect();
        let series = world.series(&end, &names);
        let (reading, stats) = world.reader();
        if world.sums.errors > 0 {
            return Err(LabError::setup(format!(
                "{}: {} requests failed in the simulated volume, please report",
                source.name(),
                world.sums.errors
            )));
        }
        let usage = usage(setup, &shape, &drives, &begin, &end);
        let mut report = figures(setup, &shape, (&engine, &world), &begin, &end, usage);
        if let Some(p) = world.phases.take() {
            report.phases = p.finish(|a, b| self::usage(setup, &shape, &drives, a, b));
            report.replies = p.replies;
        }
        report.trace = source.name();
        report.touched_extents = touched.extents.len();
        report.series = series;
        report.reader = stats;
        let first = if first_pass {
            touched.reading
        } else {
            std::time::Duration::ZERO
        };
        report.wall_s = begun.elapsed().as_secs_f64();
        report.reader_s = (reading + first).as_secs_f64();
        let seconds = simulating.saturating_sub(reading).as_secs_f64().max(1e-9);
        report.sim_rate_rps = stats.requests.max(report.requests) as f64 / seconds;
        report.sim_rate_accesses_per_s = end.counters.accesses as f64 / seconds;
        let memory = engine.memory();
        report.bytes_per_extent =
            (memory.map + memory.policy) as f64 / touched.extents.len().max(1) as f64;
        Ok(report)
    }
}

#[expect(clippy::too_many_lines, reason = "to be divided")]
fn figures(
    setup: &Setup,
    shape: &Shape,
    (engine, world): (&isotherm_core::Engine, &World<'_>),
    begin: &Mark,
    end: &Mark,
    usage: Usage,
) -> Report {
    let s = &world.sums;
    let (c, w) = (&end.counters, &begin.counters);
    let accesses = c.accesses - w.accesses;
    let hits = c.tier_hits[0] - w.tier_hits[0];
    let elapsed = usage.elapsed_s;
    let per_second = |x: f64| if elapsed > 0.0 { x / elapsed } else { 0.0 };
    let energy = usage.host_j + usage.members.values().map(|m| m.energy_j).sum::<f64>();
    let of_fast = |f: fn(&isotherm_core::stats::MemberCounters) -> u64| {
        let fast = shape.members.iter().zip(c.members.iter().zip(&w.members));
        fast.filter(|(p, _)| p.tier == 0)
            .map(|(_, (a, b))| f(a) - f(b))
            .sum::<u64>()
    };
    let sum =
        |of: &[isotherm_core::stats::MemberCounters]| of.iter().map(|m| m.spin_downs).sum::<u64>();
    let moves: BTreeMap<String, MoveReport> = [
        ("promotions", &c.promotions, &w.promotions),
        ("demotions", &c.demotions, &w.demotions),
        ("fetches", &c.fetches, &w.fetches),
        ("evictions", &c.evictions, &w.evictions),
        ("writebacks", &c.writebacks, &w.writebacks),
    ]
    .map(|(name, a, b)| (name.to_owned(), MoveReport::new(a, b)))
    .into();
    let by_class = c
        .classes
        .iter()
        .zip(&w.classes)
        .zip(&s.classes)
        .enumerate()
        .filter(|(_, (_, sum))| sum.requests > 0)
        .map(|(i, ((a, b), sum))| {
            let class = ClassReport {
                accesses: a.accesses - b.accesses,
                fast_hits: a.fast_hits - b.fast_hits,
                requests: sum.requests,
                bytes: sum.bytes,
                time_s: Some(sum.time_ns as f64 / 1e9),
                used: Some(Used::between(a.work.as_deref(), b.work.as_deref())),
            };
            (i.to_string(), class)
        })
        .collect();
    let latency = |q: f64| Some(s.latency.quantile(q).as_secs_f64());
    Report {
        policy: setup.policy.to_string(),
        extent_bytes: setup.extent_bytes,
        fast_bytes: shape.fast_bytes,
        requests: s.requests,
        reads: s.reads,
        writes: s.writes,
        bytes_read: s.bytes_read,
        bytes_written: s.bytes_written,
        fast_hit_ratio: hits as f64 / accesses.max(1) as f64,
        fast_served_ratio: (hits + c.placed_fast - w.placed_fast) as f64 / accesses.max(1) as f64,
        elapsed_s: Some(elapsed),
        throughput_iops: Some(per_second(s.requests as f64)),
        throughput_bytes_per_s: Some(per_second((s.bytes_read + s.bytes_written) as f64)),
        latency_mean_s: Some(s.latency.mean().as_secs_f64()),
        latency_p50_s: latency(0.5),
        latency_p95_s: latency(0.95),
        latency_p99_s: latency(0.99),
        energy_j: Some(energy),
        mean_power_w: Some(per_second(energy)),
        spin_downs: Some(sum(&c.members) - sum(&w.members)),
        fast_read_bytes: Some(of_fast(|m| m.bytes_read)),
        fast_write_bytes: Some(of_fast(|m| m.bytes_written)),
        wear_eu: Some(
            usage
                .members
                .iter()
                .map(|(k, m)| (k.clone(), m.wear_eu))
                .collect(),
        ),
        accesses,
        promotions: c.promotions.done - w.promotions.done,
        demotions: c.demotions.done - w.demotions.done,
        fetches: c.fetches.done - w.fetches.done,
        evictions: c.evictions.done - w.evictions.done,
        writebacks: c.writebacks.done - w.writebacks.done,
        refused: moves.values().flat_map(|m| m.refused.values()).sum(),
        moves: Some(moves),
        migrated_bytes: carried(c) - carried(w),
        ram_read_bytes: Some(s.from_moves),
        zero_read_bytes: Some(s.zeros),
        settings: setup.settings.iter().cloned().collect(),
        sleep_batches: Some(c.sleep_batches - w.sleep_batches),
        sleep_limits: Some(c.sleep_limits - w.sleep_limits),
        wear_budget_left_bytes: engine.wear_budget().map(|b| b.left_bytes),
        by_class,
        own_work: Some(Used::between(Some(&c.own_work), Some(&w.own_work))),
        mixed_copies: MixedCopies::of(engine.space()),
        qos: isotherm_words::qos::items(&setup.qos),
        seed: setup.seed,
        warm_up: setup.warm_up,
        full: setup.begin.full,
        digest: world.digest.text(),
        cost: cost::of(&usage),
        usage: Some(usage),
        ..Report::default()
    }
}

/// Bytes that the flash programmed per byte written, between two readings of a device's counters.
fn amplification(
    end: &isotherm_models::Counters,
    begin: &isotherm_models::Counters,
) -> Option<f64> {
    let flash = end.flash_bytes_written - begin.flash_bytes_written;
    let host = end.bytes_written - begin.bytes_written;
    (flash > 0 && host > 0).then(|| flash as f64 / host as f64)
}

/// Bytes that moves, fetches and write-backs transferred.
fn carried(c: &isotherm_core::stats::Counters) -> u64 {
    c.migrated_bytes + c.fetched_bytes + c.written_back_bytes
}

fn usage(setup: &Setup, shape: &Shape, drives: &[Drive<'_>], begin: &Mark, end: &Mark) -> Usage {
    let elapsed_s = (end.now - begin.now) as f64 / 1e9;
    let mut members = BTreeMap::new();
    for (i, (p, d)) in shape.members.iter().zip(drives).enumerate() {
        let (c, w) = (&end.devices[i], &begin.devices[i]);
        let (m, n) = (&end.counters.members[i], &begin.counters.members[i]);
        let seconds = |f: fn(&isotherm_models::Counters) -> u64| (f(c) - f(w)) as f64 / 1e9;
        let energy_j = c.energy_j() - w.energy_j();
        let flash = end.wear[i].flash_eu.zip(begin.wear[i].flash_eu);
        let usage = MemberUsage {
            preset: d.sheet.name.clone(),
            kind: d.sheet.kind().to_owned(),
            tier: p.tier,
            bytes: d.reach(),
            capacity_bytes: d.sheet.capacity(),
            span: span_name(d.device.options.span),
            energy_j,
            mean_power_w: if elapsed_s > 0.0 {
                energy_j / elapsed_s
            } else {
                0.0
            },
            wear_eu: end.wear[i].host_eu - begin.wear[i].host_eu,
            flash_wear_eu: flash.map(|(a, b)| a - b),
            write_amplification: amplification(c, w),
            flash: (d.sheet.kind() == "ssd").then(|| d.flash_state().name().to_owned()),
            busy_s: seconds(|c| c.busy_ns),
            standby_s: seconds(|c| c.state_ns[PowerState::Standby as usize]),
            start_stops: c.start_stops - w.start_stops,
            reads: c.reads - w.reads,
            writes: c.writes - w.writes,
            flushes: c.flushes - w.flushes,
            bytes_read: c.bytes_read - w.bytes_read,
            bytes_written: c.bytes_written - w.bytes_written,
            move_bytes_read: m.move_bytes_read - n.move_bytes_read,
            move_bytes_written: m.move_bytes_written - n.move_bytes_written,
            meta_bytes_written: m.meta_bytes_written - n.meta_bytes_written,
            seeks: c.seeks - w.seeks,
            seek_distance: c.seek_distance - w.seek_distance,
        };
        members.insert(p.name.clone(), usage);
    }
    Usage {
        elapsed_s,
        host_w: setup.host_w,
        host_j: setup.host_w * elapsed_s,
        members,
    }
}
