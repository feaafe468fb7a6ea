//! Section 5.1: memory for the map and the statistics.

use super::drives::{hybrid, oodt};
use super::work::{self, Kind};
use crate::Ctx;
use crate::cell::simulate;
use crate::outcome::{Cell as Figure, Outcome, Row, Table};
use isotherm_lab::LabError;

/// Bytes per block for the map and for the statistics.
const BYTES: f64 = 6.0 + 12.0;

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let work = work::work(ctx, Kind::Postmark)?;
    work::describe(out, &[Kind::Postmark], std::slice::from_ref(&work));
    let cell = hybrid(&oodt(&work, ""), 4);
    let report = &simulate(ctx, &work, &[cell])?[0];
    let ours = report.bytes_per_extent;
    let mut rows = Vec::new();
    for (key, label, block, digits) in [
        ("4K", "4 KiB", 4096.0, 2),
        ("4M", "4 MiB", 4.0 * f64::from(1 << 20), 4),
    ] {
        let share = BYTES / block * 100.0;
        let printed = out.printed(key);
        let cut = 10f64.powi(digits);
        let alike = |p: f64| ((share * cut).floor() / cut - p).abs() < 1e-9;
        let holds = printed.as_ref().is_some_and(|p| alike(p.low));
        out.judge(
            key,
            holds,
            format!("{share:.6} %, printed cut and not rounded"),
        );
        let cells = vec![
            Figure::new("their 18 bytes", "%", share).beside(printed),
            Figure::new("ours", "bytes", ours),
            Figure::new("ours", "%", ours / block * 100.0),
        ];
        rows.push(Row::new(label, cells));
    }
    out.tables.push(Table::new("Memory of a block", rows));
    out.inputs.push(format!(
        "ours: map and policy as `bytes_per_extent` of a run with 4 % on flash, {ours:.1} bytes; of 4 MiB by the same bytes"
    ));
    let share = ours / 4096.0 * 100.0;
    out.judge(
        "one percent",
        share < 1.0,
        format!("ours {share:.2} % of 4 KiB, as measured"),
    );
    Ok(())
}
