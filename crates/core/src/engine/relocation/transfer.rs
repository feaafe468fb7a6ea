//! What a move reads and writes: source to buffer, buffer to destination, and what follows when that has ended.
//!
//! Moves down that were started together write together: the first whose source has been read waits for the others, so that
//! the slower device is written in the order of addresses, side by side where they lie so (`join.rs`).

use crate::engine::relocation::move_list::{Kind, Move, Step};
use crate::engine::{Engine, Mutant};
use crate::io::{Effect, IoError, OpKind};
use crate::policy::Outcome;
use crate::units::{Nanos, Slot};
use alloc::vec::Vec;

impl Engine {
    /// Have blocks `from..to` of a move read from, or written to, `slot`.
    pub(in crate::engine) fn move_io(
        &mut self,
        index: u16,
        kind: OpKind,
        slot: Slot,
        from: u32,
        to: u32,
    ) {
        let (member, start) = self.space.geo.locate(slot);
        let (at, len) = (
            from << self.space.geo.block_shift,
            (to - from) << self.space.geo.block_shift,
        );
        if let Some(m) = &mut self.moves.list[usize::from(index)] {
            m.left += 1;
            match (m.kind, kind) {
                (Kind::Fetch | Kind::Fill, OpKind::Read) => {
                    self.counters.fetched_bytes += u64::from(len);
                }
                (Kind::Clean { .. }, OpKind::Write) => {
                    self.counters.written_back_bytes += u64::from(len);
                }
                _ => {}
            }
        }
        self.want_part(index, kind, (member, start + u64::from(at)), at, len);
    }

    /// A read or write of a move ended, by itself or (`joined`) as part of one.
    pub(in crate::engine) fn move_step(
        &mut self,
        now: Nanos,
        index: u16,
        result: Result<(), IoError>,
        joined: bool,
        out: &mut Vec<Effect>,
    ) {
        let failed = self.failed;
        let blind = joined && self.broken(Mutant::JoinForgetsStale);
        let Some(m) = &mut self.moves.list[usize::from(index)] else {
            return;
        };
        m.left -= 1;
        m.failed |= result.is_err() || failed;
        m.stale &= !blind;
        if m.left > 0 {
            return;
        }
        let gathers = m.step == Step::Reading && !m.up;
        let m = *m;
        if let Some(how) = m.lost() {
            self.give_up(now, index, how, out);
        } else if gathers {
            if let Some(m) = &mut self.moves.list[usize::from(index)] {
                m.step = Step::Gathered;
            }
        } else if m.step == Step::Reading {
            self.write_move(now, index, m, out);
        } else if matches!(m.kind, Kind::Rehome | Kind::Clean { .. }) {
            if let Some(m) = &mut self.moves.list[usize::from(index)] {
                m.step = Step::Copied;
            }
        } else {
            self.flip_copy(now, index, out);
        }
        if gathers {
            self.write_gathered(now, m.batch, out);
        }
        // Readers that waited are served from the buffer now.
        self.retry = true;
        self.moves.recount(now);
    }

    /// The moves down of a batch are written when the last of them has been read.
    fn write_gathered(&mut self, now: Nanos, batch: u32, out: &mut Vec<Effect>) {
        let reads = |m: &Move| m.batch == batch && m.step == Step::Reading && !m.up;
        if self.moves.list.iter().flatten().any(reads) {
            return;
        }
        for i in 0..self.moves.list.len() {
            let Some(m) = self.moves.list[i] else {
                continue;
            };
            if m.batch == batch && m.step == Step::Gathered {
                match m.lost() {
                    Some(how) => self.give_up(now, i as u16, how, out),
                    None => self.write_move(now, i as u16, m, out),
                }
            }
        }
    }

    fn write_move(&mut self, now: Nanos, index: u16, m: Move, out: &mut Vec<Effect>) {
        if let Some(m) = &mut self.moves.list[usize::from(index)] {
            m.step = Step::Writing;
        }
        if !m.writes_in_place() {
            let blocks = self.space.geo.blocks_per_extent();
            return self.move_io(index, OpKind::Write, m.dst, 0, blocks);
        }
        let parts = self.parts(index);
        if parts.is_empty() {
            // Every block was written anew meanwhile.
            return self.give_up(now, index, Outcome::Stale, out);
        }
        for (from, to) in parts {
            self.move_io(index, OpKind::Write, m.dst, from, to);
        }
    }
}
