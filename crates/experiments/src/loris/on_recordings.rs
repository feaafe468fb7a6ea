//! The claims of figures 2 to 14, judged on recordings that the user gives (`reproduce --recording mail=FILE`) instead of on the generators.
//!
//! The policies, the models and the rules of judgement are those of the generators. What a recording cannot show is not judged.

use super::cold::DYNAMIC as COLD_DYNAMIC;
use super::grid::{Grid, Named, SIZES, named};
use super::recorded::load;
use super::{caching, cold, hot, mixed};
use crate::Ctx;
use crate::outcome::Outcome;
use crate::recorded::{given, seconds};
use isotherm_lab::LabError;
use isotherm_traces::{Op, Record};
use std::sync::Arc;

/// The names of the recordings that stand for the four workloads, and the workloads.
const LOADS: [(&str, &str); 4] = [
    ("mail", "Postmark"),
    ("file", "file server"),
    ("web", "web server"),
    ("zipf", "web server, Zipf"),
];
/// Seconds of a run of the paper's Filebench workloads (V-B: half an hour).
const PAPER_SECONDS: f64 = 1800.0;
const NO_METADATA: &str = "a mount of whole files answers names and attributes from memory: the recording has no accesses to directories";
const NO_PREPARATION: &str = "the recording begins after the files were made";

fn loads(ctx: &Ctx<'_>, names: &[&str]) -> Result<Vec<Arc<Vec<Record>>>, LabError> {
    names.iter().map(|name| given(ctx, name)).collect()
}

/// The factor for the paper's periods: `--scale`, or the length of the recording as a share of the paper's run.
fn scale(ctx: &Ctx<'_>, records: &[Record]) -> f64 {
    ctx.scale.unwrap_or(seconds(records) / PAPER_SECONDS)
}

fn grid(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    name: &'static str,
    records: &[Record],
    policies: &[&'static str],
) -> Result<Grid, LabError> {
    let factor = scale(ctx, records);
    let policies: Vec<Named> = policies.iter().map(|p| named(p, factor)).collect();
    let load = load(name, records.to_vec());
    load.describe(out);
    out.inputs.push(format!(
        "{name}: {:.0} s recorded, periods of the policies times {factor:.4}",
        seconds(records)
    ));
    let grid = Grid::measure(ctx, load, &policies, &SIZES)?;
    grid.recorded_table(out);
    Ok(grid)
}

fn four(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    policies: &[&'static str],
) -> Result<[Grid; 4], LabError> {
    out.substitutes.push("workloads: the requests that a real mount of whole files got below the page cache, in the order in which they came, 8 in flight; files are pieces of 64 KiB, names and attributes are not in them".to_owned());
    let all = loads(ctx, &LOADS.map(|l| l.0))?;
    let mut grids = Vec::new();
    for ((_, name), records) in LOADS.into_iter().zip(&all) {
        grids.push(grid(ctx, out, name, records, policies)?);
    }
    grids
        .try_into()
        .map_err(|_| LabError::setup("a workload is missing"))
}

/// Figures 2 to 5.
///
/// # Errors
/// A recording is missing or cannot be read, or a simulation fails.
pub fn of_hot(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let grids = four(ctx, out, &hot::POLICIES)?;
    hot::judge(out, &grids);
    Ok(())
}

/// Figures 6 to 9.
///
/// # Errors
/// As [`of_hot`].
pub fn of_cold(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let grids = four(ctx, out, &cold::POLICIES)?;
    let mut kept = given(ctx, "file")?.to_vec();
    kept.retain(|r| r.op != Op::Discard);
    let policies = [cold::PLAIN, COLD_DYNAMIC];
    let kept = grid(ctx, out, "file server, deletes unknown", &kept, &policies)?;
    cold::judge_loads(out, &grids, &kept);
    out.cannot("first-set-flushed", NO_PREPARATION);
    out.cannot("directories-stay", NO_METADATA);
    Ok(())
}

/// Figures 10 to 13.
///
/// # Errors
/// As [`of_hot`].
pub fn of_caching(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let grids = four(ctx, out, &caching::policies())?;
    caching::judge(out, &grids);
    Ok(())
}

/// Figure 14, of the recordings of the file server and of the web server at the same time.
///
/// # Errors
/// As [`of_hot`].
pub fn of_mixed(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let parts = loads(ctx, &["file", "web"])?;
    let records = super::recorded::side_by_side(&parts[0], &parts[1]);
    let factor = scale(ctx, &records);
    let load = load("mixed", records);
    load.describe(out);
    let grid = Grid::measure(ctx, load, &mixed::policies(factor), &SIZES)?;
    grid.recorded_table(out);
    mixed::judge(out, &grid);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Ctx, Experiment, Verdict};

    #[test]
    fn claims_are_judged_on_recordings_and_need_all_of_them() {
        let quiet = |_: &str| ();
        let mut ctx = Ctx::on_fixtures(&quiet, 0.01);
        let fixtures = ctx.traces.take().unwrap();
        ctx.scale = None;
        ctx.recordings = ["mail", "file", "web", "zipf"]
            .map(|n| (n.to_owned(), fixtures.join(format!("loris-{n}.parquet"))))
            .to_vec();
        for (id, cannot) in [
            ("loris-2-5", 1),
            ("loris-6-9", 2),
            ("loris-10-13", 0),
            ("loris-14", 0),
        ] {
            let out = Experiment::find(id).unwrap().run(&ctx).unwrap();
            assert_eq!(out.count(Verdict::CannotBeJudged), cannot, "{id}");
            let tables = out.tables.iter().map(|t| &t.title);
            assert!(
                tables
                    .clone()
                    .all(|t| t.contains("recorded on a real mount")),
                "{id}: no generator ran"
            );
            assert!(out.scale.is_none(), "nothing is scaled but periods");
        }
        ctx.recordings.pop();
        let missing = Experiment::find("loris-2-5").unwrap().run(&ctx);
        assert!(missing.unwrap_err().to_string().contains("zipf=FILE"));
        let other = Experiment::find("dss-2").unwrap().run(&ctx);
        assert!(other.unwrap_err().to_string().contains("recording"));
    }
}
