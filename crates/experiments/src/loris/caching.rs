//! Figures 10 to 13: caching compared with the best tiering.

use super::grid::{ALIKE, Grid, SIZES, each, every, none};
use super::hot::{four, substitutes};
use super::recorded;
use crate::Ctx;
use crate::outcome::Outcome;
use isotherm_lab::LabError;

const ON_DEMAND: &str = "cache-ondemand";
const INTERVAL: &str = "cache-interval";
const HOT: [&str; 3] = ["hot-dst-dynamic", "hot-dst-80s", "hot-dst-5s"];
const COLD: [&str; 2] = ["cold-dst-plain", "cold-dst-dynamic"];

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    substitutes(ctx, out);
    let grids = four(ctx, out, &policies(), ["10", "11", "12", "13"])?;
    judge(out, &grids);
    recorded::add(ctx, out, recorded::OF_CACHING)
}

/// The policies of figures 10 to 13.
pub(super) fn policies() -> Vec<&'static str> {
    let caches = [ON_DEMAND, INTERVAL].into_iter();
    caches.chain(HOT).chain(COLD).collect()
}

/// The faster of the two Cold-DST variants. The figures show "plain or dynamic depending on the workload".
fn cold(grid: &Grid, size: u64) -> f64 {
    COLD.iter()
        .map(|p| grid.gain(p, size))
        .fold(f64::NAN, f64::max)
}

fn others(grid: &Grid, size: u64) -> f64 {
    [ON_DEMAND, INTERVAL, HOT[0], HOT[1]]
        .iter()
        .map(|p| grid.gain(p, size))
        .fold(f64::NAN, f64::max)
}

/// Cold-DST relative to the best of the others, in percent.
fn cold_ahead(grid: &Grid, size: u64) -> f64 {
    ((100.0 + cold(grid, size)) / (100.0 + others(grid, size)) - 1.0) * 100.0
}

/// Judges the claims of figures 10 to 13.
pub(super) fn judge(out: &mut Outcome, grids: &[Grid; 4]) {
    let [postmark, file, web, zipf] = grids;
    let mut all = Vec::new();
    for p in [ON_DEMAND, INTERVAL, HOT[0], HOT[1], COLD[0], COLD[1]] {
        for (what, gain) in each(&[zipf], &SIZES, |g, s| g.gain(p, s)) {
            all.push((format!("{p} {what}"), gain));
        }
    }
    every(out, "zipf-all-win", &all, ALIKE);
    let every_load: Vec<_> = grids.iter().collect();
    let ahead = each(&every_load, &SIZES, |g, s| g.ahead(ON_DEMAND, INTERVAL, s));
    every(out, "ondemand-over-interval", &ahead, 0.0);
    for (key, caching, tiering) in [
        ("append-ondemand-behind", ON_DEMAND, HOT[0]),
        ("append-interval-behind", INTERVAL, HOT[2]),
    ] {
        let behind = each(&[postmark, file], &SIZES, |g, s| {
            g.ahead(caching, tiering, s)
        });
        none(out, key, &behind, 0.0);
    }
    for (key, caching, tiering) in [
        ("web-ondemand-ahead", ON_DEMAND, HOT[0]),
        ("web-interval-ahead", INTERVAL, HOT[2]),
    ] {
        let ahead = each(&[web, zipf], &[SIZES[0]], |g, s| {
            g.ahead(caching, tiering, s)
        });
        every(out, key, &ahead, 0.0);
    }
    let best = each(&[postmark, file, web], &SIZES, cold_ahead);
    every(out, "cold-best", &best, -ALIKE);
    let not = each(&[zipf], &SIZES, cold_ahead);
    let behind: Vec<_> = not.iter().filter(|(_, v)| *v < 0.0).cloned().collect();
    out.judge(
        "zipf-cold-not-best",
        !behind.is_empty(),
        format!(
            "the better Cold-DST over the best of the others: {}",
            super::grid::listed(&not)
        ),
    );
}
