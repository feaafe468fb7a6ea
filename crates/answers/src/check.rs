//! What checks found: `isotherm check` and the answers of a server that reads its data.

use serde::{Deserialize, Serialize};

use crate::{Checking, Range};

/// `isotherm check --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checked {
    /// The volume.
    pub volume: String,
    /// Whether nothing was found, and all was read.
    pub ok: bool,
    /// What is damaged, one sentence each.
    pub findings: Vec<String>,
    /// Whether the volume was served: then only its data was checked.
    pub served: bool,
    /// Why the check of the data ended before all was read; null if all was read.
    pub ended: Option<String>,
    /// The volume's metadata; only of a volume that is not served and has a superblock.
    #[serde(flatten)]
    pub metadata: Option<CheckedMetadata>,
    /// Whether it was closed cleanly; null if that is not known.
    pub was_clean: Option<bool>,
    /// Members that were found; absent if there is no superblock that can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "usize"))]
    pub members_found: Option<usize>,
    /// Extents that have a home; null if the map cannot be read.
    pub mapped_extents: Option<u32>,
    /// Repairs that were made before the check.
    pub mended: Vec<String>,
    /// The data that was read; null if it was not.
    pub data: Option<CheckedData>,
    /// Extents with a copy; null if the map cannot be read.
    pub copied_extents: Option<u32>,
    /// Those whose copy is newer than the home.
    pub dirty_extents: Option<u32>,
}

/// The metadata of a volume that is not served.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckedMetadata {
    /// The volume's identity.
    pub uuid: String,
    /// Number of the newest superblock.
    pub generation: u64,
    /// The places that hold metadata.
    pub metadata: Vec<CheckedArea>,
}

/// A place that holds metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckedArea {
    /// Its member.
    pub member: u8,
    /// Its checkpoints that have a header.
    pub checkpoints: Vec<CheckedCheckpoint>,
    /// Blocks of its journal; null without a whole checkpoint.
    pub journal_blocks: Option<u64>,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckedCheckpoint {
    /// Its number.
    pub number: u64,
    /// Its blocks.
    pub blocks: u32,
    /// Whether all of them can be read and belong to it.
    pub whole: bool,
}

/// What a server says while it reads its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckSays {
    /// How far it is.
    Progress(Checking),
    /// The end.
    Result(CheckResult),
}

/// What a server found when it read its data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Places of devices that cannot be read, in words.
    pub bad_places: Vec<String>,
    /// Why it ended before all was read.
    pub ended: Option<String>,
    /// Members that are present.
    pub members_found: usize,
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// Extents with a copy.
    pub copied_extents: u32,
    /// Those whose copy is newer than the home.
    pub dirty_extents: u32,
    /// The data.
    pub data: CheckedData,
}

/// Data that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckedData {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Ranges that can be read from no member.
    pub lost: Vec<Range>,
    /// Ranges that differ between home and copy.
    pub differing: Vec<Range>,
    /// Ranges that were written or moved all the time, so that nothing is known about them.
    pub not_compared: Vec<Range>,
}
