//! The rows of the map, which differ between the two kinds of volumes: by extent, or by fast slot.

use super::by_copy::ByCopy;
use super::by_extent::ByExtent;
use super::{NO_OWNER, UNMAPPED};
use crate::units::Nanos;
use crate::volume::geometry::Geometry;

/// What the map keeps of an extent beside its places: the time of its last access (48-bit microseconds), and 16 bits for the policy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stats {
    last_low: u32,
    last_high: u16,
    pub(super) stat: u16,
}

impl Stats {
    /// Microseconds of the last access.
    #[inline]
    pub(super) fn last_us(self) -> u64 {
        u64::from(self.last_low) | u64::from(self.last_high) << 32
    }
    #[inline]
    pub(super) fn last(self) -> Nanos {
        Nanos::from_micros(self.last_us())
    }
    #[inline]
    pub(super) fn set_last(&mut self, t: Nanos) {
        let us = t.0 / 1000;
        self.last_low = us as u32;
        self.last_high = (us >> 32) as u16;
    }
}

/// A row: the place of an extent, or the extent in a place; and the extent's statistics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) place: u32,
    pub(super) stats: Stats,
}

impl Row {
    pub(super) const EMPTY: Row = Row {
        place: UNMAPPED,
        stats: Stats {
            last_low: 0,
            last_high: 0,
            stat: 0,
        },
    };
}

/// See the module. Slots and extents are numbers here; [`UNMAPPED`] is none.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// A tiering volume has a row for each extent.
    Extents(ByExtent),
    /// A cache volume has a row for each fast slot, and an index of the copies.
    Copies(ByCopy),
}

impl Rows {
    pub(super) fn new(geo: &Geometry, past_floor: u32) -> Rows {
        if geo.is_cache() {
            Rows::Copies(ByCopy::new(geo, past_floor))
        } else {
            Rows::Extents(ByExtent::new(geo))
        }
    }
    /// Number of slots of the faster tiers.
    pub(super) fn fast(&self) -> usize {
        match self {
            Rows::Extents(r) => r.owner.len(),
            Rows::Copies(r) => r.rows.len(),
        }
    }
    pub(super) fn extents(&self) -> u32 {
        match self {
            Rows::Extents(r) => r.rows.len() as u32,
            Rows::Copies(r) => r.extents,
        }
    }
    /// The slot of the copy.
    #[inline]
    pub(super) fn copy(&self, e: u32) -> Option<u32> {
        match self {
            Rows::Extents(r) => r.copy(e),
            Rows::Copies(r) => r.copy(e),
        }
    }
    /// The slot of the home, or [`UNMAPPED`].
    #[inline]
    pub(super) fn home(&self, e: u32) -> u32 {
        match self {
            Rows::Extents(r) => r.home(e),
            Rows::Copies(r) => r.home(e),
        }
    }
    /// The slot of the copy, or of the home if there is no copy, or [`UNMAPPED`].
    #[inline]
    pub(super) fn fastest(&self, e: u32) -> u32 {
        match self {
            Rows::Extents(r) => r.rows[e as usize].place,
            Rows::Copies(r) => r.copy(e).unwrap_or_else(|| r.home(e)),
        }
    }
    /// The home of the extent whose copy is in a slot.
    #[inline]
    pub(super) fn home_of_copy_in(&self, slot: u32) -> Option<u32> {
        match self {
            Rows::Extents(r) => r.home_of_copy_in(slot),
            Rows::Copies(r) => r.owner(slot).map(|e| r.home(e)),
        }
    }
    /// The extent whose home or copy is in a fast slot.
    #[inline]
    pub(super) fn owner(&self, slot: u32) -> Option<u32> {
        match self {
            Rows::Extents(r) => r
                .owner
                .get(slot as usize)
                .copied()
                .filter(|e| *e != NO_OWNER),
            Rows::Copies(r) => r.owner(slot),
        }
    }
    /// Gives an extent without a copy, but with a home, a copy in a free slot.
    pub(super) fn add_copy(&mut self, e: u32, slot: u32) {
        match self {
            Rows::Extents(r) => r.add_copy(e, slot),
            Rows::Copies(r) => r.add_copy(e, slot),
        }
    }
    /// Removes the copy of an extent, which is in this slot.
    pub(super) fn drop_copy(&mut self, e: u32, slot: u32) {
        match self {
            Rows::Extents(r) => r.drop_copy(e, slot),
            Rows::Copies(r) => r.drop_copy(e, slot),
        }
    }
    /// The statistics of an extent, as far as they are known.
    #[inline]
    pub(super) fn stats(&self, e: u32) -> Stats {
        match self {
            Rows::Extents(r) => r.rows[e as usize].stats,
            Rows::Copies(r) => r.stats(e),
        }
    }
    #[inline]
    pub(super) fn set_last(&mut self, e: u32, t: Nanos) {
        match self {
            Rows::Extents(r) => r.rows[e as usize].stats.set_last(t),
            Rows::Copies(r) => r.set_last(e, t),
        }
    }
    #[inline]
    pub(super) fn set_stat(&mut self, e: u32, v: u16) {
        match self {
            Rows::Extents(r) => r.rows[e as usize].stats.stat = v,
            Rows::Copies(r) => r.set_stat(e, v),
        }
    }
    /// Clears the policy's bits of all extents.
    pub(super) fn forget_stats(&mut self) {
        match self {
            Rows::Extents(r) => r.rows.iter_mut().for_each(|r| r.stats.stat = 0),
            Rows::Copies(r) => r.forget_stats(),
        }
    }
    /// Clears the statistics of an extent.
    pub(super) fn forget(&mut self, e: u32) {
        match self {
            Rows::Extents(r) => r.rows[e as usize].stats = Stats::default(),
            Rows::Copies(r) => r.forget(e),
        }
    }
    /// The rows by extent, for functions of tiering volumes.
    ///
    /// # Panics
    /// In a cache volume, whose homes follow from addresses.
    #[inline]
    pub(super) fn homes(&mut self) -> &mut ByExtent {
        match self {
            Rows::Extents(r) => r,
            Rows::Copies(_) => panic!("a home that follows from the address"),
        }
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Rows::Extents(r) => r.bytes(),
            Rows::Copies(r) => r.bytes(),
        }
    }
    /// Memory without copies, and what a copy in each fast slot adds, in bytes.
    pub(super) fn estimate(geo: &Geometry) -> (u64, u64) {
        if geo.is_cache() {
            ByCopy::estimate(geo)
        } else {
            ByExtent::estimate(geo)
        }
    }
    /// Address and size of the two large tables.
    pub(super) fn tables(&self) -> [(usize, usize); 2] {
        match self {
            Rows::Extents(r) => r.tables(),
            Rows::Copies(r) => r.tables(),
        }
    }
}
