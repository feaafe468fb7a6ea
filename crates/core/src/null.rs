//! The null engine: the same policies with no device time (policy-specs section 0, "hit-only mode").
//!
//! Moves settle at once, in the order asked; nothing is busy and no concurrency limit applies. It exists so that decisions
//! can be compared with other implementations and so that miss ratios come at full speed.

use crate::geometry::Geometry;
use crate::policy::{Access, Action, Outcome, Policy, Refusal, View, WriteTo};
use crate::units::{ExtentId, Nanos, Slot, TierId};
use crate::volume::Space;
use alloc::vec::Vec;

/// What a hit-only run counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullCounters {
    /// Extent accesses.
    pub accesses: u64,
    /// Those whose unit was on tier 0 before anything that they triggered.
    pub hits: u64,
    /// Homes moved to a faster tier.
    pub promotions: u64,
    /// Homes moved to a slower tier.
    pub demotions: u64,
    /// Units that gained a copy, by read or write.
    pub fetches: u64,
    /// Copies given up.
    pub evictions: u64,
    /// Units whose dirty copy was written home.
    pub writebacks: u64,
    /// Actions refused.
    pub refused: u64,
}

/// Policy + map, no time.
pub struct NullEngine<P> {
    space: Space,
    policy: P,
    counters: NullCounters,
    wanted: Vec<Action>,
    again: Vec<Action>,
}

impl<P: Policy> NullEngine<P> {
    /// An empty volume of that shape.
    pub fn new(geo: Geometry, mut policy: P) -> NullEngine<P> {
        let mut space = Space::new(geo);
        policy.attach(&mut View::new(&mut space, Nanos(0), 0, false, u32::MAX));
        NullEngine {
            space,
            policy,
            counters: NullCounters::default(),
            wanted: Vec::new(),
            again: Vec::new(),
        }
    }
    /// Read the extent's row, so that it is near when its turn comes. The value means nothing.
    #[inline]
    pub fn peek(&self, extent: ExtentId) -> u32 {
        self.space.map.fastest(extent).map_or(0, |s| s.0)
    }
    /// One extent access; true if it hit tier 0. `now` never goes back.
    #[inline]
    pub fn access(
        &mut self,
        now: Nanos,
        extent: ExtentId,
        write: bool,
        class: u8,
        request: (u64, u32),
    ) -> bool {
        while self.policy.next_wake().is_some_and(|w| w <= now) {
            self.tick(now);
        }
        let (home, copy) = (self.space.map.home(extent), self.space.map.copy(extent));
        let hit = (copy.or(home)).is_some_and(|s| self.space.geo.tier_of(s) == TierId(0));
        self.counters.accesses += 1;
        self.counters.hits += u64::from(hit);
        let first = self.space.geo.extent_at(request.0) == extent;
        let access = Access {
            now,
            extent,
            home: home.map(Slot::into),
            copy: copy.map(Slot::into),
            write,
            class,
            request_bytes: request.1,
            request_offset: request.0,
            first,
        };
        if home.is_none() {
            self.place(now, &access);
        }
        let mut view = View::new(&mut self.space, now, 0, false, u32::MAX);
        self.policy.on_access(&mut view, &access, &mut self.wanted);
        self.settle(now);
        if write && self.space.map.copy(extent).is_some() {
            self.write_copied(now, &access);
        }
        self.tick(now);
        hit
    }
    /// A write to a unit with a copy.
    fn write_copied(&mut self, now: Nanos, access: &Access) {
        let mut view = View::new(&mut self.space, now, 0, false, u32::MAX);
        match self.policy.write_to(&mut view, access) {
            WriteTo::Copy => {
                self.space.map.set_dirty(access.extent, true);
            }
            WriteTo::Both => {}
            WriteTo::Home => {
                self.evict(now, access.extent);
            }
        }
    }
    fn evict(&mut self, now: Nanos, e: ExtentId) -> Outcome {
        let Some((slot, dirty)) = self.space.map.drop_copy(e) else {
            return self.refuse(Refusal::Pointless);
        };
        self.counters.writebacks += u64::from(dirty);
        self.counters.evictions += 1;
        self.space.slots.put_back(slot);
        let mut view = View::new(&mut self.space, now, 0, false, u32::MAX);
        self.policy.on_uncopied(&mut view, e, slot.into());
        Outcome::Done
    }
    fn fetch(&mut self, now: Nanos, e: ExtentId, to: TierId) -> Outcome {
        let faster = |s| to < self.space.geo.tier_of(s);
        if !self.space.map.home(e).is_some_and(faster) || self.space.map.copy(e).is_some() {
            return self.refuse(Refusal::Pointless);
        }
        let Some(slot) = self.space.slots.take_lowest(to) else {
            return self.refuse(Refusal::Full);
        };
        self.space.map.add_copy(e, slot);
        self.counters.fetches += 1;
        let mut view = View::new(&mut self.space, now, 0, false, u32::MAX);
        self.policy.on_copied(&mut view, e, slot.into());
        Outcome::Done
    }
    fn refuse(&mut self, why: Refusal) -> Outcome {
        self.counters.refused += 1;
        Outcome::Refused(why)
    }
    fn tick(&mut self, now: Nanos) {
        loop {
            self.policy.tick(
                &mut View::new(&mut self.space, now, 0, false, u32::MAX),
                &mut self.wanted,
            );
            if self.wanted.is_empty() {
                break;
            }
            self.settle(now);
        }
    }
    fn place(&mut self, now: Nanos, access: &Access) {
        let e = access.extent;
        let mut view = View::new(&mut self.space, now, 0, false, u32::MAX);
        self.policy.make_room(&mut view, access, &mut self.wanted);
        self.settle(now);
        let place = self
            .policy
            .first_touch(&mut View::new(&mut self.space, now, 0, false, u32::MAX), e);
        if let Some(s) = self.space.take_place(place) {
            self.space.map.map(e, s, false);
            self.policy.on_placed(
                &mut View::new(&mut self.space, now, 0, false, u32::MAX),
                e,
                s.into(),
            );
        }
    }
    fn settle(&mut self, now: Nanos) {
        while !self.wanted.is_empty() {
            core::mem::swap(&mut self.wanted, &mut self.again);
            for i in 0..self.again.len() {
                let a = self.again[i];
                let how = self.apply(now, a);
                let mut view = View::new(&mut self.space, now, 0, false, u32::MAX);
                self.policy.on_settled(&mut view, a, how, &mut self.wanted);
            }
            self.again.clear();
        }
    }
    fn apply(&mut self, now: Nanos, a: Action) -> Outcome {
        match a {
            Action::Move { extent, to } => self.rehome(now, extent, to),
            Action::Fetch { extent, to } | Action::Allocate { extent, to } => {
                self.fetch(now, extent, to)
            }
            Action::Clean { extent } => {
                if !self.space.map.set_dirty(extent, false) {
                    return self.refuse(Refusal::Pointless);
                }
                self.counters.writebacks += 1;
                Outcome::Done
            }
            Action::Evict { extent } => self.evict(now, extent),
        }
    }
    fn rehome(&mut self, now: Nanos, extent: ExtentId, to: TierId) -> Outcome {
        let from = match self.space.map.home(extent) {
            Some(s)
                if self.space.geo.tier_of(s) != to
                    && to.0 < self.space.geo.tiers()
                    && self.space.map.copy(extent).is_none() =>
            {
                s
            }
            _ => return self.refuse(Refusal::Pointless),
        };
        let view = View::new(&mut self.space, now, 0, false, u32::MAX);
        let beside = self.policy.beside(&view, extent, to);
        let Some(dst) = self.space.take_on(to, beside) else {
            return self.refuse(Refusal::Full);
        };
        self.space.map.rehome(extent, dst);
        self.space.slots.put_back(from);
        if to < self.space.geo.tier_of(from) {
            self.counters.promotions += 1;
        } else {
            self.counters.demotions += 1;
        }
        self.policy.on_placed(
            &mut View::new(&mut self.space, now, 0, false, u32::MAX),
            extent,
            dst.into(),
        );
        Outcome::Done
    }
    /// Counts so far.
    pub fn counters(&self) -> NullCounters {
        self.counters
    }
    /// Where an extent is.
    pub fn home(&self, e: ExtentId) -> Option<Slot> {
        self.space.map.home(e)
    }
    /// Where an extent's copy is.
    pub fn copy(&self, e: ExtentId) -> Option<Slot> {
        self.space.map.copy(e)
    }
    /// What the policy knows of an extent at `now`, in words.
    pub fn explain(&mut self, now: Nanos, e: ExtentId) -> alloc::string::String {
        let view = View::new(&mut self.space, now, 0, false, 0);
        self.policy.explain(&view, e)
    }
    /// Memory of map, slots and policy, bytes; the bitmaps of partly written extents excluded.
    pub fn bytes(&self) -> usize {
        self.space.map.bytes().0 + self.space.slots.bytes() + self.policy.bytes()
    }
    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }
}

#[cfg(test)]
mod tests;
