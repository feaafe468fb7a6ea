//! Another policy for a running volume.
//!
//! The new policy takes over at once: it sees the space as it is. What it has no use for (the copies, if it keeps none; homes
//! on the faster tiers, if it keeps copies there) is given up in the background while the volume serves: dirty copies are
//! written home first. Where it keeps copies but leaves none dirty (a write mode that writes through or around), dirty ones are
//! written home and stay. The same happens when a volume is opened with such a policy, so a crash on the way does no harm.

use super::lull;
use crate::engine::{Engine, LOOKS};
use crate::geometry::Geometry;
use crate::policy::{Action, Policy, Uses, View};
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::Space;
use crate::{Effect, TierId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The next look comes after this, so that a long list does not stall requests.
const NEXT: Nanos = Nanos::from_millis(1);
/// What could not be given up just now is tried again after this.
const AGAIN: Nanos = Nanos::from_millis(20);

/// Why a policy cannot take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// The slowest tier cannot hold all homes: extents of the volume, slots there.
    TooSmall {
        /// Extents of the volume.
        extents: u32,
        /// Slots of the slowest tier.
        slots: u32,
    },
    /// The metadata areas have no room for copies.
    NoRoom,
    /// The volume is closing, failed, or serves reads only.
    Closed,
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchError::TooSmall { extents, slots } => write!(
                f,
                "a caching policy keeps all of the volume on the slowest tier: that has {slots} slots for {extents} extents. Create a volume for caching instead"
            ),
            SwitchError::NoRoom => write!(
                f,
                "the volume's metadata areas have no room for copies (it was created by an older isotherm, or has one tier)"
            ),
            SwitchError::Closed => write!(f, "the volume is closing, failed or read-only"),
        }
    }
}

/// What is being given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Nothing.
    None,
    /// Copies: so many are left.
    Copies(u32),
    /// Homes on the faster tiers: at most so many are left.
    Homes(u32),
    /// Nothing, but dirty copies are written home: so many are left.
    Dirty(u32),
}

/// How far giving up has come.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Draining {
    uses: Uses,
    /// Dirty copies are written home.
    cleans: bool,
    /// `None`: done, or nothing to do.
    next: Option<Nanos>,
    hand: u32,
    /// Slots looked at since something was found that must go.
    idle: u32,
}

impl Draining {
    /// What the policy makes of the faster tiers.
    pub(in crate::engine) fn uses(&self) -> Uses {
        self.uses
    }
    pub(in crate::engine) fn new(policy: &dyn Policy, space: &Space) -> Draining {
        let (uses, cleans) = (policy.uses(), !policy.keeps_dirty());
        let fast = space.geo.tier_slots(space.geo.slowest()).start;
        let free = |t| space.slots.free(TierId(t)) + space.slots.lost(TierId(t));
        let used: u32 = fast - (0..space.geo.slowest().0).map(free).sum::<u32>();
        let due = match uses {
            Uses::Homes => space.map.copied() > 0,
            Uses::Copies => used > space.map.copied(),
            Uses::Both => false,
        };
        let due = due || cleans && space.map.dirty() > 0;
        Draining {
            uses,
            cleans,
            next: due.then_some(Nanos(0)),
            hand: 0,
            idle: 0,
        }
    }
    #[inline]
    pub(in crate::engine) fn is_due(&self, now: Nanos) -> bool {
        self.next.is_some_and(|t| t <= now)
    }
    pub(in crate::engine) fn next_wake(&self) -> Option<Nanos> {
        self.next
    }
    /// A disk that it waited for is awake.
    pub(in crate::engine) fn hurry(&mut self, now: Nanos) {
        self.next = self.next.map(|t| t.min(now));
    }
}

/// Can a policy with these needs run on a volume of this shape, whose checkpoints have room for copies or not?
///
/// # Errors
/// Why not.
pub fn fits(geo: &Geometry, has_room: bool, uses: Uses) -> Result<(), SwitchError> {
    let slow = geo.tier_slots(geo.slowest());
    let slots = slow.end - slow.start;
    match uses {
        Uses::Homes => Ok(()),
        _ if !has_room => Err(SwitchError::NoRoom),
        Uses::Copies if slots < geo.extents => Err(SwitchError::TooSmall {
            extents: geo.extents,
            slots,
        }),
        _ => Ok(()),
    }
}

impl Engine {
    /// May a policy with these needs take over?
    ///
    /// # Errors
    /// The volume's shape does not allow it, or it is not in a state to.
    pub fn may_switch(&self, uses: Uses) -> Result<(), SwitchError> {
        if !self.may_move() {
            return Err(SwitchError::Closed);
        }
        fits(&self.space.geo, self.copies_fit, uses)
    }

    /// Let another policy take over; what it has no use for is given up in the background: see [`Engine::draining`].
    /// The caller makes the choice durable (it is kept in the superblock and the description).
    ///
    /// # Errors
    /// See [`Engine::may_switch`].
    pub fn set_policy(
        &mut self,
        now: Nanos,
        mut policy: Box<dyn Policy>,
    ) -> Result<(), SwitchError> {
        self.may_switch(policy.uses())?;
        // Nobody is left who would hear how they end.
        self.wanted.clear();
        self.moves.disown();
        if policy.name() != self.policy.name() {
            self.space.map.forget_stats();
        }
        let mut view = View::new(&mut self.space, now, self.moves.active(), false, u32::MAX);
        policy.attach(&mut view);
        self.drain = Draining::new(&*policy, &self.space);
        self.policy = policy;
        self.policy_due = true;
        Ok(())
    }

    /// What is being given up, and how much of it is left.
    pub fn draining(&self) -> Drain {
        if self.drain.next.is_none() {
            return Drain::None;
        }
        let geo = &self.space.geo;
        let fast = geo.tier_slots(geo.slowest()).start;
        let slots = &self.space.slots;
        let free = |t| {
            let t = TierId(t);
            slots.free(t) + slots.freeing(t) + slots.lost(t)
        };
        let used = fast - (0..geo.slowest().0).map(free).sum::<u32>();
        match self.drain.uses {
            Uses::Homes => Drain::Copies(self.space.map.copied()),
            Uses::Copies if used > self.space.map.copied() => {
                Drain::Homes(used - self.space.map.copied())
            }
            _ if self.drain.cleans => Drain::Dirty(self.space.map.dirty()),
            _ => Drain::Homes(0),
        }
    }

    /// Is the policy one that has no use for the copies that there are?
    pub(in crate::engine) fn is_draining_copies(&self) -> bool {
        self.drain.next.is_some() && self.drain.uses == Uses::Homes
    }

    /// Something came to lie in `slot` that was on its way there when the policy changed, or (a home) because the slowest tier
    /// was full for the moment: if the policy has no use for it there, it goes again.
    pub(in crate::engine) fn misplaced(&mut self, now: Nanos, slot: Slot, is_copy: bool) {
        let unwanted = match self.drain.uses {
            Uses::Homes => is_copy,
            Uses::Copies => !is_copy && self.space.geo.tier_of(slot) != self.space.geo.slowest(),
            Uses::Both => false,
        };
        if unwanted {
            self.drain.next.get_or_insert(now + AGAIN);
            self.drain.idle = 0;
        }
    }

    /// A write that was on its way when the policy changed made a copy dirty: if the policy leaves none so, it is written home.
    #[inline]
    pub(in crate::engine) fn soiled(&mut self, now: Nanos) {
        if self.drain.cleans {
            self.drain.next.get_or_insert(now + AGAIN);
            self.drain.idle = 0;
        }
    }

    /// Look at some slots; true if anything was done.
    pub(in crate::engine) fn drain_step(&mut self, now: Nanos, out: &mut Vec<Effect>) -> bool {
        let slowest = self.space.geo.slowest();
        let fast = self.space.geo.tier_slots(slowest).start;
        if !self.may_move() {
            self.drain.next = Some(now + AGAIN);
            return false;
        }
        if self.may_disturb(now, &[], true).is_err() {
            self.drain.next = Some(now + lull::ASK_AGAIN);
            return false;
        }
        for _ in 0..LOOKS.min(fast) {
            if self.drain.idle >= fast {
                // Nothing left that must go, all round.
                self.drain.next = None;
                return false;
            }
            let s = Slot(self.drain.hand % fast);
            let Some(started) = self.drain_slot(now, s, out) else {
                // Nothing that must go.
                self.drain.hand = s.0 + 1;
                self.drain.idle += 1;
                continue;
            };
            self.drain.idle = 0;
            self.drain.hand = s.0 + 1;
            if !started {
                self.drain.next = Some(now + AGAIN);
                return false;
            }
        }
        self.drain.next = Some(now + NEXT);
        true
    }

    /// Give up what is in `s`, if it must go: `None` if not, false if it cannot go now.
    fn drain_slot(&mut self, now: Nanos, s: Slot, out: &mut Vec<Effect>) -> Option<bool> {
        let extent = self.space.map.owner(s)?;
        let is_copy = self.copy_in(s) == Some(extent);
        let dirty = is_copy && self.drain.cleans && self.space.map.is_dirty(extent);
        let must_go = match self.drain.uses {
            Uses::Homes => is_copy,
            Uses::Copies => !is_copy,
            Uses::Both => false,
        };
        if !must_go && !dirty {
            return None;
        }
        // At most half of the buffers: the policy wants some, too.
        let busy = self.moves.active() * 2 > self.moves.len() as u32;
        if busy || !self.has_move_buffer() || self.moves.of(extent).is_some() {
            return Some(false);
        }
        if self.space.map.is_held(extent) || self.has_writers(extent) {
            return Some(false);
        }
        // A home on a middle tier may have a copy on the fastest, which must go before the home can move.
        let covered = !is_copy && self.space.map.copy(extent).is_some();
        Some(if !is_copy && !covered {
            self.own_move(extent, self.space.geo.slowest())
        } else if must_go || covered {
            self.give_up_copy(now, extent, out);
            true
        } else {
            self.counters.writebacks.proposed += 1;
            self.start_clean(Action::Clean { extent }, extent, false, true);
            true
        })
    }

    fn give_up_copy(&mut self, now: Nanos, extent: ExtentId, out: &mut Vec<Effect>) {
        let action = Action::Evict { extent };
        self.counters.evictions.proposed += 1;
        if self.space.map.is_dirty(extent) {
            self.start_clean(action, extent, true, true);
        } else {
            self.counters.evictions.done += 1;
            self.drop_copy(now, extent, out);
        }
    }
}
