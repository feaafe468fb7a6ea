//! What a mounted tree keeps on its fastest tier of files that are on others: `copies` in `isotherm files status` and `stats`.

use serde::{Deserialize, Serialize};

/// Copies of files of slower tiers on the fastest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Copies {
    /// Whether there may be any.
    pub on: bool,
    /// Files with a copy.
    pub files: usize,
    /// Bytes of these copies.
    pub bytes: u64,
    /// Copies that were made since the mount.
    pub made: u64,
    /// Copies that were given up since the mount.
    pub dropped: u64,
    /// Reads that they served.
    pub reads: u64,
    /// Copies of only the first bytes of files.
    pub heads: Heads,
    /// Copies of the parts of large files that are used most; left out until one of these files was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Ranges"))]
    pub ranges: Option<Ranges>,
}

/// Copies of parts of large files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ranges {
    /// Bytes of a part.
    pub length_bytes: u64,
    /// Files with such parts.
    pub files: usize,
    /// Parts.
    pub ranges: u64,
    /// Space that they take, in bytes.
    pub bytes: u64,
    /// Space that they may take at most, in bytes.
    pub bytes_max: u64,
    /// Parts that were made since the mount.
    pub made: u64,
    /// Reads that they served; a read of bytes of two parts counts for both.
    pub hits: u64,
    /// Bytes of these reads.
    pub hit_bytes: u64,
    /// Reads of the same files that they did not serve, counted in the same way.
    pub misses: u64,
}

/// The parts of one large file on the fast tier: a part of `files why --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileRanges {
    /// Parts.
    pub ranges: u64,
    /// Bytes of these parts.
    pub bytes: u64,
    /// Reads that they served since the file has some.
    pub hits: u64,
}

/// Copies of the first bytes of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heads {
    /// How many of the first bytes; 0: there are none.
    pub length_bytes: u64,
    /// Files with a head.
    pub files: usize,
    /// Bytes of these heads.
    pub bytes: u64,
    /// Heads that were made since the mount.
    pub made: u64,
}
