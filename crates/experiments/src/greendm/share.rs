//! Figures 9.1 to 9.3: an eighth of the volume on flash in place of a quarter.

use super::caching::{searched, works};
use super::cost::totals;
use super::judge::{Named, ends, over, range, row, span};
use super::measure::{Drive, Measured};
use super::{files, online, search};
use crate::Ctx;
use crate::outcome::{Outcome, Table};
use crate::work::Work;
use isotherm_lab::LabError;

/// The reason that is given if the engine refuses copies.
const MISSING: &str = "caching is not in this build";

/// The same drives with a quarter and with an eighth of the volume on flash: linear, HDD, SSD, GreenDM's cells.
struct Both {
    quarter: Vec<Named>,
    eighth: Vec<Named>,
}

impl Both {
    fn table(&self, out: &mut Outcome, title: &str) {
        let mut rows = Vec::new();
        for (share, all) in [("1/4", &self.quarter), ("1/8", &self.eighth)] {
            for (name, m) in all.iter().filter(|(n, _)| n != "HDD" && n != "SSD") {
                rows.push(row(out, &format!("{share} {name}"), "", m, None));
            }
        }
        out.tables.push(Table::new(title, rows));
    }

    fn changes(&self, f: fn(&Measured) -> f64) -> Vec<f64> {
        self.quarter[3..]
            .iter()
            .zip(&self.eighth[3..])
            .map(|(a, b)| over(f(&b.1), f(&a.1)))
            .collect()
    }

    fn linear(&self, f: fn(&Measured) -> f64) -> f64 {
        over(f(&self.eighth[0].1), f(&self.quarter[0].1))
    }

    /// The change of the cost at time factor 1.
    fn cost(&self, work: &Work, scale: f64) -> Result<Vec<f64>, LabError> {
        let usd = |share, (name, m): &Named| -> Result<f64, LabError> {
            Ok(totals(work, &Drive::Hybrid(name.clone(), share), m, scale, false)?[0])
        };
        let pairs = self.quarter[3..].iter().zip(&self.eighth[3..]);
        pairs
            .map(|(a, b)| Ok(over(usd(8, b)?, usd(4, a)?)))
            .collect()
    }
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    out.inputs.push("the runs of greendm-6.5, 6.6 and 6.7, and again with 1/8 of the volume on flash; changes from 1/4 to 1/8".to_owned());
    out.substitutes
        .push("as in greendm-6.5, 6.6 and 6.7".to_owned());
    let work = search::work(ctx)?;
    let both = Both {
        quarter: search::measured(ctx, &work, 4)?,
        eighth: search::measured(ctx, &work, 8)?,
    };
    both.table(out, "Web search");
    range(out, "search-slower", both.changes(|m| m.mb_s), "%");
    range(out, "search-wear", both.changes(|m| m.wear_10), "%");
    range(out, "search-linear-wear", [both.linear(|m| m.wear_10)], "%");
    range(out, "search-linear-faster", [both.linear(|m| m.mb_s)], "%");
    let mut costs = both.cost(&work, ctx.scale_or(super::SEARCH_SCALE))?;
    let (a, b) = (searched(ctx, &work, 4)?, searched(ctx, &work, 8)?);
    let caching = works(&a);
    if caching {
        let changes = a.iter().zip(&b).map(|(a, b)| over(b.1.mb_s, a.1.mb_s));
        range(out, "search-caching-slower", changes, "%");
    } else {
        for key in [
            "search-caching-slower",
            "online-caching",
            "files-caching-slower",
        ] {
            out.cannot(key, MISSING);
        }
    }

    let work = online::work(ctx)?;
    let both = Both {
        quarter: online::measured(ctx, &work, "greendm", 4)?,
        eighth: online::measured(ctx, &work, "greendm", 8)?,
    };
    both.table(out, "FIU online");
    range(out, "online-slower", both.changes(|m| m.mb_s), "%");
    let (low, high) = ends(both.changes(|m| m.wear_10));
    out.judge(
        "online-wear",
        low > -10.0 && high < 10.0,
        format!("ours {}", span(low, high, "%")),
    );
    range(out, "online-linear-wear", [both.linear(|m| m.wear_10)], "%");
    range(out, "online-linear-faster", [both.linear(|m| m.mb_s)], "%");
    costs.extend(both.cost(&work, ctx.scale_or(super::ONLINE_SCALE))?);
    if caching {
        let of = |share| online::measured(ctx, &work, "greendm-cache", share);
        let (a, b) = (of(4)?, of(8)?);
        let c: Vec<f64> = a[3..]
            .iter()
            .zip(&b[3..])
            .map(|(a, b)| over(b.1.mb_s, a.1.mb_s))
            .collect();
        let why = format!(
            "4 KiB {:.1} %, 16 KiB {:.1} %, 64 KiB {:.1} %",
            c[0], c[1], c[2]
        );
        out.judge(
            "online-caching",
            c[0] > 0.0 && c[1] > 0.0 && c[2] < 0.0,
            why,
        );
    }
    served(ctx, out, caching, costs)
}

/// The part for the file server, and the claims about all workloads.
fn served(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    caching: bool,
    mut costs: Vec<f64>,
) -> Result<(), LabError> {
    let (mut speed, mut wear, mut linear, mut copies) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for gamma in files::GAMMA {
        let work = files::work(ctx, gamma)?;
        let both = Both {
            quarter: files::measured(ctx, &work, "greendm", 4)?,
            eighth: files::measured(ctx, &work, "greendm", 8)?,
        };
        both.table(out, &format!("File server, Gamma {gamma}"));
        speed.extend(both.changes(|m| m.mb_s));
        wear.extend(both.changes(|m| m.wear_10));
        linear.push(both.linear(|m| m.wear_10));
        costs.extend(both.cost(&work, ctx.scale_or(super::FILES_SCALE))?);
        if caching {
            let of = |share| files::measured(ctx, &work, "greendm-cache", share);
            let (a, b) = (of(4)?, of(8)?);
            copies.extend(
                a[3..]
                    .iter()
                    .zip(&b[3..])
                    .map(|(a, b)| over(b.1.mb_s, a.1.mb_s)),
            );
        }
    }
    range(out, "files-slower", speed, "%");
    range(out, "files-wear", wear, "%");
    range(out, "files-linear-wear", linear, "%");
    if caching {
        range(out, "files-caching-slower", copies, "%");
    }
    let (low, high) = ends(costs);
    out.judge(
        "short-term-cost",
        low > -15.0 && high < 15.0,
        format!(
            "ours {}, $100 of service included as in 7.2",
            span(low, high, "%")
        ),
    );
    Ok(())
}
