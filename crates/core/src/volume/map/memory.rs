//! The memory that the map needs.

use super::classes::Classes;
use super::rows::Rows;
use super::{ExtentMap, Valid};
use crate::volume::geometry::Geometry;

impl ExtentMap {
    /// Bytes of a map of a volume of this geometry. The first number is for a map without partly valid extents and copies. The second is for
    /// the largest number of partly valid extents and a copy in each slot of the faster tiers.
    pub fn estimate(geo: &Geometry) -> (u64, u64) {
        let may_be_partial = u64::from(ExtentMap::may_be_partial(geo));
        let blocks_per_extent = geo.blocks_per_extent().into();
        let fast = u64::from(geo.tier_slots(geo.slowest()).start);
        let (least, most) = Valid::estimate(may_be_partial, blocks_per_extent);
        let (rows, more) = Rows::estimate(geo);
        let by_state = (fast / 8 + fast / 8 / 63) * 2;
        let copies = more + fast / 8 * 3 + by_state + fast * blocks_per_extent / 8 * 2;
        let copies = copies + Classes::estimate(fast, blocks_per_extent);
        let rows = rows + may_be_partial / 8;
        (rows + least, rows + most + copies)
    }
    /// Address and size of the large tables (rows, and reverse map or index), so that the world can choose the pages for this memory.
    pub fn tables(&self) -> [(usize, usize); 2] {
        self.rows.tables()
    }
    /// Memory in bytes, in two parts: rows with their index or reverse map, and marks; bitmaps of valid and dirty blocks, and classes of copies.
    pub fn bytes(&self) -> (usize, usize) {
        (
            self.rows.bytes()
                + self.partial.bits.bytes()
                + self.held.bytes()
                + self.dirty_slots.bytes(),
            self.valid.bytes()
                + self.bits.bytes()
                + self.claims.bytes()
                + self.by_state.bytes()
                + self.classes.bytes(),
        )
    }
}
