//! What a mounted tree answers: `isotherm files`.
//!
//! Users who may not give commands get counts in place of names: texts are empty, lists are empty and `counts` has their lengths.

use std::collections::BTreeMap;

pub use crate::disks::{DiskState, Disks, Drain, Joining};
pub use crate::file_copies::{Copies, FileRanges, Heads, Ranges};
use serde::{Deserialize, Serialize};

/// Lengths of the lists that are left out for users who may not give commands.
pub type Counts = BTreeMap<String, u64>;

/// What of the lists of an answer is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cut {
    /// Items of lists that are left out because the answer would be too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "usize"))]
    pub left_out: Option<usize>,
    /// Only for users who may not give commands: the lengths of the lists that are left out, like all names, for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Counts"))]
    pub counts: Option<Counts>,
}

/// `isotherm files status --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// How the tree is.
    pub state: State,
    /// The policy with its parameters, and those of directories.
    pub policy: String,
    /// Whether files are moved automatically.
    pub moves: bool,
    /// Whether files move because of `migrate`.
    pub migrating: bool,
    /// Above the second one the mover empties a tier down to the first one.
    pub marks_percent: [u8; 2],
    /// The tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// The file that is being moved.
    pub moving: Option<Moving>,
    /// Copies on the fastest tier.
    pub copies: Copies,
    /// How data gets to programs.
    pub io: Io,
    /// Files that are open.
    pub in_use: usize,
    /// The tier of each path that is pinned.
    pub pins: BTreeMap<String, u8>,
    /// The policy of each directory that has one, and its share of the tier in per cent.
    pub policies: BTreeMap<String, (String, u8)>,
    /// The rules, in order.
    pub rules: Vec<String>,
    /// What was done at the mount about moves that a crash had interrupted.
    pub recovered: Recovered,
    /// The newest messages, newest first.
    pub said: Vec<String>,
    /// What of its lists is left out.
    #[serde(flatten)]
    pub cut: Cut,
}

/// How a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing is wrong.
    Serving,
    /// Names cannot change until the next mount.
    Stuck,
    /// A tier is missing, read-only or fails.
    Degraded,
}

/// How data gets to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Io {
    /// It is not mounted yet.
    None,
    /// Through the kernel's cache.
    Cached,
    /// The same, and writes are collected there.
    Writeback,
    /// The kernel itself reads and writes the files.
    Passthrough,
    /// The kernel itself reads the files.
    #[serde(rename = "passthrough=reads")]
    PassthroughReads,
}

/// A tier; of one with several disks the sums, the newest events, and `true` for what is so of any disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tier {
    /// Its number, 0 is the fastest.
    pub tier: u8,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Only of a tier of several disks: each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
}

/// A disk of a tier of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Disk {
    /// Its number; the fastest tier is 0.
    pub disk: u8,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Figures of a tier or disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figures {
    /// Its path.
    pub path: String,
    /// Files on it.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Its size, or its quota.
    pub room_bytes: u64,
    /// Whether it is fuller than the upper mark.
    pub above_mark: bool,
    /// How it is.
    #[serde(flatten)]
    pub health: Health,
    /// Files that the kernel itself may write; only with `--passthrough`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "KernelWrites"))]
    pub kernel_writes: Option<KernelWrites>,
}

/// How a tier or disk is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// Whether it is absent.
    pub missing: bool,
    /// Whether the last call that went to its device failed.
    pub failing: bool,
    /// Whether it takes no writes.
    pub read_only: bool,
    /// Calls that its device failed since the mount.
    pub errors: u64,
    /// The last of them.
    pub last_error: Option<LastError>,
    /// Who opened a file on it last; of the fastest tier always null.
    pub last_opened: Option<LastOpened>,
    /// Calls that have lasted for a while.
    pub waiting: Option<Waiting>,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastError {
    /// What failed, and why.
    pub error: String,
    /// Time since then.
    pub ago_s: u64,
}

/// A file that was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastOpened {
    /// Its path.
    pub path: String,
    /// The name of the program that opened it.
    pub program: String,
    /// Its process; 0: a move.
    pub pid: u32,
    /// Time since then.
    pub ago_s: u64,
}

/// Calls that have lasted for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waiting {
    /// How many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub calls: usize,
    /// Time since the first one began.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub longest_s: f64,
    /// Its kind.
    pub call: Call,
    /// Its file.
    pub path: String,
}

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// An open.
    Open,
    /// A read.
    Read,
    /// A write.
    Write,
    /// A sync.
    Sync,
    /// A look at attributes, or a change of them.
    Attributes,
    /// A move of the file.
    Move,
}

/// Files that the kernel itself may write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelWrites {
    /// Handles with which it may write.
    pub handles: u32,
    /// Whether it can ask before it takes space.
    pub asks: bool,
    /// Whether it must ask at present, because space is scarce.
    pub asking: bool,
    /// Writes that wait for space.
    pub waiting: u32,
}

/// The file that is being moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moving {
    /// Its path.
    pub path: String,
    /// Bytes that were copied so far.
    pub copied_bytes: u64,
    /// Its size.
    pub bytes: u64,
}

/// What was done at the mount about interrupted moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recovered {
    /// Moves that were finished.
    pub finished: u32,
    /// Moves that were undone.
    pub dropped: u32,
    /// Parts of files that were removed.
    pub temps: u32,
}

/// `isotherm files stats --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// All files.
    pub files: u64,
    /// Reads and writes that the program served.
    pub accesses: u64,
    /// Those of them of which the policy did not hear.
    pub unheard: u64,
    /// Moves since the mount.
    pub moves: Moves,
    /// Memory of the policy.
    pub policy_bytes: usize,
    /// Copies on the fastest tier.
    pub copies: Copies,
    /// The tiers, fastest first.
    pub tiers: Vec<Tier>,
}

/// Counts of moves: a part of `files stats --json`, and `isotherm files migrate --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moves {
    /// Those that were done.
    pub done: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Those that failed.
    pub failed: u64,
}

/// `isotherm files where --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Where {
    /// The path below the mount point.
    pub path: String,
    /// The tier from which it is read.
    pub tier: u8,
    /// The tiers that have it.
    pub on: Vec<u8>,
    /// The numbers of the disks that have it.
    pub disks: Vec<u8>,
    /// Where it is there.
    pub below: Vec<String>,
    /// Its size.
    pub bytes: u64,
    /// Its names.
    pub names: usize,
    /// Whether it has a copy on the fastest tier.
    pub copy: bool,
    /// Whether it has a head there.
    pub head: bool,
    /// The tier to which it is pinned.
    pub pinned_to: Option<u8>,
    /// Its own policy, if it is a directory that has one.
    pub policy: Option<String>,
    /// Only for users who may not give commands: the lengths of the lists that are left out, like all names, for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Counts"))]
    pub counts: Option<Counts>,
}

/// `isotherm files why --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why {
    /// Where it is.
    #[serde(flatten)]
    pub place: Where,
    /// What decides about its tier.
    pub decided_by: Option<DecidedBy>,
    /// The rule that matches it.
    pub rule: Option<String>,
    /// Whether it is open.
    pub in_use: bool,
    /// Whether the kernel itself reads or writes it.
    pub passthrough: bool,
    /// Time since its last use; null if that is not known.
    pub last_access_s: Option<u64>,
    /// The policy's words.
    pub policy_says: Option<String>,
    /// The parts of a large file that are kept on the fast tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "FileRanges"))]
    pub ranges: Option<FileRanges>,
}

/// What decides about the tier of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    /// A pin.
    Pin,
    /// A rule.
    Rule,
    /// The policy.
    Policy,
}

/// `isotherm files migrate --dry-run --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WantedMoves {
    /// Files that would move.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The moves, the first ones.
    pub moves: Vec<WantedMove>,
    /// What of its lists is left out.
    #[serde(flatten)]
    pub cut: Cut,
}

/// A move that is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WantedMove {
    /// The path of the file.
    pub path: String,
    /// Its tier.
    pub from: u8,
    /// The tier that it should get to.
    pub to: u8,
    /// In which way.
    pub how: How,
    /// Its size.
    pub bytes: u64,
    /// Who wants it.
    pub wanted_by: WantedBy,
}

/// The way in which a file gets to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It moves there.
    Move,
    /// It gets a copy there.
    Copy,
    /// It loses its copy on the other one.
    #[serde(rename = "drop copy")]
    DropCopy,
}

/// Who wants a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WantedBy {
    /// A pin.
    Pin,
    /// A rule.
    Rule,
    /// The policy.
    Policy,
    /// The tier is too full.
    Watermark,
}

/// `isotherm files check --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Whether nothing was found.
    pub ok: bool,
    /// All files.
    pub files: u64,
    /// What was found, the first ones.
    pub findings: Vec<String>,
    /// Findings that are not listed.
    pub more: usize,
    /// Whether what was found is mended.
    pub repaired: bool,
    /// Files that got another inode number at this mount, because another file had theirs.
    pub renumbered: u64,
    /// What of its lists is left out.
    #[serde(flatten)]
    pub cut: Cut,
}
