//! Flushes that begin before a FLUSH asks for them.
//!
//! A database, like the journal of a file system, writes, waits for the answer, and then issues a FLUSH. Between that answer and that FLUSH
//! the device is idle, because the answer travels through the front end and the FLUSH travels back. If FLUSHes have followed in this way
//! for a while, a round that flushes the written data begins as soon as the last request is answered. The FLUSH then finds the round in
//! progress and waits only for its rest, or finds it done.
//!
//! The cost of a wrong guess is one needless flush, so guesses become rare where they are wrong. Each FLUSH that a guess would have met
//! adds one to a score, each change in its place subtracts [`Params::flush_ahead`], and there is no guess below that score. So in the long
//! run less than one flush in `flush_ahead` is needless.
//!
//! Invariant: a FLUSH is answered with such a round only if everything that was answered before the FLUSH had ended before the round's
//! flushes were issued, and if no record and no news for the mirror is due.
//!
//! [`Params::flush_ahead`]: crate::engine::Params::flush_ahead

use super::Durability;
use crate::engine::ground::Ground;
use crate::engine::mutants::Mutant;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// The score: how certain it is that a FLUSH comes next.
    score: u16,
    /// Whether a round was begun ahead, and neither a FLUSH nor a change has come since.
    guessed: bool,
}

impl Durability {
    /// A request other than a read arrived; with `alone`, no other request is in progress. Updates the score: was it the FLUSH that a guess
    /// would have met?
    pub(in crate::engine) fn came(&mut self, g: &mut Ground, is_flush: bool, alone: bool) {
        let sure = g.params.flush_ahead;
        let guessed = core::mem::take(&mut self.ahead.guessed);
        if sure == 0 || !(guessed || (alone && is_unflushed(g))) {
            return;
        }
        let score = &mut self.ahead.score;
        *score = if is_flush {
            (*score + 1).min(sure.saturating_mul(2))
        } else {
            score.saturating_sub(sure)
        };
        g.counters.ahead_met += u64::from(guessed && is_flush);
    }

    /// Whether a round should begin ahead. `requests` are in progress.
    pub(super) fn ahead_due(&self, g: &Ground, requests: usize) -> bool {
        let sure = g.params.flush_ahead;
        requests == 0
            && sure != 0
            && self.ahead.score >= sure
            && !self.ahead.guessed
            && g.may_move()
            && is_unflushed(g)
    }

    /// A round begins ahead.
    pub(super) fn guess(&mut self, g: &mut Ground) {
        self.ahead.guessed = true;
        g.counters.ahead += 1;
    }

    /// Whether the round that began ahead covers everything that a FLUSH at this moment would have to make durable.
    pub(super) fn is_met_ahead(&self, g: &Ground) -> bool {
        let late = is_unflushed(g) && !g.broken(Mutant::AheadForgetsLate);
        let owed = self.owes_mirror(g) && !g.broken(Mutant::AheadForgetsMirror);
        self.round.is_ahead() && !late && !owed
    }
}

/// Whether a write has ended since the last flush of its device was issued.
fn is_unflushed(g: &Ground) -> bool {
    g.devices.members.iter().any(|m| m.unflushed)
}
