//! `isotherm sweep`: a grid of simulations.

use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use isotherm_lab::sweep::{parse, sweep};
use isotherm_report::sweep_page;

use crate::Failure;
use crate::lab::args::SweepArgs;
use crate::lab::sim::failed;
use crate::lab::trace::find;

/// `isotherm sweep`.
///
/// # Errors
/// The grid is wrong, a cell failed, or the directory cannot be written.
pub fn run(args: &SweepArgs) -> Result<(), Failure> {
    let text =
        std::fs::read_to_string(&args.grid).map_err(|e| Failure::file(&args.grid, "read", &e))?;
    let cells = parse(&text, &args.grid.display().to_string()).map_err(|e| failed(&e))?;
    let threads = args.threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    );
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(cells.len() as u64)
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} cells, {eta} left") {
        bar.set_style(style);
    }
    let find = |name: &str| find(Path::new(name)).map_err(|e| e.to_string());
    let on_done = |done: usize, _all: usize| bar.set_position(done as u64);
    let summary = sweep(&cells, &args.out, threads, &find, &on_done, |all| {
        sweep_page(all).html()
    })
    .map_err(|e| failed(&e))?;
    bar.finish_and_clear();
    args.json.print(&summary, || {
        format!(
            "{}: {} cells, {} were there, {} run, {} failed; cells.json, results.parquet and index.html written\n",
            args.out.display(),
            summary.cells,
            summary.kept,
            summary.run,
            summary.failed.len()
        )
    })?;
    match &summary.failed[..] {
        [] => Ok(()),
        [one] => Err(Failure::failed(one.clone())),
        [one, rest @ ..] => Err(Failure::failed(format!("{one} (and {} more)", rest.len()))),
    }
}
