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

use super::{Engine, Mutant, Params, Phase, What};
use crate::bits::Bits;
use crate::io::{BufRef, DeviceOp, Effect, IoError, OpId, OpKind};
use crate::map::ExtentMap;
use crate::store::checkpoint::{self, Header};
use crate::store::journal::{Staging, Tip};
use crate::store::record;
use crate::store::{BLOCK, HEADER, Layout, Superblock};
use crate::units::{ExtentId, MemberId, Nanos};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Checkpoint blocks a round may add: 1 MiB.
const PIECE_BLOCKS: usize = 256;
/// Rows that a round may look at for a checkpoint: about 2 ms.
const PIECE_ROWS: u32 = 1 << 20;
/// Journal blocks a round may write.
const ROUND_BLOCKS: u64 = 256;

/// Where the bytes of a metadata write are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaSource {
    None,
    /// Staged journal blocks from this sequence number on.
    Journal {
        seq: u64,
        skip: u32,
    },
    /// The checkpoint piece of this round.
    Piece {
        skip: u32,
    },
    /// The checkpoint header.
    Header {
        skip: u32,
    },
}

impl MetaSource {
    /// The first `n` bytes are written.
    pub(super) fn skip(&mut self, n: u32) {
        match self {
            MetaSource::None => {}
            MetaSource::Journal { skip, .. }
            | MetaSource::Piece { skip }
            | MetaSource::Header { skip } => *skip += n,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    FlushingData,
    WritingMeta,
    FlushingMeta,
}

/// The round under way.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Journal blocks of this round.
    from: u64,
    to: u64,
    /// Pending records committed when it ends.
    taken: u64,
    mirror: bool,
    /// Metadata flush needed: (primary, mirror).
    wrote: [bool; 2],
    failed: bool,
}

/// A checkpoint being written.
#[derive(Clone, Copy, Debug)]
struct Building {
    header: Header,
    cursor: u32,
    /// All blocks are durable; the header goes with the next round.
    header_due: bool,
}

/// Pending records, the round under way, the journal, the checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    uuid: [u8; 16],
    layout: Layout,
    extents: u32,
    step: Step,
    outstanding: u32,
    round: Round,
    /// Requests that wait for a round, with the pending records that they need.
    queue: Vec<(u32, u64)>,
    serving: Vec<(u32, u64)>,
    pending: VecDeque<ExtentId>,
    is_pending: Bits,
    pushed: u64,
    taken: u64,
    committed: u64,
    mirror_committed: u64,
    due: Option<Nanos>,
    mirror_due: Option<Nanos>,
    staging: Staging,
    /// The last durable checkpoint.
    durable: Header,
    building: Option<Building>,
    final_begun: bool,
    piece: Vec<u8>,
    /// Blocks of `piece` in this round, and the index of the first.
    piece_blocks: u32,
    piece_first: u32,
    header_block: Vec<u8>,
}

impl Commit {
    pub(super) fn new(
        sb: &Superblock,
        layout: Layout,
        tip: Tip,
        durable: Header,
        p: &Params,
        extents: u32,
    ) -> Commit {
        Commit {
            uuid: sb.uuid,
            layout,
            extents,
            step: Step::Idle,
            outstanding: 0,
            round: Round::default(),
            queue: Vec::with_capacity(256),
            serving: Vec::with_capacity(256),
            pending: VecDeque::with_capacity(4096),
            is_pending: Bits::new(extents as usize),
            pushed: 0,
            taken: 0,
            committed: 0,
            mirror_committed: 0,
            due: None,
            mirror_due: None,
            staging: Staging::new(sb.uuid, sb.epoch, tip, p.stage_blocks.max(8)),
            durable,
            building: None,
            final_begun: false,
            piece: vec![0; PIECE_BLOCKS * BLOCK],
            piece_blocks: 0,
            piece_first: 0,
            header_block: vec![0; BLOCK],
        }
    }
    pub(super) fn has_mirror(&self) -> bool {
        self.layout.mirror.is_some()
    }
    /// The durable state of `e` differs from the map: a record is due.
    pub(super) fn note(&mut self, e: ExtentId, now: Nanos, within: Nanos) {
        if self.is_pending.set(e.0 as usize) {
            self.pending.push_back(e);
            self.pushed += 1;
        }
        self.due.get_or_insert(now + within);
    }
    /// Everything noted so far is durable once this many records were committed.
    pub(super) fn pending_mark(&self) -> u64 {
        self.pushed
    }
    /// Records committed on (primary, mirror).
    pub(super) fn committed(&self) -> (u64, u64) {
        (
            self.committed,
            if self.has_mirror() {
                self.mirror_committed
            } else {
                self.committed
            },
        )
    }
    /// Is everything needed to find `e` durable now?
    pub(super) fn is_recorded(&self, e: ExtentId) -> bool {
        self.step == Step::Idle && !self.is_pending.get(e.0 as usize)
    }
    /// Request `r` is answered when a round that starts from now on is durable.
    pub(super) fn join(&mut self, r: u32) {
        self.queue.push((r, self.pushed));
    }
    /// Is metadata being written or flushed?
    pub(super) fn writing_metadata(&self) -> bool {
        matches!(self.step, Step::WritingMeta | Step::FlushingMeta)
    }
    pub(super) fn next_wake(&self, mirror_awake: bool) -> Option<Nanos> {
        let mirror_due = self.mirror_due.filter(|_| mirror_awake);
        [self.due, mirror_due]
            .into_iter()
            .flatten()
            .min()
            .filter(|_| self.is_idle())
    }
    /// Is no round under way?
    pub(super) fn is_idle(&self) -> bool {
        self.step == Step::Idle
    }
    /// The member whose journal decides.
    pub(super) fn primary(&self) -> MemberId {
        self.layout.primary
    }
    /// The member that carries the second copy of the metadata.
    pub(super) fn mirror(&self) -> Option<MemberId> {
        self.layout.mirror
    }
    /// For the report of a run that hangs.
    pub(super) fn under_way(&self) -> impl core::fmt::Debug + use<> {
        (
            self.step,
            self.outstanding,
            self.queue.len(),
            self.pending.len(),
            self.building,
            (self.staging.lag(), self.staging.room(), self.ring_room()),
        )
    }
    /// Is nothing left to write?
    pub(super) fn is_settled(&self) -> bool {
        self.step == Step::Idle
            && self.queue.is_empty()
            && self.pending.is_empty()
            && self.building.is_none()
            && self.final_begun
            && (!self.has_mirror() || self.staging.lag() == 0)
    }
    pub(super) fn meta_bytes(&self, source: MetaSource, len: u32) -> &[u8] {
        match source {
            MetaSource::None => &[],
            MetaSource::Journal { seq, skip } => {
                let blocks = u64::from((skip + len).div_ceil(BLOCK as u32));
                &self.staging.bytes(seq, seq + blocks)[skip as usize..(skip + len) as usize]
            }
            MetaSource::Piece { skip } => &self.piece[skip as usize..(skip + len) as usize],
            MetaSource::Header { skip } => &self.header_block[skip as usize..(skip + len) as usize],
        }
    }
    /// Journal blocks that may be written before the last durable checkpoint's start would be overrun.
    fn ring_room(&self) -> u64 {
        let used = self.staging.tip().next_seq - self.durable.start.next_seq;
        u64::from(self.layout.area.ring_blocks).saturating_sub(used)
    }
    fn half_full(&self) -> bool {
        self.ring_room() * 2 < u64::from(self.layout.area.ring_blocks)
    }
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.staging.memory()
            + self.piece.len()
            + self.is_pending.bytes()
            + self.pending.capacity() * 4
    }
    /// Lag of the mirror in blocks, checkpoint number.
    pub(super) fn progress(&self) -> (u64, u64) {
        (
            if self.has_mirror() {
                self.staging.lag()
            } else {
                0
            },
            self.durable.number,
        )
    }
    fn mirror_wanted(&self) -> bool {
        self.has_mirror() && self.staging.lag() * 2 >= self.staging.lag() + self.staging.room()
    }
    /// Encode one extent's record with its home in `slot`; false if this round has no room for it.
    fn encode(
        &mut self,
        map: &ExtentMap,
        e: ExtentId,
        slot: Option<crate::Slot>,
        blocks: u32,
        limit: u64,
    ) -> bool {
        for _ in 0..2 {
            if self.staging.tip().next_seq >= limit {
                return false;
            }
            if let Some(units) = record::encode(map, e, slot, blocks, self.staging.rest()) {
                self.staging.advance(units);
                return true;
            }
            self.staging.seal();
        }
        false
    }
    /// Add to the checkpoint being built, from the map as it is now.
    fn encode_piece(&mut self, map: &ExtentMap, blocks: u32) {
        self.piece_blocks = 0;
        let Some(b) = &mut self.building else { return };
        if b.header_due {
            return;
        }
        self.piece_first = b.header.blocks;
        let stop = self.extents.min(b.cursor.saturating_add(PIECE_ROWS));
        let mut at = HEADER;
        let mut n = 0usize;
        while b.cursor < stop && n < PIECE_BLOCKS {
            let e = ExtentId(b.cursor);
            if let Some(slot) = map.home(e).filter(|_| !map.is_void(e)) {
                if at == HEADER {
                    self.piece[n * BLOCK..(n + 1) * BLOCK].fill(0);
                }
                if let Some(units) = record::encode(
                    map,
                    e,
                    Some(slot),
                    blocks,
                    &mut self.piece[n * BLOCK + at..(n + 1) * BLOCK],
                ) {
                    at += units * 16;
                } else {
                    n += 1;
                    at = HEADER;
                    continue;
                }
            }
            b.cursor += 1;
        }
        if at > HEADER {
            n += 1;
        }
        let n = n.min(PIECE_BLOCKS);
        for i in 0..n {
            let block = &mut self.piece[i * BLOCK..(i + 1) * BLOCK];
            checkpoint::seal_data(
                block,
                &self.uuid,
                b.header.number,
                b.header.blocks + i as u32,
            );
        }
        b.header.blocks += n as u32;
        self.piece_blocks = n as u32;
    }
}

impl Engine {
    /// Start a round if there is a reason; true if anything was done.
    pub(super) fn start_round_if_due(&mut self, now: Nanos, out: &mut Vec<Effect>) -> bool {
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
        let for_space = self.freeing.wants_round() && self.waiting.iter().any(|w| w.for_space);
        let full = !c.queue.is_empty()
            || (!c.pending.is_empty() && c.due.is_some_and(|t| t <= now))
            || (c.staging.lag() > 0 && mirror_awake && c.mirror_due.is_some_and(|t| t <= now))
            || for_space
            || c.building.is_some()
            || c.half_full()
            || c.mirror_wanted()
            || (closing && !c.is_settled());
        if !full && !self.moves.want_round(now) {
            return false;
        }
        self.drop_stale(now, out);
        let c = &mut self.commit;
        if full
            && c.building.is_none()
            && (c.half_full() || (closing && !c.final_begun && c.pending.is_empty()))
        {
            let header = Header {
                number: c.durable.number + 1,
                start: c.staging.tip(),
                blocks: 0,
                time: now,
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
            || (mirror_awake && c.mirror_due.is_some_and(|t| t <= now));
        self.begin_round(now, full, mirror, out);
        true
    }

    fn begin_round(&mut self, now: Nanos, full: bool, mirror: bool, out: &mut Vec<Effect>) {
        self.counters.rounds += 1;
        let targets = self.flush_targets(full);
        let blocks = self.space.geo.blocks_per_extent();
        let next = self.commit.staging.tip().next_seq;
        let ring_room = if self.broken(Mutant::OverrunJournal) {
            u64::MAX / 2
        } else {
            self.commit.ring_room()
        };
        // Without a room in the staging ring, this round only lets the mirror catch up.
        let limit = next + ring_room.min(self.commit.staging.room()).min(ROUND_BLOCKS);
        let hurried = self.broken(Mutant::CheckpointWithoutBarrier);
        let c = &mut self.commit;
        let b_extents = c.extents;
        if full {
            while let Some(&e) = c.pending.front() {
                if !c.encode(&self.space.map, e, self.space.map.home(e), blocks, limit) {
                    break;
                }
                self.counters.journal_records += 1;
                c.pending.pop_front();
                c.is_pending.clear(e.0 as usize);
                c.taken += 1;
            }
            c.due = if c.pending.is_empty() { None } else { c.due };
            core::mem::swap(&mut c.queue, &mut c.serving);
            c.encode_piece(&self.space.map, blocks);
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
            let Some((index, e, dst)) = self.moves.copied().next() else {
                break;
            };
            if !self
                .commit
                .encode(&self.space.map, e, Some(dst), blocks, limit)
            {
                break;
            }
            self.counters.journal_records += 1;
            moves += 1;
            self.move_committing(now, index);
        }
        let c = &mut self.commit;
        c.staging.seal();
        let to = c.staging.tip().next_seq;
        let header = c.building.is_some_and(|b| b.header_due);
        let mirror = c.has_mirror() && (mirror || moves > 0 || c.piece_blocks > 0 || header);
        c.round = Round {
            from: next,
            to,
            taken: c.taken,
            mirror,
            wrote: [false; 2],
            failed: false,
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
            c.header_block.copy_from_slice(&b.header.encode(&c.uuid));
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
    pub(super) fn round_step(
        &mut self,
        now: Nanos,
        _op: &super::Op,
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
        c.staging.last_flushed = round.to - 1;
        c.committed = round.taken;
        if round.mirror || !c.has_mirror() {
            c.staging.mirrored = round.to;
            c.mirror_committed = round.taken;
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
