//! What a volume is and how it does: the answer of `status`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Copies, Device, Drive, Failure, Health, Params, Stats};

/// `isotherm status --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The volume's path, without an extension.
    pub volume: String,
    /// The volume's name.
    pub name: String,
    /// Its identity.
    pub uuid: Option<String>,
    /// Whether it is served.
    pub state: State,
    /// Its size.
    pub volume_bytes: u64,
    /// Size of an extent.
    pub extent_bytes: u64,
    /// The policy with its parameters.
    pub policy: String,
    /// Whether times come from device models.
    pub paced: bool,
    /// The members in order.
    pub members: Vec<Member>,
    /// Why writes are refused until the volume is served anew; null while all is well.
    pub failure: Option<Failure>,
    /// Extents that have a home; in a cache volume all.
    pub mapped_extents: u32,
    /// Whether members are absent.
    pub degraded: bool,
    /// Their places.
    pub missing_members: Vec<u8>,
    /// Data that was lost with flash of a cache volume: reading it is an error until it is written again.
    pub lost: Lost,
    /// Checks of the data while it is served: the one in progress, and the last one that was not interrupted.
    pub data_check: DataCheck,
    /// The object store that is its slow member; only if it has one that `create` made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Store"))]
    pub store: Option<Store>,
    /// Whether it was stopped properly; only while it is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "bool"))]
    pub was_clean: Option<bool>,
    /// What only a served volume has.
    #[serde(flatten)]
    pub served: Option<Served>,
}

/// An object store, as its process `isotherm-store` told last. Counts are since that started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Store {
    /// Where its objects lie.
    pub url: String,
    /// Whether a process serves it.
    pub serving: bool,
    /// That process.
    pub process: u32,
    /// When it told this, seconds since 1970.
    pub at: u64,
    /// Number of the newest manifest.
    pub manifest: u64,
    /// When the store had its last commit, seconds since 1970.
    pub committed: u64,
    /// Bytes that wait to be uploaded.
    pub waiting_bytes: u64,
    /// Time for which the oldest of them has waited, without those that are being uploaded.
    pub waiting_s: u64,
    /// Size of the spool.
    pub spool_bytes: u64,
    /// The size at which writers wait.
    pub spool_limit_bytes: u64,
    /// Bytes of the disk that hold data in the store.
    pub data_bytes: u64,
    /// Bytes of the objects that hold them.
    pub stored_bytes: u64,
    /// Since when the store is away, seconds since 1970; null while it answers.
    pub away_since: Option<u64>,
    /// What it said last.
    pub away_why: Option<String>,
    /// Since when writers wait for room in the spool; null while none does.
    pub stalled_since: Option<u64>,
    /// The last damage that was found.
    pub damage: Option<String>,
    /// Whether another writer has taken the store.
    pub fenced: bool,
    /// PUT requests.
    pub puts: u64,
    /// GET and HEAD requests.
    pub gets: u64,
    /// Lists.
    pub lists: u64,
    /// DELETE requests.
    pub deletes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// The answer for callers that ask every second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Look {
    /// The answer of `stats`.
    pub stats: Stats,
    /// The answer of `status`.
    pub status: Status,
}

/// Whether a volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is served.
    Serving,
    /// It is served, and writes are refused.
    Failed,
    /// It is not served.
    Stopped,
}

impl State {
    /// The word in answers.
    pub fn word(self) -> &'static str {
        match self {
            State::Serving => "serving",
            State::Failed => "failed",
            State::Stopped => "stopped",
        }
    }
}

/// What only a served volume has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Served {
    /// How the volume is.
    pub health: Health,
    /// Whether only reads are served.
    pub read_only: bool,
    /// The unit of requests.
    pub block_bytes: u32,
    /// The copies.
    pub copies: Copies,
    /// Parameters of the policy and knobs of the engine.
    pub params: Params,
    /// What the fastest tier holds by class of data, bytes; null where the tier has more than 2^18 slots (`classes show` has it).
    pub fast_bytes_by_class: Option<BTreeMap<String, u64>>,
    /// Share of the fastest tier's extents whose valid blocks have several classes, 0 to 1; null if the tier is empty or has more than 2^18 slots.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub mixed_fast_share: Option<f64>,
    /// What classes are promised and how that was kept over the last half second; null where nothing was asked for. Last what no row names. Empty where nothing is promised.
    pub qos: Vec<Promise>,
    /// The copy of a member that is being replaced while the volume is served; null if there is none.
    pub replacing: Option<Replacing>,
    /// The front ends at work.
    pub front_ends: Vec<String>,
    /// The process that serves it.
    pub pid: u32,
    /// Name and version of the serving program.
    pub program: String,
    /// Time since serving began.
    pub elapsed_s: f64,
    /// What opening found.
    pub recovery: Recovery,
    /// The block device of `serve` with `--device`, `--ublk` or `--loop`; null without one.
    pub device: Option<Device>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Its path.
    pub path: String,
    /// The device that continues it, if it was adopted whole.
    pub tail: Option<String>,
    /// Its tier, 0 is the fastest.
    #[cfg_attr(feature = "schema", schemars(range(max = 7)))]
    pub tier: u8,
    /// Its size, or less if the description states that; null if it is missing and the description states none.
    pub bytes: Option<u64>,
    /// The model that paces it.
    pub paced: Option<String>,
    /// The data sheet of the real device; null if it has none, or is paced.
    pub sheet: Option<String>,
    /// Time without use after which it sleeps; null: never.
    pub standby_s: Option<f64>,
    /// Whether its flash was removed.
    pub removed: bool,
    /// The device that takes its place if it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub spare: Option<String>,
    /// It was sent to sleep and nothing has woken it; only while the volume is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "bool"))]
    pub asleep: Option<bool>,
    /// Since serving began; only while the volume is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Sleep"))]
    pub sleep: Option<Sleep>,
    /// The drives under it, by their own account; only while the volume is served, on a machine with smartctl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<Drive>"))]
    pub drives: Option<Vec<Drive>>,
}

/// The sleep of a member since serving began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sleep {
    /// How long it has been asleep; null if it is awake.
    pub asleep_s: Option<f64>,
    /// How often it woke.
    pub wake_ups: u64,
    /// The last time.
    pub last_wake: Option<LastWake>,
    /// Null within the first hour.
    pub wake_ups_per_day: Option<f64>,
    /// Times that the disk may be stopped and started in its life: by its data sheet, else 50,000.
    pub start_stop_limit: f64,
    /// No data sheet says so.
    pub start_stop_assumed: bool,
    /// How long that lasts at wake_ups_per_day; null within the first hour, and without wake-ups.
    pub start_stop_years: Option<f64>,
    /// The budget of starts; null without one, and if sleep-aware mode is off.
    pub starts: Option<Starts>,
    /// The budget that keeps the disk awake, although it has been idle for long enough: that of starts, or the cap on waits.
    pub kept_awake_by: Option<KeptAwakeBy>,
    /// The time for which staying awake takes as much energy as sleeping and waking up; null if no data sheet states the energy of a wake-up.
    pub break_even_s: Option<f64>,
    /// The power that sleep saves: idle power less standby power, of all disks if the member is an array.
    pub sleep_saves_w: f64,
    /// No data sheet says so.
    pub sleep_saves_assumed: bool,
}

/// The budget of starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Starts {
    /// Starts that are added in a day.
    pub per_day: f64,
    /// Starts that are left.
    pub left: f64,
    /// Time until one start is possible; 0 if it is now.
    pub next_s: f64,
}

/// A budget that keeps a disk awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KeptAwakeBy {
    /// That of starts.
    Starts,
    /// The cap on waits.
    Waits,
}

/// Why a disk woke.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastWake {
    /// Time since then.
    pub age_s: f64,
    /// What woke it.
    pub by: WokenBy,
    /// Byte of the volume, if a request woke it.
    pub offset: Option<u64>,
    /// Size of that request.
    pub bytes: Option<u32>,
}

/// What woke a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WokenBy {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A move.
    Move,
    /// Metadata of the volume.
    Metadata,
    /// A discard.
    Discard,
}

/// What was lost with flash and is listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lost {
    /// All of it.
    pub bytes: u64,
    /// What one request must write as a whole, aligned, before it can be read again; 0 if nothing is lost.
    pub granule_bytes: u64,
    /// The first 20 ranges.
    pub ranges: Vec<Range>,
}

/// A range of the volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Range {
    /// Its first byte.
    pub from: u64,
    /// The byte after the last one.
    pub to: u64,
}

/// Checks of the data while it is served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DataCheck {
    /// The one in progress.
    pub running: Option<Checking>,
    /// The last one that was not interrupted.
    pub last: Option<LastCheck>,
}

/// A check in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checking {
    /// What was read so far.
    pub read_bytes: u64,
    /// What will be read.
    pub total_bytes: u64,
    /// What it waits for; null while it reads.
    pub waits_for: Option<WaitsFor>,
    /// The member that does not answer.
    pub stalled: Option<Stalled>,
}

/// What a check waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// Requests and moves, which have precedence.
    Turn,
    /// A disk that sleeps.
    #[serde(rename = "sleeping disk")]
    SleepingDisk,
}

/// A read that gets no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stalled {
    /// The place of the member.
    pub member: u64,
    /// Its byte.
    pub byte: u64,
    /// How long it has been waiting.
    pub seconds: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastCheck {
    /// Nothing was found.
    pub ok: bool,
    /// When it ended.
    pub time_unix_s: u64,
    /// What was read.
    pub read_bytes: u64,
    /// What could not be read.
    pub lost_bytes: u64,
    /// Clean copies that differ from their homes.
    pub differing_bytes: u64,
    /// Copies that were not compared.
    pub not_compared_bytes: u64,
    /// Places on members that could not be read.
    pub bad_places: u64,
}

/// The copy of a member that is being replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replacing {
    /// The place of the member.
    pub member: u64,
    /// The device that it leaves.
    pub old: String,
    /// The device that it gets.
    pub new: String,
    /// What is to be copied.
    pub total_bytes: u64,
    /// What was copied more than once counts each time.
    pub copied_bytes: u64,
    /// What is left of this pass.
    pub left_bytes: u64,
    /// The first pass copies everything, each other one what was written meanwhile.
    pub pass: u32,
    /// Time left, if the rate is known.
    pub left_s: Option<f64>,
    /// What it waits for; null while it copies.
    pub waits_for: Option<ReplacingWaits>,
}

/// What a replacement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplacingWaits {
    /// Requests and moves, which have precedence.
    Turn,
    /// Writes that come faster than it copies.
    Writes,
    /// Another change of the volume.
    #[serde(rename = "other change")]
    OtherChange,
}

/// What opening found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recovery {
    /// The volume was stopped properly.
    pub was_clean: bool,
    /// The number of the checkpoint.
    pub checkpoint: u64,
    /// Its records.
    pub checkpoint_records: u64,
    /// Blocks of the journal that were read.
    pub journal_blocks: u64,
    /// Their records.
    pub journal_records: u64,
    /// Blocks that only the second journal had.
    pub from_mirror: u64,
    /// Extents with a home.
    pub mapped: u32,
    /// Something was missing.
    pub incomplete: bool,
}

/// A promise to classes, and how it was kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Promise {
    /// The row as it was given; null for the rest.
    pub row: Option<String>,
    /// The classes, or `rest`.
    pub classes: String,
    /// Bandwidth that they get at least.
    pub floor_bytes_per_s: Option<u64>,
    /// Bandwidth that they get at most.
    pub ceiling_bytes_per_s: Option<u64>,
    /// Limit of the latency.
    pub latency_s: Option<f64>,
    /// Share when devices are busy.
    pub share: u16,
    /// Bytes since the promise was made.
    pub bytes: u64,
    /// Bandwidth of the last half second.
    pub bytes_per_s: u64,
    /// Requests that are held back.
    pub held: u32,
    /// Requests at the devices.
    pub in_flight: u32,
    /// Requests that were held back since the promise was made.
    pub waited_requests: u64,
    /// The time that they waited.
    pub waited_s: f64,
    /// Whether the floor was kept.
    pub floor_held: Option<bool>,
    /// Whether the limit was kept.
    pub latency_held: Option<bool>,
    /// Half seconds that were judged.
    pub windows: u64,
    /// Those in which a promise was broken.
    pub windows_missed: u64,
}
