//! The figures of a volume: the answer of `stats`. Names are those of `sim --json` where the meaning is the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Copies, DataCheck, Drive, Failure, Health, KeptAwakeBy, Promise};

/// `isotherm stats --json`: counters since serving began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// The volume's name.
    pub volume: String,
    /// The policy with its parameters.
    pub policy: String,
    /// Whether times come from device models.
    pub paced: bool,
    /// Size of an extent.
    pub extent_bytes: u64,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Size of the fastest tier.
    pub fast_bytes: u64,
    /// All requests.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// FLUSHes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Share of the accesses that the fastest tier served; null without any.
    pub fast_hit_ratio: Option<f64>,
    /// The tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// Time since serving began.
    pub elapsed_s: f64,
    /// Reads and writes per second.
    pub throughput_iops: f64,
    /// Their bytes per second.
    pub throughput_bytes_per_s: f64,
    /// Mean of all latencies.
    pub latency_mean_s: f64,
    /// Median.
    pub latency_p50_s: f64,
    /// 95th percentile.
    pub latency_p95_s: f64,
    /// 99th percentile.
    pub latency_p99_s: f64,
    /// By operation.
    pub latency: Latencies,
    /// Energy of all members; null if that of one is unknown.
    pub energy_j: Option<f64>,
    /// Its mean power.
    pub mean_power_w: Option<f64>,
    /// Batches of work before a disk slept.
    pub sleep_batches: u64,
    /// Those that a limit caused.
    pub sleep_limits: u64,
    /// Number of lulls in which a disk slept later, or not at all, because its budget of starts or the cap on waits did not allow it.
    pub sleep_postponed: u64,
    /// Requests that waited for a wake-up of a disk.
    pub wake_waits: u64,
    /// The budget of writes to the fastest tier, if there is one.
    pub wear_budget: Option<WearBudget>,
    /// The budget of power, if there is a limit. While `left_j` is negative no moves begin.
    pub power_budget: Option<PowerBudget>,
    /// How often members were sent to sleep.
    pub spin_downs: u64,
    /// Bytes that members of the fastest tier read.
    pub fast_read_bytes: u64,
    /// Bytes that they wrote.
    pub fast_write_bytes: u64,
    /// Accesses to extents.
    pub accesses: u64,
    /// Homes that moved to a faster tier.
    pub promotions: u64,
    /// Homes that moved to a slower tier.
    pub demotions: u64,
    /// Copies that were made.
    pub fetches: u64,
    /// Copies that were given up.
    pub evictions: u64,
    /// Copies that were cleaned.
    pub writebacks: u64,
    /// Bytes of moved homes.
    pub migrated_bytes: u64,
    /// Bytes of fetched copies.
    pub fetched_bytes: u64,
    /// Bytes of cleaned copies.
    pub written_back_bytes: u64,
    /// The copies.
    pub copies: Copies,
    /// Moves by kind, with what was refused.
    pub moves: Moves,
    /// Extents that got a home.
    pub first_touches: u64,
    /// Reads of extents without a home.
    pub unmapped_reads: u64,
    /// Requests that no device saw.
    pub served_from_ram: u64,
    /// Pieces of requests that waited for an extent.
    pub waited: u64,
    /// Writes that were not whole blocks.
    pub edge_writes: u64,
    /// Writes of zeros that the engine added.
    pub zero_fills: u64,
    /// Extents that have a home.
    pub mapped_extents: u32,
    /// How changes of the map were made durable.
    pub commit: Commit,
    /// Memory of requests in flight.
    pub buffer_bytes_out: u64,
    /// Requests that were not answered yet.
    pub in_flight: u64,
    /// Memory by extent.
    pub bytes_per_extent: f64,
    /// Memory by use.
    pub memory: Memory,
    /// Wear of modelled members by path, in units of their models.
    pub wear_eu: BTreeMap<String, f64>,
    /// The members in order.
    pub members: Vec<MemberFigures>,
    /// Why writes are refused until the volume is served anew; null while all is well.
    pub failure: Option<Failure>,
    /// How the volume is.
    pub health: Health,
    /// Bytes that may be written to the fastest tier in its life: wear_tbw, or data sheets; null where not known.
    pub wear_limit_bytes: Option<f64>,
    /// Front ends at work.
    pub front_ends: Vec<FrontEnd>,
    /// Checks of the data while it is served: the one in progress, and the last one that was not interrupted.
    pub data_check: DataCheck,
    /// By class of data (0 to 63), classes of which nothing is known left out.
    pub by_class: BTreeMap<u8, ClassFigures>,
    /// Share of the fastest tier's extents whose valid blocks have several classes, 0 to 1; null if the tier is empty or has more than 2^18 slots (`classes show` has it then), or if the figures were asked for without contents.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub mixed_fast_share: Option<f64>,
    /// What devices did for no class: metadata of the volume, discards, looks from inside.
    pub own_work: Work,
    /// What classes are promised and how that was kept over the last half second; null where nothing was asked for. Last what no row names. Empty where nothing is promised.
    pub qos: Vec<Promise>,
    /// Who said what requests carry.
    pub classes: ClassSources,
}

/// A tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tier {
    /// Its number, 0 is the fastest.
    #[cfg_attr(feature = "schema", schemars(range(max = 7)))]
    pub tier: u8,
    /// Its slots.
    pub slots: u64,
    /// Those that hold nothing.
    pub free_slots: u64,
    /// Accesses that it served.
    pub hits: u64,
    /// Its share of all accesses; null without any.
    pub hit_ratio: Option<f64>,
}

/// Latencies by operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latencies {
    /// Of reads.
    pub read: Latency,
    /// Of writes.
    pub write: Latency,
    /// Of FLUSHes.
    pub flush: Latency,
}

/// Latencies of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 95th percentile.
    pub p95_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// The longest.
    pub max_s: f64,
}

/// Moves by kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moves {
    /// Homes to a faster tier.
    pub promotions: MoveCounts,
    /// Homes to a slower tier.
    pub demotions: MoveCounts,
    /// Copies that are made.
    pub fetches: MoveCounts,
    /// Copies that are given up.
    pub evictions: MoveCounts,
    /// Copies that are cleaned.
    pub writebacks: MoveCounts,
    /// Moves in progress.
    pub active: u32,
}

impl Moves {
    /// Each kind by its name.
    pub fn kinds(&self) -> [(&'static str, &MoveCounts); 5] {
        [
            ("promotions", &self.promotions),
            ("demotions", &self.demotions),
            ("fetches", &self.fetches),
            ("evictions", &self.evictions),
            ("writebacks", &self.writebacks),
        ]
    }
}

/// Moves of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveCounts {
    /// By the policy.
    pub proposed: u64,
    /// Done.
    pub done: u64,
    /// Refused by the engine, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Overtaken by a write.
    pub stale: u64,
    /// Failed on a device.
    pub failed: u64,
}

/// How changes of the map were made durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Commit {
    /// Rounds.
    pub rounds: u64,
    /// Flushes that began ahead of their FLUSH.
    pub ahead: u64,
    /// Those that a FLUSH used.
    pub ahead_met: u64,
    /// Rounds that waited for writes.
    pub gathered: u64,
    /// Writes that were answered because their records are kept in memory that outlives the server.
    pub kept: u64,
    /// Blocks of the journal that were written.
    pub journal_blocks: u64,
    /// Their records.
    pub journal_records: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// The number of the last one.
    pub checkpoint: u64,
    /// Blocks that the mirror lacks.
    pub mirror_lag_blocks: u64,
}

/// The figures of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberFigures {
    /// Its path.
    pub path: String,
    /// Its tier.
    #[cfg_attr(feature = "schema", schemars(range(max = 7)))]
    pub tier: u8,
    /// The model that paces it.
    pub paced: Option<String>,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// All bytes that it read.
    pub bytes_read: u64,
    /// All bytes that it wrote.
    pub bytes_written: u64,
    /// Those of moves.
    pub move_bytes_read: u64,
    /// Those of moves.
    pub move_bytes_written: u64,
    /// Those of metadata.
    pub meta_bytes_written: u64,
    /// Bytes that were discarded.
    pub bytes_discarded: u64,
    /// How often it was sent to sleep.
    pub spin_downs: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Number of starts that the disk's budget has left; null without a budget.
    pub starts_left: Option<f64>,
    /// The budget that keeps the disk awake, although it has been idle for long enough: that of starts, or the cap on waits.
    pub kept_awake_by: Option<KeptAwakeBy>,
    /// The data sheet of the real device; null if it has none, or is paced.
    pub sheet: Option<String>,
    /// Its energy, if known.
    pub energy_j: Option<f64>,
    /// Whether `energy_j` is an estimate by the data sheet; null if the energy is unknown.
    pub energy_estimated: Option<bool>,
    /// The drives under it, by their own account; only on a machine with smartctl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<Drive>"))]
    pub drives: Option<Vec<Drive>>,
}

/// Memory of the engine in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Memory {
    /// The map.
    pub map_bytes: u64,
    /// The policy.
    pub policy_bytes: u64,
    /// Bitmaps of blocks.
    pub bitmap_bytes: u64,
    /// The rest.
    pub other_bytes: u64,
}

/// The budget of writes to the fastest tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WearBudget {
    /// Its rate.
    pub bytes_per_day: u64,
    /// The most that can be saved up.
    pub burst_bytes: u64,
    /// What is left; negative if requests alone wrote more.
    pub left_bytes: i64,
}

/// The budget of power. While `left_j` is negative no moves begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PowerBudget {
    /// The limit.
    pub limit_w: f64,
    /// What may still be taken.
    pub left_j: f64,
}

/// Figures of a class of data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassFigures {
    /// Its name.
    pub name: String,
    /// Its priority.
    #[cfg_attr(feature = "schema", schemars(range(max = 12)))]
    pub priority: u8,
    /// Accesses to extents.
    pub accesses: u64,
    /// Those that the fastest tier served.
    pub fast_hits: u64,
    /// Their share; null without accesses.
    pub fast_hit_ratio: Option<f64>,
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Mean latency.
    pub latency_mean_s: Option<f64>,
    /// 95th percentile.
    pub latency_p95_s: Option<f64>,
    /// Homes that moved to a faster tier.
    pub promotions: u64,
    /// Homes that moved to a slower tier.
    pub demotions: u64,
    /// Copies that were made.
    pub fetches: u64,
    /// Copies that were given up.
    pub evictions: u64,
    /// Copies that were cleaned.
    pub writebacks: u64,
    /// What of the class the fastest tier holds, bytes.
    pub fast_bytes: Option<u64>,
    /// What devices did for it.
    #[serde(flatten)]
    pub work: Work,
}

/// Work of devices, moves included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Work {
    /// Their time.
    pub device_time_s: f64,
    /// Bytes that the fastest tier read.
    pub fast_read_bytes: u64,
    /// Bytes that it wrote.
    pub fast_write_bytes: u64,
    /// Bytes that the other tiers read.
    pub slow_read_bytes: u64,
    /// Bytes that they wrote.
    pub slow_write_bytes: u64,
    /// Energy; null if the data sheets do not state it.
    pub energy_j: Option<f64>,
    /// Wear; null if the data sheets do not state it.
    pub wear_usd: Option<f64>,
    /// Wear and energy.
    pub cost_usd: Option<f64>,
}

/// Who said what requests carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassSources {
    /// The sources in order of precedence.
    pub sources: Vec<SourceFigures>,
    /// Requests of which nobody knew.
    pub unclassified_requests: u64,
    /// Requests of several classes.
    pub mixed_requests: u64,
}

/// A source of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceFigures {
    /// Its name.
    pub source: SourceOfClass,
    /// Whether it is heeded.
    pub on: bool,
    /// Requests that it classified.
    pub requests: u64,
}

/// Sources of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SourceOfClass {
    /// The front end says it with the request.
    FrontEnd,
    /// Ranges that somebody has set.
    Ranges,
    /// A database's files.
    Database,
    /// Files of the mounted file system.
    Files,
    /// The layout of a file system on the volume.
    Layout,
    /// A guess.
    Guess,
}

/// A front end at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrontEnd {
    /// Names as in `status`.
    pub names: Vec<String>,
    /// Its counts since the start.
    pub counts: BTreeMap<String, u64>,
    /// What users can ask of it.
    pub can: BTreeMap<String, bool>,
}
