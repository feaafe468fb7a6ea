//! A quota: a part of a volume that looks like a separate, small volume.
//!
//! It has a number of positions on the fastest tier and all of the slower tiers. Its positions are independent of the slots that the units
//! have on the real volume. It knows only the units that belong to it; all other units have no home in it. So a policy whose view is a
//! quota cannot see, count or request more than this part.

use super::{Geometry, Member, Place, Position, Space, UnitId};
use crate::units::{Slot, TierId};
use alloc::vec::Vec;

const FAST: TierId = TierId(0);

/// See the module.
#[derive(Clone, Debug)]
pub struct Quota {
    space: Space,
    grains: u32,
}

impl Quota {
    /// Creates a quota of `grains` grains of the fastest tier of `whole`, without any units. With 0 grains there is still one position,
    /// which is never allocated.
    ///
    /// # Panics
    /// Never: the shape is that of a volume, with a smaller first tier.
    pub fn of(whole: &Space, grains: u32) -> Quota {
        let geo = &whole.geo;
        let slots = |t| geo.tier_slots(TierId(t)).len() as u32;
        let sizes = (0..geo.tiers()).map(|t| if t == 0 { grains.max(1) } else { slots(t) });
        let space = if whole.is_of_units() {
            let bytes: Vec<u64> = sizes.map(|n| u64::from(n) << geo.extent_shift).collect();
            Space::of_units(&bytes, geo.extent_shift, geo.extents)
        } else {
            let member = |(t, slots)| Member {
                tier: TierId(t as u8),
                first_slot: 0,
                slots,
                data_offset: 0,
                stash: crate::geometry::Stash::default(),
            };
            let members = sizes.enumerate().map(member).collect();
            // `Geometry::new` refuses more extents than slots. So the geometry is created with fewer extents, and gets the volume's number
            // of extents afterwards.
            let fits = slots(geo.slowest().0).saturating_add(grains.max(1));
            let units = geo.extents;
            Geometry::new(
                geo.extent_shift,
                geo.block_shift,
                units.min(fits.max(1)),
                members,
            )
            .map(|mut small| {
                small.extents = units;
                Space::new(small)
            })
        };
        Quota {
            space: space.expect("a smaller first tier keeps a shape valid"),
            grains,
        }
    }
    /// The small volume, for a view of it.
    pub(crate) fn space(&mut self) -> &mut Space {
        &mut self.space
    }
    /// Number of grains of the fastest tier that the quota may use.
    pub fn grains(&self) -> u32 {
        self.grains
    }
    /// Number of grains that are in use.
    pub fn used(&self) -> u32 {
        let all = self.space.geo.tier_slots(FAST).len() as u32;
        all - self.space.free(FAST)
    }
    /// Number of grains that are still free.
    pub fn free(&self) -> u32 {
        self.grains.saturating_sub(self.used())
    }
    /// Position of a unit's home in the quota.
    pub fn home(&self, e: UnitId) -> Option<Position> {
        self.space.map.home(e).map(Position::from)
    }
    /// Position of a unit's copy in the quota.
    pub fn copy(&self, e: UnitId) -> Option<Position> {
        self.space.map.copy(e).map(Position::from)
    }
    fn weight(&self, e: UnitId) -> u32 {
        self.space.weight(e)
    }
    /// The tier on which a unit would be if it were placed at `place` now.
    pub fn tier_for(&self, e: UnitId, place: Place) -> TierId {
        let slowest = self.space.geo.slowest();
        let t = match place {
            Place::Tier(t) => t,
            Place::At(position) => self.space.geo.tier_of(position.slot()),
            Place::Beside(u) => self
                .home(u)
                .map_or(slowest, |s| self.space.geo.tier_of(s.slot())),
        };
        if t == FAST && self.free() < self.weight(e) {
            TierId(1).min(slowest)
        } else {
            t
        }
    }
    /// Sets the size of a unit that is added or changes its size. It has neither a home nor a copy here.
    pub fn resize(&mut self, e: UnitId, bytes: u64) {
        if self.space.is_of_units() {
            self.space.set_bytes(e, bytes);
        }
    }
    /// Places the home of a unit on `tier`, as on the real volume, and returns its position here. If the fastest tier of the quota has no
    /// room, the position is on the slowest tier and the flag is false.
    pub fn place(&mut self, e: UnitId, tier: TierId) -> (Option<Position>, bool) {
        self.unplace(e);
        let fits = tier != FAST || self.free() >= self.weight(e);
        let on = if fits { tier } else { self.space.geo.slowest() };
        let slot = self.space.take_on(e, on, None);
        if let Some(s) = slot {
            self.space.map.map(e, s, false);
        }
        (slot.map(Position::from), fits && slot.is_some())
    }
    /// Removes a unit's home. Returns its former position.
    pub fn unplace(&mut self, e: UnitId) -> Option<Position> {
        let slot: Slot = self.space.map.home(e)?;
        self.space.map.unmap(e);
        self.space.put_back(e, slot);
        Some(slot.into())
    }
    /// Adds a copy of a unit on the fastest tier. Returns its position, if there is room.
    pub fn add_copy(&mut self, e: UnitId) -> Option<Position> {
        if self.free() < self.weight(e) || self.space.map.copy(e).is_some() {
            return None;
        }
        let slot = self.space.take_on(e, FAST, None)?;
        self.space.map.add_copy(e, slot);
        Some(slot.into())
    }
    /// Removes a unit's copy. Returns its former position.
    pub fn drop_copy(&mut self, e: UnitId) -> Option<Position> {
        let (slot, _) = self.space.map.drop_copy(e)?;
        self.space.put_back(e, slot);
        Some(slot.into())
    }
    /// Takes over the state of a unit on the real volume: whether its copy is dirty, and whether it is held.
    pub fn sync(&mut self, e: UnitId, dirty: bool, held: bool) {
        if self.space.map.copy(e).is_some() && self.space.map.is_dirty(e) != dirty {
            self.space.map.set_dirty(e, dirty);
        }
        self.space.map.hold(e, held);
    }
    /// Removes all state of a unit.
    pub fn forget(&mut self, e: UnitId) {
        self.space.map.forget(e);
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.space.map.bytes().0 + self.space.slots.bytes() + self.space.unit_table_bytes()
    }
}
