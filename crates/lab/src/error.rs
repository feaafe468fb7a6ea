//! The errors of the lab.

use isotherm_models::SheetError;
use isotherm_traces::TraceError;

/// An error in one line that names the trace, device or setting, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A device preset is unknown or cannot have the requested options.
    #[error(transparent)]
    Device(#[from] SheetError),
    /// The settings contradict each other or do not fit the trace.
    #[error("{0}")]
    Setup(String),
    /// The run was stopped on request.
    #[error("the run was stopped")]
    Stopped,
}

impl LabError {
    /// The error for settings that do not fit, from a text.
    pub fn setup(text: impl Into<String>) -> LabError {
        LabError::Setup(text.into())
    }
}
