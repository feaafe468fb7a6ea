//! The memory that the map needs.

use super::classes::Classes;
use super::{ExtentMap, Row, Valid};
use crate::volume::geometry::Geometry;

impl ExtentMap {
    /// Bytes of a map of a volume of this geometry. The first number is for a map without partly valid extents and copies. The second is for
    /// the largest number of partly valid extents and a copy in each slot of the faster tiers.
    pub fn estimate(geo: &Geometry) -> (u64, u64) {
        let (extents, blocks_per_extent) = (u64::from(geo.extents), geo.blocks_per_extent().into());
        let fast = u64::from(geo.tier_slots(geo.slowest()).start);
        let (least, most) =
            Valid::estimate(ExtentMap::may_be_partial(geo).into(), blocks_per_extent);
        let rows = extents * size_of::<Row>() as u64 + extents / 8 * 2 + fast * 4;
        let by_state = (fast / 8 + fast / 8 / 63) * 2;
        let copies = fast * 4 + fast / 8 * 2 + by_state + fast * blocks_per_extent / 8 * 2;
        let copies = copies + Classes::estimate(fast, blocks_per_extent);
        (rows + least, rows + most + copies)
    }
    /// Address and size of the large tables (rows and reverse map), so that the world can choose the pages for this memory.
    pub fn tables(&self) -> [(usize, usize); 2] {
        [
            (self.rows.as_ptr().addr(), size_of_val(&*self.rows)),
            (self.owner.as_ptr().addr(), size_of_val(&*self.owner)),
        ]
    }
    /// Memory in bytes, in two parts: rows, reverse map and marks; bitmaps of valid and dirty blocks, and classes of copies.
    pub fn bytes(&self) -> (usize, usize) {
        (
            self.rows.len() * size_of::<Row>()
                + (self.owner.len() + self.copies.len()) * 4
                + self.partial.bits.bytes()
                + self.held.bits.bytes()
                + self.dirty_slots.bytes(),
            self.valid.bytes() + self.bits.bytes() + self.by_state.bytes() + self.classes.bytes(),
        )
    }
}
