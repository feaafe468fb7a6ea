//! Geometry, map, free slots and counts of operations in progress together, and the allocation of slots.

use super::geometry::TIERS_MAX;
use super::lost::LostBlocks;
use super::unit_sizes::{SPAN_SHIFT, UNITS_MAX, UnitSizes};
use super::{ExtentMap, Geometry, Member, PAST_FLOOR, Pins, Position, Slots, UnitClasses, UnitId};
use crate::bits::Bits;
use crate::load::Loads;
use crate::units::{ExtentId, Slot, TierId};
use alloc::vec::Vec;

/// The place at which a new unit should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The lowest free slot of this tier, else of the slower tiers, else of the faster ones.
    Tier(TierId),
    /// Exactly this position.
    At(Position),
    /// The first free slot after the home of this unit on the same tier, else the same as [`Place::Tier`]. If the unit has no home, the
    /// slowest tier.
    Beside(UnitId),
}

/// A [`Place`] in terms of slots.
#[derive(Clone, Copy, Debug)]
enum Target {
    Tier(TierId),
    Exact(Slot),
    Near(Slot),
}

/// The state that engine and policies share: geometry, map, free slots and counts of operations in progress.
#[derive(Clone, Debug)]
pub struct Space {
    /// Geometry.
    pub geo: Geometry,
    /// The homes, copies and statistics of extents.
    pub map: ExtentMap,
    /// Free slots.
    pub slots: Slots,
    /// Counts of operations in progress.
    pub pins: Pins,
    /// The cost and the load of the tiers.
    pub loads: Loads,
    /// The blocks that were lost with flash.
    pub lost: LostBlocks,
    /// By extent: whether its own slot is still reserved for its first touch ([`Space::keep_own`]). `None`: no slots are reserved.
    own: Option<Bits>,
    /// Whether homes on the slowest tier lie in the order of addresses, as far as there is room ([`Space::keep_order`]).
    ordered: bool,
    /// The sizes of units, in a store of units of unequal sizes.
    sizes: Option<UnitSizes>,
    /// The class of each unit, as set by a classifier.
    classes: UnitClasses,
}

impl Space {
    /// An empty volume of this geometry.
    pub fn new(geo: Geometry) -> Space {
        Space::with_past(geo, PAST_FLOOR)
    }
    /// As [`Space::new`]. A cache volume remembers at least `past_floor` units without a copy, as far as there are so many.
    pub fn with_past(geo: Geometry, past_floor: u32) -> Space {
        Space {
            map: ExtentMap::with_past(&geo, past_floor),
            slots: Slots::new(&geo),
            // The table is small, so that it fits into the first-level cache. It grows once to the number of operations in progress.
            pins: Pins::new(32),
            own: None,
            ordered: false,
            loads: Loads::new(&geo),
            lost: LostBlocks::default(),
            sizes: None,
            classes: UnitClasses::default(),
            geo,
        }
    }
    /// An empty store of at most `units` units of unequal sizes. `tiers` are the bytes of each tier, fastest first. Space is counted in
    /// grains of 2^`grain_shift` bytes. A unit has no bytes until [`Space::set_bytes`].
    ///
    /// # Errors
    /// A shape that [`Geometry::new`] refuses, or more than [`UNITS_MAX`] units.
    pub fn of_units(tiers: &[u64], grain_shift: u32, units: u32) -> Result<Space, &'static str> {
        if units > UNITS_MAX {
            return Err("a store has at most 2^24 units");
        }
        if !(12..=22).contains(&grain_shift) {
            return Err("a grain must be a power of two from 4 KiB to 4 MiB");
        }
        let mut members = Vec::new();
        let mut free = [0; TIERS_MAX];
        for (t, bytes) in tiers.iter().take(TIERS_MAX + 1).enumerate() {
            let slots = u32::try_from(bytes >> grain_shift)
                .map_err(|_| "a tier has more grains than can be numbered: choose larger ones")?;
            if let Some(f) = free.get_mut(t) {
                *f = slots;
            }
            members.push(Member {
                tier: TierId(t as u8),
                first_slot: 0,
                slots,
                data_offset: 0,
                stash: crate::geometry::Stash::default(),
            });
        }
        let mut space = Space::new(Geometry::new(grain_shift, 12, units, members)?);
        space.sizes = Some(UnitSizes::new(grain_shift, units, free));
        Ok(space)
    }
    /// Size of a unit in bytes.
    #[inline]
    pub fn bytes_of(&self, e: UnitId) -> u64 {
        match &self.sizes {
            None => u64::from(self.geo.extent_bytes()),
            Some(r) => r.bytes_of(e),
        }
    }
    /// Space that a unit takes on a tier, in grains: 1 if all units are extents.
    #[inline]
    pub fn weight(&self, e: UnitId) -> u32 {
        self.sizes.as_ref().map_or(1, |r| r.weight(e))
    }
    /// Whether this is a store of units of unequal sizes.
    #[inline]
    pub fn is_of_units(&self) -> bool {
        self.sizes.is_some()
    }
    /// Free space on a tier, in grains.
    #[inline]
    pub fn free(&self, t: TierId) -> u32 {
        self.sizes
            .as_ref()
            .map_or_else(|| self.slots.free(t), |r| r.free(t))
    }
    /// The first byte of the address space of a unit.
    #[inline]
    pub fn start(&self, e: UnitId) -> u64 {
        let shift = if self.is_of_units() {
            SPAN_SHIFT
        } else {
            self.geo.extent_shift
        };
        u64::from(e.0) << shift
    }
    /// The unit that holds the byte at `offset`.
    #[inline]
    pub fn unit_at(&self, offset: u64) -> UnitId {
        if self.is_of_units() {
            ExtentId((offset >> SPAN_SHIFT) as u32)
        } else {
            self.geo.extent_at(offset)
        }
    }
    /// Sets the size of a unit that has no copy. If the tier of its home does not have enough space, nothing is changed and the result is
    /// false. Only for a store of units of unequal sizes.
    pub fn set_bytes(&mut self, e: UnitId, bytes: u64) -> bool {
        assert!(self.map.copy(e).is_none(), "the copy must go first");
        let tier = self.map.home(e).map(|s| self.geo.tier_of(s));
        let Some(r) = &mut self.sizes else {
            return false;
        };
        let (from, to) = (r.weight(e), r.grains(bytes));
        if let Some(t) = tier {
            if to > from && !r.take(t, to - from) {
                return false;
            }
            r.put_back(t, from.saturating_sub(to));
        }
        r.set_bytes(e, bytes);
        true
    }
    /// Sets the size of a unit that has no copy, and moves its home to another tier with enough space: the next slower tier that has it,
    /// else the next faster one. Returns the old and the new home. If no tier has the space, nothing is changed and the result is `None`.
    pub fn regrow(&mut self, e: UnitId, bytes: u64) -> Option<(Slot, Slot)> {
        let from = self.map.home(e)?;
        let at = self.geo.tier_of(from);
        let sizes = self.sizes.as_mut()?;
        let (was, grains) = (sizes.weight(e), sizes.grains(bytes));
        let others = (at.0 + 1..self.geo.tiers()).chain((0..at.0).rev());
        let to = others.map(TierId).find(|&t| sizes.take(t, grains))?;
        let Some(slot) = self.slots.take_lowest(to) else {
            sizes.put_back(to, grains);
            return None;
        };
        sizes.put_back(at, was);
        sizes.set_bytes(e, bytes);
        self.slots.put_back(from);
        self.map.rehome(e, slot);
        Some((from, slot))
    }
    /// Frees a slot of `e` at once.
    #[inline]
    pub fn put_back(&mut self, e: UnitId, slot: Slot) {
        let tier = self.geo.tier_of(slot);
        if let Some(r) = &mut self.sizes {
            let grains = r.weight(e);
            r.put_back(tier, grains);
        }
        self.slots.put_back(slot);
    }
    /// Reserves space for `e` on tier `t`; returns false if there is not enough.
    #[inline]
    fn reserve(&mut self, e: UnitId, t: TierId) -> bool {
        match &mut self.sizes {
            None => true,
            Some(r) => {
                let grains = r.weight(e);
                r.take(t, grains)
            }
        }
    }
    /// The class of a unit's data, 0…63, as set by a classifier; 0 if none was set.
    #[inline]
    pub fn class(&self, e: UnitId) -> u8 {
        self.classes.get(e)
    }
    /// The units that have a class, and their classes.
    pub fn classified(&self) -> impl Iterator<Item = (UnitId, u8)> {
        self.classes.iter()
    }
    /// The class of an access: the class `told` of its request, or that of the unit if the request has none.
    #[inline]
    pub fn class_of(&self, told: u8, e: UnitId) -> u8 {
        if told == 0 { self.class(e) } else { told }
    }
    /// Whether a unit has a copy whose blocks' classes are kept.
    pub fn keeps_classes_of(&self, e: UnitId) -> bool {
        let map = &self.map;
        e.0 < self.geo.extents && map.keeps_classes() && map.copy(e).is_some()
    }
    /// Sets the class of a unit. Returns whether the class changed.
    pub fn set_class(&mut self, e: UnitId, class: u8) -> bool {
        if e.0 >= self.geo.extents || self.class(e) == class {
            return false;
        }
        self.classes.set(e, class);
        true
    }
    /// Memory of sizes and classes in bytes.
    pub fn unit_table_bytes(&self) -> usize {
        self.sizes.as_ref().map_or(0, UnitSizes::memory) + self.classes.bytes()
    }
    /// Reserves slot *e* of the slowest tier (counted from that tier's first slot) for extent *e* until its first touch, so that existing
    /// data is in the order of addresses. For an empty volume whose slowest tier has a slot for each extent.
    pub fn keep_own(&mut self) {
        let slow = self.geo.tier_slots(self.geo.slowest());
        let extents = self.geo.extents;
        if slow.len() < extents as usize || self.geo.is_cache() {
            return;
        }
        let mut own = Bits::new(extents as usize);
        for e in 0..extents {
            if self.slots.take(Slot(slow.start + e)) {
                own.set(e as usize);
            }
        }
        self.own = Some(own);
    }
    /// From now on a home on the slowest tier gets the free slot nearest to that at which its address points, or (`false`) the lowest one.
    /// This keeps neighbours together and in order also if they are written in another order or demoted one by one, so that a disk that is
    /// read in order is read at its speed. OODT (III-C) has a weaker rule of its own ([`crate::policy::Policy::beside`]).
    pub fn keep_order(&mut self, on: bool) {
        self.ordered = on && !self.geo.is_cache() && self.sizes.is_none();
    }
    /// The slot of the slowest tier at which the address of an extent points: the extents are spread evenly over the tier if it has fewer
    /// slots than the volume has extents.
    fn preferred(&self, e: UnitId) -> Slot {
        let slow = self.geo.tier_slots(self.geo.slowest());
        let (slots, extents) = (slow.len() as u64, u64::from(self.geo.extents));
        let i = u64::from(e.0) * slots.min(extents) / extents.max(1);
        Slot(slow.start + i as u32)
    }
    /// Allocates a slot for an extent without a home, like [`Space::take_place`], except that the extent's own reserved slot precedes all
    /// others of its tier. If the extent gets another slot, its own slot becomes free.
    pub fn take_home(&mut self, e: ExtentId, place: Place) -> Option<Slot> {
        let target = self.target(place);
        let Some(own) = self.own.as_mut() else {
            return self.take_target(e, target);
        };
        let slowest = self.geo.slowest();
        let first = self.geo.tier_slots(slowest).start;
        let mine = own.get(e.0 as usize).then_some(Slot(first + e.0));
        own.clear(e.0 as usize);
        // A caller may also ask for exactly the slot that is reserved for another extent. Then this caller is responsible for the layout of
        // the tier.
        let exact = match target {
            Target::Exact(s) => s.0.checked_sub(first).filter(|o| *o < self.geo.extents),
            _ => None,
        };
        let anothers = exact.filter(|&o| own.get(o as usize));
        if let Some(o) = anothers {
            own.clear(o as usize);
        }
        let elsewhere = match (target, mine) {
            (Target::Exact(s), Some(mine)) if s == mine => None,
            (Target::Exact(s), _) if anothers.is_some() => Some(s),
            (_, None) => return self.take_target(e, target),
            (Target::Exact(s), _) if s.0 < self.geo.slots() && self.slots.take(s) => Some(s),
            (Target::Tier(t), _) => self.take_above(t, slowest),
            (Target::Exact(s) | Target::Near(s), _) => {
                self.take_above(self.geo.tier_of(s), slowest)
            }
        };
        match (elsewhere, mine) {
            (Some(s), Some(mine)) => {
                self.slots.put_back(mine);
                Some(s)
            }
            (s, mine) => s.or(mine),
        }
    }
    fn take_above(&mut self, t: TierId, end: TierId) -> Option<Slot> {
        (t.0..end.0).find_map(|t| self.slots.take_lowest(TierId(t)))
    }
}

impl Space {
    /// For recovery: derives owners and free slots from the loaded map. The error is an extent whose slot already belongs to another
    /// extent.
    pub fn rebuild(&mut self) -> Result<(), ExtentId> {
        if self.geo.is_cache() {
            return Ok(());
        }
        self.map.rebuild_owners();
        for e in (0..self.map.extents()).map(ExtentId) {
            if self.map.home(e).is_some_and(|s| !self.slots.take(s)) {
                return Err(e);
            }
        }
        Ok(())
    }
    /// Allocates a slot of `tier` for `e`: the first free slot after the home of `beside`, if this is on the same tier, else the lowest
    /// one, or as [`Space::keep_order`] has it.
    #[inline]
    pub fn take_on(&mut self, e: UnitId, tier: TierId, beside: Option<UnitId>) -> Option<Slot> {
        let near = beside.filter(|b| b.0 < self.geo.extents);
        let near = near.and_then(|b| self.map.home(b));
        self.take_near(e, tier, near)
    }
    #[inline]
    fn take_near(&mut self, e: UnitId, tier: TierId, near: Option<Slot>) -> Option<Slot> {
        if !self.reserve(e, tier) {
            return None;
        }
        match near.filter(|&s| s.0 < self.geo.slots() && self.geo.tier_of(s) == tier) {
            Some(s) => self.slots.take_near(s),
            None if self.ordered && tier == self.geo.slowest() => {
                self.slots.take_nearest(self.preferred(e))
            }
            None => self.slots.take_lowest(tier),
        }
    }
    fn target(&self, place: Place) -> Target {
        match place {
            Place::Tier(t) => Target::Tier(t),
            Place::At(position) => Target::Exact(position.slot()),
            Place::Beside(e) => {
                let home = (e.0 < self.geo.extents).then(|| self.map.home(e));
                home.flatten()
                    .map_or(Target::Tier(self.geo.slowest()), Target::Near)
            }
        }
    }
    /// Allocates the slot at `place` for `e`, or the next best one: first on slower tiers, then on faster ones.
    pub fn take_place(&mut self, e: UnitId, place: Place) -> Option<Slot> {
        let target = self.target(place);
        self.take_target(e, target)
    }
    fn take_target(&mut self, e: UnitId, target: Target) -> Option<Slot> {
        let t0 = match target {
            Target::Exact(s) if s.0 < self.geo.slots() && self.take_exactly(e, s) => {
                return Some(s);
            }
            Target::Exact(s) => self.geo.tier_of(s),
            Target::Near(s) => match self.take_near(e, self.geo.tier_of(s), Some(s)) {
                Some(s) => return Some(s),
                None => self.geo.tier_of(s),
            },
            Target::Tier(t) => t,
        };
        let tiers = self.geo.tiers();
        (t0.0..tiers)
            .chain((0..t0.0).rev())
            .find_map(|t| self.take_near(e, TierId(t), None))
    }
    fn take_exactly(&mut self, e: UnitId, s: Slot) -> bool {
        if !self.slots.is_free(s) || !self.reserve(e, self.geo.tier_of(s)) {
            return false;
        }
        self.slots.take(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Member;
    use alloc::vec;

    #[test]
    fn untouched_extents_own_their_slots() {
        let member = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let geo = Geometry::new(16, 12, 6, vec![member(0, 2), member(1, 6)]).unwrap();
        let mut s = Space::new(geo);
        s.keep_own();
        let (fast, slow) = (TierId(0), TierId(1));
        let home = |s: &mut Space, e, place| s.take_home(ExtentId(e), place).map(|s| s.0);
        // Slots 0 and 1 are on the fast tier; slot 2 + e is reserved for extent e.
        assert_eq!(s.slots.free(slow), 0);
        assert_eq!(home(&mut s, 3, Place::Tier(slow)), Some(5));
        assert_eq!(home(&mut s, 0, Place::Tier(fast)), Some(0));
        assert_eq!(home(&mut s, 1, Place::Beside(ExtentId(0))), Some(3));
        assert_eq!(home(&mut s, 5, Place::Tier(fast)), Some(1));
        // The fast tier is full: extent 2 gets its own slot. The slots that were reserved for 0 and 5 are free.
        assert_eq!(home(&mut s, 2, Place::Tier(fast)), Some(4));
        assert_eq!(s.slots.take_lowest(slow), Some(Slot(2)));
        assert_eq!(s.slots.take_lowest(slow), Some(Slot(7)));
        assert_eq!(s.slots.take_lowest(slow), None);
        // After a discard, no slot is reserved for the extent any more.
        s.slots.put_back(Slot(5));
        assert_eq!(home(&mut s, 3, Place::Tier(slow)), Some(5));
        // A caller takes exactly the slot that is reserved for another extent. That extent gets any other slot later, and the caller's own
        // slot becomes free.
        let mut s = Space::new(s.geo.clone());
        s.keep_own();
        assert_eq!(home(&mut s, 0, Place::At(Position::at(6))), Some(6));
        assert_eq!(home(&mut s, 1, Place::At(Position::at(3))), Some(3));
        assert_eq!(home(&mut s, 4, Place::At(Position::at(7))), Some(7));
        assert_eq!(home(&mut s, 5, Place::At(Position::at(4))), Some(4));
        assert_eq!(home(&mut s, 2, Place::Tier(slow)), Some(2));
    }
}
