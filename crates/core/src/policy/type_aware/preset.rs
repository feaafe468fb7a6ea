//! A preset as a sub-policy. It sees a separate, small volume ([`Quota`]), and its proposals are passed on as far as its quota has room.
//!
//! A proposal that brings data to the fast tier is passed on if there is room, or if the unit that makes room for it can leave at once (a
//! clean copy that is not in use). Otherwise the proposal waits until a unit has left, and is refused if none leaves. So the quota is never
//! exceeded, even if moves take a long time.

use super::super::hold::{FAST, Hold};
use super::super::{Access, Action, Outcome, Policy, Refusal, Uses, View, WriteTo};
use crate::units::{Nanos, TierId};
use crate::volume::{Place, Quota, UnitId};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Maximum number of times that the preset may answer refusals with new proposals in one call.
const TURNS: usize = 8;

pub(super) struct Sub {
    policy: Box<dyn Policy>,
    quota: RefCell<Quota>,
    /// Actions that were passed on and are not settled: those that bring data to the fast tier, and those that remove it.
    coming: Vec<Action>,
    leaving: Vec<Action>,
    /// Actions that wait until a unit has left the fast tier.
    held: VecDeque<Action>,
    wants: Vec<Action>,
}

/// Copies the present state of a unit from the real volume to the quota.
fn sync(quota: &mut Quota, view: &View<'_>, e: UnitId) {
    quota.sync(e, view.is_dirty(e), view.is_held(e));
}

impl Sub {
    pub(super) fn new(policy: Box<dyn Policy>, view: &View<'_>, grains: u32) -> Sub {
        Sub {
            policy,
            quota: RefCell::new(view.quota(grains)),
            coming: Vec::new(),
            leaving: Vec::new(),
            held: VecDeque::new(),
            wants: Vec::new(),
        }
    }
    pub(super) fn into_policy(self) -> Box<dyn Policy> {
        self.policy
    }
    pub(super) fn used(&self) -> u32 {
        self.quota.borrow().used()
    }
    pub(super) fn bytes(&self) -> usize {
        self.quota.borrow().bytes() + self.policy.bytes()
    }
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        self.policy.next_wake()
    }
    pub(super) fn keeps_dirty(&self) -> bool {
        self.policy.keeps_dirty()
    }
    pub(super) fn writes_through(&self) -> bool {
        self.policy.writes_through()
    }
    pub(super) fn explain(&self, view: &View<'_>, e: UnitId) -> String {
        let quota = &mut *self.quota.borrow_mut();
        self.policy.explain(&view.within(quota), e)
    }
    /// Attaches the policy after all existing units were added.
    pub(super) fn attach(&mut self, view: &View<'_>) {
        let quota = self.quota.get_mut();
        self.policy.attach(&mut view.within(quota));
    }

    /// Adds a unit with a home. Returns false if the unit is on the fast tier and should not be there, because there is no room or the
    /// policy does not use that place. `tell`: the policy is attached already, so it is informed.
    pub(super) fn take_in(&mut self, view: &View<'_>, e: UnitId, tell: bool) -> bool {
        let quota = self.quota.get_mut();
        quota.resize(e, view.unit_bytes(e));
        let Some(home) = view.home(e) else {
            return true;
        };
        let (position, mut fits) = quota.place(e, view.tier_of(home));
        sync(quota, view, e);
        if let Some(s) = position.filter(|_| tell) {
            self.policy.on_placed(&mut view.within(quota), e, s);
        }
        if let Some(c) = view.copy(e) {
            let quota = self.quota.get_mut();
            let copy = (view.tier_of(c) == FAST)
                .then(|| quota.add_copy(e))
                .flatten();
            fits &= copy.is_some();
            sync(quota, view, e);
            if let Some(s) = copy.filter(|_| tell) {
                self.policy.on_copied(&mut view.within(quota), e, s);
            }
        }
        fits && match self.policy.uses() {
            Uses::Homes => view.copy(e).is_none(),
            Uses::Copies => view.copy(e).is_some() || view.tier_of(home) != FAST,
            Uses::Both => true,
        }
    }
    /// Removes a unit.
    pub(super) fn removed(&mut self, view: &View<'_>, e: UnitId) {
        self.uncopied(view, e);
        let quota = self.quota.get_mut();
        if let Some(s) = quota.unplace(e) {
            self.policy.on_discarded(&mut view.within(quota), e, s);
        }
        let quota = self.quota.get_mut();
        quota.sync(e, false, false);
        quota.forget(e);
    }
    /// Notes that the home of a unit is now on `tier`. Returns false if it should not be there.
    pub(super) fn placed(&mut self, view: &View<'_>, e: UnitId, tier: TierId) -> bool {
        let quota = self.quota.get_mut();
        quota.unplace(e);
        quota.resize(e, view.unit_bytes(e));
        let (position, fits) = quota.place(e, tier);
        if let Some(s) = position {
            self.policy.on_placed(&mut view.within(quota), e, s);
        }
        fits
    }
    /// Notes that a unit now has a copy. Returns false if the quota has no room for it.
    pub(super) fn copied(&mut self, view: &View<'_>, e: UnitId) -> bool {
        let quota = self.quota.get_mut();
        let position = quota.add_copy(e);
        sync(quota, view, e);
        if let Some(s) = position {
            self.policy.on_copied(&mut view.within(quota), e, s);
        }
        position.is_some()
    }
    pub(super) fn uncopied(&mut self, view: &View<'_>, e: UnitId) {
        let quota = self.quota.get_mut();
        if let Some(s) = quota.drop_copy(e) {
            self.policy.on_uncopied(&mut view.within(quota), e, s);
        }
    }

    fn access(&mut self, view: &View<'_>, a: &Access) -> Access {
        let quota = self.quota.get_mut();
        sync(quota, view, a.extent);
        Access {
            home: a.home.and(quota.home(a.extent)),
            copy: a.copy.and(quota.copy(a.extent)),
            ..*a
        }
    }
    pub(super) fn make_room(&mut self, view: &View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let access = self.access(view, access);
        let quota = self.quota.get_mut();
        quota.resize(access.extent, view.unit_bytes(access.extent));
        self.policy
            .make_room(&mut view.within(quota), &access, &mut self.wants);
        self.pass_on(view, wanted);
    }
    pub(super) fn first_touch(&mut self, view: &View<'_>, e: UnitId) -> Place {
        let quota = self.quota.get_mut();
        let place = self.policy.first_touch(&mut view.within(quota), e);
        Place::Tier(self.quota.get_mut().tier_for(e, place))
    }
    pub(super) fn on_access(&mut self, view: &View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let access = self.access(view, access);
        let quota = self.quota.get_mut();
        self.policy
            .on_access(&mut view.within(quota), &access, &mut self.wants);
        self.pass_on(view, wanted);
    }
    pub(super) fn write_to(&mut self, view: &View<'_>, access: &Access) -> WriteTo {
        let access = self.access(view, access);
        let quota = self.quota.get_mut();
        let to = self.policy.write_to(&mut view.within(quota), &access);
        if to == WriteTo::Copy {
            self.quota.get_mut().sync(access.extent, true, false);
        }
        to
    }
    pub(super) fn reclassified(
        &mut self,
        view: &View<'_>,
        e: UnitId,
        class: u8,
        wanted: &mut Vec<Action>,
    ) {
        let quota = self.quota.get_mut();
        self.policy
            .on_reclassified(&mut view.within(quota), e, class, &mut self.wants);
        self.pass_on(view, wanted);
    }
    pub(super) fn resized(&mut self, view: &View<'_>, e: UnitId, before: u32) -> bool {
        let tier = view.home(e).map(|s| view.tier_of(s));
        let quota = self.quota.get_mut();
        quota.unplace(e);
        quota.resize(e, view.unit_bytes(e));
        let Some(tier) = tier else { return true };
        let (position, fits) = quota.place(e, tier);
        self.policy.on_resized(&mut view.within(quota), e, before);
        if let Some(s) = position {
            let quota = self.quota.get_mut();
            self.policy.on_placed(&mut view.within(quota), e, s);
        }
        fits
    }
    pub(super) fn tick(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        let quota = self.quota.get_mut();
        self.policy.tick(&mut view.within(quota), &mut self.wants);
        self.pass_on(view, wanted);
    }

    /// Whether this sub-policy proposed that action.
    pub(super) fn asked(&self, action: Action) -> bool {
        self.coming.contains(&action) || self.leaving.contains(&action)
    }
    pub(super) fn settled(
        &mut self,
        view: &View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        for list in [&mut self.coming, &mut self.leaving] {
            if let Some(i) = list.iter().position(|a| *a == action) {
                list.swap_remove(i);
            }
        }
        self.report_end(view, action, how);
        self.pass_on(view, wanted);
        // Waiting actions may start now. If no unit is leaving any more, they never can, and are refused.
        while let Some(&up) = self.held.front() {
            if self.room(view) >= view.weight(up.extent()) {
                self.coming.push(up);
                wanted.push(up);
            } else if self.leaving.is_empty() {
                self.report_end(view, up, Outcome::Refused(Refusal::Full));
            } else {
                break;
            }
            self.held.pop_front();
        }
        self.pass_on(view, wanted);
    }
    fn report_end(&mut self, view: &View<'_>, action: Action, how: Outcome) {
        let quota = self.quota.get_mut();
        sync(quota, view, action.extent());
        self.policy
            .on_settled(&mut view.within(quota), action, how, &mut self.wants);
    }

    /// Grains that are neither in use nor reserved.
    fn room(&self, view: &View<'_>) -> u32 {
        let promised: u32 = self.coming.iter().map(|a| view.weight(a.extent())).sum();
        self.quota.borrow().free().saturating_sub(promised)
    }

    /// Passes on its proposals as far as there is room.
    fn pass_on(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        for _ in 0..TURNS {
            if self.wants.is_empty() {
                return;
            }
            let mut wants = core::mem::take(&mut self.wants);
            self.pass_all(view, &wants, wanted);
            wants.clear();
            wants.append(&mut self.wants);
            self.wants = wants;
        }
        self.wants.clear();
    }
    fn pass_all(&mut self, view: &View<'_>, wants: &[Action], wanted: &mut Vec<Action>) {
        let mut leaves_now = 0;
        for &action in wants {
            let e = action.extent();
            if Hold::is_up(action) {
                let (weight, room) = (view.weight(e), self.room(view));
                if room + leaves_now >= weight {
                    leaves_now -= weight.saturating_sub(room);
                    self.coming.push(action);
                    wanted.push(action);
                } else if self.leaving.is_empty() {
                    self.report_end(view, action, Outcome::Refused(Refusal::Full));
                } else {
                    self.held.push_back(action);
                }
                continue;
            }
            let clean = matches!(action, Action::Evict { .. }) && !view.is_dirty(e);
            if clean && view.copy(e).is_some() && !view.is_held(e) && view.in_flight(e) == 0 {
                leaves_now += view.weight(e);
            }
            let at = view.home(e).map(|s| view.tier_of(s));
            if matches!(action, Action::Evict { .. })
                || (matches!(action, Action::Move { .. }) && at == Some(FAST))
            {
                self.leaving.push(action);
            }
            wanted.push(action);
        }
    }
}
