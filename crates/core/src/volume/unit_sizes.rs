//! Units of unequal sizes: the bytes of each unit, and the space that it takes on a tier.
//!
//! Space is counted in *grains*. A unit takes the number of grains that its bytes fill, and at least one. Where these grains are does not
//! matter, because the file systems below allocate the real space. So a tier never has more units than grains. A table with one entry per
//! grain has an entry for the position of each unit, and policies that keep tables by position work unchanged. On a block volume every unit
//! is an extent and takes one grain, which is a slot; this module is not used there.

use super::geometry::TIERS_MAX;
use crate::units::{ExtentId, TierId};
use alloc::vec;
use alloc::vec::Vec;

/// log2 of the size of the address space of a unit: 1 TiB. The address of a request is the unit's number times this size, plus the offset
/// in the unit.
pub const SPAN_SHIFT: u32 = 40;
/// Largest number of units, so that addresses fit into 64 bits.
pub const UNITS_MAX: u32 = 1 << (64 - SPAN_SHIFT);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct UnitSizes {
    grain_shift: u32,
    bytes: Vec<u64>,
    free: [u32; TIERS_MAX],
}

impl UnitSizes {
    /// The state of a store without any bytes in its `units` units, and with `free` grains per tier.
    pub(super) fn new(grain_shift: u32, units: u32, free: [u32; TIERS_MAX]) -> UnitSizes {
        UnitSizes {
            grain_shift,
            bytes: vec![0; units as usize],
            free,
        }
    }
    pub(super) fn bytes_of(&self, e: ExtentId) -> u64 {
        self.bytes.get(e.0 as usize).copied().unwrap_or(0)
    }
    pub(super) fn set_bytes(&mut self, e: ExtentId, bytes: u64) {
        self.bytes[e.0 as usize] = bytes;
    }
    /// The number of grains for `bytes` bytes.
    pub(super) fn grains(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(1 << self.grain_shift).max(1)).unwrap_or(u32::MAX)
    }
    pub(super) fn weight(&self, e: ExtentId) -> u32 {
        self.grains(self.bytes_of(e))
    }
    pub(super) fn free(&self, t: TierId) -> u32 {
        self.free[usize::from(t.0)]
    }
    /// Takes `grains` of a tier; returns false if there are not enough.
    pub(super) fn take(&mut self, t: TierId, grains: u32) -> bool {
        let free = &mut self.free[usize::from(t.0)];
        let enough = *free >= grains;
        *free -= if enough { grains } else { 0 };
        enough
    }
    pub(super) fn put_back(&mut self, t: TierId, grains: u32) {
        self.free[usize::from(t.0)] += grains;
    }
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() * 8
    }
}
