//! Why the lab cannot do what it was asked.

use isotherm_models::SheetError;
use isotherm_traces::TraceError;

/// One line that names the trace, device or setting, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A device preset is unknown or cannot be what was asked of it.
    #[error(transparent)]
    Device(#[from] SheetError),
    /// The settings do not fit each other or the trace.
    #[error("{0}")]
    Setup(String),
    /// Somebody asked the run to end.
    #[error("the run was stopped")]
    Stopped,
}

impl LabError {
    /// Settings that do not fit, in words.
    pub fn setup(text: impl Into<String>) -> LabError {
        LabError::Setup(text.into())
    }
}
