//! The report of a run: the keys of `sim --json`.

use std::collections::BTreeMap;

use isotherm_core::policy::REFUSALS;
use isotherm_core::stats::MoveCounters;
use serde::Serialize;

use super::cost::Cost;
use crate::energy::EnergyBound;

use super::observe::Series;
use super::phases::{Phase, Reply};
use isotherm_models::cost::Used;

/// Figures of a run. Figures of time and energy are `None` in hit-only runs. Figures count from the end of the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The trace's name.
    pub trace: String,
    /// The policy, with the parameters that were given.
    pub policy: String,
    /// Extent size.
    pub extent_bytes: u32,
    /// Size of the fastest tier, as set up.
    pub fast_bytes: u64,
    /// Requests, including flushes and discards.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that the requests read.
    pub bytes_read: u64,
    /// Bytes that the requests wrote.
    pub bytes_written: u64,
    /// The share of extent accesses that found the extent on tier 0; 0 without accesses. The first touch of an extent counts as a miss
    /// wherever it is placed, so that policies are comparable; a volume that is on flash as a whole has less than 1.
    pub fast_hit_ratio: f64,
    /// The share of extent accesses that tier 0 served: hits, and first touches that were placed there. It is 1 for a volume that is on
    /// flash as a whole.
    pub fast_served_ratio: f64,
    /// Seconds from the first request after the warm-up to the last reply.
    pub elapsed_s: Option<f64>,
    /// Requests per second.
    pub throughput_iops: Option<f64>,
    /// Bytes per second that requests read and wrote.
    pub throughput_bytes_per_s: Option<f64>,
    /// Mean latency of reads and writes.
    pub latency_mean_s: Option<f64>,
    /// Median latency, from a histogram with bins that are 6 % wide.
    pub latency_p50_s: Option<f64>,
    /// 95th percentile.
    pub latency_p95_s: Option<f64>,
    /// 99th percentile.
    pub latency_p99_s: Option<f64>,
    /// 99.9th percentile.
    pub latency_p999_s: Option<f64>,
    /// Joules of devices and host.
    pub energy_j: Option<f64>,
    /// Mean watts of devices and host.
    pub mean_power_w: Option<f64>,
    /// The least energy of any choice of times at which the disk is used ([`crate::energy`]), if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "EnergyBound"))]
    pub energy_bound: Option<EnergyBound>,
    /// Number of times that a device was spun down.
    pub spin_downs: Option<u64>,
    /// Bytes read from tier 0, including moves.
    pub fast_read_bytes: Option<u64>,
    /// Bytes written to tier 0, including moves and excluding metadata.
    pub fast_write_bytes: Option<u64>,
    /// Life used by each member, in units of 10⁻⁶, by GreenDM's rule.
    pub wear_eu: Option<BTreeMap<String, f64>>,
    /// Extent accesses.
    pub accesses: u64,
    /// Homes moved to a faster tier.
    pub promotions: u64,
    /// Homes moved to a slower tier.
    pub demotions: u64,
    /// Extents that gained a copy.
    pub fetches: u64,
    /// Copies that were evicted.
    pub evictions: u64,
    /// Extents whose dirty copy was written back.
    pub writebacks: u64,
    /// Actions that the engine refused.
    pub refused: u64,
    /// Bytes that moves, fetches and write-backs transferred.
    pub migrated_bytes: u64,
    /// Bytes of reads that were served from the buffer of a move (GreenDM 6.1.3); `None` in hit-only runs.
    pub ram_read_bytes: Option<u64>,
    /// Bytes of reads of discarded data, which no device sees; `None` in hit-only runs.
    pub zero_read_bytes: Option<u64>,
    /// The engine's knobs that were set.
    pub settings: BTreeMap<String, f64>,
    /// Number of times that work which was held back for a sleeping disk was done before the disk slept again; `None` in hit-only runs.
    pub sleep_batches: Option<u64>,
    /// Number of times that such work was done because it had been held for too long or there was too much of it; `None` in hit-only runs.
    pub sleep_limits: Option<u64>,
    /// Number of lulls in which a disk slept later, or not at all, because its budget of starts or the cap on waits did not allow it; `None`
    /// without sleep-aware mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub sleep_postponed: Option<u64>,
    /// Requests that waited for a wake-up; `None` without sleep-aware mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub wake_waits: Option<u64>,
    /// For each disk with a budget of starts, the number of starts that are left at the end; absent without sleep-aware mode.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub starts_left: BTreeMap<String, f64>,
    /// The rest of the wear budget at the end, in bytes; negative if requests wrote more than the budget. `None` without a budget.
    pub wear_budget_left_bytes: Option<i64>,
    /// The rest of the budget of power at the end, in joules; negative if the members took more than the limit. Absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub power_budget_left_j: Option<f64>,
    /// The cost; filled in by callers that have prices.
    pub cost: Option<Cost>,
    /// Figures by class of data; classes without accesses are omitted.
    pub by_class: BTreeMap<String, ClassReport>,
    /// The work of devices that belongs to no class: the volume's metadata, discards. `None` in hit-only runs.
    pub own_work: Option<Used>,
    /// The copies whose blocks have several classes, at the end; `None` in hit-only runs and under policies that do not use the classes of
    /// blocks.
    pub mixed_copies: Option<MixedCopies>,
    /// The promises to classes.
    pub qos: Vec<String>,
    /// Whether the run was without device time.
    pub hit_only: bool,
    /// Distinct extents that the trace reads or writes.
    pub touched_extents: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Number of requests in the warm-up.
    pub warm_up: u64,
    /// Whether the volume was full from the start; always false in hit-only runs.
    pub full: bool,
    /// Hash of the time of every reply and of every device operation: equal runs have equal digests.
    pub digest: String,
    /// The outcomes of the policy's proposals, by kind of move.
    pub moves: Option<BTreeMap<String, MoveReport>>,
    /// The resources from which costs are computed.
    pub usage: Option<Usage>,
    /// Series over time, if requested.
    pub series: Option<Series>,
    /// If hits are estimated from samples of the extents ([`crate::sample`]): the samples and the error.
    pub sample: Option<SampleReport>,
    /// The phases of the run, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Times of every request, including the warm-up, if phases were requested.
    #[serde(skip)]
    pub replies: Vec<Reply>,
    /// The counters of the trace's reader.
    pub reader: isotherm_traces::Stats,
    /// Real time of the whole run in seconds.
    pub wall_s: f64,
    /// Real time in seconds that reading the trace took.
    pub reader_s: f64,
    /// Requests simulated per second of real time, without the reader's time.
    pub sim_rate_rps: f64,
    /// Extent accesses simulated per second of real time, without the reader's time.
    pub sim_rate_accesses_per_s: f64,
    /// Bytes of map and policy per touched extent, without the bitmaps of partly written extents.
    pub bytes_per_extent: f64,
}

/// The basis of an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SampleReport {
    /// The share of the extents in each sample.
    pub rate: f64,
    /// Number of samples. No two of them have a common extent.
    pub samples: u64,
    /// Extent accesses that were played in all samples together.
    pub accesses: u64,
    /// Half of the 95 % confidence interval of `fast_hit_ratio`, from the spread of the samples.
    pub fast_hit_ratio_error: f64,
}

/// How many copies hold blocks of several classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MixedCopies {
    /// Copies whose class is known.
    pub copies: u32,
    /// Copies whose valid blocks have several classes.
    pub mixed: u32,
    /// The share of these; `None` without copies.
    pub share: Option<f64>,
    /// Valid bytes of all these copies.
    pub bytes: u64,
    /// Those of them that have a worse priority than the best block of their copy. This is all that evicting blocks instead of copies could
    /// ever give back.
    pub neighbour_bytes: u64,
}

impl MixedCopies {
    /// What the map knows; `None` if it keeps no classes.
    pub(crate) fn of(space: &isotherm_core::volume::Space) -> Option<MixedCopies> {
        if !space.map.keeps_classes() {
            return None;
        }
        let m = space.map.mixed(isotherm_core::policy::priority);
        let bytes = |blocks: u64| blocks << space.geo.block_shift;
        Some(MixedCopies {
            copies: m.known,
            mixed: m.mixed,
            share: (m.known > 0).then(|| f64::from(m.mixed) / f64::from(m.known)),
            bytes: bytes(m.blocks),
            neighbour_bytes: bytes(m.neighbours),
        })
    }
}

/// Figures of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassReport {
    /// Extent accesses.
    pub accesses: u64,
    /// Extent accesses that tier 0 served.
    pub fast_hits: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Bytes of these reads and writes.
    pub bytes: u64,
    /// Sum of their latencies in seconds; `None` in hit-only runs.
    pub time_s: Option<f64>,
    /// The work of devices for this class; `None` in hit-only runs.
    #[serde(flatten)]
    pub used: Option<Used>,
}

/// The outcomes of the proposals of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveReport {
    /// Proposals of the policy.
    pub proposed: u64,
    /// Proposals that were completed.
    pub done: u64,
    /// Proposals that became stale because of a write or discard.
    pub stale: u64,
    /// Proposals that were abandoned because a device failed.
    pub failed: u64,
    /// Proposals that were refused, by reason; reasons that did not occur are omitted.
    pub refused: BTreeMap<String, u64>,
}

impl MoveReport {
    pub(crate) fn new(now: &MoveCounters, before: &MoveCounters) -> MoveReport {
        let refused = REFUSALS
            .iter()
            .zip(now.refused.iter().zip(before.refused))
            .filter(|(_, (a, b))| **a > *b)
            .map(|(name, (a, b))| ((*name).to_owned(), a - b))
            .collect();
        MoveReport {
            proposed: now.proposed - before.proposed,
            done: now.done - before.done,
            stale: now.stale - before.stale,
            failed: now.failed - before.failed,
            refused,
        }
    }
}

/// The resources that were used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Elapsed seconds.
    pub elapsed_s: f64,
    /// Power of the host, watts.
    pub host_w: f64,
    /// Joules of the host.
    pub host_j: f64,
    /// Usage by member.
    pub members: BTreeMap<String, MemberUsage>,
}

/// The usage and the work of one member.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberUsage {
    /// Device preset.
    pub preset: String,
    /// `hdd`, `ssd` or `remote`.
    pub kind: String,
    /// Its tier.
    pub tier: u8,
    /// Bytes of the member up to the last one that the volume uses.
    pub bytes: u64,
    /// Bytes of the whole drive.
    pub capacity_bytes: u64,
    /// Where these bytes are on the drive: `full` if they are spread over all of it, else the first byte.
    pub span: String,
    /// Energy in joules.
    pub energy_j: f64,
    /// The energy that a live volume would show for this member, by its data sheet alone; `None` if the sheet states no power.
    pub energy_estimate_j: Option<f64>,
    /// Mean power in watts.
    pub mean_power_w: f64,
    /// Life used by GreenDM's rule, in 10⁻⁶.
    pub wear_eu: f64,
    /// Life used by the erases of the flash layer, if that is simulated.
    pub flash_wear_eu: Option<f64>,
    /// Bytes that the flash programmed per byte written to the device; `None` without a flash layer or writes.
    pub write_amplification: Option<f64>,
    /// Initial state of the flash: `preconditioned`, `fresh`, `ideal` or `rated`; `None` for other devices.
    pub flash: Option<String>,
    /// Seconds in which the member had work.
    pub busy_s: f64,
    /// Seconds in standby.
    pub standby_s: f64,
    /// Start-stop cycles.
    pub start_stops: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations, including metadata.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written, including metadata.
    pub bytes_written: u64,
    /// Bytes that moves read.
    pub move_bytes_read: u64,
    /// Bytes that moves wrote.
    pub move_bytes_written: u64,
    /// Bytes of metadata that were written.
    pub meta_bytes_written: u64,
    /// Arm movements.
    pub seeks: u64,
    /// Cylinders that the arm crossed.
    pub seek_distance: u64,
}
