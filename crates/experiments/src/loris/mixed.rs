//! Figure 14: file server and web server on two volumes, and a policy that treats each by its kind of data.

use super::grid::{ALIKE, Grid, Named, SIZES, each, every, named, none};
use super::hot::substitutes;
use super::load::{WEB_CLASS, mixed};
use super::recorded;
use crate::Ctx;
use crate::outcome::Outcome;
use isotherm_lab::LabError;

const TYPE_AWARE: &str = "type-aware";
const CACHE: &str = "cache-ondemand";
const HOT: &str = "hot-dst-dynamic";
const COLD: &str = "cold-dst-dynamic";
/// The percentage of flash that is reserved for the web server. The file server may use it while it is free, and vice versa.
const WEB_SHARE: u8 = 50;

/// On-demand caching for the web server, dynamic Hot-DST for the file server, and large files on the disk.
fn type_aware() -> Named {
    let (first, last) = (WEB_CLASS + 1, WEB_CLASS + 12);
    let rest = 100 - WEB_SHARE;
    Named {
        name: TYPE_AWARE,
        spec: format!(
            "type-aware,rule=class/13-18:slow:0,rule=class/{first}-{last}:cache-ondemand:{WEB_SHARE},rule=all:hot-dst-dynamic:{rest}"
        ),
    }
}

/// The policies of figure 14, with their periods times a factor.
pub(super) fn policies(scale: f64) -> Vec<Named> {
    let mut all = vec![type_aware()];
    all.extend([CACHE, HOT, COLD].map(|p| named(p, scale)));
    all
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    substitutes(ctx, out);
    out.substitutes.push(format!("volumes: type-aware tells them by the class of their requests; each kind has its own statistics here and half of flash ({WEB_SHARE} % the web server), where Loris has one set for both"));
    let load = mixed(ctx)?;
    load.describe(out);
    let policies = policies(ctx.scale_or(super::SCALE));
    let grid = Grid::measure(ctx, load, &policies, &SIZES)?;
    grid.table(out, "14");
    judge(out, &grid);
    recorded::mixed(ctx, out, &policies)
}

/// Judges the claims of figure 14.
pub(super) fn judge(out: &mut Outcome, grid: &Grid) {
    let over = |p| each(&[grid], &SIZES, |g, s| g.ahead(TYPE_AWARE, p, s));
    every(out, "over-hot", &over(HOT), 0.0);
    every(out, "over-caching", &over(CACHE), 0.0);
    let small = grid.ahead(COLD, TYPE_AWARE, SIZES[0]);
    out.judge(
        "cold-meets-small",
        small.abs() <= 2.0 * ALIKE,
        format!("cold-dst-dynamic over type-aware at 25 %: {small:+.1} %"),
    );
    let large = each(&[grid], &SIZES[1..], |g, s| g.ahead(COLD, TYPE_AWARE, s));
    every(out, "cold-exceeds-large", &large, 0.0);
    let suffers = each(&[grid], &SIZES, |g, s| {
        g.ahead(CACHE, HOT, s).max(g.ahead(CACHE, COLD, s))
    });
    none(out, "caching-suffers", &suffers, 0.0);
}
