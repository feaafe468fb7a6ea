//! What a reader counts, and how certain it is of the format.

use serde::Serialize;

/// Counters of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// Requests delivered.
    pub requests: u64,
    /// Bad records skipped.
    pub bad_skipped: u64,
    /// Reads, writes and discards of length 0, dropped.
    pub zero_length_dropped: u64,
    /// Requests that came after one with a later time, and were sorted to their places.
    #[serde(skip_serializing_if = "is_zero")]
    pub sorted: u64,
    /// Times that were smaller than the time before, and were raised to it.
    pub time_went_back: u64,
    /// Well-formed events that are not requests.
    pub other_events: u64,
}

/// Whether a counter is left out of JSON.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// How certain the recognition of a format is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Sure {
    /// Nothing in the content distinguishes the format from its relatives, or lines were refused.
    Guess,
    /// Every examined line fits and no other format reads as many, or the numbers distinguish it from its relatives.
    Likely,
    /// There is a magic number or a line of column names, or the user named the format.
    #[default]
    Certain,
}

impl Sure {
    /// Every degree with its name.
    const NAMES: [(Sure, &str); 3] = [
        (Sure::Guess, "guess"),
        (Sure::Likely, "likely"),
        (Sure::Certain, "certain"),
    ];

    /// The name of the degree, as in JSON.
    pub fn name(self) -> &'static str {
        // The table holds every degree.
        let row = Sure::NAMES.iter().find(|(sure, _)| *sure == self);
        row.map_or("", |(_, name)| name)
    }

    /// The degree with this name; a guess if there is none.
    pub(crate) fn of_name(name: &str) -> Sure {
        let row = Sure::NAMES.iter().find(|(_, n)| *n == name);
        row.map_or(Sure::Guess, |(sure, _)| *sure)
    }
}
