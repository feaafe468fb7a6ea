//! The data that a previous policy leaves behind.
//!
//! The new policy takes over at once, with the space as it is. Data at places that it does not use (copies, if it keeps none; homes on the
//! faster tiers, if it keeps copies there) is moved away in the background while the volume is served; dirty copies are written home first.
//! If the policy keeps copies but leaves none dirty (a write mode that writes through or around), dirty copies are written home and stay.
//! The same happens when a volume is opened with such a policy, so a crash in the meantime does no harm.

use super::sleep::ASK_AGAIN;
use super::{Background, SLOTS_PER_STEP};
use crate::engine::globals::{Globals, Parts};
use crate::policy::{Action, Policy, Uses};
use crate::units::{ExtentId, Nanos, Slot, TierId};
use crate::volume::{Geometry, Space};
use core::fmt;

/// Delay before the next step, so that a long list does not stall requests.
const NEXT: Nanos = Nanos::from_millis(1);
/// Delay before the next attempt, if data could not be moved now.
const AGAIN: Nanos = Nanos::from_millis(20);

/// Reason why a policy cannot take over.
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

/// The data that the present policy has no use for, and that is being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Nothing.
    None,
    /// Copies are evicted: the number that is left.
    Copies(u32),
    /// Homes on the faster tiers are moved down: at most this number is left.
    Homes(u32),
    /// Dirty copies are written home and stay: the number that is left.
    Dirty(u32),
}

/// Progress of the removal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    uses: Uses,
    /// Whether dirty copies are written home.
    cleans: bool,
    /// Time of the next step. `None`: done, or nothing to do.
    next: Option<Nanos>,
    hand: u32,
    /// Number of slots examined since the last one with data to remove.
    idle: u32,
}

impl Draining {
    /// How the policy uses the faster tiers.
    pub(super) fn uses(&self) -> Uses {
        self.uses
    }
    pub(super) fn new(policy: &dyn Policy, space: &Space) -> Draining {
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
    /// Called when there is data to remove: all slots are examined again.
    fn look_again(&mut self, now: Nanos) {
        self.next.get_or_insert(now + AGAIN);
        self.idle = 0;
    }
    /// Makes the next step due now, if there is one: a batch of background work begins, and the removal belongs to it.
    pub(super) fn make_due(&mut self, now: Nanos) {
        self.next = self.next.map(|t| t.min(now));
    }
}

/// Whether a policy that uses the tiers in this way can run on a volume of this shape. `has_room`: the volume's checkpoints have room for
/// copies.
///
/// # Errors
/// The reason why it cannot.
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

impl Background {
    /// The kind of data that is being removed, and the amount that is left.
    pub(in crate::engine) fn draining(&self, space: &Space) -> Drain {
        if self.drain.next.is_none() {
            return Drain::None;
        }
        let (geo, slots) = (&space.geo, &space.slots);
        let fast = geo.tier_slots(geo.slowest()).start;
        let free = |t| {
            let t = TierId(t);
            slots.free(t) + slots.freeing(t) + slots.lost(t)
        };
        let used = fast - (0..geo.slowest().0).map(free).sum::<u32>();
        match self.drain.uses {
            Uses::Homes => Drain::Copies(space.map.copied()),
            Uses::Copies if used > space.map.copied() => Drain::Homes(used - space.map.copied()),
            _ if self.drain.cleans => Drain::Dirty(space.map.dirty()),
            _ => Drain::Homes(0),
        }
    }
    /// Whether the existing copies are being evicted because the policy does not use them.
    pub(in crate::engine) fn evicts_all_copies(&self) -> bool {
        self.drain.next.is_some() && self.drain.uses == Uses::Homes
    }
    /// The time of the next step of the removal; `None` if there is nothing to remove.
    pub(in crate::engine) fn drain_due(&self) -> Option<Nanos> {
        self.drain.next
    }
}

impl Globals {
    /// Data arrived in `slot` by a move that was in progress when the policy changed, or (a home) because the slowest tier was full for a
    /// moment. If the policy does not use that place, the data is moved away again.
    pub(in crate::engine) fn check_place(&mut self, slot: Slot, is_copy: bool) {
        let unwanted = match self.background.drain.uses {
            Uses::Homes => is_copy,
            Uses::Copies => !is_copy && self.space.geo.tier_of(slot) != self.space.geo.slowest(),
            Uses::Both => false,
        };
        if unwanted {
            self.background.drain.look_again(self.clock);
        }
    }

    /// A write that was in progress when the policy changed made a copy dirty: if the policy leaves no copy dirty, it is written home.
    #[inline]
    pub(in crate::engine) fn copy_became_dirty(&mut self) {
        if self.background.drain.cleans {
            self.background.drain.look_again(self.clock);
        }
    }
}

impl Parts<'_> {
    /// Examines some slots for data that the policy does not use.
    pub(in crate::engine) fn drain_step(&mut self) {
        let now = self.g.clock;
        let fast = self.g.fast_slots();
        if self.g.may_disturb(&[], self.d.mirror()).is_err() {
            self.drain().next = Some(now + ASK_AGAIN);
            return;
        }
        for _ in 0..SLOTS_PER_STEP.min(fast) {
            if self.drain().idle >= fast {
                // All slots were examined, and none has data to remove.
                self.drain().next = None;
                return;
            }
            let s = Slot(self.drain().hand % fast);
            let gone = self.drain_slot(s);
            let drain = self.drain();
            drain.hand = s.0 + 1;
            match gone {
                // Nothing to remove in this slot.
                None => drain.idle += 1,
                Some(true) => drain.idle = 0,
                Some(false) => {
                    drain.idle = 0;
                    drain.next = Some(now + AGAIN);
                    return;
                }
            }
        }
        self.drain().next = Some(now + NEXT);
    }

    fn drain(&mut self) -> &mut Draining {
        &mut self.g.background.drain
    }

    /// Removes the data in `s` if the policy does not use it. `None`: there is nothing to remove; false: it is not possible now.
    fn drain_slot(&mut self, s: Slot) -> Option<bool> {
        let (g, r) = (&mut *self.g, &mut *self.r);
        let extent = g.space.map.owner(s)?;
        let is_copy = g.copy_in(s) == Some(extent);
        let Draining { uses, cleans, .. } = g.background.drain;
        let dirty = is_copy && cleans && g.space.map.is_dirty(extent);
        let must_go = match uses {
            Uses::Homes => is_copy,
            Uses::Copies => !is_copy,
            Uses::Both => false,
        };
        if !must_go && !dirty {
            return None;
        }
        // Uses at most half of the buffers, because the policy needs some, too.
        let busy = r.active() * 2 > r.buffers() as u32;
        if busy || !r.has_buffer() || r.of(extent).is_some() {
            return Some(false);
        }
        if g.space.map.is_held(extent) || g.has_writers(extent) {
            return Some(false);
        }
        // A home on a middle tier may have a copy on the fastest, which must go before the home can move.
        let covered = !is_copy && g.space.map.copy(extent).is_some();
        if !is_copy && !covered {
            let to = g.space.geo.slowest();
            return Some(r.own_move(g, extent, to));
        }
        if must_go || covered {
            self.give_up_copy(extent);
        } else {
            r.own_clean(g, Action::Clean { extent });
        }
        Some(true)
    }

    fn give_up_copy(&mut self, extent: ExtentId) {
        let (g, d, r) = (&mut *self.g, &mut *self.d, &mut *self.r);
        if g.space.map.is_dirty(extent) {
            r.own_clean(g, Action::Evict { extent });
        } else {
            r.own_eviction(g, d, extent);
        }
    }
}
