//! What a run gives: the keys of `sim --json`.

use std::collections::BTreeMap;

use isotherm_core::policy::REFUSALS;
use isotherm_core::stats::MoveCounters;
use serde::Serialize;

use super::cost::Cost;

use super::observe::Series;
use super::phases::{Phase, Reply};
use isotherm_models::cost::Used;

/// Figures of a run. Those of time and energy are `None` in hit-only runs. They count what came after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The trace's name.
    pub trace: String,
    /// The policy, with the parameters given.
    pub policy: String,
    /// Extent size.
    pub extent_bytes: u32,
    /// Size of the fastest tier.
    pub fast_bytes: u64,
    /// Requests, flushes and discards included.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that the requests read.
    pub bytes_read: u64,
    /// Bytes that the requests wrote.
    pub bytes_written: u64,
    /// Extent accesses that found the extent on tier 0, of all; 0 without any. The first touch of an extent is a miss wherever
    /// it is placed, so that policies compare: a volume that lies on flash as a whole has less than 1.
    pub fast_hit_ratio: f64,
    /// Extent accesses that tier 0 served, of all: hits, and first touches that were placed there. 1 for a volume that lies on
    /// flash as a whole.
    pub fast_served_ratio: f64,
    /// From the first request that counts to the last reply.
    pub elapsed_s: Option<f64>,
    /// Requests a second.
    pub throughput_iops: Option<f64>,
    /// Bytes read and written by requests, a second.
    pub throughput_bytes_per_s: Option<f64>,
    /// Mean latency of reads and writes.
    pub latency_mean_s: Option<f64>,
    /// Median, from a histogram with bins 6 % wide.
    pub latency_p50_s: Option<f64>,
    /// 95th percentile.
    pub latency_p95_s: Option<f64>,
    /// 99th percentile.
    pub latency_p99_s: Option<f64>,
    /// Joules of devices and host.
    pub energy_j: Option<f64>,
    /// Mean watts of devices and host.
    pub mean_power_w: Option<f64>,
    /// Times that a device was sent to sleep.
    pub spin_downs: Option<u64>,
    /// Bytes read from tier 0, moves included.
    pub fast_read_bytes: Option<u64>,
    /// Bytes written to tier 0, moves included, metadata not.
    pub fast_write_bytes: Option<u64>,
    /// Life used by member, in 10⁻⁶ of it, by GreenDM's rule.
    pub wear_eu: Option<BTreeMap<String, f64>>,
    /// Extent accesses.
    pub accesses: u64,
    /// Homes moved to a faster tier.
    pub promotions: u64,
    /// Homes moved to a slower tier.
    pub demotions: u64,
    /// Extents that gained a copy.
    pub fetches: u64,
    /// Copies given up.
    pub evictions: u64,
    /// Extents whose dirty copy was written home.
    pub writebacks: u64,
    /// Actions that the engine refused.
    pub refused: u64,
    /// Bytes that moves, fetches and write-backs carried.
    pub migrated_bytes: u64,
    /// Bytes of reads that were served from the buffer of a move (GreenDM 6.1.3); `None` in hit-only runs.
    pub ram_read_bytes: Option<u64>,
    /// Bytes of reads of discarded data, which no device sees; `None` in hit-only runs.
    pub zero_read_bytes: Option<u64>,
    /// Knobs of the engine that were set.
    pub settings: BTreeMap<String, f64>,
    /// Times that work held for a sleeping disk was done before it slept again; `None` in hit-only runs.
    pub sleep_batches: Option<u64>,
    /// Times that it was done because it had been held long enough, or was too much; `None` in hit-only runs.
    pub sleep_limits: Option<u64>,
    /// What is left of the wear budget at the end, bytes; negative where requests wrote more than it. `None` without one.
    pub wear_budget_left_bytes: Option<i64>,
    /// Money; filled in by who has prices.
    pub cost: Option<Cost>,
    /// By class of data, classes without accesses left out.
    pub by_class: BTreeMap<String, ClassReport>,
    /// What devices did for no class: metadata of the volume, discards. `None` in hit-only runs.
    pub own_work: Option<Used>,
    /// What classes were promised.
    pub qos: Vec<String>,
    /// No device time.
    pub hit_only: bool,
    /// Distinct extents that the trace reads or writes.
    pub touched_extents: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Requests before anything counted.
    pub warm_up: u64,
    /// The volume was full from the start; in hit-only runs never.
    pub full: bool,
    /// Hash of every reply's time and every device operation: equal runs have equal digests.
    pub digest: String,
    /// How the policy's proposals ended, by kind of move.
    pub moves: Option<BTreeMap<String, MoveReport>>,
    /// What money is computed from.
    pub usage: Option<Usage>,
    /// Series, where asked for.
    pub series: Option<Series>,
    /// Where hits are an estimate from samples of the extents ([`crate::sample`]): from which, and how sure.
    pub sample: Option<SampleReport>,
    /// The run in phases, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Times of every request, warm-up included, where phases were asked for.
    #[serde(skip)]
    pub replies: Vec<Reply>,
    /// What the trace's reader counted.
    pub reader: isotherm_traces::Stats,
    /// Real seconds of the whole run.
    pub wall_s: f64,
    /// Of these, reading the trace.
    pub reader_s: f64,
    /// Requests simulated a real second, the reader's time left out.
    pub sim_rate_rps: f64,
    /// Extent accesses simulated a real second, the reader's time left out.
    pub sim_rate_accesses_per_s: f64,
    /// Memory of map and policy per touched extent, without bitmaps of partly written extents.
    pub bytes_per_extent: f64,
}

/// What an estimate stands on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SampleReport {
    /// Share of the extents in each sample.
    pub rate: f64,
    /// Samples without a common extent.
    pub samples: u64,
    /// Extent accesses that were played, all samples together.
    pub accesses: u64,
    /// Half of the 95 % confidence interval of `fast_hit_ratio`, from how far the samples lie apart.
    pub fast_hit_ratio_error: f64,
}

/// One class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClassReport {
    /// Extent accesses.
    pub accesses: u64,
    /// Of these, served by tier 0.
    pub fast_hits: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Sum of their latencies; `None` in hit-only runs.
    pub time_s: Option<f64>,
    /// What devices did for it; `None` in hit-only runs.
    #[serde(flatten)]
    pub used: Option<Used>,
}

/// How proposals of one kind ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MoveReport {
    /// Proposed by the policy.
    pub proposed: u64,
    /// Carried through.
    pub done: u64,
    /// Overtaken by a write or discard.
    pub stale: u64,
    /// Given up because a device failed.
    pub failed: u64,
    /// Not started, by reason; reasons that did not occur are left out.
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

/// What was used up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Seconds.
    pub elapsed_s: f64,
    /// Power of the host, watts.
    pub host_w: f64,
    /// Joules of the host.
    pub host_j: f64,
    /// By member.
    pub members: BTreeMap<String, MemberUsage>,
}

/// What one member used and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemberUsage {
    /// Device preset.
    pub preset: String,
    /// `hdd`, `ssd` or `remote`.
    pub kind: String,
    /// Its tier.
    pub tier: u8,
    /// Bytes up to the last one that the volume uses of it.
    pub bytes: u64,
    /// Bytes of the whole drive.
    pub capacity_bytes: u64,
    /// Where on the drive these bytes lie: `full` where they are spread over all of it, else the first byte.
    pub span: String,
    /// Joules.
    pub energy_j: f64,
    /// Mean watts.
    pub mean_power_w: f64,
    /// Life used by GreenDM's rule, in 10⁻⁶.
    pub wear_eu: f64,
    /// Life used by the flash layer's erases, where that is simulated.
    pub flash_wear_eu: Option<f64>,
    /// Bytes that the flash programmed ÷ bytes written to the device; `None` without a flash layer or writes.
    pub write_amplification: Option<f64>,
    /// State in which the flash began: `preconditioned`, `fresh` or `ideal`; `None` for what is no flash.
    pub flash: Option<String>,
    /// Seconds with work in it.
    pub busy_s: f64,
    /// Seconds asleep.
    pub standby_s: f64,
    /// Start-stop cycles.
    pub start_stops: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations, metadata included.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written, metadata included.
    pub bytes_written: u64,
    /// Of the bytes read, by moves.
    pub move_bytes_read: u64,
    /// Of the bytes written, by moves.
    pub move_bytes_written: u64,
    /// Of the bytes written, metadata.
    pub meta_bytes_written: u64,
    /// Arm movements.
    pub seeks: u64,
    /// Cylinders crossed by these.
    pub seek_distance: u64,
}
