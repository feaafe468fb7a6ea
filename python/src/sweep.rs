//! The parts of a sweep, for `isotherm/_sweep.py` to spread over executors: a grid, cells one by one, and what is kept.

use std::path::{Path, PathBuf};

use isotherm_lab::LabError;
use isotherm_lab::sweep::{self as lab, Cell};
use pyo3::prelude::*;

use crate::failed;

fn find(name: &str) -> Result<PathBuf, String> {
    isotherm_traces::find(Path::new(name)).map_err(|e| e.to_string())
}

/// The cells of a grid as JSON texts: of the TOML in `text` (a file called `file`), or of a JSON object without a file.
#[pyfunction]
#[pyo3(signature = (text, file=None))]
pub fn grid(text: &str, file: Option<&str>) -> PyResult<Vec<String>> {
    let cells = match file {
        Some(file) => lab::parse(text, file),
        None => lab::parse_json(text),
    };
    cells.map_err(failed)?.iter().map(json).collect()
}

fn json(value: impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(&value).map_err(failed)
}

fn cell(text: &str) -> PyResult<Cell> {
    serde_json::from_str(text).map_err(|e| failed(format!("cell: {e}")))
}

/// Runs cells, of several threads at once if they like.
#[pyclass(frozen, module = "isotherm._native")]
pub struct Runner(lab::Runner<'static>);

#[pymethods]
impl Runner {
    #[new]
    fn new() -> Runner {
        Runner(lab::Runner::new(&find))
    }
    /// Run a cell; gives its entry of `cells.json`.
    fn run(&self, py: Python<'_>, cell: &str) -> PyResult<String> {
        let cell = self::cell(cell)?;
        let ended: Result<_, LabError> = py.detach(|| self.0.run(&cell));
        Ok(ended.map_err(failed)?.to_string())
    }
    /// End all runs.
    fn stop(&self) {
        self.0.stop();
    }
}

/// A grid and its directory of results.
#[pyclass(frozen, module = "isotherm._native")]
pub struct Sweep(lab::Sweep);

#[pymethods]
impl Sweep {
    #[new]
    fn new(cells: Vec<String>, out: PathBuf) -> PyResult<Sweep> {
        let cells = cells.iter().map(|c| cell(c)).collect::<PyResult<_>>()?;
        let sweep = lab::Sweep::open(cells, &out, &find).map_err(failed)?;
        Ok(Sweep(sweep))
    }
    /// Cells without a result, by place.
    fn missing(&self) -> Vec<usize> {
        self.0.missing()
    }
    /// Keep a cell's entry: durable on return.
    fn keep(&self, py: Python<'_>, i: usize, result: &str) -> PyResult<()> {
        if i >= self.0.cells().len() {
            return Err(failed(format!("cell {i} does not exist")));
        }
        let value = serde_json::from_str(result).map_err(failed)?;
        py.detach(|| self.0.keep(i, &value)).map_err(failed)
    }
    /// Write the tables; gives the text of `cells.json`.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        json(
            py.detach(|| self.0.finish(|all| isotherm_report::sweep_page(all).html()))
                .map_err(failed)?,
        )
    }
}

/// The call of the command line that runs a cell alone.
#[pyfunction]
pub fn command(text: &str) -> PyResult<String> {
    Ok(format!("isotherm {}", cell(text)?.args().join(" ")))
}
