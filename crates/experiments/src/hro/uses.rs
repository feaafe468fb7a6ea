//! hro-3: the use of files. Only the generators know about files, so the figures come from them.

use isotherm_traces::generate::{Campus, FileUse, Week};

use crate::outcome::{Cell, Row, Table};
use crate::recorded;
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_traces::Record;
use std::sync::Arc;

const WEEKS: [(&str, Campus); 3] = [
    ("mail", Campus::Mail),
    ("office", Campus::Office),
    ("research", Campus::Research),
];
/// The number of parts of the run, which represent days.
const DAYS: usize = 7;

/// The use of files in each of the [`DAYS`] parts, and in total.
struct Uses {
    all: Vec<FileUse>,
    /// The frequencies at the end of each day.
    days: Vec<Vec<u64>>,
}

fn uses(campus: Campus, scale: f64, seed: u64) -> Result<Uses, LabError> {
    let broken = |e| LabError::setup(format!("the generated file system: {e}"));
    let mut week = Week::with(campus, scale, seed).map_err(broken)?;
    let total = week.operations();
    let mut sink = Vec::new();
    let (mut days, mut done) = (Vec::new(), 0);
    while week.next_operation().map_err(broken)? {
        week.file_system().drain(&mut sink);
        sink.clear();
        let made = total - week.left();
        if made > done && made * DAYS as u64 / total.max(1) > days.len() as u64 {
            days.push(week.uses().iter().map(|u| u.frequency).collect());
        }
        done = made;
    }
    Ok(Uses {
        all: week.uses(),
        days,
    })
}

/// The percentage of the files, most used first, that receive `part` of the accesses.
fn hot(uses: &[FileUse], part: f64) -> f64 {
    let mut f: Vec<u64> = uses.iter().map(|u| u.frequency).collect();
    f.sort_unstable_by(|a, b| b.cmp(a));
    let want = f.iter().sum::<u64>() as f64 * part;
    let mut sum = 0;
    let n = f.iter().take_while(|x| {
        let more = (sum as f64) < want;
        sum += **x;
        more
    });
    n.count() as f64 / uses.len().max(1) as f64 * 100.0
}

fn quantile(sizes: &[u64], q: f64) -> f64 {
    let at = (sizes.len() as f64 * q) as usize;
    sizes
        .get(at.min(sizes.len().saturating_sub(1)))
        .map_or(0.0, |s| *s as f64 / 1024.0)
}

/// The percentage of accesses that begin a segment, over the most used hundredth of the files or over all files.
fn randomness(uses: &[FileUse], top: bool) -> f64 {
    let mut of: Vec<&FileUse> = uses.iter().filter(|u| u.frequency > 0).collect();
    of.sort_unstable_by_key(|u| std::cmp::Reverse(u.frequency));
    let n = if top {
        of.len().div_ceil(100)
    } else {
        of.len()
    };
    let (r, f) = of
        .iter()
        .take(n)
        .fold((0, 0), |s, u| (s.0 + u.randomness, s.1 + u.frequency));
    r as f64 / (f as f64).max(1.0) * 100.0
}

/// The mean percentage of the most used tenth of the files on the first day that is also in the most used tenth of a later day.
fn persist(days: &[Vec<u64>]) -> Option<f64> {
    let top = |day: usize| {
        let before = day.checked_sub(1).map(|d| &days[d]);
        let of = |(i, f): (usize, &u64)| (f - before.map_or(0, |b| b[i]), i);
        let mut of: Vec<(u64, usize)> = days[day]
            .iter()
            .enumerate()
            .map(of)
            .filter(|x| x.0 > 0)
            .collect();
        of.sort_unstable_by_key(|x| (std::cmp::Reverse(x.0), x.1));
        of.truncate(of.len().div_ceil(10));
        of.into_iter()
            .map(|x| x.1)
            .collect::<std::collections::BTreeSet<_>>()
    };
    if days.len() < 2 {
        return None;
    }
    let first = top(0);
    let later = (1..days.len()).map(|d| first.intersection(&top(d)).count() as f64);
    let mean = later.sum::<f64>() / (days.len() - 1) as f64;
    (!first.is_empty()).then(|| mean / first.len() as f64 * 100.0)
}

/// The same figures of recordings of real mounts, if they are there. A file there is a piece of 64 KiB of a file.
fn add_recorded(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let Some(all) = recorded::read(ctx, out, &recorded::ALL)? else {
        return Ok(());
    };
    let row = |((name, _), records): (&recorded::Load, &Arc<Vec<Record>>)| {
        let uses = super::recorded::uses(records);
        Row::new(
            *name,
            vec![
                Cell::new("pieces", "", uses.len() as f64),
                Cell::new("take half of the accesses", "% of pieces", hot(&uses, 0.5)),
                Cell::new("take 80 %", "% of pieces", hot(&uses, 0.8)),
                Cell::new(
                    "accesses that begin a segment",
                    "%",
                    randomness(&uses, false),
                ),
                Cell::new("of the hottest 1 %", "%", randomness(&uses, true)),
            ],
        )
    };
    let rows = recorded::ALL.iter().zip(&all).map(row).collect();
    let title = "figure 3, as recorded on a real mount";
    out.tables.push(Table::new(title, rows));
    Ok(())
}

/// See the module.
#[expect(clippy::too_many_lines, reason = "claims in the paper's order")]
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let scale = ctx.scale_or(super::SCALE);
    let mut rows = Vec::new();
    let (mut hots, mut medians, mut largest, mut random, mut tops, mut persists) =
        (vec![], vec![], vec![], vec![], vec![], vec![]);
    for (name, campus) in WEEKS {
        (ctx.progress)(&format!("{name}: use of its files"));
        let u = uses(campus, scale, ctx.seed)?;
        let mut sizes: Vec<u64> = u.all.iter().map(|u| u.size).collect();
        sizes.sort_unstable();
        let half = hot(&u.all, 0.5);
        let (r, top) = (randomness(&u.all, false), randomness(&u.all, true));
        let same = persist(&u.days);
        rows.push(Row::new(
            name,
            vec![
                Cell::new("files", "", u.all.len() as f64),
                Cell::new("take half of the accesses", "% of files", half)
                    .beside(out.printed("hot")),
                Cell::new("take 80 %", "% of files", hot(&u.all, 0.8)),
                Cell::new("size, median", "KiB", quantile(&sizes, 0.5)),
                Cell::new("90 %", "KiB", quantile(&sizes, 0.9)),
                Cell::new("largest", "KiB", quantile(&sizes, 1.0)),
                Cell::new("accesses that begin a segment", "%", r),
                Cell::new("of the hottest 1 %", "%", top),
                Cell::new("hot on later days too", "%", same.unwrap_or(f64::NAN)),
            ],
        ));
        hots.push(half);
        medians.push(quantile(&sizes, 0.5));
        largest.push(quantile(&sizes, 1.0));
        random.push(r);
        tops.push(top);
        persists.extend(same);
    }
    out.tables.push(Table::new("figure 3", rows));
    out.inputs.push(format!("the three generators, scale {scale}: gen:mail-hro, gen:office-hro, gen:research-hro; sevenths of the operations for days"));
    out.substitutes.push("the generators are calibrated on Table I and on the 3 % of figure 3a; file sizes, choice of files and randomness are assumed, so this says what they assume, not what the traces had".to_owned());
    let list = |of: &[f64]| {
        of.iter()
            .map(|x| format!("{x:.1}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let three = "mail, office, research";
    out.judge(
        "hot-3",
        hots.iter().all(|h| *h < 3.0),
        format!(
            "half of the accesses go to {} % of the files ({three})",
            list(&hots)
        ),
    );
    out.judge(
        "sizes",
        largest.iter().all(|l| *l < 1_048_576.0),
        format!("largest {} KiB ({three})", list(&largest)),
    );
    out.cannot("sizes-differ", format!("one assumed distribution for all three (medians {} KiB): the paper prints plots only, without data", list(&medians)));
    out.judge(
        "randomness",
        random.iter().all(|r| *r > 0.0),
        format!(
            "{} % of the accesses begin a segment ({three})",
            list(&random)
        ),
    );
    let holds = tops.iter().zip(&random).all(|(t, r)| t > r);
    out.judge(
        "top",
        holds,
        format!(
            "hottest 1 % of the files: {} %, all: {} % ({three})",
            list(&tops),
            list(&random)
        ),
    );
    if persists.len() == WEEKS.len() {
        out.judge(
            "persist",
            persists.iter().all(|p| *p > 50.0),
            format!(
                "{} % of the first day's hottest tenth are of a later day's ({three})",
                list(&persists)
            ),
        );
    }
    add_recorded(ctx, out)
}
