//! hro-2: random accesses, their effect on the arm, and their latency on the devices.

use std::collections::HashMap;

use isotherm_traces::{Op, Record};

use super::bench::{DISK, SSD, bench, inputs, substitutes};
use crate::cell::{Cell as Measured, Store, simulate};
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome, Work};
use isotherm_lab::LabError;
use isotherm_lab::sim::{Memory, Observe, Report};

/// A request continues a stream if it begins where one of this many last requests ended.
const STREAMS: usize = 16;
/// The bound for "almost zero", as a share of the mean without a filter.
const NEAR_ZERO: f64 = 0.05;
/// Number of requests with which a device is measured.
const PROBES: u64 = 2000;
/// Bytes over which these requests are spread.
const SPAN: u64 = 4 << 30;

/// For each request, whether it continues one of the last few.
fn sequential(records: &[Record]) -> Vec<bool> {
    let mut ends: HashMap<u64, u64> = HashMap::new();
    let goes_on = |(i, r): (usize, &Record)| {
        let i = i as u64;
        let known = ends
            .remove(&r.offset)
            .is_some_and(|at| i - at <= STREAMS as u64);
        ends.insert(r.end(), i);
        known
    };
    records.iter().enumerate().map(goes_on).collect()
}

/// The workload without its random requests.
fn filtered(work: &Work) -> Work {
    let keep = sequential(&work.memory.records);
    let records = work.memory.records.iter().zip(&keep);
    let records: Vec<Record> = records.filter(|x| *x.1).map(|x| *x.0).collect();
    let name = format!("{} without random requests", work.name);
    Work {
        memory: Memory::new(&name, records),
        name,
        bytes: work.bytes,
        depth: work.depth,
        phases: Vec::new(),
    }
}

fn per_seek(report: &Report) -> (f64, Vec<f64>) {
    let usage = report.usage.clone().unwrap_or_default();
    let m = usage.members.values().max_by_key(|m| m.tier).cloned();
    let m = m.unwrap_or_default();
    let mean = m.seek_distance as f64 / (m.reads + m.writes).max(1) as f64;
    let series = report.series.as_ref().and_then(|s| {
        let slow = s.members.iter().max_by_key(|m| m.tier)?;
        let of = slow.seek_distance.iter().zip(&slow.seeks).zip(&s.requests);
        let mean = |((d, n), r): ((&f64, &u64), &u64)| d * *n as f64 / (*r).max(1) as f64;
        let live = of.filter(|(_, r)| **r > 0);
        Some(live.map(mean).collect())
    });
    (mean, series.unwrap_or_default())
}

/// Mean milliseconds of a random request of 4 KiB.
fn probe(ctx: &Ctx<'_>, preset: &'static str, op: Op) -> Result<f64, LabError> {
    let reads = u8::from(op == Op::Read);
    let spec = format!(
        "gen:uniform,requests={PROBES},span={},size=4096,reads={reads},seed={}",
        SPAN, ctx.seed
    );
    let work = Work::generate(&spec, None, 1)?;
    let cell = Measured::hybrid("mylinear", vec![Store::all(preset).spread()]);
    let report = simulate(ctx, &work, &[cell])?;
    Ok(report[0].latency_mean_s.unwrap_or(f64::NAN) * 1e3)
}

/// See the module.
#[expect(clippy::too_many_lines, reason = "claims in the paper's order")]
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, "mail")?;
    let work = &bench.work;
    inputs(out, &bench, &[]);
    substitutes(out);
    out.substitutes.push(format!("random: a request that begins where none of the last {STREAMS} ended; all of them are left out, the paper leaves out most"));
    let share = {
        let keep = sequential(&work.memory.records);
        let random = keep.iter().filter(|k| !**k).count();
        random as f64 / keep.len().max(1) as f64 * 100.0
    };
    let alone = |work: &Work| {
        let cell = Measured {
            observe: Observe {
                time_bins: 64,
                address_bins: 0,
            },
            ..Measured::hybrid("mylinear", vec![Store::all(DISK).spread()])
        };
        simulate(ctx, work, &[cell])
    };
    let without = filtered(work);
    out.judge("random", share > 25.0, format!("{share:.1} % of the requests below the page cache begin where none of the last {STREAMS} ended"));
    if without.memory.records.is_empty() {
        for key in ["filtered", "near-zero"] {
            out.cannot(
                key,
                "no request is left without the random ones at this scale",
            );
        }
    } else {
        let (a, b) = (alone(work)?, alone(&without)?);
        let ((all, all_bins), (rest, rest_bins)) = (per_seek(&a[0]), per_seek(&b[0]));
        let row = |name: &str, n: usize, mean: f64, bins: &[f64]| {
            let (l, h) = crate::greendm::judge::ends(bins.iter().copied());
            Row::new(
                name,
                vec![
                    Cell::new("requests", "", n as f64),
                    Cell::new("seek distance a request", "cylinders", mean),
                    Cell::new("least of a part of the run", "cylinders", l),
                    Cell::new("most", "cylinders", h),
                ],
            )
        };
        let rows = vec![
            row("mail server", work.memory.records.len(), all, &all_bins),
            row(
                "without random accesses",
                without.memory.records.len(),
                rest,
                &rest_bins,
            ),
        ];
        out.tables
            .push(Table::new("figure 2b: the disk alone", rows));
        let cut = (1.0 - rest / all) * 100.0;
        let why = format!(
            "{all:.0} to {rest:.0} cylinders a request: {cut:.0} % less (significantly: 25 %)"
        );
        out.judge("filtered", cut > 25.0, why);
        let least = rest_bins.iter().copied().fold(f64::INFINITY, f64::min);
        let why = format!(
            "least of a part of the run {least:.1} cylinders, {:.1} % of the mean with them",
            least / all * 100.0
        );
        out.judge("near-zero", least <= NEAR_ZERO * all, why);
    }
    let mut of = Vec::new();
    for (name, preset) in [("HDD", DISK), ("SSD", SSD)] {
        let (read, write) = (
            probe(ctx, preset, Op::Read)?,
            probe(ctx, preset, Op::Write)?,
        );
        let printed = |what: &str| out.printed(&format!("{name} random {what}"));
        let cells = vec![
            Cell::new("random read", "ms", read).beside(printed("read")),
            Cell::new("random write", "ms", write).beside(printed("write")),
        ];
        of.push((read, write, Row::new(format!("{name} ({preset})"), cells)));
    }
    let (read, write) = (of[0].0 / of[1].0, of[0].1 / of[1].1);
    let rows = of.into_iter().map(|x| x.2).collect();
    out.tables
        .push(Table::new("figure 2c: 4 KiB, one at a time", rows));
    out.judge("orders", (10.0..=300.0).contains(&read) && write > 1.0, format!("reads {read:.0} x, writes {write:.0} x as fast on the SSD (writes end in the drive's cache on both)"));
    Ok(())
}
