//! Runs grids of cells on all cores, and keeps each result as it is finished.
//!
//! ```text
//!   grid.toml ─► cells ─► runs, one per thread ─► DIR/cells/KEY.json   durable when its name exists
//!                                             └─► DIR/cells.json, DIR/results.parquet at the end
//! ```
//! A cell's key (`key.rs`) is a hash of all that determines its result. So a sweep that was interrupted, or whose grid has grown, runs only
//! the missing cells, and one whose trace or data sheet was replaced runs the cells that depend on it again.

mod grid;
mod key;
mod table;

pub use grid::{Cell, parse, parse_json};

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use isotherm_traces::Options;
use serde::Serialize;
use serde_json::Value;

use crate::LabError;
use crate::pool::parallel;
use crate::sim::{Run, Source, Touched, TraceFile, Watch, touched};

fn bad(key: &str, what: &str) -> LabError {
    LabError::setup(format!("{key}: {what}"))
}

/// Makes the page of a sweep, as HTML, from the results of its cells.
pub type PageOf = fn(&[Value]) -> String;

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of cells in the grid.
    pub cells: usize,
    /// Number of cells whose result already existed.
    pub kept: usize,
    /// Number of cells that were run now.
    pub run: usize,
    /// Cells that failed, with the arguments that run them alone and the reason. The next sweep tries them again.
    pub failed: Vec<String>,
}

/// Reports the progress of a sweep: cells that are done, and all cells.
pub type OnDone<'a> = &'a (dyn Fn(usize, usize) + Sync);

type FirstPass = Arc<Mutex<Option<Arc<Touched>>>>;
/// Key of a first pass: trace, extent size and limit.
type PassKey = (String, u32, Option<u64>);

/// Converts the name of a trace, as written in the grid, to a path.
pub type Find<'a> = &'a (dyn Fn(&str) -> Result<PathBuf, String> + Sync);

/// Runs cells, from any thread. A first pass is made once per trace and extent size, and kept.
pub struct Runner<'a> {
    find: Find<'a>,
    passes: Mutex<HashMap<PassKey, FirstPass>>,
    watch: Watch,
}

impl<'a> Runner<'a> {
    /// A runner that has no first passes yet.
    pub fn new(find: Find<'a>) -> Runner<'a> {
        Runner {
            find,
            passes: Mutex::default(),
            watch: Watch::default(),
        }
    }
    /// Stops all runs, now and later, with [`LabError::Stopped`].
    pub fn stop(&self) {
        self.watch.stop.store(true, Ordering::Relaxed);
    }
    fn source(&self, cell: &Cell) -> Result<TraceFile, LabError> {
        Ok(TraceFile {
            path: (self.find)(&cell.trace).map_err(LabError::Setup)?,
            options: Options::default(),
            label: cell.trace.clone(),
        })
    }
    fn key(&self, cell: &Cell) -> Result<String, LabError> {
        key::of(cell, &self.source(cell)?.path)
    }
    fn first_pass(
        &self,
        cell: &Cell,
        source: &dyn Source,
        shift: u32,
    ) -> Result<Arc<Touched>, LabError> {
        let key = (cell.trace.clone(), shift, cell.limit);
        let place = match self.passes.lock() {
            Ok(mut p) => p.entry(key).or_default().clone(),
            Err(_) => return Err(LabError::Stopped),
        };
        // The first thread makes the pass; the others wait for it.
        let Ok(mut place) = place.lock() else {
            return Err(LabError::Stopped);
        };
        if let Some(t) = &*place {
            return Ok(t.clone());
        }
        let t = Arc::new(touched(source, shift, cell.limit)?);
        *place = Some(t.clone());
        Ok(t)
    }
    /// Runs `cell`. The result is its entry in `cells.json` without the key.
    ///
    /// # Errors
    /// As [`crate::sim::run`]; or the trace is not found.
    pub fn run(&self, cell: &Cell) -> Result<Value, LabError> {
        let setup = cell.setup()?;
        let source = self.source(cell)?;
        let shift = setup.extent_bytes.trailing_zeros();
        let first = self.first_pass(cell, &source, shift)?;
        let run = Run::new(&setup, &source).touched(&first).watch(&self.watch);
        let report = if cell.hit_only {
            run.hit_only()?
        } else {
            run.full()?
        };
        let ran = Ran {
            cell,
            args: cell.args(),
            report,
        };
        serde_json::to_value(ran).map_err(|e| LabError::setup(e.to_string()))
    }
}

/// The result of a cell.
#[derive(Serialize)]
struct Ran<'a> {
    cell: &'a Cell,
    args: Vec<String>,
    report: crate::sim::Report,
}

/// A grid and the directory of its results, for callers that distribute the cells themselves.
pub struct Sweep {
    cells: Vec<Cell>,
    keys: Vec<String>,
    out: PathBuf,
}

impl Sweep {
    /// `cells` with results in `out`, which is created if it is missing.
    ///
    /// # Errors
    /// The directory cannot be created, or a trace is missing.
    pub fn open(cells: Vec<Cell>, out: &Path, find: Find<'_>) -> Result<Sweep, LabError> {
        let dir = out.join("cells");
        fs::create_dir_all(&dir)
            .map_err(|e| LabError::setup(format!("{}: cannot make: {e}", dir.display())))?;
        let runner = Runner::new(find);
        let keys = cells.iter().map(|c| runner.key(c));
        Ok(Sweep {
            keys: keys.collect::<Result<_, _>>()?,
            cells,
            out: out.to_owned(),
        })
    }
    /// The cells of the grid.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }
    fn place(&self, i: usize) -> PathBuf {
        self.out
            .join("cells")
            .join(format!("{}.json", self.keys[i]))
    }
    /// Indexes of the cells that have no result yet.
    pub fn missing(&self) -> Vec<usize> {
        (0..self.cells.len())
            .filter(|&i| load(&self.place(i)).is_none())
            .collect()
    }
    /// Stores the result of [`Runner::run`] for cell `i`. It is durable on return.
    ///
    /// # Errors
    /// The result cannot be written.
    pub fn keep(&self, i: usize, result: &Value) -> Result<(), LabError> {
        durable(&self.place(i), &result.to_string())
    }
    /// The message for a cell `i` that failed: the call that runs it alone, and the reason.
    pub fn failure(&self, i: usize, why: &str) -> String {
        format!("isotherm {}: {why}", self.cells[i].args().join(" "))
    }
    /// Writes the tables of all results, and the page that `page` makes of them as `index.html`. Returns the content of `cells.json`.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn finish(&self, page: PageOf) -> Result<Vec<Value>, LabError> {
        let all: Vec<Value> = (0..self.cells.len())
            .filter_map(|i| {
                let mut v = load(&self.place(i))?;
                let fields = v.as_object_mut()?;
                fields.insert(table::KEY.to_owned(), self.keys[i].clone().into());
                Some(v)
            })
            .collect();
        let text = Value::from(all.clone()).to_string();
        durable(&self.out.join("cells.json"), &text)?;
        table::write(&self.out.join("results.parquet"), &all)?;
        durable(&self.out.join("index.html"), &page(&all))?;
        Ok(all)
    }
}

/// Runs the missing cells into `out`. `find` converts the name of a trace to a path.
///
/// # Errors
/// The directory cannot be written. A cell that fails does not stop the others: see [`Summary::failed`].
pub fn sweep(
    cells: &[Cell],
    out: &Path,
    threads: usize,
    find: Find<'_>,
    on_done: OnDone<'_>,
    page: PageOf,
) -> Result<Summary, LabError> {
    let sweep = Sweep::open(cells.to_vec(), out, find)?;
    let runner = Runner::new(find);
    let missing = sweep.missing();
    let kept = cells.len() - missing.len();
    let done = AtomicUsize::new(kept);
    on_done(kept, cells.len());
    let results = parallel(threads, &missing, |&i| {
        let result = runner.run(&cells[i]).and_then(|v| sweep.keep(i, &v));
        let now = done.fetch_add(1, Ordering::Relaxed) + 1;
        on_done(now, cells.len());
        result.map_err(|e| sweep.failure(i, &e.to_string()))
    });
    let failed: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    sweep.finish(page)?;
    Ok(Summary {
        cells: cells.len(),
        kept,
        run: missing.len() - failed.len(),
        failed,
    })
}

fn load(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a file such that it is either complete and durable, or absent.
fn durable(path: &Path, text: &str) -> Result<(), LabError> {
    replace(path, |f| {
        f.write_all(text.as_bytes())?;
        Ok(())
    })?;
    // The directory is synchronised too, so that the name is durable.
    path.parent()
        .map_or(Ok(()), |d| File::open(d)?.sync_all())
        .map_err(|e| LabError::setup(format!("{}: cannot write: {e}", path.display())))
}

/// Replaces the file `path` by what `fill` writes. If that fails, for example because the disk is full, an earlier file is unchanged and
/// nothing is left beside it.
fn replace(
    path: &Path,
    fill: impl FnOnce(&mut File) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<(), LabError> {
    let beside = path.with_extension("part");
    let write = || -> Result<(), Box<dyn std::error::Error>> {
        // What is there is left from a run that was killed, or somebody else's link: nothing is written through it.
        let _ = fs::remove_file(&beside);
        let mut file = File::create_new(&beside)?;
        fill(&mut file)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        Ok(())
    };
    write().map_err(|e| {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
        LabError::setup(format!("{}: cannot write: {e}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_cannot_be_written_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().expect("a directory");
        // A directory cannot be replaced by a file.
        let path = dir.path().join("results.parquet");
        fs::create_dir(&path).expect("made");
        assert!(replace(&path, |f| Ok(f.write_all(b"x")?)).is_err());
        assert!(durable(&path, "x").is_err());
        let full = replace(&dir.path().join("cells.json"), |_| {
            Err("no space left".into())
        });
        assert!(full.is_err_and(|e| e.to_string().contains("no space left")));
        let names: Vec<_> = fs::read_dir(dir.path())
            .expect("read")
            .map(|e| e.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["results.parquet"]);
    }

    #[test]
    fn a_trace_that_grows_between_two_passes_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t");
        let line = |i: u64| format!("{} 0 {} 8 1\n", i * 9000, 8 * i);
        fs::write(&path, (0..200).map(line).collect::<String>()).expect("written");
        let file = TraceFile {
            label: "t".to_owned(),
            options: Options::default(),
            path: path.clone(),
        };
        let policy = "lru".parse().expect("a policy");
        let share = crate::size::Size::Share(100_000);
        let setup = crate::sim::Setup::pair(policy, share).expect("a setup");
        let first = touched(&file, setup.extent_bytes.trailing_zeros(), None).expect("read");
        fs::write(&path, (0..300).map(line).collect::<String>()).expect("written");
        for hit_only in [false, true] {
            let run = Run::new(&setup, &file).touched(&first);
            let failed = if hit_only { run.hit_only() } else { run.full() };
            let why = failed.expect_err("the trace changed").to_string();
            assert!(
                why.contains("200 requests the first time, 300 the second"),
                "{why}"
            );
        }
    }

    /// Also by the player that reads a trace twice only if it is too long to be kept.
    #[test]
    fn a_long_trace_that_is_replaced_between_two_passes_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        // The same number of requests, but other addresses, or a second device.
        let files = [(0, 1), (5_000, 1), (0, 2)].map(|(from, devices)| {
            let path = dir.path().join(format!("{from}-{devices}"));
            let line = |i: u64| format!("{} {} {} 8 1\n", i * 9000, i % devices, 8 * (from + i));
            fs::write(&path, (0..200).map(line).collect::<String>()).expect("written");
            path
        });
        let params = [];
        let setup = crate::hit_only::Setup {
            policy: "lru",
            params: &params,
            extent_shift: 12,
            fast_slots: &|touched| touched / 10,
            keep_bytes: 0,
        };
        for (i, second) in files.iter().enumerate() {
            let mut pass = [&files[0], second].into_iter();
            let open =
                || isotherm_traces::open(pass.next().expect("two passes"), &Options::default());
            let played = crate::hit_only::hit_only(open, &setup);
            let why = played.err().map(|e| e.to_string()).unwrap_or_default();
            assert_eq!(why.contains("the trace changed"), i > 0, "{i}: {why}");
        }
    }
}
