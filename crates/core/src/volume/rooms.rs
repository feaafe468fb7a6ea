//! Units of unequal sizes: how many bytes each has, and how much room its size takes of a tier.
//!
//! Room is counted in *grains*. A unit takes as many as its bytes fill, at least one, wherever they are: a store of files has an
//! allocator of its own below. So a tier never holds more units than it has grains, and a table with one entry a grain has a
//! seat for each of them: what policies keep by seat works unchanged. On a block volume every unit is an extent and takes
//! one grain, a slot; there is none of this there.

use super::geometry::TIERS_MAX;
use crate::units::{ExtentId, TierId};
use alloc::vec;
use alloc::vec::Vec;

/// log2 of the bytes of a unit's own address space: 1 TiB. Requests are told at the unit's number times this.
pub const SPAN_SHIFT: u32 = 40;
/// Units at most, so that addresses fit 64 bits.
pub const UNITS_MAX: u32 = 1 << (64 - SPAN_SHIFT);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Rooms {
    grain_shift: u32,
    bytes: Vec<u64>,
    free: [u32; TIERS_MAX],
}

impl Rooms {
    /// Nobody anywhere; `free` grains a tier.
    pub(super) fn new(grain_shift: u32, units: u32, free: [u32; TIERS_MAX]) -> Rooms {
        Rooms {
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
    /// Grains that so many bytes take.
    pub(super) fn grains(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(1 << self.grain_shift).max(1)).unwrap_or(u32::MAX)
    }
    pub(super) fn weight(&self, e: ExtentId) -> u32 {
        self.grains(self.bytes_of(e))
    }
    pub(super) fn free(&self, t: TierId) -> u32 {
        self.free[usize::from(t.0)]
    }
    /// Take `grains` of a tier; false if there are not so many.
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
