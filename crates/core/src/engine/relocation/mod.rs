//! Relocation: moves and copies, from what somebody wants to how it ended.
//!
//! | file | what it owns |
//! |---|---|
//! | `wants.rs` | what the policy wants, tried in order; refusals |
//! | `moves.rs` | the life of a move: started, given up, flipped when its record is durable |
//! | `copies.rs` | the life of a copy: fetched, allocated, cleaned, given up |
//! | `move_list.rs` | moves under way, and what limits them |
//! | `parts.rs` | the blocks that a move is about |
//! | `transfer.rs`, `join.rs` | what moves read and write; neighbours become one device operation |
//! | `lately.rs` | moves that ended lately, to be looked at |
//! | `wear.rs` | how much may be written to the fastest tier |

mod copies;
mod join;
mod lately;
mod move_list;
mod moves;
mod parts;
mod transfer;
mod wants;
mod wear;

pub use lately::{Ended, Lately};
pub(super) use move_list::Move;
pub(super) use wear::Wear;
pub use wear::WearBudget;

use super::Params;
use super::devices::What;
use super::durability::Durability;
use super::ground::Ground;
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
    /// Checkpoints have room for copies.
    copies_fit: bool,
    /// Where the next look for a copy to give up starts.
    hand: u32,
    pub(super) lately: Lately,
}

impl Relocation {
    pub(super) fn new(p: &Params, members: usize, copies_fit: bool) -> Relocation {
        Relocation {
            moves: Moves::new(p),
            joins: Joins::new(members),
            copies_fit,
            hand: 0,
            lately: Lately::new(),
        }
    }
    /// The policy, what it sees, and where it says what it wants; it may look at `budget` slots.
    #[inline]
    pub(super) fn ask<'a>(
        &self,
        g: &'a mut Ground,
        d: &Durability,
        budget: u32,
    ) -> (&'a mut dyn Policy, View<'a>, &'a mut Vec<Action>) {
        let flushing = d.writing_metadata();
        let moves = self.moves.copying();
        (
            g.policy.as_mut(),
            View::new(&mut g.space, g.clock, moves, flushing, budget),
            &mut g.wanted,
        )
    }
    pub(super) fn copies_fit(&self) -> bool {
        self.copies_fit
    }
    /// Moves under way.
    pub(super) fn active(&self) -> u32 {
        self.moves.active()
    }
    /// Those that read or write.
    pub(super) fn copying(&self) -> u32 {
        self.moves.copying()
    }
    /// Move buffers, used or free.
    pub(super) fn buffers(&self) -> usize {
        self.moves.len()
    }
    /// May the engine itself start a move? Its own needs know no throttle.
    pub(super) fn has_buffer(&self) -> bool {
        self.moves.has_free()
    }
    /// The move of an extent.
    #[inline]
    pub(super) fn of(&self, e: ExtentId) -> Option<u16> {
        self.moves.of(e)
    }
    /// What each move under way is for.
    pub(super) fn under_way(&self) -> Vec<(ExtentId, Action)> {
        let all = self.moves.iter();
        all.map(|(_, m)| (m.extent, m.action)).collect()
    }
    /// A move under way.
    pub(super) fn get(&self, index: u16) -> Move {
        self.moves.get(index)
    }
    /// It was overtaken by a write or discard.
    pub(super) fn mark_stale(&mut self, index: u16) {
        self.moves.mark_stale(index);
    }
    /// A write to blocks `from..to` is about to be issued: what move `index` read of them is old.
    pub(super) fn overtake(&mut self, index: u16, from: u32, to: u32) {
        self.moves.overtake(index, from, to);
    }
    /// A request took that long: moves may have to yield.
    #[inline]
    pub(super) fn heard(&mut self, g: &Ground, latency: Nanos) {
        self.moves.foreground(g.clock, latency, g.params.p99_limit);
    }
    /// Another bandwidth for moves.
    pub(super) fn set_rate(&mut self, bytes_per_s: Option<u64>) {
        self.moves.set_rate(bytes_per_s);
    }
    /// The policy that asked for these is gone.
    pub(super) fn disown(&mut self) {
        self.moves.disown();
    }
    /// Should a round begin for the moves that wait for one?
    pub(super) fn wants_round(&self, now: Nanos, urgent: bool) -> bool {
        self.moves.want_round(now, urgent)
    }
    /// When it should if nothing else happens.
    pub(super) fn round_due(&self, urgent: bool) -> Option<Nanos> {
        self.moves.next_wake(urgent)
    }
    /// A round that carried moves took that long.
    pub(super) fn round_took(&mut self, time: Nanos) {
        self.moves.round_took(time);
    }
    /// A move that waits for its record.
    pub(super) fn first_copied(&self) -> Option<(u16, Move)> {
        self.moves.copied().next()
    }
    /// The record of this move is part of the round that starts now.
    pub(super) fn committing(&mut self, g: &Ground, index: u16) {
        self.moves.committing(index);
        self.moves.waits_since(g.clock);
    }
    /// Does the end of such an operation leave its device as idle as it was?
    #[inline]
    pub(super) fn is_background(&self, what: What) -> bool {
        match what {
            What::Round | What::Trim { .. } => true,
            What::Move { index, .. } => self.moves.is_background(index),
            What::Data { .. } | What::Fill { .. } | What::Standby => false,
        }
    }
    /// Clear the held mark of `e` unless something still holds it.
    pub(super) fn release_hold(&self, g: &mut Ground, e: ExtentId) {
        let held = self.moves.of(e).is_some() || g.waiting.holds(e);
        g.space.map.hold(e, held);
    }
    /// Let go of a slot that a reader or writer had; `d` frees it if it was the last.
    pub(super) fn unpin(g: &mut Ground, d: &mut Durability, slot: Slot, write: bool) {
        if g.space.pins.unpin(slot, write) {
            d.unpinned(g, slot);
        }
    }
}
