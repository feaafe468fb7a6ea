//! Errors of this crate: their texts say what failed, where, and what to do about it.

use std::fmt;

/// Kind of an error; stable, so that callers can match on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A description or parameter is wrong.
    Config,
    /// A device cannot be used as asked.
    Device,
    /// A device is held by someone else.
    InUse,
    /// This user may not open a device.
    Denied,
    /// The members do not form a volume that can be opened.
    Volume,
    /// The system refused something that the engine needs.
    System,
}

/// An error whose text names the place and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// See [`ErrorKind`].
    pub kind: ErrorKind,
    text: String,
}

impl Error {
    /// Creates an error of `kind` with this text, less the numbers of system errors in it.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error {
            kind,
            text: isotherm_paths::without_numbers(&text.into()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
