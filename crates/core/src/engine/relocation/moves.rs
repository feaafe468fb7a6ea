//! The life of a move: read source → write destination → (round: flush, record, flush) → flip → free source.
//!
//! Copies use the same machinery. A fetch flips as soon as the copy is written, since nothing durable says that it is there.
//! A clean writes the dirty blocks home, and its record says that they are no longer dirty (`copies.rs` starts them).
//!
//! Crash points: before the record is durable the map says *source*, which nobody overwrote; after it, *destination*, which
//! was flushed before the record was issued. The source slot is free only after the record is durable and unread.

use super::Relocation;
use super::move_list::{Kind, Move, Step};
use crate::engine::durability::Durability;
use crate::engine::ground::Ground;
use crate::engine::mutants::Mutant;
use crate::io::OpKind;
use crate::policy::{Action, Outcome};
use crate::units::{ExtentId, Slot, TierId};

impl Relocation {
    /// Move a home that nothing holds and nobody writes to, whatever the policy thinks; false if there is no slot.
    pub(in crate::engine) fn own_move(&mut self, g: &mut Ground, e: ExtentId, to: TierId) -> bool {
        let (Some(src), Some(dst)) = (g.space.map.home(e), g.space.slots.take_lowest(to)) else {
            return false;
        };
        let action = Action::Move { extent: e, to };
        Relocation::proposed(g, action);
        self.start_move(g, action, (e, src, dst), Kind::Rehome, (false, true, false));
        true
    }

    /// Start a move, for which there is room: up, the engine's own, part of the operation of the one before it? The blocks of those
    /// that are not about the whole extent were set by [`Relocation::set_parts`].
    pub(super) fn start_move(
        &mut self,
        g: &mut Ground,
        action: Action,
        (extent, src, dst): (ExtentId, Slot, Slot),
        kind: Kind,
        (up, own, rides): (bool, bool, bool),
    ) {
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
            rides,
        };
        self.moves.put(index, m);
        self.joins_on(g, index, if up { src } else { dst }, up);
        g.space.map.hold(extent, true);
        g.space.pins.pin(src, false);
        let read = if matches!(kind, Kind::Fill | Kind::Clean { .. }) {
            self.span_of_parts(g, index)
        } else {
            (0, g.space.geo.blocks_per_extent())
        };
        self.move_io(g, index, OpKind::Read, src, read);
    }

    /// The buffer that the next move will use. A caller's bug if there is none.
    pub(super) fn next_move(&self) -> u16 {
        let next = self.joins.next_buffer().filter(|&i| self.moves.is_free(i));
        next.or_else(|| self.moves.longest_free())
            .expect("no move buffer is free")
    }

    /// Does the buffer of move `index` hold, or will it, what the home has of all blocks `from..to`? That of a fill only those that it
    /// is about.
    pub(in crate::engine) fn carries(
        &self,
        g: &Ground,
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

    /// Take a move out of the list; its extent is let go of.
    pub(super) fn end_move(&mut self, g: &mut Ground, d: &mut Durability, index: u16) -> Move {
        let m = self.moves.take(index);
        g.devices.wear.release(m.owed);
        self.moves.waits_since(g.clock);
        Relocation::unpin(g, d, m.src, false);
        self.release_hold(g, m.extent);
        g.waiting.stir(m.extent);
        // Whoever waits for a slot may get one now, or have one made free.
        g.waiting.slot_freed();
        m
    }

    /// Tell how a move ended.
    pub(super) fn settle_move(&mut self, g: &mut Ground, d: &Durability, m: &Move, how: Outcome) {
        self.settle(g, d, (m.action, m.up, m.own), how);
    }

    /// Cancel what can still be cancelled (closing).
    pub(in crate::engine) fn cancel_all(&mut self, g: &mut Ground, d: &mut Durability) {
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            let step = self.moves.get(i).step;
            if step != Step::Committing {
                self.moves.mark_stale(i);
                if step == Step::Copied {
                    self.give_up(g, d, i, Outcome::Stale);
                }
            }
            at = i + 1;
        }
    }

    /// Give up all copied moves that `which` names.
    fn give_up_copied(
        &mut self,
        g: &mut Ground,
        d: &mut Durability,
        how: Outcome,
        which: impl Fn(&Move) -> bool,
    ) {
        let mut at = 0;
        while let Some(i) = self.moves.next_busy(at) {
            let m = self.moves.get(i);
            if m.step == Step::Copied && which(&m) {
                self.give_up(g, d, i, how);
            }
            at = i + 1;
        }
    }

    /// Drop copied moves that were overtaken while they waited for a round.
    pub(in crate::engine) fn drop_stale(&mut self, g: &mut Ground, d: &mut Durability) {
        self.give_up_copied(g, d, Outcome::Stale, |m| m.stale);
    }

    /// End a move without effect. A destination of its own was never exposed, so it is free at once.
    pub(super) fn give_up(&mut self, g: &mut Ground, d: &mut Durability, index: u16, how: Outcome) {
        if self.moves.is_free(index) {
            return;
        }
        let m = self.end_move(g, d, index);
        if !m.writes_in_place() {
            g.space.slots.put_back(m.dst);
        }
        self.settle_move(g, d, &m, how);
    }

    /// The round is durable: flip what it carried.
    pub(in crate::engine) fn flip_committed(&mut self, g: &mut Ground, d: &mut Durability) {
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
            g.misplaced(m.dst, false);
            let (policy, mut view, _) = self.ask(g, d, 0);
            policy.on_placed(&mut view, m.extent, m.dst.into());
            d.free_moved(g, m.src);
            self.settle_move(g, d, &m, Outcome::Done);
        }
    }

    /// A round failed: its moves did not happen. Their slots stay taken, since either record may be the durable one.
    pub(in crate::engine) fn abandon_committing(&mut self, g: &mut Ground, d: &mut Durability) {
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
        // No round will come for the others either: whoever waits for them goes on from the source.
        self.give_up_copied(g, d, Outcome::Failed, |_| true);
    }

    /// Members that the copied moves were written to, as a bit set.
    pub(in crate::engine) fn members_of_copied(&self, g: &Ground) -> u32 {
        if g.broken(Mutant::FlipBeforeFlush) {
            return 0;
        }
        let member = |s| 1u32 << g.space.geo.locate(s).0.0;
        self.moves.copied().fold(0, |set, (_, m)| {
            // The record of a clean tells of what stays dirty, too.
            let forget = g.broken(Mutant::CleanForgetsCopy);
            let also = if m.is_clean() && !forget {
                member(m.src)
            } else {
                0
            };
            set | member(m.dst) | also
        })
    }

    /// Of these the ones that cleans wrote to.
    pub(in crate::engine) fn homes_of_cleans(&self, g: &Ground) -> u32 {
        let cleans = self.moves.copied().filter(|(_, m)| m.is_clean());
        cleans.fold(0, |set, (_, m)| set | 1 << g.space.geo.locate(m.dst).0.0)
    }
}

/// What a move that starts will write to the fastest tier at most: set aside until it has.
fn reserve_wear(g: &mut Ground, kind: Kind, dst: Slot) -> u32 {
    if matches!(kind, Kind::Clean { .. }) || g.space.geo.tier_of(dst) != TierId(0) {
        return 0;
    }
    let bytes = g.space.geo.extent_bytes();
    g.devices.wear.reserve(bytes);
    bytes
}
