//! What a reader counts, and how certain it is of the format.

use serde::Serialize;

/// Counters of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Requests delivered.
    pub requests: u64,
    /// Bad records skipped.
    pub bad_skipped: u64,
    /// Reads, writes and discards of length 0, dropped.
    pub zero_length_dropped: u64,
    /// Times that were smaller than the time before, and were raised to it.
    pub time_went_back: u64,
    /// Well-formed events that are not requests.
    pub other_events: u64,
}

/// How certain the recognition of a format is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
