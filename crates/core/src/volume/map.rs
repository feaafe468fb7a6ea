//! The extent map: for each extent its home and its copy, and the statistics of the extent.
//!
//! In a *tiering volume* there is a row for each extent (`by_extent.rs`). A row has 12 bytes, so that an access touches one cache line. With
//! the reverse map (4 bytes per slot of the faster tiers) a fully mapped volume takes 13 bytes per extent if a quarter is fast; the limit is
//! 16. The valid blocks of a partly written extent are in a separate bit set, which is read only for extents that are marked partial.
//!
//! In a *cache volume* each extent has its home from the start ([`Geometry::home`]), with all blocks valid: what was never written reads as
//! the device holds it. The map then only states copies (`by_copy.rs`): a row of 12 bytes for each slot of the faster tiers, and 5 bytes for
//! the index that finds the row of an extent. An extent without a copy takes nothing.

mod by_copy;
mod by_extent;
mod by_state;
mod classes;
mod clean_claims;
mod copies;
mod held;
mod index;
mod marks;
mod memory;
mod recorded;
mod rows;
mod valid;

use crate::bits::Bits;
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::geometry::Geometry;
use crate::volume::past::PAST_FLOOR;
use crate::volume::regions::DirtyRegions;
use by_state::ByState;
use classes::Classes;
pub use classes::Mixed;
use clean_claims::CleanClaims;
use copies::CopyBits;
pub use copies::Recorded;
use held::Held;
use index::RowIndex;
use marks::Marks;
use rows::Rows;
use valid::Valid;

/// The value for "no slot". It is above every slot number.
const UNMAPPED: u32 = u32::MAX;

/// The map from extents to homes and copies, the map from slots to extents, the valid blocks, and the statistics per extent.
#[derive(Clone, Debug)]
pub struct ExtentMap {
    /// Places and statistics of extents; they differ between the two kinds of volumes.
    rows: Rows,
    /// For each slot of the faster tiers: whether it contains a dirty copy. The bit set is empty until the first copy, so that tiering does
    /// not need memory for it.
    dirty_slots: Bits,
    /// The same slots by state, once a search needed them (`by_state.rs`).
    by_state: ByState,
    /// The state of the blocks of each copy (`copies.rs`). The engine needs it; hit-only runs do not.
    bits: CopyBits,
    /// What records claim about clean copies (`clean_claims.rs`). It has memory when there are bits for blocks.
    claims: CleanClaims,
    /// The classes of the blocks in copies, if a policy asks for them (`classes.rs`).
    classes: Classes,
    copied: u32,
    dirty: u32,
    valid: Valid,
    partial: Marks,
    /// Largest number of extents that may be partial at the same time; the engine fills further ones with zeros.
    partial_max: u32,
    held: Held,
    /// The parts of a cache volume that have dirty copies.
    regions: DirtyRegions,
    /// For worlds that only count records (`index.rs`).
    index: RowIndex,
    blocks: usize,
    mapped: u32,
}

const NO_OWNER: u32 = u32::MAX;

impl ExtentMap {
    /// An empty map for a volume of this geometry.
    pub fn new(geo: &Geometry) -> ExtentMap {
        ExtentMap::with_past(geo, PAST_FLOOR)
    }
    /// As [`ExtentMap::new`]. In a cache volume the statistics of extents without a copy are kept for as many extents as there are slots of
    /// the faster tiers, or for `past_floor` extents if that is more.
    pub fn with_past(geo: &Geometry, past_floor: u32) -> ExtentMap {
        let blocks = geo.blocks_per_extent() as usize;
        ExtentMap {
            rows: Rows::new(geo, past_floor),
            dirty_slots: Bits::default(),
            by_state: ByState::default(),
            bits: CopyBits::default(),
            claims: CleanClaims::default(),
            classes: Classes::default(),
            copied: 0,
            dirty: 0,
            valid: Valid::new(ExtentMap::may_be_partial(geo) as usize, blocks),
            partial: Marks::new(geo.extents),
            partial_max: ExtentMap::partial_most(geo),
            held: Held::default(),
            regions: if geo.is_cache() {
                DirtyRegions::new(geo.extents, geo.extent_shift)
            } else {
                DirtyRegions::default()
            },
            index: RowIndex::default(),
            blocks,
            mapped: if geo.is_cache() { geo.extents } else { 0 },
        }
    }
    /// Number of extents that can be partly valid: none in a cache volume, whose homes hold something everywhere.
    fn may_be_partial(geo: &Geometry) -> u32 {
        if geo.is_cache() { 0 } else { geo.extents }
    }
    /// Largest number of extents that may be partly valid at the same time on a volume of this geometry. In a small volume these are all
    /// extents. In a large one their bitmaps may take one byte per extent of the volume, or 32 MiB if that is more.
    pub fn partial_most(geo: &Geometry) -> u32 {
        let extents = ExtentMap::may_be_partial(geo);
        Valid::most(extents.into(), geo.blocks_per_extent().into()) as u32
    }
    /// Number of extents of the volume.
    pub fn extents(&self) -> u32 {
        self.rows.extents()
    }
    /// Number of blocks of an extent.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks as u32
    }
    /// Whether homes follow from addresses (a cache volume).
    #[inline]
    pub fn has_fixed_homes(&self) -> bool {
        matches!(self.rows, Rows::Copies(_))
    }
    /// In a cache volume: the number of extents without a copy whose statistics are kept. `None` in a tiering volume, which keeps all.
    pub fn past_entries(&self) -> Option<u32> {
        match &self.rows {
            Rows::Extents(_) => None,
            Rows::Copies(r) => Some(r.past_entries()),
        }
    }
    /// Number of mapped extents.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }
    /// The home of an extent.
    #[inline]
    pub fn home(&self, e: ExtentId) -> Option<Slot> {
        let s = self.rows.home(e.0);
        (s != UNMAPPED).then_some(Slot(s))
    }
    /// The slot of the extent's copy.
    #[inline]
    pub fn copy(&self, e: ExtentId) -> Option<Slot> {
        self.rows.copy(e.0).map(Slot)
    }
    /// The slot of the copy, or of the home if there is no copy: the fastest slot from which the extent can be read.
    #[inline]
    pub fn fastest(&self, e: ExtentId) -> Option<Slot> {
        let s = self.rows.fastest(e.0);
        (s != UNMAPPED).then_some(Slot(s))
    }
    /// Whether the copy contains data that the home does not.
    #[inline]
    pub fn is_dirty(&self, e: ExtentId) -> bool {
        self.dirty > 0
            && self
                .copy(e)
                .is_some_and(|c| self.dirty_slots.get(c.0 as usize))
    }
    /// Gives a mapped extent a (clean) copy in `s`, which must be on a tier other than the slowest.
    pub fn add_copy(&mut self, e: ExtentId, s: Slot) {
        assert!(
            self.copy(e).is_none() && self.owner(s).is_none(),
            "extent has a copy, or slot is taken"
        );
        if self.dirty_slots.bytes() == 0 {
            self.dirty_slots = Bits::new(self.rows.fast());
        }
        self.rows.add_copy(e.0, s.0);
        self.by_state.put(s.0, false);
        self.copied += 1;
    }
    /// Removes the copy of an extent. Returns its slot, and whether it was dirty.
    pub fn drop_copy(&mut self, e: ExtentId) -> Option<(Slot, bool)> {
        let s = self.copy(e)?;
        let dirty = self.dirty_slots.get(s.0 as usize);
        self.rows.drop_copy(e.0, s.0);
        self.dirty_slots.clear(s.0 as usize);
        self.by_state.remove(s.0);
        self.index.set_dirty(e, false);
        self.copied -= 1;
        self.dirty -= u32::from(dirty);
        if dirty {
            self.regions.changed(e, false);
        }
        self.bits.wipe(s);
        if self.is_claimed_clean(s) {
            self.set_claimed_clean(s, false);
        }
        self.classes.wipe(s);
        Some((s, dirty))
    }
    /// Marks a copy as dirty or clean. Returns whether that changed anything. Without a copy nothing happens.
    pub fn set_dirty(&mut self, e: ExtentId, on: bool) -> bool {
        let Some(c) = self.copy(e) else {
            return false;
        };
        let was = self.dirty_slots.get(c.0 as usize);
        if on {
            self.dirty_slots.set(c.0 as usize);
        } else {
            self.dirty_slots.clear(c.0 as usize);
        }
        self.by_state.put(c.0, on);
        self.dirty = self.dirty + u32::from(on) - u32::from(was);
        self.index.set_dirty(e, self.is_named_in(c));
        if was != on {
            self.regions.changed(e, on);
        }
        was != on
    }
    /// The dirty regions of a cache volume.
    #[inline]
    pub fn regions(&self) -> &DirtyRegions {
        &self.regions
    }
    /// The same, to note which regions are covered.
    pub fn regions_mut(&mut self) -> &mut DirtyRegions {
        &mut self.regions
    }
    /// Number of extents with a copy.
    pub fn copied(&self) -> u32 {
        self.copied
    }
    /// Number of extents whose copy contains data that the home does not.
    pub fn dirty(&self) -> u32 {
        self.dirty
    }
    /// The extent whose home or copy is in a slot. It is known only for the faster tiers, whose slots policies examine one after another.
    /// It is not needed for the slowest tier, which has most of the slots.
    #[inline]
    pub fn owner(&self, s: Slot) -> Option<ExtentId> {
        self.rows.owner(s.0).map(ExtentId)
    }
    /// Gives `e` its first home. If `partial`, no block is valid yet; otherwise all blocks are.
    pub fn map(&mut self, e: ExtentId, s: Slot, partial: bool) {
        assert!(
            self.home(e).is_none() && self.owner(s).is_none(),
            "extent or slot already taken"
        );
        self.rows.homes().set_home(e.0, s.0);
        self.index.set_mapped(e, true);
        self.partial.put(e, partial);
        if partial {
            self.valid.begin(e.0, false);
        }
        self.mapped += 1;
    }
    /// Moves the home of `e` to `to`. The valid blocks stay the same. Returns the old home.
    pub fn rehome(&mut self, e: ExtentId, to: Slot) -> Option<Slot> {
        let from = self.home(e)?;
        assert!(
            self.owner(to).is_none() && self.copy(e).is_none(),
            "slot already taken, or the extent has a copy"
        );
        self.rows.homes().set_home(e.0, to.0);
        Some(from)
    }
    /// Removes the home, so that the extent reads as zeros. Returns the old home. Not in a cache volume.
    pub fn unmap(&mut self, e: ExtentId) -> Option<Slot> {
        let from = self.home(e)?;
        assert!(self.copy(e).is_none(), "the copy must go first");
        self.rows.homes().set_home(e.0, UNMAPPED);
        self.index.set_mapped(e, false);
        self.become_whole(e);
        self.mapped -= 1;
        Some(from)
    }
    /// For recovery: replaces the state of `e` by the home `slot` (or none) with all blocks valid. The owners of slots are not updated;
    /// [`ExtentMap::rebuild_owners`] does that for all extents. In a cache volume nothing changes.
    pub fn load(&mut self, e: ExtentId, slot: Option<Slot>) {
        let Rows::Extents(rows) = &mut self.rows else {
            return;
        };
        let place = slot.map_or(UNMAPPED, |s| s.0);
        let was = core::mem::replace(&mut rows.rows[e.0 as usize].place, place) != UNMAPPED;
        self.index.set_mapped(e, slot.is_some());
        self.become_whole(e);
        self.mapped = self.mapped + u32::from(slot.is_some()) - u32::from(was);
    }
    /// For recovery: brings what [`ExtentMap::copy`] reads of these extents into the processor's cache. Their places in the index have nothing to
    /// do with each other; here the processor loads many of them at the same time, instead of one after the other.
    pub fn fetch(&self, extents: impl Iterator<Item = ExtentId>) {
        if let Rows::Copies(rows) = &self.rows {
            core::hint::black_box(extents.fold(0, |all, e| all ^ rows.touch(e.0)));
        }
    }
    /// For recovery of a tiering volume: derives slot → extent from the rows.
    pub fn rebuild_owners(&mut self) {
        self.rows.homes().rebuild_owners();
    }
    /// Whether the extent has blocks that were never written.
    #[inline]
    pub fn is_partial(&self, e: ExtentId) -> bool {
        self.partial.get(e)
    }
    /// Whether there is room for the bitmap of one more partly valid extent. The map does not enforce this limit. The engine observes it,
    /// so that memory stays bounded; recovery does not, because extents that were partial stay partial.
    #[inline]
    pub fn has_bitmap_room(&self) -> bool {
        self.partial.count < self.partial_max
    }
    /// Lowers the number of extents that may be partly valid at the same time to `most`, if it is higher.
    pub fn limit_partial(&mut self, most: u32) {
        self.partial_max = self.partial_max.min(most);
    }
    /// Whether the extent is in use by a move, a lock or a waiting piece of a request, so that an access must pass the engine's gate.
    #[inline]
    pub fn is_held(&self, e: ExtentId) -> bool {
        self.held.get(e)
    }
    /// Sets or clears the mark of [`ExtentMap::is_held`].
    pub fn hold(&mut self, e: ExtentId, on: bool) {
        self.held.put(e, on);
    }
    /// Marks blocks `from..to` of a mapped extent as valid. Returns whether that changed anything.
    pub fn validate(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        if !self.is_partial(e) {
            return false;
        }
        let changed = self.valid.fill(e.0, from, to, true);
        if changed && self.valid.is_all(e.0, true) {
            self.become_whole(e);
        }
        changed
    }
    /// Marks blocks `from..to` of a mapped extent as invalid: they read as zeros. Returns whether that changed anything.
    pub fn invalidate(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        if !self.is_partial(e) {
            self.valid.begin(e.0, true);
            self.partial.put(e, true);
        }
        self.valid.fill(e.0, from, to, false)
    }
    /// Removes the bitmap of an extent, because all of its blocks are valid or it has no home.
    fn become_whole(&mut self, e: ExtentId) {
        if self.partial.get(e) {
            self.partial.put(e, false);
            self.valid.end(e.0);
        }
    }
    /// Whether a mapped extent has no valid block at all.
    pub fn has_no_valid_block(&self, e: ExtentId) -> bool {
        self.is_partial(e) && self.valid.is_all(e.0, false)
    }
    /// The run of blocks with the same state that begins at block `from` and ends at `to` at the latest: its length, and whether its blocks
    /// are valid.
    pub fn run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        if !self.is_partial(e) {
            return (to - from, self.home(e).is_some());
        }
        self.valid.run(e.0, from, to)
    }
    /// Whether all blocks of `from..to` are valid.
    pub fn all_valid(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.run(e, from, to) == (to - from, true)
    }
    /// The valid-block bitmap of an extent, lowest block in the lowest bit.
    pub fn export_valid(&self, e: ExtentId, out: &mut [u8]) {
        if self.is_partial(e) {
            self.valid.export(e.0, out);
        } else {
            out.fill(0);
            for b in 0..self.blocks {
                out[b / 8] |= 1 << (b % 8);
            }
        }
    }
    /// Replaces the valid-block bitmap of a mapped extent.
    pub fn import_valid(&mut self, e: ExtentId, bytes: &[u8]) {
        if !self.is_partial(e) {
            self.valid.begin(e.0, false);
            self.partial.put(e, true);
        }
        self.valid.import(e.0, bytes);
        if self.valid.is_all(e.0, true) {
            self.become_whole(e);
        }
    }
    /// Time of last access, rounded down to a microsecond. In a cache volume it may be unknown for an extent without a copy (0).
    #[inline]
    pub fn last(&self, e: ExtentId) -> Nanos {
        self.rows.stats(e.0).last()
    }
    /// Sets the time of the last access.
    #[inline]
    pub fn set_last(&mut self, e: ExtentId, t: Nanos) {
        self.rows.set_last(e.0, t);
    }
    /// The 16 bits of an extent that belong to the policy. In a cache volume those of an extent without a copy are forgotten (0) if as many
    /// others as there are fast slots, but at least 2^20, were used since.
    #[inline]
    pub fn stat(&self, e: ExtentId) -> u16 {
        self.rows.stats(e.0).stat
    }
    /// Sets the policy's 16 bits.
    #[inline]
    pub fn set_stat(&mut self, e: ExtentId, v: u16) {
        self.rows.set_stat(e.0, v);
    }
    /// Clears the policy's 16 bits of all extents, because another policy takes over. Times of access of copies stay.
    pub fn forget_stats(&mut self) {
        self.rows.forget_stats();
    }
    /// Clears the statistics of an extent, because it was discarded.
    pub fn forget(&mut self, e: ExtentId) {
        self.rows.forget(e.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::TierId;
    use crate::volume::Member;
    use alloc::vec;

    fn map() -> ExtentMap {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        ExtentMap::new(&Geometry::new(16, 12, 30, vec![m(0, 8), m(1, 24)]).unwrap())
    }

    #[test]
    fn row_is_twelve_bytes() {
        assert_eq!(size_of::<rows::Row>(), 12);
    }

    #[test]
    fn partial_becomes_whole_and_back() {
        let (mut m, e) = (map(), ExtentId(3));
        m.map(e, Slot(5), true);
        assert!(m.has_no_valid_block(e));
        assert_eq!(m.run(e, 0, 16), (16, false));
        assert!(m.validate(e, 4, 8));
        assert!(!m.validate(e, 5, 7));
        assert_eq!(m.run(e, 0, 16), (4, false));
        assert_eq!(m.run(e, 4, 16), (4, true));
        assert!(m.validate(e, 0, 4) && m.validate(e, 8, 16));
        assert!(!m.is_partial(e));
        assert!(m.invalidate(e, 15, 16));
        assert_eq!(m.run(e, 0, 16), (15, true));
        let mut bits = [0u8; 2];
        m.export_valid(e, &mut bits);
        assert_eq!(bits, [0xff, 0x7f]);
    }

    #[test]
    fn homes_and_owners_agree() {
        let mut m = map();
        m.map(ExtentId(0), Slot(1), false);
        assert_eq!(m.rehome(ExtentId(0), Slot(20)), Some(Slot(1)));
        assert_eq!(
            (m.owner(Slot(1)), m.home(ExtentId(0))),
            (None, Some(Slot(20)))
        );
        assert_eq!(m.unmap(ExtentId(0)), Some(Slot(20)));
        assert_eq!((m.mapped(), m.home(ExtentId(0))), (0, None));
    }

    #[test]
    fn a_copy_hides_the_home_but_keeps_it() {
        let (mut m, e) = (map(), ExtentId(2));
        m.map(e, Slot(20), true);
        m.hold(e, true);
        m.add_copy(e, Slot(3));
        assert_eq!((m.home(e), m.copy(e)), (Some(Slot(20)), Some(Slot(3))));
        assert_eq!((m.fastest(e), m.owner(Slot(3))), (Some(Slot(3)), Some(e)));
        assert!(m.is_held(e) && m.is_partial(e) && !m.is_dirty(e));
        assert!(m.set_dirty(e, true) && !m.set_dirty(e, true) && m.is_dirty(e));
        assert_eq!(m.home(e), Some(Slot(20)));
        assert_eq!(m.drop_copy(e), Some((Slot(3), true)));
        assert_eq!((m.home(e), m.copy(e)), (Some(Slot(20)), None));
        assert!(m.is_held(e) && m.is_partial(e) && !m.is_dirty(e));
        assert_eq!(m.drop_copy(e), None);
    }

    #[test]
    fn time_keeps_microseconds_for_years() {
        let mut m = map();
        let t = Nanos::from_secs(8 * 365 * 86_400) + Nanos(123_456_000);
        m.set_last(ExtentId(1), t);
        assert_eq!(m.last(ExtentId(1)), t);
    }
}
