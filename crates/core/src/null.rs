//! The null engine: it runs the same policies, but device operations take no time (docs/policy-rules.md section 0, "hit-only mode").
//!
//! Moves end at once, in the proposed order. No extent is ever busy, and no limit on concurrent moves applies. The null engine has three
//! purposes: to compare decisions with other implementations, to compute miss ratios at full speed, and to test policies on units of
//! unequal sizes, which are created, resized and deleted ([`NullEngine::over`]).

use crate::geometry::Member;
use crate::load::Loads;
use crate::policy::{Access, Action, Outcome, Policy, Refusal, Uses, View, WriteTo};
use crate::proposals::{self, Checked, Executor};
use crate::units::{ExtentId, Nanos, Slot, TierId};
use crate::volume::{Geometry, Space};
use alloc::vec;
use alloc::vec::Vec;

/// The counts of a hit-only run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullCounters {
    /// Number of extent accesses.
    pub accesses: u64,
    /// Accesses whose unit was on tier 0 when the access began.
    pub hits: u64,
    /// First touches that were placed on tier 0. They do not count as hits, although tier 0 serves them.
    pub placed_fast: u64,
    /// Homes moved to a faster tier.
    pub promotions: u64,
    /// Homes moved to a slower tier.
    pub demotions: u64,
    /// Copies that were made, because of a read or a write.
    pub fetches: u64,
    /// Copies that were dropped.
    pub evictions: u64,
    /// Dirty copies that were written home.
    pub writebacks: u64,
    /// Refused actions.
    pub refused: u64,
}

/// If this number of consecutive proposals of a policy is refused at the same time, the policy is not asked again until time passes.
const FRUITLESS_MAX: u32 = 1 << 16;

/// A policy and a map, without device time.
pub struct NullEngine<P> {
    space: Space,
    policy: P,
    counters: NullCounters,
    now: Nanos,
    /// Number of slots of the fastest tier, which come first.
    fast: u32,
    /// Number of refused proposals since one was carried out or the policy was asked again.
    fruitless: u32,
    wanted: Vec<Action>,
    again: Vec<Action>,
}

impl<P: Policy> NullEngine<P> {
    /// An engine with an empty volume of this geometry.
    pub fn new(geo: Geometry, policy: P) -> NullEngine<P> {
        NullEngine::over(Space::new(geo), policy)
    }
    /// An engine with an empty volume of `fast` and `slow` slots of 4 KiB, for tests and examples. It has `slow` − 2 extents, so the slow
    /// tier has room for all homes and two slots more.
    ///
    /// # Panics
    /// `fast` is 0, or `slow` is less than 3.
    pub fn two_tiers(fast: u32, slow: u32, policy: P) -> NullEngine<P> {
        let member = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let members = vec![member(0, fast), member(1, slow)];
        let geo = Geometry::new(12, 12, slow - 2, members);
        NullEngine::new(geo.expect("two tiers with slots"), policy)
    }
    /// An engine with the given space, which may be a store of units of unequal sizes ([`Space::of_units`]).
    pub fn over(mut space: Space, mut policy: P) -> NullEngine<P> {
        policy.attach(&mut View::new(&mut space, Nanos(0), 0, false, u32::MAX));
        NullEngine {
            fast: space.geo.tier_slots(TierId(0)).end,
            space,
            policy,
            counters: NullCounters::default(),
            now: Nanos(0),
            fruitless: 0,
            wanted: Vec::new(),
            again: Vec::new(),
        }
    }
    /// Reads the extent's row of the map, so that it is in the CPU's cache when it is needed. The result has no meaning.
    #[inline]
    pub fn peek(&self, extent: ExtentId) -> u32 {
        self.space.map.fastest(extent).map_or(0, |s| s.0)
    }
    #[inline]
    fn view(&mut self) -> (&mut P, View<'_>, &mut Vec<Action>) {
        (
            &mut self.policy,
            View::new(&mut self.space, self.now, 0, false, u32::MAX),
            &mut self.wanted,
        )
    }
    /// Performs one access to an extent; returns true if it hit tier 0. `now` must not go back.
    #[inline]
    pub fn access(
        &mut self,
        now: Nanos,
        extent: ExtentId,
        write: bool,
        class: u8,
        request: (u64, u32),
    ) -> bool {
        self.now = now;
        while self.policy.next_wake().is_some_and(|w| w <= now) {
            self.tick();
        }
        let (home, copy) = (self.space.map.home(extent), self.space.map.copy(extent));
        let hit = copy.or(home).is_some_and(|s| s.0 < self.fast);
        self.counters.accesses += 1;
        self.counters.hits += u64::from(hit);
        let access = Access {
            now,
            extent,
            home: home.map(Slot::into),
            // A copy on a tier in between was left by a previous policy. The present policy is not informed of it.
            copy: copy.filter(|_| hit).map(Slot::into),
            write,
            class: self.space.class_of(class, extent),
            request_bytes: request.1,
            request_offset: request.0,
            first: self.space.unit_at(request.0) == extent,
        };
        if home.is_none() {
            self.place(&access);
        }
        let (policy, mut view, wanted) = self.view();
        policy.on_access(&mut view, &access, wanted);
        self.settle();
        if write && self.space.map.copy(extent).is_some() {
            self.write_copied(&access);
        }
        self.tick();
        hit
    }
    /// Performs a write to a unit with a copy.
    #[inline]
    fn write_copied(&mut self, access: &Access) {
        let (policy, mut view, _) = self.view();
        match policy.write_to(&mut view, access) {
            WriteTo::Copy => {
                self.space.map.set_dirty(access.extent, true);
            }
            WriteTo::Both => {}
            WriteTo::Home => self.evict(access.extent),
        }
    }
    #[inline]
    fn evict(&mut self, e: ExtentId) {
        let Some((slot, dirty)) = self.space.map.drop_copy(e) else {
            return;
        };
        self.counters.writebacks += u64::from(dirty);
        self.counters.evictions += 1;
        self.space.put_back(e, slot);
        if slot.0 < self.fast {
            let (policy, mut view, _) = self.view();
            policy.on_uncopied(&mut view, e, slot.into());
        }
    }
    #[inline]
    fn copy_to(&mut self, e: ExtentId, to: TierId) -> Result<bool, Refusal> {
        if self.space.map.copy(e).is_some() {
            return Err(Refusal::Pointless);
        }
        let slot = self.space.take_on(e, to, None).ok_or(Refusal::Full)?;
        self.space.map.add_copy(e, slot);
        self.counters.fetches += 1;
        if to == TierId(0) {
            let (policy, mut view, _) = self.view();
            policy.on_copied(&mut view, e, slot.into());
        }
        Ok(true)
    }
    #[inline]
    fn rehome(&mut self, e: ExtentId, from: Slot, to: TierId, up: bool) -> Result<bool, Refusal> {
        let (policy, view, _) = self.view();
        let beside = policy.beside(&view, e, to);
        let dst = self.space.take_on(e, to, beside).ok_or(Refusal::Full)?;
        self.space.map.rehome(e, dst);
        self.space.put_back(e, from);
        if up {
            self.counters.promotions += 1;
        } else {
            self.counters.demotions += 1;
        }
        let (policy, mut view, _) = self.view();
        policy.on_placed(&mut view, e, dst.into());
        Ok(true)
    }
    #[inline]
    fn tick(&mut self) {
        self.fruitless = 0;
        while self.fruitless < FRUITLESS_MAX {
            let (policy, mut view, wanted) = self.view();
            policy.tick(&mut view, wanted);
            if self.wanted.is_empty() {
                break;
            }
            self.settle();
        }
    }
    fn place(&mut self, access: &Access) {
        let e = access.extent;
        let (policy, mut view, wanted) = self.view();
        policy.make_room(&mut view, access, wanted);
        self.settle();
        let (policy, mut view, _) = self.view();
        let place = policy.first_touch(&mut view, e);
        if let Some(s) = self.space.take_place(e, place) {
            self.space.map.map(e, s, false);
            self.counters.placed_fast += u64::from(s.0 < self.fast);
            let (policy, mut view, _) = self.view();
            policy.on_placed(&mut view, e, s.into());
        }
    }
    #[inline]
    fn settle(&mut self) {
        while !self.wanted.is_empty() {
            let mut trying = core::mem::take(&mut self.again);
            core::mem::swap(&mut self.wanted, &mut trying);
            proposals::carry_out(self, &mut trying);
            self.again = trying;
        }
    }
    /// Sets the size of a unit of a store, in bytes. Its copy is dropped first. If its tier has no room for the larger home, the home moves
    /// to a tier that has room, slower ones first. If no tier has room, the size is unchanged and the result is false.
    pub fn resize(&mut self, now: Nanos, e: ExtentId, bytes: u64) -> bool {
        self.now = now;
        self.evict(e);
        let before = self.space.weight(e);
        let moved = if self.space.set_bytes(e, bytes) {
            None
        } else {
            let Some(moved) = self.space.regrow(e, bytes) else {
                return false;
            };
            Some(moved)
        };
        let (policy, mut view, _) = self.view();
        policy.on_resized(&mut view, e, before);
        let Some((from, to)) = moved else {
            return true;
        };
        if self.space.geo.tier_of(to) > self.space.geo.tier_of(from) {
            self.counters.demotions += 1;
        } else {
            self.counters.promotions += 1;
        }
        let (policy, mut view, _) = self.view();
        policy.on_placed(&mut view, e, to.into());
        true
    }
    /// Sets the class of a unit's data, so that accesses need not state it.
    pub fn reclassify(&mut self, now: Nanos, e: ExtentId, class: u8) {
        self.now = now;
        if self.space.set_class(e, class) {
            self.space.map.forget_classes(e);
            let (policy, mut view, wanted) = self.view();
            policy.on_reclassified(&mut view, e, class, wanted);
            self.settle();
        }
    }
    /// Deletes a unit (or discards an extent): removes copy, home and statistics.
    pub fn discard(&mut self, now: Nanos, e: ExtentId) {
        self.now = now;
        self.evict(e);
        if let Some(home) = self.space.map.home(e) {
            self.forget_home(e, home);
            let _ = self.space.set_bytes(e, 0);
        }
        self.settle();
    }
    fn forget_home(&mut self, e: ExtentId, home: Slot) {
        self.space.map.unmap(e);
        self.space.put_back(e, home);
        let (policy, mut view, _) = self.view();
        policy.on_discarded(&mut view, e, home.into());
        self.space.map.forget(e);
    }
    /// Puts a unit of a store on a tier without asking the policy, because the real unit is there: it was there before, or could not be
    /// moved. Under a caching policy its home stays on the slowest tier, and for the fastest tier it gets a copy there. Returns false if
    /// the tier has no room in this model. The unit then has no home if it had none, and otherwise stays on its tier.
    pub fn settle_at(&mut self, now: Nanos, e: ExtentId, tier: TierId) -> bool {
        self.now = now;
        let caching = self.policy.uses() == Uses::Copies;
        let at = if caching {
            self.space.geo.slowest()
        } else {
            tier
        };
        match self.space.map.home(e) {
            None => {
                let Some(slot) = self.space.take_on(e, at, None) else {
                    return false;
                };
                self.space.map.map(e, slot, false);
                let (policy, mut view, _) = self.view();
                policy.on_placed(&mut view, e, slot.into());
            }
            Some(from) if self.space.geo.tier_of(from) != at => {
                self.evict(e);
                let up = at < self.space.geo.tier_of(from);
                if self.rehome(e, from, at, up).is_err() {
                    return false;
                }
            }
            Some(_) => {}
        }
        if !caching || tier != TierId(0) {
            self.evict(e);
            return true;
        }
        self.space.map.copy(e).is_some() || self.copy_to(e, tier).is_ok()
    }
    /// Lets time pass without an access, so that the policy makes plans that are due.
    pub fn advance(&mut self, now: Nanos) {
        self.now = now;
        while self.policy.next_wake().is_some_and(|w| w <= now) {
            self.tick();
        }
        self.tick();
    }
    /// Lets the policy see the costs and latencies of a volume with devices. This engine measures nothing.
    pub fn measured_by(&mut self, loads: &Loads) {
        self.space.loads.measured_by(loads);
    }
    /// The time at which the policy must be asked again, if it has set one.
    pub fn next_wake(&self) -> Option<Nanos> {
        self.policy.next_wake()
    }
    /// The space, for inspection.
    pub fn space(&self) -> &Space {
        &self.space
    }
    /// Counts so far.
    pub fn counters(&self) -> NullCounters {
        self.counters
    }
    /// The home of an extent.
    pub fn home(&self, e: ExtentId) -> Option<Slot> {
        self.space.map.home(e)
    }
    /// The copy of an extent.
    pub fn copy(&self, e: ExtentId) -> Option<Slot> {
        self.space.map.copy(e)
    }
    /// The policy's explanation of the place of an extent at `now`.
    pub fn explain(&mut self, now: Nanos, e: ExtentId) -> alloc::string::String {
        let view = View::new(&mut self.space, now, 0, false, 0);
        self.policy.explain(&view, e)
    }
    /// Memory of map, slots and policy in bytes, without the bitmaps of partly written extents.
    pub fn bytes(&self) -> usize {
        self.space.map.bytes().0
            + self.space.slots.bytes()
            + self.space.unit_table_bytes()
            + self.policy.bytes()
    }
    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }
}

impl<P: Policy> Executor for NullEngine<P> {
    const COUNTS_DIRECTIONS: bool = false;
    #[inline]
    fn space(&self) -> &Space {
        &self.space
    }
    #[inline]
    fn proposed(&mut self, _action: Action, _up: bool) {}
    #[inline]
    fn may(&self, _action: Action) -> Result<(), Refusal> {
        Ok(())
    }
    #[inline]
    fn start(&mut self, _action: Action, checked: Checked) -> Result<bool, Refusal> {
        match checked {
            Checked::Move {
                extent,
                from,
                to,
                up,
            } => self.rehome(extent, from, to, up),
            // In this engine a copy always contains the whole unit.
            Checked::Fetch { extent, to, .. }
            | Checked::FetchPart { extent, to, .. }
            | Checked::Allocate { extent, to } => self.copy_to(extent, to),
            Checked::Clean { extent } => {
                self.space.map.set_dirty(extent, false);
                self.counters.writebacks += 1;
                Ok(true)
            }
            Checked::Evict { extent } => {
                self.evict(extent);
                Ok(true)
            }
        }
    }
    #[inline]
    fn ended(&mut self, action: Action, _up: bool, how: Outcome) {
        let refused = matches!(how, Outcome::Refused(_));
        self.counters.refused += u64::from(refused);
        self.fruitless = if refused { self.fruitless + 1 } else { 0 };
        let (policy, mut view, wanted) = self.view();
        policy.on_settled(&mut view, action, how, wanted);
    }
}

#[cfg(test)]
mod tests;
