//! Relocation: moves and copies, from the proposal to the outcome.
//!
//! | file | content |
//! |---|---|
//! | `proposals.rs` | the policy's proposals, tried in order; refusals |
//! | `moves.rs` | the life of a move: it starts, is abandoned, or flips when its record is durable |
//! | `copies.rs` | the life of a copy: it is fetched, allocated, cleaned, dropped |
//! | `move_list.rs` | the moves in progress, and their limits |
//! | `parts.rs` | the blocks that a move concerns |
//! | `transfer.rs`, `join.rs` | the reads and writes of moves; adjacent ones become one device operation |
//! | `recent_moves.rs` | recent moves, for display |

mod copies;
mod join;
mod move_list;
mod moves;
mod parts;
mod proposals;
mod recent_moves;
mod transfer;

pub(super) use move_list::Move;
pub use recent_moves::{EndedMove, RecentMoves};

use super::Params;
use super::devices::What;
use super::durability::{Durability, MovesAsk};
use super::globals::{Globals, Phase};
use crate::policy::{Action, Policy, View};
use crate::units::{ExtentId, Nanos, Slot};
use alloc::vec::Vec;
use join::Joins;
use move_list::Moves;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Relocation {
    moves: Moves,
    joins: Joins,
    /// Whether checkpoints have room for copies.
    copies_fit: bool,
    /// The slot at which the next search for a copy to drop starts.
    hand: u32,
    /// Whether requests waited for the slowest tier when the last round for moves began.
    waited_in_vain: bool,
    pub(super) recent: RecentMoves,
}

impl Relocation {
    pub(super) fn new(p: &Params, members: usize, copies_fit: bool) -> Relocation {
        Relocation {
            moves: Moves::new(p),
            joins: Joins::new(members),
            copies_fit,
            hand: 0,
            waited_in_vain: false,
            recent: RecentMoves::new(),
        }
    }
    /// The policy, its view of the volume, and the list for its proposals, for a call of the policy. The policy may examine `budget` slots.
    #[inline]
    pub(super) fn ask<'a>(
        &self,
        g: &'a mut Globals,
        d: &Durability,
        budget: u32,
    ) -> (&'a mut dyn Policy, View<'a>, &'a mut Vec<Action>) {
        let flushing = d.writing_metadata();
        let moves = self.moves.copying();
        (
            g.policy.as_mut(),
            View::new(&mut g.space, g.clock, moves, flushing, budget),
            &mut g.proposals,
        )
    }
    pub(super) fn copies_fit(&self) -> bool {
        self.copies_fit
    }
    /// Number of moves in progress.
    pub(super) fn active(&self) -> u32 {
        self.moves.active()
    }
    /// Number of moves that read or write.
    pub(super) fn copying(&self) -> u32 {
        self.moves.copying()
    }
    /// Number of move buffers, used or free.
    pub(super) fn buffers(&self) -> usize {
        self.moves.len()
    }
    /// Whether a move buffer is free, so that the engine itself may start a move. No throttle applies to the engine's own moves.
    pub(super) fn has_buffer(&self) -> bool {
        self.moves.has_free()
    }
    /// The move of an extent.
    #[inline]
    pub(super) fn of(&self, e: ExtentId) -> Option<u16> {
        self.moves.of(e)
    }
    /// The extents and actions of the moves in progress.
    pub(super) fn under_way(&self) -> Vec<(ExtentId, Action)> {
        let all = self.moves.iter();
        all.map(|(_, m)| (m.extent, m.action)).collect()
    }
    /// Bytes of the wear budget that are reserved for the moves in progress.
    pub(super) fn owed(&self) -> i64 {
        self.moves.iter().map(|(_, m)| i64::from(m.owed)).sum()
    }
    /// A move in progress.
    pub(super) fn get(&self, index: u16) -> Move {
        self.moves.get(index)
    }
    /// Marks a move stale, because of a write or discard.
    pub(super) fn mark_stale(&mut self, index: u16) {
        self.moves.mark_stale(index);
    }
    /// Notes that a write to blocks `from..to` is about to be issued, so that the data of these blocks that move `index` has read is
    /// outdated.
    pub(super) fn mark_overwritten(&mut self, index: u16, from: u32, to: u32) {
        self.moves.mark_overwritten(index, from, to);
    }
    /// Notes the duration of a request, on which the number of allowed moves may depend.
    #[inline]
    pub(super) fn note_latency(&mut self, g: &Globals, latency: Nanos) {
        self.moves.foreground(g.clock, latency, g.params.p99_limit);
    }
    /// Sets the bandwidth for moves.
    pub(super) fn set_rate(&mut self, bytes_per_s: Option<u64>) {
        self.moves.set_rate(bytes_per_s);
    }
    /// Another policy takes over: the outcomes of the moves in progress are not reported to it.
    pub(super) fn detach_policy(&mut self) {
        self.moves.detach_policy();
    }
    /// What the moves ask of rounds.
    #[inline]
    pub(super) fn asks(&self, g: &Globals, d: &Durability) -> MovesAsk {
        let (empty, cleans) = (|| self.caches_empty(g), || self.has_only_cleans());
        let urgent = self.is_urgent(g);
        MovesAsk {
            now: self.moves.want_round(g.clock, urgent, empty, cleans),
            at: self.moves.next_wake(urgent, empty, cleans),
            yields: d.has_slots_to_free() && self.rounds_yield(g),
            active: self.active(),
        }
    }
    /// Whether rounds wait for an idle moment of the slowest tier, in which they delay no request. This is of no use if there is none, as in a
    /// closed loop: so rounds no longer wait after one that found requests waiting, until one finds none.
    fn rounds_yield(&self, g: &Globals) -> bool {
        !self.waited_in_vain && g.policy.move_rules().rounds_yield
    }
    /// A round begins: notes whether it found an idle moment.
    pub(super) fn round_begins(&mut self, g: &Globals) {
        if self.moves.has_copied() {
            let slowest = g.space.geo.slowest();
            self.waited_in_vain = g.space.loads.load(slowest, g.clock).waiting > 0;
        }
    }
    /// Whether a request waits for a round for the copied moves. Most requests that wait do so for a fetch, which needs no round; its read of
    /// the slow device would even wait for the round's flush. Policies without [`MoveRules::rounds_yield`] do not distinguish.
    ///
    /// [`MoveRules::rounds_yield`]: crate::policy::MoveRules::rounds_yield
    fn is_urgent(&self, g: &Globals) -> bool {
        let is_any_waiting = g.is_urgent();
        if !is_any_waiting || !self.moves.has_copied() || !self.rounds_yield(g) {
            return is_any_waiting;
        }
        g.phase == Phase::Closing
            || g.waiting.is_starving()
            || self.moves.has_copied_of(|e| g.waiting.holds(e))
    }
    /// Whether a round for the copied moves may wait for empty caches: all of them are cleans after which the copy stays, so that no slot
    /// becomes free by it, and no extent gets another home.
    fn has_only_cleans(&self) -> bool {
        self.moves
            .copied()
            .all(|(_, m)| m.is_clean() && !m.evicts())
    }
    /// The time at which the write caches of the slowest tier will be empty, so that a flush takes no time. `None` while a request waits for
    /// it.
    fn caches_empty(&self, g: &Globals) -> Option<Nanos> {
        let slowest = g.space.geo.slowest();
        if self.has_only_cleans() {
            return g.space.loads.caches_empty(slowest, g.clock);
        }
        (g.space.loads.load(slowest, g.clock).waiting == 0).then_some(g.clock)
    }
    /// Notes the end and the duration of a round that recorded moves.
    pub(super) fn round_took(&mut self, now: Nanos, time: Nanos) {
        self.moves.round_took(now, time);
    }
    /// The first move that waits for its record.
    fn first_copied(&self) -> Option<(u16, Move)> {
        self.moves.copied().next()
    }
    /// The record of this move is part of the round that starts now.
    fn committing(&mut self, g: &Globals, index: u16) {
        self.moves.committing(index);
        self.moves.update_waiting_since(g.clock);
    }
    /// Whether an operation is background work, which does not count as use of its device.
    #[inline]
    pub(super) fn is_background(&self, what: What) -> bool {
        match what {
            What::Round | What::Trim { .. } => true,
            What::Move { index, .. } => self.moves.is_background(index),
            What::Data { .. } | What::Fill { .. } | What::Standby => false,
        }
    }
    /// Clears the mark that `e` is in use, unless a move or a waiting piece still uses it.
    pub(super) fn release_hold(&self, g: &mut Globals, e: ExtentId) {
        let held = self.moves.of(e).is_some() || g.waiting.holds(e);
        g.space.map.hold(e, held);
    }
    /// Removes the pin of a read or write from a slot. If this was the last pin, the slot may become free.
    pub(super) fn unpin(g: &mut Globals, d: &mut Durability, slot: Slot, write: bool) {
        if g.space.pins.unpin(slot, write) {
            d.unpinned(g, slot);
        }
    }
}
