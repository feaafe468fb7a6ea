//! The classes of the data in copies, for a policy that asks for them ([`ExtentMap::keep_classes`]).
//!
//! A class is kept for each piece of 4 KiB, because file systems usually do not assign data in smaller units. As long as only one class of
//! a copy is known, it takes one byte per slot of the faster tiers. If the pieces of a copy have several classes (64 KiB may contain a
//! journal block and the end of a film), the copy has a table with one byte per piece:
//!
//! ```text
//! slot ─► class of all pieces │ NONE: nothing is known yet │ TABLE ─► slot's table: a class per piece
//! ```
//!
//! The number of tables is bounded ([`Classes::most`]). If no table is left, all blocks of a copy have the class that was noted last.
//! Classes do not matter for safety. They only tell the policy which data is worth keeping.

use super::ExtentMap;
use crate::units::{ExtentId, Slot};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Nothing is known about the copy in this slot, or there is no copy.
const NONE: u8 = u8::MAX;
/// The slot's pieces have several classes.
const TABLE: u8 = u8::MAX - 1;
/// A piece has 4 KiB.
const PIECE_SHIFT: u32 = 12;
/// Number of bytes that the tables may take even if there are few slots.
const RESERVE_MIN: u64 = 32 << 20;
/// Memory of a table in addition to its bytes: its entry in the tree, and the overhead of an allocation.
const BESIDE: u64 = 64;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    /// By slot: the class, `NONE` or `TABLE`. Empty if classes are not kept.
    of: Vec<u8>,
    tables: BTreeMap<u32, Box<[u8]>>,
    /// Largest number of tables.
    most: usize,
    /// A piece has 2^this blocks.
    shift: u32,
}

/// Number of pieces of an extent of `blocks` blocks, with 2^`shift` blocks per piece.
fn pieces(blocks: u64, shift: u32) -> u64 {
    blocks.div_ceil(1 << shift)
}

impl Classes {
    /// Largest number of tables. Together they may take one byte per slot, or 32 MiB if that is more. If an extent is one piece, no tables
    /// are needed.
    fn most(slots: u64, pieces: u64) -> u64 {
        if pieces < 2 {
            return 0;
        }
        (slots.max(RESERVE_MIN) / (pieces + BESIDE)).min(slots)
    }
    /// Memory in bytes for `slots` slots with the largest number of tables. An extent has at most as many pieces as blocks.
    pub(super) fn estimate(slots: u64, pieces: u64) -> u64 {
        slots + Classes::most(slots, pieces) * (pieces + BESIDE)
    }
    /// Removes everything that is known about the classes in a slot.
    pub(super) fn wipe(&mut self, s: Slot) {
        if let Some(c) = self.of.get_mut(s.0 as usize) {
            if *c == TABLE {
                self.tables.remove(&s.0);
            }
            *c = NONE;
        }
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let each = self.tables.values().next().map_or(0, |t| t.len());
        self.of.len() + self.tables.len() * (each + BESIDE as usize)
    }
    /// Notes that the pieces `part` of `all` in slot `s` have `class`. `rest` is the class of the other pieces, if nothing is known about
    /// them.
    fn note(&mut self, s: u32, part: Range<u32>, all: usize, class: u8, rest: u8) {
        let known = self.of[s as usize];
        let (from, to) = (part.start as usize, part.end as usize);
        if known == TABLE {
            let table = self.tables.get_mut(&s).expect("a marked slot has a table");
            table[from..to].fill(class);
            if table.iter().all(|c| *c == class) {
                self.tables.remove(&s);
                self.of[s as usize] = class;
            }
            return;
        }
        let before = if known == NONE { rest } else { known };
        let is_one = before == class || to - from >= all || self.tables.len() >= self.most;
        if is_one {
            self.of[s as usize] = class;
            return;
        }
        let mut table = vec![before; all].into_boxed_slice();
        table[from..to].fill(class);
        self.tables.insert(s, table);
        self.of[s as usize] = TABLE;
    }
}

/// Statistics of copies whose blocks have several classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mixed {
    /// Number of copies whose class is known.
    pub known: u32,
    /// Number of these copies whose valid blocks have several classes.
    pub mixed: u32,
    /// Number of valid blocks of all copies whose class is known.
    pub blocks: u64,
    /// Number of valid blocks whose class is worse than the best class in their copy. A cache that replaced blocks and not extents could
    /// drop these and keep every better block.
    pub neighbours: u64,
}

/// The classes of blocks in copies.
impl ExtentMap {
    /// Keeps the classes of copies from now on. Blocks have 2^`block_shift` bytes. Classes that an earlier policy noted are forgotten,
    /// because they may be out of date.
    pub fn keep_classes(&mut self, block_shift: u32) {
        let slots = self.rows.fast();
        self.classes = Classes {
            of: vec![NONE; slots],
            shift: PIECE_SHIFT.saturating_sub(block_shift),
            ..Classes::default()
        };
        self.classes.most = Classes::most(slots as u64, self.pieces() as u64) as usize;
    }
    fn pieces(&self) -> usize {
        pieces(self.blocks as u64, self.classes.shift) as usize
    }
    /// The pieces that contain any of `blocks`.
    fn pieces_of(&self, blocks: Range<u32>) -> Range<u32> {
        let shift = self.classes.shift;
        blocks.start >> shift..blocks.end.min(self.blocks as u32).div_ceil(1 << shift)
    }
    /// Whether classes of copies are kept.
    #[inline]
    pub fn keeps_classes(&self) -> bool {
        !self.classes.of.is_empty()
    }
    /// Notes that blocks `part` of an extent have `class`. If nothing is known about its copy yet, the other blocks get the class `rest`.
    /// Nothing happens without a copy, or if classes are not kept.
    pub fn note_class(&mut self, e: ExtentId, part: Range<u32>, class: u8, rest: u8) {
        let part = self.pieces_of(part);
        if !self.keeps_classes() || part.is_empty() {
            return;
        }
        if let Some(s) = self.copy(e) {
            let all = self.pieces();
            self.classes.note(s.0, part, all, class, rest);
        }
    }
    /// Forgets the classes of a copy.
    pub fn forget_classes(&mut self, e: ExtentId) {
        if let Some(s) = self.copy(e) {
            self.classes.wipe(s);
        }
    }
    /// Replaces everything that is known about the classes of a copy. `runs`: the number of pieces (4 KiB, or a block if that is more) and
    /// their class, from the extent's first piece on. Without runs, nothing is known. `class` is that of all pieces if no table is left.
    pub fn set_classes(&mut self, e: ExtentId, class: u8, runs: &[(u32, u8)]) {
        let copy = self.copy(e).filter(|_| self.keeps_classes());
        let (Some(s), all) = (copy, self.pieces()) else {
            return;
        };
        self.classes.wipe(s);
        let is_mixed = runs.windows(2).any(|two| two[0].1 != two[1].1);
        if is_mixed && self.classes.tables.len() >= self.classes.most {
            return self.classes.note(s.0, 0..all as u32, all, class, class);
        }
        let mut from = 0u32;
        for (n, class) in runs {
            let to = from.saturating_add(*n).min(all as u32);
            if from < to {
                self.classes.note(s.0, from..to, all, *class, *class);
            }
            from = to;
        }
    }
    /// The class with the lowest `rank` among the valid blocks of the copy. The blocks `coming` count as valid, because a write to them has
    /// not ended yet. `None` if there is no copy, if nothing is known about its classes, or if it has several classes and no valid block.
    pub fn best_class(
        &self,
        e: ExtentId,
        coming: Range<u32>,
        rank: impl Fn(u8) -> u8,
    ) -> Option<u8> {
        let s = self.copy(e)?;
        match *self.classes.of.get(s.0 as usize)? {
            NONE => None,
            TABLE => {
                let table = self.classes.tables.get(&s.0)?;
                let coming = self.pieces_of(coming);
                let coming = coming.start as usize..coming.end as usize;
                let writing = table.get(coming).unwrap_or_default().iter();
                let best = writing.copied().min_by_key(|c| rank(*c));
                let pieces = self.held_runs(e).flat_map(|run| self.pieces_of(run));
                let held = pieces.map(|p| table[p as usize]);
                let held = held.min_by_key(|c| rank(*c));
                held.into_iter().chain(best).min_by_key(|c| rank(*c))
            }
            class => Some(class),
        }
    }
    /// The runs of valid blocks of a copy.
    fn held_runs(&self, e: ExtentId) -> impl Iterator<Item = Range<u32>> {
        let all = self.blocks as u32;
        let mut at = 0;
        core::iter::from_fn(move || {
            while at < all {
                let (n, valid) = if self.copies_are_whole() {
                    (all, true)
                } else {
                    self.copy_run(e, at, all)
                };
                let from = at;
                at += n;
                if valid {
                    return Some(from..at);
                }
            }
            None
        })
    }
    /// Counts the copies whose blocks have several classes. A class is better than another if its `rank` is lower.
    pub fn mixed(&self, rank: impl Fn(u8) -> u8) -> Mixed {
        let mut sum = Mixed::default();
        for (s, class) in self.classes.of.iter().enumerate() {
            let Some(e) = self.owner(Slot(s as u32)).filter(|_| *class != NONE) else {
                continue;
            };
            sum.known += 1;
            let held = if self.copies_are_whole() {
                self.blocks as u32
            } else {
                self.copied_blocks(e)
            };
            sum.blocks += u64::from(held);
            let Some(table) = self.classes.tables.get(&(s as u32)) else {
                continue;
            };
            let blocks = || self.held_runs(e).flatten();
            let classes = || blocks().map(|b| table[(b >> self.classes.shift) as usize]);
            let first = classes().next();
            sum.mixed += u32::from(classes().any(|c| Some(c) != first));
            let best = classes().map(&rank).min();
            sum.neighbours += classes().filter(|c| Some(rank(*c)) > best).count() as u64;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use crate::units::TierId;
    use crate::volume::geometry::{Geometry, Member};

    const BLOCKS: u32 = 16;

    fn map() -> ExtentMap {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let mut m =
            ExtentMap::new(&Geometry::new(16, 12, 30, vec![m(0, 8), m(1, 40)]).expect("a shape"));
        m.keep_classes(12);
        m
    }

    fn copy(m: &mut ExtentMap, e: u32) -> ExtentId {
        let e = ExtentId(e);
        m.map(e, Slot(8 + e.0), false);
        m.add_empty_copy(e, Slot(e.0));
        e
    }

    /// Lower numbers are better, except that class 0 is the worst.
    fn rank(class: u8) -> u8 {
        class.wrapping_sub(1)
    }

    #[test]
    fn a_copy_is_of_the_best_class_that_it_holds() {
        let mut m = map();
        let e = copy(&mut m, 3);
        assert_eq!(m.best_class(e, 0..0, rank), None, "nothing was told");
        m.note_class(e, 0..1, 7, 0);
        m.note_class(e, 1..16, 14, 0);
        assert_eq!(
            m.best_class(e, 0..0, rank),
            None,
            "several, and holds nothing"
        );
        m.copy_validate(e, 4, 8);
        assert_eq!(m.best_class(e, 0..0, rank), Some(14));
        assert_eq!(
            m.best_class(e, 0..1, rank),
            Some(7),
            "a write counts at once"
        );
        assert_eq!(m.mixed(rank).mixed, 0, "it holds one of its classes");
        m.copy_validate(e, 0, 1);
        assert_eq!(m.best_class(e, 0..0, rank), Some(7));
        let all = m.mixed(rank);
        assert_eq!((all.known, all.mixed), (1, 1));
        assert_eq!((all.blocks, all.neighbours), (5, 4));
        // The journal block is overwritten with other data: the copy has one class again, and no table.
        m.note_class(e, 0..1, 14, 0);
        assert_eq!(m.best_class(e, 0..0, rank), Some(14));
        assert_eq!(m.classes.tables.len(), 0);
    }

    #[test]
    fn other_blocks_get_the_class_of_the_extent_or_of_the_first() {
        let mut m = map();
        let (a, b) = (copy(&mut m, 1), copy(&mut m, 2));
        for e in [a, b] {
            m.copy_validate(e, 0, BLOCKS);
        }
        m.note_class(a, 3..4, 14, 7);
        assert_eq!(m.best_class(a, 0..0, rank), Some(7));
        // If the extent has no class, the caller passes the same class twice.
        m.note_class(b, 3..4, 14, 14);
        assert_eq!(m.best_class(b, 0..0, rank), Some(14));
        m.forget_classes(a);
        assert_eq!(m.best_class(a, 0..0, rank), None);
        m.note_class(a, 3..4, 14, 7);
        let again = &mut m.clone();
        again.keep_classes(12);
        assert_eq!(again.best_class(a, 0..0, rank), None, "a new policy");
        assert_eq!(again.classes.tables.len(), 0);
        m.forget_classes(a);
        // Nothing is known about the next copy in a slot.
        m.drop_copy(b);
        m.map(ExtentId(9), Slot(17), false);
        m.add_empty_copy(ExtentId(9), Slot(2));
        assert_eq!(m.mixed(rank).known, 0);
    }

    /// Compares the tables with a naive record of the class of every block.
    #[test]
    fn tables_agree_with_a_record_of_every_block() {
        let mut m = map();
        let mut naive = [[None; BLOCKS as usize]; 8];
        let mut held = [[false; BLOCKS as usize]; 8];
        let es: Vec<ExtentId> = (0..8).map(|e| copy(&mut m, e)).collect();
        let mut random = SplitMix64::new(11);
        for _ in 0..20_000 {
            let x = random.draw();
            let i = (x % 8) as usize;
            let e = es[i];
            let (a, b) = ((x >> 8) as u32 % BLOCKS, (x >> 16) as u32 % BLOCKS);
            let (from, to) = (a.min(b), a.max(b) + 1);
            let part = from as usize..to as usize;
            match x >> 60 {
                0 => {
                    m.forget_classes(e);
                    naive[i] = [None; BLOCKS as usize];
                }
                1 => {
                    m.drop_copy(e);
                    m.add_empty_copy(e, Slot(i as u32));
                    (naive[i], held[i]) = ([None; BLOCKS as usize], [false; BLOCKS as usize]);
                }
                2..=5 => {
                    m.copy_validate(e, from, to);
                    held[i][part].fill(true);
                }
                6 => {
                    let _ = m.copy_forget(e, from, to);
                    held[i][part].fill(false);
                }
                _ => {
                    let (class, rest) = ((x >> 24) as u8 % 4, (x >> 32) as u8 % 4);
                    m.note_class(e, from..to, class, rest);
                    if naive[i][0].is_none() {
                        naive[i] = [Some(rest); BLOCKS as usize];
                    }
                    naive[i][part].fill(Some(class));
                }
            }
            let classes = || (0..BLOCKS as usize).filter(|b| held[i][*b]);
            let best = classes()
                .filter_map(|b| naive[i][b])
                .min_by_key(|c| rank(*c));
            let ours = m.best_class(e, 0..0, rank);
            // A copy with one class has this class even without valid blocks.
            assert!(
                ours == best || best.is_none() && m.classes.of[i] < TABLE,
                "{ours:?} {best:?}"
            );
            let several = (0..8).filter(|&c| {
                let of: Vec<_> = (0..BLOCKS as usize).filter(|b| held[c][*b]).collect();
                of.iter().any(|b| naive[c][*b] != naive[c][of[0]])
            });
            assert_eq!(m.mixed(rank).mixed as usize, several.count());
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut m = map();
        m.classes.most = 2;
        let es: Vec<ExtentId> = (0..4).map(|e| copy(&mut m, e)).collect();
        for &e in &es {
            m.copy_validate(e, 0, BLOCKS);
            m.note_class(e, 0..8, 7, 14);
        }
        assert_eq!(m.classes.tables.len(), 2);
        // Copies without a table have the class that was noted last.
        m.note_class(es[3], 8..16, 9, 9);
        assert_eq!(m.best_class(es[3], 0..0, rank), Some(9));
        m.drop_copy(es[0]);
        m.note_class(es[3], 0..1, 7, 9);
        assert_eq!(m.best_class(es[3], 0..0, rank), Some(7));
        assert_eq!(m.classes.tables.len(), 2);
        assert_eq!(m.classes.bytes(), 8 + 2 * (BLOCKS as usize + 64));
        // 1 TiB of flash in extents of 64 KiB needs one byte per slot, and at most 32 MiB for tables.
        let slots = 1 << 24;
        let bytes = Classes::estimate(slots, 16);
        assert!(bytes <= slots + RESERVE_MIN, "{bytes}");
        assert_eq!(Classes::estimate(slots, 1), slots);
    }
}
