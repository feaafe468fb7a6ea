//! `isotherm.sim`: the words of `isotherm sim` as a setup, and the run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use isotherm_core::policy::Policy;
use isotherm_lab::LabError;
use isotherm_lab::policy_spec::PolicySpec;
use isotherm_lab::sample::Samples;
use isotherm_lab::sim::{
    Begin, Device, Observe, Report, Run, Setup, Source, Tier, TimeMode, Volumes, Watch,
    hit_only_file, parse_span,
};
use isotherm_lab::size::{self, Size};
use isotherm_models::FlashState;
use isotherm_traces::Options;
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde::Deserialize;

use crate::memory::{self, Asked};
use crate::policy::{PythonPolicy, Raised};
use crate::trace::Reading;
use crate::{Error, failed};

/// How often a run looks for Ctrl-C and says how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What decides: a preset, or an object of Python's.
enum Decides {
    Preset,
    Python(PythonPolicy, Raised),
}

/// The world of a run as `isotherm/_sim.py` gives it: JSON with these keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    tiers: Vec<(Option<String>, String)>,
    extent: String,
    time: String,
    depth: Option<u32>,
    accelerate: Option<f64>,
    warm_up: u64,
    new_volume: bool,
    rest: f64,
    limit: Option<u64>,
    seed: u64,
    hit_only: bool,
    sample: Option<f64>,
    flash: Option<String>,
    over_provisioning: Option<f64>,
    span: Option<String>,
    host_power: f64,
    standby: Vec<f64>,
    settings: Vec<(String, f64)>,
    discards: bool,
    time_bins: u32,
    address_bins: u32,
    format: Option<String>,
    columns: Option<String>,
    time_unit: Option<String>,
    skip_bad: u64,
    block_bytes: Option<u32>,
}

impl World {
    fn parse(text: &str) -> PyResult<World> {
        serde_json::from_str(text).map_err(failed)
    }
    fn setup(&self, policy: PolicySpec) -> PyResult<Setup> {
        let mut setup = Setup {
            tiers: tiers(&self.tiers, &self.standby)?,
            extent_bytes: size::extent(&self.extent).map_err(|e| failed(format!("extent: {e}")))?,
            policy,
            time: time(&self.time, self.depth, self.accelerate)?,
            warm_up: self.warm_up,
            begin: Begin {
                new_volume: self.new_volume,
                client_us: 0.0,
                rest_s: self.rest,
                full: false,
            },
            limit: self.limit,
            seed: self.seed,
            host_w: self.host_power,
            settings: self.settings.clone(),
            qos: isotherm_core::qos::Spec::default(),
            discards: self.discards,
            observe: Observe {
                time_bins: self.time_bins,
                address_bins: self.address_bins,
            },
        };
        let flash = self.flash.as_deref().map(FlashState::parse).transpose();
        let flash = flash.map_err(|e| failed(format!("flash: {e}")))?;
        setup.set_flash(flash, self.over_provisioning);
        if let Some(span) = &self.span {
            setup.set_span(parse_span(span).map_err(|e| failed(format!("span: {e}")))?);
        }
        setup.check().map_err(failed)?;
        Ok(setup)
    }
    /// The traces, each a name or columns in memory.
    fn sources(&self, traces: &[Bound<'_, PyAny>]) -> PyResult<Vec<Asked>> {
        let reading = Reading {
            format: self.format.clone(),
            columns: self.columns.clone(),
            time_unit: self.time_unit.clone(),
            skip_bad: self.skip_bad,
            block_bytes: self.block_bytes,
            limit: None,
        };
        let options = reading.options()?;
        let limited = Options {
            limit: self.limit,
            ..options.clone()
        };
        traces
            .iter()
            .map(|t| {
                memory::source(
                    t,
                    if t.is_instance_of::<PyString>() {
                        &options
                    } else {
                        &limited
                    },
                )
            })
            .collect()
    }
}

/// Play a trace under a policy with each of these sizes of the fast tier (none: as `world` has it); `isotherm.sim` says what the
/// arguments mean.
#[pyfunction]
pub fn sim(
    py: Python<'_>,
    traces: Vec<Bound<'_, PyAny>>,
    policy: &Bound<'_, PyAny>,
    world: &str,
    sizes: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Played> {
    let world = World::parse(world)?;
    let watch = Arc::new(Watch::default());
    let (spec, decides) = decides(policy, &watch)?;
    let mut setups = vec![world.setup(spec)?];
    if !sizes.is_empty() {
        let of = |text: &String| -> PyResult<Setup> {
            let mut setup = setups[0].clone();
            setup.tiers[0].size = text
                .parse::<Size>()
                .map_err(|e| failed(format!("fast_size: {e}")))?;
            Ok(setup)
        };
        setups = sizes.iter().map(of).collect::<PyResult<_>>()?;
    }
    let sources = world.sources(&traces)?;
    let (python, raised) = match decides {
        Decides::Preset => (None, None),
        Decides::Python(p, r) => (Some(Box::new(p) as Box<dyn Policy>), Some(r)),
    };
    if python.is_some() && (setups.len() > 1 || world.sample.is_some()) {
        return Err(failed(
            "policy: one in Python is played once: give one fast_size and no sample",
        ));
    }
    let stop = watch.clone();
    let ended = watched(py, &stop, progress.as_ref(), move || {
        play(&setups, sources, python, &world, &watch)
    })?;
    // Its own exception explains a run that a policy stopped.
    if let Some(e) = raised.and_then(|r| r.lock().ok()?.take()) {
        return Err(in_policy(py, e));
    }
    ended.map(Played).map_err(failed)
}

/// Runs that have ended.
#[pyclass(frozen, module = "isotherm._native")]
pub struct Played(Vec<Report>);

#[pymethods]
impl Played {
    /// A list in JSON, each as `isotherm sim --json` prints it.
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(failed)
    }
    /// The page of run number `i`, as `isotherm sim --html` writes it.
    fn page(&self, py: Python<'_>, i: usize) -> PyResult<String> {
        let run = self.0.get(i);
        let run = run.ok_or_else(|| failed(format!("run {i} does not exist")))?;
        Ok(py.detach(|| {
            let cost = Vec::from_iter(isotherm_report::cost_curve(&run.policy, run));
            isotherm_report::run_page(run, &cost).html()
        }))
    }
}

fn play(
    setups: &[Setup],
    mut sources: Vec<Asked>,
    mut policy: Option<Box<dyn Policy>>,
    world: &World,
    watch: &Watch,
) -> Result<Vec<Report>, LabError> {
    let source: Box<dyn Source> = match sources.pop() {
        Some(one) if sources.is_empty() => {
            if let (Asked::File(f), true, None, None) =
                (&one, world.hit_only, &policy, world.sample)
            {
                let run = |s| hit_only_file(s, f, Some(watch));
                return setups.iter().map(run).collect();
            }
            one.boxed()
        }
        last => {
            let all = sources.into_iter().chain(last);
            Box::new(Volumes::new(all.map(Asked::boxed).collect()))
        }
    };
    if let (Some(rate), Some(first)) = (world.sample, setups.first()) {
        let samples = Samples::read(source.as_ref(), first, rate)?;
        return setups.iter().map(|s| samples.run(s, Some(watch))).collect();
    }
    let run = |setup: &Setup| {
        let mut run = Run::new(setup, source.as_ref()).watch(watch);
        if let Some(p) = policy.take() {
            run = run.policy(p);
        }
        if world.hit_only {
            run.hit_only()
        } else {
            run.full()
        }
    };
    setups.iter().map(run).collect()
}

/// Policies side by side, with bounds: see `isotherm.compare`.
#[pyclass(frozen, module = "isotherm._native")]
pub struct Compared(isotherm_lab::compare::Comparison);

#[pymethods]
impl Compared {
    #[new]
    fn new(
        py: Python<'_>,
        trace: Bound<'_, PyAny>,
        policies: Vec<String>,
        world: &str,
    ) -> PyResult<Compared> {
        let world = World::parse(world)?;
        let parse = |text: &String| {
            text.parse::<PolicySpec>()
                .map_err(|e| failed(format!("policies: {e}")))
        };
        let policies: Vec<PolicySpec> = policies.iter().map(parse).collect::<PyResult<_>>()?;
        let first = policies
            .first()
            .ok_or_else(|| failed("policies: name at least one"))?;
        let base = world.setup(first.clone())?;
        let source = world.sources(&[trace])?.remove(0).boxed();
        let hit_only = world.hit_only;
        let ended = watched(py, &Watch::default(), None, move || {
            isotherm_lab::compare::compare(&base, &policies, source.as_ref(), hit_only)
        })?;
        Ok(Compared(ended.map_err(failed)?))
    }
    /// As `isotherm compare --json` prints it.
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(failed)
    }
    /// The page that `isotherm compare --html` writes.
    fn page(&self) -> String {
        isotherm_report::comparison_page(std::slice::from_ref(&self.0)).html()
    }
}

/// The exception of a policy as [`Error`], with its traceback in the text and itself as the cause.
fn in_policy(py: Python<'_>, e: PyErr) -> PyErr {
    let text = py
        .import("traceback")
        .and_then(|t| {
            t.call_method1(
                "format_exception",
                (e.get_type(py), e.value(py), e.traceback(py)),
            )
        })
        .and_then(|lines| lines.extract::<Vec<String>>())
        .map_or_else(|_| e.to_string(), |lines| lines.concat());
    let error = Error::new_err(format!(
        "the policy raised an exception:\n{}",
        text.trim_end()
    ));
    error.set_cause(py, Some(e));
    error
}

fn decides(policy: &Bound<'_, PyAny>, watch: &Arc<Watch>) -> PyResult<(PolicySpec, Decides)> {
    if let Ok(text) = policy.cast::<PyString>() {
        let spec: PolicySpec = text
            .to_cow()?
            .parse()
            .map_err(|e| failed(format!("policy: {e}")))?;
        return Ok((spec, Decides::Preset));
    }
    let p = PythonPolicy::new(policy, watch.clone())?;
    let raised = p.raised();
    let named = policy.getattr_opt("name")?;
    let name: String = match named.map(|n| n.extract()) {
        Some(Ok(name)) => name,
        _ => policy.get_type().name()?.to_string(),
    };
    let spec = PolicySpec {
        // Not to be taken for a preset: the lab lays out volumes of `linear` by address.
        name: format!("python:{name}"),
        params: Vec::new(),
    };
    Ok((spec, Decides::Python(p, raised)))
}

fn tiers(list: &[(Option<String>, String)], standby: &[f64]) -> PyResult<Vec<Tier>> {
    let mut tiers = Vec::new();
    for (i, (preset, size)) in list.iter().enumerate() {
        let last = i + 1 == list.len();
        let device = match preset {
            Some(name) => Device::preset(name),
            None if last => Device::usual_slow(),
            None => Device::usual_fast(),
        };
        let size: Size = size
            .parse()
            .map_err(|e| failed(format!("size of tier {i}: {e}")))?;
        tiers.push(Tier::new(device.map_err(failed)?, size));
    }
    if standby.len() > tiers.len() {
        return Err(failed(format!(
            "standby: names {} members, there are {}",
            standby.len(),
            tiers.len()
        )));
    }
    let members = tiers.iter_mut().flat_map(|t| &mut t.devices);
    for (m, s) in members.zip(standby) {
        m.standby_after_s = (*s > 0.0).then_some(*s);
    }
    Ok(tiers)
}

fn time(time: &str, depth: Option<u32>, accelerate: Option<f64>) -> PyResult<TimeMode> {
    match (time, depth, accelerate) {
        ("closed", depth, None) => Ok(TimeMode::Closed {
            depth: depth.unwrap_or(1),
        }),
        ("closed", _, Some(_)) => Err(failed("accelerate: needs time=\"trace\"")),
        ("trace", None, x) => Ok(TimeMode::Trace {
            acceleration: x.unwrap_or(1.0),
        }),
        ("trace", Some(_), _) => Err(failed(
            "depth: is of the closed loop: leave it out with time=\"trace\"",
        )),
        _ => Err(failed(format!("time: `{time}`: \"closed\" or \"trace\""))),
    }
}

/// `job` on a thread of its own, without Python's lock, while this one listens for Ctrl-C and tells `progress` how far it is
/// (requests, of all).
fn watched<T: Send>(
    py: Python<'_>,
    watch: &Watch,
    progress: Option<&Py<PyAny>>,
    job: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    let look = || {
        Python::attach(|py| {
            py.check_signals()?;
            let (now, all) = (
                watch.requests.load(Ordering::Relaxed),
                watch.total.load(Ordering::Relaxed),
            );
            if let Some(p) = progress {
                p.call1(py, (now, all))?;
            }
            Ok(())
        })
    };
    let (ended, raised) = py.detach(|| {
        std::thread::scope(|s| {
            let (done, wait) = channel::<()>();
            let worker = s.spawn(move || {
                // Dropped when the job ends, even by a panic.
                let _done = done;
                job()
            });
            let mut raised: Option<PyErr> = None;
            while wait.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if raised.is_none()
                    && let Err(e) = look()
                {
                    raised = Some(e);
                    watch.stop.store(true, Ordering::Relaxed);
                }
            }
            (worker.join(), raised)
        })
    });
    if let Some(e) = raised {
        return Err(e);
    }
    match ended {
        Ok(value) => {
            look()?;
            Ok(value)
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
