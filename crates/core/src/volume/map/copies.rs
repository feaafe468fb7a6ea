//! Which blocks of a copy count, and which of them the home lacks.
//!
//! Two bits a block of every slot of the faster tiers, allocated with the first copy, so that tiering pays nothing for
//! them. Invariants: a dirty block is valid in the copy; a valid block that is not dirty is valid at the home, with the same
//! bytes (apart from writes in flight). A third bit, one a slot, remembers that a record which names the slot as a dirty
//! copy may be durable: such a slot must not be given out before a record that contradicts it is.

use super::ExtentMap;
use crate::bits::Bits;
use crate::units::{ExtentId, Slot};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyBits {
    valid: Bits,
    dirty: Bits,
    recorded: Bits,
    blocks: usize,
    /// Bits that are set in `dirty`.
    dirty_blocks: u64,
}

impl CopyBits {
    fn base(&self, s: Slot) -> usize {
        s.0 as usize * self.blocks
    }
    /// The slot holds no copy any more.
    pub(super) fn wipe(&mut self, s: Slot) {
        if self.blocks > 0 {
            let b = self.base(s);
            self.valid.fill(b, b + self.blocks, false);
            self.fill_dirty(b, b + self.blocks, false);
            self.recorded.clear(s.0 as usize);
        }
    }
    /// Set or clear a range of dirty bits, and keep their number; true if that changed anything.
    fn fill_dirty(&mut self, from: usize, to: usize, on: bool) -> bool {
        let set = u64::from(count(&self.dirty, from, (to - from) as u32));
        self.dirty_blocks = self.dirty_blocks - set + if on { (to - from) as u64 } else { 0 };
        self.dirty.fill(from, to, on)
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.valid.bytes() + self.dirty.bytes() + self.recorded.bytes()
    }
}

/// Block by block. All of these take an extent that has a copy; `from..to` are blocks of the extent.
impl ExtentMap {
    /// Give a mapped extent a copy in `s` of which no block is valid yet.
    pub fn add_empty_copy(&mut self, e: ExtentId, s: Slot) {
        if self.bits.blocks == 0 {
            let n = self.owner.len() * self.blocks;
            self.bits = CopyBits {
                valid: Bits::new(n),
                dirty: Bits::new(n),
                recorded: Bits::new(self.owner.len()),
                blocks: self.blocks,
                dirty_blocks: 0,
            };
        }
        self.add_copy(e, s);
    }
    fn copy_base(&self, e: ExtentId) -> usize {
        let s = self.copy(e).expect("the extent has no copy");
        self.bits.base(s)
    }
    /// From block `from` (not past `to`): how many blocks are alike in the copy, and whether they are valid there.
    pub fn copy_run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        run(&self.bits.valid, self.copy_base(e), from, to)
    }
    /// From block `from` (not past `to`) of any extent: a stretch of which all blocks hold data, wherever, or none does.
    pub fn data_run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        if self.copy(e).is_none() {
            return self.run(e, from, to);
        }
        match self.copy_run(e, from, to) {
            (n, true) => (n, true),
            (n, false) => self.run(e, from, from + n),
        }
    }
    /// Are all of `from..to` that count valid in the copy? Where no copy has blocks of its own, each holds all of its extent.
    pub fn copy_serves(&self, e: ExtentId, from: u32, to: u32) -> bool {
        if self.bits.blocks == 0 {
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
    /// The same for dirty.
    pub fn dirty_run(&self, e: ExtentId, from: u32, to: u32) -> (u32, bool) {
        run(&self.bits.dirty, self.copy_base(e), from, to)
    }
    /// Is any of `from..to` dirty?
    pub fn any_dirty(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.is_dirty(e) && self.dirty_run(e, from, to) != (to - from, false)
    }
    /// Are all of `from..to` dirty?
    pub fn all_dirty(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.is_dirty(e) && self.dirty_run(e, from, to) == (to - from, true)
    }
    /// Blocks of the copy became valid.
    pub fn copy_validate(&mut self, e: ExtentId, from: u32, to: u32) {
        let b = self.copy_base(e);
        self.bits
            .valid
            .fill(b + from as usize, b + to as usize, true);
    }
    /// Blocks of the copy became valid and dirty; true if any was not dirty before.
    pub fn copy_dirty(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        let b = self.copy_base(e);
        self.copy_validate(e, from, to);
        let changed = (self.bits).fill_dirty(b + from as usize, b + to as usize, true);
        self.set_dirty(e, true);
        changed
    }
    /// Blocks of the copy hold nothing any more, dirty or not; true if any was dirty.
    pub fn copy_forget(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        let b = self.copy_base(e);
        let (a, z) = (b + from as usize, b + to as usize);
        self.bits.valid.fill(a, z, false);
        let changed = self.bits.fill_dirty(a, z, false);
        self.renew_dirty(e);
        changed
    }
    /// Blocks of the copy are doubtful: those that the home has are read there from now on, dirty ones stay.
    pub fn copy_doubt(&mut self, e: ExtentId, from: u32, to: u32) {
        let b = self.copy_base(e);
        let mut at = from;
        while at < to {
            let (n, dirty) = self.dirty_run(e, at, to);
            if !dirty {
                self.bits
                    .valid
                    .fill(b + at as usize, b + (at + n) as usize, false);
            }
            at += n;
        }
    }
    /// Blocks were written home, durably: valid there, and no longer dirty.
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
    /// Does the copy hold no valid block?
    pub fn copy_is_empty(&self, e: ExtentId) -> bool {
        let b = self.copy_base(e);
        self.bits.valid.all(b, b + self.blocks, false)
    }
    /// Dirty blocks of an extent; 0 without a copy.
    pub fn dirty_blocks(&self, e: ExtentId) -> u32 {
        if !self.is_dirty(e) || self.bits.blocks == 0 {
            return 0;
        }
        count(&self.bits.dirty, self.copy_base(e), self.blocks as u32)
    }
    /// Dirty blocks of all copies.
    pub fn all_dirty_blocks(&self) -> u64 {
        self.bits.dirty_blocks
    }
    /// Blocks of an extent that its copy holds; 0 without one.
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
    /// The valid blocks of the copy, likewise.
    pub fn export_copied(&self, e: ExtentId, out: &mut [u8]) {
        self.bits.valid.export(self.copy_base(e), self.blocks, out);
    }
    /// May a durable record say that `s` holds somebody's dirty blocks?
    pub fn is_recorded(&self, s: Slot) -> bool {
        self.bits.blocks > 0 && self.bits.recorded.get(s.0 as usize)
    }
    /// A record that says so is being written (or, with `false`, one that says otherwise is durable wherever it must be).
    pub fn set_recorded(&mut self, s: Slot, on: bool) {
        if on {
            self.bits.recorded.set(s.0 as usize);
        } else {
            self.bits.recorded.clear(s.0 as usize);
        }
    }
    /// Does nothing of the extent count, at its home or in a dirty copy? Durably such an extent is none.
    pub fn is_gone(&self, e: ExtentId) -> bool {
        self.is_void(e) && !self.is_dirty(e)
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

    #[test]
    fn blocks_of_a_copy_follow_their_own_rules() {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        let mut m = ExtentMap::new(&Geometry::new(16, 12, 30, vec![m(0, 8), m(1, 24)]).unwrap());
        let e = ExtentId(3);
        m.map(e, Slot(20), true);
        m.add_empty_copy(e, Slot(2));
        assert!(m.copy_is_empty(e) && m.is_gone(e));
        assert!(m.copy_dirty(e, 4, 8) && !m.copy_dirty(e, 5, 6));
        assert!(m.is_dirty(e) && !m.is_gone(e) && m.is_void(e));
        assert_eq!(
            (m.data_run(e, 0, 16), m.data_run(e, 4, 16)),
            ((4, false), (4, true))
        );
        m.copy_validate(e, 0, 2);
        assert_eq!((m.copied_blocks(e), m.dirty_blocks(e)), (6, 4));
        assert_eq!(m.all_dirty_blocks(), 4);
        // Doubt takes the clean ones only.
        m.copy_doubt(e, 0, 16);
        assert_eq!((m.copied_blocks(e), m.dirty_blocks(e)), (4, 4));
        // Written home: still valid in the copy, valid at home now.
        m.copy_cleaned(e, 4, 6);
        assert_eq!((m.copied_blocks(e), m.dirty_blocks(e)), (4, 2));
        assert_eq!((m.run(e, 4, 16), m.dirty()), ((2, true), 1));
        assert_eq!(m.all_dirty_blocks(), 2);
        assert!(!m.any_dirty(e, 0, 6) && m.any_dirty(e, 0, 7) && m.all_dirty(e, 6, 8));
        assert!(m.copy_forget(e, 0, 16) && !m.is_dirty(e));
        assert!(m.copy_dirty(e, 1, 3));
        m.set_recorded(Slot(2), true);
        m.drop_copy(e);
        assert_eq!((m.copied(), m.dirty(), m.all_dirty_blocks()), (0, 0, 0));
        // The next copy in that slot starts empty.
        m.add_empty_copy(e, Slot(2));
        assert!(m.copy_is_empty(e) && !m.is_recorded(Slot(2)));
    }
}
