//! Rounds: how anything becomes durable.
//!
//! ```text
//!  idle ──► flush data devices ──► write records (and a piece of checkpoint) ──► flush metadata ──► reply, flip, free ──► idle
//!        ▲ snapshot: records are encoded here, from blocks that were valid before the flush was issued
//! ```
//! One round at a time. FLUSHes that arrive during a round share the next. A round that serves only moves flushes only the
//! devices that they were copied to. Cost is the number of changes since the last round, never the size of the volume.
//!
//! The journal on the primary decides; the mirror follows when moves need it, when the staging area is half full, when a
//! checkpoint is written, or when it is awake anyway and `commit_interval` has passed.
//!
//! Checkpoints are fuzzy and incremental: each full round may add a piece, encoded like the records at the snapshot, so
//! everything in it is durable when it is written. What changes later is in the journal after the checkpoint's start.

use crate::engine::durability::commit::{Building, MetaSource, Round, Step};
use crate::engine::{Engine, Mutant, Op, Phase, What};
use crate::io::{BufRef, DeviceOp, Effect, IoError, OpId, OpKind};
use crate::store::BLOCK;
use crate::store::checkpoint::Header;
use crate::store::record;
use crate::units::{MemberId, Nanos};
use alloc::vec;
use alloc::vec::Vec;

/// Journal blocks a round may write.
const ROUND_BLOCKS: u64 = 256;

impl Engine {
    /// Start a round if there is a reason; true if anything was done.
    pub(in crate::engine) fn start_round_if_due(
        &mut self,
        now: Nanos,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.commit.step != Step::Idle {
            return false;
        }
        if self.params.read_only || self.failed {
            // Nothing can become more durable: with nothing written that is success, after a failure it is not.
            let result = if self.failed && !self.broken(Mutant::ForgetFailedFlush) {
                Err(IoError::Io)
            } else {
                Ok(())
            };
            let queue = core::mem::take(&mut self.commit.queue);
            for &(r, _) in &queue {
                self.reply(now, r, result, out);
            }
            return !queue.is_empty();
        }
        let closing = self.phase == Phase::Closing
            && self.reqs.len() == self.commit.queue.len()
            && self.moves.active() == 0;
        let mirror_awake = self.mirror_awake();
        let c = &self.commit;
        let for_space = self.freeing.wants_round() && !self.starving.is_empty();
        let full = !c.queue.is_empty()
            || (!c.pending.is_empty() && c.due.is_some_and(|t| t <= now))
            || (c.staging.lag() > 0 && mirror_awake && c.mirror_due.is_some_and(|t| t <= now))
            || for_space
            || c.building.is_some()
            || c.half_full()
            || c.mirror_wanted()
            || self.lull.wants_round()
            || (closing && !c.is_settled());
        if !full && !self.moves.want_round(now, self.is_urgent()) {
            return false;
        }
        self.drop_stale(now, out);
        let c = &mut self.commit;
        if full
            && c.building.is_none()
            && (c.half_full() || (closing && !c.final_begun && c.pending.is_empty()))
        {
            let header = Header {
                number: c.next_number,
                start: c.staging.tip(),
                blocks: 0,
                time: now,
                lazy: c.staging.lazy_from.map(|_| c.epoch),
            };
            c.building = Some(Building {
                header,
                cursor: 0,
                header_due: false,
            });
            c.final_begun = closing;
        }
        let mirror = closing
            || (for_space && self.freeing.wants_mirror())
            || c.mirror_wanted()
            || self.lull.wants_round()
            || (mirror_awake && c.mirror_due.is_some_and(|t| t <= now));
        self.lull.round_began();
        self.begin_round(now, full, mirror, out);
        true
    }

    fn begin_round(&mut self, now: Nanos, full: bool, mirror: bool, out: &mut Vec<Effect>) {
        self.counters.rounds += 1;
        let targets = self.flush_targets(full);
        let next = self.commit.staging.tip().next_seq;
        let ring_room = if self.broken(Mutant::OverrunJournal) {
            u64::MAX / 2
        } else {
            self.commit.ring_room()
        };
        // Without a room in the staging ring, this round only lets the mirror catch up.
        let limit = next + ring_room.min(self.commit.staging.room()).min(ROUND_BLOCKS);
        let hurried = self.broken(Mutant::CheckpointWithoutBarrier);
        let tell = self.broken(Mutant::TrustCleanAfterCrash);
        let lazy = self.is_lazy() && !self.broken(Mutant::LazyInSilence);
        let c = &mut self.commit;
        if lazy && c.follow.is_claimed() {
            c.staging.lazy_from.get_or_insert(next);
        }
        c.always_tell = tell.then_some(record::ANY_EPOCH);
        let b_extents = c.extents;
        if full {
            while let Some(&e) = c.pending.front() {
                let home = self.space.map.home(e);
                if !c.encode(&mut self.space.map, e, home, &self.space.geo, limit) {
                    break;
                }
                self.counters.journal_records += 1;
                c.pending.pop_front();
                c.is_pending.clear(e.0 as usize);
                c.taken += 1;
            }
            c.due = if c.pending.is_empty() { None } else { c.due };
            core::mem::swap(&mut c.queue, &mut c.serving);
            c.encode_piece(&mut self.space.map, &self.space.geo);
            if hurried {
                // The mutant: header and blocks together, and no flush behind them.
                c.building = c.building.map(|b| Building {
                    header_due: b.cursor >= b_extents,
                    ..b
                });
            }
        } else {
            c.piece_blocks = 0;
        }
        let mut moves = 0;
        loop {
            let Some((index, m)) = self.moves.copied().next() else {
                break;
            };
            if m.is_clean() && !self.apply_clean(index, &m) {
                // Overtaken block by block.
                self.moves.mark_stale(index);
                continue;
            }
            let (space, c) = (&mut self.space, &mut self.commit);
            if !c.encode(&mut space.map, m.extent, Some(m.dst), &space.geo, limit) {
                if m.is_clean() {
                    self.revert_clean(index, &m);
                }
                break;
            }
            self.counters.journal_records += 1;
            moves += 1;
            self.move_committing(now, index);
        }
        // What is about to be acknowledged must not be news to the mirror, if that is to be relied on.
        let owed = self.owes_mirror() && !self.commit.serving.is_empty();
        let c = &mut self.commit;
        c.staging.seal();
        let to = c.staging.tip().next_seq;
        let header = c.building.is_some_and(|b| b.header_due);
        let mirror =
            c.has_mirror() && (mirror || owed || moves > 0 || c.piece_blocks > 0 || header);
        if mirror {
            c.follow.told(c.pending.is_empty());
        }
        c.round = Round {
            from: next,
            to,
            taken: c.taken,
            mirror,
            wrote: [false; 2],
            failed: false,
            begun: now,
            moves,
        };
        self.counters.journal_blocks += to - next;
        c.step = Step::FlushingData;
        c.outstanding = targets.count_ones();
        for i in (0..self.members.len()).filter(|i| targets >> i & 1 == 1) {
            self.members[i].unflushed = false;
            self.round_op(
                MemberId(i as u8),
                OpKind::Flush,
                0,
                0,
                MetaSource::None,
                false,
                out,
            );
        }
        if targets == 0 {
            self.write_metadata(now, out);
        }
    }

    /// Devices to flush before the records may be written, as a bit set.
    fn flush_targets(&self, full: bool) -> u32 {
        let dirty = (0..self.members.len())
            .filter(|&i| self.members[i].unflushed)
            .fold(0u32, |s, i| s | 1 << i);
        let fast = (0..self.members.len())
            .filter(|&i| self.space.geo.members[i].tier.0 == 0)
            .fold(0u32, |s, i| s | 1 << i);
        let mut set = if full {
            dirty
        } else {
            dirty & self.members_of_copied()
        };
        if self.broken(Mutant::CleanBeforeFlush) {
            let homes = self.moves.copied().filter(|(_, m)| m.is_clean());
            set = homes.fold(set, |s, (_, m)| {
                s & !(1 << self.space.geo.locate(m.dst).0.0)
            });
        }
        if self.broken(Mutant::ExposeBeforeFlush) && full {
            set = 0;
        }
        if self.broken(Mutant::FlushForgetsFast) {
            set &= !fast;
        }
        if self.broken(Mutant::FlushForgetsSlow) {
            set &= fast;
        }
        set
    }

    #[allow(clippy::too_many_arguments)]
    fn round_op(
        &mut self,
        member: MemberId,
        kind: OpKind,
        offset: u64,
        len: u32,
        meta: MetaSource,
        fua: bool,
        out: &mut Vec<Effect>,
    ) {
        let buf = if meta == MetaSource::None {
            BufRef::None
        } else {
            BufRef::Meta
        };
        self.start(
            What::Round,
            DeviceOp {
                id: OpId(0),
                member,
                kind,
                offset,
                len,
                buf,
                fua,
            },
            meta,
            out,
        );
    }

    /// The data is durable: write what exposes it.
    fn write_metadata(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.commit.step = Step::WritingMeta;
        let mut writes: Vec<(usize, MemberId, u64, u32, MetaSource)> = Vec::new();
        let c = &mut self.commit;
        let ring = u64::from(c.layout.area.ring_blocks);
        let mut targets = vec![(0, c.layout.primary, c.round.from)];
        if let Some(m) = c.layout.mirror.filter(|_| c.round.mirror) {
            targets.push((1, m, c.staging.mirrored));
        }
        if let Some(b) = &mut c.building
            && b.header_due
        {
            c.header_block
                .copy_from_slice(&b.header.encode(&c.uuid, &Vec::new()));
        }
        for &(which, member, from) in &targets {
            let mut seq = from;
            while seq < c.round.to {
                let end = c.staging.span(seq, c.round.to, ring);
                let len = (end - seq) as u32 * BLOCK as u32;
                writes.push((
                    which,
                    member,
                    c.layout.area.ring_offset(seq),
                    len,
                    MetaSource::Journal { seq, skip: 0 },
                ));
                seq = end;
            }
            if let Some(b) = c.building {
                let region = c.layout.area.region_offset(Header::region(b.header.number));
                if c.piece_blocks > 0 {
                    let at = region + (1 + u64::from(c.piece_first)) * BLOCK as u64;
                    writes.push((
                        which,
                        member,
                        at,
                        c.piece_blocks * BLOCK as u32,
                        MetaSource::Piece { skip: 0 },
                    ));
                }
                if b.header_due {
                    writes.push((
                        which,
                        member,
                        region,
                        BLOCK as u32,
                        MetaSource::Header { skip: 0 },
                    ));
                }
            }
        }
        if writes.is_empty() {
            return self.finish_round(now, out);
        }
        // One write to one device carries its own flush.
        let hurried =
            self.broken(Mutant::CheckpointWithoutBarrier) && self.commit.building.is_some();
        let skip_flush = hurried || self.broken(Mutant::SkipJournalFlush);
        let alone = writes.len() == 1 && !skip_flush;
        self.commit.outstanding = writes.len() as u32;
        for (which, member, offset, len, meta) in writes {
            self.commit.round.wrote[which] |= !alone && !skip_flush;
            self.round_op(member, OpKind::Write, offset, len, meta, alone, out);
        }
    }

    /// A flush or metadata write of the round ended.
    pub(in crate::engine) fn round_step(
        &mut self,
        now: Nanos,
        _op: &Op,
        result: Result<(), IoError>,
        out: &mut Vec<Effect>,
    ) {
        self.commit.round.failed |= result.is_err();
        self.commit.outstanding -= 1;
        if self.commit.outstanding > 0 {
            return;
        }
        if self.commit.round.failed {
            return self.fail_round(now, out);
        }
        match self.commit.step {
            Step::FlushingData => self.write_metadata(now, out),
            Step::WritingMeta => {
                self.commit.step = Step::FlushingMeta;
                let wrote = self.commit.round.wrote;
                let members = [Some(self.commit.layout.primary), self.commit.layout.mirror];
                let flush: Vec<MemberId> = members
                    .into_iter()
                    .zip(wrote)
                    .filter(|x| x.1)
                    .filter_map(|x| x.0)
                    .collect();
                self.commit.outstanding = flush.len() as u32;
                for &m in &flush {
                    self.round_op(m, OpKind::Flush, 0, 0, MetaSource::None, false, out);
                }
                if flush.is_empty() {
                    self.finish_round(now, out);
                }
            }
            Step::FlushingMeta => self.finish_round(now, out),
            Step::Idle => {}
        }
    }

    /// Everything that the round carried is durable.
    fn finish_round(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let c = &mut self.commit;
        let round = c.round;
        c.step = Step::Idle;
        if round.moves > 0 {
            self.moves.round_took(now.since(round.begun));
        }
        c.staging.last_flushed = round.to - 1;
        c.committed = round.taken;
        if round.mirror || !c.has_mirror() {
            c.staging.mirrored = round.to;
            c.mirror_committed = round.taken;
            if c.staging.lazy_from.is_some_and(|s| round.to > s) {
                c.follow.disclaimed();
            }
        }
        c.mirror_due = (c.has_mirror() && c.staging.lag() > 0)
            .then(|| c.mirror_due.unwrap_or(now + self.params.commit_interval));
        if c.mirror_due.is_some_and(|t| t <= now) {
            // Due, but the mirror sleeps: look again later.
            c.mirror_due = Some(now + self.params.commit_interval);
        }
        if let Some(b) = &mut c.building {
            if b.header_due {
                c.durable = b.header;
                c.next_number = b.header.number + 1;
                c.building = None;
                self.counters.checkpoints += 1;
            } else if b.cursor >= c.extents {
                b.header_due = true;
            }
        }
        self.flip_committed(now, out);
        self.release_durable(out);
        let mut serving = core::mem::take(&mut self.commit.serving);
        for (r, mark) in serving.drain(..) {
            if self.commit.committed >= mark {
                self.reply(now, r, Ok(()), out);
            } else {
                // More changes than one round could carry.
                self.commit.queue.push((r, mark));
            }
        }
        self.commit.serving = serving;
        self.retry |= !self.waiting.is_empty();
    }

    /// A flush or metadata write failed. What was acknowledged before stays; nothing more is promised.
    fn fail_round(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.commit.step = Step::Idle;
        self.failed = true;
        // No slot will be let go of any more: who waits for one is told so.
        self.freed = true;
        self.abandon_committing(now, out);
        let mut waiting = core::mem::take(&mut self.commit.serving);
        waiting.append(&mut self.commit.queue);
        let result = if self.broken(Mutant::ForgetFailedFlush) {
            self.failed = false;
            Ok(())
        } else {
            Err(IoError::Io)
        };
        for (r, _) in waiting {
            self.reply(now, r, result, out);
        }
        self.retry = true;
    }
}
