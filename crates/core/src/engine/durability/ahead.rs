//! Flushes that begin before anybody asks for them.
//!
//! A database, like the journal of a file system, writes, waits for the answer, and then asks for a FLUSH. Between that answer
//! and that FLUSH lies the way out through the front end and back in, and the device has nothing to do meanwhile. Where FLUSHes have
//! followed like this for a while, a round that flushes what was written begins as soon as the last request is answered. The FLUSH then
//! finds it under way, and waits for its rest only, or finds it done.
//!
//! The cost of a wrong guess is one flush that nobody asked for, so guesses are kept rare where they are wrong: each FLUSH that a guess
//! would have met counts one up, each change that came in its place counts [`Params::flush_ahead`] down, and there is no guess below
//! that number. So fewer than one flush in `flush_ahead` is in vain in the long run.
//!
//! Never false: a FLUSH is answered with such a round only if everything that was answered before the FLUSH had ended before
//! the round's flushes were issued, and if no record and no news for the mirror is due.
//!
//! [`Params::flush_ahead`]: crate::engine::Params::flush_ahead

use super::Durability;
use crate::engine::ground::Ground;
use crate::engine::mutants::Mutant;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// How sure it is that a FLUSH comes next.
    score: u16,
    /// A round was begun ahead, and neither a FLUSH nor a change has come since.
    guessed: bool,
}

impl Durability {
    /// A request that is no read arrived, with nothing else under way if `alone`: was it the FLUSH that a guess would have met?
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

    /// Should a round begin ahead? `requests` are under way.
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

    /// Is all that a FLUSH which came now would ask for on its way with the round that began ahead?
    pub(super) fn is_met_ahead(&self, g: &Ground) -> bool {
        let late = is_unflushed(g) && !g.broken(Mutant::AheadForgetsLate);
        let owed = self.owes_mirror(g) && !g.broken(Mutant::AheadForgetsMirror);
        self.round.is_ahead() && !late && !owed
    }
}

/// Has a write ended since its device's last flush was issued?
fn is_unflushed(g: &Ground) -> bool {
    g.devices.members.iter().any(|m| m.unflushed)
}
