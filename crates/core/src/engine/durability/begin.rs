//! How a round begins: what it is for, the devices that it flushes, and its snapshot. Relocation does its part between the steps, so that this
//! part knows nothing of moves but what it is told ([`MovesAsk`], [`CopiedOn`], [`MovesRecorded`]).

use super::Durability;
use super::flushes::{CopiedOn, flush_targets};
use super::reasons::{MovesAsk, Reasons};
use super::round::{Round, RoundEnd};
use crate::engine::globals::{Globals, Phase};
use crate::mutants::Mutant;
use crate::store::record;
use crate::units::ExtentId;

/// What a round that is about to begin is for.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct RoundPlan {
    why: Reasons,
    /// Whether it records changes, and so flushes every device that was written to.
    all: bool,
    /// Whether it begins before a FLUSH asks for it.
    ahead: bool,
    /// Whether it only withdraws claims or raises counters, so that it flushes no data, and carries no moves.
    light: bool,
    /// Whether it only raises counters.
    raises: bool,
}

/// A round whose records are being encoded.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Encoding {
    plan: RoundPlan,
    /// Whether the mirror is brought up to date.
    mirror: bool,
    /// The devices to flush, as a bit set.
    targets: u32,
    /// Whether somebody asked for it.
    asked: bool,
    /// Its first journal block, and the block at which its records must end.
    from: u64,
    limit: u64,
}

/// The moves whose records a round contains.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct MovesRecorded {
    /// Their number.
    pub(in crate::engine) moves: u32,
    /// Number of those that need a record.
    pub(in crate::engine) records: u32,
}

impl Encoding {
    /// The block at which records of moves must end; `None` if the round takes none.
    pub(in crate::engine) fn limit_for_moves(&self) -> Option<u64> {
        (!self.plan.ahead && !self.plan.light).then_some(self.limit)
    }
}

/// A round begins in four steps, between which relocation does its part ([`Engine`](crate::engine::Engine)).
impl Durability {
    /// The first step: what the round is for. The caller has made sure that there is a reason for one.
    pub(in crate::engine) fn plan_round(
        &mut self,
        g: &mut Globals,
        moves: &MovesAsk,
        requests: usize,
    ) -> RoundPlan {
        let why = self.reasons(g, moves, requests);
        // A round for another reason serves the requests that wait for writes, too.
        let all = self.wants_all(g, why) || !self.queue.is_empty();
        let withdraws = self.withdraws(g);
        let ahead = !all && !withdraws && !moves.now && self.ahead_due(g, requests);
        if ahead {
            self.guess(g);
        }
        let raises = !all && !ahead && !moves.now && self.must_raise(g);
        RoundPlan {
            why,
            all,
            ahead,
            light: raises || (!all && withdraws && !moves.now),
            raises,
        }
    }

    /// The second step: the devices to flush, and the snapshot: encodes the records of changes, and determines the requests that the round
    /// serves. `moving`: whether an extent has a move.
    pub(in crate::engine) fn encode_round(
        &mut self,
        g: &mut Globals,
        plan: RoundPlan,
        copied: CopiedOn,
        moving: &dyn Fn(ExtentId) -> bool,
    ) -> Encoding {
        let RoundPlan {
            why,
            all,
            ahead,
            light,
            raises,
        } = plan;
        let last = why.closing
            && !self.checkpoints.final_begun()
            && !self.has_final_records()
            && self.pending.is_empty()
            && self.clean.is_quiet();
        let idle = all && !self.checkpoints.is_building();
        if idle && (self.half_full() || (last && !self.begin_final_records(g))) {
            self.begin_checkpoint(g, last);
        }
        let mirror = why.closing
            || why.for_space
            || self.mirror_wanted()
            || g.background.wants_round()
            || self.clean.wants_mirror()
            || why.mirror_due
            || raises;
        g.background.round_began();
        g.counters.rounds += 1;
        let skips = self.gather.has_waited() && g.broken(Mutant::GatherSkipsFlush);
        // A round for moves alone writes the kept blocks, too, which expose data anywhere.
        let kept = self.staging.has_kept() && !g.broken(Mutant::KeptWithoutFlush);
        let targets = if skips || (light && !kept) {
            0
        } else {
            flush_targets(g, copied, all || ahead || kept)
        };
        if all || ahead {
            self.gathered(g, ahead, targets);
        }
        let encoding = Encoding {
            plan,
            mirror,
            targets,
            asked: !self.queue.is_empty() || g.phase != Phase::Running,
            from: self.staging.tip().next_seq,
            limit: self.block_limit(g),
        };
        self.encode_changes_of_round(g, &encoding, moving);
        encoding
    }

    /// Begins a checkpoint, if `last` the last one of the session. That one does not name what is clean as dirty, and the journal must say so
    /// as well, because an older checkpoint may have to be used. So the claims are withdrawn before.
    fn begin_checkpoint(&mut self, g: &Globals, last: bool) {
        let last = last && !self.withdraw_all(g);
        if !self.layout.has_journal {
            self.checkpoints.end_without();
        } else if last || self.half_full() {
            self.checkpoints.begin(self.staging.tip(), g.clock, last);
        }
    }

    /// Everything of the snapshot but the records of moves.
    fn encode_changes_of_round(
        &mut self,
        g: &mut Globals,
        encoding: &Encoding,
        moving: &dyn Fn(ExtentId) -> bool,
    ) {
        let (RoundPlan { all, ahead, .. }, limit) = (encoding.plan, encoding.limit);
        if !g.broken(Mutant::ClearMarkEarly) {
            self.marks.round_begins(g, all && !ahead, encoding.asked);
        }
        if !g.broken(Mutant::ExtendTakenBlock) {
            self.staging.round_begins();
        }
        let clean_epoch = g.broken(Mutant::TrustCleanAfterCrash);
        self.always_clean_epoch = clean_epoch.then_some(record::ANY_EPOCH);
        if !ahead {
            self.encode_withdrawals(g, limit);
        }
        if all {
            self.lists.round_begins(g);
            self.withdraw_rested(g);
            self.encode_changes(g, limit);
            self.encode_claims(g, moving, limit);
        } else {
            if g.broken(Mutant::ClaimUnflushed) {
                self.encode_claims(g, moving, limit);
            }
            self.checkpoints.skip();
        }
    }

    /// The last step, when the records of moves are encoded, too: issues the flushes.
    pub(in crate::engine) fn begin_round(
        &mut self,
        g: &mut Globals,
        encoding: &Encoding,
        recorded: MovesRecorded,
    ) -> RoundEnd {
        let Encoding {
            plan: RoundPlan { all, ahead, .. },
            from,
            targets,
            ..
        } = *encoding;
        if g.broken(Mutant::ClearMarkEarly) {
            self.marks.round_begins(g, all && !ahead, encoding.asked);
        }
        let checkpoint = self.checkpoints.adds() || self.checkpoints.header_due();
        let synchronous = self.synchronous && !g.broken(Mutant::LagOnOtherFlash);
        let wanted = synchronous || encoding.mirror || recorded.records > 0 || checkpoint;
        let mirror = self.has_mirror() && wanted;
        self.raise_counters(g, targets, mirror, encoding.limit);
        self.staging.seal();
        self.round = Round {
            from,
            to: self.staging.tip().next_seq,
            taken: self.pending.taken(),
            mirror,
            begun: g.clock,
            flushes: targets != 0 && self.queue.serves_any(),
            moves: recorded.moves,
            ahead,
            ..Round::default()
        };
        g.counters.journal_blocks += self.round.to - from;
        self.flush_data(g, targets)
    }
}
