//! The drives of OODT 4.1, and the configurations with which OODT is compared.

use std::sync::Arc;

use super::work::{MIGRATIONS, migrate_every};
use crate::cell::{Cell, Store, simulate};
use crate::work::Work;
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_lab::sim::Report;
use isotherm_lab::size::Size;

/// The high-performance tier.
pub const FLASH: &str = "ocz-40";
/// The high-capacity tier, which is also the disk alone.
pub const DISK: &str = "maxtor-500";

/// OODT under `work`, with the further parameters in `with` (such as `,w_read=0`).
pub fn oodt(work: &Work, with: &str) -> String {
    format!("oodt,migrate_every={}{with}", migrate_every(work))
}

/// A hybrid with `percent` of the touched blocks on flash.
pub fn hybrid(policy: &str, percent: u32) -> Cell {
    let fast = Store::new(FLASH, Size::Share(percent * 10_000));
    Cell {
        flushes: false,
        ..Cell::hybrid(policy, vec![fast, Store::all(DISK)])
    }
}

/// Elapsed seconds of a run.
pub fn seconds(r: &Report) -> f64 {
    r.elapsed_s.unwrap_or(f64::NAN)
}

/// Runs the disk alone.
///
/// # Errors
/// A simulation fails.
pub fn disk(ctx: &Ctx<'_>, work: &Work) -> Result<Arc<Report>, LabError> {
    let mut r = simulate(ctx, work, &[Cell::alone(DISK)])?;
    r.pop()
        .ok_or_else(|| LabError::setup("a run without a report"))
}

/// Adds the parts of the set-up that are this project's.
pub fn describe(out: &mut Outcome) {
    out.inputs.push(format!(
        "the share of the touched blocks on {FLASH}, the volume on {DISK}; {MIGRATIONS} migrations a run; times over that of {DISK} alone"
    ));
    out.substitutes.push(
        "drives: the paper names an OCZ of 40 GB and a Maxtor of 500 GB only; models of typical drives of that name".to_owned(),
    );
    out.substitutes.push(
        "the paper describes no durable map: FLUSH costs nothing here, for OODT and for what it is compared with; the journal's writes stay".to_owned(),
    );
    out.substitutes.push(format!(
        "migrations: the paper does not print how often; {MIGRATIONS} a run were chosen after trying 50, and verdicts of oodt-4a and oodt-5a depend on it (docs/reproduce-oodt.md)"
    ));
}

/// How much lower `a` is than `b`, in percent.
pub fn less(a: f64, b: f64) -> f64 {
    (1.0 - a / b) * 100.0
}

/// Geometric mean.
pub fn geometric(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values
        .into_iter()
        .fold((0.0, 0.0), |(s, n), v: f64| (s + v.ln(), n + 1.0));
    (sum / n).exp()
}
