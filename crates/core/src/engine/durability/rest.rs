//! Copies that were cleaned and are still named by a record.
//!
//! A record of a copy may claim more than is true ([`crate::volume::map::Recorded`]): after a clean it goes on naming blocks that are equal at
//! the home. So data that is rewritten again and again needs no record. But after a crash such blocks must be cleaned once more, and the slot
//! of such a copy is free only when a later record does not name it. So the claim is withdrawn once a copy has rested: no write relied on it
//! for [`REST`].

use super::Durability;
use crate::by_number::ByNumber;
use crate::engine::globals::{Globals, Phase};
use crate::mutants::Mutant;
use crate::units::{Nanos, Slot};
use crate::volume::map::Recorded;
use alloc::collections::VecDeque;

/// How long a claim is kept after the last write that needed no record because of it.
const REST: Nanos = Nanos::from_secs(60);
/// Largest number of copies in the list: 1 MiB. With more, the oldest claims are withdrawn earlier.
const MOST: usize = 1 << 16;

/// See the module: slots of cleaned copies, in the order of the time at which their claims are looked at.
#[derive(Clone, Debug)]
pub(super) struct Resting {
    order: VecDeque<(Slot, Nanos)>,
    /// The same slots, each with whether a write relied on its claim since it is in the list.
    slots: ByNumber<bool>,
}

impl Default for Resting {
    fn default() -> Resting {
        Resting {
            order: VecDeque::new(),
            slots: ByNumber::new(256),
        }
    }
}

impl Resting {
    /// The time at which the next claim is looked at.
    #[inline]
    pub(super) fn due(&self) -> Option<Nanos> {
        self.order.front().map(|r| r.1)
    }
    pub(super) fn bytes(&self) -> usize {
        self.order.capacity() * size_of::<(Slot, Nanos)>()
    }
}

impl Durability {
    /// The copy in `slot` was cleaned.
    pub(in crate::engine) fn copy_cleaned(&mut self, g: &Globals, slot: Slot) {
        if g.space.map.is_named_in(slot) && self.resting.slots.get(slot.0).is_none() {
            *self.resting.slots.entry(slot.0) = false;
            self.resting.order.push_back((slot, g.clock + REST));
        }
    }

    /// A write made blocks dirty that a record names already.
    #[inline]
    pub(in crate::engine) fn relied_on(&mut self, slot: Slot) {
        if self.resting.slots.get(slot.0).is_some() {
            *self.resting.slots.entry(slot.0) = true;
        }
    }

    /// At the end of the session: withdraws all claims. From now on records state exactly which blocks of a copy are dirty. Returns whether
    /// any are due.
    pub(super) fn withdraw_all(&mut self, g: &Globals) -> bool {
        if core::mem::replace(&mut self.exact, true) || g.broken(Mutant::EndForgetsClaims) {
            return false;
        }
        let map = &g.space.map;
        let (mut at, mut any) = (0, false);
        while let Some((s, e)) = map.next_named_clean(Slot(at)) {
            at = s.0 + 1;
            if map.is_dirty(e) && g.broken(Mutant::EndForgetsPartly) {
                continue;
            }
            self.pending.note(e, g.clock);
            any = true;
        }
        any
    }

    /// A round begins: withdraws the claims of the copies that have rested. (At the end of a session the exact state of all copies is recorded.)
    pub(super) fn withdraw_rested(&mut self, g: &mut Globals) {
        let resting = &mut self.resting;
        while let Some(&(slot, due)) = resting.order.front() {
            if (due > g.clock && resting.order.len() <= MOST) || g.phase != Phase::Running {
                return;
            }
            resting.order.pop_front();
            let map = &mut g.space.map;
            let named = matches!(map.recorded(slot), Recorded::Whole | Recorded::Part);
            // (A dirty copy comes back when it is cleaned.)
            let clean = named && !map.is_dirty_in(slot);
            let used = resting.slots.get(slot.0) == Some(true);
            if clean && used && due <= g.clock {
                *resting.slots.entry(slot.0) = false;
                resting.order.push_back((slot, g.clock + REST));
                continue;
            }
            resting.slots.remove(slot.0);
            if let Some(e) = map.owner(slot).filter(|_| clean) {
                map.set_recorded(slot, Recorded::Leaving);
                self.pending.note(e, g.clock + g.params.commit_interval);
            }
        }
    }
}
