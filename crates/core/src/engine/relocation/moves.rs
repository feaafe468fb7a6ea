//! The life of a move: read source → write destination → (round: flush, record, flush) → flip → free source.
//!
//! Copies use the same steps. A fetch flips as soon as the copy is written, because no durable record names the copy. A clean writes the
//! dirty blocks home, and its record states that they are no longer dirty (`copies.rs` starts cleans).
//!
//! Crash points: before the record is durable, recovery finds the *source*, which was not overwritten. After that it finds the
//! *destination*, which was flushed before the record was issued. The source slot is free only when the record is durable and no read of
//! the slot is in progress.

use super::move_list::{Kind, Move, Step};
use super::{EndedMove, Relocation};
use crate::engine::durability::{CopiedOn, Durability, MovesRecorded};
use crate::engine::globals::Globals;
use crate::io::OpKind;
use crate::mutants::Mutant;
use crate::policy::{Action, Outcome};
use crate::units::{ExtentId, Slot, TierId};

/// A move that is about to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewMove {
    pub(super) action: Action,
    pub(super) extent: ExtentId,
    pub(super) src: Slot,
    pub(super) dst: Slot,
    pub(super) kind: Kind,
    /// Whether it goes to a faster tier.
    pub(super) up: bool,
    /// Whether the engine itself starts it.
    pub(super) own: bool,
    /// Whether it is part of the operation of the previous move.
    pub(super) joins_previous: bool,
}

impl Relocation {
    /// Moves a home for the engine itself. The extent is not in use and has no write in progress. Returns false if no slot is free there.
    pub(in crate::engine) fn own_move(&mut self, g: &mut Globals, e: ExtentId, to: TierId) -> bool {
        let (Some(src), Some(dst)) = (g.space.map.home(e), g.space.take_on(e, to, None)) else {
            return false;
        };
        let action = Action::Move { extent: e, to };
        Relocation::proposed(g, action);
        let new = NewMove {
            action,
            extent: e,
            src,
            dst,
            kind: Kind::Rehome,
            up: false,
            own: true,
            joins_previous: false,
        };
        self.start_move(g, new);
        true
    }

    /// Starts a move; a buffer must be free. If the move does not concern the whole extent, [`Relocation::set_parts`] has set its blocks.
    pub(super) fn start_move(&mut self, g: &mut Globals, new: NewMove) {
        let NewMove {
            action,
            extent,
            src,
            dst,
            kind,
            up,
            own,
            joins_previous,
        } = new;
        let index = self.next_move();
        self.moves.budget -= i64::from(g.space.geo.extent_bytes());
        let m = Move {
            action,
            extent,
            src,
            dst,
            kind,
            up,
            own,
            step: Step::Reading,
            left: 0,
            failed: false,
            stale: false,
            owed: reserve_wear(g, kind, dst),
            batch: self.joins.batch(),
            joins_previous,
        };
        self.moves.put(index, m);
        self.note_start(g, index, if up { src } else { dst }, up);
        g.space.map.hold(extent, true);
        g.space.pins.pin(src, false);
        let read = if matches!(kind, Kind::Fill | Kind::Clean { .. }) {
            self.span_of_parts(g, index)
        } else {
            (0, g.space.geo.blocks_per_extent())
        };
        self.move_io(g, index, OpKind::Read, src, read);
    }

    /// The buffer that the next move will use. One must be free.
    pub(super) fn next_move(&self) -> u16 {
        let next = self.joins.next_buffer().filter(|&i| self.moves.is_free(i));
        next.or_else(|| self.moves.longest_free())
            .expect("no move buffer is free")
    }

    /// Whether the buffer of move `index` contains, or will contain, the home's data of all blocks `from..to`. The buffer of a fill has
    /// only the blocks that the copy lacked.
    pub(in crate::engine) fn contains_home_data(
        &self,
        g: &Globals,
        index: u16,
        (from, to): (u32, u32),
    ) -> bool {
        match self.moves.get(index).kind {
            Kind::Rehome | Kind::Fetch => true,
            Kind::Fill => {
                g.broken(Mutant::FillServesAll)
                    || self.moves.part(index, from, to) == Some((from, to))
            }
            Kind::Relocate | Kind::Clean { .. } => false,
        }
    }

    /// Removes a move from the list, with its mark on the extent and its pin on the source.
    pub(super) fn end_move(&mut self, g: &mut Globals, d: &mut Durability, index: u16) -> Move {
        let m = self.moves.take(index);
        g.devices.wear.release(m.owed);
        self.moves.update_waiting_since(g.clock);
        Relocation::unpin(g, d, m.src, false);
        self.release_hold(g, m.extent);
        g.waiting.extent_changed(m.extent);
        // For a piece that waits for a slot, one may be free now, or a copy can be evicted now.
        g.waiting.slot_freed();
        m
    }

    /// Records the outcome of a move.
    pub(super) fn settle_move(&mut self, g: &mut Globals, d: &Durability, m: &Move, how: Outcome) {
        let ended = EndedMove {
            at: g.clock,
            action: m.action,
            up: m.up,
            own: m.own,
            how,
        };
        self.settle(g, d, ended);
        if m.own && m.up {
            g.warm_ended(m.extent, how, m.step == Step::Writing);
        }
    }

    /// Cancels all moves that can still be cancelled (at closing).
    pub(in crate::engine) fn cancel_all(&mut self, g: &mut Globals, d: &mut Durability) {
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            let step = self.moves.get(i).step;
            if step != Step::Committing {
                self.moves.mark_stale(i);
                if matches!(step, Step::Copied | Step::Withdrawing) {
                    self.give_up(g, d, i, Outcome::Stale);
                }
            }
            at = i + 1;
        }
    }

    /// Abandons all copied moves for which `which` is true.
    fn give_up_copied(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        how: Outcome,
        which: impl Fn(&Move) -> bool,
    ) {
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            let m = self.moves.get(i);
            let waits = matches!(m.step, Step::Copied | Step::Withdrawing);
            if waits && which(&m) {
                self.give_up(g, d, i, how);
            }
            at = i + 1;
        }
    }

    /// Drops copied moves that became stale while they waited for a round.
    pub(in crate::engine) fn drop_stale(&mut self, g: &mut Globals, d: &mut Durability) {
        self.give_up_copied(g, d, Outcome::Stale, |m| m.stale);
    }

    /// Ends a move without effect. If its destination is a newly allocated slot, this was never exposed, so it is free at once.
    pub(super) fn give_up(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        index: u16,
        how: Outcome,
    ) {
        if self.moves.is_free(index) {
            return;
        }
        let m = self.end_move(g, d, index);
        if !m.writes_in_place() {
            g.space.slots.put_back(m.dst);
        }
        self.settle_move(g, d, &m, how);
    }

    /// Flips the moves whose records the round has made durable: from now on the map names their destinations.
    pub(in crate::engine) fn flip_committed(&mut self, g: &mut Globals, d: &mut Durability) {
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            at = i + 1;
            if !self.moves.get(i).is_committing() {
                continue;
            }
            let m = self.end_move(g, d, i);
            if let Kind::Clean { evict } = m.kind {
                self.cleaned(g, d, &m, evict);
                continue;
            }
            g.counters.migrated_bytes += u64::from(g.space.geo.extent_bytes());
            g.space.map.rehome(m.extent, m.dst);
            g.check_place(m.dst, false);
            let (policy, mut view, _) = self.ask(g, d, 0);
            policy.on_placed(&mut view, m.extent, m.dst.into());
            d.free_moved(g, m.src);
            self.settle_move(g, d, &m, Outcome::Done);
        }
    }

    /// Abandons the moves of a round that failed. Both slots of each stay occupied, because either record may be the durable one.
    pub(in crate::engine) fn abandon_committing(&mut self, g: &mut Globals, d: &mut Durability) {
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            at = i + 1;
            if self.moves.get(i).is_committing() {
                let m = self.end_move(g, d, i);
                if g.broken(Mutant::FreeAfterFailure) && !m.is_clean() {
                    g.space.put_back(m.extent, m.dst);
                }
                self.settle_move(g, d, &m, Outcome::Failed);
            }
        }
        // There will be no round for the other copied moves either. They are abandoned, and pieces that wait for them use the source.
        self.give_up_copied(g, d, Outcome::Failed, |_| true);
    }

    /// The members that must be flushed before the copied moves are recorded.
    pub(in crate::engine) fn copied_on(&self, g: &Globals) -> CopiedOn {
        CopiedOn {
            members: self.members_of_copied(g),
            homes_of_cleans: self.homes_of_cleans(g),
        }
    }

    /// Records the moves whose data is copied in the round that begins, as many as there is space for up to journal block `limit`. A clean
    /// after which the copy stays needs no record: the last one may go on naming blocks that are equal at the home now.
    pub(in crate::engine) fn record_copied(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        limit: u64,
    ) -> MovesRecorded {
        let mut recorded = MovesRecorded::default();
        while let Some((index, m)) = self.first_copied() {
            if m.is_clean() && !self.apply_clean(g, index, &m) {
                // Every block has been overwritten since the clean read it.
                self.mark_stale(index);
                continue;
            }
            let is_recorded = if m.is_clean() {
                m.evicts() && d.record_eviction(g, m.extent, limit)
            } else if d.record_move(g, m.extent, m.dst, limit) {
                true
            } else {
                break;
            };
            recorded.records += u32::from(is_recorded);
            recorded.moves += 1;
            self.committing(g, index);
        }
        recorded
    }

    fn members_of_copied(&self, g: &Globals) -> u32 {
        if g.broken(Mutant::FlipBeforeFlush) {
            return 0;
        }
        let member = |s| 1u32 << g.space.geo.locate(s).0.0;
        self.moves
            .copied()
            .fold(0, |set, (_, m)| set | member(m.dst))
    }

    fn homes_of_cleans(&self, g: &Globals) -> u32 {
        let cleans = self.moves.copied().filter(|(_, m)| m.is_clean());
        cleans.fold(0, |set, (_, m)| set | 1 << g.space.geo.locate(m.dst).0.0)
    }
}

/// Reserves the largest number of bytes that a starting move can write to the fastest tier. Returns this number.
fn reserve_wear(g: &mut Globals, kind: Kind, dst: Slot) -> u32 {
    if matches!(kind, Kind::Clean { .. }) || g.space.geo.tier_of(dst) != TierId(0) {
        return 0;
    }
    let bytes = g.space.geo.extent_bytes();
    g.devices.wear.reserve(bytes);
    bytes
}
