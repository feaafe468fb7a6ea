//! The rows of a tiering volume: for each extent its place, for each fast slot its extent.

use super::rows::Row;
use super::{NO_OWNER, UNMAPPED};
use crate::volume::geometry::Geometry;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct ByExtent {
    /// By extent: the slot of its copy, or of its home if it has no copy.
    pub(super) rows: Vec<Row>,
    /// By slot of the faster tiers: its extent.
    pub(super) owner: Vec<u32>,
    /// For each of these slots that contains a copy: the home of its extent. The list is empty until the first copy, so that tiering does
    /// not need memory for it.
    copies: Vec<u32>,
}

impl ByExtent {
    pub(super) fn new(geo: &Geometry) -> ByExtent {
        ByExtent {
            rows: vec![Row::EMPTY; geo.extents as usize],
            owner: vec![NO_OWNER; geo.tier_slots(geo.slowest()).start as usize],
            copies: Vec::new(),
        }
    }
    /// The home in the entry of slot `place`, if that slot holds a copy.
    #[inline]
    pub(super) fn home_of_copy_in(&self, place: u32) -> Option<u32> {
        let home = *self.copies.get(place as usize)?;
        (home != UNMAPPED).then_some(home)
    }
    #[inline]
    pub(super) fn home(&self, e: u32) -> u32 {
        let place = self.rows[e as usize].place;
        self.home_of_copy_in(place).unwrap_or(place)
    }
    #[inline]
    pub(super) fn copy(&self, e: u32) -> Option<u32> {
        let place = self.rows[e as usize].place;
        self.home_of_copy_in(place).map(|_| place)
    }
    pub(super) fn add_copy(&mut self, e: u32, slot: u32) {
        if self.copies.is_empty() {
            self.copies = vec![UNMAPPED; self.owner.len()];
        }
        let place = &mut self.rows[e as usize].place;
        assert!(*place != UNMAPPED, "a copy of nothing");
        self.copies[slot as usize] = *place;
        *place = slot;
        self.own(slot, e);
    }
    pub(super) fn drop_copy(&mut self, e: u32, slot: u32) {
        let home = core::mem::replace(&mut self.copies[slot as usize], UNMAPPED);
        self.rows[e as usize].place = home;
        self.own(slot, NO_OWNER);
    }
    /// Sets the home of an extent without a copy, or removes it ([`UNMAPPED`]), with its owner in the slots.
    pub(super) fn set_home(&mut self, e: u32, to: u32) {
        let from = core::mem::replace(&mut self.rows[e as usize].place, to);
        self.own(from, NO_OWNER);
        self.own(to, e);
    }
    /// Derives slot → extent from the rows.
    pub(super) fn rebuild_owners(&mut self) {
        for e in 0..self.rows.len() as u32 {
            self.own(self.home(e), e);
        }
    }
    fn own(&mut self, slot: u32, e: u32) {
        if let Some(o) = self.owner.get_mut(slot as usize) {
            *o = e;
        }
    }
    pub(super) fn bytes(&self) -> usize {
        self.rows.len() * size_of::<Row>() + (self.owner.len() + self.copies.len()) * 4
    }
    pub(super) fn estimate(geo: &Geometry) -> (u64, u64) {
        let fast = u64::from(geo.tier_slots(geo.slowest()).start);
        let rows = u64::from(geo.extents) * size_of::<Row>() as u64;
        (rows + fast * 4, fast * 4)
    }
    pub(super) fn tables(&self) -> [(usize, usize); 2] {
        [
            (self.rows.as_ptr().addr(), size_of_val(&*self.rows)),
            (self.owner.as_ptr().addr(), size_of_val(&*self.owner)),
        ]
    }
}
