//! What a mounted tree answers about its disks: `isotherm files disk`.

use serde::{Deserialize, Serialize};

use crate::files::{Cut, Figures, Moving};

/// `isotherm files disk list --json`; the other commands of `files disk` print it when they have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Disks {
    /// All disks, those of the fastest tier first.
    pub disks: Vec<DiskState>,
    /// How full the disks of the slowest tier may be at most, in per cent, while files move to make them even; else null.
    pub balance_percent: Option<u8>,
    /// The file that is being moved.
    pub moving: Option<Moving>,
    /// The directory that `files disk add` has named, until it is a disk.
    pub joining: Option<Joining>,
    /// What of its lists is left out.
    #[serde(flatten)]
    pub cut: Cut,
}

/// A directory that is to become a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Joining {
    /// Its path.
    pub path: String,
    /// Why it could not; null while it is read.
    pub refused: Option<String>,
}

/// A disk of `isotherm files disk list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskState {
    /// Its tier.
    pub tier: u8,
    /// Its number; the fastest tier is 0.
    pub disk: u8,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Whether its files move away.
    pub drain: Drain,
    /// While they do: files, links, pipes and devices that it still has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "usize"))]
    pub left: Option<usize>,
    /// Those of them that could not be moved within the last half minute; `files status` says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "usize"))]
    pub cannot_move: Option<usize>,
}

/// Whether the files of a disk move away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Drain {
    /// They do not.
    None,
    /// They do.
    Draining,
    /// Nothing is left: the next mount may leave the disk out.
    Empty,
}
