//! Figure 10: time as a function of the weights of reads and of metadata.

use super::drives::{describe, geometric, hybrid, oodt, seconds};
use super::work::{self, ALL, Kind};
use crate::Ctx;
use crate::cell::{Cell, simulate};
use crate::greendm::judge::ends;
use crate::outcome::{Cell as Figure, Outcome, Row, Table};
use isotherm_lab::LabError;

/// The share on flash in percent. The paper does not state its own.
const SHARE: u32 = 4;
/// Weights, percent.
const WEIGHTS: [u32; 6] = [0, 5, 10, 15, 20, 40];
/// A weight is nearly best if its time exceeds the best by at most this, in percent.
const NEARLY: f64 = 1.0;

/// Time relative to the time without the weight, in percent.
type Curve = [f64; 6];

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    work::own_scales(ctx, out);
    let mut works = Vec::new();
    let mut curves: [Vec<Curve>; 2] = [Vec::new(), Vec::new()];
    for kind in ALL {
        let work = work::work(ctx, kind)?;
        for (of, name) in curves.iter_mut().zip(["w_read", "w_metadata"]) {
            let cells: Vec<Cell> = WEIGHTS
                .iter()
                .map(|w| {
                    let with = match w {
                        10 => String::new(), // the default, so this is the same cell as elsewhere
                        w => format!(",{name}={}", f64::from(*w) / 100.0),
                    };
                    hybrid(&oodt(&work, &with), SHARE)
                })
                .collect();
            let reports = simulate(ctx, &work, &cells)?;
            let base = reports.first().map_or(f64::NAN, |r| seconds(r));
            let mut curve = [f64::NAN; 6];
            for (to, r) in curve.iter_mut().zip(&reports) {
                *to = seconds(r) / base * 100.0;
            }
            of.push(curve);
        }
        works.push(work);
    }
    work::describe(out, &ALL, &works);
    describe(out);
    out.substitutes.push(format!(
        "the paper does not say the share on flash of figure 10: {SHARE} %"
    ));
    let [read, metadata] = &curves;
    table(out, "read", read);
    table(out, "metadata", metadata);
    judge(out, read, metadata);
    Ok(())
}

fn mean(curves: &[Curve]) -> Curve {
    std::array::from_fn(|i| geometric(curves.iter().map(|c| c[i])))
}

fn table(out: &mut Outcome, what: &str, curves: &[Curve]) {
    let names = ALL.iter().map(|k| k.name()).chain(["geometric mean"]);
    let all = curves.iter().copied().chain([mean(curves)]);
    let rows = names.zip(all).map(|(name, curve)| {
        let cells = WEIGHTS
            .iter()
            .zip(curve)
            .map(|(w, v)| Figure::new(&format!("{w} %"), "% of 0", v));
        Row::new(name, cells.collect())
    });
    out.tables.push(Table::new(
        format!("Time by weight of {what}"),
        rows.collect(),
    ));
}

fn judge(out: &mut Outcome, read: &[Curve], metadata: &[Curve]) {
    let nearly = |c: &Curve, at: usize| c[at] <= ends(*c).0 * (1.0 + NEARLY / 100.0);
    let others: Vec<&Curve> = (ALL.iter().zip(read))
        .filter(|(k, _)| **k != Kind::Tpch)
        .map(|x| x.1)
        .collect();
    let common: Vec<String> = (0..WEIGHTS.len())
        .filter(|&i| others.iter().all(|c| nearly(c, i)))
        .map(|i| format!("{} %", WEIGHTS[i]))
        .collect();
    let (low, high) = ends(read.iter().flatten().copied());
    out.judge(
        "read",
        !common.is_empty(),
        format!(
            "within {NEARLY:.0} % of the best for all others: {}; all times lie within {low:.1} and {high:.1} % of those without the weight",
            if common.is_empty() { "none".to_owned() } else { common.join(", ") }
        ),
    );
    let named = [Kind::Postmark, Kind::Tpch, Kind::Web];
    let off: Vec<(Kind, f64)> = (ALL.iter().zip(read))
        .filter(|(k, _)| named.contains(k))
        .map(|(k, c)| (*k, (c[2] / ends(*c).0 - 1.0) * 100.0))
        .collect();
    let words: Vec<String> = off
        .iter()
        .map(|(k, v)| format!("{} {v:.2}", k.name()))
        .collect();
    out.judge(
        "read-10",
        off.iter().all(|x| x.1 <= NEARLY),
        format!(
            "{} % over the best (nearly: {NEARLY:.0} %)",
            words.join(", ")
        ),
    );
    let mean = mean(metadata);
    let best = (0..WEIGHTS.len()).min_by(|&a, &b| mean[a].total_cmp(&mean[b]));
    let best = WEIGHTS[best.unwrap_or(0)];
    let (low, high) = ends(mean);
    out.judge(
        "metadata",
        (10..=20).contains(&best),
        format!(
            "best at {best} %, geometric mean of the workloads; all weights within {:.2} %",
            (high / low - 1.0) * 100.0
        ),
    );
}
