//! Inspection of a running engine: counters, explanations.

use super::{Engine, KeptAwake, PowerBudget, RecentMoves, SleepPays, StartBudget, WearBudget};
use crate::policy::{Action, Policy, View};
use crate::stats::{Counters, SleepRecord};
use crate::units::{ExtentId, MemberId, Nanos, Slot, TierId};
use crate::volume::Space;
use alloc::string::String;
use alloc::vec::Vec;

/// Memory of the engine in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The rows of the map, with the statistics in them, and the reverse map.
    pub map: usize,
    /// The policy's own statistics.
    pub policy: usize,
    /// Bitmaps of partly written extents.
    pub bitmaps: usize,
    /// Free-slot index, pending set, journal staging, checkpoint piece.
    pub other: usize,
}

impl Memory {
    /// Bytes of map and policy statistics per extent (at most 16 with the default collector).
    pub fn per_extent(&self, extents: u32) -> f64 {
        (self.map + self.policy) as f64 / f64::from(extents.max(1))
    }
}

/// The place of an extent, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The slot of its home.
    pub slot: Option<Slot>,
    /// Tier of the home.
    pub tier: Option<TierId>,
    /// Member and byte offset of the home.
    pub place: Option<(MemberId, u64)>,
    /// Number of blocks that are valid at the home.
    pub valid_blocks: u32,
    /// Its copy: slot, tier, member and byte offset.
    pub copy: Option<(Slot, TierId, MemberId, u64)>,
    /// Number of blocks in the copy.
    pub copied_blocks: u32,
    /// Number of these blocks that the home lacks.
    pub dirty_blocks: u32,
    /// Number of requests in progress on it.
    pub in_flight: u32,
    /// Whether a move is in progress.
    pub moving: bool,
    /// Time of the last access.
    pub last: Nanos,
    /// The policy's explanation.
    pub why: String,
}

impl Engine {
    /// The state that must be written to the members of a closed volume, for [`crate::store::mark_clean`].
    pub fn closing(&self) -> crate::store::Closing {
        self.durability.closing()
    }
    /// The map and the other parts of the space.
    pub fn space(&self) -> &Space {
        &self.globals.space
    }
    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        &self.globals.counters
    }
    /// The policy's name.
    pub fn policy_name(&self) -> &'static str {
        self.globals.policy.name()
    }
    /// The policy's parameters whose values are names; a parameter that is given several times occurs several times.
    pub fn names(&self) -> Vec<(&'static str, String)> {
        self.globals.policy.names()
    }
    /// The place of an extent, and the policy's reason for it.
    pub fn explain(&mut self, now: Nanos, extent: ExtentId) -> Explained {
        let moving = self.relocation.of(extent).is_some();
        let moves = self.relocation.copying();
        let g = &mut self.globals;
        let map = &g.space.map;
        let slot = map.home(extent);
        let blocks = g.space.geo.blocks_per_extent();
        let mut valid = 0;
        let mut b = 0;
        while b < blocks && slot.is_some() {
            let (n, on) = map.run(extent, b, blocks);
            valid += if on { n } else { 0 };
            b += n;
        }
        let last = map.last(extent);
        let copy = map.copy(extent).map(|c| {
            let (member, at) = g.space.geo.locate(c);
            (c, g.space.geo.tier_of(c), member, at)
        });
        let (copied_blocks, dirty_blocks) = (map.copied_blocks(extent), map.dirty_blocks(extent));
        let view = View::new(&mut g.space, now, moves, false, 0);
        let in_flight = view.in_flight(extent);
        let why = g.policy.explain(&view, extent);
        Explained {
            slot,
            tier: slot.map(|s| g.space.geo.tier_of(s)),
            place: slot.map(|s| g.space.geo.locate(s)),
            valid_blocks: valid,
            copy,
            copied_blocks,
            dirty_blocks,
            in_flight,
            moving,
            last,
            why,
        }
    }
    /// Number of extents with a copy, of those with a dirty copy, and their dirty bytes.
    pub fn copies(&self) -> (u32, u32, u64) {
        let g = &self.globals;
        let map = &g.space.map;
        let bytes = map.all_dirty_blocks() << g.space.geo.block_shift;
        (map.copied(), map.dirty(), bytes)
    }
    /// Number of bytes that may be dirty, if there is a limit, and whether the last attempts to write dirty data home have failed.
    pub fn dirty_limit(&self) -> (Option<u64>, bool) {
        let (b, space) = (&self.globals.background, &self.globals.space);
        (b.dirty_max(space), b.cleaning_fails(space))
    }
    /// Bytes of extents whose home is on a tier faster than the slowest. If those tiers are lost, these bytes and the dirty data are lost.
    /// 0 with one tier.
    pub fn fast_home_bytes(&self) -> u64 {
        let g = &self.globals;
        let (geo, slots) = (&g.space.geo, &g.space.slots);
        let free = |t| {
            let t = TierId(t);
            slots.free(t) + slots.freeing(t) + slots.lost(t)
        };
        let unused: u32 = (0..geo.slowest().0).map(free).sum();
        let used = geo.tier_slots(geo.slowest()).start.saturating_sub(unused);
        u64::from(used.saturating_sub(g.space.map.copied())) * u64::from(geo.extent_bytes())
    }
    /// Number of slots, copies and waiting pieces that the engine has examined in its searches since it was started, for tests of their
    /// cost: per request it must not depend on the number of slots, of copies and of requests that wait.
    pub fn steps(&self) -> u64 {
        self.globals.steps
    }
    /// The moves that ended recently, newest first, without refusals; for display.
    pub fn recent_moves(&self) -> &RecentMoves {
        &self.relocation.recent
    }
    /// The extents of moves in progress.
    pub fn moving(&self) -> Vec<(ExtentId, Action)> {
        self.relocation.under_way()
    }
    /// The work in progress, for the report of a run that hangs.
    pub fn under_way(&self) -> String {
        let g = &self.globals;
        alloc::format!(
            "{:?}; {:?}; {:?}; operations {}; free {}+{}",
            g.waiting,
            self.relocation,
            self.durability.under_way(),
            g.devices.in_flight(),
            g.space.slots.free(TierId(0)),
            g.space.slots.free(g.space.geo.slowest()),
        )
    }
    /// The wear budget at the last event, if there is one.
    pub fn wear_budget(&self) -> Option<WearBudget> {
        self.globals.devices.wear.left()
    }
    /// The memory in use.
    pub fn memory(&self) -> Memory {
        let (map, bitmaps) = self.globals.space.map.bytes();
        Memory {
            map,
            policy: self.globals.policy.bytes(),
            bitmaps,
            other: self.globals.space.slots.bytes()
                + self.globals.space.unit_table_bytes()
                + self.globals.learned.bytes()
                + self.durability.memory(),
        }
    }
    /// Number of moves in progress, of journal blocks that the mirror lacks, and of the checkpoint.
    pub fn progress(&self) -> (u32, u64, u64) {
        let (lag, checkpoint) = self.durability.progress();
        (self.relocation.active(), lag, checkpoint)
    }
    /// The standby record of a member.
    pub fn sleep(&self, m: MemberId) -> SleepRecord {
        self.globals.devices.members[usize::from(m.0)].sleep
    }
    /// Whether sleep-aware mode is on.
    pub fn is_sleep_aware(&self) -> bool {
        self.globals.background.has_sleep_mode()
    }
    /// The budget of starts of a member at `now`, if it has one and sleep-aware mode is on.
    pub fn start_budget(&self, m: MemberId, now: Nanos) -> Option<StartBudget> {
        self.globals.start_budget(usize::from(m.0), now)
    }
    /// The reason why a member is still awake at `now`, although it has been idle for long enough.
    pub fn kept_awake(&self, m: MemberId, now: Nanos) -> Option<KeptAwake> {
        self.globals.kept_awake(usize::from(m.0), now)
    }
    /// What is known about the energy that sleep saves on a member.
    pub fn sleep_pays(&self, m: MemberId) -> SleepPays {
        self.globals.sleep_pays(usize::from(m.0))
    }
    /// The energy of a member since the engine was started, until `now`, joules, as its data sheet states it; `None`: the sheet is unknown or
    /// states no power.
    pub fn energy_j(&self, m: MemberId, now: Nanos) -> Option<f64> {
        let energy = self.globals.energy(usize::from(m.0), now)?;
        Some(energy as f64 / 1e6)
    }
    /// The budget of power at `now`, if there is one.
    pub fn power_budget(&self, now: Nanos) -> Option<PowerBudget> {
        self.globals.power_budget(now)
    }
    /// Whether a member is in standby.
    pub fn is_asleep(&self, m: MemberId) -> bool {
        self.globals.devices.is_asleep(m)
    }
}
