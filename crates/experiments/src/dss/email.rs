//! dss-email: the e-mail server.

use isotherm_traces::generate::Mix;

use super::bench::{CONFIGURATIONS, TRANSACTIONS, bench, inputs, phase, three};
use super::indicators::{judge_common, table};
use super::show::syncer;
use crate::greendm::judge::range;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_lab::sim::Phase;
use isotherm_lab::size::exact;

const SMALL: u64 = 32 << 10;

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, Mix::Email, super::EMAIL_SCALE)?;
    inputs(out, &bench);
    let reports = three(ctx, &bench)?;
    let phases: Vec<Phase> = reports.iter().map(|r| phase(r, TRANSACTIONS)).collect();
    table(out, "the transactions", &phases, bench.scale);
    let [none, lru, lru_s] = &phases[..] else {
        return Ok(());
    };
    judge_common(out, none, lru, lru_s);
    let seconds: Vec<Vec<f64>> = reports.iter().map(|r| bench.seconds(r)).collect();
    let reads: Vec<(u64, Vec<f64>)> = bench
        .sizes()
        .into_iter()
        .filter_map(|size| {
            let p95 = seconds.iter().map(|s| bench.p95(s, false, size));
            Some((size, p95.collect::<Option<Vec<f64>>>()?))
        })
        .collect();
    let row = |(size, p95): &(u64, Vec<f64>)| {
        let cells = CONFIGURATIONS.iter().zip(p95).map(|(name, s)| {
            let key = format!("{}K {name}", size >> 10);
            Cell::new(name, "ms", s * 1e3).beside(out.printed(&key))
        });
        Row::new(exact(*size), cells.collect())
    };
    let rows = reads.iter().map(row).collect();
    out.tables
        .push(Table::new("whole files read, 95th percentile", rows));
    let small: Vec<_> = reads.iter().filter(|r| r.0 <= SMALL).collect();
    let cut = |p: &[f64]| (1.0 - p[2] / p[1].max(1e-12)) * 100.0;
    let why = small
        .iter()
        .map(|(size, p)| format!("{} {:.0}", exact(*size), cut(p)));
    let why = format!("LRU-S under LRU, %: {}", why.collect::<Vec<_>>().join(", "));
    let holds = !small.is_empty() && small.iter().all(|(_, p)| cut(p) > 50.0);
    out.judge("small", holds, why);
    if let Some((_, p)) = reads.iter().find(|r| r.0 == 2 << 10) {
        let why = format!("{:.1}, {:.1}, {:.1} ms", p[0] * 1e3, p[1] * 1e3, p[2] * 1e3);
        out.judge("mail-order", p[0] > p[1] && p[1] > p[2], why);
        range(out, "mail-81", [cut(p)], "%");
    }
    let (a, b) = (syncer(lru), syncer(lru_s));
    let why = format!(
        "LRU {a:.1} %, LRU-S {b:.1} %; printed 54 and 25 (holds: falls by a third at least)"
    );
    out.judge("syncer", b < a * 2.0 / 3.0, why);
    super::recorded::EMAIL.add(ctx, out, 1)
}
