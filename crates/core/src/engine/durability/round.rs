//! Rounds, which make changes durable.
//!
//! ```text
//!  idle ──► flush data devices ──► write records (and a piece of checkpoint) ──► flush metadata ──► reply, flip, free ──► idle
//!        ▲ snapshot: records are encoded here, from blocks that were valid before the flush was issued
//! ```
//! There is one round at a time. FLUSHes that arrive during a round share the next one. A round that serves only moves flushes only the
//! devices to which they were copied. A round that begins ahead (`ahead.rs`) only flushes, and one for counters (`counters.rs`) or
//! withdrawals (`clean_claims.rs`) flushes nothing. The cost depends on the number of changes since the last round, never on the size of the volume.
//!
//! After a crash, the journal on the primary is authoritative. The mirror is brought up to date when homes have moved, when the staging
//! area is half full, when a checkpoint is written, or when it is awake anyway and `commit_interval` has passed; after moves, a second.
//! A round for which no request waits is delayed until the device with the mirror is idle.
//!
//! Checkpoints are fuzzy and incremental (`checkpoints.rs`): each full round may add a piece, which is encoded at the snapshot, as the
//! records are.

use super::flushes::{flush, flush_targets};
use super::{Durability, MetaSource};
use crate::engine::devices::{Cause, What};
use crate::engine::globals::{Globals, Phase};
use crate::engine::relocation::Relocation;
use crate::io::{BufRef, DeviceOp, IoError, OpId, OpKind};
use crate::mutants::Mutant;
use crate::store::{BLOCK, record};
use crate::units::{MemberId, Nanos};
use alloc::vec::Vec;

/// After moves, the mirror is brought up to date within this time, so that their slots become free.
const MOVES_MIRRORED_IN: Nanos = Nanos::from_secs(1);

/// A metadata write of a round: to the primary (0) or mirror (1), member, offset, length, and the place of its bytes.
pub(super) type MetaWrite = (usize, MemberId, u64, u32, MetaSource);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Idle,
    FlushingData,
    WritingMeta,
    FlushingMeta,
}

/// The round in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    step: Step,
    /// Number of device operations of this step that have not ended.
    outstanding: u32,
    failed: bool,
    /// The members on which it failed, one bit each.
    failed_on: u32,
    /// Whether a flush of it failed.
    flush_failed: bool,
    /// The journal blocks of this round are `from..to`.
    from: u64,
    to: u64,
    /// Number of pending records since the start that are committed when the round ends.
    taken: u64,
    mirror: bool,
    /// Whether a metadata flush is needed on the primary and on the mirror.
    wrote: [bool; 2],
    begun: Nanos,
    /// Whether the round flushes devices for a request.
    flushes: bool,
    /// Number of moves whose records the round contains.
    moves: u32,
    /// Whether it began before a FLUSH asked for it (`ahead.rs`). Then it only flushes, and contains neither records of changes nor moves.
    ahead: bool,
}

impl Round {
    pub(super) fn is_idle(&self) -> bool {
        self.step == Step::Idle
    }
    /// Whether a round is in progress that began ahead.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead && !self.is_idle()
    }
    pub(super) fn writes_metadata(&self) -> bool {
        matches!(self.step, Step::WritingMeta | Step::FlushingMeta)
    }
    /// Whether a round is in progress that contains moves, so that the map is not yet what its records say.
    pub(super) fn has_moves(&self) -> bool {
        !self.is_idle() && self.moves > 0
    }
}

/// The result of a step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum RoundEnd {
    /// The round continues.
    Going,
    /// Everything in it is durable.
    Durable,
    /// A flush or metadata write failed. Earlier acknowledgements still hold; nothing more can be guaranteed.
    Failed,
}

impl Durability {
    /// Begins a round. The caller has made sure that there is a reason for one.
    pub(in crate::engine) fn begin_round(
        &mut self,
        g: &mut Globals,
        r: &mut Relocation,
        requests: usize,
    ) -> RoundEnd {
        let why = self.reasons(g, r, requests);
        // A round for another reason serves the requests that wait for writes, too.
        let all = self.wants_all(g, why) || !self.queue.is_empty();
        let withdraws = self.withdraws(g);
        let ahead = !all && !withdraws && !r.wants_round(g) && self.ahead_due(g, requests);
        if ahead {
            self.guess(g);
        }
        // A round that only withdraws claims or raises counters flushes no data, and so carries no moves.
        let raises = !all && !ahead && !r.wants_round(g) && self.must_raise(g);
        let light = raises || (!all && withdraws && !r.wants_round(g));
        r.drop_stale(g, self);
        r.round_begins(g);
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
            flush_targets(g, r, all || ahead || kept)
        };
        if all || ahead {
            self.gathered(g, ahead, targets);
        }
        let from = self.encode_round(g, r, (all, mirror, ahead, light), targets);
        g.counters.journal_blocks += self.round.to - from;
        self.flush_data(g, r, targets)
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

    /// The snapshot: encodes all records of the round, and determines the requests that it serves. Returns the first journal block.
    fn encode_round(
        &mut self,
        g: &mut Globals,
        r: &mut Relocation,
        (all, mirror, ahead, light): (bool, bool, bool, bool),
        targets: u32,
    ) -> u64 {
        let from = self.staging.tip().next_seq;
        let limit = self.block_limit(g);
        let asked = !self.queue.is_empty() || g.phase != Phase::Running;
        let late = g.broken(Mutant::ClearMarkEarly);
        if !late {
            self.marks.round_begins(g, all && !ahead, asked);
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
            self.encode_claims(g, r, limit);
        } else {
            if g.broken(Mutant::ClaimUnflushed) {
                self.encode_claims(g, r, limit);
            }
            self.checkpoints.skip();
        }
        let (moves, recorded) = if ahead || light {
            (0, 0)
        } else {
            self.encode_moves(g, r, limit)
        };
        if late {
            self.marks.round_begins(g, all && !ahead, asked);
        }
        let checkpoint = self.checkpoints.adds() || self.checkpoints.header_due();
        let synchronous = self.synchronous && !g.broken(Mutant::LagOnOtherFlash);
        let mirror = self.has_mirror() && (synchronous || mirror || recorded > 0 || checkpoint);
        self.raise_counters(g, targets, mirror, limit);
        self.staging.seal();
        self.round = Round {
            from,
            to: self.staging.tip().next_seq,
            taken: self.pending.taken(),
            mirror,
            begun: g.clock,
            flushes: targets != 0 && self.queue.serves_any(),
            moves,
            ahead,
            ..Round::default()
        };
        from
    }

    /// Whether a round is in progress whose blocks name values of counters that are not yet on the members.
    pub(super) fn is_raising(&self) -> bool {
        self.round.step == Step::FlushingData && self.counters.writes().next().is_some()
    }

    /// Flushes the devices that hold the data that the records will expose.
    fn flush_data(&mut self, g: &mut Globals, r: &mut Relocation, targets: u32) -> RoundEnd {
        self.round.step = Step::FlushingData;
        self.round.outstanding = targets.count_ones() + self.counters.writes().len() as u32;
        self.round.outstanding += self.marks.writes().count() as u32;
        for i in (0..g.devices.members.len()).filter(|i| targets >> i & 1 == 1) {
            g.devices.members[i].unflushed = false;
            flush(g, MemberId(i as u8));
        }
        let counters = self.counters.writes().map(|(m, at)| (m, at, true));
        let marks = self.marks.writes().map(|(m, at)| (m, at, false));
        for (member, offset, is_counter) in counters.chain(marks) {
            let meta = if is_counter {
                MetaSource::Counter { member, skip: 0 }
            } else {
                MetaSource::Mark { member, skip: 0 }
            };
            let cause = Cause {
                meta,
                ..Cause::plain(What::Round)
            };
            let op = DeviceOp {
                id: OpId(0),
                member,
                kind: OpKind::Write,
                offset,
                len: BLOCK as u32,
                buf: BufRef::Meta,
                fua: !(is_counter && g.broken(Mutant::NameBeforeRaise)),
            };
            g.start(cause, op);
        }
        if g.broken(Mutant::WrittenBeforeFlush) {
            self.round.outstanding += self.lists.start(g);
        }
        if self.round.outstanding == 0 {
            return self.write_metadata(g, r);
        }
        RoundEnd::Going
    }

    /// The data is durable: writes the records that expose it.
    fn write_metadata(&mut self, g: &mut Globals, r: &mut Relocation) -> RoundEnd {
        self.round.step = Step::WritingMeta;
        self.counters.durable();
        self.marks.durable(g);
        let mut writes = core::mem::take(&mut self.writes);
        self.metadata_writes(g.broken(Mutant::RoundForgetsKept), &mut writes);
        let mut some = !writes.is_empty();
        self.start_metadata(g, &mut writes);
        if !g.broken(Mutant::WrittenBeforeFlush) {
            let pages = self.lists.start(g);
            self.round.outstanding += pages;
            some |= pages > 0;
        }
        // The list's memory is kept for the next round, so that a round allocates nothing.
        self.writes = writes;
        if some {
            RoundEnd::Going
        } else {
            self.finish(g, r)
        }
    }

    /// Starts the metadata writes of this round.
    fn start_metadata(&mut self, g: &mut Globals, writes: &mut Vec<MetaWrite>) {
        // If there is only one write, it is issued with FUA, and no flush is needed.
        let hurried = g.broken(Mutant::CheckpointWithoutBarrier) && self.checkpoints.is_building();
        let skip_flush = hurried || g.broken(Mutant::SkipJournalFlush);
        let alone = writes.len() == 1 && !skip_flush;
        self.round.outstanding = writes.len() as u32;
        for (which, member, offset, len, meta) in writes.drain(..) {
            self.round.wrote[which] |= !alone && !skip_flush;
            let cause = Cause {
                meta,
                ..Cause::plain(What::Round)
            };
            let op = DeviceOp {
                id: OpId(0),
                member,
                kind: OpKind::Write,
                offset,
                len,
                buf: BufRef::Meta,
                fua: alone,
            };
            g.start(cause, op);
        }
    }

    /// Adds the metadata writes of this round to an empty list.
    fn metadata_writes(&mut self, forgets_kept: bool, writes: &mut Vec<MetaWrite>) {
        let area = self.layout.area;
        self.checkpoints
            .encode_header(self.counters.known(), self.staging.tip());
        let mirror = self.layout.mirror.filter(|_| self.round.mirror);
        let first = if forgets_kept {
            self.round.from
        } else {
            self.staging.on_primary
        };
        let targets = [
            Some((self.layout.primary, first)),
            mirror.map(|c| (c, self.staging.mirrored)),
        ];
        for (which, target) in targets.into_iter().enumerate() {
            let Some((carrier, mut seq)) = target.filter(|_| self.layout.has_journal) else {
                continue;
            };
            let member = carrier.member;
            while seq < self.round.to {
                let end = self
                    .staging
                    .span(seq, self.round.to, u64::from(area.ring_blocks));
                let len = (end - seq) as u32 * BLOCK as u32;
                let meta = MetaSource::Journal { seq, skip: 0 };
                writes.push((
                    which,
                    member,
                    self.layout.ring_offset(carrier, seq),
                    len,
                    meta,
                ));
                seq = end;
            }
            for (region, at, len, is_header) in self.checkpoints.writes() {
                let meta = if is_header {
                    MetaSource::Header { skip: 0 }
                } else {
                    MetaSource::Piece { skip: 0 }
                };
                let start = self.layout.region_offset(carrier, region);
                writes.push((which, member, start + at, len, meta));
            }
        }
    }

    /// Whether the last round failed, and on members for all of which this is true.
    pub(in crate::engine) fn failed_only_on(&self, which: impl Fn(MemberId) -> bool) -> bool {
        let on = self.round.failed_on;
        on != 0 && (0..32u8).all(|i| on >> i & 1 == 0 || which(MemberId(i)))
    }

    /// Whether a flush of the last round failed.
    pub(in crate::engine) fn flush_failed(&self) -> bool {
        self.round.flush_failed
    }

    /// A flush or metadata write of the round has ended.
    pub(in crate::engine) fn round_step(
        &mut self,
        g: &mut Globals,
        r: &mut Relocation,
        op: &DeviceOp,
        result: Result<(), IoError>,
    ) -> RoundEnd {
        self.round.failed |= result.is_err();
        if result.is_err() {
            self.round.failed_on |= 1 << op.member.0;
            self.round.flush_failed |= op.kind == OpKind::Flush;
        }
        self.round.outstanding -= 1;
        if self.round.outstanding > 0 {
            return RoundEnd::Going;
        }
        if self.round.failed {
            self.round.step = Step::Idle;
            self.pressed = self.is_pressed();
            return RoundEnd::Failed;
        }
        match self.round.step {
            Step::FlushingData => self.write_metadata(g, r),
            Step::WritingMeta => {
                self.round.step = Step::FlushingMeta;
                // (Both places may be on one member.)
                let wrote = self.round.wrote;
                let primary = self.layout.primary.member;
                let other = self
                    .mirror()
                    .filter(|&m| wrote[1] && !(wrote[0] && m == primary));
                for m in Some(primary).filter(|_| wrote[0]).into_iter().chain(other) {
                    self.round.outstanding += 1;
                    flush(g, m);
                }
                if self.round.outstanding == 0 {
                    return self.finish(g, r);
                }
                RoundEnd::Going
            }
            Step::FlushingMeta => self.finish(g, r),
            Step::Idle => RoundEnd::Going,
        }
    }

    /// Everything in the round is durable.
    fn finish(&mut self, g: &mut Globals, r: &mut Relocation) -> RoundEnd {
        self.round.step = Step::Idle;
        if self.round.moves > 0 {
            r.round_took(g.clock, g.clock.since(self.round.begun));
        }
        if self.round.flushes {
            self.gather.round_took(g.clock.since(self.round.begun));
        }
        self.lists.durable(g);
        self.staging.last_flushed = self.round.to - 1;
        self.staging.on_primary = self.round.to;
        let everywhere = self.round.mirror || !self.has_mirror();
        self.pending.commit(self.round.taken, everywhere);
        if everywhere || g.broken(Mutant::SkipMirrorQuietly) {
            self.staging.mirrored = self.round.to;
        }
        let wait = if self.round.moves > 0 {
            g.params.commit_interval.min(MOVES_MIRRORED_IN)
        } else {
            g.params.commit_interval
        };
        let next = g.clock + wait;
        self.mirror_due = (self.has_mirror() && self.staging.lag() > 0)
            .then(|| self.mirror_due.map_or(next, |t| t.min(next)))
            // If it is due but was not done, the mirror sleeps: it is checked again later.
            .map(|t| if t <= g.clock { next } else { t });
        self.forget_recorded(g);
        self.withdrawals_durable(g);
        g.counters.checkpoints += u64::from(self.checkpoints.round_done());
        self.pressed = self.is_pressed();
        RoundEnd::Durable
    }

    /// Called when the round is durable. Reports the requests that waited for it and need no more than its records; with `late` also those
    /// that arrived since (a mutant). Returns whether some of them need more records.
    pub(in crate::engine) fn serve(&mut self, late: bool, served: impl FnMut(u32)) -> bool {
        let (committed, _) = self.pending.committed(false);
        if late {
            self.queue.serve_queued();
        }
        self.queue.round_done(committed, served)
    }

    /// Reports every request that waits for a round, because there will be no more rounds.
    pub(in crate::engine) fn dismiss(&mut self, each: impl FnMut(u32)) {
        self.queue.dismiss(each);
    }
}
