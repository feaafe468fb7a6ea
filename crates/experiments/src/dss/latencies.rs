//! dss-4: the latency of whole files, by size.

use isotherm_traces::generate::Mix;

use super::bench::{Bench, CONFIGURATIONS, bench, inputs, three};
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_lab::size::exact;

/// The latencies of one file size, for each configuration.
struct Of {
    size: u64,
    write: bool,
    p95: Vec<f64>,
}

impl Of {
    /// Reduction relative to no cache, in percent; negative if the latency is longer.
    fn cut(&self, configuration: usize) -> f64 {
        let none = self.p95[0];
        if none > 0.0 {
            (1.0 - self.p95[configuration] / none) * 100.0
        } else {
            0.0
        }
    }
}

fn of_sizes(bench: &Bench, seconds: &[Vec<f64>]) -> Vec<Of> {
    let mut all = Vec::new();
    for size in bench.sizes() {
        for write in [false, true] {
            let p95 = seconds.iter().map(|s| bench.p95(s, write, size));
            if let Some(p95) = p95.collect() {
                all.push(Of { size, write, p95 });
            }
        }
    }
    all
}

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, Mix::File, super::FILE_SCALE)?;
    inputs(out, &bench);
    let reports = three(ctx, &bench)?;
    let seconds: Vec<Vec<f64>> = reports.iter().map(|r| bench.seconds(r)).collect();
    let all = of_sizes(&bench, &seconds);
    for (write, title) in [(true, "figure 4a: writes"), (false, "figure 4b: reads")] {
        let row = |of: &Of| {
            let ms = |i: usize| Cell::new(CONFIGURATIONS[i], "ms", of.p95[i] * 1e3);
            let cut =
                |i: usize| Cell::new(&format!("cut by {}", CONFIGURATIONS[i]), "%", of.cut(i));
            let cells = vec![ms(0), ms(1), ms(2), cut(1), cut(2)];
            Row::new(exact(of.size), cells)
        };
        let rows = all.iter().filter(|o| o.write == write).map(row).collect();
        out.tables
            .push(Table::new(format!("{title}, 95th percentile"), rows));
    }
    out.substitutes.push("a transaction lasts from its first block request to the last reply before the next one; what memory serves takes no time, and write-back that falls due during a transaction counts into it".to_owned());

    let list = |of: &[&Of], i: usize| {
        let cut = |o: &&Of| format!("{} {:.0}", exact(o.size), o.cut(i));
        of.iter().map(cut).collect::<Vec<_>>().join(", ")
    };
    let small: Vec<&Of> = all
        .iter()
        .filter(|o| !o.write && o.size <= 256 << 10)
        .collect();
    let writes: Vec<&Of> = all.iter().filter(|o| o.write).collect();
    if small.is_empty() || writes.is_empty() {
        for key in ["reads-50", "modest", "outliers", "writes"] {
            out.cannot(key, "too few transactions at this scale");
        }
        return Ok(());
    }
    let holds = small.iter().all(|o| o.cut(2) > 50.0);
    out.judge("reads-50", holds, format!("cut, %: {}", list(&small, 2)));
    let holds = small.iter().all(|o| o.cut(1) < o.cut(2) / 2.0);
    out.judge(
        "modest",
        holds,
        format!("cut by LRU, %: {}", list(&small, 1)),
    );
    let longer: Vec<&Of> = writes.iter().copied().filter(|o| o.cut(1) < 0.0).collect();
    let why = format!("cut of writes by LRU, %: {}", list(&writes, 1));
    out.judge("outliers", !longer.is_empty(), why);
    let small: Vec<&Of> = writes
        .iter()
        .copied()
        .filter(|o| o.size <= 256 << 10)
        .collect();
    let why = format!("cut of writes by LRU-S, %: {}", list(&small, 2));
    out.judge("writes", small.iter().all(|o| o.cut(2) >= 0.0), why);
    Ok(())
}
