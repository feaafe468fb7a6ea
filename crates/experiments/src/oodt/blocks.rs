//! Figure 9: time as a function of block size.

use std::sync::Arc;

use super::drives::{describe, disk, geometric, hybrid, less, oodt, seconds};
use super::work::{self, ALL};
use crate::Ctx;
use crate::cell::{Cell, simulate};
use crate::greendm::judge::{ends, range};
use crate::outcome::{Cell as Figure, Outcome, Row, Table};
use crate::work::Work;
use isotherm_lab::LabError;

/// Shares of the blocks on flash, in percent.
const SHARES: [u32; 4] = [2, 4, 8, 16];
/// Block sizes in KiB.
const SIZES: [u32; 4] = [4, 8, 16, 32];

/// Time relative to the disk's, in percent, by share and size.
type Times = [[f64; 4]; 4];

fn measure(ctx: &Ctx<'_>, work: &Arc<Work>) -> Result<Times, LabError> {
    let alone = disk(ctx, work)?;
    let base = seconds(&alone);
    let cells: Vec<Cell> = SHARES
        .iter()
        .flat_map(|&share| {
            SIZES.map(|size| Cell {
                extent: size << 10,
                ..hybrid(&oodt(work, ""), share)
            })
        })
        .collect();
    let mut times = [[f64::NAN; 4]; 4];
    let reports = simulate(ctx, work, &cells)?;
    for (to, r) in times.iter_mut().flatten().zip(&reports) {
        *to = seconds(r) / base * 100.0;
    }
    Ok(times)
}

fn table(out: &mut Outcome, title: String, times: &Times) {
    let rows = SHARES.iter().zip(times).map(|(share, t)| {
        let cells = SIZES
            .iter()
            .zip(t)
            .map(|(size, t)| Figure::new(&format!("{size} KiB"), "% of disk", *t));
        Row::new(format!("{share} %"), cells.collect())
    });
    out.tables.push(Table::new(title, rows.collect()));
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    work::own_scales(ctx, out);
    let mut works = Vec::new();
    let mut all = Vec::new();
    for kind in ALL {
        let work = work::work(ctx, kind)?;
        let times = measure(ctx, &work)?;
        table(out, format!("{}: time by block size", kind.name()), &times);
        works.push(work);
        all.push(times);
    }
    work::describe(out, &ALL, &works);
    describe(out);
    let mut mean = [[f64::NAN; 4]; 4];
    for (i, row) in mean.iter_mut().enumerate() {
        for (j, v) in row.iter_mut().enumerate() {
            *v = geometric(all.iter().map(|t| t[i][j]));
        }
    }
    table(out, "Geometric mean: time by block size".to_owned(), &mean);
    judge(out, &all, &mean);
    Ok(())
}

fn judge(out: &mut Outcome, all: &[Times], mean: &Times) {
    let [postmark, tpcc, tpch, iozone, web] = all else {
        return;
    };
    let words = |v: &[f64]| {
        let all: Vec<String> = v.iter().map(|v| format!("{v:.1}")).collect();
        all.join(", ")
    };
    let whole: [f64; 4] = std::array::from_fn(|j| geometric(mean.iter().map(|t| t[j])));
    out.judge(
        "mean",
        whole[1..].iter().all(|v| whole[0] < *v),
        format!(
            "4, 8, 16, 32 KiB over all shares: {} % of the disk's time",
            words(&whole)
        ),
    );
    // The figure says that larger blocks are slower. A gap in the other direction does not confirm it.
    let gaps: Vec<f64> = postmark.iter().map(|t| t[3] - t[0]).collect();
    out.judge(
        "postmark gap",
        gaps[0] > 0.0 && gaps.windows(2).all(|w| w[1] > w[0]),
        format!(
            "32 KiB takes {} points of the disk's time more than 4 KiB at 2, 4, 8, 16 %",
            words(&gaps)
        ),
    );
    let above: Vec<String> = [2, 3]
        .iter()
        .map(|&i| {
            format!(
                "at {} %: {:.1} and {:.1}",
                SHARES[i], tpcc[i][3], tpcc[i][2]
            )
        })
        .collect();
    let holds = [2, 3].iter().all(|&i: &usize| tpcc[i][3] < tpcc[i][2]);
    out.judge(
        "tpcc",
        holds,
        format!("32 and 16 KiB {} %", above.join(", ")),
    );
    let four = |t: &Times| t.map(|t| less(t[0], t[3]));
    range(out, "tpch", [ends(four(tpch)).1], "%");
    let mean = four(iozone).iter().sum::<f64>() / 4.0;
    range(out, "iozone", [mean], "%");
    let best = |t: &[f64; 4]| t[1..].iter().all(|v| t[0] < *v);
    let each: Vec<String> = SHARES
        .iter()
        .zip(web)
        .map(|(s, t)| format!("{s} %: {}", words(t)))
        .collect();
    let each = each.join("; ");
    out.judge("webserver 4K", web.iter().all(best), each.clone());
    let worse = |t: &[f64; 4]| t[1] > t[2] && t[1] > t[3];
    out.judge("webserver 8K", worse(&web[2]), words(&web[2]));
    let else_where = [0, 1, 3]
        .iter()
        .all(|&i: &usize| web[i][1] <= web[i][2] && web[i][1] <= web[i][3]);
    out.judge("webserver else", else_where, each);
}
