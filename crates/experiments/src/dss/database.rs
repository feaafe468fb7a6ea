//! dss-5 and dss-6: TPC-H on PostgreSQL.

use isotherm_traces::Op;

use super::bench::{CONFIGURATIONS, cell, phase};
use super::show::{by_class, hits, share, syncer};
use crate::cell::simulate;
use crate::greendm::judge::range;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome, Work};
use isotherm_lab::LabError;
use isotherm_lab::sim::Phase;

/// The cache is 8 of the 29 GB (5.2).
const CACHED_PERCENT: f64 = 100.0 * 8.0 / 29.0;
/// The number of runs over which the paper averages.
const RUNS: u64 = 3;

const KINDS: [(&str, std::ops::RangeInclusive<u8>); 5] = [
    ("log", 19..=19),
    ("system", 20..=21),
    ("temporary tables", 22..=22),
    ("user tables", 23..=24),
    ("indexes", 25..=25),
];

fn kinds(of: &std::collections::BTreeMap<u8, u64>) -> Vec<Cell> {
    let cell =
        |k: &(&str, std::ops::RangeInclusive<u8>)| Cell::new(k.0, "%", share(of, k.1.clone()));
    KINDS.iter().map(cell).collect()
}

fn work(ctx: &Ctx<'_>, scale: f64, seed: u64) -> Result<std::sync::Arc<Work>, LabError> {
    let spec = format!("gen:tpch-dss,prepare=1,scale={scale},seed={seed}");
    ctx.once(&spec, || {
        let mut work = Work::generate(&spec, None, 1)?;
        // The database is created by writes, and the queries begin with a read.
        let made = work.memory.records.iter().position(|r| r.op == Op::Read);
        work.phases = vec![made.unwrap_or(0) as u64];
        Ok(work)
    })
}

/// Mean and standard deviation.
fn spread(of: &[f64]) -> (f64, f64) {
    let n = of.len() as f64;
    let mean = of.iter().sum::<f64>() / n;
    let square = of.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, (square / (n - 1.0)).sqrt())
}

/// See the module.
#[expect(clippy::too_many_lines, reason = "claims in the paper's order")]
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let scale = ctx.scale_or(super::TPCH_SCALE);
    let mut runs: Vec<Vec<Phase>> = Vec::new();
    for seed in ctx.seed..ctx.seed + RUNS {
        let work = work(ctx, scale, seed)?;
        let cells = CONFIGURATIONS.map(|c| cell(c, work.bytes, CACHED_PERCENT, work.phases[0]));
        let reports = simulate(ctx, &work, &cells)?;
        out.inputs.push(format!(
            "{}: {} requests, {} of them making the database; {:.0} MB",
            work.name,
            work.memory.records.len(),
            work.phases[0],
            work.bytes as f64 / 1e6
        ));
        runs.push(reports.iter().map(|r| phase(r, 0)).collect());
    }
    out.substitutes.push("TPC-H by gen:tpch-dss: how many lookups and scans the queries take, sizes of single tables and indexes are assumed".to_owned());
    out.substitutes.push(super::bench::ARRAY_WORDS.to_owned());
    out.substitutes.push(super::bench::MAP_WORDS.to_owned());
    out.substitutes.push(super::bench::SYNCER_WORDS.to_owned());
    out.substitutes.push("iSCSI adds nothing".to_owned());

    let first = &runs[0];
    let traffic = |f| kinds(&by_class(&first[0], f));
    out.tables.push(Table::new(
        "figure 5: by class",
        vec![
            Row::new("blocks written", traffic(|c| c.written)),
            Row::new("blocks read", traffic(|c| c.read)),
            Row::new("contents, LRU", kinds(&first[1].cached_bytes)),
            Row::new("contents, LRU-S", kinds(&first[2].cached_bytes)),
        ],
    ));
    let mean = |i: usize, f: fn(&Phase) -> f64| {
        runs.iter().map(|r| f(&r[i])).sum::<f64>() / runs.len() as f64
    };
    let seconds = |i: usize| spread(&runs.iter().map(|r| r[i].elapsed_s).collect::<Vec<_>>());
    let times = [0, 1, 2].map(seconds);
    let row = |(i, name): (usize, &&str)| {
        let printed = |what: &str| out.printed(&format!("{what} {name}"));
        Row::new(
            *name,
            vec![
                Cell::new("time / scale", "s", times[i].0 / scale).beside(printed("seconds")),
                Cell::new("deviation", "%", times[i].1 / times[i].0 * 100.0),
                Cell::new("of LRU", "x", times[1].0 / times[i].0).beside(printed("faster")),
                Cell::new("read hits", "%", mean(i, hits)),
                Cell::new("syncer", "%", mean(i, syncer)),
            ],
        )
    };
    let rows = CONFIGURATIONS.iter().enumerate().map(row).collect();
    out.tables
        .push(Table::new(format!("figure 6: mean of {RUNS} runs"), rows));

    let (a, b) = (&first[1].cached_bytes, &first[2].cached_bytes);
    let (index, index_s) = (share(a, 25..=25), share(b, 25..=25));
    let (user, user_s) = (share(a, 23..=24), share(b, 23..=24));
    out.judge(
        "lru-index",
        index > 50.0,
        format!("{index:.1} % of the contents"),
    );
    let why =
        format!("indexes {index:.1} to {index_s:.1} %, user tables {user:.1} to {user_s:.1} %");
    out.judge("fenced", index_s < index && user_s > user, why);
    let (a, b) = (mean(1, hits), mean(2, hits));
    out.judge("hits", b > a, format!("LRU {a:.1} %, LRU-S {b:.1} %"));
    let (a, b) = (mean(1, syncer), mean(2, syncer));
    out.judge("syncer", b < a, format!("LRU {a:.1} %, LRU-S {b:.1} %"));
    range(out, "faster", [times[1].0 / times[2].0], "x");
    let why = format!("{:.1}, {:.1}, {:.1} s", times[0].0, times[1].0, times[2].0);
    out.judge(
        "order",
        times[0].0 > times[1].0 && times[1].0 > times[2].0,
        why,
    );
    let of = times.map(|t| t.1 / t.0 * 100.0);
    let why = format!(
        "deviation none {:.2}, LRU {:.2}, LRU-S {:.2} % of the mean, by the generator's seed",
        of[0], of[1], of[2]
    );
    out.judge("variance", of[2] < of[0] && of[2] < of[1], why);
    super::recorded::TPCH.add(ctx, out, 1)
}
