//! Figures 6 to 9: Cold-DST: plain, dynamic, and with a background cleaner.

use super::grid::{ALIKE, Grid, SIZES, demoted, each, every, fast_writes, listed, none, policy};
use super::hot::{four, substitutes};
use super::load::file_server;
use super::recorded;
use crate::Ctx;
use crate::outcome::Outcome;
use isotherm_lab::LabError;

pub(super) const PLAIN: &str = "cold-dst-plain";
pub(super) const DYNAMIC: &str = "cold-dst-dynamic";
const CLEAN: &str = "cold-dst-dynamic-bgclean";
/// The policies of figures 6 to 9.
pub(super) const POLICIES: [&str; 3] = [PLAIN, DYNAMIC, CLEAN];
/// Hits on extents that were demoted count as few below this, in percent.
const FEW: f64 = 10.0;
/// Classes of inodes and directories (DSS Table 3).
const NAMES: [&str; 2] = ["4", "6"];

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    substitutes(ctx, out);
    let grids = four(ctx, out, &POLICIES, ["6", "7", "8", "9"])?;
    let load = file_server(ctx, false)?;
    load.describe(out);
    let policies = [policy(ctx, PLAIN), policy(ctx, DYNAMIC)];
    let kept = Grid::measure(ctx, load, &policies, &SIZES)?;
    kept.table(out, "7, deletes unknown to the disk");
    // This shows where the files are placed while they are created.
    let policies = [policy(ctx, PLAIN)];
    let made = Grid::measure(ctx, grids[3].load.preparation(), &policies, &SIZES)?;
    made.table(out, "9, the preparation alone");
    judge_loads(out, &grids, &kept);
    judge_preparation(out, &grids[3], &made);
    recorded::add(ctx, out, recorded::OF_COLD)
}

/// The percentage of the accesses to names or to files that flash serves.
fn hits(grid: &Grid, policy: &str, size: u64, names: bool) -> f64 {
    let Some(r) = grid.report(policy, size) else {
        return f64::NAN;
    };
    let (mut accesses, mut hits) = (0, 0);
    for (class, c) in &r.by_class {
        let meta = class.parse::<u8>().is_ok_and(|c| c < 8);
        if NAMES.contains(&class.as_str()) && names || !meta && !names {
            accesses += c.accesses;
            hits += c.fast_hits;
        }
    }
    hits as f64 / accesses as f64 * 100.0
}

/// Judges what only the preparation and the accesses to names show.
fn judge_preparation(out: &mut Outcome, zipf: &Grid, made: &Grid) {
    let taken = |s| {
        made.report(PLAIN, s)
            .map_or(f64::NAN, |r| fast_writes(r) * 100.0)
    };
    let left = [25, 50].map(|s| (s, hits(zipf, PLAIN, s, false), taken(s)));
    let why = left.map(|(s, hits, taken)| {
        format!("{s} %: {hits:.0} % of the accesses to files of the first set still hit flash, which took {taken:.0} % of what was written while both were made ({})", made.report(PLAIN, s).map_or_else(String::new, demoted))
    });
    let flushed = left.iter().all(|(_, hits, _)| *hits < FEW);
    out.judge("first-set-flushed", flushed, why.join("; "));
    let more = |s: &u64| (hits(zipf, PLAIN, *s, true), hits(zipf, PLAIN, *s, false));
    let stay: Vec<_> = SIZES.iter().map(|s| (s, more(s))).collect();
    let why: Vec<_> = stay
        .iter()
        .map(|(s, (names, files))| {
            format!("{s} %: {names:.0} % of the accesses to names hit flash, {files:.0} % of those to files")
        })
        .collect();
    out.judge(
        "directories-stay",
        stay.iter().all(|(_, (names, files))| names > files),
        why.join("; "),
    );
}

/// Judges the claims about the four workloads. `kept` is the file server whose deletes the disk does not know.
pub(super) fn judge_loads(out: &mut Outcome, grids: &[Grid; 4], kept: &Grid) {
    let [_, file, web, zipf] = grids;
    let ahead = each(&[zipf], &SIZES, |g, s| g.ahead(DYNAMIC, PLAIN, s));
    every(out, "zipf-plain-poor", &ahead, ALIKE);
    let gain = each(&[zipf], &SIZES, |g, s| g.gain(PLAIN, s));
    every(out, "zipf-plain-over-hdd", &gain, ALIKE);
    let behind = each(&[web], &SIZES, |g, s| g.ahead(DYNAMIC, PLAIN, s));
    none(out, "web-dynamic-lags", &behind, -ALIKE);
    let catches = each(&[file], &SIZES, |g, s| g.ahead(DYNAMIC, PLAIN, s));
    every(out, "file-catches-up", &catches, -ALIKE);
    let unknown = each(&[kept], &SIZES, |g, s| g.ahead(DYNAMIC, PLAIN, s));
    let helped = catches.iter().zip(&unknown).all(|(a, b)| a.1 > b.1);
    let why = format!(
        "dynamic over plain with discards {}; without {}",
        listed(&catches),
        listed(&unknown)
    );
    out.judge("deletes-help", helped, why);
    let all: Vec<_> = grids.iter().collect();
    let cleaned = each(&all, &SIZES, |g, s| g.ahead(CLEAN, DYNAMIC, s));
    none(out, "bgclean-marginal", &cleaned, ALIKE);
}
