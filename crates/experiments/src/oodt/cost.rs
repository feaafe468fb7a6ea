//! Figure 2: the cost function of an access, with the same migrations of Postmark.

use super::drives::{describe, geometric, hybrid, less, oodt, seconds};
use super::work::{self, Kind};
use crate::Ctx;
use crate::cell::{Cell, simulate};
use crate::greendm::judge::{ends, range, span};
use crate::outcome::{Cell as Figure, Outcome, Row, Table};
use isotherm_lab::LabError;

/// Shares of the blocks on flash, in percent. The paper does not state its own.
const SHARES: [u32; 4] = [2, 4, 8, 16];
/// The cost functions. The first is the one to which the others are normalised.
const COSTS: [&str; 4] = ["frequency", "sequence", "inverse-bitmap", "queue"];

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let work = work::work(ctx, Kind::Postmark)?;
    work::describe(out, &[Kind::Postmark], std::slice::from_ref(&work));
    describe(out);
    out.substitutes.push(
        "the paper does not say the share on flash of figure 2: several; nor whether the others had weights: without, and beside them with OODT's".to_owned(),
    );
    // First without weights, then with OODT's. The queue has the weights in both cases, as OODT is published.
    let policies: Vec<String> = [",w_read=0,w_metadata=0", ""]
        .iter()
        .flat_map(|weights| {
            let weights = |cost| if cost == "queue" { "" } else { weights };
            COSTS.map(|cost| oodt(&work, &format!(",cost={cost}{}", weights(cost))))
        })
        .collect();
    let cells: Vec<Cell> = SHARES
        .iter()
        .flat_map(|&s| policies.iter().map(move |p| hybrid(p, s)))
        .collect();
    let times: Vec<f64> = simulate(ctx, &work, &cells)?
        .iter()
        .map(|r| seconds(r))
        .collect();
    let by_share: Vec<&[f64]> = times.chunks(policies.len()).collect();
    for (i, title) in ["others without weights", "all with OODT's weights"]
        .iter()
        .enumerate()
    {
        let rows = SHARES.iter().zip(&by_share).map(|(share, t)| {
            let t = &t[i * COSTS.len()..][..COSTS.len()];
            let cells = COSTS
                .iter()
                .zip(t)
                .map(|(name, v)| Figure::new(name, "% of frequency", v / t[0] * 100.0));
            Row::new(format!("{share} %"), cells.collect())
        });
        out.tables.push(Table::new(
            format!("Time by what an access counts, {title}"),
            rows.collect(),
        ));
    }
    let leads: Vec<f64> = by_share
        .iter()
        .flat_map(|t| [0, 1, 2].map(|i| less(t[3], t[i])))
        .collect();
    let (low, high) = ends(leads.iter().copied());
    let mean = (1.0 - geometric(leads.iter().map(|l| 1.0 - l / 100.0))) * 100.0;
    out.judge(
        "queue-best",
        low > 0.0,
        format!("{} less, mean {mean:.1} %", span(low, high, "%")),
    );
    range(out, "queue-less", [high], "%");
    Ok(())
}
