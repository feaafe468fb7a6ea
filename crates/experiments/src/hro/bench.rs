//! The three weeks (II-B, Table I) as workloads, and the systems of section IV under them.
//!
//! ```text
//!  training ──────────────── plan, migration ─│─ measured part
//! ```
//! The paper replays day by day as fast as it can. It migrates at midnight, at the pace of the trace, without other load. Here the only
//! planning instant and its migration are at the end of the training, which is not measured; the next planning instant would come after the
//! end.

use std::sync::Arc;

use isotherm_traces::generate::{Campus, FileUse, Week};
use isotherm_traces::layout::{Ino, Owner};
use isotherm_traces::{Op, Record};

use super::files::{By, choose, relocate};
use crate::cell::{Cell, Store, simulate};
use crate::{Ctx, Outcome, Work};
use isotherm_lab::LabError;
use isotherm_lab::sim::{Memory, Observe, Phase, Report};
use isotherm_lab::size::Size;

/// Preset of the SSD (Table III).
pub const SSD: &str = "ocz-agility2-60";
/// Preset of the disk (Table III).
pub const DISK: &str = "wd7500aaks";
/// The names of the systems.
///
/// The first three are judged. Their HOT and HRO place whole files, as in the paper. The others are policies of this engine, which place
/// extents of one size.
pub const SYSTEMS: [&str; 5] = ["HDD", "HOT", "HRO", "hot, extents", "hro, extents"];
/// The workloads.
pub const WEEKS: [&str; 3] = ["mail", "office", "research"];

/// The share of the requests that belongs to the training.
const TRAINING: f64 = 0.6;
/// The time of the plan, as a share of the time that the disk alone takes for the training. The remaining time is for the migration.
const PLAN: f64 = 0.8;
/// The SSD's share of the image (section IV), in parts per million.
const FAST: u32 = 50_000;
/// Extent size of the engine's policies: the size of a mean file. (With 4 KiB no request would continue within an extent where the previous
/// one ended, so R would equal f and `hro` would equal `hot`.)
const EXTENT: u32 = 64 << 10;
/// Fewest bins over the measured part.
const BINS: u32 = 64;

/// The substitutes for the paper's traces and machine, in words.
pub const WORDS: [&str; 3] = [
    "the week-long NFS traces of the paper by generators with the totals of Table I, at the scale: gen:mail-hro, gen:office-hro, gen:research-hro on an ext3-like layout; file sizes, locality and interleaving are assumed, the page cache has 512 MB of the server's 1 GB at the scale",
    "HOT and HRO place whole files by the paper's Algorithms 1 and 2, once, between training and what counts; inodes of these files move with them, names and journal stay on the disk. Rows `extents`: the engine's hot and hro on extents of 64 KiB, metadata among them, which migrate at the end of the training",
    "one wd7500aaks, the volume spread over all of it, for two; seven days with a migration at each midnight by a training of 60 % of the operations, then 40 % that count; one request in flight, each begun when the last one ended, as theirs",
];

/// A week: all of it, and its measured part with the chosen files on the SSD.
pub struct Bench {
    /// All requests in two phases: training, measured part.
    pub work: Work,
    /// HOT and HRO by files: the measured requests, the bytes on the SSD, and the number of chosen files.
    by_file: [(Work, u64, usize); 2],
    files: usize,
}

/// The workload of a week.
pub fn bench(ctx: &Ctx<'_>, week: &str) -> Result<Arc<Bench>, LabError> {
    let scale = ctx.scale_or(super::SCALE);
    let name = format!("{week}-hro, scale {scale}, seed {}", ctx.seed);
    ctx.once(&name, || {
        (ctx.progress)(&format!("{name}: making the requests"));
        let campus = match week {
            "mail" => Campus::Mail,
            "office" => Campus::Office,
            _ => Campus::Research,
        };
        make(&name, || {
            Week::with(campus, scale, ctx.seed).map_err(broken)
        })
    })
}

fn broken(e: isotherm_traces::layout::LayoutError) -> LabError {
    LabError::setup(format!("the generated file system: {e}"))
}

/// A week that was played.
struct Played {
    records: Vec<Record>,
    /// The number of records of the training.
    training: usize,
    uses: Vec<FileUse>,
    files: Vec<Ino>,
    owners: std::collections::BTreeMap<u64, Owner>,
    /// Blocks of the volume: inodes that moved are behind them.
    blocks: u64,
}

/// Plays a week. At its plan, the inodes of the files that `choose` names (as indexes) move with them.
fn play(
    name: &str,
    mut week: Week,
    choose: impl Fn(&[FileUse]) -> Vec<usize>,
) -> Result<Played, LabError> {
    let trained = (week.operations() as f64 * (1.0 - TRAINING)) as u64;
    let blocks = week.file_system().blocks();
    let mut records = Vec::new();
    let mut plan = None;
    while week.next_operation().map_err(broken)? {
        week.file_system().drain(&mut records);
        if plan.is_none() && week.left() <= trained {
            let (uses, files) = (week.uses(), week.files().to_vec());
            let owners = week.file_system().owners().map_err(LabError::Setup)?;
            let chosen: Vec<Ino> = choose(&uses).iter().map(|&i| files[i]).collect();
            week.file_system().move_inodes(&chosen);
            plan = Some((records.len(), uses, files, owners));
        }
    }
    week.file_system().sync();
    week.file_system().drain(&mut records);
    let (training, uses, files, owners) = plan.ok_or_else(|| {
        LabError::setup(format!("{name}: too few operations, take a larger scale"))
    })?;
    Ok(Played {
        records,
        training,
        uses,
        files,
        owners,
        blocks,
    })
}

fn make(name: &str, week: impl Fn() -> Result<Week, LabError>) -> Result<Bench, LabError> {
    let reach = |of: &[Record]| {
        let end = of.iter().map(Record::end).max().unwrap_or(0);
        end.next_multiple_of(4 << 20)
    };
    let alone = play(name, week()?, |_| Vec::new())?;
    let image: u64 = alone.uses.iter().map(|u| u.size).sum();
    let on_ssd = |(system, by)| -> Result<(Work, u64, usize), LabError> {
        let chosen = |uses: &[FileUse]| choose(by, uses, image / 20);
        // The same week is replayed once more. After the plan, only the places of these inodes differ.
        let p = play(name, week()?, chosen)?;
        let inodes: Vec<Ino> = chosen(&p.uses).iter().map(|&i| p.files[i]).collect();
        let (moved, fast) = relocate(&p.records[p.training..], &p.owners, &inodes, p.blocks);
        let name = format!("{name}, files of {system}");
        let work = Work {
            bytes: reach(&moved),
            memory: Memory::new(&name, moved),
            name,
            depth: 1,
            phases: vec![0],
        };
        Ok((work, fast, inodes.len()))
    };
    Ok(Bench {
        by_file: [on_ssd(("HOT", By::Frequency))?, on_ssd(("HRO", By::Value))?],
        work: Work {
            name: name.to_owned(),
            bytes: reach(&alone.records),
            memory: Memory::new(name, alone.records),
            depth: 1,
            phases: vec![0, alone.training as u64],
        },
        files: alone.uses.len(),
    })
}

fn disk() -> Store {
    Store::all(DISK).spread()
}

fn measured(cell: Cell, warm_up: u64) -> Cell {
    Cell {
        warm_up,
        observe: Observe {
            time_bins: BINS,
            address_bins: 0,
        },
        ..cell
    }
}

/// A system and its run of a week.
pub struct System<'a> {
    /// Its name in [`SYSTEMS`].
    pub name: &'static str,
    /// The workload that it ran.
    pub work: &'a Work,
    /// The report of the run.
    pub report: Arc<Report>,
}

/// Runs [`SYSTEMS`] under a week, in that order.
pub fn systems<'a>(ctx: &Ctx<'_>, bench: &'a Bench) -> Result<Vec<System<'a>>, LabError> {
    let work = &bench.work;
    let warm_up = work.phases[1];
    let alone = measured(
        Cell {
            tiers: vec![disk()],
            ..Cell::alone(DISK)
        },
        warm_up,
    );
    let mut all: Vec<(&Work, Arc<Report>)> = Vec::new();
    for report in simulate(ctx, work, &[alone])? {
        all.push((work, report));
    }
    let training_s = all[0].1.phases.first().map_or(0.0, |p| p.elapsed_s);
    for (work, fast, _) in &bench.by_file {
        let tiers = vec![Store::new(SSD, Size::Bytes((*fast).max(4096))), disk()];
        let cell = measured(Cell::hybrid("mylinear", tiers), 0);
        for report in simulate(ctx, work, &[cell])? {
            all.push((work, report));
        }
    }
    let period = (training_s * PLAN).max(0.001);
    let cells = ["hot", "hro"].map(|policy| {
        let fast = Store::new(SSD, Size::Share(FAST));
        let policy = format!("{policy},period={period:.3}");
        Cell {
            extent: EXTENT,
            ..measured(Cell::hybrid(&policy, vec![fast, disk()]), warm_up)
        }
    });
    for report in simulate(ctx, work, &cells)? {
        all.push((work, report));
    }
    let named = SYSTEMS.iter().zip(all);
    Ok(named
        .map(|(name, (work, report))| System { name, work, report })
        .collect())
}

/// The measured part of a report.
pub fn counted(report: &Report) -> Phase {
    report.phases.last().cloned().unwrap_or_default()
}

/// Adds a description of the run to the outcome.
pub fn inputs(out: &mut Outcome, bench: &Bench, systems: &[System<'_>]) {
    let work = &bench.work;
    out.inputs.push(format!(
        "{}: {} requests, {} of them training; a volume of {:.0} MB; of {} files HOT puts {} on the SSD, HRO {}",
        work.name,
        work.memory.records.len(),
        work.phases[1],
        work.bytes as f64 / 1e6,
        bench.files,
        bench.by_file[0].2,
        bench.by_file[1].2,
    ));
    for s in systems.iter().skip(3) {
        let moved: u64 = s.report.phases.iter().map(|p| p.migrated_bytes).sum();
        out.inputs.push(format!(
            "{}: {:.1} MB moved, {:.1} of it after the training; {} moves up refused",
            s.name,
            moved as f64 / 1e6,
            counted(&s.report).migrated_bytes as f64 / 1e6,
            s.report.phases.iter().map(|p| p.refused_up).sum::<u64>()
        ));
    }
}

/// Adds the substitutes to the outcome.
pub fn substitutes(out: &mut Outcome) {
    out.substitutes.extend(WORDS.map(str::to_owned));
}

/// The kind of operation to which a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read or write of metadata.
    Metadata,
    /// A read of file data.
    Read,
    /// A write of file data.
    Write,
}

/// The kind of a record.
pub fn kind(record: &Record) -> Option<Kind> {
    match record.op {
        Op::Read | Op::Write if (1..=7).contains(&record.class) => Some(Kind::Metadata),
        Op::Read => Some(Kind::Read),
        Op::Write => Some(Kind::Write),
        _ => None,
    }
}

/// Mean seconds of the measured requests of that kind, or of all; `None` if there are none.
pub fn latency(work: &Work, report: &Report, of: Option<Kind>) -> Option<f64> {
    let from = work.phases.last().map_or(0, |p| *p as usize);
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

/// Megabytes per second of the measured part.
pub fn bandwidth(report: &Report) -> f64 {
    let p = counted(report);
    let all = p.all();
    (all.read + all.written) as f64 / 1e6 / p.elapsed_s
}

/// Mean number of cylinders that the arm crosses per request of the disk, and the number of these requests.
pub fn seek(report: &Report) -> (f64, u64) {
    let p = counted(report);
    let slow = p.usage.members.values().max_by_key(|m| m.tier);
    slow.map_or((0.0, 0), |m| {
        let n = m.reads + m.writes;
        (m.seek_distance as f64 / n.max(1) as f64, n)
    })
}

/// How much lower `a` is than `b`, in percent.
pub fn under(a: f64, b: f64) -> f64 {
    (1.0 - a / b) * 100.0
}
