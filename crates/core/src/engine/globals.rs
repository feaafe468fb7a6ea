//! The state that all parts of the engine use: the volume, its policy, its devices, the time.
//!
//! ```text
//!   Engine ── entry points, and the work that is due
//!      │
//!   Requests, background work ──► Relocation ──► Durability ──► Globals
//! ```
//! A part may use the parts to its right, which it gets as arguments. It knows nothing about the parts to its left. What it needs to know
//! of them is an argument, as data, or is kept here: the pieces that wait, and the state of the background work. `scripts/tidy` checks that.

use super::background::Background;
use super::devices::Devices;
use super::params::Params;
use super::waiting::{Waiter, Waiting};
use crate::io::Effect;
use crate::mutants::Mutant;
use crate::policy::{Action, Policy};
use crate::stats::Counters;
use crate::units::{ExtentId, MemberId, Nanos, Slot};
use crate::volume::{Space, UnitClasses};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The stage of the volume's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    Closing,
    Closed,
}

/// See the module.
pub(super) struct Globals {
    pub(super) space: Space,
    pub(super) policy: Box<dyn Policy>,
    /// Proposals of the policy that have not been tried yet.
    pub(super) proposals: Vec<Action>,
    /// Whether the policy should be called: there was an access or a settled move since the last tick.
    pub(super) policy_due: bool,
    pub(super) params: Params,
    pub(super) counters: Counters,
    pub(super) devices: Devices,
    pub(super) waiting: Waiting,
    pub(super) background: Background,
    /// By extent: the class that the last request stated ([`Params::learn_classes`]).
    pub(super) learned: UnitClasses,
    pub(super) phase: Phase,
    /// Whether a flush or metadata write has failed. Then nothing more can be guaranteed.
    pub(super) failed: bool,
    /// Whether flash failed, and the owner has to decide ([`Params::outlives_cache`]). Until then nothing is done any more.
    pub(super) cache_lost: bool,
    /// Moves yield until this time, because a promise to some class was not kept.
    pub(super) yield_until: Nanos,
    /// Number of slots, copies and waiting pieces that searches have examined.
    pub(super) steps: u64,
    /// The time of the event that is being handled.
    pub(super) clock: Nanos,
    /// The effects for the world, in order; while an event is handled, this is the caller's own list.
    pub(super) out: Vec<Effect>,
}

impl Globals {
    /// Sets the present time, before anything else in an event.
    #[inline]
    pub(super) fn set_time(&mut self, now: Nanos) {
        self.clock = now;
        self.devices.wear.set_time(now);
    }
    /// Whether this safety rule was removed.
    #[inline]
    pub(super) fn broken(&self, m: Mutant) -> bool {
        self.params.breaks(m)
    }
    /// Whether data may be moved or changed in the background.
    pub(super) fn may_move(&self) -> bool {
        self.phase == Phase::Running && !self.failed && !self.params.read_only
    }
    /// Whether no round can make anything durable any more. Then requests that wait for a round are answered at once.
    pub(super) fn is_over(&self) -> bool {
        self.params.read_only || self.failed
    }
    /// Whether a request waits for the end of a move.
    pub(super) fn is_urgent(&self) -> bool {
        self.waiting.is_any_waiting() || self.phase == Phase::Closing
    }
    /// Whether writes are in progress on the extent's home or copy.
    pub(super) fn has_writers(&self, e: ExtentId) -> bool {
        let on = |s: Option<Slot>| s.is_some_and(|s| self.space.pins.count(s).1 > 0);
        on(self.space.map.home(e)) || on(self.space.map.copy(e))
    }
    /// The extent whose copy is in `s`.
    pub(super) fn copy_in(&self, s: Slot) -> Option<ExtentId> {
        let e = self.space.map.owner(s)?;
        (self.space.map.copy(e) == Some(s)).then_some(e)
    }
    /// Whether a member is flash of a cache volume.
    pub(super) fn is_cache(&self, m: MemberId) -> bool {
        let geo = &self.space.geo;
        let member = geo.members.get(usize::from(m.0));
        geo.is_cache() && member.is_some_and(|g| g.tier != geo.slowest())
    }
    /// The first slot of the slowest tier; slots are numbered from the fastest tier on.
    pub(super) fn fast_slots(&self) -> u32 {
        self.space.geo.tier_slots(self.space.geo.slowest()).start
    }
    /// The first block of a piece, and the block after its last one.
    pub(super) fn blocks_of(&self, w: &Waiter) -> (u32, u32) {
        let geo = &self.space.geo;
        let base = u64::from(w.extent.0) << geo.extent_shift;
        (
            ((w.from - base) >> geo.block_shift) as u32,
            ((w.to - base) >> geo.block_shift) as u32,
        )
    }
    /// The offset in the volume of the first byte of a block.
    pub(super) fn byte_of(&self, e: ExtentId, block: u32) -> u64 {
        let geo = &self.space.geo;
        (u64::from(e.0) << geo.extent_shift) + (u64::from(block) << geo.block_shift)
    }
}
