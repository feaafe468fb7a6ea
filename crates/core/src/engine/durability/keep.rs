//! Writes that the next server must find after this one was killed, although nobody asked for durability
//! ([`Params::kept_writes`](crate::engine::Params::kept_writes)).
//!
//! A killed server leaves its devices as they are, their write caches included. Only what was in its memory is lost: the records of the
//! changes since the last round. So no device need be flushed for such a write. If the world has memory that outlives the server
//! ([`Params::keeper`](crate::engine::Params::keeper)), no device is written to either. The records go into blocks of the journal as in a
//! round, and the keeper gets these blocks ([`Effect::Keep`]). The next round writes them to the primary, after it has flushed the data as
//! always. After a kill, [`crate::store::keep::restore`] writes them there. After a power loss the keeper is empty, and the journal ends with
//! the last round, as it does without this rule.
//!
//! While a round with moves is in progress, nothing is kept: a record that is encoded then would name the place that an extent had before its
//! move. Nothing is kept either while a round raises members' counters: its blocks name the new values, which must be on the members before.
//! The requests wait for the end of this round. If nothing can be kept (there is no keeper, the staging area is half full), the request
//! waits for a round.

use super::Durability;
use crate::engine::globals::{Globals, Phase};
use crate::io::Effect;
use crate::mutants::Mutant;
use crate::units::ExtentId;

impl Durability {
    /// Whether records are kept instead of written, if no round with moves is in progress.
    fn keeps(&self, g: &Globals) -> bool {
        g.params.kept_writes
            && g.params.keeper
            && g.phase == Phase::Running
            && !g.failed
            && self.layout.has_journal
            && self.staging.unwritten() < self.staging.capacity() / 2
    }

    /// Whether the round in progress must end before anything is kept.
    fn keeps_later(&self, g: &Globals) -> bool {
        let moves = self.round.has_moves() && !g.broken(Mutant::KeepDuringMoves);
        let raises = self.is_raising() && !g.broken(Mutant::KeepBeforeRaise);
        moves || raises
    }

    /// Whether the next server would find the blocks of `e` that are recorded now, if this one were killed; with `fua`, also after a loss of
    /// power ([`Durability::is_known`]).
    pub(in crate::engine) fn is_findable(&self, g: &Globals, e: ExtentId, fua: bool) -> bool {
        if fua || !self.keeps(g) || g.space.lost.is_open(e) {
            return self.is_known(g, e);
        }
        let forgets = g.broken(Mutant::KeepForgetsRound);
        !self.keeps_later(g) && !self.pending.contains(e) && (self.staging.is_kept() || forgets)
    }

    /// Makes everything that was noted so far findable, for request `r`. Returns false if the request must wait, for a round or for the end of
    /// one; it is in a queue then.
    pub(in crate::engine) fn keep(&mut self, g: &mut Globals, r: u32) -> bool {
        // The keeper has no pages of lists.
        if !self.keeps(g) || g.space.lost.any_changed() {
            self.join(g, r);
            return false;
        }
        if self.keeps_later(g) {
            self.queue.keep_later(r);
            return false;
        }
        if self.keep_all(g) {
            g.counters.kept += 1;
            return true;
        }
        self.join(g, r);
        false
    }

    /// Encodes all pending records and hands the blocks to the keeper. Returns false if there was no space for all of them.
    fn keep_all(&mut self, g: &mut Globals) -> bool {
        let mark = self.pending.mark();
        let before = self.staging.tip().next_seq;
        self.staging.extend();
        let limit = self.block_limit(g);
        self.encode_pending(g, limit);
        let mut blocks = self.staging.keep();
        g.counters.journal_blocks += self.staging.tip().next_seq - before;
        if g.broken(Mutant::KeepForgetsRound) {
            blocks.start = blocks.start.max(before);
        }
        g.out.extend(blocks.map(|seq| Effect::Keep { seq }));
        self.pressed = self.is_pressed();
        self.pending.has_taken(mark)
    }

    /// A round has ended well: answers the requests that waited for that, or lets them wait for another round. Calls `kept` for each one
    /// whose records are kept.
    pub(in crate::engine) fn keep_waiting(
        &mut self,
        g: &mut Globals,
        mut kept: impl FnMut(&mut Globals, u32),
    ) {
        for r in self.queue.kept_later() {
            if self.keep(g, r) {
                kept(g, r);
            }
        }
    }

    /// The bytes of a block for the keeper.
    pub(in crate::engine) fn kept_block(&self, seq: u64) -> &[u8] {
        self.staging.bytes(seq, seq + 1)
    }
}
