//! The reads and writes of a move: from the source to the buffer, from the buffer to the destination, and the steps that follow.
//!
//! Demotions that were started together also write together: those whose source has been read wait for the others. So the slower device is
//! written in the order of addresses, and adjacent extents become one operation (`join.rs`).

use super::Relocation;
use super::move_list::{Kind, Move, Step};
use crate::engine::durability::Durability;
use crate::engine::globals::Globals;
use crate::io::{IoError, OpKind};
use crate::mutants::Mutant;
use crate::policy::Outcome;
use crate::units::Slot;

impl Relocation {
    /// Issues the read or write of blocks `from..to` of a move, from or to `slot`.
    pub(super) fn move_io(
        &mut self,
        g: &mut Globals,
        index: u16,
        kind: OpKind,
        slot: Slot,
        (from, to): (u32, u32),
    ) {
        let (member, start) = g.space.geo.locate(slot);
        let (at, len) = (
            from << g.space.geo.block_shift,
            (to - from) << g.space.geo.block_shift,
        );
        if let Some(m) = self.moves.at(index) {
            m.left += 1;
            match (m.kind, kind) {
                (Kind::Fetch | Kind::Fill, OpKind::Read) => {
                    g.counters.fetched_bytes += u64::from(len);
                }
                (Kind::Clean { .. }, OpKind::Write) => {
                    g.counters.written_back_bytes += u64::from(len);
                }
                _ => {}
            }
        }
        self.want_part(g, index, kind, (member, start + u64::from(at)), (at, len));
    }

    /// Handles the end of a read or write of a move. `joined`: it was part of a joined operation.
    pub(super) fn move_step(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        index: u16,
        result: Result<(), IoError>,
        joined: bool,
    ) {
        let blind = joined && g.broken(Mutant::JoinForgetsStale);
        let Some(m) = self.moves.at(index) else {
            return;
        };
        m.left -= 1;
        m.failed |= result.is_err() || g.failed;
        m.stale &= !blind;
        if m.left > 0 {
            return;
        }
        let gathers = m.step == Step::Reading && !m.up;
        let m = *m;
        if let Some(how) = m.lost() {
            self.give_up(g, d, index, how);
        } else if gathers {
            self.moves.step(index, Step::Gathered);
        } else if m.step == Step::Reading {
            self.write_move(g, d, index, m);
        } else if matches!(m.kind, Kind::Rehome | Kind::Clean { .. }) {
            self.moves.step(index, Step::Copied);
        } else {
            self.flip_copy(g, d, index);
        }
        if gathers {
            self.write_gathered(g, d, m.batch);
        }
        // Reads that waited can be served from the buffer now.
        g.waiting.extent_changed(m.extent);
        self.moves.update_waiting_since(g.clock);
    }

    /// The demotions of a batch are written when the last of them has been read.
    fn write_gathered(&mut self, g: &mut Globals, d: &mut Durability, batch: u32) {
        let reads = |m: &Move| m.batch == batch && m.step == Step::Reading && !m.up;
        if self.moves.iter().any(|(_, m)| reads(m)) {
            return;
        }
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            at = i + 1;
            let m = self.moves.get(i);
            if m.batch == batch && m.step == Step::Gathered {
                match m.lost() {
                    Some(how) => self.give_up(g, d, i, how),
                    None => self.write_move(g, d, i, m),
                }
            }
        }
    }

    /// A round has ended: continues the moves whose destinations no claim concerns any more.
    pub(in crate::engine) fn write_withdrawn(&mut self, g: &mut Globals, d: &mut Durability) {
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            at = i + 1;
            let m = self.moves.get(i);
            if m.step == Step::Withdrawing {
                match m.lost() {
                    Some(how) => self.give_up(g, d, i, how),
                    None => self.write_move(g, d, i, m),
                }
            }
        }
    }

    fn write_move(&mut self, g: &mut Globals, d: &mut Durability, index: u16, m: Move) {
        if d.slot_must_wait(g, m.dst) {
            self.moves.step(index, Step::Withdrawing);
            return;
        }
        self.moves.step(index, Step::Writing);
        if !m.writes_in_place() {
            let blocks = g.space.geo.blocks_per_extent();
            return self.move_io(g, index, OpKind::Write, m.dst, (0, blocks));
        }
        if self.next_part(g, index, 0).is_none() {
            // Every block was overwritten in the meantime.
            return self.give_up(g, d, index, Outcome::Stale);
        }
        let mut at = 0;
        while let Some((a, z)) = self.next_part(g, index, at) {
            self.move_io(g, index, OpKind::Write, m.dst, (a, z));
            at = z;
        }
    }
}
