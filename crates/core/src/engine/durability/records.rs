//! Encodes the records of a round: those of extents that changed, and single ones for moves. Also finds the bytes of a metadata write.

use super::Durability;
use crate::engine::devices::MetaSource;
use crate::engine::globals::Globals;
use crate::map::{ExtentMap, Recorded};
use crate::mutants::Mutant;
use crate::store::{BLOCK, record};
use crate::units::{ExtentId, MemberId, Slot};

/// Largest number of journal blocks that a round may write.
const ROUND_BLOCKS: u64 = 256;

impl Durability {
    /// The bytes of a metadata write in flight.
    pub(in crate::engine) fn meta_bytes(&self, source: MetaSource, len: u32) -> &[u8] {
        let (skip, bytes) = match source {
            MetaSource::None => return &[],
            MetaSource::Journal { seq, skip } => {
                let blocks = u64::from((skip + len).div_ceil(BLOCK as u32));
                (skip, self.staging.bytes(seq, seq + blocks))
            }
            MetaSource::Piece { skip } => (skip, self.checkpoints.piece()),
            MetaSource::Header { skip } => (skip, self.checkpoints.header_block()),
            MetaSource::Counter { member, skip } => (skip, self.counters.bytes(member)),
            MetaSource::Mark { member, skip } => (skip, self.marks.bytes(member)),
            MetaSource::Written { page, skip } => (skip, self.lists.bytes(page)),
        };
        &bytes[skip as usize..(skip + len) as usize]
    }

    /// Number of journal blocks that can be written before they would overrun the start of the last durable checkpoint.
    pub(super) fn ring_room(&self) -> u64 {
        let used = self.staging.tip().next_seq - self.checkpoints.start();
        u64::from(self.layout.area.ring_blocks).saturating_sub(used)
    }

    pub(super) fn half_full(&self) -> bool {
        self.ring_room() * 2 < u64::from(self.layout.area.ring_blocks)
    }

    /// The round that begins may write only journal blocks before this sequence number.
    pub(super) fn block_limit(&self, g: &Globals) -> u64 {
        let ring = if g.broken(Mutant::OverrunJournal) {
            u64::MAX / 2
        } else {
            self.ring_room()
        };
        // If the staging ring is full, the limit is zero blocks, and this round only brings the mirror up to date.
        self.staging.tip().next_seq + ring.min(self.staging.room()).min(ROUND_BLOCKS)
    }

    /// The number with which the clean blocks of copies are recorded, if they are. At the end of the session nothing changes any more.
    fn clean_epoch(&self) -> Option<u64> {
        let ended = self.exact.then_some(self.epoch);
        ended.or(self.always_clean_epoch)
    }

    /// Encodes the records of changes, as many as there is space for.
    pub(super) fn encode_pending(&mut self, g: &mut Globals, limit: u64) {
        while let Some(e) = self.pending.first() {
            let home = g.space.map.home(e);
            if !self.encode(g, e, home, self.clean_epoch(), limit) {
                break;
            }
            self.pending.take_first();
            self.recorded(g, e);
        }
    }

    /// Encodes the records of changes, as many as there is space for, and a piece of the checkpoint.
    pub(super) fn encode_changes(&mut self, g: &mut Globals, limit: u64) {
        self.encode_pending(g, limit);
        self.queue.start_round();
        self.encode_final_records(g, limit);
        let clean_epoch = self.clean_epoch();
        self.checkpoints.add_piece(&mut g.space, clean_epoch);
        self.checkpoints.forgetful = g.broken(Mutant::PieceForgetsRecorded);
        if g.broken(Mutant::CheckpointWithoutBarrier) {
            // The mutant: header and blocks together, without a flush in between.
            self.checkpoints.write_header_early();
        }
    }

    /// Raises the due counters of members to which this round writes: those whose data it flushes (`targets`), the primary if there are
    /// records for the journal, the mirror if it is updated. Also of members that are awake and were written to.
    pub(super) fn raise_counters(&mut self, g: &Globals, targets: u32, mirror: bool, limit: u64) {
        let written = self.raisable(g);
        // If the journal has no room for one, the next write to the member asks again.
        self.counters.taken(written);
        if g.broken(Mutant::NeverRaise) {
            return;
        }
        let bit = |m: MemberId| 1u32 << m.0;
        let mirror_bit = self.mirror().filter(|_| mirror).map_or(0, bit);
        let mut due = self.counters.due(g.clock, targets | mirror_bit | written);
        // The journal, which is on the primary, names each counter that is raised.
        let news = self.staging.is_open()
            || self.staging.tip().next_seq > self.staging.last_flushed + 1
            || self.checkpoints.adds()
            || self.checkpoints.header_due();
        if news || due != 0 {
            due |= self.counters.due(g.clock, bit(self.layout.primary.member));
        }
        for i in (0..32u8).filter(|i| due >> i & 1 == 1) {
            let flushed = self.staging.last_flushed;
            if !self.layout.has_journal {
                self.counters.raise(g.clock, MemberId(i), flushed);
                continue;
            }
            if self.staging.tip().next_seq < limit && self.staging.rest().len() < 16 {
                self.staging.seal();
            }
            if self.staging.tip().next_seq >= limit {
                return;
            }
            let unit = self.counters.raise(g.clock, MemberId(i), flushed);
            self.staging.rest()[..16].copy_from_slice(&unit);
            self.staging.advance(1);
        }
    }

    /// Encodes the record of a move of `e` to `dst`, which is its home when the round ends. Returns false if this round has no space for it.
    pub(in crate::engine) fn record_move(
        &mut self,
        g: &mut Globals,
        e: ExtentId,
        dst: Slot,
        limit: u64,
    ) -> bool {
        self.encode(g, e, Some(dst), self.always_clean_epoch, limit)
    }

    /// Encodes the record of a clean after which the copy of `e` is dropped, so that its slot is free when the round ends. Returns whether
    /// there is space for it; otherwise the copy's own record follows when it is dropped.
    pub(in crate::engine) fn record_eviction(
        &mut self,
        g: &mut Globals,
        e: ExtentId,
        limit: u64,
    ) -> bool {
        let Some(copy) = g.space.map.copy(e) else {
            return false;
        };
        let was = g.space.map.recorded(copy);
        if was == Recorded::No || g.space.map.is_dirty(e) {
            return false;
        }
        g.space.map.set_recorded(copy, Recorded::Leaving);
        let home = g.space.map.home(e);
        if self.encode(g, e, home, self.always_clean_epoch, limit) {
            self.recorded(g, e);
            return true;
        }
        g.space.map.set_recorded(copy, was);
        false
    }

    /// A record of `e` was encoded, as part of the block that is open. Notes what it says about the copy.
    pub(super) fn recorded(&mut self, g: &mut Globals, e: ExtentId) {
        self.withdrawn(g, e);
        let map = &mut g.space.map;
        let Some(s) = map.copy(e) else {
            return;
        };
        if map.is_named(e) && !map.copy_is_empty(e) {
            map.set_recorded(s, Recorded::Whole);
        } else if map.is_recorded(s) {
            map.set_recorded(s, Recorded::Leaving);
            self.freeing.withdrawn(s, self.staging.tip().next_seq);
        }
    }

    /// Encodes the record of one extent, with its home in `slot`. If `clean_epoch` is the session's number, the clean blocks of its copy
    /// are recorded, too. Returns false if this round has no space for the record.
    pub(super) fn encode(
        &mut self,
        g: &mut Globals,
        e: ExtentId,
        slot: Option<Slot>,
        clean_epoch: Option<u64>,
        limit: u64,
    ) -> bool {
        let (map, geo) = (&mut g.space.map, &g.space.geo);
        for _ in 0..2 {
            if self.staging.tip().next_seq >= limit {
                return false;
            }
            let unread = self.staging.is_unread();
            let rest = self.staging.rest();
            let units = if unread {
                // No bytes are needed, only the number of units.
                let units = record::units(map, e, slot, geo, clean_epoch);
                Some(units).filter(|n| n * 16 <= rest.len())
            } else {
                record::encode(map, e, slot, geo, clean_epoch, rest)
            };
            if let Some(units) = units {
                self.staging.advance(units);
                g.counters.journal_records += 1;
                return true;
            }
            self.staging.seal();
        }
        false
    }
}

/// Notes that a checkpoint's record of `e` is about to be written. It may name the copy. But the checkpoint may never be complete, so it does
/// not name more blocks than the journal does.
pub(super) fn mark_in_checkpoint(map: &mut ExtentMap, e: ExtentId, all: bool) {
    if let Some(s) = map.copy(e).filter(|_| map.is_named(e)) {
        if all {
            map.set_recorded(s, Recorded::Whole);
        } else if map.recorded(s) != Recorded::Whole {
            map.set_recorded(s, Recorded::Part);
        }
    }
}
