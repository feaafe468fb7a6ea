//! The volumes of a machine: `isotherm list`, `assemble`, `find`, `doctor`.

use serde::{Deserialize, Serialize};

use crate::Level;

/// The block device of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Its path, which may be another one next time.
    pub path: String,
    /// Its stable name.
    pub link: String,
    /// Only with `--ublk`: whether members read and write the memory of the device's users without a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "bool"))]
    pub zero_copy: Option<bool>,
}

/// A volume in `isotherm list --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListedVolume {
    /// Its name.
    pub name: String,
    /// Its path, without an extension; null if it has no description here.
    pub volume: Option<String>,
    /// The path of its description; null if it has none here.
    pub description: Option<String>,
    /// Its identity.
    pub uuid: Option<String>,
    /// Its state.
    pub state: ListedState,
    /// Whether members are absent; null if it does not answer.
    pub degraded: Option<bool>,
    /// As in `isotherm status`; null if the volume is not served, or by an older program.
    pub health: Option<Level>,
    /// Its size.
    pub volume_bytes: Option<u64>,
    /// The policy with its parameters.
    pub policy: Option<String>,
    /// Its block device.
    pub device: Option<Device>,
    /// The front ends at work.
    pub front_ends: Vec<String>,
    /// The process that serves it.
    pub pid: Option<u32>,
    /// What is wrong, or where a volume without a description lies.
    pub note: Option<String>,
}

/// The state of a volume in `isotherm list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ListedState {
    /// It is served.
    Serving,
    /// It is served, and writes are refused.
    Failed,
    /// It is not served.
    Stopped,
    /// It is served, and its server does not answer.
    Unreachable,
    /// Its description cannot be used.
    Unusable,
    /// There is no description of it here.
    Undescribed,
}

impl From<crate::State> for ListedState {
    fn from(state: crate::State) -> ListedState {
        match state {
            crate::State::Serving => ListedState::Serving,
            crate::State::Failed => ListedState::Failed,
            crate::State::Stopped => ListedState::Stopped,
        }
    }
}

/// A volume in `isotherm assemble --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AssembledVolume {
    /// Its name.
    pub name: String,
    /// Its path, without an extension.
    pub volume: String,
    /// Its identity.
    pub uuid: Option<String>,
    /// Whether it can be served.
    pub state: AssembledState,
    /// How many members it has.
    pub members: usize,
    /// Where members that are nowhere were last.
    pub missing: Vec<String>,
    /// Why it is refused.
    pub note: Option<String>,
}

/// The state of a volume in `isotherm assemble`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AssembledState {
    /// It is served.
    Served,
    /// All members are there.
    Complete,
    /// Members are absent.
    Incomplete,
    /// Its service was started now.
    Started,
    /// Its members cannot be told apart.
    Refused,
}

/// A volume in `isotherm find --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundVolume {
    /// A description of it, as far as its members state it.
    pub description: FoundDescription,
    /// Places of members that were not among the devices.
    pub missing_members: Vec<u8>,
}

/// A description of a volume that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundDescription {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Size of an extent.
    pub extent: String,
    /// The policy with its parameters.
    pub policy: String,
    /// How it is served, as under `[io]` of a description.
    pub io: serde_json::Map<String, serde_json::Value>,
    /// The members in order.
    pub members: Vec<FoundMember>,
}

/// A member of a volume that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundMember {
    /// Its path; a guess if it was not found.
    pub path: String,
    /// The device that continues it, if it was adopted whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub tail: Option<String>,
    /// Its tier, 0 is the fastest.
    #[cfg_attr(feature = "schema", schemars(range(max = 7)))]
    pub tier: u8,
}

/// `isotherm doctor --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// The volume.
    pub volume: String,
    /// Whether it is served.
    pub served: bool,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub not_known: Vec<String>,
}

/// Something that `isotherm doctor` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// How bad it is.
    pub level: FindingLevel,
    /// The path of a member, or the volume.
    pub subject: String,
    /// What it is.
    pub what: String,
    /// What mends it.
    pub todo: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FindingLevel {
    /// Data is lost or not served, or will be after the next accident.
    Wrong,
    /// It works, and one more fault costs data or much time.
    Risk,
    /// Good to know.
    Note,
}

impl Finding {
    /// A finding.
    pub fn new(
        level: FindingLevel,
        subject: &str,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Finding {
            level,
            subject: subject.to_owned(),
            what: what.into(),
            todo: todo.into(),
        }
    }
}

/// A policy in `isotherm policies --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does with data.
    pub kind: PolicyKind,
    /// What it does, in a line.
    pub what: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: Vec<PolicyParam>,
}

/// What a policy does with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// It moves data between tiers.
    Tiering,
    /// It keeps copies on faster tiers.
    Caching,
}

/// A parameter of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyParam {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, with unit and range.
    pub what: &'static str,
    /// Its value if it is not set.
    pub default: &'static str,
}
