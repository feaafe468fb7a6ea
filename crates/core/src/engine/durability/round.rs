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

use super::Durability;
use super::flushes::flush;
use crate::engine::devices::{Cause, MetaSource, What};
use crate::engine::globals::Globals;
use crate::io::{BufRef, DeviceOp, IoError, OpId, OpKind};
use crate::mutants::Mutant;
use crate::store::BLOCK;
use crate::units::{MemberId, Nanos};
use alloc::vec::Vec;

/// After moves, the mirror is brought up to date within this time, so that their slots become free.
const MOVES_MIRRORED_IN: Nanos = Nanos::from_secs(1);

/// A metadata write of a round: to the primary (0) or mirror (1), member, offset, length, and the place of its bytes.
pub(super) type MetaWrite = (usize, MemberId, u64, u32, MetaSource);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    #[default]
    Idle,
    FlushingData,
    WritingMeta,
    FlushingMeta,
}

/// The round in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) step: Step,
    /// Number of device operations of this step that have not ended.
    pub(super) outstanding: u32,
    pub(super) failed: bool,
    /// The members on which it failed, one bit each.
    pub(super) failed_on: u32,
    /// Whether a flush of it failed.
    pub(super) flush_failed: bool,
    /// The journal blocks of this round are `from..to`.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Number of pending records since the start that are committed when the round ends.
    pub(super) taken: u64,
    pub(super) mirror: bool,
    /// Whether a metadata flush is needed on the primary and on the mirror.
    pub(super) wrote: [bool; 2],
    pub(super) begun: Nanos,
    /// Whether the round flushes devices for a request.
    pub(super) flushes: bool,
    /// Number of moves whose records the round contains.
    pub(super) moves: u32,
    /// Whether it began before a FLUSH asked for it (`ahead.rs`). Then it only flushes, and contains neither records of changes nor moves.
    pub(super) ahead: bool,
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
    Durable {
        /// The duration of the round, if it recorded moves.
        moves_took: Option<Nanos>,
    },
    /// A flush or metadata write failed. Earlier acknowledgements still hold; nothing more can be guaranteed.
    Failed,
}

impl Durability {
    /// Whether a round is in progress whose blocks name values of counters that are not yet on the members.
    pub(super) fn is_raising(&self) -> bool {
        self.round.step == Step::FlushingData && self.counters.writes().next().is_some()
    }

    /// Flushes the devices that hold the data that the records will expose.
    pub(super) fn flush_data(&mut self, g: &mut Globals, targets: u32) -> RoundEnd {
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
            return self.write_metadata(g);
        }
        RoundEnd::Going
    }

    /// The data is durable: writes the records that expose it.
    fn write_metadata(&mut self, g: &mut Globals) -> RoundEnd {
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
            self.finish(g)
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
            Step::FlushingData => self.write_metadata(g),
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
                    return self.finish(g);
                }
                RoundEnd::Going
            }
            Step::FlushingMeta => self.finish(g),
            Step::Idle => RoundEnd::Going,
        }
    }

    /// Everything in the round is durable.
    fn finish(&mut self, g: &mut Globals) -> RoundEnd {
        self.round.step = Step::Idle;
        let took = g.clock.since(self.round.begun);
        if self.round.flushes {
            self.gather.round_took(took);
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
        RoundEnd::Durable {
            moves_took: (self.round.moves > 0).then_some(took),
        }
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
