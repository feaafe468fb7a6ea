//! The formats there are, by name.

use std::fmt;
use std::str::FromStr;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// blkreplay `.load` text.
    Blkreplay,
}

/// One line of the table of formats.
struct Row {
    format: Format,
    name: &'static str,
    what: &'static str,
    timed: bool,
}

const TABLE: &[Row] = &[Row {
    format: Format::Blkreplay,
    name: "blkreplay",
    what: "start ; sector ; length ; op ; … (seconds, 512 B sectors)",
    timed: true,
}];

impl Format {
    /// Every format, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Format> {
        TABLE.iter().map(|row| row.format)
    }

    fn row(self) -> &'static Row {
        // Every variant has its row: a test walks both.
        &TABLE[TABLE.iter().position(|row| row.format == self).unwrap_or(0)]
    }

    /// The name to type.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What a record looks like, in one line.
    pub fn description(self) -> &'static str {
        self.row().what
    }

    /// Whether the format holds time. One that does not gets 1 ms per request.
    pub fn timed(self) -> bool {
        self.row().timed
    }

    /// All names, for messages.
    pub fn names() -> String {
        TABLE
            .iter()
            .map(|row| row.name)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name is no format's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown trace format \"{name}\"; known: {}", Format::names())]
pub struct UnknownFormat {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        TABLE
            .iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))
            .map(|row| row.format)
            .ok_or_else(|| UnknownFormat {
                name: name.to_owned(),
            })
    }
}
