//! What commands did to a volume: `create`, `adopt`, `grow`, `replace`, `cache`, `clean`, `warm`, `set`, `release`, `stop`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Copies, Warm, WarmEnd};

/// What a server did, with messages for people, which commands print apart from the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noted<T> {
    /// The answer.
    #[serde(flatten)]
    pub what: T,
    /// The messages.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// An answer with the name of the volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfVolume<T> {
    /// The volume.
    pub volume: String,
    /// The answer.
    #[serde(flatten)]
    pub what: T,
}

/// A change that a command makes itself, or lets the server of the volume make.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Changed<T> {
    /// The volume.
    pub volume: String,
    /// What was changed.
    #[serde(flatten)]
    pub what: T,
    /// Whether the volume is served, so that its server made the change.
    pub served: bool,
}

/// `isotherm create --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Created {
    /// The volume.
    pub volume: String,
    /// The path of its description.
    pub description: String,
    /// Its identity.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{32}$")))]
    pub uuid: String,
    /// Its size.
    pub volume_bytes: u64,
    /// Size of an extent.
    pub extent_bytes: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// The policy with its parameters.
    pub policy: String,
    /// Whether the policy keeps copies, so that the volume is as large as its slowest tier.
    pub caching: bool,
    /// The members in order.
    pub members: Vec<CreatedMember>,
}

/// A member of a new volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreatedMember {
    /// Its path.
    pub path: String,
    /// Its tier, 0 is the fastest.
    #[cfg_attr(feature = "schema", schemars(range(max = 7)))]
    pub tier: u8,
    /// Extents that it has room for.
    pub slots: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The model that paces it.
    pub paced: Option<String>,
    /// The data sheet of the real device; null if it has none, or is paced.
    pub sheet: Option<String>,
}

/// `isotherm adopt --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Adopted {
    /// The volume.
    pub volume: String,
    /// The path of its description.
    pub description: String,
    /// The device that was adopted.
    pub device: String,
    /// The device that takes the first bytes, if one was given.
    pub tail: Option<String>,
    /// What the device holds.
    pub adopted: String,
    /// Size of that.
    pub data_bytes: u64,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// The policy with its parameters.
    pub policy: String,
}

/// Values by the names of parameters and knobs.
pub type Params = BTreeMap<String, Param>;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Param {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
    /// A parameter that was given several times.
    Names(Vec<String>),
}

impl std::fmt::Display for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Param::Number(n) => write!(f, "{n:?}"),
            Param::Name(name) => f.write_str(name),
            Param::Names(names) => write!(f, "{}", crate::json(names)),
        }
    }
}

impl Param {
    /// The value, if it is a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Param::Number(n) => Some(*n),
            _ => None,
        }
    }
}

/// `isotherm set --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Set {
    /// The policy with its parameters, if it was described anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub policy: Option<String>,
    /// All parameters.
    pub params: Params,
    /// The copies, if the policy was described anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Copies"))]
    pub copies: Option<Copies>,
}

/// How a volume grew: `isotherm grow --json` without the name of the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grown {
    /// The former size.
    pub volume_bytes_before: u64,
    /// The present size.
    pub volume_bytes: u64,
    /// The members in order.
    pub members: Vec<GrownMember>,
    /// Bytes of metadata and data that had to move.
    pub moved_bytes: u64,
    /// For each front end, a sentence about what its users see.
    pub front_ends: Vec<String>,
}

/// How a member grew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrownMember {
    /// Extents that it had room for.
    pub slots_before: u32,
    /// Extents that it has room for now.
    pub slots: u32,
}

/// A replacement: `isotherm replace --json` without the name of the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replaced {
    /// The place of the member.
    pub member: usize,
    /// Its tier.
    #[cfg_attr(feature = "schema", schemars(range(max = 7)))]
    pub tier: u8,
    /// The former device.
    pub old: String,
    /// The present device.
    pub new: String,
    /// Extents that the former device had room for.
    pub slots_before: u32,
    /// Extents that the present device has room for.
    pub slots: u32,
    /// Bytes that were copied; 0: it begins empty.
    pub copied_bytes: u64,
    /// Whether the device was the member already, and only its description was written.
    pub already: bool,
}

/// A replacement that was given up: `isotherm replace --cancel --json` without the name of the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelledReplace {
    /// Always true.
    pub cancelled: bool,
    /// The place of the member.
    pub member: usize,
    /// The device that stays.
    pub old: String,
    /// The device that is free.
    pub new: String,
    /// Bytes that had been copied.
    pub copied_bytes: u64,
}

/// Flash that a server took out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemovedFlash {
    /// The paths of the devices.
    pub flash: Vec<String>,
    /// Bytes that were written to the disks first.
    pub written_home_bytes: u64,
}

/// One flash device that has joined a volume, or was taken out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedFlash {
    /// Its path.
    pub device: String,
    /// Extents that all flash had room for.
    pub slots_before: u64,
    /// Extents that it has room for now.
    pub slots: u64,
    /// Bytes that were written to the disks first.
    pub written_home_bytes: u64,
}

/// Flash that is used in its present size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResizedFlash {
    /// The paths of the devices.
    pub flash: Vec<String>,
    /// Extents that they had room for.
    pub slots_before: u64,
    /// Extents that they have room for now.
    pub slots: u64,
}

/// `isotherm cache --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cache {
    /// The volume.
    pub volume: String,
    /// What was done.
    pub did: CacheDid,
    /// The paths of the flash that this is about.
    pub flash: Vec<String>,
    /// The paths of other flash, which stays.
    pub others: Vec<String>,
    /// Extents that all flash had room for; null if all was removed, or nothing was left to do.
    pub slots_before: Option<u64>,
    /// Extents that all flash has room for now.
    pub slots: u64,
    /// Bytes that were written to the disks first.
    pub written_home_bytes: u64,
}

/// What `isotherm cache` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CacheDid {
    /// The device is flash of the volume now.
    Added,
    /// It is not any more.
    Removed,
    /// It uses its flash in the present size.
    Resized,
    /// The device was its flash already: an earlier command was interrupted at its end.
    IsFlashAlready,
    /// The device takes the place of flash that fails.
    Spare,
    /// It does not any more.
    NoSpare,
}

/// The answer of a server that begins to clean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CleanBegun {
    /// Extents that are dirty.
    pub dirty_extents: u32,
}

/// `isotherm clean --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cleaned {
    /// The volume.
    pub volume: String,
    /// Extents that were dirty, and are on the disks now.
    pub dirty_extents_before: u32,
    /// Bytes that were written meanwhile and are dirty.
    pub dirty_bytes: u64,
}

/// `isotherm warm --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warmed {
    /// The volume.
    pub volume: String,
    /// Why the copying ended; null if nothing was being copied.
    pub end: Option<WarmEnd>,
    /// All that was asked for, in whole extents.
    pub wanted_bytes: u64,
    /// What was copied for it.
    pub copied_bytes: u64,
    /// What was there already.
    pub there_bytes: u64,
    /// What the disk could not read.
    pub unreadable_bytes: u64,
    /// What would have pushed out data that is worth more.
    pub did_not_fit_bytes: u64,
    /// What other work held too long.
    pub in_use_bytes: u64,
}

impl Warmed {
    /// The figures of a copying that ended; of none, all are zero.
    pub fn new(volume: String, warm: Option<&Warm>) -> Warmed {
        let Some(w) = warm else {
            return Warmed {
                volume,
                ..Warmed::default()
            };
        };
        Warmed {
            volume,
            end: w.end,
            wanted_bytes: w.wanted_bytes,
            copied_bytes: w.copied_bytes,
            there_bytes: w.there_bytes,
            unreadable_bytes: w.unreadable_bytes,
            did_not_fit_bytes: w.did_not_fit_bytes,
            in_use_bytes: w.in_use_bytes,
        }
    }
}

/// `isotherm release --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Released {
    /// The volume that was.
    pub volume: String,
    /// Its disks, which are plain disks now.
    pub disks: Vec<ReleasedDisk>,
    /// Bytes that only flash had, and that were written to the disks.
    pub written_home_bytes: u64,
    /// Whether an earlier release was interrupted, and this one went on with it.
    pub went_on: bool,
}

/// A disk that was given back, and which bytes of the volume it has from its first byte on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReleasedDisk {
    /// Its path.
    pub path: String,
    /// The first byte of the volume.
    pub from: u64,
    /// The byte after the last one.
    pub to: u64,
}

/// `isotherm stop --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stopped {
    /// The volume.
    pub volume: String,
    /// Its state.
    pub state: IsStopped,
}

/// The state of a volume that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IsStopped {
    /// It is not served.
    Stopped,
}

/// `isotherm record --events --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordedEvents {
    /// The volume.
    pub volume: String,
    /// The file that was written.
    pub out: String,
    /// Events in it.
    pub events: u64,
    /// Those that are requests.
    pub requests: u64,
    /// Its size.
    pub bytes: u64,
    /// Why the recording ended.
    pub ending: EventsEnding,
}

/// Why a recording of events ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EventsEnding {
    /// Somebody ended it, or it was long enough.
    Asked,
    /// The volume was closed.
    Closed,
    /// The writer fell behind the engine.
    FellBehind,
    /// The engine was changed in a way that is not recorded.
    Untold,
}
