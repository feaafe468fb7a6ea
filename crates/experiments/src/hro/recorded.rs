//! HDD, HOT and HRO under recordings of real mounts (`crate::recorded`). The first part of a recording is the training, the rest is measured.
//!
//! The policies are the engine's `hot` and `hro`, on extents of 64 KiB: in a recording an extent belongs to one file, and most files are one
//! extent. These tables are not compared with claims of the paper, because the recordings are much shorter than its weeks. The recordings
//! have no metadata either, because a mount of whole files answers requests for metadata from memory.

use std::collections::HashMap;

use super::bench::{DISK, Kind, SSD, bandwidth, latency, seek, under};
use crate::cell::{Cell as Measured, Store, simulate};
use crate::greendm::judge::over;
use crate::outcome::{Cell, Row, Table};
use crate::recorded::{self, ALL, PIECE, reach};
use crate::{Ctx, Outcome, Work};
use isotherm_lab::LabError;
use isotherm_lab::sim::{Memory, Observe, Report};
use isotherm_lab::size::Size;
use isotherm_traces::generate::FileUse;
use isotherm_traces::{Op, Record};
use std::sync::Arc;

/// The training's share of the requests.
const TRAINING: f64 = 0.6;
/// The time of the plan, as a share of the time that the disk alone takes for the training.
const PLAN: f64 = 0.8;
/// The size of the SSD as a share of the data that the recording touches, in parts per million. The paper has 5 % of an image in which most
/// files are cold. In a recording nearly all files are in use, so 5 % would be too small.
const FAST: u32 = 250_000;
/// The names of the systems.
const SYSTEMS: [&str; 3] = ["HDD", "HOT", "HRO"];

/// The figure that an experiment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// For `hro-6`.
    Latency,
    /// For `hro-7` and `hro-9`.
    Seeks,
    /// For `hro-8`.
    Bandwidth,
}

/// The reads and writes of a recording, in two phases. Discards of deleted files are included, and have no effect on placement here.
pub(super) fn work(name: &str, records: &[Record]) -> Work {
    let data: Vec<Record> = records
        .iter()
        .filter(|r| r.op != Op::Flush)
        .copied()
        .collect();
    let training = (data.len() as f64 * TRAINING) as u64;
    let name = format!("{name}, recorded");
    Work {
        bytes: reach(&data),
        memory: Memory::new(&name, data),
        name,
        depth: 1,
        phases: vec![0, training],
    }
}

pub(super) fn systems(ctx: &Ctx<'_>, work: &Work) -> Result<Vec<Arc<Report>>, LabError> {
    let disk = || Store::all(DISK).spread();
    let cell = |policy: &str, tiers| Measured {
        extent: PIECE,
        warm_up: work.phases[1],
        observe: Observe {
            time_bins: 64,
            address_bins: 0,
        },
        ..Measured::hybrid(policy, tiers)
    };
    let mut all = simulate(ctx, work, &[cell("mylinear", vec![disk()])])?;
    let training_s = all[0].phases.first().map_or(0.0, |p| p.elapsed_s);
    let period = (training_s * PLAN).max(0.001);
    let cells = ["hot", "hro"].map(|policy| {
        let fast = Store::new(SSD, Size::Share(FAST));
        cell(&format!("{policy},period={period:.3}"), vec![fast, disk()])
    });
    all.extend(simulate(ctx, work, &cells)?);
    Ok(all)
}

/// Adds one table of the figure for each recorded load, if the recordings are there.
///
/// # Errors
/// A simulation fails.
pub fn add(ctx: &Ctx<'_>, out: &mut Outcome, figure: Figure) -> Result<(), LabError> {
    let Some(all) = recorded::read(ctx, out, &ALL)? else {
        return Ok(());
    };
    for ((name, _), records) in ALL.iter().zip(all) {
        play(ctx, out, name, &records, figure)?;
    }
    Ok(())
}

/// A load, and the reports of the three systems.
pub(super) type Run = (Work, Vec<Arc<Report>>);

/// Runs the three systems under a recorded load, and adds the table of the figure.
///
/// # Errors
/// A simulation fails.
pub(super) fn play(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    name: &str,
    records: &[Record],
    figure: Figure,
) -> Result<Run, LabError> {
    let work = work(name, records);
    let reports = systems(ctx, &work)?;
    out.inputs.push(format!(
        "{}: {} requests, {} of them training; an SSD of a quarter of {:.0} MB",
        work.name,
        work.memory.records.len(),
        work.phases[1],
        work.bytes as f64 / 1e6
    ));
    let rows = match figure {
        Figure::Latency => latencies(&work, &reports),
        Figure::Seeks => seeks(&reports),
        Figure::Bandwidth => bandwidths(&reports),
    };
    let title = format!("{name}, as recorded on a real mount");
    out.tables.push(Table::new(title, rows));
    Ok((work, reports))
}

pub(super) fn latencies(work: &Work, reports: &[Arc<Report>]) -> Vec<Row> {
    let kinds = [
        ("all", None),
        ("reads", Some(Kind::Read)),
        ("writes", Some(Kind::Write)),
    ];
    let mut rows = Vec::new();
    for (label, kind) in kinds {
        let of: Vec<f64> = (reports.iter())
            .map(|r| latency(work, r, kind).unwrap_or(f64::NAN) * 1e3)
            .collect();
        let named = SYSTEMS.iter().zip(&of);
        let mut cells: Vec<Cell> = named.map(|(s, ms)| Cell::new(s, "ms", *ms)).collect();
        cells.push(Cell::new("HRO under HDD", "%", under(of[2], of[0])));
        cells.push(Cell::new("HRO under HOT", "%", under(of[2], of[1])));
        rows.push(Row::new(label, cells));
    }
    rows
}

pub(super) fn seeks(reports: &[Arc<Report>]) -> Vec<Row> {
    let of: Vec<(f64, u64)> = reports.iter().map(|r| seek(r)).collect();
    let row = |(i, name): (usize, &&str)| {
        let cells = vec![
            Cell::new("a request", "cylinders", of[i].0),
            Cell::new("HRO under this", "%", under(of[2].0, of[i].0)),
            Cell::new("requests of the disk", "", of[i].1 as f64),
            Cell::new(
                "all movements",
                "10^6 cylinders",
                of[i].0 * of[i].1 as f64 / 1e6,
            ),
        ];
        Row::new(*name, cells)
    };
    SYSTEMS.iter().enumerate().map(row).collect()
}

pub(super) fn bandwidths(reports: &[Arc<Report>]) -> Vec<Row> {
    let of: Vec<f64> = reports.iter().map(|r| bandwidth(r)).collect();
    let row = |(i, name): (usize, &&str)| {
        let hits = if i == 0 {
            0.0
        } else {
            reports[i].fast_hit_ratio * 100.0
        };
        let cells = vec![
            Cell::new("bandwidth", "MB/s", of[i]),
            Cell::new("over HDD", "%", over(of[i], of[0])),
            Cell::new("over HOT", "%", over(of[i], of[1])),
            Cell::new("accesses of the SSD", "%", hits),
        ];
        Row::new(*name, cells)
    };
    SYSTEMS.iter().enumerate().map(row).collect()
}

/// The use of the pieces of files in a recording, with Algorithm 1's counts: an access is one request, and it begins a segment unless it
/// continues where the last access of the same piece, or of the piece before, ended.
pub fn uses(records: &[Record]) -> Vec<FileUse> {
    let mut of: HashMap<u64, FileUse> = HashMap::new();
    let mut ends: HashMap<u64, u64> = HashMap::new();
    let data = |r: &&Record| matches!(r.op, Op::Read | Op::Write) && r.len > 0;
    for r in records.iter().filter(data) {
        let piece = r.offset / u64::from(PIECE);
        let goes_on = [Some(piece), piece.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|p| ends.get(&p) == Some(&r.offset));
        let u = of.entry(piece).or_default();
        u.frequency += 1;
        u.randomness += u64::from(!goes_on);
        u.size = r.file_size.unwrap_or(0);
        ends.insert((r.end() - 1) / u64::from(PIECE), r.end());
    }
    let mut all: Vec<(u64, FileUse)> = of.into_iter().collect();
    all.sort_unstable_by_key(|u| u.0);
    all.into_iter().map(|u| u.1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use isotherm_core::Nanos;

    #[test]
    fn recordings_run_beside_the_generators() {
        let quiet = |_: &str| ();
        let ctx = Ctx::on_fixtures(&quiet, 0.0005);
        for (id, rows) in [
            ("hro-3", 4),
            ("hro-6", 4 * 3),
            ("hro-7", 4 * 3),
            ("hro-8", 4 * 3),
        ] {
            let out = Experiment::find(id).unwrap().run(&ctx).unwrap();
            let all = out.tables.iter();
            let ours = all.filter(|t| t.title.contains("recorded on a real mount"));
            let ours: Vec<&Row> = ours.flat_map(|t| &t.rows).collect();
            assert_eq!(ours.len(), rows, "{id}");
            assert!(ours.iter().all(|r| r.cells[0].ours.unwrap() > 0.0), "{id}");
        }
    }

    /// Worked by hand: two pieces; the second access of the first one continues, the third begins anew, and the fourth continues in the
    /// next piece.
    #[test]
    fn accesses_that_continue_are_not_random() {
        let r = |offset, len| Record::new(Nanos(0), Op::Read, offset, len);
        let piece = u64::from(PIECE);
        let all = [
            r(0, 4096),
            r(4096, 4096),
            r(piece - 4096, 4096),
            r(piece, 8192),
            Record::new(Nanos(0), Op::Flush, 0, 0),
        ];
        let uses = uses(&all);
        let counts: Vec<_> = uses.iter().map(|u| (u.frequency, u.randomness)).collect();
        assert_eq!(counts, [(3, 2), (1, 0)]);
    }
}
