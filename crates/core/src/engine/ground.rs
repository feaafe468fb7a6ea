//! What all parts of the engine stand on: the volume, its policy, its devices, the time.
//!
//! ```text
//!   Engine ── entry points, and what is due
//!      │
//!   Requests      ──► Relocation ──► Durability ──► Ground
//! ```
//! A part is handed those to its right by whoever calls it, and knows nothing of those to its left. What it needs of them comes as an
//! argument or lies here: who waits (requests), what may disturb a sleeping disk (background work).

use super::background::Background;
use super::devices::Devices;
use super::durability::Durability;
use super::mutants::{self, Mutant};
use super::params::Params;
use super::relocation::Relocation;
use super::requests::{Waiter, Waiting};
use crate::io::Effect;
use crate::policy::{Action, Policy};
use crate::stats::Counters;
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::Space;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// How far the volume's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    Closing,
    Closed,
}

/// See the module.
pub(super) struct Ground {
    pub(super) space: Space,
    pub(super) policy: Box<dyn Policy>,
    /// What the policy wants and nobody has tried yet.
    pub(super) wanted: Vec<Action>,
    /// The policy should have a look: an access or a settled move since the last tick.
    pub(super) policy_due: bool,
    pub(super) params: Params,
    pub(super) counters: Counters,
    pub(super) devices: Devices,
    pub(super) waiting: Waiting,
    pub(super) background: Background,
    /// Classes that requests told, by extent ([`Params::learn_classes`]).
    pub(super) learned: Vec<u8>,
    pub(super) phase: Phase,
    /// A flush or metadata write failed: nothing can be promised any more.
    pub(super) failed: bool,
    /// Some class misses what it was promised: until then moves keep out of the way.
    pub(super) pressed_until: Nanos,
    /// The time of the event that is being worked on.
    pub(super) clock: Nanos,
    /// What the world is to do, in order; the caller's own list while an event is worked on.
    pub(super) out: Vec<Effect>,
}

/// The ground, and the parts between it and whoever sets them to work: requests, background work.
pub(super) struct Parts<'a> {
    pub(super) g: &'a mut Ground,
    pub(super) d: &'a mut Durability,
    pub(super) r: &'a mut Relocation,
}

impl Ground {
    /// It is `now`: told before anything else that an event does.
    #[inline]
    pub(super) fn pass(&mut self, now: Nanos) {
        self.clock = now;
        self.devices.wear.pass(now);
    }
    /// Was this safety rule taken out?
    #[inline]
    pub(super) fn broken(&self, m: Mutant) -> bool {
        mutants::chosen(&self.params, m)
    }
    /// May anything be moved or changed in the background?
    pub(super) fn may_move(&self) -> bool {
        self.phase == Phase::Running && !self.failed && !self.params.read_only
    }
    /// Can nothing become more durable than it is? Who waits for a round is answered at once then.
    pub(super) fn is_over(&self) -> bool {
        self.params.read_only || self.failed
    }
    /// Does anybody wait for a move's end?
    pub(super) fn is_urgent(&self) -> bool {
        self.waiting.is_anybody() || self.phase == Phase::Closing
    }
    /// Writes in flight on the extent's home or copy.
    pub(super) fn has_writers(&self, e: ExtentId) -> bool {
        let on = |s: Option<Slot>| s.is_some_and(|s| self.space.pins.count(s).1 > 0);
        on(self.space.map.home(e)) || on(self.space.map.copy(e))
    }
    /// The extent whose copy is in `s`.
    pub(super) fn copy_in(&self, s: Slot) -> Option<ExtentId> {
        let e = self.space.map.owner(s)?;
        (self.space.map.copy(e) == Some(s)).then_some(e)
    }
    /// Slots are numbered from the fastest tier on: this is the first of the slowest.
    pub(super) fn fast_slots(&self) -> u32 {
        self.space.geo.tier_slots(self.space.geo.slowest()).start
    }
    /// First and last block (not included) of a piece.
    pub(super) fn blocks_of(&self, w: &Waiter) -> (u32, u32) {
        let geo = &self.space.geo;
        let base = u64::from(w.extent.0) << geo.extent_shift;
        (
            ((w.from - base) >> geo.block_shift) as u32,
            ((w.to - base) >> geo.block_shift) as u32,
        )
    }
    /// First byte of a block on the volume.
    pub(super) fn byte_of(&self, e: ExtentId, block: u32) -> u64 {
        let geo = &self.space.geo;
        (u64::from(e.0) << geo.extent_shift) + (u64::from(block) << geo.block_shift)
    }
}
