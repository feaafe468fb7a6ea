//! dss-3: hit rate, the syncer's share, and running time of the file server.

use isotherm_traces::generate::Mix;

use super::bench::{CONFIGURATIONS, TRANSACTIONS, bench, inputs, phase, three};
use super::show::{hits, percent, syncer};
use crate::greendm::judge::range;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_lab::sim::Phase;

/// Hit rates are alike if they differ by at most this, in percentage points.
pub const ALIKE: f64 = 5.0;

/// The table of the three indicators.
pub fn table(out: &mut Outcome, title: &str, phases: &[Phase], scale: f64) {
    let base = phases.get(1).map_or(f64::NAN, |p| p.elapsed_s);
    let row = |(name, p): (&&str, &Phase)| {
        let printed = |what: &str| out.printed(&format!("{what} {name}"));
        let all = p.all();
        Row::new(
            *name,
            vec![
                // A scaled run takes scaled time. The table shows minutes extrapolated to the whole run beside the paper's.
                Cell::new("time / scale", "min", p.elapsed_s / 60.0 / scale)
                    .beside(printed("minutes")),
                Cell::new("of LRU", "x", base / p.elapsed_s).beside(printed("faster")),
                Cell::new("read hits", "%", hits(p)).beside(printed("hits")),
                Cell::new("syncer", "%", syncer(p)).beside(printed("syncer")),
                Cell::new("read", "MB", all.read as f64 / 1e6),
                Cell::new("written", "MB", all.written as f64 / 1e6),
                Cell::new("fetched", "MB", p.fetched_bytes as f64 / 1e6),
                Cell::new("written home", "MB", p.written_back_bytes as f64 / 1e6),
                Cell::new("fetches refused", "", p.refused_up as f64),
            ],
        )
    };
    let rows = CONFIGURATIONS.iter().zip(phases).map(row).collect();
    out.tables.push(Table::new(title, rows));
}

/// Claims that the file server and the e-mail server share.
pub fn judge_common(out: &mut Outcome, none: &Phase, lru: &Phase, lru_s: &Phase) {
    range(out, "hits", [hits(lru), hits(lru_s)], "%");
    range(out, "faster", [lru.elapsed_s / lru_s.elapsed_s], "x");
    let holds = none.elapsed_s > lru.elapsed_s && lru.elapsed_s > lru_s.elapsed_s;
    let why = format!(
        "none {:.1} s, LRU {:.1} s, LRU-S {:.1} s",
        none.elapsed_s, lru.elapsed_s, lru_s.elapsed_s
    );
    out.judge("order", holds, why);
}

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, Mix::File, super::FILE_SCALE)?;
    inputs(out, &bench);
    let reports = three(ctx, &bench)?;
    let phases: Vec<Phase> = reports.iter().map(|r| phase(r, TRANSACTIONS)).collect();
    table(out, "figure 3: the transactions", &phases, bench.scale);
    let [none, lru, lru_s] = &phases[..] else {
        return Ok(());
    };
    judge_common(out, none, lru, lru_s);
    let (a, b) = (hits(lru), hits(lru_s));
    let why = format!("LRU {a:.1} %, LRU-S {b:.1} % (alike: within {ALIKE} points)");
    out.judge("alike", (a - b).abs() <= ALIKE, why);
    let of_small = |p: &Phase| {
        let small: u64 = p.classes.range(1..=10).map(|c| c.1.fast_read).sum();
        percent(small as f64, p.all().fast_read as f64)
    };
    let (a, b) = (of_small(lru), of_small(lru_s));
    let why =
        format!("of the blocks hit, metadata and files to 64 KB: LRU {a:.1} %, LRU-S {b:.1} %");
    out.judge("who-hits", a < 50.0 && b > 50.0, why);
    let (a, b) = (syncer(lru), syncer(lru_s));
    let why = format!("LRU {a:.1} %, LRU-S {b:.1} %: {:.1} x", a / b.max(1e-9));
    out.judge("syncer", a > 3.0 * b, why);
    let gain = (none.elapsed_s / lru.elapsed_s - 1.0) * 100.0;
    let why = format!("ours {gain:.1} % faster, printed 8.9 % (slightly: over 0, under 25)");
    out.judge("slightly", gain > 0.0 && gain < 25.0, why);
    super::recorded::FILE.add(ctx, out, 1)
}
