//! The errors of the lab.

use isotherm_core::policy::BuildError;
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

/// The reasons why a hit-only run has no report.
#[derive(Debug)]
pub enum HitOnlyError {
    /// The trace cannot be read.
    Trace(TraceError),
    /// The trace does not fit the settings; the text says why, and what to change.
    Unfit(String),
    /// The policy or a parameter is wrong.
    Policy(BuildError),
}

impl std::fmt::Display for HitOnlyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HitOnlyError::Trace(e) => e.fmt(f),
            HitOnlyError::Unfit(why) => f.write_str(why),
            HitOnlyError::Policy(BuildError::UnknownPolicy(near)) => {
                write!(f, "no such policy; nearest: `{near}`")
            }
            HitOnlyError::Policy(BuildError::Param(key, e)) => {
                write!(f, "parameter `{key}`: {e:?}")
            }
        }
    }
}

impl std::error::Error for HitOnlyError {}

impl From<TraceError> for HitOnlyError {
    fn from(e: TraceError) -> HitOnlyError {
        HitOnlyError::Trace(e)
    }
}

/// The message for a trace of which the second pass reads something else than the first one.
pub(crate) fn changed(first: u64, second: u64) -> String {
    format!(
        "the trace changed while it was read: {first} requests the first time, {second} the second; wait until it is complete, or name a copy"
    )
}
