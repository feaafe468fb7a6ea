//! What the web view draws of a volume: cells of a map, and moves.

use serde::Serialize;

/// The cells of a map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cells {
    /// The first extent.
    pub from: u64,
    /// The extent after the last one.
    pub to: u64,
    /// Extents of the volume.
    pub extents: u64,
    /// Size of an extent.
    pub extent_bytes: u32,
    /// How many cells there are.
    pub cells: u64,
    /// Of so many extents one was examined.
    pub step: u64,
    /// Extents that were examined.
    pub looked: u64,
    /// Those that have a home.
    pub mapped: u64,
    /// Those that are read from each tier.
    pub by_tier: Vec<u64>,
    /// Those with a copy.
    pub copies: u64,
    /// Those whose copy is newer than the home.
    pub dirty: u64,
    /// Those that the policy keeps where they are.
    pub held: u64,
    /// For each cell a digit (base64 for URLs): the tier of most of its extents, and marks; a dot without data.
    pub place: String,
    /// For each cell a digit: how recently its extents were used.
    pub heat: String,
}

/// Recent moves and moves in progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveList {
    /// Recent ones, newest first.
    pub ended: Vec<EndedMove>,
    /// Those in progress.
    pub under_way: Vec<MoveUnderWay>,
    /// How many have ended since the volume was opened.
    pub count: u64,
    /// Size of an extent.
    pub extent_bytes: u64,
}

/// A move that ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndedMove {
    /// Time since then.
    pub age_s: f64,
    /// Its kind, in a word.
    pub kind: &'static str,
    /// First byte of its extent.
    pub offset: u64,
    /// The tier that it went to.
    pub to: Option<u8>,
    /// Whether the engine began it, not the policy.
    pub own: bool,
    /// How it ended, in a word.
    pub how: &'static str,
    /// The policy's present words about the extent; only of the newest ones.
    pub why: Option<String>,
}

/// A move in progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveUnderWay {
    /// Its kind, in a word.
    pub kind: &'static str,
    /// First byte of its extent.
    pub offset: u64,
    /// The tier that it goes to.
    pub to: Option<u8>,
}
