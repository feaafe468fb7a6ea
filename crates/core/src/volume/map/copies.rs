//! The valid blocks of each copy, and which of them are dirty.
//!
//! There are two bits for each block of every slot of the faster tiers. They are allocated with the first copy, so that tiering does not
//! need memory for them. Invariants: a dirty block is valid in the copy. A valid block that is not dirty is valid at the home, with the
//! same bytes (apart from writes in progress).
//!
//! Two more bits per slot say what durable records state about it ([`Recorded`]). A record that names a dirty copy names all of its valid
//! blocks. So it may claim more than is true, and a write to one of these blocks needs no record, also after the copy was cleaned.

use super::clean_claims::CleanClaims;
use super::rows::Rows;
use super::{ExtentMap, UNMAPPED};
use crate::bits::Bits;
use crate::units::{ExtentId, Slot};

/// What durable records, or those that are being written, say about the copy in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// None names it. Its slot may be allocated again at once.
    No,
    /// The last one names it as dirty, with every block that is valid in it.
    Whole,
    /// The last one names it as dirty, but not every block that is valid in it.
    Part,
    /// The last one does not name it, or the next one will not. An earlier one that does may still count.
    Leaving,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyBits {
    valid: Bits,
    dirty: Bits,
    /// Whether the last record names the slot as a dirty copy.
    named: Bits,
    /// Of a named slot: whether all valid blocks are named. Of another one: whether it is [`Recorded::Leaving`].
    whole: Bits,
    blocks: usize,
    /// Number of bits that are set in `dirty`.
    dirty_blocks: u64,
}

impl CopyBits {
    fn base(&self, s: Slot) -> usize {
        s.0 as usize * self.blocks
    }
    /// Clears the bits of a slot, because it contains no copy any more.
    pub(super) fn wipe(&mut self, s: Slot) {
        if self.blocks > 0 {
            let b = self.base(s);
            self.valid.fill(b, b + self.blocks, false);
            self.fill_dirty(b, b + self.blocks, false);
            self.named.clear(s.0 as usize);
            self.whole.clear(s.0 as usize);
        }
    }
    /// Sets or clears a range of dirty bits and updates their number. Returns whether anything changed.
    fn fill_dirty(&mut self, from: usize, to: usize, on: bool) -> bool {
        let set = u64::from(count(&self.dirty, from, (to - from) as u32));
        self.dirty_blocks = self.dirty_blocks - set + if on { (to - from) as u64 } else { 0 };
        self.dirty.fill(from, to, on)
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.valid.bytes() + self.dirty.bytes() + self.named.bytes() + self.whole.bytes()
    }
}

impl ExtentMap {
    /// The extent whose copy is in `s`, and its home. The extent's row is not read.
    #[inline]
    pub fn copied_in(&self, s: Slot) -> Option<(ExtentId, Slot)> {
        let (e, home) = (self.owner(s)?, self.rows.home_of_copy_in(s.0)?);
        debug_assert_eq!((self.copy(e), self.home(e)), (Some(s), Some(Slot(home))));
        Some((e, Slot(home)))
    }
    /// Whether `s` contains a dirty copy.
    #[inline]
    pub fn is_dirty_in(&self, s: Slot) -> bool {
        self.dirty > 0 && self.dirty_slots.get(s.0 as usize)
    }
}

/// Functions for checkpoints.
impl ExtentMap {
    /// Whether every extent has a home with all blocks valid, and no copy.
    pub fn is_all_plain(&self) -> bool {
        self.copied == 0 && self.partial.count == 0 && self.mapped == self.extents()
    }
    /// In a tiering volume: from `e` on, the number of extents before `stop` whose records have at most one unit each and change no other state, as far as these
    /// fit into `free` units, and the units of these records. `clean`: this holds for clean copies, too; see [`ExtentMap::plain_units`].
    #[inline]
    pub fn plain_rows(&self, e: ExtentId, stop: u32, free: usize, clean: bool) -> (u32, usize) {
        let Rows::Extents(all) = &self.rows else {
            return (0, 0);
        };
        if self.partial.count > 0 {
            return (0, 0);
        }
        let rows = all.rows.get(e.0 as usize..stop as usize).unwrap_or(&[]);
        let mut units = 0;
        for (i, row) in rows.iter().enumerate() {
            let mapped = usize::from(row.place != UNMAPPED);
            let is_plain = all.home_of_copy_in(row.place).is_none()
                || (clean && !self.is_named_in(Slot(row.place)));
            if !is_plain || units + mapped > free {
                return (i as u32, units);
            }
            units += mapped;
        }
        (rows.len() as u32, units)
    }
    /// Number of units of the record of an extent, if this can be computed quickly: 0 for an extent without a home. `None`: the record must
    /// be encoded to know its length, or other state changes with the record. `with_clean`: clean blocks of copies are recorded.
    #[inline]
    pub fn plain_units(&self, e: ExtentId, with_clean: bool) -> Option<usize> {
        let Some(Slot(place)) = self.copy(e) else {
            return match self.home(e) {
                None => Some(0),
                Some(_) => (!self.partial.get(e)).then_some(1),
            };
        };
        if self.partial.get(e) || self.is_named_in(Slot(place)) {
            return None;
        }
        match self.bits.blocks {
            0 => Some(1),
            _ if !with_clean => Some(1),
            1 => Some(1 + usize::from(self.bits.valid.get(place as usize))),
            _ => None,
        }
    }
}

impl ExtentMap {
    /// For an extent whose home holds all blocks and whose copy is named by its next record ([`ExtentMap::is_named`]): the copy's slot, and
    /// whether all of its blocks are valid. `None` for other extents, and if copies have no bits of their own.
    #[inline]
    pub fn named_copy(&self, e: ExtentId) -> Option<(Slot, bool)> {
        let s = self.copy(e)?;
        if self.bits.blocks == 0 || !self.is_named_in(s) || self.partial.get(e) {
            return None;
        }
        let base = self.bits.base(s);
        if self.bits.valid.all(base, base + self.bits.blocks, false) {
            return None;
        }
        let all = self.bits.valid.all(base, base + self.bits.blocks, true);
        Some((s, all))
    }
}

/// Functions for blocks. The extent must have a copy unless the description says otherwise; `from..to` are blocks of the extent.
impl ExtentMap {
    /// Gives a mapped extent a copy in `s`, in which no block is valid yet.
    pub fn add_empty_copy(&mut self, e: ExtentId, s: Slot) {
        if self.bits.blocks == 0 {
            let n = self.rows.fast() * self.blocks;
            self.bits = CopyBits {
                valid: Bits::new(n),
                dirty: Bits::new(n),
                named: Bits::new(self.rows.fast()),
                whole: Bits::new(self.rows.fast()),
                blocks: self.blocks,
                dirty_blocks: 0,
            };
            self.claims = CleanClaims::new(self.rows.fast());
        }
        self.add_copy(e, s);
    }
    /// Whether there are no bits for blocks of copies. Then each copy contains all blocks of its extent.
    pub(super) fn copies_are_whole(&self) -> bool {
        self.bits.blocks == 0
    }
    fn copy_base(&self, e: ExtentId) -> usize {
        let s = self.copy(e).expect("the extent has no copy");
        self.bits.base(s)
    }
    /// The run of blocks with the same state in the copy that begins at block `from` and ends at `to` at the latest: its length, and
    /// whether its blocks are valid there.
    pub fn copy_run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        run(&self.bits.valid, self.copy_base(e), from, to)
    }
    /// For any extent, with or without a copy: a run of blocks that begins at block `from` and ends at `to` at the latest, and in which
    /// either all blocks are valid (at the home or in the copy) or none is.
    pub fn data_run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        if self.copy(e).is_none() {
            return self.run(e, from, to);
        }
        match self.copy_run(e, from, to) {
            (n, true) => (n, true),
            (n, false) => self.run(e, from, from + n),
        }
    }
    /// Whether all blocks of `from..to` that are valid anywhere are valid in the copy.
    pub fn copy_serves(&self, e: ExtentId, from: u32, to: u32) -> bool {
        if self.copies_are_whole() {
            return true;
        }
        let mut at = from;
        while at < to {
            let (n, copied) = self.copy_run(e, at, to);
            if copied {
                at += n;
                continue;
            }
            match self.run(e, at, at + n) {
                (_, true) => return false,
                (n, false) => at += n,
            }
        }
        true
    }
    /// The same as [`ExtentMap::copy_run`], for dirty blocks.
    pub fn dirty_run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        run(&self.bits.dirty, self.copy_base(e), from, to)
    }
    /// Whether any block of `from..to` is dirty.
    pub fn any_dirty(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.is_dirty(e) && self.dirty_run(e, from, to) != (to - from, false)
    }
    /// Whether all blocks of `from..to` are dirty.
    pub fn all_dirty(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.is_dirty(e) && self.dirty_run(e, from, to) == (to - from, true)
    }
    /// Marks blocks of the copy as valid.
    pub fn copy_validate(&mut self, e: ExtentId, from: u32, to: u32) {
        let Some(s) = self.copy(e) else {
            return;
        };
        let b = self.bits.base(s);
        let new = (self.bits.valid).fill(b + from as usize, b + to as usize, true);
        if new && self.recorded(s) == Recorded::Whole {
            self.set_recorded(s, Recorded::Part);
        }
        self.claims.touch(s);
    }
    /// Marks blocks of the copy as valid and dirty. Returns whether any of them was not dirty before.
    pub fn copy_dirty(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        let b = self.copy_base(e);
        self.copy_validate(e, from, to);
        let changed = (self.bits).fill_dirty(b + from as usize, b + to as usize, true);
        self.set_dirty(e, true);
        changed
    }
    /// Marks blocks of the copy as invalid, dirty or not. Returns whether a record of this is due, because the last one may name them.
    #[must_use]
    pub fn copy_forget(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        let b = self.copy_base(e);
        let (a, z) = (b + from as usize, b + to as usize);
        if let Some(s) = self.copy(e) {
            self.claims.touch(s);
        }
        let named = self.bits.valid.fill(a, z, false) && self.is_named(e);
        let changed = self.bits.fill_dirty(a, z, false);
        self.renew_dirty(e);
        changed || named
    }
    /// Marks blocks of the copy as invalid, except dirty ones: from now on they are read from the home. Returns whether a record of this is
    /// due.
    #[must_use]
    pub fn copy_invalidate_clean(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        let b = self.copy_base(e);
        let (mut at, mut changed) = (from, false);
        while at < to {
            let (n, dirty) = self.dirty_run(e, at, to);
            if !dirty {
                let (a, z) = (b + at as usize, b + (at + n) as usize);
                changed |= self.bits.valid.fill(a, z, false);
            }
            at += n;
        }
        changed && self.is_named(e)
    }
    /// Marks blocks as clean, because they were written home and will be durable there: they are valid at the home, and not dirty any more.
    pub fn copy_cleaned(&mut self, e: ExtentId, from: u32, to: u32) {
        let b = self.copy_base(e);
        (self.bits).fill_dirty(b + from as usize, b + to as usize, false);
        self.renew_dirty(e);
        self.validate(e, from, to);
    }
    fn renew_dirty(&mut self, e: ExtentId) {
        let b = self.copy_base(e);
        let on = !self.bits.dirty.all(b, b + self.blocks, false);
        self.set_dirty(e, on);
    }
    /// Whether the copy has no valid block.
    pub fn copy_is_empty(&self, e: ExtentId) -> bool {
        let b = self.copy_base(e);
        self.bits.valid.all(b, b + self.blocks, false)
    }
    /// Number of dirty blocks of an extent; 0 without a copy.
    pub fn dirty_blocks(&self, e: ExtentId) -> u32 {
        if !self.is_dirty(e) || self.bits.blocks == 0 {
            return 0;
        }
        count(&self.bits.dirty, self.copy_base(e), self.blocks as u32)
    }
    /// Number of dirty blocks of all copies.
    pub fn all_dirty_blocks(&self) -> u64 {
        self.bits.dirty_blocks
    }
    /// Number of valid blocks in the copy of an extent; 0 without one.
    pub fn copied_blocks(&self, e: ExtentId) -> u32 {
        if self.copy(e).is_none() || self.bits.blocks == 0 {
            return 0;
        }
        count(&self.bits.valid, self.copy_base(e), self.blocks as u32)
    }
    /// The dirty blocks as a bitmap, lowest block in the lowest bit.
    pub fn export_dirty(&self, e: ExtentId, out: &mut [u8]) {
        self.bits.dirty.export(self.copy_base(e), self.blocks, out);
    }
    /// The valid blocks of the copy as a bitmap, lowest block in the lowest bit.
    pub fn export_copied(&self, e: ExtentId, out: &mut [u8]) {
        self.bits.valid.export(self.copy_base(e), self.blocks, out);
    }
    /// What records say about the copy in `s`.
    #[inline]
    pub fn recorded(&self, s: Slot) -> Recorded {
        if self.bits.blocks == 0 {
            return Recorded::No;
        }
        let i = s.0 as usize;
        match (self.bits.named.get(i), self.bits.whole.get(i)) {
            (false, false) => Recorded::No,
            (true, true) => Recorded::Whole,
            (true, false) => Recorded::Part,
            (false, true) => Recorded::Leaving,
        }
    }
    /// Notes what records say about the copy in `s`.
    pub fn set_recorded(&mut self, s: Slot, to: Recorded) {
        let (named, whole) = match to {
            Recorded::No => (false, false),
            Recorded::Whole => (true, true),
            Recorded::Part => (true, false),
            Recorded::Leaving => (false, true),
        };
        self.bits.named.put(s.0 as usize, named);
        self.bits.whole.put(s.0 as usize, whole);
        if let Some(e) = self.owner(s) {
            self.index.set_dirty(e, named || self.is_dirty_in(s));
        }
    }
    /// Whether a durable record may name the copy in `s` as dirty.
    pub fn is_recorded(&self, s: Slot) -> bool {
        self.recorded(s) != Recorded::No
    }
    /// Whether the next record of `e` names its copy as dirty: it is, or the last record says so.
    #[inline]
    pub fn is_named(&self, e: ExtentId) -> bool {
        self.copy(e).is_some_and(|s| self.is_named_in(s))
    }
    /// The same for the copy in `s`.
    #[inline]
    pub fn is_named_in(&self, s: Slot) -> bool {
        self.is_dirty_in(s) || (self.bits.blocks > 0 && self.bits.named.get(s.0 as usize))
    }
    /// The first slot in `from..to` with a copy that is named.
    pub(super) fn next_named(&self, from: u32, to: u32) -> u32 {
        let first = |bits: &Bits| from + bits.run(from as usize, to as usize, false) as u32;
        let dirty = if self.dirty > 0 {
            first(&self.dirty_slots)
        } else {
            to
        };
        if self.bits.blocks == 0 {
            return dirty;
        }
        dirty.min(first(&self.bits.named))
    }
    /// The first slot from `from` on with a copy that is named and has clean blocks, which its record may name as dirty; and its extent.
    pub fn next_named_clean(&self, from: Slot) -> Option<(Slot, ExtentId)> {
        if self.bits.blocks == 0 {
            return None;
        }
        let (mut s, end) = (from.0 as usize, self.rows.fast());
        loop {
            s += self.bits.named.run(s, end, false);
            if s >= end {
                return None;
            }
            let slot = Slot(s as u32);
            let has = |e: &ExtentId| self.dirty_blocks(*e) < self.copied_blocks(*e);
            if let Some(e) = self.owner(slot).filter(has) {
                return Some((slot, e));
            }
            s += 1;
        }
    }
    /// Whether the last record names all blocks of `from..to` as blocks of the copy, so that a write to them needs no record.
    pub fn is_claimed(&self, e: ExtentId, from: u32, to: u32) -> bool {
        let whole = |s| self.recorded(s) == Recorded::Whole;
        self.copy(e).is_some_and(whole) && self.copy_run(e, from, to) == (to - from, true)
    }
    /// Whether the extent has no valid block, neither at its home nor in a dirty copy. Its durable state is then the same as that of an
    /// extent without a home.
    pub fn is_gone(&self, e: ExtentId) -> bool {
        self.has_no_valid_block(e) && !self.is_dirty(e)
    }
}

fn run(bits: &Bits, base: usize, from: u32, to: u32) -> (u32, bool) {
    let on = bits.get(base + from as usize);
    let n = bits.run(base + from as usize, base + to as usize, on);
    (n as u32, on)
}

fn count(bits: &Bits, base: usize, blocks: u32) -> u32 {
    let (mut at, mut sum) = (0, 0);
    while at < blocks {
        let (n, on) = run(bits, base, at, blocks);
        sum += if on { n } else { 0 };
        at += n;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::TierId;
    use crate::volume::geometry::{Geometry, Member};
    use alloc::vec;

    /// Thirty extents of 16 blocks, and 8 fast slots.
    fn empty() -> ExtentMap {
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
    fn blocks_of_a_copy_follow_their_own_rules() {
        let mut m = empty();
        let e = ExtentId(3);
        m.map(e, Slot(20), true);
        m.add_empty_copy(e, Slot(2));
        assert!(m.copy_is_empty(e) && m.is_gone(e));
        assert!(m.copy_dirty(e, 4, 8) && !m.copy_dirty(e, 5, 6));
        assert!(m.is_dirty(e) && !m.is_gone(e) && m.has_no_valid_block(e));
        assert_eq!(
            (m.data_run(e, 0, 16), m.data_run(e, 4, 16)),
            ((4, false), (4, true))
        );
        m.copy_validate(e, 0, 2);
        assert_eq!((m.copied_blocks(e), m.dirty_blocks(e)), (6, 4));
        assert_eq!(m.all_dirty_blocks(), 4);
        // Only clean blocks become invalid.
        assert!(m.copy_invalidate_clean(e, 0, 16));
        assert_eq!((m.copied_blocks(e), m.dirty_blocks(e)), (4, 4));
        // After write-back, the blocks are still valid in the copy, and valid at the home now.
        m.copy_cleaned(e, 4, 6);
        assert_eq!((m.copied_blocks(e), m.dirty_blocks(e)), (4, 2));
        assert_eq!((m.run(e, 4, 16), m.dirty()), ((2, true), 1));
        assert_eq!(m.all_dirty_blocks(), 2);
        assert!(!m.any_dirty(e, 0, 6) && m.any_dirty(e, 0, 7) && m.all_dirty(e, 6, 8));
        assert!(m.copy_forget(e, 0, 16) && !m.is_dirty(e));
        assert!(m.copy_dirty(e, 1, 3));
        m.set_recorded(Slot(2), Recorded::Whole);
        m.drop_copy(e);
        assert_eq!((m.copied(), m.dirty(), m.all_dirty_blocks()), (0, 0, 0));
        // The next copy in that slot starts empty.
        m.add_empty_copy(e, Slot(2));
        assert!(m.copy_is_empty(e) && !m.is_recorded(Slot(2)));
    }

    /// A record that names a copy names the blocks that are valid at that moment, and is out of date when one of them goes.
    #[test]
    fn a_record_claims_the_blocks_of_its_time() {
        let mut m = empty();
        let (e, s) = (ExtentId(3), Slot(2));
        m.map(e, Slot(20), false);
        m.add_empty_copy(e, s);
        m.copy_validate(e, 0, 8);
        assert!(!m.is_named(e) && !m.is_claimed(e, 0, 8) && m.recorded(s) == Recorded::No);
        assert!(!m.copy_forget(e, 6, 8), "no record names it");
        m.copy_dirty(e, 0, 1);
        m.set_recorded(s, Recorded::Whole);
        m.copy_cleaned(e, 0, 1);
        assert!(m.is_named(e) && !m.is_dirty(e) && m.is_claimed(e, 0, 6));
        assert!(!m.is_claimed(e, 5, 7) && (m.next_named(0, 8), m.next_named(3, 8)) == (2, 8));
        m.copy_dirty(e, 2, 3);
        assert!(m.is_claimed(e, 0, 6), "nothing new is valid");
        m.copy_validate(e, 6, 7);
        assert!(!m.is_claimed(e, 0, 1) && m.recorded(s) == Recorded::Part);
        assert!(m.copy_invalidate_clean(e, 0, 1) && m.copy_forget(e, 5, 6));
        m.set_recorded(s, Recorded::Leaving);
        assert!(m.is_recorded(s) && m.is_named(e), "it is dirty");
        m.copy_cleaned(e, 0, 16);
        assert!(!m.is_named(e) && !m.copy_forget(e, 0, 16));
    }
}
