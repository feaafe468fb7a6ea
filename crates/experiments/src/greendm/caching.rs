//! Figures 8.3 to 8.8: `greendm-cache` compared with `greendm`, under the workloads of chapter 6.

use super::cost::totals;
use super::judge::{Named, over, range, row};
use super::measure::{Drive, Measured};
use super::search::{MCML, PT, describe};
use super::{files, online, search};
use crate::Ctx;
use crate::outcome::{Outcome, Table};
use crate::work::Work;
use isotherm_lab::LabError;

/// The reason that is given if the engine refuses copies.
const MISSING: &str = "caching is not in this build: the engine with devices refused every copy that greendm-cache asked for";

/// Whether the engine made any copies.
pub fn works(cells: &[Named]) -> bool {
    cells.iter().any(|(_, m)| m.report.fetches > 0)
}

/// One workload, with the tiering and the caching cells in the same order.
struct Pair {
    work: Work,
    scale: f64,
    tiering: Vec<Named>,
    caching: Vec<Named>,
}

/// The caching cells of web search.
///
/// # Errors
/// A simulation fails.
pub fn searched(ctx: &Ctx<'_>, work: &Work, share: u64) -> Result<Vec<Named>, LabError> {
    let drives: Vec<Drive> = search::grid("greendm-cache")
        .into_iter()
        .map(|p| Drive::Hybrid(p, share))
        .collect();
    search::named(ctx, work, &drives, search::EXTENT)
}

impl Pair {
    fn by(&self, of: impl Iterator<Item = usize>, f: fn(&Measured) -> f64) -> Vec<f64> {
        of.map(|i| over(f(&self.caching[i].1), f(&self.tiering[i].1)))
            .collect()
    }

    /// The cost at time factor 100 000.
    fn cost(&self) -> Result<Vec<f64>, LabError> {
        let last = super::cost::FACTORS.len() - 1;
        let usd = |named: &Named, caching| -> Result<f64, LabError> {
            let drive = Drive::Hybrid(named.0.clone(), 4);
            Ok(totals(&self.work, &drive, &named.1, self.scale, caching)?[last])
        };
        self.tiering
            .iter()
            .zip(&self.caching)
            .map(|(t, c)| Ok(over(usd(c, true)?, usd(t, false)?)))
            .collect()
    }

    fn table(&self, out: &mut Outcome, title: &str) {
        let rows = self
            .tiering
            .iter()
            .zip(&self.caching)
            .flat_map(|((label, t), (_, c))| {
                [
                    row(out, &format!("tiering {label}"), "", t, None),
                    row(out, &format!("caching {label}"), "", c, None),
                ]
            });
        let rows = rows.collect();
        out.tables.push(Table::new(title, rows));
    }
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    out.substitutes
        .push("as in greendm-6.5, 6.6 and 6.7".to_owned());
    let work = search::work(ctx)?;
    describe(out, &work, 4);
    let caching = searched(ctx, &work, 4)?;
    if !works(&caching) {
        let keys: Vec<String> = out.claims.iter().map(|c| c.key.clone()).collect();
        for k in &keys {
            out.cannot(k, MISSING);
        }
        return Ok(());
    }
    let tiering = search::measured(ctx, &work, 4)?.split_off(3);
    let pair = Pair {
        work,
        scale: ctx.scale_or(super::SEARCH_SCALE),
        tiering,
        caching,
    };
    pair.table(out, "Web search");
    let n = MCML.len();
    let all = || 0..PT.len() * n;
    range(out, "search-faster", pair.by(n..3 * n, |m| m.mb_s), "%");
    range(out, "search-energy", pair.by(n..2 * n, |m| m.energy_j), "%");
    range(out, "search-wear-10", pair.by(all(), |m| m.wear_10), "%");
    range(out, "search-wear-100", pair.by(all(), |m| m.wear_100), "%");
    range(out, "search-cost", pair.cost()?, "%");

    let work = online::work(ctx)?;
    let tiering = online::measured(ctx, &work, "greendm", 4)?.split_off(3);
    let caching = online::measured(ctx, &work, "greendm-cache", 4)?.split_off(3);
    let pair = Pair {
        work,
        scale: ctx.scale_or(super::ONLINE_SCALE),
        tiering,
        caching,
    };
    pair.table(out, "FIU online");
    range(out, "online-slower", pair.by(0..3, |m| m.mb_s), "%");
    range(out, "online-energy", pair.by(0..3, |m| m.energy_j), "%");
    range(out, "online-wear-10", pair.by(0..3, |m| m.wear_10), "%");
    range(out, "online-wear-100", pair.by(0..3, |m| m.wear_100), "%");
    range(out, "online-cost", pair.cost()?, "%");

    let mut pairs = Vec::new();
    for gamma in files::GAMMA {
        let work = files::work(ctx, gamma)?;
        let pair = Pair {
            tiering: files::measured(ctx, &work, "greendm", 4)?.split_off(3),
            caching: files::measured(ctx, &work, "greendm-cache", 4)?.split_off(3),
            scale: ctx.scale_or(super::FILES_SCALE),
            work,
        };
        pair.table(out, &format!("File server, Gamma {gamma}"));
        pairs.push(pair);
    }
    let every = |f: fn(&Measured) -> f64| -> Vec<f64> {
        pairs.iter().flat_map(|p| p.by(0..3, f)).collect()
    };
    range(out, "files-slower", every(|m| m.mb_s), "%");
    range(out, "files-energy", every(|m| m.energy_j), "%");
    range(out, "files-wear-10", every(|m| m.wear_10), "%");
    let costs = pairs
        .iter()
        .map(Pair::cost)
        .collect::<Result<Vec<_>, _>>()?;
    range(out, "files-cost", costs.into_iter().flatten(), "%");
    Ok(())
}
