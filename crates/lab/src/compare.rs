//! Compares policies on one trace, together with one device alone and with bounds that no policy can beat.

use isotherm_core::Nanos;
use isotherm_models::measure::{Work, run};
use isotherm_models::{DeviceModel, Least, ModelOp};
use serde::Serialize;

use isotherm_core::policy::Uses;

use crate::LabError;
use crate::bound::{Prices, Sequence, belady, interval_bound, mixed_bound, write_back_bound};
use crate::latency::{Service, latency_bound};
use crate::policy_spec::PolicySpec;
use crate::pool::parallel;
use crate::sim::{
    Begin, Device, Drive, Report, Run, Setup, Shape, Source, Tier, TimeMode, Touched, touched,
};
use crate::size::Size;

/// Number of operations with which a device's prices are measured.
const MEASURED: u64 = 2000;

/// A comparison and its results.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The trace.
    pub trace: String,
    /// Extent size.
    pub extent_bytes: u32,
    /// Size of the fastest tier.
    pub fast_bytes: u64,
    /// Whether only hits and moves were counted.
    pub hit_only: bool,
    /// The prices of an extent on the devices.
    pub prices: Prices,
    /// The bounds that no policy can beat.
    pub bounds: Bounds,
    /// The policies in the given order, then the baselines.
    pub rows: Vec<Row>,
    /// Baselines that could not run, with the reason.
    pub left_out: Vec<String>,
}

/// See [`crate::bound`].
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bounds {
    /// Hit ratio of Belady's MIN with bypass.
    pub hit_ratio: f64,
    /// A lower bound for the service cost of tiering policies.
    pub tiering_cost_s: f64,
    /// Accesses of the interval that gave it.
    pub tiering_interval: usize,
    /// A lower bound for the service cost of caching policies.
    pub caching_cost_s: f64,
    /// Accesses of the interval that gave it.
    pub caching_interval: usize,
    /// A lower bound for the service cost of demand-filled write-back caches.
    pub write_back_cost_s: f64,
    /// A lower bound for the service cost of policies that have both homes and copies on the fastest tier; `None` if there is none here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub mixed_cost_s: Option<f64>,
    /// A lower bound for the mean latency of policies that use nothing but copies ([`crate::latency`]); `None` in runs without time or
    /// with a warm-up, and if a device below the fastest tier is a disk, for which no useful bound is known.
    pub latency_mean_s: Option<f64>,
}

/// One policy.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// The name as the user gave it, or `hdd-only`, `ssd-only`.
    pub name: String,
    /// `tiering` or `caching`, or `baseline` for one device alone.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["tiering", "caching", "baseline"])))]
    pub kind: String,
    /// Its figures.
    pub report: Report,
    /// Hits, misses and moves at [`Prices`]; for one device alone, all accesses at its price.
    pub cost_s: f64,
    /// The name of the bound on its service cost: `tiering`, `caching`, `write-back` or `mixed`; `None` for one device alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("enum" = ["tiering", "caching", "write-back", "mixed"])))]
    pub bound: Option<&'static str>,
    /// Service cost divided by that bound, minus 1; `None` for one device alone.
    pub cost_regret: Option<f64>,
    /// Mean latency divided by the bound, minus 1; `None` without that bound and for policies that place homes on faster tiers.
    pub latency_regret: Option<f64>,
    /// Hit ratio of the bound minus its own; `None` for one device alone. It is negative only for planners that fetch extents without an
    /// access.
    pub hit_regret: Option<f64>,
}

impl Bounds {
    /// The tightest bound on the service cost of policies of a kind, with its name.
    fn cost(&self, kind: Kind) -> (&'static str, f64) {
        match kind.uses {
            Uses::Homes => ("tiering", self.tiering_cost_s),
            Uses::Both => ("mixed", self.mixed_cost_s.unwrap_or(0.0)),
            Uses::Copies if kind.on_demand && self.write_back_cost_s > self.caching_cost_s => {
                ("write-back", self.write_back_cost_s)
            }
            Uses::Copies => ("caching", self.caching_cost_s),
        }
    }
}

/// The bounds that hold for a policy.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// How it uses the faster tiers.
    uses: Uses,
    /// Whether it is a write-back cache that is filled on demand.
    on_demand: bool,
}

/// The name of the row of the slowest tier's device alone, and the kind of the rows of both devices alone.
const HDD_ONLY: &str = "hdd-only";
const ALONE: &str = "baseline";

impl Row {
    /// Whether it is one device alone, which has no hits: its only tier counts as the fastest one in its report.
    pub fn is_alone(&self) -> bool {
        self.kind == ALONE
    }

    /// Whether it is the slowest tier's device alone, so that nothing is served from a fast one.
    pub fn has_no_fast_tier(&self) -> bool {
        self.is_alone() && self.name == HDD_ONLY
    }
}

struct Job {
    name: String,
    /// `None` for one device alone.
    kind: Option<Kind>,
    setup: Setup,
    baseline: bool,
}

/// Compares `policies` on `source`, with all other settings from `base`. Uses all cores.
///
/// # Errors
/// The trace cannot be read, or `base` does not fit it.
pub fn compare(
    base: &Setup,
    policies: &[PolicySpec],
    source: &dyn Source,
    hit_only: bool,
) -> Result<Comparison, LabError> {
    base.check()?;
    let shift = base.extent_bytes.trailing_zeros();
    let first = touched(source, shift, base.limit)?;
    let (jobs, fast) = jobs(base, policies);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let results = parallel(threads, &jobs, |j| {
        let r = Run::new(&j.setup, source).touched(&first);
        if hit_only { r.hit_only() } else { r.full() }
    });
    // The bound numbers touched extents without gaps, unlike `linear`, which numbers addresses.
    let packed = Setup {
        policy: fast,
        ..base.clone()
    };
    let shape = Shape::new(&packed, &first, (Uses::Homes, false), &source.name())?;
    let sequence = Sequence::load(source, &first, &shape, base.limit, false)?;
    let prices = prices(base, &shape, &first, sequence.read_share())?;
    let mut bounds = bounds(&sequence, &shape, &prices);
    if jobs
        .iter()
        .any(|j| j.kind.is_some_and(|k| k.uses == Uses::Both))
    {
        bounds.mixed_cost_s = Some(mixed_bound(&sequence, fast_slots(&shape), &prices));
    }
    if !hit_only && base.warm_up == 0 {
        bounds.latency_mean_s = latency(base, source, &first)?;
    }
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for (job, result) in jobs.into_iter().zip(results) {
        let report = match result {
            Ok(r) => r,
            Err(LabError::Setup(why)) if job.baseline => {
                left_out.push(format!("{}: {why}", job.name));
                continue;
            }
            Err(e) => return Err(e),
        };
        rows.push(row(job, report, &prices, &bounds));
    }
    Ok(Comparison {
        trace: source.name(),
        extent_bytes: base.extent_bytes,
        fast_bytes: shape.fast_bytes,
        hit_only,
        prices,
        bounds,
        rows,
        left_out,
    })
}

fn row(job: Job, report: Report, prices: &Prices, bounds: &Bounds) -> Row {
    let cost_s = match job.name.as_str() {
        HDD_ONLY => report.accesses as f64 * prices.slow_s,
        "ssd-only" => report.accesses as f64 * prices.fast_s,
        _ => prices.of(&report),
    };
    let bound = job.kind.map(|k| bounds.cost(k));
    let copies = job.kind.is_some_and(|k| k.uses == Uses::Copies);
    let latency = bounds.latency_mean_s.filter(|&b| copies && b > 0.0);
    Row {
        name: job.name,
        kind: job.kind.map_or(ALONE, |k| k.uses.kind()).to_owned(),
        cost_s,
        bound: bound.map(|b| b.0),
        cost_regret: bound.filter(|b| b.1 > 0.0).map(|b| cost_s / b.1 - 1.0),
        latency_regret: latency
            .zip(report.latency_mean_s)
            .map(|(b, mine)| mine / b - 1.0),
        hit_regret: job.kind.map(|_| bounds.hit_ratio - report.fast_hit_ratio),
        report,
    }
}

/// The bounds that hold for the policy with its parameters.
fn kind_of(policy: &PolicySpec) -> Kind {
    // A policy that cannot be built is reported by its run.
    let built = policy.build().ok();
    Kind {
        uses: built.as_ref().map_or(Uses::Homes, |p| p.uses()),
        on_demand: built.is_some_and(|p| p.writes_back_on_demand()),
    }
}

/// The runs to make, and a policy whose rows are numbered without gaps.
fn jobs(base: &Setup, policies: &[PolicySpec]) -> (Vec<Job>, PolicySpec) {
    let spec = |name: &str| PolicySpec {
        name: name.to_owned(),
        params: Vec::new(),
    };
    let job = |p: &PolicySpec, baseline| Job {
        name: p.to_string(),
        kind: Some(kind_of(p)),
        setup: Setup {
            policy: p.clone(),
            ..base.clone()
        },
        baseline,
    };
    let mut jobs: Vec<Job> = policies.iter().map(|p| job(p, false)).collect();
    if !policies.iter().any(|p| p.name == "linear") {
        // If addresses are far apart, they may exceed the limit even if the touched extents do not.
        jobs.push(job(&spec("linear"), true));
    }
    let last = base.tiers.len() - 1;
    for (name, tier) in [(HDD_ONLY, last), ("ssd-only", 0)] {
        jobs.push(Job {
            name: name.to_owned(),
            kind: None,
            setup: alone(base, tier),
            baseline: true,
        });
    }
    (jobs, spec("greendm"))
}

/// The setup of the first device of a tier alone: it holds everything, and never sleeps.
pub(crate) fn alone(base: &Setup, tier: usize) -> Setup {
    let mut device: Device = base.tiers[tier].devices[0].clone();
    device.standby_after_s = None;
    Setup {
        tiers: vec![Tier::new(device, Size::Share(1_000_000))],
        policy: PolicySpec {
            name: "linear".to_owned(),
            params: Vec::new(),
        },
        // A device alone keeps no map, so it records no first touches.
        begin: Begin {
            full: true,
            ..base.begin
        },
        ..base.clone()
    }
}

/// Measures the price of an extent on the fastest and on the slowest tier, with one operation at a time at random places.
fn prices(setup: &Setup, shape: &Shape, touched: &Touched, reads: f64) -> Result<Prices, LabError> {
    let last = setup.tiers.len() - 1;
    let extent = setup.extent_bytes;
    let measure = |tier: usize, op| -> Result<f64, LabError> {
        let device = &setup.tiers[tier].devices[0];
        let slots = shape
            .members
            .iter()
            .find(|m| usize::from(m.tier) == tier)
            .map_or(1, |m| u64::from(m.slots));
        let bytes = slots << shape.shift;
        let sheet = device.sheet_for(bytes)?;
        // On the slowest tier, data is at the addresses of the trace.
        let ends = touched.extents.max().zip(touched.extents.min());
        let reach = ends.map_or(0, |(max, min)| (max - min + 1) << shape.shift);
        let bytes = if tier == last {
            reach.clamp(bytes, sheet.capacity())
        } else {
            bytes
        };
        let drive = Drive::new(device, sheet, bytes);
        let work = Work {
            op,
            len: extent,
            random: true,
            span: bytes,
            depth: 1,
            count: MEASURED,
            seed: 1,
        };
        let (outcome, _) = run(drive.model()?.as_mut(), isotherm_core::Nanos(0), &work);
        Ok(outcome.mean_us / 1e6)
    };
    let (fr, fw) = (measure(0, ModelOp::Read)?, measure(0, ModelOp::Write)?);
    let (sr, sw) = (
        measure(last, ModelOp::Read)?,
        measure(last, ModelOp::Write)?,
    );
    Ok(Prices {
        fast_s: fr * reads + fw * (1.0 - reads),
        slow_s: sr * reads + sw * (1.0 - reads),
        promotion_s: sr + fw,
        demotion_s: fr + sw,
        fetch_s: fw,
        writeback_s: fr + sw,
    })
}

fn bounds(s: &Sequence, shape: &Shape, p: &Prices) -> Bounds {
    let slots = fast_slots(shape);
    let hits = belady(s, slots);
    let (tiering_cost_s, tiering_interval) = interval_bound(s, slots, p, false);
    let (caching_cost_s, caching_interval) = interval_bound(s, slots, p, true);
    Bounds {
        hit_ratio: hits as f64 / s.len().max(1) as f64,
        tiering_cost_s,
        tiering_interval,
        caching_cost_s,
        caching_interval,
        write_back_cost_s: write_back_bound(s, slots, p, hits),
        mixed_cost_s: None,
        latency_mean_s: None,
    }
}

/// Slots of the fastest tier.
fn fast_slots(shape: &Shape) -> u64 {
    let fast = shape.members.iter().filter(|m| m.tier == 0);
    fast.map(|m| u64::from(m.slots)).sum()
}

/// The bound on the mean latency, if every device below the fastest tier knows its least times.
fn latency(base: &Setup, source: &dyn Source, first: &Touched) -> Result<Option<f64>, LabError> {
    let models = |tiers: &[Tier]| -> Result<Vec<_>, LabError> {
        let devices = tiers.iter().flat_map(|t| &t.devices);
        let sheets = devices.flat_map(|d| d.sheets().iter().map(move |s| (d, s)));
        sheets
            .map(|(d, s)| Drive::new(d, s, s.capacity()).model())
            .collect()
    };
    let (fast, below) = base.tiers.split_at(1);
    let (fast, slower) = (models(fast)?, models(below)?);
    let least = |models: &[Box<dyn DeviceModel>], op, len| {
        let each: Option<Vec<Least>> = models.iter().map(|m| m.least(op, len)).collect();
        let least = |f: fn(&Least) -> Nanos| each.as_ref()?.iter().map(f).min();
        Some(Least {
            whole: least(|l| l.whole)?,
            alone: least(|l| l.alone)?,
        })
    };
    if least(&slower, ModelOp::Read, 1).is_none() {
        return Ok(None);
    }
    let write = |len| {
        let of = |models| least(models, ModelOp::Write, len).map_or(Nanos(0), |l| l.whole);
        of(&fast).min(of(&slower))
    };
    let service = Service {
        slow_read: &|len| least(&slower, ModelOp::Read, len).unwrap_or_default(),
        write: &write,
        devices: below.iter().map(|t| t.devices.len() as u32).sum(),
        acceleration: match base.time {
            TimeMode::Closed { .. } => None,
            TimeMode::Trace { acceleration } => Some(acceleration),
        },
    };
    latency_bound(source, first, base.limit, service)
}

/// The first pass and the bounds of a trace, without any run.
///
/// # Errors
/// As [`compare`].
pub fn bounds_of(setup: &Setup, source: &dyn Source, first: &Touched) -> Result<Bounds, LabError> {
    let shape = Shape::new(setup, first, (Uses::Homes, false), &source.name())?;
    let sequence = Sequence::load(source, first, &shape, setup.limit, false)?;
    let prices = prices(setup, &shape, first, sequence.read_share())?;
    Ok(bounds(&sequence, &shape, &prices))
}
