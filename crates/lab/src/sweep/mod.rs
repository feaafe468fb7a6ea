//! Grids of runs on all cores, kept as they finish.
//!
//! ```text
//!   grid.toml ─► cells ─► runs, one a thread ─► DIR/cells/KEY.json   durable when its name exists
//!                                          └─► DIR/cells.json, DIR/results.parquet at the end
//! ```
//! A cell's key is a hash of the arguments that run it alone, of its trace's size and of the program's version; so a sweep
//! that was interrupted, or whose grid grew, runs only what is missing.

mod grid;
mod table;

pub use grid::{Cell, parse};

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use isotherm_traces::Options;
use serde::Serialize;
use serde_json::{Value, json};

use crate::LabError;
use crate::pool::parallel;
use crate::report::sweep_page;
use crate::sim::{Digest, Run, Source, Touched, TraceFile, touched};

fn bad(key: &str, what: &str) -> LabError {
    LabError::setup(format!("{key}: {what}"))
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Cells of the grid.
    pub cells: usize,
    /// Of these, there already.
    pub kept: usize,
    /// Run now.
    pub run: usize,
    /// Cells that failed, with the arguments that run them alone and the reason. A later sweep tries them again.
    pub failed: Vec<String>,
}

/// How far a sweep is: cells done, of all.
pub type OnDone<'a> = &'a (dyn Fn(usize, usize) + Sync);

type FirstPass = Arc<Mutex<Option<Arc<Touched>>>>;
/// Trace, extent size and limit.
type PassKey = (String, u32, Option<u64>);

/// Runs cells; first passes are made once a trace and extent size.
struct Runner<'a> {
    find: &'a (dyn Fn(&str) -> Result<PathBuf, String> + Sync),
    passes: Mutex<HashMap<PassKey, FirstPass>>,
}

impl Runner<'_> {
    fn source(&self, cell: &Cell) -> Result<TraceFile, LabError> {
        Ok(TraceFile {
            path: (self.find)(&cell.trace).map_err(LabError::Setup)?,
            options: Options::default(),
            label: cell.trace.clone(),
        })
    }
    fn key(&self, cell: &Cell) -> Result<String, LabError> {
        let path = self.source(cell)?.path;
        let bytes = fs::metadata(&path)
            .map_err(|e| LabError::setup(format!("{}: cannot look at: {e}", path.display())))?
            .len();
        let text = format!(
            "{}\n{bytes}\n{}",
            env!("CARGO_PKG_VERSION"),
            cell.args().join("\n")
        );
        let mut d = Digest::default();
        text.bytes().for_each(|b| d.mix(u64::from(b)));
        Ok(d.text())
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
        // Whoever comes first makes the pass; the others wait for it.
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
    fn run(&self, cell: &Cell) -> Result<Value, LabError> {
        let setup = cell.setup()?;
        let source = self.source(cell)?;
        let shift = setup.extent_bytes.trailing_zeros();
        let first = self.first_pass(cell, &source, shift)?;
        let run = Run::new(&setup, &source).touched(&first);
        let report = if cell.hit_only {
            run.hit_only()?
        } else {
            run.full()?
        };
        Ok(json!({
            "cell": cell,
            "args": cell.args(),
            "report": report,
        }))
    }
}

/// Run what is missing of `cells` into `out`. `find` turns a trace's name into a path.
///
/// # Errors
/// The directory cannot be written. Cells that fail do not stop the others: see [`Summary::failed`].
pub fn sweep(
    cells: &[Cell],
    out: &Path,
    threads: usize,
    find: &(dyn Fn(&str) -> Result<PathBuf, String> + Sync),
    on_done: OnDone<'_>,
) -> Result<Summary, LabError> {
    let dir = out.join("cells");
    fs::create_dir_all(&dir)
        .map_err(|e| LabError::setup(format!("{}: cannot make: {e}", dir.display())))?;
    let runner = Runner {
        find,
        passes: Mutex::default(),
    };
    let keys = cells
        .iter()
        .map(|c| runner.key(c))
        .collect::<Result<Vec<_>, _>>()?;
    let place = |i: usize| dir.join(format!("{}.json", keys[i]));
    let missing: Vec<usize> = (0..cells.len())
        .filter(|&i| load(&place(i)).is_none())
        .collect();
    let kept = cells.len() - missing.len();
    let done = std::sync::atomic::AtomicUsize::new(kept);
    on_done(kept, cells.len());
    let results = parallel(missing.len(), threads, |n| {
        let i = missing[n];
        let result = runner
            .run(&cells[i])
            .and_then(|v| durable(&place(i), &v.to_string()));
        let now = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        on_done(now, cells.len());
        result.map_err(|e| format!("isotherm {}: {e}", cells[i].args().join(" ")))
    });
    let failed: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    let all: Vec<Value> = (0..cells.len())
        .filter_map(|i| {
            let mut v = load(&place(i))?;
            v["key"] = json!(keys[i]);
            Some(v)
        })
        .collect();
    durable(&out.join("cells.json"), &json!(all).to_string())?;
    table::write(&out.join("results.parquet"), &all)?;
    durable(&out.join("index.html"), &sweep_page(&all).html())?;
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

/// Whole and on the disk, or not there.
fn durable(path: &Path, text: &str) -> Result<(), LabError> {
    let beside = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        let mut f = File::create(&beside)?;
        f.write_all(text.as_bytes())?;
        f.sync_all()?;
        fs::rename(&beside, path)?;
        // The name, too.
        path.parent().map_or(Ok(()), |d| File::open(d)?.sync_all())
    };
    write().map_err(|e| LabError::setup(format!("{}: cannot write: {e}", path.display())))
}
