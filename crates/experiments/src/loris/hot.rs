//! Figures 2 to 5: Hot-DST dynamically, every 5 seconds and every 80 seconds.

use super::grid::{ALIKE, Grid, HDD, SIZES, each, every, fast_writes, listed, none, policy};
use super::load::{file_server, postmark, web, zipf};
use super::recorded;
use crate::Ctx;
use crate::greendm::judge::range;
use crate::outcome::Outcome;
use isotherm_lab::LabError;

const DYNAMIC: &str = "hot-dst-dynamic";
const FIVE: &str = "hot-dst-5s";
const EIGHTY: &str = "hot-dst-80s";
/// The policies of figures 2 to 5.
pub const POLICIES: [&str; 3] = [FIVE, EIGHTY, DYNAMIC];
/// Two policies "perform similar" if they differ by at most this, in percent.
const SIMILAR: f64 = 15.0;

/// The four workloads of figures 2 to 13 under `policies`, with their tables.
///
/// # Errors
/// A simulation fails.
pub fn four(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    policies: &[&'static str],
    figures: [&str; 4],
) -> Result<[Grid; 4], LabError> {
    let policies: Vec<_> = policies.iter().map(|p| policy(ctx, p)).collect();
    let loads = [
        postmark(ctx)?,
        file_server(ctx, true)?,
        web(ctx)?,
        zipf(ctx)?,
    ];
    let mut grids = Vec::with_capacity(loads.len());
    for (load, figure) in loads.into_iter().zip(figures) {
        load.describe(out);
        let grid = Grid::measure(ctx, load, &policies, &SIZES)?;
        grid.table(out, figure);
        grids.push(grid);
    }
    grids
        .try_into()
        .map_err(|_| LabError::setup("a workload is missing"))
}

/// Adds the substitutes that all of Loris' experiments with workloads use.
pub fn substitutes(ctx: &Ctx<'_>, out: &mut Outcome) {
    let scale = ctx.scale_or(super::SCALE);
    out.substitutes.push("units: whole files in Loris, extents here; the generated file system gives each file room of its own (Postmark 32 KiB, web servers and mixed 64 KiB, file server 256 KiB), so that an extent holds one file, and a file larger than that several extents with counters of their own".to_owned());
    out.substitutes.push("workloads: Postmark and Filebench on MINIX are stood for by generators of what reaches the disk below a page cache of 64 MB (times the scale); deletes discard at once; directories and inodes have no cache beside it to speak of; one request in flight, which is assumed".to_owned());
    out.substitutes.push(format!("sizes and counts times {scale}, and so the periods of 5 and 80 s; Filebench's half an hour is a fixed number of rounds, so IOPS are requests below the page cache a second, which is its figure times a constant that all cells share"));
    out.substitutes.push("devices are models, flash as large as its share of the working set; moves are durable before the map changes, which Loris' were not".to_owned());
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    substitutes(ctx, out);
    let grids = four(ctx, out, &POLICIES, ["2", "3", "4", "5"])?;
    judge(out, &grids);
    recorded::add(ctx, out, recorded::OF_HOT)
}

/// Judges the claims of figures 2 to 5.
pub(super) fn judge(out: &mut Outcome, grids: &[Grid; 4]) {
    let [postmark, file, web, zipf] = grids;
    let mut all = Vec::new();
    for p in POLICIES {
        for (what, gain) in each(&[zipf], &SIZES, |g, s| g.gain(p, s)) {
            all.push((format!("{p} {what}"), gain));
        }
    }
    every(out, "zipf-all-win", &all, ALIKE);
    let by_zipf: Vec<_> = POLICIES
        .iter()
        .map(|p| ((*p).to_owned(), zipf.gain(p, 25) - web.gain(p, 25)))
        .collect();
    every(out, "zipf-most", &by_zipf, 0.0);
    // The interval matters in a workload if at some size the two intervals differ by more than the bound for alike.
    let apart: Vec<_> = grids
        .iter()
        .map(|g| {
            let apart = SIZES.map(|s| g.ahead(EIGHTY, FIVE, s));
            let most = apart.into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs()));
            (g.load.name.to_owned(), most.unwrap_or(f64::NAN))
        })
        .collect();
    out.judge(
        "interval-matters",
        apart.iter().all(|(_, v)| v.abs() > ALIKE),
        format!("80 s over 5 s, where most: {}", listed(&apart)),
    );
    let loss = each(&[web], &SIZES, |g, s| g.gain(FIVE, s));
    none(out, "web-5s-below-hdd", &loss, 0.0);
    let gain = each(&[web], &SIZES, |g, s| g.gain(EIGHTY, s));
    every(out, "web-80s-improves", &gain, ALIKE);
    let moved = |g: &Grid, p, s| g.report(p, s).map_or(f64::NAN, |r| r.migrated_bytes as f64);
    let more = each(&[file, web], &SIZES, |g, s| {
        (moved(g, FIVE, s) / moved(g, EIGHTY, s) - 1.0) * 100.0
    });
    every(out, "shorter-moves-more", &more, 0.0);
    let small = each(&[postmark], &[25], |g, s| g.gain(EIGHTY, s));
    none(out, "postmark-80s-small", &small, 0.0);
    // "Faster by 12 %" is 12 % less time, because the figure shows times.
    let less_time = |p, s| (1.0 - postmark.speed(HDD, s) / postmark.speed(p, s)) * 100.0;
    range(out, "postmark-80s-75", [less_time(EIGHTY, 75)], "%");
    let similar = each(&[file, web], &SIZES, |g, s| g.ahead(DYNAMIC, EIGHTY, s));
    out.judge(
        "dynamic-similar",
        similar.iter().all(|(_, v)| v.abs() < SIMILAR),
        format!("dynamic over 80 s: {}", listed(&similar)),
    );
    let ahead = each(&[postmark], &SIZES, |g, s| {
        g.ahead(DYNAMIC, EIGHTY, s).min(g.ahead(DYNAMIC, FIVE, s))
    });
    every(out, "postmark-dynamic", &ahead, ALIKE);
    let writes = |p, s| {
        postmark
            .report(p, s)
            .map_or(f64::NAN, |r| fast_writes(r) * 100.0)
    };
    let more: Vec<_> = SIZES
        .iter()
        .map(|&s| {
            let by_interval = writes(EIGHTY, s).max(writes(FIVE, s));
            (format!("{s} %"), writes(DYNAMIC, s) - by_interval)
        })
        .collect();
    every(out, "append-reads", &more, 0.0);
    out.cannot("append-reads-off", "below the page cache nothing tells the read of a block that is appended to from any other read of one block");
}
