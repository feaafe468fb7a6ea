//! Flushes that begin before a FLUSH asks for them.
//!
//! A database or the journal of a file system writes, waits for the answer, and then issues a FLUSH. Between that answer and the FLUSH the
//! device is idle, because both pass through the front end. If a FLUSH has followed most writes for a while, a round that flushes the
//! written data begins as soon as the last request is answered. The FLUSH then waits only for the rest of this round, or not at all if the
//! round has ended.
//!
//! A wrong prediction costs one needless flush. Therefore a score limits the predictions. A FLUSH that was predicted, or could have been,
//! adds 1 to the score. Any other change at that point subtracts [`Params::flush_ahead`]. A round begins ahead only if the score is at
//! least `flush_ahead`. So in the long run less than one flush in `flush_ahead` is needless.
//!
//! Invariant: a FLUSH is answered with such a round only if everything that was answered before the FLUSH had ended before the round's
//! flushes were issued, and if no record, no news for the mirror and no page of a list is due.
//!
//! [`Params::flush_ahead`]: crate::engine::Params::flush_ahead

use super::Durability;
use crate::engine::globals::Globals;
use crate::mutants::Mutant;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// The score: how certain it is that a FLUSH comes next.
    score: u16,
    /// Whether a round was begun ahead, and neither a FLUSH nor a change has come since.
    guessed: bool,
}

impl Durability {
    /// Updates the score when a request other than a read arrives. `alone`: no other request is in progress.
    pub(in crate::engine) fn request_arrived(
        &mut self,
        g: &mut Globals,
        is_flush: bool,
        alone: bool,
    ) {
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
    pub(super) fn ahead_due(&self, g: &Globals, requests: usize) -> bool {
        let sure = g.params.flush_ahead;
        requests == 0
            && sure != 0
            && self.ahead.score >= sure
            && !self.ahead.guessed
            && g.may_move()
            && is_unflushed(g)
    }

    /// A round begins ahead.
    pub(super) fn guess(&mut self, g: &mut Globals) {
        self.ahead.guessed = true;
        g.counters.ahead += 1;
    }

    /// Whether a round that began ahead is in progress and covers everything that a FLUSH must make durable now.
    pub(super) fn is_met_ahead(&self, g: &Globals) -> bool {
        let late = is_unflushed(g) && !g.broken(Mutant::AheadForgetsLate);
        let owed = g.space.map.regions().any_bare() && !g.broken(Mutant::AheadForgetsMark);
        let page = g.space.lost.any_changed() && !g.broken(Mutant::AheadForgetsWritten);
        self.round.is_ahead() && !late && !owed && !page
    }
}

/// Whether a write has ended since the last flush of its device was issued.
fn is_unflushed(g: &Globals) -> bool {
    g.devices.members.iter().any(|m| m.unflushed)
}
