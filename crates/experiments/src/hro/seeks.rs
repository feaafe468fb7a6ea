//! hro-7 and hro-9: the seek distances of the arm under the mail server.

use super::bench::{System, bench, inputs, seek, substitutes, systems, under};
use super::recorded::{self, Figure};
use crate::greendm::judge::range;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_lab::sim::Report;

/// The number of parts of the run in the table.
pub(super) const PARTS: usize = 8;

/// Mean seek distance per request of the disk, in cylinders, in each part of the measured time.
pub(super) fn over_time(report: &Report) -> Vec<f64> {
    let Some(s) = &report.series else {
        return Vec::new();
    };
    let Some(slow) = s.members.iter().max_by_key(|m| m.tier) else {
        return Vec::new();
    };
    let bins = slow.seeks.len();
    let part = |i: usize| {
        let of = bins * i / PARTS..bins * (i + 1) / PARTS;
        let distance: f64 = of
            .clone()
            .map(|b| slow.seek_distance[b] * slow.seeks[b] as f64)
            .sum();
        let seeks: u64 = of.map(|b| slow.seeks[b]).sum();
        distance / seeks.max(1) as f64
    };
    (0..PARTS).map(part).collect()
}

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, "mail")?;
    let systems = systems(ctx, &bench)?;
    inputs(out, &bench, &systems);
    substitutes(out);
    out.substitutes.push("distance in cylinders of the modelled disk, on average over its requests, those that need no movement included; the paper's in sectors, a moving average over 5 requests".to_owned());
    let of: Vec<(f64, u64)> = systems.iter().map(|s| seek(&s.report)).collect();
    let row = |(i, s): (usize, &System<'_>)| {
        let printed = |key: &str| (i == 2).then(|| out.printed(key)).flatten();
        let disk = super::bench::counted(&s.report);
        let m = disk.usage.members.values().max_by_key(|m| m.tier);
        let (seeks, per_seek) = m.map_or((0, 0.0), |m| {
            (m.seeks, m.seek_distance as f64 / m.seeks.max(1) as f64)
        });
        Row::new(
            s.name,
            vec![
                Cell::new("a request", "cylinders", of[i].0),
                Cell::new("under HDD", "%", under(of[i].0, of[0].0)).beside(printed("hdd")),
                Cell::new("HRO under this", "%", under(of[2].0, of[i].0)),
                Cell::new("requests of the disk", "", of[i].1 as f64),
                Cell::new("arm movements", "", seeks as f64),
                Cell::new("a movement", "cylinders", per_seek),
                Cell::new(
                    "all movements",
                    "10^6 cylinders",
                    of[i].0 * of[i].1 as f64 / 1e6,
                ),
            ],
        )
    };
    let rows = systems.iter().enumerate().map(row).collect();
    out.tables
        .push(Table::new("figures 7 and 9: seek distance", rows));
    let times: Vec<Vec<f64>> = systems.iter().map(|s| over_time(&s.report)).collect();
    let complete = times.iter().all(|t| t.len() == PARTS);
    if complete {
        let row = |i: usize| {
            let cell = |(s, t): (&System<'_>, &Vec<f64>)| Cell::new(s.name, "cylinders", t[i]);
            let cells = systems.iter().zip(&times).map(cell).collect();
            Row::new(format!("part {} of {PARTS}", i + 1), cells)
        };
        let rows = (0..PARTS).map(row).collect();
        out.tables
            .push(Table::new("figure 9: a movement, over time", rows));
    }
    let why = format!(
        "{:.0}, {:.0}, {:.0} cylinders a request",
        of[0].0, of[1].0, of[2].0
    );
    out.judge("order", of[0].0 > of[1].0 && of[1].0 > of[2].0, why);
    range(out, "hdd", [under(of[2].0, of[0].0)], "%");
    range(out, "hot", [under(of[2].0, of[1].0)], "%");
    if complete {
        let lower = (0..PARTS).filter(|&i| times[2][i] < times[0][i] && times[2][i] < times[1][i]);
        let n = lower.count();
        out.judge(
            "always",
            n == PARTS,
            format!("a movement is shortest in {n} of {PARTS} parts of the run"),
        );
    } else {
        out.cannot("always", "the run is too short for a series");
    }
    recorded::add(ctx, out, Figure::Seeks)
}
