//! Shape, map, free slots and in-flight counts together, and the allocator over them.

use super::{ExtentMap, Geometry, Pins, Seat, Slots, UnitId};
use crate::bits::Bits;
use crate::load::Loads;
use crate::units::{ExtentId, Slot, TierId};

/// Where a unit should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Lowest free slot of this tier, else of the tiers below it, else of those above.
    Tier(TierId),
    /// Exactly this seat.
    At(Seat),
    /// The free slot of the tier of this unit's home that follows that home most closely, else as [`Place::Tier`]; without a
    /// home, the slowest tier.
    Beside(UnitId),
}

/// A [`Place`] in slots.
#[derive(Clone, Copy, Debug)]
enum Target {
    Tier(TierId),
    Exact(Slot),
    Near(Slot),
}

/// Shape, map, free slots and in-flight counts: what engine and policies look at together.
#[derive(Clone, Debug)]
pub struct Space {
    /// Shape.
    pub geo: Geometry,
    /// Extent → home.
    pub map: ExtentMap,
    /// Free slots.
    pub slots: Slots,
    /// In-flight counts.
    pub pins: Pins,
    /// What tiers cost, and what goes on on them.
    pub loads: Loads,
    /// Slots kept for the first touch of their extents, where there are such ([`Space::keep_own`]).
    own: Option<Bits>,
}

impl Space {
    /// An empty volume of that shape.
    pub fn new(geo: Geometry) -> Space {
        Space {
            map: ExtentMap::new(&geo),
            slots: Slots::new(&geo),
            // Small, so that it stays in the nearest cache; it grows once to what is in flight.
            pins: Pins::new(32),
            own: None,
            loads: Loads::new(&geo),
            geo,
        }
    }
    /// Until its first touch, extent *e* owns slot *e* of the slowest tier, counted from that tier's first: what was there
    /// before anybody looked lies in the order of addresses. For an empty volume whose slowest tier has a slot for each extent.
    pub fn keep_own(&mut self) {
        let slow = self.geo.tier_slots(self.geo.slowest());
        let extents = self.geo.extents;
        if slow.len() < extents as usize {
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
    /// Hand out a slot for an extent without home: as [`Space::take_place`], except that the extent's own slot goes
    /// before any other of its tier. The own slot of one that begins elsewhere is free from then on.
    pub fn take_home(&mut self, e: ExtentId, place: Place) -> Option<Slot> {
        let target = self.target(place);
        let Some(own) = self.own.as_mut() else {
            return self.take_target(target);
        };
        let slowest = self.geo.slowest();
        let first = self.geo.tier_slots(slowest).start;
        let mine = own.get(e.0 as usize).then_some(Slot(first + e.0));
        own.clear(e.0 as usize);
        // Who asks for exactly a slot that another extent would own lays out the tier himself.
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
            (_, None) => return self.take_target(target),
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
    /// For recovery: owners and free slots from the loaded map. Err names an extent whose slot is another's already.
    pub fn rebuild(&mut self) -> Result<(), ExtentId> {
        self.map.rebuild_owners();
        for e in (0..self.map.extents()).map(ExtentId) {
            if self.map.home(e).is_some_and(|s| !self.slots.take(s)) {
                return Err(e);
            }
        }
        Ok(())
    }
    /// Hand out a slot of `tier` for the home of a unit: the free one that follows the home of `beside` most closely, where that is
    /// on the tier, else the lowest.
    pub fn take_on(&mut self, tier: TierId, beside: Option<UnitId>) -> Option<Slot> {
        let near = beside.filter(|e| e.0 < self.geo.extents);
        let near = near.and_then(|e| self.map.home(e));
        self.take_near(tier, near)
    }
    fn take_near(&mut self, tier: TierId, near: Option<Slot>) -> Option<Slot> {
        match near.filter(|&s| s.0 < self.geo.slots() && self.geo.tier_of(s) == tier) {
            Some(s) => self.slots.take_near(s),
            None => self.slots.take_lowest(tier),
        }
    }
    fn target(&self, place: Place) -> Target {
        match place {
            Place::Tier(t) => Target::Tier(t),
            Place::At(seat) => Target::Exact(seat.slot()),
            Place::Beside(e) => {
                let home = (e.0 < self.geo.extents).then(|| self.map.home(e));
                home.flatten()
                    .map_or(Target::Tier(self.geo.slowest()), Target::Near)
            }
        }
    }
    /// Hand out the slot that `place` names, or the next best: lower tiers first, then faster ones.
    pub fn take_place(&mut self, place: Place) -> Option<Slot> {
        let target = self.target(place);
        self.take_target(target)
    }
    fn take_target(&mut self, target: Target) -> Option<Slot> {
        let t0 = match target {
            Target::Exact(s) if s.0 < self.geo.slots() && self.slots.take(s) => return Some(s),
            Target::Exact(s) => self.geo.tier_of(s),
            Target::Near(s) => match self.take_near(self.geo.tier_of(s), Some(s)) {
                Some(s) => return Some(s),
                None => self.geo.tier_of(s),
            },
            Target::Tier(t) => t,
        };
        let tiers = self.geo.tiers();
        (t0.0..tiers)
            .chain((0..t0.0).rev())
            .find_map(|t| self.slots.take_lowest(TierId(t)))
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
        };
        let geo = Geometry::new(16, 12, 6, vec![member(0, 2), member(1, 6)]).unwrap();
        let mut s = Space::new(geo);
        s.keep_own();
        let (fast, slow) = (TierId(0), TierId(1));
        let home = |s: &mut Space, e, place| s.take_home(ExtentId(e), place).map(|s| s.0);
        // Slots 0 and 1 are fast; extent e owns slot 2 + e.
        assert_eq!(s.slots.free(slow), 0);
        assert_eq!(home(&mut s, 3, Place::Tier(slow)), Some(5));
        assert_eq!(home(&mut s, 0, Place::Tier(fast)), Some(0));
        assert_eq!(home(&mut s, 1, Place::Beside(ExtentId(0))), Some(3));
        assert_eq!(home(&mut s, 5, Place::Tier(fast)), Some(1));
        // Full: extent 2 stays where it is, and what 0 and 5 left behind is free.
        assert_eq!(home(&mut s, 2, Place::Tier(fast)), Some(4));
        assert_eq!(s.slots.take_lowest(slow), Some(Slot(2)));
        assert_eq!(s.slots.take_lowest(slow), Some(Slot(7)));
        assert_eq!(s.slots.take_lowest(slow), None);
        // Home again after a discard: like any other extent.
        s.slots.put_back(Slot(5));
        assert_eq!(home(&mut s, 3, Place::Tier(slow)), Some(5));
        // Exactly another's slot: that one goes without later, and its own is free.
        let mut s = Space::new(s.geo.clone());
        s.keep_own();
        assert_eq!(home(&mut s, 0, Place::At(Seat::at(6))), Some(6));
        assert_eq!(home(&mut s, 1, Place::At(Seat::at(3))), Some(3));
        assert_eq!(home(&mut s, 4, Place::At(Seat::at(7))), Some(7));
        assert_eq!(home(&mut s, 5, Place::At(Seat::at(4))), Some(4));
        assert_eq!(home(&mut s, 2, Place::Tier(slow)), Some(2));
    }
}
