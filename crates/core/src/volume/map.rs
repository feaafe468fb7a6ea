//! The extent map: extent → home, with the statistics of that extent in the same row.
//!
//! One row is 12 bytes, so that an access touches one cache line; with the reverse map (4 bytes a slot of
//! the faster tiers) a fully mapped volume costs 13 bytes an extent where a quarter is fast; the bar is 16. Which blocks of a partly written extent are valid lies in a
//! separate bit set, read only for rows marked partial.

mod copies;

use crate::bits::Bits;
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::geometry::{Geometry, SLOTS_MAX};
use alloc::vec;
use alloc::vec::Vec;
use copies::CopyBits;

const SLOT_MASK: u32 = SLOTS_MAX;
const UNMAPPED: u32 = SLOT_MASK; // the highest number is never a slot
const PARTIAL: u32 = 1 << 29;
const HELD: u32 = 1 << 30;
/// The row's slot is that of a copy; the home is in the copy's entry.
const COPIED: u32 = 1 << 31;

/// One extent: home slot and flags, time of last access (48-bit microseconds), 16 bits that belong to the policy.
#[derive(Clone, Copy, Debug)]
struct Row {
    home: u32,
    last_low: u32,
    last_high: u16,
    stat: u16,
}

/// In a copy's entry: the copy is dirty.
const DIRTY: u32 = 1 << 29;

const EMPTY: Row = Row {
    home: UNMAPPED,
    last_low: 0,
    last_high: 0,
    stat: 0,
};

/// Extent → home slot (+ copy), slot → extent, valid blocks, per-extent statistics.
#[derive(Clone, Debug)]
pub struct ExtentMap {
    rows: Vec<Row>,
    owner: Vec<u32>,
    /// By slot of the faster tiers that holds a copy: home of its extent, and whether the copy is dirty. Empty until the
    /// first copy, so that tiering pays nothing for it.
    copies: Vec<u32>,
    /// What of each copy counts, where somebody asks (the engine does, hit-only runs do not). See `copies.rs`.
    bits: CopyBits,
    copied: u32,
    dirty: u32,
    valid: Bits,
    blocks: usize,
    mapped: u32,
}

const NOBODY: u32 = u32::MAX;

impl ExtentMap {
    /// An empty map of that shape.
    pub fn new(geo: &Geometry) -> ExtentMap {
        let blocks = geo.blocks_per_extent() as usize;
        ExtentMap {
            rows: vec![EMPTY; geo.extents as usize],
            owner: vec![NOBODY; geo.tier_slots(geo.slowest()).start as usize],
            copies: Vec::new(),
            bits: CopyBits::default(),
            copied: 0,
            dirty: 0,
            // One block an extent cannot be partial for long enough to be seen: its bit is still kept, it is 1/8 byte.
            valid: Bits::new(geo.extents as usize * blocks),
            blocks,
            mapped: 0,
        }
    }
    /// Extents of the volume.
    pub fn extents(&self) -> u32 {
        self.rows.len() as u32
    }
    /// Mapped extents.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }
    /// The home of an extent.
    #[inline]
    pub fn home(&self, e: ExtentId) -> Option<Slot> {
        let row = self.rows[e.0 as usize].home;
        let s = if row & COPIED == 0 {
            row & SLOT_MASK
        } else {
            self.copies[(row & SLOT_MASK) as usize] & SLOT_MASK
        };
        (s != UNMAPPED).then_some(Slot(s))
    }
    /// The slot of the extent's copy.
    #[inline]
    pub fn copy(&self, e: ExtentId) -> Option<Slot> {
        let row = self.rows[e.0 as usize].home;
        (row & COPIED != 0).then_some(Slot(row & SLOT_MASK))
    }
    /// The copy's slot, else the home's: where the extent is read fastest.
    #[inline]
    pub fn fastest(&self, e: ExtentId) -> Option<Slot> {
        let s = self.rows[e.0 as usize].home & SLOT_MASK;
        (s != UNMAPPED).then_some(Slot(s))
    }
    /// Does the copy hold data that the home does not?
    #[inline]
    pub fn is_dirty(&self, e: ExtentId) -> bool {
        self.copy(e)
            .is_some_and(|c| self.copies[c.0 as usize] & DIRTY != 0)
    }
    /// Give a mapped extent a (clean) copy in `s`, which must be on a tier other than the slowest.
    pub fn add_copy(&mut self, e: ExtentId, s: Slot) {
        assert!(
            self.copy(e).is_none() && self.owner(s).is_none(),
            "extent has a copy, or slot is taken"
        );
        if self.copies.is_empty() {
            self.copies = vec![UNMAPPED; self.owner.len()];
        }
        let r = &mut self.rows[e.0 as usize];
        self.copies[s.0 as usize] = r.home & SLOT_MASK;
        r.home = s.0 | (r.home & !SLOT_MASK) | COPIED;
        self.own(s, e.0);
        self.copied += 1;
    }
    /// The extent gives up its copy. Returns its slot, and whether it was dirty.
    pub fn drop_copy(&mut self, e: ExtentId) -> Option<(Slot, bool)> {
        let s = self.copy(e)?;
        let entry = self.copies[s.0 as usize];
        let r = &mut self.rows[e.0 as usize];
        r.home = (entry & SLOT_MASK) | (r.home & !(SLOT_MASK | COPIED));
        self.copies[s.0 as usize] = UNMAPPED;
        self.own(s, NOBODY);
        self.copied -= 1;
        self.dirty -= u32::from(entry & DIRTY != 0);
        self.bits.wipe(s);
        Some((s, entry & DIRTY != 0))
    }
    /// Mark a copy dirty or clean; true if that changed anything. Without a copy, nothing.
    pub fn set_dirty(&mut self, e: ExtentId, on: bool) -> bool {
        let Some(c) = self.copy(e) else {
            return false;
        };
        let entry = &mut self.copies[c.0 as usize];
        let was = *entry & DIRTY != 0;
        *entry = if on { *entry | DIRTY } else { *entry & !DIRTY };
        self.dirty = self.dirty + u32::from(on) - u32::from(was);
        was != on
    }
    /// Extents with a copy.
    pub fn copied(&self) -> u32 {
        self.copied
    }
    /// Extents whose copy holds data that the home does not.
    pub fn dirty(&self) -> u32 {
        self.dirty
    }
    /// Who owns a slot. Known for the faster tiers only, where policies walk over slots; nothing asks it of the slowest,
    /// which has most slots.
    #[inline]
    pub fn owner(&self, s: Slot) -> Option<ExtentId> {
        let e = *self.owner.get(s.0 as usize)?;
        (e != NOBODY).then_some(ExtentId(e))
    }
    /// Give `e` a first home. With `partial`, no block is valid yet; else all are.
    pub fn map(&mut self, e: ExtentId, s: Slot, partial: bool) {
        assert!(
            self.home(e).is_none() && self.owner(s).is_none(),
            "extent or slot already taken"
        );
        let r = &mut self.rows[e.0 as usize];
        r.home = s.0 | (r.home & HELD) | if partial { PARTIAL } else { 0 };
        if partial {
            let b = e.0 as usize * self.blocks;
            self.valid.fill(b, b + self.blocks, false);
        }
        self.own(s, e.0);
        self.mapped += 1;
    }
    /// Move the home of `e` to `to`; valid blocks stay as they are. Returns the old home.
    pub fn rehome(&mut self, e: ExtentId, to: Slot) -> Option<Slot> {
        let from = self.home(e)?;
        assert!(
            self.owner(to).is_none() && self.copy(e).is_none(),
            "slot already taken, or the extent has a copy"
        );
        let r = &mut self.rows[e.0 as usize];
        r.home = to.0 | (r.home & !SLOT_MASK);
        self.own(from, NOBODY);
        self.own(to, e.0);
        Some(from)
    }
    /// Take the home away; the extent reads as zeros. Returns the old home.
    pub fn unmap(&mut self, e: ExtentId) -> Option<Slot> {
        let from = self.home(e)?;
        assert!(self.copy(e).is_none(), "the copy must go first");
        let r = &mut self.rows[e.0 as usize];
        r.home = UNMAPPED | (r.home & HELD);
        self.own(from, NOBODY);
        self.mapped -= 1;
        Some(from)
    }
    /// For recovery: `e` lives in `slot` (or nowhere), all blocks valid, whatever was said before. Owners are not kept until
    /// [`ExtentMap::rebuild_owners`].
    pub fn load(&mut self, e: ExtentId, slot: Option<Slot>) {
        let r = &mut self.rows[e.0 as usize];
        let was = r.home & SLOT_MASK != UNMAPPED;
        r.home = slot.map_or(UNMAPPED, |s| s.0);
        self.mapped = self.mapped + u32::from(slot.is_some()) - u32::from(was);
    }
    /// For recovery: derive slot → extent from the rows.
    pub fn rebuild_owners(&mut self) {
        for e in 0..self.rows.len() as u32 {
            if let Some(s) = self.home(ExtentId(e)) {
                self.own(s, e);
            }
        }
    }
    fn own(&mut self, s: Slot, e: u32) {
        if let Some(o) = self.owner.get_mut(s.0 as usize) {
            *o = e;
        }
    }
    /// Has the extent blocks that were never written?
    #[inline]
    pub fn is_partial(&self, e: ExtentId) -> bool {
        self.rows[e.0 as usize].home & PARTIAL != 0
    }
    /// How many extents from `e` on (at most `most`) have a home, every block valid, and no copy?
    pub fn plain_run(&self, e: ExtentId, most: u32) -> u32 {
        let from = e.0 as usize;
        let to = self.rows.len().min(from + most as usize);
        let plain = |r: &Row| r.home & (PARTIAL | COPIED) == 0 && r.home & SLOT_MASK != UNMAPPED;
        self.rows[from..to]
            .iter()
            .position(|r| !plain(r))
            .unwrap_or(to - from) as u32
    }
    /// Something (a move, a waiting request) wants to be asked before this extent is touched.
    #[inline]
    pub fn is_held(&self, e: ExtentId) -> bool {
        self.rows[e.0 as usize].home & HELD != 0
    }
    /// Set or clear the mark of [`ExtentMap::is_held`].
    pub fn hold(&mut self, e: ExtentId, on: bool) {
        let h = &mut self.rows[e.0 as usize].home;
        *h = if on { *h | HELD } else { *h & !HELD };
    }
    /// Blocks `from..to` of a mapped extent became valid; true if that changed anything.
    pub fn validate(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        if !self.is_partial(e) {
            return false;
        }
        let b = e.0 as usize * self.blocks;
        let changed = self.valid.fill(b + from as usize, b + to as usize, true);
        if changed && self.valid.all(b, b + self.blocks, true) {
            self.rows[e.0 as usize].home &= !PARTIAL;
        }
        changed
    }
    /// Blocks `from..to` of a mapped extent read as zeros from now on; true if that changed anything.
    pub fn invalidate(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        let b = e.0 as usize * self.blocks;
        if !self.is_partial(e) {
            self.valid.fill(b, b + self.blocks, true);
            self.rows[e.0 as usize].home |= PARTIAL;
        }
        self.valid.fill(b + from as usize, b + to as usize, false)
    }
    /// Does a mapped extent have no valid block at all?
    pub fn is_void(&self, e: ExtentId) -> bool {
        let b = e.0 as usize * self.blocks;
        self.is_partial(e) && self.valid.all(b, b + self.blocks, false)
    }
    /// From block `from` (not past `to`): how many blocks share the same state, and whether they are valid.
    pub fn run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        if !self.is_partial(e) {
            return (to - from, self.home(e).is_some());
        }
        let b = e.0 as usize * self.blocks;
        let on = self.valid.get(b + from as usize);
        (
            self.valid.run(b + from as usize, b + to as usize, on) as u32,
            on,
        )
    }
    /// Are all of `from..to` valid?
    pub fn all_valid(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.run(e, from, to) == (to - from, true)
    }
    /// The valid-block bitmap of an extent, lowest block in the lowest bit.
    pub fn export_valid(&self, e: ExtentId, out: &mut [u8]) {
        self.valid
            .export(e.0 as usize * self.blocks, self.blocks, out);
    }
    /// Replace the valid-block bitmap of a mapped extent.
    pub fn import_valid(&mut self, e: ExtentId, bytes: &[u8]) {
        self.valid
            .import(e.0 as usize * self.blocks, self.blocks, bytes);
        let b = e.0 as usize * self.blocks;
        let full = self.valid.all(b, b + self.blocks, true);
        let h = &mut self.rows[e.0 as usize].home;
        *h = if full { *h & !PARTIAL } else { *h | PARTIAL };
    }
    /// Time of last access, rounded down to a microsecond.
    #[inline]
    pub fn last(&self, e: ExtentId) -> Nanos {
        let r = &self.rows[e.0 as usize];
        Nanos::from_micros(u64::from(r.last_low) | u64::from(r.last_high) << 32)
    }
    /// Set the time of last access.
    #[inline]
    pub fn set_last(&mut self, e: ExtentId, t: Nanos) {
        let us = t.0 / 1000;
        let r = &mut self.rows[e.0 as usize];
        r.last_low = us as u32;
        r.last_high = (us >> 32) as u16;
    }
    /// The policy's 16 bits.
    #[inline]
    pub fn stat(&self, e: ExtentId) -> u16 {
        self.rows[e.0 as usize].stat
    }
    /// Set the policy's 16 bits.
    #[inline]
    pub fn set_stat(&mut self, e: ExtentId, v: u16) {
        self.rows[e.0 as usize].stat = v;
    }
    /// Another policy takes over: its 16 bits mean something else. Times of access stay.
    pub fn forget_stats(&mut self) {
        for r in &mut self.rows {
            r.stat = 0;
        }
    }
    /// Forget the statistics of an extent (it was discarded).
    pub fn forget(&mut self, e: ExtentId) {
        let r = &mut self.rows[e.0 as usize];
        (r.last_low, r.last_high, r.stat) = (0, 0, 0);
    }
    /// Memory: (rows and reverse map, bitmaps of valid and dirty blocks), bytes.
    pub fn bytes(&self) -> (usize, usize) {
        (
            self.rows.len() * size_of::<Row>() + (self.owner.len() + self.copies.len()) * 4,
            self.valid.bytes() + self.bits.bytes(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::TierId;
    use crate::volume::Member;

    fn map() -> ExtentMap {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        ExtentMap::new(&Geometry::new(16, 12, 30, vec![m(0, 8), m(1, 24)]).unwrap())
    }

    #[test]
    fn row_is_twelve_bytes() {
        assert_eq!(size_of::<Row>(), 12);
    }

    #[test]
    fn partial_becomes_whole_and_back() {
        let (mut m, e) = (map(), ExtentId(3));
        m.map(e, Slot(5), true);
        assert!(m.is_void(e));
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
