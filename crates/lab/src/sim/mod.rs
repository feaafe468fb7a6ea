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
//! | `recorded.rs` | the volume of a recording, in place of a new one |
//! | `spread.rs` | the places on the drive of the slots of the slowest tier |
//! | `feed.rs` | converts records to requests |
//! | `world.rs` | time, devices, replies |
//! | `rest.rs` | the pause after the warm-up |
//! | `sums.rs` | the sums of a run |
//! | `observe.rs` | series over time |
//! | `phases.rs` | figures by phase and class |
//! | `hit_only.rs` | the same policies without time |
//! | `report.rs`, `figures.rs` | the report of a run; its figures, from the counters of engine and devices |
//!
//! Nothing here decides placement, and decisions depend on setup and trace only: equal runs give equal [`Report::digest`]s.

mod cost;
mod digest;
mod feed;
mod figures;
mod hit_only;
mod observe;
mod phases;
mod recorded;
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
pub use recorded::Recorded;
pub use report::{ClassReport, MemberUsage, MixedCopies, MoveReport, Report, SampleReport, Usage};
pub use setup::{
    Begin, Device, Model, Observe, Setup, Tier, TimeMode, check_setting, parse_span, span_name,
};
pub use shape::{Drive, Place, SLOTS_MAX, Shape};
pub use source::{BATCH, Memory, Records, Source, Synthetic, TraceFile, Volumes};
pub(crate) use touched::each_batch;
pub use touched::{Rows, Touched, span, touched};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_core::Nanos;
use isotherm_core::policy::Policy;
use isotherm_models::DeviceModel;

use crate::LabError;
use crate::energy::EnergyBound;
use feed::Feed;
use figures::{Between, Played};
use observe::Observer;
use world::World;

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
    recorded: Option<Recorded>,
    models: Option<MakeModel<'a>>,
    watch: Option<&'a Watch>,
    phases: &'a [u64],
    energy_bound: bool,
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
            recorded: None,
            models: None,
            watch: None,
            phases: &[],
            energy_bound: false,
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
    /// Begins in the state of this recording. The devices of the setup are those of its members, and sizes of tiers have no effect.
    #[must_use]
    pub fn recorded(mut self, recorded: Recorded) -> Run<'a> {
        self.recorded = Some(recorded);
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
    /// Reports the least energy of any choice of times at which the disk is used, too ([`crate::energy`]). Not for recorded volumes.
    #[must_use]
    pub fn energy_bound(mut self, wanted: bool) -> Run<'a> {
        self.energy_bound = wanted;
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
    pub fn full(mut self) -> Result<Report, LabError> {
        let begun = Instant::now();
        let policy = self.build_policy()?;
        let mut own = None;
        let touched = self.prepare(&mut own)?;
        let (setup, name) = (self.setup, self.source.name());
        let recorded = self.recorded.take();
        let begun_at = recorded.as_ref().map_or(Nanos(0), Recorded::begun);
        let as_recorded = recorded.is_some();
        let places = (policy.uses(), policy.minds_gaps());
        let shape = if let Some(r) = &recorded {
            r.shape(setup)?
        } else {
            Shape::new(setup, touched, places, &name)?
        };
        let (mut engine, drives) = match recorded {
            Some(r) => r.build(&shape, setup, policy)?,
            None => shape.build(setup, touched, policy)?,
        };
        let mut world = self.world(touched, &shape, &drives, begun_at)?;
        world.ordered = as_recorded;
        let playing = Instant::now();
        let (begin, end) = world.play(&mut engine, self.watch)?;
        let simulating = playing.elapsed();
        assert_eq!(engine.contracts(), Ok(()), "{name}");
        touched.unchanged(&name, setup.limit, &world.reader().1, false)?;
        if world.sums.errors > 0 {
            return Err(LabError::setup(format!(
                "{name}: {} requests failed in the simulated volume, please report",
                world.sums.errors
            )));
        }
        let played = Played {
            setup,
            shape: &shape,
            drives: &drives,
        };
        let mut report = played.report(&engine, &world, Between::new(&begin, &end));
        if let Some(p) = world.phases.take() {
            report.phases = p.finish(|a, b| played.usage(Between::new(a, b)));
            report.replies = p.replies;
        }
        let members = shape.members.iter().map(|m| (m.name.clone(), m.tier));
        report.series = world.series(&end, &members.collect::<Vec<_>>());
        if self.energy_bound && !as_recorded {
            report.energy_bound = EnergyBound::of(setup, self.source, touched, &shape)?;
        }
        report.trace = name;
        report.touched_extents = touched.extents.len();
        let (reading, stats) = world.reader();
        report.reader = stats;
        let first_pass = if self.touched.is_none() {
            touched.reading
        } else {
            Duration::ZERO
        };
        report.wall_s = begun.elapsed().as_secs_f64();
        report.reader_s = (reading + first_pass).as_secs_f64();
        let seconds = simulating.saturating_sub(reading).as_secs_f64().max(1e-9);
        report.sim_rate_rps = stats.requests.max(report.requests) as f64 / seconds;
        report.sim_rate_accesses_per_s = end.counters.accesses as f64 / seconds;
        let memory = engine.memory();
        report.bytes_per_extent =
            (memory.map + memory.policy) as f64 / touched.extents.len().max(1) as f64;
        Ok(report)
    }

    /// The world in which the run plays: the models of the drives, the requests of the trace, and the observers that were asked for.
    fn world<'w>(
        &self,
        touched: &'w Touched,
        shape: &Shape,
        drives: &[Drive<'_>],
        begun: Nanos,
    ) -> Result<World<'w>, LabError> {
        let setup = self.setup;
        let mut devices = Vec::new();
        for (d, p) in drives.iter().zip(&shape.members) {
            let model = match self.models {
                Some(make) => make(p.tier, d.reach()),
                None => d.model()?,
            };
            let model = if begun == Nanos(0) {
                model
            } else {
                Box::new(recorded::Late::new(model, begun))
            };
            devices.push((model, p.tier, d.spread.clone()));
        }
        let observer = (setup.observe != Observe::default()).then(|| {
            let bytes = shape.extents << shape.shift;
            Observer::new(setup.observe, bytes, setup.tiers.len(), devices.len())
        });
        let feed = Feed::new(
            self.source.open()?,
            &touched.devices,
            shape.rows(touched),
            shape.shift,
            setup.limit,
            setup.discards,
        );
        let mut world = World::new(devices, feed, setup.time, setup.warm_up, observer);
        world.begin_at(begun);
        world.client_ns = (setup.begin.client_us * 1e3) as u64;
        world.rest = rest::Rest::of(setup.begin.rest_s);
        if !self.phases.is_empty() {
            let phases = phases::Phases::new(self.phases, shape.extents, shape.shift);
            world.phases = Some(Box::new(phases));
        }
        Ok(world)
    }
}
