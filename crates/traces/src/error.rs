//! Errors at the edge: unreadable files, unknown formats, bad records.

use std::fmt;
use std::path::{Path, PathBuf};

/// A position in the uncompressed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0.
    Byte(u64),
    /// A row of a columnar file, counted from 0.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(n) => write!(f, "line {n}"),
            Place::Byte(n) => write!(f, "byte {n}"),
            Place::Row(n) => write!(f, "row {n}"),
        }
    }
}

/// A record that does not conform to its format: what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// What the format requires at this place.
    pub expected: String,
    /// What the file has there, shortened and printable.
    pub found: String,
}

/// Longest piece of input quoted in a message.
const QUOTE_MAX: usize = 60;

impl Bad {
    /// A bad text field. Unprintable bytes are escaped and long fields are cut.
    pub fn text(expected: impl Into<String>, found: &[u8]) -> Bad {
        let cut = &found[..found.len().min(QUOTE_MAX)];
        let dots = if cut.len() < found.len() { "…" } else { "" };
        let found = if found.is_empty() {
            "nothing".to_owned()
        } else {
            format!("\"{}{dots}\"", cut.escape_ascii())
        };
        Bad {
            expected: expected.into(),
            found,
        }
    }

    /// A bad value that is not text.
    pub fn value(expected: impl Into<String>, found: impl fmt::Display) -> Bad {
        Bad {
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}

/// Why a trace could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or created.
    #[error("{}: cannot open: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Reading or decompressing failed part-way.
    #[error("{}: cannot read on after byte {at} of the uncompressed trace: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Bytes delivered before the failure.
        at: u64,
        /// The reason.
        source: std::io::Error,
    },
    /// Writing failed.
    #[error("{}: cannot write: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The content matches no known format.
    #[error("{}: {why}; name the format (--format; known: {}) or the columns (--columns)", .path.display(), crate::Format::names())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The findings of the examination.
        why: String,
    },
    /// A record is bad, and no more bad records may be skipped.
    #[error("{}: {place}: expected {}, found {}", .path.display(), .bad.expected, .bad.found)]
    Bad {
        /// The file.
        path: PathBuf,
        /// Line, byte or row.
        place: Place,
        /// Expected and found.
        bad: Box<Bad>,
    },
    /// The file or the request is valid, but this operation is not possible with it.
    #[error("{}: {what}", .path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The operation that is not possible, and the remedy.
        what: String,
    },
}

impl TraceError {
    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> TraceError {
        TraceError::Unsupported {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn write(path: &Path, source: std::io::Error) -> TraceError {
        TraceError::Write {
            path: path.to_owned(),
            source,
        }
    }
}
