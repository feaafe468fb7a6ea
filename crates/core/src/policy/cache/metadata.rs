//! `metadata_share`: copies that hold metadata of a file system stay, as long as these copies take at most that share of the fast tier.
//!
//! Metadata is small and is needed again and again, but the order of a replacement forgets it after a scan. A copy counts if one of its
//! *valid* blocks is metadata (classes 1…7). In a copy that was allocated by a write only the written blocks are valid, so metadata is kept
//! without its neighbours, and a copy does not stay because of a neighbour that it does not hold.
//!
//! Memory: 1 bit per fast slot, and the classes of copies (1 byte per fast slot, and a byte per 4 KiB for each copy with several classes).

use crate::bits::Bits;
use crate::policy::classes::is_metadata;
use crate::policy::hold::FAST;
use crate::policy::{Access, View};
use crate::volume::UnitId;
use alloc::vec::Vec;
use core::ops::Range;

/// The blocks of a unit that were accessed, and their class.
struct Part {
    unit: UnitId,
    blocks: Range<u32>,
    class: u8,
}

/// See the module.
pub(super) struct Metadata {
    /// Per cent of the fast slots.
    share: u8,
    /// Whether the view keeps classes for this policy.
    begun: bool,
    /// Number of fast slots.
    fast: u32,
    /// Fast slots whose copy holds metadata, and their number.
    slots: Bits,
    held: u32,
    most: u32,
    /// Copies that were proposed, for accesses to these parts.
    coming: Vec<Part>,
    /// Kept copies that the replacement would have evicted. They count as used, so that the next search does not meet them again.
    skipped: Vec<u32>,
}

impl Metadata {
    pub(super) fn new(share: u8) -> Metadata {
        Metadata {
            share,
            begun: false,
            fast: 0,
            slots: Bits::new(0),
            held: 0,
            most: 0,
            coming: Vec::new(),
            skipped: Vec::with_capacity(64),
        }
    }
    pub(super) fn share(&self) -> u8 {
        self.share
    }
    pub(super) fn set_share(&mut self, share: u8) {
        self.share = share;
        self.most = (u64::from(self.fast) * u64::from(share) / 100) as u32;
    }
    /// Called before each access, because the share may be set while the policy is in use.
    #[inline]
    pub(super) fn begin(&mut self, view: &mut View<'_>) {
        if !self.begun {
            self.attach(view);
        }
    }
    pub(super) fn attach(&mut self, view: &mut View<'_>) {
        let f = view.positions(FAST).end;
        self.fast = f;
        view.keep_classes();
        self.begun = true;
        self.slots = Bits::new(f as usize);
        self.held = 0;
        self.set_share(self.share);
        for s in 0..f {
            let position = view.position(s);
            let owner = view.owner(position);
            if owner.is_some_and(|e| view.copy(e) == Some(position) && is_metadata(view.class(e))) {
                self.mark(s, true);
            }
        }
    }
    fn mark(&mut self, slot: u32, on: bool) {
        let slot = slot as usize;
        if !self.begun {
            return;
        }
        if on {
            self.held += u32::from(self.slots.set(slot));
        } else if self.slots.get(slot) {
            self.slots.clear(slot);
            self.held -= 1;
        }
    }
    /// Whether the copy in that slot stays.
    pub(super) fn keeps(&mut self, slot: u32) -> bool {
        let keeps = self.held <= self.most && self.slots.get(slot as usize);
        if keeps {
            self.skipped.push(slot);
        }
        keeps
    }
    /// The kept copies that the replacement would have evicted in the last search, in its order; to be given back.
    pub(super) fn take_skipped(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.skipped)
    }
    pub(super) fn give_back(&mut self, mut skipped: Vec<u32>) {
        skipped.clear();
        self.skipped = skipped;
    }
    /// An access to the copy in that slot.
    pub(super) fn hit(&mut self, view: &mut View<'_>, slot: u32, access: &Access) {
        let part = Part {
            unit: access.extent,
            blocks: view.blocks(access),
            class: access.class,
        };
        self.look(view, slot, &part, access.write);
    }
    /// `written`: the accessed blocks are valid, or will be.
    fn look(&mut self, view: &mut View<'_>, slot: u32, part: &Part, written: bool) {
        view.note_class(part.unit, part.blocks.clone(), part.class);
        let coming = if written { part.blocks.clone() } else { 0..0 };
        let best = view.best_class(part.unit, coming, rank);
        self.mark(slot, is_metadata(best.unwrap_or(part.class)));
    }
    /// A copy was proposed because of this access.
    pub(super) fn expect(&mut self, view: &View<'_>, access: &Access) {
        self.coming.push(Part {
            unit: access.extent,
            blocks: view.blocks(access),
            class: access.class,
        });
    }
    pub(super) fn arrived(&mut self, view: &mut View<'_>, unit: UnitId, slot: u32) {
        if let Some(i) = self.coming.iter().position(|c| c.unit == unit) {
            let part = self.coming.swap_remove(i);
            self.look(view, slot, &part, true);
        }
    }
    pub(super) fn failed(&mut self, unit: UnitId) {
        self.coming.retain(|c| c.unit != unit);
    }
    pub(super) fn left(&mut self, slot: u32) {
        self.mark(slot, false);
    }
    /// The class of a unit, or of blocks of its copy, changed without an access.
    pub(super) fn reclassified(&mut self, view: &View<'_>, unit: UnitId, class: u8) {
        if let Some(s) = view.copy(unit).filter(|&s| view.tier_of(s) == FAST) {
            let best = view.best_class(unit, 0..0, rank).unwrap_or(class);
            self.mark(s.index(), is_metadata(best));
        }
    }
    pub(super) fn bytes(&self) -> usize {
        self.slots.bytes() + self.coming.capacity() * size_of::<Part>()
    }
}

fn rank(class: u8) -> u8 {
    u8::from(!is_metadata(class))
}
