//! The copies of a volume: `copies` in `status` and `stats`.

use serde::{Deserialize, Serialize};

/// The copies of a volume, what is dirty of them, and what is being given up or copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Copies {
    /// Extents with a copy.
    pub extents: u32,
    /// Those whose copy is newer than the home.
    pub dirty_extents: u32,
    /// Bytes that only the cache holds.
    pub dirty_bytes: u64,
    /// Greatest age in seconds that data can have which only the cache holds; null if there is none, or if some of it may be older than this session of the engine.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub dirty_for_at_most_s: Option<f64>,
    /// Estimate of the time in seconds that it takes to write all of it to the slowest tier; null if there is none, or if nothing is known about that tier.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub cleaning_takes_s: Option<f64>,
    /// What the estimate follows from: data that was written home in this session (`measured`), or the costs of the slowest tier by its data sheet and its operations so far (`model`).
    pub cleaning_takes_by: Option<CleaningTimeBy>,
    /// Whether the last attempts to write it to the slowest tier have failed.
    pub cleaning_fails: bool,
    /// Limit of `dirty_bytes` (`dirty_max_percent`); writes beyond it go to the slowest tier, too; null: no limit.
    pub dirty_max_bytes: Option<u64>,
    /// Bytes that the loss of the faster tiers would cost: dirty copies, and homes there.
    pub lost_with_fast_bytes: u64,
    /// What is being given up after a change of policy, or written home because somebody asked; null: nothing.
    pub draining: Option<Draining>,
    /// Extents for which that is not done yet.
    pub draining_left: u32,
    /// How far the copying is that `isotherm warm` has asked for; null if nobody has since the volume was opened.
    pub warm: Option<Warm>,
}

/// See [`Copies::cleaning_takes_by`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CleaningTimeBy {
    /// Measured.
    Measured,
    /// By data sheets and costs so far.
    Model,
}

/// See [`Copies::draining`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Draining {
    /// Copies that a policy does not use.
    Copies,
    /// Homes on the fast tier that a policy does not use.
    Homes,
    /// Dirty data is written home.
    Dirty,
}

/// How far `isotherm warm` is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warm {
    /// When it was asked for: nanoseconds of the engine's clock.
    pub asked_ns: u64,
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
    /// Why it ended; null while it goes on.
    pub end: Option<WarmEnd>,
}

/// Why the copying ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WarmEnd {
    /// All was looked at.
    Complete,
    /// Somebody stopped it.
    Stopped,
    /// The policy was changed.
    Policy,
    /// The flash is gone or full.
    Flash,
    /// The volume was closed.
    Closed,
}
