//! Classes of data: `isotherm classes`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ClassFigures, ClassSources, Promise};

/// `isotherm classes show --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Classes {
    /// Who said what requests carry.
    #[serde(flatten)]
    pub sources: ClassSources,
    /// Rows of the policy's table of classes.
    pub rows: Vec<String>,
    /// What classes are promised and how that was kept over the last half second; null where nothing was asked for. Last what no row names. Empty where nothing is promised.
    pub qos: Vec<Promise>,
    /// Copies and homes on the fastest tier that hold valid blocks.
    pub fast_extents: u64,
    /// Those whose valid blocks have several classes.
    pub mixed_fast_extents: u64,
    /// Share of the fastest tier's extents whose valid blocks have several classes, 0 to 1; null if the tier is empty.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub mixed_fast_share: Option<f64>,
    /// Memory of the table of classes.
    pub memory_bytes: usize,
    /// The same for each GiB of the volume.
    pub memory_bytes_per_gib: f64,
    /// What the layout of file systems says.
    pub layout: ClassLayout,
    /// By class of data (0 to 63), classes of which nothing is known left out.
    pub by_class: BTreeMap<u8, ClassRow>,
}

/// What was learnt from the layout of the file systems on the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassLayout {
    /// How often all of it was read.
    pub full_looks: u64,
    /// How often changed parts were read again.
    pub refreshes: u64,
    /// Ranges of which it says the class.
    pub ranges: u64,
    /// How often it could not be read.
    pub failed: u64,
    /// Why it cannot be read.
    pub trouble: Option<String>,
    /// The file systems that were found.
    pub file_systems: Vec<FoundFileSystem>,
}

/// A file system on the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundFileSystem {
    /// Its kind.
    pub kind: FileSystemKind,
    /// Its first byte.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Size of its blocks.
    pub block_bytes: u32,
}

/// Kinds of file systems whose layout is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileSystemKind {
    /// ext2, ext3, ext4.
    Ext,
    /// XFS.
    Xfs,
}

/// A class with what the volume has of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassRow {
    /// Its figures.
    #[serde(flatten)]
    pub figures: ClassFigures,
    /// What of the volume is of the class, bytes; absent if nothing is known to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub volume_bytes: Option<u64>,
}

/// The ranges of classes from a byte on, as many as fit into an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassRanges {
    /// First byte, bytes, class.
    pub ranges: Vec<(u64, u64, u8)>,
    /// The byte at which to continue.
    pub next: Option<u64>,
}

/// The answer to ranges that were registered, and `isotherm classes import --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisteredClasses {
    /// The source on whose behalf.
    pub source: String,
    /// How many ranges.
    pub ranges: usize,
}
