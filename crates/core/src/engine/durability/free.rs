//! Slots that are given up and not yet free.
//!
//! A slot that a discard or a move has freed is allocated again only when all of the following hold. (1) The record that frees it is
//! durable; otherwise, after a crash, the old owner would find another extent's bytes. (2) The mirror has that record, too: degraded
//! service uses the mirror alone, and if the medium damages the newest blocks of the primary's journal, they look like a torn tail, and
//! only the mirror shows that the slot has a new owner. (3) No read uses the slot any more. (4) A discard that was passed to the device has
//! ended; otherwise it could destroy the new owner's data.
//!
//! This does not apply to a copy's slot that no durable record names as dirty: caches allocate and free slots without waiting for a disk.
//! After a record that does not name such a slot any more, an earlier one counts until this one is durable on primary and mirror. Such slots
//! are kept in a list, and until then they are freed like those of dirty copies.

use super::Durability;
use crate::by_number::ByNumber;
use crate::engine::devices::{Cause, What};
use crate::engine::globals::Globals;
use crate::io::{BufRef, DeviceOp, OpId, OpKind};
use crate::map::Recorded;
use crate::mutants::Mutant;
use crate::units::Slot;
use alloc::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: Slot,
    trim: bool,
    /// The number of committed records from which on the freeing is durable.
    mark: u64,
}

/// What a slot that is given up waits for.
#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// Its record.
    #[default]
    Record,
    /// The end of the operations on it. Its freeing is durable. `trim`: then the device gets a discard.
    Pins { trim: bool },
    /// The discard of it on the device.
    Trim,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Freeing {
    /// Slots that wait for the record on primary and mirror.
    waiting: VecDeque<Entry>,
    /// Slots that wait for the record on the primary only (a mutant).
    hasty: VecDeque<Entry>,
    /// All slots that are given up and not free, by their number.
    slots: ByNumber<Stage>,
    /// Slots of copies that a record of their extents did not name any more, each with the number of that record's block.
    withdrawn: VecDeque<(Slot, u64)>,
    /// For each of these slots, the block of the last such record.
    last_withdrawn: ByNumber<u64>,
}

impl Default for Freeing {
    fn default() -> Freeing {
        Freeing {
            waiting: VecDeque::new(),
            hasty: VecDeque::new(),
            slots: ByNumber::new(256),
            withdrawn: VecDeque::new(),
            last_withdrawn: ByNumber::new(256),
        }
    }
}

impl Freeing {
    /// Whether no slot will become free.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// Whether `s` will become free.
    pub(super) fn contains(&self, s: Slot) -> bool {
        self.slots.get(s.0).is_some()
    }
    /// Whether a slot waits for a record, so that a round would free it.
    pub(super) fn wants_round(&self) -> bool {
        !self.waiting.is_empty() || !self.hasty.is_empty()
    }
    /// Number of slots that wait for a record, so that a round would free them.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() + self.hasty.len()
    }
    /// A record that does not name the copy in `slot` is in block `seq` of the journal.
    pub(super) fn withdrawn(&mut self, slot: Slot, seq: u64) {
        self.withdrawn.push_back((slot, seq));
        *self.last_withdrawn.entry(slot.0) = seq;
    }
}

impl Durability {
    /// Whether no slot will become free.
    pub(in crate::engine) fn frees_nothing(&self) -> bool {
        self.freeing.is_empty()
    }
    /// Whether `s` will become free.
    pub(in crate::engine) fn frees(&self, s: Slot) -> bool {
        self.freeing.contains(s)
    }

    /// Gives up `slot`, whose record is pending. `trim`: the device gets a discard before the slot is free.
    pub(in crate::engine) fn free_slot(&mut self, g: &mut Globals, slot: Slot, trim: bool) {
        g.space.slots.quarantine(slot);
        let entry = Entry {
            slot,
            trim,
            mark: self.pending.mark(),
        };
        if g.broken(Mutant::ReuseBeforeDurable) {
            return self.freeing.release(g, entry);
        }
        *self.freeing.slots.entry(slot.0) = Stage::Record;
        // (Without a mirror both queues wait for the same records.)
        let on_primary = g.space.geo.locate(slot).0 == self.layout.primary.member;
        let hasty = if on_primary {
            Mutant::ReusePrimaryBeforeMirror
        } else {
            Mutant::ReuseBeforeMirror
        };
        if g.broken(hasty) {
            self.freeing.hasty.push_back(entry);
        } else {
            self.freeing.waiting.push_back(entry);
        }
    }

    /// Gives up `slot` for which no record is pending: the source of a move whose record is durable (and mirrored), or a copy that no
    /// durable record names.
    pub(in crate::engine) fn free_moved(&mut self, g: &mut Globals, slot: Slot) {
        g.space.slots.quarantine(slot);
        let entry = Entry {
            slot,
            trim: false,
            mark: 0,
        };
        self.freeing.release(g, entry);
    }

    /// After a round: frees the slots whose freeing is durable now.
    pub(in crate::engine) fn release_durable(&mut self, g: &mut Globals) {
        let (primary, everywhere) = self.pending.committed(self.has_mirror());
        while let Some(e) = pop_durable(&mut self.freeing.hasty, primary) {
            self.freeing.release(g, e);
        }
        while let Some(e) = pop_durable(&mut self.freeing.waiting, everywhere) {
            // No record names the slot any more, so its next copy need not wait.
            if e.slot.0 < g.fast_slots() && g.space.map.is_recorded(e.slot) {
                g.space.map.set_recorded(e.slot, Recorded::No);
            }
            self.freeing.release(g, e);
        }
    }

    /// After a round: no record names the copies any more whose withdrawal is durable everywhere, unless a later record does. Such a record may
    /// have been withdrawn as well, by one that is not durable yet, or still pending.
    pub(super) fn forget_recorded(&mut self, g: &mut Globals) {
        let primary = self.staging.last_flushed + 1;
        let end = if self.has_mirror() && !g.broken(Mutant::ForgetRecordedBeforeMirror) {
            self.staging.mirrored.min(primary)
        } else {
            primary
        };
        while let Some(&(s, _)) = self.freeing.withdrawn.front().filter(|w| w.1 < end) {
            let Some((_, seq)) = self.freeing.withdrawn.pop_front() else {
                return;
            };
            if self.freeing.last_withdrawn.get(s.0) != Some(seq) {
                continue;
            }
            self.freeing.last_withdrawn.remove(s.0);
            let map = &g.space.map;
            let pends = map.owner(s).is_some_and(|e| self.pending.contains(e));
            let is_last = map.recorded(s) == Recorded::Leaving && !pends;
            if is_last || g.broken(Mutant::ForgetRenamed) {
                g.space.map.set_recorded(s, Recorded::No);
            }
        }
    }

    /// A discard that was passed to a device has ended.
    pub(in crate::engine) fn trimmed(&mut self, g: &mut Globals, slot: Slot) {
        self.freeing.slots.remove(slot.0);
        g.space.slots.release(slot);
        g.waiting.slot_freed();
    }

    /// The last operation on `slot` has ended.
    pub(in crate::engine) fn unpinned(&mut self, g: &mut Globals, slot: Slot) {
        if let Some(Stage::Pins { trim }) = self.freeing.slots.get(slot.0) {
            let mark = 0;
            self.freeing.release(g, Entry { slot, trim, mark });
        }
    }
}

impl Freeing {
    fn release(&mut self, g: &mut Globals, e: Entry) {
        if g.space.pins.is_pinned(e.slot) && !g.broken(Mutant::ReusePinned) {
            *self.slots.entry(e.slot.0) = Stage::Pins { trim: e.trim };
            return;
        }
        let (member, offset) = g.space.geo.locate(e.slot);
        let m = *g.devices.of(member);
        if e.trim && m.trims && !m.missing {
            *self.slots.entry(e.slot.0) = Stage::Trim;
            let op = DeviceOp {
                id: OpId(0),
                member,
                kind: OpKind::Discard,
                offset,
                len: g.space.geo.extent_bytes(),
                buf: BufRef::None,
                fua: false,
            };
            g.start(Cause::plain(What::Trim { slot: e.slot }), op);
        } else {
            self.slots.remove(e.slot.0);
            g.space.slots.release(e.slot);
            g.waiting.slot_freed();
        }
    }
}

/// Removes and returns the first entry, if its record is among the `committed` ones.
fn pop_durable(waiting: &mut VecDeque<Entry>, committed: u64) -> Option<Entry> {
    waiting.front().filter(|e| e.mark <= committed)?;
    waiting.pop_front()
}
