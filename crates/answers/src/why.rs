//! Where a byte is: the answer of `why`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The place of an extent, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why {
    /// The byte that was asked for.
    pub offset: u64,
    /// Its extent.
    pub extent: u64,
    /// Size of an extent.
    pub extent_bytes: u32,
    /// Whether the extent has a home.
    pub mapped: bool,
    /// The tier of its home.
    pub tier: Option<u8>,
    /// The slot of its home.
    pub slot: Option<u32>,
    /// The path of the member of its home.
    pub member: Option<String>,
    /// The byte of its home there.
    pub member_offset: Option<u64>,
    /// Its copy on a faster tier; null if it has none.
    pub copy: Option<Copy>,
    /// Blocks that were written.
    pub valid_blocks: u32,
    /// Blocks of an extent.
    pub blocks: u32,
    /// Operations on it.
    pub in_flight: u32,
    /// Whether it moves.
    pub moving: bool,
    /// Time since its last use.
    pub last_access_age_s: Option<f64>,
    /// The policy's name.
    pub policy: String,
    /// The policy's words.
    pub why: String,
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Copy {
    /// Its tier.
    pub tier: u8,
    /// Its slot.
    pub slot: u32,
    /// The path of its member.
    pub member: Option<String>,
    /// The byte there.
    pub member_offset: u64,
    /// Blocks that it holds.
    pub blocks: u32,
    /// Those of them that are newer than the home.
    pub dirty_blocks: u32,
}

/// `isotherm why --file --json`: where a file of the file system on the volume is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyFile {
    /// Its path.
    pub file: String,
    /// Its size.
    pub file_bytes: u64,
    /// Bytes of it that have a place on the volume.
    pub mapped_bytes: u64,
    /// Extents of the volume that hold them.
    pub extents: usize,
    /// How many of these extents were asked for: fewer for a very large file.
    pub asked: usize,
    /// Bytes of the extents asked for, by the tier they are read from; `none`: unmapped.
    pub bytes_by_tier: BTreeMap<String, u64>,
    /// The extents that were asked for.
    pub parts: Vec<WhyPart>,
}

/// An extent that holds a part of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyPart {
    /// Where it is.
    #[serde(flatten)]
    pub why: Why,
    /// Bytes of the file in it.
    pub bytes_of_file: u64,
}
