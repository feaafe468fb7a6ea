//! Counters and latency histograms.

use crate::geometry::TIERS_MAX;
use crate::policy::{Outcome, REFUSALS};
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

const SUB: u32 = 4; // 2^4 buckets for each power of two, each 6 % wide
const BUCKETS: usize = (64 - SUB as usize) << SUB;

/// A histogram of latencies. The width of a bucket is at most 1/16 of its values, so quantiles are exact to 6 %. To add a value takes
/// constant time. The memory is 7.5 KiB.
#[derive(Clone, Debug)]
pub struct Histogram {
    count: u64,
    sum: u64,
    max: u64,
    buckets: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            count: 0,
            sum: 0,
            max: 0,
            buckets: vec![0; BUCKETS],
        }
    }
}

impl Histogram {
    fn index(v: u64) -> usize {
        if v < 1 << SUB {
            return v as usize;
        }
        let top = v.ilog2();
        (((top - SUB + 1) << SUB) as usize) + ((v >> (top - SUB)) as usize & ((1 << SUB) - 1))
    }
    /// Largest value in bucket `i`.
    fn upper(i: usize) -> u64 {
        let (row, col) = (i >> SUB, (i & ((1 << SUB) - 1)) as u64);
        if row == 0 {
            return col;
        }
        ((((1 << SUB) + col + 1) as u128) << (row - 1))
            .saturating_sub(1)
            .min(u128::from(u64::MAX)) as u64
    }
    /// Counts one value.
    #[inline]
    pub fn add(&mut self, v: Nanos) {
        self.count += 1;
        self.sum = self.sum.saturating_add(v.0);
        self.max = self.max.max(v.0);
        self.buckets[Self::index(v.0)] += 1;
    }
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        for (a, b) in self.buckets.iter_mut().zip(&other.buckets) {
            *a += b;
        }
    }
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Sum of all values.
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }
    /// Number of values up to `v`. All values in the bucket of `v` are counted, so the result is exact to the width of a bucket.
    pub fn at_most(&self, v: Nanos) -> u64 {
        self.buckets[..=Self::index(v.0)].iter().sum()
    }
    /// Mean value; zero if there are none.
    pub fn mean(&self) -> Nanos {
        Nanos(self.sum.checked_div(self.count).unwrap_or(0))
    }
    /// Largest value.
    pub fn max(&self) -> Nanos {
        Nanos(self.max)
    }
    /// The quantile `q` (0…1); zero if there are no values. It is never above the largest value.
    pub fn quantile(&self, q: f64) -> Nanos {
        let want = ((q * self.count as f64) as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= want {
                return Nanos(Self::upper(i).min(self.max));
            }
        }
        Nanos(self.max)
    }
    /// Removes all values.
    pub fn clear(&mut self) {
        *self = Histogram {
            buckets: core::mem::take(&mut self.buckets),
            count: 0,
            sum: 0,
            max: 0,
        };
        self.buckets.fill(0);
    }
}

/// Counts of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read, by requests and moves.
    pub bytes_read: u64,
    /// Bytes written, by requests and moves.
    pub bytes_written: u64,
    /// The part of `bytes_read` that moves read.
    pub move_bytes_read: u64,
    /// The part of `bytes_written` that moves wrote.
    pub move_bytes_written: u64,
    /// Metadata bytes written (not in `bytes_written`).
    pub meta_bytes_written: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
    /// Number of times that it was sent to standby.
    pub spin_downs: u64,
    /// Failed operations.
    pub errors: u64,
    /// Energy of its operations above the idle power, nanojoules, as its data sheet states it (`engine/meter.rs`); 0 if the sheet is unknown.
    pub energy_nj: u64,
}

/// The cause of a wake-up of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// A request: its first byte in the volume, its length in bytes, and whether it writes.
    Request(u64, u32, bool),
    /// A move.
    Move,
    /// Metadata: a journal block, a checkpoint, or the flush of a round.
    Metadata,
    /// A discard that was passed to the device.
    Discard,
}

/// The standby record of a member since the engine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepRecord {
    /// The time since which it sleeps, if it does.
    pub asleep_since: Option<Nanos>,
    /// The time for which it slept before its last wake-up.
    pub slept_before: Nanos,
    /// Number of times that it was woken.
    pub wakes: u64,
    /// The time and the cause of its last wake-up.
    pub last_wake: Option<(Nanos, Waker)>,
}

impl SleepRecord {
    /// The time for which it has slept until `now`.
    pub fn slept(&self, now: Nanos) -> Nanos {
        let current = self.asleep_since.map_or(Nanos(0), |at| now.since(at));
        self.slept_before + current
    }
}

/// Counts of one kind of action (for example promotions), by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCounters {
    /// Proposed by the policy.
    pub proposed: u64,
    /// Carried out.
    pub done: u64,
    /// Refused, by reason, in the order of [`REFUSALS`].
    pub refused: [u64; REFUSALS.len()],
    /// Made stale by a write or discard.
    pub stale: u64,
    /// Abandoned because a device failed.
    pub failed: u64,
}

impl MoveCounters {
    /// Counts an outcome.
    pub fn settle(&mut self, how: Outcome) {
        match how {
            Outcome::Done => self.done += 1,
            Outcome::Refused(r) => self.refused[r as usize] += 1,
            Outcome::Stale => self.stale += 1,
            Outcome::Failed => self.failed += 1,
        }
    }
}

/// Number of classes of data that a request can state.
pub const CLASSES: usize = 64;

/// The work of one tier's devices for one class of data, or for the volume's own metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of operations.
    pub ops: u64,
    /// Bytes read, by requests and moves.
    pub bytes_read: u64,
    /// Bytes written, by requests and moves; these wear the tier.
    pub bytes_written: u64,
    /// Device time of the operations, as [`crate::load`] measures it.
    pub busy: Nanos,
    /// Energy above the idle power according to the data sheets ([`crate::load::Cost`]), nanojoules; 0 if they do not state it.
    pub energy_nj: u64,
    /// Price of the wear according to the data sheets, 10⁻¹⁵ dollars; 0 if writes do not wear the tier or the sheets do not state it.
    pub wear_fusd: u64,
}

impl Work {
    /// Adds other work.
    pub fn add(&mut self, w: &Work) {
        self.ops += w.ops;
        self.bytes_read += w.bytes_read;
        self.bytes_written += w.bytes_written;
        self.busy = self.busy + w.busy;
        self.energy_nj = self.energy_nj.saturating_add(w.energy_nj);
        self.wear_fusd = self.wear_fusd.saturating_add(w.wear_fusd);
    }
    /// The work since `before`.
    #[must_use]
    pub fn since(&self, before: &Work) -> Work {
        Work {
            ops: self.ops - before.ops,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
            busy: self.busy - before.busy,
            energy_nj: self.energy_nj - before.energy_nj,
            wear_fusd: self.wear_fusd - before.wear_fusd,
        }
    }
    /// Part `i` of this work, divided into `n` parts that are equal except for rounding. The sum of the parts is this work. The operation
    /// counts for the first part.
    pub(crate) fn part(&self, i: u64, n: u64) -> Work {
        let of = |x: u64| x / n + u64::from(i < x % n);
        Work {
            ops: if i == 0 { self.ops } else { 0 },
            bytes_read: of(self.bytes_read),
            bytes_written: of(self.bytes_written),
            busy: Nanos(of(self.busy.0)),
            energy_nj: of(self.energy_nj),
            wear_fusd: of(self.wear_fusd),
        }
    }
}

/// Work by tier, fastest first.
pub type TierWork = [Work; TIERS_MAX];

/// Counts of one class of data.
#[derive(Clone, Debug, Default)]
pub struct ClassCounters {
    /// Extent accesses.
    pub accesses: u64,
    /// Accesses that tier 0 served.
    pub fast_hits: u64,
    /// Reads and writes. A request with several classes counts for the class of its first extent.
    pub requests: u64,
    /// Bytes read by requests.
    pub bytes_read: u64,
    /// Bytes written by requests.
    pub bytes_written: u64,
    /// Latency of reads and writes; `None` before the first one.
    pub latency: Option<Box<Histogram>>,
    /// Homes of extents of the class that were moved to a faster tier.
    pub promotions: u64,
    /// Homes that were moved to a slower tier.
    pub demotions: u64,
    /// Copies that were made.
    pub fetches: u64,
    /// Copies that were dropped.
    pub evictions: u64,
    /// Copies that were written home.
    pub writebacks: u64,
    /// The devices' work for the class, including moves; `None` before the first operation.
    pub work: Option<Box<TierWork>>,
}

/// The engine's counters.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Discard and write-zeroes requests.
    pub discards: u64,
    /// Bytes read by requests.
    pub bytes_read: u64,
    /// Bytes written by requests.
    pub bytes_written: u64,
    /// Extent accesses, without reads of unmapped extents.
    pub accesses: u64,
    /// Accesses by the tier that served them: that of the copy, else of the home.
    pub tier_hits: [u64; TIERS_MAX],
    /// First touches.
    pub first_touches: u64,
    /// First touches that were placed on the fastest tier.
    pub placed_fast: u64,
    /// Reads of unmapped extents.
    pub unmapped_reads: u64,
    /// Reads served from a move's buffer (GreenDM 6.1.3).
    pub served_from_ram: u64,
    /// Pieces that had to wait.
    pub waited: u64,
    /// Moves to a faster tier.
    pub promotions: MoveCounters,
    /// Moves to a slower tier.
    pub demotions: MoveCounters,
    /// Bytes of homes that were moved.
    pub migrated_bytes: u64,
    /// Copies that were made: fetched, or allocated for a write.
    pub fetches: MoveCounters,
    /// Copies that were dropped.
    pub evictions: MoveCounters,
    /// Extents whose dirty copy was written home, including evictions of dirty copies.
    pub writebacks: MoveCounters,
    /// Bytes read from homes to fill copies.
    pub fetched_bytes: u64,
    /// Bytes written home from dirty copies.
    pub written_back_bytes: u64,
    /// Rounds that made changes durable (`engine/durability/round.rs`).
    pub rounds: u64,
    /// Rounds that began ahead of a FLUSH (`engine/durability/ahead.rs`).
    pub ahead: u64,
    /// Rounds that began ahead, and after which the next change was a FLUSH.
    pub ahead_met: u64,
    /// Rounds whose FLUSH waited for writes in progress (`engine/durability/gather.rs`).
    pub gathered: u64,
    /// Writes that were answered because their records are kept in memory that outlives the server (`engine/durability/keep.rs`).
    pub kept: u64,
    /// Journal blocks written to the primary.
    pub journal_blocks: u64,
    /// Records in these journal blocks.
    pub journal_records: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Number of batches of held work that were done because a disk was about to sleep.
    pub sleep_batches: u64,
    /// Reads and writes of moves that became part of a neighbour's device operation (`engine/relocation/join.rs`).
    pub joined: u64,
    /// Joined operations that failed or were short, and were repeated extent by extent.
    pub joins_repeated: u64,
    /// Number of batches of held work that were done because a limit of time or of dirty bytes was reached.
    pub sleep_limits: u64,
    /// Number of lulls in which a disk went to sleep later, or did not, because its budget of starts or the cap on waits did not allow it.
    pub sleep_postponed: u64,
    /// Requests that waited for a wake-up of a disk (`engine/background/waits.rs`).
    pub wake_waits: u64,
    /// Unaligned requests that needed read-modify-write.
    pub edge_writes: u64,
    /// Extents that were filled with zeros at their first write, because there was no memory for a bitmap.
    pub zero_fills: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Latency of reads.
    pub read_latency: Histogram,
    /// Latency of writes.
    pub write_latency: Histogram,
    /// Latency of flushes.
    pub flush_latency: Histogram,
    /// Counts by member.
    pub members: Vec<MemberCounters>,
    /// Counts by class, [`CLASSES`] of them.
    pub classes: Vec<ClassCounters>,
    /// The devices' work that counts for no class: metadata, discards, reads of the layout of file systems.
    pub own_work: TierWork,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut h = Histogram::default();
        for i in 1..=10_000u64 {
            h.add(Nanos(i * 1000));
        }
        for q in [0.01, 0.5, 0.95, 0.99, 1.0] {
            let got = h.quantile(q).0 as f64;
            let want = q * 10_000.0 * 1000.0;
            assert!(
                got >= want * 0.999 && got <= want * 1.07,
                "{q}: {got} {want}"
            );
        }
        for (edge, least) in [(0, 0), (1_000_000, 1000), (20_000_000, 10_000)] {
            let n = h.at_most(Nanos(edge));
            assert!(n >= least && n <= least + least / 15, "{edge}: {n}");
        }
        assert_eq!(h.sum(), Nanos(50_005_000_000));
        assert_eq!(h.mean(), Nanos(5_000_500));
        assert_eq!(h.max(), Nanos(10_000_000));
    }

    #[test]
    fn every_value_falls_below_its_bucket_end() {
        for v in (0..60).flat_map(|b| {
            [
                1u64 << b,
                (1 << b) + 1,
                (1 << b) - 1,
                (1 << b) + (1 << b) / 3,
            ]
        }) {
            let i = Histogram::index(v);
            assert!(
                Histogram::upper(i) >= v && (i == 0 || Histogram::upper(i - 1) < v),
                "{v}"
            );
        }
    }
}
