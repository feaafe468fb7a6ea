//! The three weeks (II-B, Table I) as workloads, and the systems of IV under them.
//!
//! ```text
//!  training ──────────────── plan, migration ─│─ what counts
//! ```
//! The paper replays day by day as fast as it can and migrates at midnight, at the pace of the trace, while nothing else goes
//! on. Here the one planning instant and its migration fall into the end of the training, which does not count; the next
//! instant would come after the end.

use std::sync::Arc;

use isotherm_traces::{Op, Record};

use crate::LabError;
use crate::reproduce::cell::{Cell, Store, simulate};
use crate::reproduce::{Ctx, Outcome, Work};
use crate::sim::{Observe, Phase, Report};
use crate::size::Size;

/// The SSD (Table III), as a preset.
pub const SSD: &str = "ocz-agility2-60";
/// The disk (Table III), as a preset.
pub const DISK: &str = "wd7500aaks";
/// The paper's names of the systems.
pub const SYSTEMS: [&str; 3] = ["HDD", "HOT", "HRO"];
/// The workloads.
pub const WEEKS: [&str; 3] = ["mail", "office", "research"];

/// Share of the requests that is training.
const TRAINING: f64 = 0.6;
/// When the plan is made, as a share of the time that the disk alone takes for the training: the rest is for the migration.
const PLAN: f64 = 0.8;
/// The SSD's share of the image (IV): parts per million.
const FAST: u32 = 50_000;
/// Bins over the part that counts, at least.
const BINS: u32 = 64;

/// What stands for the paper's traces and machine, in words.
pub const WORDS: [&str; 3] = [
    "the week-long NFS traces of the paper by generators with the totals of Table I, at the scale: gen:mail-hro, gen:office-hro, gen:research-hro on an ext3-like layout; file sizes, locality and interleaving are assumed",
    "extents of 4 KiB for files: HRO places whole files, hro here places extents by f R, which orders as v/s does for one size; metadata blocks compete for the SSD too, which in the paper stay with the file systems",
    "one wd7500aaks, the volume spread over all of it, for two; seven days with a migration at each midnight by a training of 60 % of the requests with one plan and its migration at its end, then 40 % that count",
];

/// The workload of a week.
pub fn work(ctx: &Ctx<'_>, week: &str) -> Result<Arc<Work>, LabError> {
    let scale = ctx.scale_or(super::SCALE);
    let spec = format!("gen:{week}-hro,scale={scale},seed={}", ctx.seed);
    ctx.once(&spec, || {
        (ctx.progress)(&format!("{spec}: making the requests"));
        let mut work = Work::generate(&spec, None, 1)?;
        let requests = work.memory.records.len() as f64;
        work.phases = vec![0, (requests * TRAINING) as u64];
        Ok(work)
    })
}

fn disk() -> Store {
    Store::all(DISK).spread()
}

fn measured(cell: Cell, work: &Work) -> Cell {
    Cell {
        warm_up: work.phases[1],
        observe: Observe {
            time_bins: BINS,
            address_bins: 0,
        },
        ..cell
    }
}

/// The reports of the three systems.
pub fn three(ctx: &Ctx<'_>, work: &Work) -> Result<Vec<Arc<Report>>, LabError> {
    let hdd = simulate(
        ctx,
        work,
        &[measured(Cell::alone(DISK).with_tiers(vec![disk()]), work)],
    )?;
    let training_s = hdd[0].phases.first().map_or(0.0, |p| p.elapsed_s);
    let period = (training_s * PLAN).max(0.001);
    let cells = ["hot", "hro"].map(|policy| {
        let fast = Store::new(SSD, Size::Share(FAST));
        let policy = format!("{policy},period={period:.3}");
        measured(Cell::hybrid(&policy, vec![fast, disk()]), work)
    });
    let hybrids = simulate(ctx, work, &cells)?;
    Ok(hdd.into_iter().chain(hybrids).collect())
}

/// The part that counts.
pub fn counted(report: &Report) -> Phase {
    report.phases.get(1).cloned().unwrap_or_default()
}

/// What was run, and what stands for what.
pub fn inputs(out: &mut Outcome, work: &Work, reports: &[Arc<Report>]) {
    out.inputs.push(format!(
        "{}: {} requests, {} of them training; {:.0} MB touched, a twentieth on the SSD",
        work.name,
        work.memory.records.len(),
        work.phases[1],
        reports.first().map_or(0.0, |r| r.touched_extents as f64
            * f64::from(r.extent_bytes)
            / 1e6)
    ));
    for (name, r) in SYSTEMS.iter().zip(reports).skip(1) {
        let moved = r.phases.iter().map(|p| p.migrated_bytes).sum::<u64>();
        let late = counted(r).migrated_bytes;
        out.inputs.push(format!(
            "{name}: {:.1} MB moved, {:.1} of it after the training; {} moves refused",
            moved as f64 / 1e6,
            late as f64 / 1e6,
            r.phases.iter().map(|p| p.refused_up).sum::<u64>()
        ));
    }
}

/// Say what stands for what.
pub fn substitutes(out: &mut Outcome) {
    out.substitutes.extend(WORDS.map(str::to_owned));
}

/// What kind of operation a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Metadata, read or written.
    Metadata,
    /// File data, read.
    Read,
    /// File data, written.
    Write,
}

/// Of a record.
pub fn kind(record: &Record) -> Option<Kind> {
    match record.op {
        Op::Read | Op::Write if (1..=7).contains(&record.class) => Some(Kind::Metadata),
        Op::Read => Some(Kind::Read),
        Op::Write => Some(Kind::Write),
        _ => None,
    }
}

/// Mean seconds of the counted requests of that kind, or of all; `None` without any.
pub fn latency(work: &Work, report: &Report, of: Option<Kind>) -> Option<f64> {
    let from = work.phases[1] as usize;
    let records = work.memory.records.iter().zip(&report.replies).skip(from);
    let (mut sum, mut n) = (0.0, 0u64);
    for (record, reply) in records {
        let Some(k) = kind(record) else { continue };
        if of.is_none_or(|of| of == k) {
            sum += reply.answered.saturating_sub(reply.begun) as f64 / 1e9;
            n += 1;
        }
    }
    (n > 0).then(|| sum / n as f64)
}

/// Megabytes a second of the part that counts.
pub fn bandwidth(report: &Report) -> f64 {
    let p = counted(report);
    let all = p.all();
    (all.read + all.written) as f64 / 1e6 / p.elapsed_s
}

/// Mean cylinders that the arm crosses for a request of the disk, and the requests of the disk.
pub fn seek(report: &Report) -> (f64, u64) {
    let p = counted(report);
    let slow = p.usage.members.values().max_by_key(|m| m.tier);
    slow.map_or((0.0, 0), |m| {
        let n = m.reads + m.writes;
        (m.seek_distance as f64 / n.max(1) as f64, n)
    })
}

/// `a` under `b`, percent.
pub fn under(a: f64, b: f64) -> f64 {
    (1.0 - a / b) * 100.0
}
