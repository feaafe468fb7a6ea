//! Homes on both tiers (`homes=1`, `create --capacity all`): the volume is as large as both tiers together.
//!
//! New data goes to the slow tier while that has free slots, and extents that are used get copies. A home on flash occupies a slot like a
//! copy. If it is worth less than a new extent, and the slow tier has a free slot, the home is demoted. If the slow tier is full, a read
//! miss promotes the home instead of making a copy, which frees a slot there. The engine does not count some slots of the slow tier as
//! part of the volume's size, so that there is always a slot for the next move.

use super::{Benefit, FAST};
use crate::policy::{Action, View};
use crate::volume::UnitId;

/// Maximum number of demotions in progress.
const MAX_DEMOTIONS: u32 = 4;

impl Benefit {
    /// Whether the home of `e` is on flash.
    pub(super) fn is_home_on_flash(view: &View<'_>, e: UnitId) -> bool {
        view.home(e).is_some_and(|h| view.tier_of(h) == FAST)
    }
    /// Whether one more home may be demoted: the slow tier has a free slot besides those for the demotions in progress.
    pub(super) fn may_demote(&self, view: &View<'_>) -> bool {
        self.settings.homes
            && self.demoting < MAX_DEMOTIONS
            && view.free(view.slowest()) > self.demoting
    }
    /// The action that frees the fast slot of `e`: evicts its copy, or demotes its home.
    pub(super) fn free_slot_of(&mut self, view: &View<'_>, e: UnitId) -> Action {
        if Benefit::is_home_on_flash(view, e) {
            self.demoting += 1;
            let to = view.slowest();
            return Action::Move { extent: e, to };
        }
        Action::Evict { extent: e }
    }
    /// If a home is needed and both tiers are full: the eviction of a copy, of a clean one if the search finds one.
    pub(super) fn room_for_home(&mut self, view: &View<'_>) -> Option<Action> {
        if !self.settings.homes || view.free(view.slowest()) > 0 || view.free(FAST) > 0 {
            return None;
        }
        let copied = |e: &UnitId| view.copy(*e).is_some() && !view.is_held(*e);
        let clean = self.victim(view, None).0.map(|(_, e)| e).filter(copied);
        let mut all = view.residents(FAST).map(|(_, e)| e);
        let extent = clean.or_else(|| all.find(copied))?;
        Some(Action::Evict { extent })
    }
    /// The additional cost of freeing the slot of a victim, nanoseconds: a home that is demoted is written at a random place.
    pub(super) fn demotion_cost(view: &View<'_>, e: UnitId) -> u64 {
        if Benefit::is_home_on_flash(view, e) {
            let slow = view.cost(view.slowest());
            return slow.write.max(slow.read).0;
        }
        0
    }
    /// Whether a read that misses promotes the home instead of making a copy, because the slow tier is full.
    pub(super) fn promotes_home(&self, view: &View<'_>, e: UnitId) -> bool {
        self.settings.homes && view.copy(e).is_none() && view.free(view.slowest()) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::NullEngine;
    use crate::policy::Policy;
    use crate::units::{ExtentId, Nanos, TierId};
    use crate::volume::{Geometry, Member};

    const FAST_SLOTS: u32 = 8;
    const UNITS: u32 = 18;

    /// Eight slots on flash, twelve on the disk and eighteen extents, all of which have been written.
    fn full() -> NullEngine<Benefit> {
        let member = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let members = alloc::vec![member(0, FAST_SLOTS), member(1, 12)];
        let mut policy = Benefit::default();
        assert_eq!(policy.set("homes", 1.0), Ok(()));
        let geo = Geometry::new(12, 12, UNITS, members);
        let mut e = NullEngine::new(geo.expect("a valid shape"), policy);
        for unit in 0..UNITS {
            access(&mut e, u64::from(unit), unit, true);
        }
        e
    }
    fn access(e: &mut NullEngine<Benefit>, s: u64, unit: u32, write: bool) -> bool {
        let request = (u64::from(unit) * 4096, 4096);
        e.access(Nanos::from_secs(s), ExtentId(unit), write, 0, request)
    }

    #[test]
    fn a_volume_as_large_as_both_tiers_serves_what_is_used_from_flash() {
        let mut e = full();
        let home = |e: &NullEngine<Benefit>, u| e.home(ExtentId(u)).map(|s| s.0);
        assert!((0..UNITS).all(|u| home(&e, u).is_some()));
        // Extents of both tiers are used repeatedly; the others are not used.
        let hot = [0, 5, 11, 17];
        let mut hits = 0;
        for round in 0..100 {
            for u in hot {
                hits += u32::from(access(&mut e, 1000 + round, u, false));
            }
        }
        assert!(hits > 380, "{hits} of 400");
        // Nothing is lost, and no two homes share a slot.
        let mut slots: alloc::vec::Vec<_> = (0..UNITS).filter_map(|u| home(&e, u)).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), UNITS as usize);
    }

    #[test]
    fn where_homes_lie_is_chosen_when_the_policy_is_made() {
        let mut policy = Benefit::default();
        assert_eq!(policy.uses(), crate::policy::Uses::Copies);
        assert_eq!(policy.set("homes", 1.0), Ok(()));
        assert_eq!(policy.uses(), crate::policy::Uses::Both);
        policy.fast_slots = FAST_SLOTS;
        assert!(policy.set("homes", 0.0).is_err());
        assert_eq!(policy.set("homes", 1.0), Ok(()));
    }
}
