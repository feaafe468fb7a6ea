//! Errors of the edge: what, where, and what to do about it.

use std::fmt;

/// What sort of thing went wrong; stable, to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A description or parameter is wrong.
    Config,
    /// A device cannot be used as asked.
    Device,
    /// A device is held by someone else.
    InUse,
    /// The members do not form a volume that can be opened.
    Volume,
    /// The system refused something that the engine needs.
    System,
}

/// An error with the place and the fix in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// See [`ErrorKind`].
    pub kind: ErrorKind,
    text: String,
}

impl Error {
    /// An error of `kind` that reads as `text`.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error {
            kind,
            text: text.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
