//! Figure 6.4: the number of accesses to each logical extent under uniform random reads, measured and by equations 6.1 to 6.3.
//!
//! With n virtual extents and R requests, i extents are mapped after about n·ln(n / (n − i)) requests. A request that meets a mapped extent
//! meets each of them with equal probability. In state j the mean number of such requests is j / (n − j) (6.2), so E(i) = 1 + Σ 1 / (n − j)
//! over j from i to the last state J = n (1 − e^(−R/n)) (6.1).

use std::sync::{Arc, Mutex, PoisonError};

use isotherm_core::policy::{Access, Action, ParamError, Place, Policy, View};
use isotherm_core::{ExtentId, Nanos, Position};

use super::judge::ends;
use crate::Ctx;
use crate::outcome::{Cell, Outcome, Row, Table};
use isotherm_lab::LabError;
use isotherm_lab::policy_spec::PolicySpec;
use isotherm_lab::sim::{Memory, Run, Setup, TraceFile};
use isotherm_lab::size::Size;

/// Size of extents and requests (6.1.3: "we let the I/O size be equal to the extent size"). The thesis does not print the size.
const EXTENT: u32 = 4096;
/// The number of requests in 20 minutes at the rate of a disk that serves three quarters of them.
const REQUESTS: f64 = 300_000.0;
/// Number of parts of the address space that are compared.
const BINS: usize = 64;

/// A wrapper around a policy that counts its accesses by slot, and that can suppress all moves.
struct Watched {
    inner: Box<dyn Policy>,
    counts: Arc<Mutex<Vec<u64>>>,
    still: bool,
    new: Option<ExtentId>,
}

impl Watched {
    fn count(&self, position: Position) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let at = position.index() as usize;
        if counts.len() <= at {
            counts.resize(at + 1, 0);
        }
        counts[at] += 1;
    }
}

impl Policy for Watched {
    fn inner(&self) -> Option<&dyn Policy> {
        Some(&*self.inner)
    }
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        Some(&mut *self.inner)
    }
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.inner.attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: ExtentId) -> Place {
        self.new = Some(extent);
        self.inner.first_touch(view, extent)
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: ExtentId, position: Position) {
        if self.new == Some(extent) {
            self.new = None;
            self.count(position);
        }
        self.inner.on_placed(view, extent, position);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        if let Some(home) = access.home {
            self.count(home);
        }
        self.inner.on_access(view, access, wanted);
        if self.still {
            wanted.clear();
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if !self.still {
            self.inner.tick(view, wanted);
        }
    }
    fn next_wake(&self) -> Option<Nanos> {
        if self.still {
            None
        } else {
            self.inner.next_wake()
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        self.inner.set(key, value)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.inner.params()
    }
    fn explain(&self, view: &View<'_>, extent: ExtentId) -> String {
        self.inner.explain(view, extent)
    }
}

/// Accesses by slot, and the number of slots.
fn counted(memory: &Memory, policy: &str, fast: u64, still: bool) -> Result<Vec<u64>, LabError> {
    let spec: PolicySpec = policy.parse().map_err(LabError::Setup)?;
    let counts = Arc::new(Mutex::new(Vec::new()));
    let watched = Watched {
        inner: spec.build().map_err(LabError::Setup)?,
        counts: counts.clone(),
        still,
        new: None,
    };
    let setup = Setup {
        extent_bytes: EXTENT,
        ..Setup::pair(spec, Size::Bytes(fast))?
    };
    Run::new(&setup, memory)
        .policy(Box::new(watched))
        .hit_only()?;
    let counts = counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    Ok(counts)
}

/// Equation 6.1 for each logical extent.
fn expected(n: usize, requests: usize) -> Vec<f64> {
    let last = n as f64 * (1.0 - (-(requests as f64) / n as f64).exp());
    let last = last as usize;
    let mut sum = 0.0;
    let mut e = vec![0.0; n];
    for i in (0..last).rev() {
        sum += 1.0 / (n - i) as f64;
        e[i] = 1.0 + sum;
    }
    e
}

/// Averages of neighbouring values over all `n` extents.
fn binned(values: &[f64], n: usize) -> Vec<f64> {
    let width = n.div_ceil(BINS);
    let at = |i: usize| values.get(i).copied().unwrap_or(0.0);
    (0..n)
        .step_by(width)
        .map(|from| (from..(from + width).min(n)).map(at).sum::<f64>() / width.min(n - from) as f64)
        .collect()
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let scale = ctx.scale_or(super::LBA_SCALE);
    let n = ((1u64 << 30) as f64 * scale) as usize / EXTENT as usize;
    let requests = (REQUESTS * scale) as usize;
    let spec = format!(
        "gen:uniform,span={},size={EXTENT},requests={requests},gap={},seed={}",
        n * EXTENT as usize,
        1200.0 / requests as f64,
        ctx.seed
    );
    let fast = (n / 4 * EXTENT as usize) as u64;
    out.inputs.push(format!("{spec}: {n} extents of 4 KiB, a quarter of them on flash; accesses counted by the slot that holds the extent"));
    out.substitutes.push("Filebench's random reads are stood for by gen:uniform; the thesis prints no extent size: with 4 KiB, 20 minutes of a disk leave some extents untouched, as it says".to_owned());
    let memory = Memory::load(&TraceFile::new(spec, isotherm_traces::Options::default()))?;
    let real = |v: Vec<u64>| v.into_iter().map(|c| c as f64).collect::<Vec<f64>>();
    let linear = real(counted(&memory, "mylinear", fast, false)?);
    let mapped = real(counted(&memory, "greendm", fast, true)?);
    let moving = real(counted(&memory, "greendm", fast, false)?);
    let formula = expected(n, requests);
    let bins = [&linear, &mapped, &moving, &formula].map(|v| binned(v, n));
    let rows = (0..bins[0].len())
        .step_by(4)
        .map(|i| {
            Row::new(
                format!(
                    "from {:.0} MiB",
                    (i * n.div_ceil(BINS) * EXTENT as usize) as f64 / f64::from(1 << 20)
                ),
                vec![
                    Cell::new("linear", "per extent", bins[0][i]),
                    Cell::new("GreenDM, mapping only", "per extent", bins[1][i]),
                    Cell::new("equation 6.1", "per extent", bins[3][i]),
                    Cell::new("GreenDM, PT 1", "per extent", bins[2][i]),
                ],
            )
        })
        .collect();
    out.tables.push(Table::new(
        "Accesses by logical address, every fourth of 64 parts",
        rows,
    ));
    judge(out, &bins, &linear, &mapped, n, requests);
    Ok(())
}

fn judge(
    out: &mut Outcome,
    bins: &[Vec<f64>; 4],
    linear: &[f64],
    mapped: &[f64],
    n: usize,
    requests: usize,
) {
    // The mean over a part's extents follows a Poisson distribution. The bound is five standard deviations.
    let mean = requests as f64 / n as f64;
    let noise = 5.0 * (mean / (n as f64 / BINS as f64)).sqrt();
    let (low, high) = ends(bins[0].iter().copied());
    out.judge(
        "linear-flat",
        high - mean < noise && mean - low < noise,
        format!("{low:.3} to {high:.3} accesses an extent over the 64 parts, {mean:.3} on average, noise {noise:.3}"),
    );
    let falls = |v: &[f64]| v.windows(2).all(|w| w[1] <= w[0] + noise);
    let at = |v: &[f64], part: usize| v[part * (v.len() - 1) / 4];
    let words = |v: &[f64]| {
        let quarters: Vec<String> = (0..5).map(|q| format!("{:.2}", at(v, q))).collect();
        quarters.join(", ")
    };
    out.judge(
        "greendm-falls",
        falls(&bins[1]),
        format!("mapping only, part 0, 16, 32, 48, 63 of 64: {}; with PT 1, whose moves the equations leave out: {}", words(&bins[1]), words(&bins[2])),
    );
    let off = bins[1].iter().zip(&bins[3]).map(|(a, b)| (a - b).abs());
    let (_, off) = ends(off);
    out.judge(
        "markov",
        off < noise,
        format!("at most {off:.3} accesses an extent off, noise {noise:.3}"),
    );
    let used = |v: &[f64]| v.iter().filter(|c| **c > 0.0).count();
    let reach = |v: &[f64]| v.iter().rposition(|c| *c > 0.0).map_or(0, |i| i + 1);
    out.judge(
        "gapless",
        used(mapped) == reach(mapped) && used(linear) < reach(linear),
        format!(
            "GreenDM {} of its first {} logical extents, linear {} of {}",
            used(mapped),
            reach(mapped),
            used(linear),
            reach(linear)
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_counts_every_request() {
        let (n, requests) = (10_000, 12_000);
        let sum: f64 = expected(n, requests).iter().sum();
        assert!((sum / requests as f64 - 1.0).abs() < 1e-3, "{sum}");
    }
}
