//! Slots between "given up" and "free".
//!
//! A slot freed by discard or move is handed out again only when (1) the record that frees it is durable, else a crash would
//! bring the old owner back to find somebody else's bytes; (2) for slots of slow tiers, the mirror knows too, since degraded
//! service goes by the mirror alone; (3) nobody reads it any more; (4) a discard passed down has ended, or it could hit the
//! new owner's data.

use crate::engine::durability::commit::MetaSource;
use crate::engine::{Engine, Mutant, What};
use crate::io::{BufRef, DeviceOp, Effect, OpId, OpKind};
use crate::units::Slot;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: Slot,
    trim: bool,
    /// Durable once this many pending records were committed.
    mark: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Freeing {
    /// Waiting for the primary's record.
    fast: VecDeque<Entry>,
    /// Waiting for the mirror's record.
    slow: VecDeque<Entry>,
    /// Durable, but pinned.
    pinned: Vec<Entry>,
    /// Being discarded on the device.
    trimming: Vec<Slot>,
}

impl Freeing {
    /// Is nothing on its way?
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.fast.is_empty()
            && self.slow.is_empty()
            && self.pinned.is_empty()
            && self.trimming.is_empty()
    }
    /// Is `s` on its way to be free?
    pub(in crate::engine) fn contains(&self, s: Slot) -> bool {
        let mut entries = self.fast.iter().chain(&self.slow).chain(&self.pinned);
        entries.any(|e| e.slot == s) || self.trimming.contains(&s)
    }
    /// Does a slow slot wait for the mirror?
    pub(in crate::engine) fn wants_mirror(&self) -> bool {
        !self.slow.is_empty()
    }
    /// Does any slot wait for a record?
    pub(in crate::engine) fn wants_round(&self) -> bool {
        !self.fast.is_empty() || !self.slow.is_empty()
    }
}

impl Engine {
    /// `slot` was given up; the record that says so is pending.
    pub(in crate::engine) fn free_slot(&mut self, slot: Slot, trim: bool, out: &mut Vec<Effect>) {
        self.space.slots.quarantine(slot);
        let entry = Entry {
            slot,
            trim,
            mark: self.commit.pending_mark(),
        };
        if self.broken(Mutant::ReuseBeforeDurable) {
            return self.release(entry, out);
        }
        if self.mirror_decides(slot) && !self.broken(Mutant::ReuseBeforeMirror) {
            self.freeing.slow.push_back(entry);
        } else {
            self.freeing.fast.push_back(entry);
        }
    }

    /// `slot` was the source of a move whose record is durable (and mirrored).
    pub(in crate::engine) fn free_moved(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        self.space.slots.quarantine(slot);
        self.release(
            Entry {
                slot,
                trim: false,
                mark: 0,
            },
            out,
        );
    }

    /// After a round: let go of what is durable now.
    pub(in crate::engine) fn release_durable(&mut self, out: &mut Vec<Effect>) {
        let (primary, mirror) = self.commit.committed();
        while let Some(e) = self
            .freeing
            .fast
            .front()
            .copied()
            .filter(|e| e.mark <= primary)
        {
            self.freeing.fast.pop_front();
            self.release(e, out);
        }
        while let Some(e) = self
            .freeing
            .slow
            .front()
            .copied()
            .filter(|e| e.mark <= mirror)
        {
            self.freeing.slow.pop_front();
            self.release(e, out);
        }
    }

    fn release(&mut self, e: Entry, out: &mut Vec<Effect>) {
        if self.space.pins.is_pinned(e.slot) && !self.broken(Mutant::ReusePinned) {
            self.freeing.pinned.push(e);
            return;
        }
        let (member, offset) = self.space.geo.locate(e.slot);
        let m = self.members[usize::from(member.0)];
        if e.trim && m.trims && !m.missing {
            self.freeing.trimming.push(e.slot);
            let len = self.space.geo.extent_bytes();
            let op = DeviceOp {
                id: OpId(0),
                member,
                kind: OpKind::Discard,
                offset,
                len,
                buf: BufRef::None,
                fua: false,
            };
            self.start(What::Trim { slot: e.slot }, op, MetaSource::None, out);
        } else {
            self.space.slots.release(e.slot);
            self.freed = true;
        }
    }

    /// A discard that was passed down ended.
    pub(in crate::engine) fn trimmed(&mut self, slot: Slot) {
        self.freeing.trimming.retain(|&s| s != slot);
        self.space.slots.release(slot);
        self.freed = true;
    }

    /// The last operation on `slot` ended.
    pub(in crate::engine) fn unpinned(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        if let Some(i) = self.freeing.pinned.iter().position(|e| e.slot == slot) {
            let e = self.freeing.pinned.swap_remove(i);
            self.release(e, out);
        }
    }
}
