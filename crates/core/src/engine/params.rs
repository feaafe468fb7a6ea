//! The parameters of the engine at the start; many of them can be set while it runs (`knobs.rs`).

use crate::load::Cost;
use crate::mutants::Mutant;
use crate::units::Nanos;
use alloc::vec::Vec;

/// The information that the engine needs in addition to the volume itself.
#[derive(Clone, Debug)]
pub struct Params {
    /// Number of extent-sized move buffers that the world provides. It is also the largest number of moves in progress, including those
    /// that wait for their record ([`Params::buffers_for`]).
    pub move_buffers: u16,
    /// Records that no FLUSH has carried for this time are written as soon as the device with the second copy of the metadata is idle, and
    /// after six times as long in any case.
    pub commit_interval: Nanos,
    /// Score that is needed for a round to begin ahead of the FLUSH that will probably come next (`durability/ahead.rs`): a FLUSH adds 1 to
    /// it, another change subtracts this number. 0: no round begins ahead.
    pub flush_ahead: u16,
    /// Half of the score that is needed for a FLUSH to wait for writes in progress, so that one flush of the devices serves several writers
    /// (`durability/gather.rs`). 0: no FLUSH waits.
    pub flush_gather: u16,
    /// A member's counter is raised at most once in this time, when it is written to (`durability/counters.rs`); `None`: never, for worlds that
    /// keep no bytes.
    pub counter_every: Option<Nanos>,
    /// In a cache volume: a clean copy that was not changed for this time, or twice as long, is claimed by a record, so that it outlives a crash
    /// (`durability/clean_claims.rs`); `None`: never.
    pub claim_after: Option<Nanos>,
    /// Journal blocks kept in memory until the mirror has them.
    pub stage_blocks: u32,
    /// Reads of unmapped extents give them a home (in the lab; live, such reads return zeros). Their data was there before the first request,
    /// so no record is written for this.
    pub map_on_read: bool,
    /// Unmapped extents have places in the order of addresses on the slowest tier ([`crate::volume::Space::keep_own`]; for the lab).
    pub own_slots: bool,
    /// Serve reads only.
    pub read_only: bool,
    /// If a round fails on flash of a cache volume, the engine stops in the middle ([`crate::Engine::has_lost_cache`]), so that its owner can go
    /// on with the disks.
    pub outlives_cache: bool,
    /// For each member, the time without use after which it is sent to standby.
    pub standby_after: Vec<Option<Nanos>>,
    /// Bandwidth for moves, bytes per second.
    pub move_bytes_per_s: Option<u64>,
    /// Limit of the 99th percentile of foreground latency; above it, moves yield.
    pub p99_limit: Option<Nanos>,
    /// Largest number of concurrent moves, in addition to the policy's own limit; `None`: the number of buffers.
    pub moves_max: Option<u16>,
    /// Bytes that may be written to the fastest tier each day (`wear.rs`).
    pub wear_bytes_per_day: Option<u64>,
    /// The time for which the unused part of the wear budget can be saved up.
    pub wear_burst: Nanos,
    /// While a disk sleeps, background work that needs it is held for at most this time (`sleep.rs`); `None`: it is not held.
    pub sleep_hold: Option<Nanos>,
    /// Amount of dirty data that ends this wait, in bytes, counted in whole extents; `None`: no limit.
    pub sleep_hold_bytes: Option<u64>,
    /// Dirty data is written home at this age at the latest (`background/age.rs`), as soon as no disk must be woken for it; `None`: when the
    /// policy wants it.
    pub dirty_age: Option<Nanos>,
    /// Largest share of the faster tiers that may be dirty, in millionths (`background/limit.rs`); `None`: no limit.
    pub dirty_max: Option<u32>,
    /// For each member, the time between two starts at which its start-stop limit lasts as long as wanted; `None`, or no entry: no limit is
    /// known (`background/starts.rs`).
    pub start_intervals: Vec<Option<Nanos>>,
    /// The time between two starts of any disk; it replaces `start_intervals`.
    pub sleep_start_interval: Option<Nanos>,
    /// Largest share of the requests that may wait for a wake-up, in millionths (`background/waits.rs`); `None`: no cap.
    pub sleep_wait_share: Option<u32>,
    /// Mean power of all members above which no moves begin, microwatts; `None`: no limit (`background/power.rs`).
    pub power_limit_uw: Option<u64>,
    /// Longest joined operation of moves, in bytes; 0: no moves are joined (`join.rs`).
    pub join_bytes: u64,
    /// Longest duration of a joined operation; 0: no limit.
    pub join_time: Nanos,
    /// The costs of tiers according to their data sheets, fastest tier first. Measured costs start from these values ([`crate::load`]). If
    /// there are more tiers than entries, nothing is known about the other tiers.
    pub costs: Vec<Cost>,
    /// If set, a change is answered only when a server that is started after this one was killed would find it. A power loss may still lose
    /// it until a FLUSH. For front ends whose users do not notice that a server is killed and started again.
    pub kept_writes: bool,
    /// Whether the world carries out [`Effect::Keep`](crate::Effect::Keep). Then the records of kept writes need no flush and no write to a
    /// device before the answer (`durability/keep.rs`).
    pub keeper: bool,
    /// Largest number of partly written extents, if it is lower than the number for which the map has room; beyond it, slots are filled
    /// with zeros (`requests/fill.rs`).
    pub partial_max: Option<u32>,
    /// End a session with a checkpoint even if the journal has space for the session's last records (`durability/final_records.rs`).
    pub end_with_checkpoint: bool,
    /// Pass discards of freed slots to the devices.
    pub pass_discards: bool,
    /// Largest number of checkpoint blocks that a round may add, 1 to 256 (1 MiB).
    pub piece_blocks: u32,
    /// The bytes of metadata writes ([`crate::Engine::meta`]) are never read, so checkpoints need only have the right sizes. For worlds
    /// that keep no bytes: such a volume cannot be recovered.
    pub unread_metadata: bool,
    /// Whether the class that a request states for an extent is remembered, so that later moves of the extent,
    /// their wear and their energy count for this class. For worlds that state classes only in requests; in live service,
    /// [`crate::Engine::reclassify`] sets the classes of extents.
    pub learn_classes: bool,
    /// A safety rule to remove, which the test suites must notice.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl Params {
    /// The time between two starts of a member according to its budget of starts, if it has one.
    pub(super) fn start_interval(&self, member: usize) -> Option<Nanos> {
        let sheet = || self.start_intervals.get(member).copied().flatten();
        self.sleep_start_interval.or_else(sheet)
    }
    /// Number of move buffers for extents of this size: 16 MiB in total, but at least 16 and at most 128 buffers. A move keeps its buffer
    /// until it is recorded, and one flush serves all moves that wait. So few buffers mean many flushes.
    pub fn buffers_for(extent_bytes: u32) -> u16 {
        ((16 << 20) / extent_bytes.max(1)).clamp(16, 128) as u16
    }

    /// Whether this safety rule was removed.
    #[cfg(feature = "mutants")]
    #[inline]
    pub(super) fn breaks(&self, m: Mutant) -> bool {
        self.mutant == Some(m)
    }
    /// Whether this safety rule was removed. (Never, in a build without the feature.)
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    #[allow(clippy::inline_always, clippy::unused_self)]
    pub(super) fn breaks(&self, _m: Mutant) -> bool {
        false
    }
}

impl Default for Params {
    fn default() -> Params {
        Params {
            move_buffers: 16,
            commit_interval: Nanos::from_secs(5),
            flush_ahead: 8,
            flush_gather: 8,
            counter_every: Some(Nanos::from_secs(30)),
            claim_after: Some(Nanos::from_secs(60)),
            stage_blocks: 1024,
            map_on_read: false,
            own_slots: false,
            read_only: false,
            outlives_cache: false,
            standby_after: Vec::new(),
            move_bytes_per_s: None,
            p99_limit: None,
            moves_max: None,
            wear_bytes_per_day: None,
            wear_burst: Nanos::from_secs(86_400),
            sleep_hold: None,
            dirty_age: None,
            dirty_max: None,
            sleep_hold_bytes: None,
            start_intervals: Vec::new(),
            sleep_start_interval: None,
            sleep_wait_share: None,
            power_limit_uw: None,
            join_bytes: 1 << 20,
            join_time: Nanos::from_millis(50),
            costs: Vec::new(),
            kept_writes: false,
            keeper: false,
            partial_max: None,
            end_with_checkpoint: false,
            pass_discards: true,
            piece_blocks: 256,
            unread_metadata: false,
            learn_classes: false,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}
