//! Homes on the tiers between the fastest and the slowest, for architectures that were published for two (`hot-dst-*`, `cold-dst-*`,
//! `type-aware`, `hro`, `hot`).
//!
//! Each of these tiers relates to the slower ones as the fastest tier does to all others. A unit that leaves a tier goes to the next slower
//! one that has room ([`crate::policy::hold::Hold::down`]). For this purpose some slots of each tier are kept free (a sixteenth, 1 to 16)
//! by demoting the coldest units. A unit that is not worth enough for the fastest tier may rise to one of these tiers by the same rule: it
//! must be worth more than the unit that left there last. With only two tiers, this module does nothing.

use super::{Action, Outcome, View};
use crate::collector::Collector;
use crate::units::{Nanos, TierId};
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of concurrent moves of this module.
const AT_ONCE: usize = 16;
/// Time before a refused demotion is tried again.
const AGAIN: Nanos = Nanos::from_millis(5);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Middle {
    /// By tier: the worth that the last demoted home had when it was demoted. For the fastest tier, the architecture itself stores this.
    left: Vec<u64>,
    /// This module's moves in progress, and the tier on which each one makes room, if any.
    own: Vec<(UnitId, Option<TierId>)>,
    wake: Option<Nanos>,
}

impl Middle {
    /// Called when the shape of the volume is known.
    pub fn attach(&mut self, view: &View<'_>) {
        *self = Middle {
            left: vec![0; usize::from(view.tiers())],
            ..Middle::default()
        };
    }
    /// The tiers between the fastest and the slowest, fastest first.
    fn tiers(view: &View<'_>) -> impl Iterator<Item = TierId> + use<> {
        (1..view.slowest().0).map(TierId)
    }
    /// The next slower tier with a free slot.
    pub fn below(view: &View<'_>, from: TierId) -> Option<TierId> {
        (from.0 + 1..view.tiers())
            .map(TierId)
            .find(|&t| view.free(t) > 0)
    }
    /// Whether room is being made on `tier`.
    pub fn is_clearing(&self, tier: TierId) -> bool {
        self.own.iter().any(|o| o.1 == Some(tier))
    }
    /// Demotes the home of `extent` from `from` to make room. False if that is impossible now.
    pub fn clear(
        &mut self,
        view: &View<'_>,
        from: TierId,
        extent: UnitId,
        wanted: &mut Vec<Action>,
    ) -> bool {
        let waits = self.wake.is_some_and(|t| t > view.now());
        let may = !waits && self.own.len() < AT_ONCE;
        let to = Middle::below(view, from).filter(|_| may);
        if let Some(to) = to {
            self.own.push((extent, Some(from)));
            wanted.push(Action::Move { extent, to });
        }
        to.is_some()
    }
    /// Promotes `extent` to `to`, which has room.
    pub fn raise(&mut self, extent: UnitId, to: TierId, wanted: &mut Vec<Action>) {
        self.own.push((extent, None));
        wanted.push(Action::Move { extent, to });
    }
    /// Whether a unit of this worth may rise to `tier`.
    pub fn admits(&self, tier: TierId, worth: u64) -> bool {
        self.own.len() < AT_ONCE && worth > self.left[usize::from(tier.0)]
    }
    /// Handles a read of `extent`, which is not worth enough for the fastest tier: promotes it to the fastest other tier that admits it and
    /// has room.
    pub fn rise(&mut self, view: &View<'_>, extent: UnitId, worth: u64, wanted: &mut Vec<Action>) {
        let Some(at) = view.home(extent).map(|s| view.tier_of(s)) else {
            return;
        };
        let to = Middle::tiers(view)
            .take_while(|&t| t < at)
            .find(|&t| view.free(t) > 0 && self.admits(t, worth));
        if let Some(to) = to.filter(|_| self.own.iter().all(|o| o.0 != extent)) {
            self.raise(extent, to, wanted);
        }
    }
    /// Keeps some slots of each tier free. Returns true if a move was proposed.
    pub fn keep_room(
        &mut self,
        view: &mut View<'_>,
        collector: &mut dyn Collector,
        wanted: &mut Vec<Action>,
    ) -> bool {
        self.wake = self.wake.filter(|&t| t > view.now());
        // The slowest of these tiers comes first, so that it has room for units of the others.
        for t in (1..view.slowest().0).rev().map(TierId) {
            let slots = view.positions(t).len() as u32;
            let going = self.own.iter().filter(|o| o.1 == Some(t)).count() as u32;
            let room = view.free(t) + view.freeing(t) + going;
            // If its only slot were kept free, a tier with one slot would always be empty.
            if slots == 1 || room >= (slots / 16).clamp(1, 16) {
                continue;
            }
            if let Some(cold) = collector.coldest(view, t)
                && self.own.iter().all(|o| o.0 != cold)
                && self.clear(view, t, cold, wanted)
            {
                return true;
            }
        }
        false
    }
    /// An action ended. True if this module proposed it, not the architecture.
    pub fn settled(
        &mut self,
        view: &View<'_>,
        collector: &dyn Collector,
        action: Action,
        how: Outcome,
    ) -> bool {
        let extent = action.extent();
        let Some(i) = self.own.iter().position(|o| o.0 == extent) else {
            return false;
        };
        if !matches!(action, Action::Move { .. }) {
            return false;
        }
        let (_, from) = self.own.swap_remove(i);
        match (from, how) {
            (Some(t), Outcome::Done) => {
                self.left[usize::from(t.0)] = collector.worth(view, extent);
            }
            (Some(_), _) => self.wake = Some(view.now() + AGAIN),
            _ => {}
        }
        true
    }
    /// Time of the next attempt.
    pub fn next_wake(&self) -> Option<Nanos> {
        self.wake
    }
}
