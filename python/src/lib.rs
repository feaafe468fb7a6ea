//! The lab for Python: `isotherm._native`, which `isotherm/*.py` dresses up.
//!
//! ```text
//!  isotherm.sim ─► run.rs ─► isotherm_lab::sim        policy.rs + view.rs: a Python object as a Policy
//!  isotherm.sweep ─► sweep.rs: one cell a call; Python spreads them
//!  memory.rs: tables of Python's as traces
//!  isotherm.read_trace ─► trace.rs ─► isotherm_traces, out through Arrow's C stream
//! ```
//! Results leave as the JSON that `isotherm sim --json` prints. Python's lock is given up while anything runs, and taken for
//! each call of a policy that is written in Python.

mod action;
mod lists;
mod memory;
mod policy;
mod run;
mod sweep;
mod trace;
mod view;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pyo3::create_exception!(
    isotherm,
    Error,
    PyValueError,
    "What was asked cannot be done. The text names the field, file or place, and the fix."
);

/// Any error of the crates below as [`Error`].
fn failed(error: impl std::fmt::Display) -> PyErr {
    Error::new_err(error.to_string())
}

/// The compiled part of `isotherm`.
#[pymodule(gil_used = true)]
mod _native {
    use super::Error as ErrorType;
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::action::Action;
    #[pymodule_export]
    use super::lists::{devices, formats, generators, policies};
    #[pymodule_export]
    use super::run::{Compared, Played, sim};
    #[pymodule_export]
    use super::sweep::{Runner, Sweep, command, grid};
    #[pymodule_export]
    use super::trace::Trace;
    #[pymodule_export]
    use super::view::{Access, View};

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("Error", m.py().get_type::<ErrorType>())?;
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
