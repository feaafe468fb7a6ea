//! What a policy may see.

use super::Place;
use crate::bits::Bits;
use crate::geometry::Geometry;
use crate::map::ExtentMap;
use crate::pins::Pins;
use crate::slots::Slots;
use crate::units::{ExtentId, Nanos, Slot, TierId};

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
        let Some(own) = self.own.as_mut() else {
            return self.take_place(place);
        };
        let slowest = self.geo.slowest();
        let first = self.geo.tier_slots(slowest).start;
        let mine = own.get(e.0 as usize).then_some(Slot(first + e.0));
        own.clear(e.0 as usize);
        // Who asks for exactly a slot that another extent would own lays out the tier himself.
        let exact = match place {
            Place::Exact(s) => s.0.checked_sub(first).filter(|o| *o < self.geo.extents),
            _ => None,
        };
        let anothers = exact.filter(|&o| own.get(o as usize));
        if let Some(o) = anothers {
            own.clear(o as usize);
        }
        let elsewhere = match (place, mine) {
            (Place::Exact(s), Some(mine)) if s == mine => None,
            (Place::Exact(s), _) if anothers.is_some() => Some(s),
            (_, None) => return self.take_place(place),
            (Place::Exact(s), _) if s.0 < self.geo.slots() && self.slots.take(s) => Some(s),
            (Place::Tier(t), _) => self.take_above(t, slowest),
            (Place::Exact(s) | Place::Near(s), _) => self.take_above(self.geo.tier_of(s), slowest),
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
}

/// The volume as a policy sees it: everything readable, and only the policy's own statistics writable.
pub struct View<'a> {
    space: &'a mut Space,
    now: Nanos,
    moves: u32,
    metadata_flushing: bool,
    budget: u32,
}

impl<'a> View<'a> {
    /// A view of `space` at `now`, with `moves` under way and at most `budget` slots to scan in this call.
    pub fn new(
        space: &'a mut Space,
        now: Nanos,
        moves: u32,
        metadata_flushing: bool,
        budget: u32,
    ) -> View<'a> {
        View {
            space,
            now,
            moves,
            metadata_flushing,
            budget,
        }
    }
    /// Slots that may still be looked at in this call. A long scan goes on at the next tick, so that it never stalls
    /// I/O; in hit-only runs there is no limit.
    pub fn budget(&mut self) -> &mut u32 {
        &mut self.budget
    }
    /// Engine time.
    pub fn now(&self) -> Nanos {
        self.now
    }
    /// Shape.
    pub fn geo(&self) -> &Geometry {
        &self.space.geo
    }
    /// Home of an extent.
    pub fn home(&self, e: ExtentId) -> Option<Slot> {
        self.space.map.home(e)
    }
    /// Slot of an extent's copy.
    pub fn copy(&self, e: ExtentId) -> Option<Slot> {
        self.space.map.copy(e)
    }
    /// Does the copy hold data that the home does not?
    pub fn is_dirty(&self, e: ExtentId) -> bool {
        self.space.map.is_dirty(e)
    }
    /// The extent whose home or copy is in a slot of a tier other than the slowest.
    pub fn owner(&self, s: Slot) -> Option<ExtentId> {
        self.space.map.owner(s)
    }
    /// Tier of a slot.
    pub fn tier_of(&self, s: Slot) -> TierId {
        self.space.geo.tier_of(s)
    }
    /// Slots of a tier that can be handed out now.
    pub fn free(&self, t: TierId) -> u32 {
        self.space.slots.free(t)
    }
    /// Slots of a tier that are on their way to be free.
    pub fn freeing(&self, t: TierId) -> u32 {
        self.space.slots.freeing(t)
    }
    /// Is something (a move, a waiting request) going on with this extent?
    pub fn is_held(&self, e: ExtentId) -> bool {
        self.space.map.is_held(e)
    }
    /// Requests in flight on an extent's home and copy (GreenDM 6.1.6).
    pub fn in_flight(&self, e: ExtentId) -> u32 {
        let on = |s: Option<Slot>| {
            s.map_or(0, |s| {
                let (r, w) = self.space.pins.count(s);
                r + w
            })
        };
        on(self.home(e)) + on(self.copy(e))
    }
    /// Moves that read or write just now; those that only wait for their record do not count.
    pub fn moves(&self) -> u32 {
        self.moves
    }
    /// Is the engine writing metadata just now (GreenDM 6.1.3, cancel condition 2)?
    pub fn metadata_flushing(&self) -> bool {
        self.metadata_flushing
    }
    /// Time of the last access.
    pub fn last(&self, e: ExtentId) -> Nanos {
        self.space.map.last(e)
    }
    /// Note an access at `t`.
    pub fn set_last(&mut self, e: ExtentId, t: Nanos) {
        self.space.map.set_last(e, t);
    }
    /// The policy's 16 bits.
    pub fn stat(&self, e: ExtentId) -> u16 {
        self.space.map.stat(e)
    }
    /// Set the policy's 16 bits.
    pub fn set_stat(&mut self, e: ExtentId, v: u16) {
        self.space.map.set_stat(e, v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Member;
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
        assert_eq!(home(&mut s, 1, Place::Near(Slot(2))), Some(3));
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
        assert_eq!(home(&mut s, 0, Place::Exact(Slot(6))), Some(6));
        assert_eq!(home(&mut s, 1, Place::Exact(Slot(3))), Some(3));
        assert_eq!(home(&mut s, 4, Place::Exact(Slot(7))), Some(7));
        assert_eq!(home(&mut s, 5, Place::Exact(Slot(4))), Some(4));
        assert_eq!(home(&mut s, 2, Place::Tier(slow)), Some(2));
    }
}
