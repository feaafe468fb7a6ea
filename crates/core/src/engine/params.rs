//! What the engine is told at the start; much of it can be set while it runs (`knobs.rs`).

#[cfg(feature = "mutants")]
use super::Mutant;
use crate::load::Cost;
use crate::units::Nanos;
use alloc::vec::Vec;

/// What the engine needs to know beyond the volume itself.
#[derive(Clone, Debug)]
pub struct Params {
    /// Extent-sized move buffers that the world has: moves under way at most, those that wait for their record among them
    /// ([`Params::buffers_for`]).
    pub move_buffers: u16,
    /// Records that no FLUSH has carried for so long are written in the next lull of the device that holds the second copy of the
    /// metadata, and after six times as long in any case.
    pub commit_interval: Nanos,
    /// A member's counter is raised at most so often, in rounds that write to it (`durability/counters.rs`); `None`: never, for
    /// worlds that keep no bytes.
    pub counter_every: Option<Nanos>,
    /// Journal blocks kept in memory until the mirror has them.
    pub stage_blocks: u32,
    /// Reads of unmapped extents give them a home (the lab; live they return zeros).
    pub map_on_read: bool,
    /// What is not mapped yet lies in the order of addresses on the slowest tier ([`crate::volume::Space::keep_own`]; the lab).
    pub own_slots: bool,
    /// Serve reads only.
    pub read_only: bool,
    /// Per member: spin down after this long without use.
    pub standby_after: Vec<Option<Nanos>>,
    /// Bandwidth for moves, bytes per second.
    pub move_bytes_per_s: Option<u64>,
    /// Foreground 99th percentile that moves yield to.
    pub p99_limit: Option<Nanos>,
    /// Moves under way at most, whatever the policy allows itself; `None`: as many as there are buffers.
    pub moves_max: Option<u16>,
    /// Bytes that the fastest tier may be written in a day (`wear.rs`).
    pub wear_bytes_per_day: Option<u64>,
    /// What is not used of it can be saved up for this long.
    pub wear_burst: Nanos,
    /// While a disk sleeps, hold background work that needs it for at most this long (`lull.rs`); `None`: do not hold it.
    pub sleep_hold: Option<Nanos>,
    /// And no more dirty bytes than this, in whole extents.
    pub sleep_hold_bytes: Option<u64>,
    /// Joined operations of moves are no longer than this; 0: none are joined (`join.rs`).
    pub join_bytes: u64,
    /// Nor do they take the device longer than about this; 0: no matter how long.
    pub join_time: Nanos,
    /// What tiers cost by their data sheets, fastest first: where measuring starts from ([`crate::load`]). Shorter than the list of
    /// tiers: nothing is known of the others.
    pub costs: Vec<Cost>,
    /// A change is answered when a server that is started after this one was killed would find it. A loss of power may still take it
    /// until a FLUSH. For front ends whose users hear nothing of a server that is killed and started again.
    pub kept_writes: bool,
    /// Extents that may be partly written at once, if fewer than the map has room for; where there are more, slots are filled with
    /// zeros (`requests/fill.rs`).
    pub partial_max: Option<u32>,
    /// End a session with a checkpoint even where the journal has room for what is to be said (`durability/farewell.rs`).
    pub end_with_checkpoint: bool,
    /// Pass discards of freed slots down to the devices.
    pub pass_discards: bool,
    /// Checkpoint blocks that a round may add, 1 to 256 (1 MiB).
    pub piece_blocks: u32,
    /// Nobody asks for the bytes of metadata writes ([`crate::Engine::meta`]), so checkpoints need only have their sizes. For worlds
    /// that keep no bytes: a volume of this kind cannot be recovered.
    pub unread_metadata: bool,
    /// What a request says of an extent's class is remembered for the accounts (what moves, wear and energy are for), a byte an extent.
    /// For worlds that tell classes with requests only; live, [`crate::Engine::reclassify`] tells of extents.
    pub learn_classes: bool,
    /// A safety rule to leave out, for tests of the tests.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl Params {
    /// Move buffers for extents of that size: 16 MiB of them, 16 to 128. A move keeps its buffer until it is on record, and
    /// one flush serves all that wait: few buffers mean many flushes.
    pub fn buffers_for(extent_bytes: u32) -> u16 {
        ((16 << 20) / extent_bytes.max(1)).clamp(16, 128) as u16
    }
}

impl Default for Params {
    fn default() -> Params {
        Params {
            move_buffers: 16,
            commit_interval: Nanos::from_secs(5),
            counter_every: Some(Nanos::from_secs(30)),
            stage_blocks: 1024,
            map_on_read: false,
            own_slots: false,
            read_only: false,
            standby_after: Vec::new(),
            move_bytes_per_s: None,
            p99_limit: None,
            moves_max: None,
            wear_bytes_per_day: None,
            wear_burst: Nanos::from_secs(86_400),
            sleep_hold: None,
            sleep_hold_bytes: None,
            join_bytes: 1 << 20,
            join_time: Nanos::from_millis(50),
            costs: Vec::new(),
            kept_writes: false,
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
