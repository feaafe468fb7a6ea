//! The same configurations under recordings of live volumes, which are run in addition to the generators: `fixtures/dss-*.parquet` and
//! `tpch.parquet` (bench/classes, fixtures/README.md). They are searched below `$ISOTHERM_TRACES`.
//!
//! The classes are those that the volume knew at the time of each request, so the data of a new file has none while it is written.

use std::path::Path;
use std::sync::Arc;

use isotherm_core::Nanos;
use isotherm_traces::{Op, Options, Record, TraceError};

use super::bench::{CONFIGURATIONS, cell, phase};
use super::show::{hits, percent, syncer};
use crate::cell::simulate;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome, Work};
use isotherm_lab::LabError;
use isotherm_lab::sim::{Memory, Phase};

/// A recorded run.
pub struct Recorded {
    name: &'static str,
    /// The recordings before the measurement, and the name and the recording of each measured phase.
    before: &'static [&'static str],
    phases: &'static [(&'static str, &'static str)],
    /// Size of the flash in bytes.
    flash: u64,
}

/// The size of the flash of the live volumes, whose disk had 1100 MiB.
const FLASH: u64 = 110 << 20;

/// The file server, then find, tar of a third of the directories, fsck.
pub const FILE: Recorded = Recorded {
    name: "file server",
    before: &["dss-file-pool.parquet"],
    phases: &[
        ("transactions", "dss-file.parquet"),
        ("find", "dss-file-find.parquet"),
        ("tar", "dss-file-tar.parquet"),
        ("fsck", "dss-file-fsck.parquet"),
    ],
    flash: FLASH,
};

/// The e-mail server.
pub const EMAIL: Recorded = Recorded {
    name: "e-mail server",
    before: &["dss-email-pool.parquet"],
    phases: &[("transactions", "dss-email.parquet")],
    flash: FLASH,
};

/// TPC-H at scale 0.1 on PostgreSQL, its four queries.
pub const TPCH: Recorded = Recorded {
    name: "TPC-H",
    before: &[],
    phases: &[("queries", "tpch.parquet")],
    flash: 20 << 20,
};

fn read(dir: &Path, file: &str) -> Result<Vec<Record>, LabError> {
    let reader = isotherm_traces::open(dir.join(file), &Options::default())?;
    Ok(reader.collect::<Result<_, TraceError>>()?)
}

impl Recorded {
    /// All parts one after the other; `None` if a file is missing.
    fn work(&self, dir: &Path) -> Result<Option<Work>, LabError> {
        let files = || (self.before.iter()).chain(self.phases.iter().map(|(_, file)| file));
        if !files().all(|f| dir.join(f).exists()) {
            return Ok(None);
        }
        let (mut records, mut ends, mut begun) = (Vec::new(), vec![0], Nanos(0));
        for file in files() {
            let part = read(dir, file)?;
            let length = part.last().map_or(Nanos(0), |r| r.time);
            records.extend(part.into_iter().map(|r| Record {
                time: begun + r.time,
                ..r
            }));
            begun = begun + length;
            ends.push(records.len() as u64);
        }
        let bytes = records.iter().map(Record::end).max().unwrap_or(0);
        let name = format!("{}, recorded", self.name);
        Ok(Some(Work {
            memory: Memory::new(&name, records),
            name,
            bytes: bytes.next_multiple_of(4 << 20),
            depth: 1,
            phases: ends[self.before.len()..ends.len() - 1].to_vec(),
        }))
    }

    /// Adds a table of the three configurations in each of the first `shown` phases, if the recording is there.
    pub fn add(&self, ctx: &Ctx<'_>, out: &mut Outcome, shown: usize) -> Result<(), LabError> {
        let Some(dir) = &ctx.traces else {
            out.substitutes.push(format!(
                "{}: a recording of a live volume would be run beside the generator: set ISOTHERM_TRACES to the folder fixtures of the sources",
                self.name
            ));
            return Ok(());
        };
        let name = format!("{} of {}", self.name, dir.display());
        let work: Arc<Option<Work>> = ctx.once(&name, || self.work(dir))?;
        let Some(work) = &*work else {
            out.substitutes.push(format!(
                "{}: a recording of a live volume would be run beside the generator: {} lacks its files",
                self.name,
                dir.display()
            ));
            return Ok(());
        };
        let cells = CONFIGURATIONS.map(|c| cell(c, self.flash, 100.0, work.phases[0]));
        let reports = simulate(ctx, work, &cells)?;
        out.inputs.push(format!(
            "{}: {} requests, {} of them before the measured phases; {} MiB of flash as live; {:.0} % of the written bytes without a class",
            work.name,
            work.memory.records.len(),
            work.phases[0],
            self.flash >> 20,
            unknown(&work.memory.records[work.phases[0] as usize..])
        ));
        let mut says = Vec::new();
        for (at, (what, _)) in self.phases.iter().take(shown).enumerate() {
            let phases: Vec<Phase> = reports.iter().map(|r| phase(r, at)).collect();
            let title = format!("{what}, as recorded on a live volume");
            out.tables.push(Table::new(title, rows(&phases)));
            says.extend(directions(what, at == 0, &phases));
        }
        out.tables.push(Table::new(DIRECTIONS, says));
        Ok(())
    }
}

const DIRECTIONS: &str =
    "directions of the paper, as recorded on a live volume (above zero: as the paper says)";

/// Whether the paper's directions can be seen in a phase: LRU-S is faster than LRU in all, and in the main work of a recording LRU is also
/// faster than no cache, and the syncer has a smaller part in the work of LRU-S. The recordings are too small for the paper's numbers.
fn directions(what: &str, main: bool, phases: &[Phase]) -> Vec<Row> {
    let [none, lru, lru_s] = phases else {
        return Vec::new();
    };
    let faster = |a: &Phase, b: &Phase| (b.elapsed_s / a.elapsed_s - 1.0) * 100.0;
    let calmer = (1.0 - syncer(lru_s) / syncer(lru).max(1e-9)) * 100.0;
    let all = [
        ("LRU-S is faster than LRU", true, faster(lru_s, lru)),
        ("LRU is faster than no cache", main, faster(lru, none)),
        ("LRU-S needs less cleaning than LRU", main, calmer),
    ];
    let row = |(text, _, gain): (&str, bool, f64)| {
        let holds = if gain > 0.0 { "holds" } else { "does not hold" };
        let cells = vec![Cell::new("gain", "%", gain)];
        Row::new(format!("{what}: {text}: {holds}"), cells)
    };
    all.into_iter().filter(|d| d.1).map(row).collect()
}

fn rows(phases: &[Phase]) -> Vec<Row> {
    let lru = phases.get(1).map_or(f64::NAN, |p| p.elapsed_s);
    let row = |(name, p): (&&str, &Phase)| {
        Row::new(
            *name,
            vec![
                Cell::new("time", "s", p.elapsed_s),
                Cell::new("of LRU", "x", lru / p.elapsed_s),
                Cell::new("read hits", "%", hits(p)),
                Cell::new("syncer", "%", syncer(p)),
            ],
        )
    };
    CONFIGURATIONS.iter().zip(phases).map(row).collect()
}

/// The percentage of the written bytes that have no class.
fn unknown(records: &[Record]) -> f64 {
    let written = |of: &dyn Fn(&Record) -> bool| -> u64 {
        let writes = records.iter().filter(|r| r.op == Op::Write && of(r));
        writes.map(|r| u64::from(r.len)).sum()
    };
    percent(written(&|r| r.class == 0) as f64, written(&|_| true) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXPERIMENTS;

    #[test]
    fn recordings_run_beside_the_generators() {
        let quiet = |_: &str| ();
        let ctx = Ctx::on_fixtures(&quiet, 0.001);
        for (id, phases) in [("dss-3", 1), ("dss-email", 1), ("dss-fs", 4), ("dss-5", 1)] {
            let e = EXPERIMENTS.iter().find(|e| e.id == id).expect(id);
            let out = e.run(&ctx).expect(id);
            let ours: Vec<_> = (out.tables.iter())
                .filter(|t| t.title.ends_with("as recorded on a live volume"))
                .collect();
            assert_eq!(ours.len(), phases, "{id}");
            let says = out.tables.iter().find(|t| t.title == DIRECTIONS);
            let says = &says.expect(id).rows;
            assert_eq!(says.len(), phases + 2, "{id}");
            for row in says {
                let gain = row.cells[0].ours.expect("a figure");
                assert_eq!(row.label.ends_with("does not hold"), gain <= 0.0, "{id}");
            }
            for t in ours {
                let times = t.rows.iter().map(|r| r.cells[0].ours);
                assert!(times.flatten().all(|s| s > 0.0), "{id}: {}", t.title);
            }
        }
    }

    /// Without the files the experiments run nevertheless, and name the missing files.
    #[test]
    fn without_recordings_the_generators_are_alone() {
        let quiet = |_: &str| ();
        let entry = EXPERIMENTS
            .iter()
            .find(|e| e.id == "dss-email")
            .expect("one");
        for traces in [None, Some(std::path::PathBuf::from("/nonexistent"))] {
            let ctx = Ctx {
                scale: Some(0.001),
                traces,
                ..Ctx::new(&quiet)
            };
            let out = entry.run(&ctx).expect("a run");
            assert!(
                out.substitutes
                    .iter()
                    .any(|s| s.contains("would be run beside"))
            );
        }
    }
}
