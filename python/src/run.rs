//! `isotherm.sim`: the words of `isotherm sim` as a setup, and the run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use isotherm_core::policy::Policy;
use isotherm_lab::LabError;
use isotherm_lab::policy_spec::PolicySpec;
use isotherm_lab::sim::{
    Device, Observe, Report, Run, Setup, Source, Tier, TimeMode, TraceFile, Volumes, Watch,
    hit_only_file,
};
use isotherm_lab::size::{self, Size};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::policy::{PythonPolicy, Raised};
use crate::trace::{find, options};
use crate::{Error, failed};

/// How often a run looks for Ctrl-C and says how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What decides: a preset, or an object of Python's.
enum Decides {
    Preset,
    Python(PythonPolicy, Raised),
}

/// Play a trace under a policy; `isotherm.sim` says what the arguments mean. Gives the JSON of `isotherm sim`.
#[pyfunction]
#[pyo3(signature = (traces, policy, tiers, *, extent, time, depth, accelerate, warm_up, limit, seed, hit_only, host_power,
    standby, settings, discards, time_bins, address_bins, format, skip_bad, block_bytes, progress))]
pub fn sim(
    py: Python<'_>,
    traces: Vec<String>,
    policy: &Bound<'_, PyAny>,
    tiers: Vec<(Option<String>, String)>,
    extent: &str,
    time: &str,
    depth: Option<u32>,
    accelerate: Option<f64>,
    warm_up: u64,
    limit: Option<u64>,
    seed: u64,
    hit_only: bool,
    host_power: f64,
    standby: Vec<f64>,
    settings: Vec<(String, f64)>,
    discards: bool,
    time_bins: u32,
    address_bins: u32,
    format: Option<&str>,
    skip_bad: u64,
    block_bytes: Option<u32>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let watch = Arc::new(Watch::default());
    let (spec, decides) = decides(policy, &watch)?;
    let setup = Setup {
        tiers: self::tiers(&tiers, &standby)?,
        extent_bytes: size::extent(extent).map_err(|e| failed(format!("extent: {e}")))?,
        policy: spec,
        time: self::time(time, depth, accelerate)?,
        warm_up,
        limit,
        seed,
        host_w: host_power,
        settings,
        discards,
        full: false,
        observe: Observe {
            time_bins,
            address_bins,
        },
    };
    setup.check().map_err(failed)?;
    let options = options(format, skip_bad, block_bytes, None)?;
    let files = traces
        .into_iter()
        .map(|label| {
            Ok(TraceFile {
                path: find(&label)?,
                options: options.clone(),
                label,
            })
        })
        .collect::<PyResult<Vec<_>>>()?;
    let (python, raised) = match decides {
        Decides::Preset => (None, None),
        Decides::Python(p, r) => (Some(Box::new(p) as Box<dyn Policy>), Some(r)),
    };
    let stop = watch.clone();
    let ended = watched(py, &stop, progress.as_ref(), move || {
        play(&setup, files, python, hit_only, &watch)
    })?;
    // Its own exception explains a run that a policy stopped.
    if let Some(e) = raised.and_then(|r| r.lock().ok()?.take()) {
        return Err(in_policy(py, e));
    }
    let report = ended.map_err(failed)?;
    serde_json::to_string(&report).map_err(failed)
}

fn play(
    setup: &Setup,
    mut files: Vec<TraceFile>,
    policy: Option<Box<dyn Policy>>,
    hit_only: bool,
    watch: &Watch,
) -> Result<Report, LabError> {
    let source: Box<dyn Source> = match files.pop() {
        Some(one) if files.is_empty() => {
            if hit_only && policy.is_none() {
                return hit_only_file(setup, &one, Some(watch));
            }
            Box::new(one)
        }
        last => {
            let all = files.into_iter().chain(last);
            Box::new(Volumes::new(
                all.map(|f| Box::new(f) as Box<dyn Source>).collect(),
            ))
        }
    };
    let mut run = Run::new(setup, source.as_ref()).watch(watch);
    if let Some(p) = policy {
        run = run.policy(p);
    }
    if hit_only { run.hit_only() } else { run.full() }
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
