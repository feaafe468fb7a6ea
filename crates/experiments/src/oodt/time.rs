//! Figures 4a, 5a, 6a, 7b, 8c: time relative to the disk's, as a function of the share of blocks on flash.

use std::sync::Arc;

use super::drives::{DISK, FLASH, describe, hybrid, less, oodt, seconds};
use super::work::{self, Kind, MIGRATIONS};
use crate::cell::{Cell, simulate};
use crate::greendm::judge::{ends, range, span};
use crate::outcome::{Cell as Figure, Outcome, Row, Table};
use crate::work::Work;
use crate::{Ctx, greendm};
use isotherm_lab::LabError;
use isotherm_lab::sim::Report;

/// Times count as alike if their spread is at most this, in percent of the largest.
const ALIKE: f64 = 5.0;
/// The share from which flash counts as large. Means exclude these shares (4.3.1), and at the last one most blocks are on flash.
const LARGE: u32 = 32;

/// The names of the compared policies, in this order.
const NAMES: [&str; 5] = ["OODT", "Hystor's cache", "RAF's cache", "Hystor", "RAF"];
/// Index of the first policy with which the paper compares OODT (4.1): the priorities of Hystor and RAF in the same tiering, without their
/// caches.
const HYSTOR: usize = 3;
const RAF: usize = 4;

/// The content of a figure.
struct Shown {
    kind: Kind,
    /// Shares in percent.
    shares: &'static [u32],
    /// The share at which the text compares with the disk.
    against_disk: Option<u32>,
    /// The share at which Hystor is ahead.
    hystor_ahead: Option<u32>,
    /// The share at which Hystor does badly.
    hystor_bad: Option<u32>,
    /// The share from which on Hystor is ahead of RAF.
    over_raf: Option<u32>,
    /// Whether OODT's lead is judged by its mean over the shares.
    on_average: bool,
}

impl Shown {
    const fn new(kind: Kind, shares: &'static [u32]) -> Shown {
        Shown {
            kind,
            shares,
            against_disk: None,
            hystor_ahead: None,
            hystor_bad: None,
            over_raf: None,
            on_average: false,
        }
    }
}

/// One share, with the policies in the order of [`NAMES`].
struct Point {
    share: u32,
    reports: Vec<Arc<Report>>,
}

impl Point {
    fn time(&self, at: usize) -> f64 {
        seconds(&self.reports[at])
    }
}

/// Figure 4a.
///
/// # Errors
/// A simulation fails.
pub fn postmark(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let shown = Shown {
        against_disk: Some(4),
        hystor_ahead: Some(16),
        hystor_bad: Some(2),
        ..Shown::new(Kind::Postmark, &[1, 2, 4, 8, 16, 32, 75])
    };
    run(ctx, out, &shown)
}

/// Figure 5a.
///
/// # Errors
/// A simulation fails.
pub fn tpcc(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let shown = Shown {
        against_disk: Some(2),
        hystor_bad: Some(2),
        ..Shown::new(Kind::Tpcc, &[2, 4, 8, 16, 75])
    };
    run(ctx, out, &shown)
}

/// Figure 6a.
///
/// # Errors
/// A simulation fails.
pub fn tpch(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let shown = Shown {
        against_disk: Some(2),
        on_average: true,
        ..Shown::new(Kind::Tpch, &[2, 4, 8, 16])
    };
    run(ctx, out, &shown)
}

/// Figure 7b.
///
/// # Errors
/// A simulation fails.
pub fn iozone(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let shown = Shown {
        hystor_ahead: Some(32),
        over_raf: Some(0),
        ..Shown::new(Kind::Iozone, &[2, 4, 8, 16, 32])
    };
    run(ctx, out, &shown)
}

/// Figure 8c.
///
/// # Errors
/// A simulation fails.
pub fn web(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let shown = Shown {
        against_disk: Some(16),
        over_raf: Some(16),
        ..Shown::new(Kind::Web, &[2, 4, 8, 16])
    };
    run(ctx, out, &shown)
}

/// Seconds between Hystor's plans, such that the disk's run has as many plans as OODT has migrations.
fn window(disk: &Report) -> f64 {
    (seconds(disk) / MIGRATIONS as f64).clamp(0.001, 1e6)
}

fn run(ctx: &Ctx<'_>, out: &mut Outcome, shown: &Shown) -> Result<(), LabError> {
    let work = work::work(ctx, shown.kind)?;
    work::describe(out, &[shown.kind], std::slice::from_ref(&work));
    describe(out);
    out.substitutes.push("Hystor and RAF: as in 4.1 their priorities under OODT's migration; beside them their caches (`isotherm policies`), reconstructed as their papers are not at hand, which no claim is judged by".to_owned());
    let alone = simulate(ctx, &work, &[Cell::alone(DISK), Cell::alone(FLASH)])?;
    let (disk, flash) = (&alone[0], &alone[1]);
    let policies = [
        oodt(&work, ""),
        format!("hystor,window={}", window(disk)),
        "raf".to_owned(),
        oodt(&work, ",cost=inverse-bitmap,w_read=0,w_metadata=100"),
        oodt(&work, ",cost=sequence,w_read=1,w_metadata=0"),
    ];
    let cells: Vec<Cell> = (shown.shares.iter())
        .flat_map(|&s| policies.iter().map(move |p| hybrid(p, s)))
        .collect();
    let reports = simulate(ctx, &work, &cells)?;
    let points: Vec<Point> = (shown.shares.iter())
        .zip(reports.chunks(policies.len()))
        .map(|(&share, reports)| Point {
            share,
            reports: reports.to_vec(),
        })
        .collect();
    table(ctx, out, &work, (disk, flash), &points)?;
    judge(out, shown, disk, &points);
    Ok(())
}

/// The percentage of proposed promotions that the engine did not begin.
fn refused(r: &Report) -> f64 {
    let up = r.moves.as_ref().and_then(|m| m.get("promotions"));
    up.map_or(f64::NAN, |up| {
        up.refused.values().sum::<u64>() as f64 / up.proposed.max(1) as f64 * 100.0
    })
}

fn table(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    work: &Work,
    (disk, flash): (&Report, &Report),
    points: &[Point],
) -> Result<(), LabError> {
    let over = |r: &Report| seconds(r) / seconds(disk) * 100.0;
    let rows = points.iter().map(|p| {
        let mut cells: Vec<Figure> = (NAMES.iter().zip(&p.reports))
            .map(|(name, r)| Figure::new(name, "% of disk", over(r)))
            .collect();
        let ours = &p.reports[0];
        cells.push(Figure::new(
            "OODT's hits on flash",
            "%",
            ours.fast_hit_ratio * 100.0,
        ));
        cells.push(Figure::new("moves up", "", ours.promotions as f64));
        cells.push(Figure::new(
            "of those asked for refused",
            "%",
            refused(ours),
        ));
        Row::new(format!("{} %", p.share), cells)
    });
    out.tables.push(Table::new(
        "Time by share of blocks on flash",
        rows.collect(),
    ));
    let mut alone = vec![
        (DISK.to_owned(), seconds(disk), over(disk)),
        (FLASH.to_owned(), seconds(flash), over(flash)),
    ];
    if out.id == "oodt-4a" {
        // The disk of figure 4a is from another manufacturer.
        let other = simulate(ctx, work, &[Cell::alone("seagate-250")])?;
        alone.push((
            "seagate-250".to_owned(),
            seconds(&other[0]),
            over(&other[0]),
        ));
    }
    let rows = alone.into_iter().map(|(name, s, over)| {
        let cells = vec![
            Figure::new("time", "s", s),
            Figure::new("of disk", "%", over),
        ];
        Row::new(name, cells)
    });
    out.tables.push(Table::new("Devices alone", rows.collect()));
    Ok(())
}

fn judge(out: &mut Outcome, shown: &Shown, disk: &Report, points: &[Point]) {
    let small = || points.iter().filter(|p| p.share <= LARGE);
    let counted: Vec<&Point> = small()
        .filter(|p| p.share < LARGE || shown.hystor_ahead == Some(LARGE))
        .collect();
    // How much lower OODT is than Hystor and RAF, by share.
    let leads: Vec<(u32, f64)> = counted
        .iter()
        .flat_map(|p| [HYSTOR, RAF].map(|i| (p.share, less(p.time(0), p.time(i)))))
        .collect();
    let at = |share: u32| points.iter().find(|p| p.share == share);
    if let Some(p) = shown.against_disk.and_then(at) {
        let v = -less(p.time(0), seconds(disk));
        range(out, "hdd", [v], "%");
    }
    let mean = leads.iter().map(|l| l.1).sum::<f64>() / leads.len().max(1) as f64;
    let lead = leads
        .iter()
        .filter(|l| Some(l.0) != shown.hystor_ahead)
        .map(|l| l.1);
    let (least, most) = ends(lead);
    let why = format!("{} less, mean {mean:.1} %", span(least, most, "%"));
    out.judge(
        "better",
        if shown.on_average {
            mean > 0.0
        } else {
            least > 0.0
        },
        why,
    );
    range(out, "others", [most], "%");
    if out.printed("mean").is_some() {
        range(out, "mean", [mean], "%");
    }
    if let Some(p) = shown.hystor_ahead.and_then(at) {
        two(out, "hystor-large", p, HYSTOR, 0, disk);
    }
    if let Some(p) = shown.hystor_bad.and_then(at) {
        let over = |i| p.time(i) / seconds(disk) * 100.0;
        let why = format!(
            "at {} %: OODT {:.1}, Hystor {:.1}, RAF {:.1} % of the disk's time",
            p.share,
            over(0),
            over(HYSTOR),
            over(RAF)
        );
        let holds = p.time(HYSTOR) > p.time(0) && p.time(HYSTOR) > p.time(RAF);
        out.judge("hystor-small", holds, why);
    }
    if let Some(from) = shown.over_raf {
        let them: Vec<&Point> = small().filter(|p| p.share >= from).collect();
        let (low, high) = ends(them.iter().map(|p| less(p.time(HYSTOR), p.time(RAF))));
        let why = format!("{} less time than RAF", span(low, high, "%"));
        out.judge("hystor-raf", low > 0.0, why);
    }
    if let Some(p) = points.iter().find(|p| p.share > LARGE) {
        let (low, high) = ends([0, HYSTOR, RAF].map(|i| p.time(i)));
        let apart = less(low, high);
        let why = format!(
            "at {} % the three are {apart:.1} % apart (alike: {ALIKE:.0} %)",
            p.share
        );
        out.judge("alike", apart <= ALIKE, why);
    }
}

/// Judges that policy `a` takes less time than `b` at `p`.
fn two(out: &mut Outcome, key: &str, p: &Point, a: usize, b: usize, disk: &Report) {
    let over = |i| p.time(i) / seconds(disk) * 100.0;
    greendm::judge::greater(
        out,
        key,
        (&format!("at {} %, {}:", p.share, NAMES[b]), over(b)),
        (&format!("{}:", NAMES[a]), over(a)),
        "% of the disk's time",
    );
}
