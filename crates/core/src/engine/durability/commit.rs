//! What rounds work on: pending records, the journal's staging area, the checkpoint being built. `round.rs` drives it.

use crate::bits::Bits;
use crate::engine::Params;
use crate::engine::durability::follow::Follow;
use crate::map::ExtentMap;
use crate::store::checkpoint::{self, Header};
use crate::store::journal::{Staging, Tip};
use crate::store::record;
use crate::store::{BLOCK, HEADER, Layout, Superblock};
use crate::units::{ExtentId, MemberId, Nanos};
use crate::volume::Geometry;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Checkpoint blocks a round may add at most: 1 MiB.
const PIECE_BLOCKS_MAX: u32 = 256;
/// Rows that a round may look at for a checkpoint: about 2 ms.
const PIECE_ROWS: u32 = 1 << 20;

/// Where the bytes of a metadata write are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum MetaSource {
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
    pub(in crate::engine) fn skip(&mut self, n: u32) {
        match self {
            MetaSource::None => {}
            MetaSource::Journal { skip, .. }
            | MetaSource::Piece { skip }
            | MetaSource::Header { skip } => *skip += n,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Step {
    Idle,
    FlushingData,
    WritingMeta,
    FlushingMeta,
}

/// The round under way.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Round {
    /// Journal blocks of this round.
    pub(in crate::engine) from: u64,
    pub(in crate::engine) to: u64,
    /// Pending records committed when it ends.
    pub(in crate::engine) taken: u64,
    pub(in crate::engine) mirror: bool,
    /// Metadata flush needed: (primary, mirror).
    pub(in crate::engine) wrote: [bool; 2],
    pub(in crate::engine) failed: bool,
    pub(in crate::engine) begun: Nanos,
    /// Moves that it carries.
    pub(in crate::engine) moves: u32,
}

/// A checkpoint being written.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Building {
    pub(in crate::engine) header: Header,
    pub(in crate::engine) cursor: u32,
    /// All blocks are durable; the header goes with the next round.
    pub(in crate::engine) header_due: bool,
}

/// Pending records, the round under way, the journal, the checkpoint.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Commit {
    pub(in crate::engine) uuid: [u8; 16],
    /// Of this session.
    pub(in crate::engine) epoch: u64,
    pub(in crate::engine) layout: Layout,
    pub(in crate::engine) extents: u32,
    pub(in crate::engine) step: Step,
    pub(in crate::engine) outstanding: u32,
    pub(in crate::engine) round: Round,
    /// Requests that wait for a round, with the pending records that they need.
    pub(in crate::engine) queue: Vec<(u32, u64)>,
    pub(in crate::engine) serving: Vec<(u32, u64)>,
    pub(in crate::engine) pending: VecDeque<ExtentId>,
    pub(in crate::engine) is_pending: Bits,
    pub(in crate::engine) pushed: u64,
    pub(in crate::engine) taken: u64,
    pub(in crate::engine) committed: u64,
    pub(in crate::engine) mirror_committed: u64,
    pub(in crate::engine) due: Option<Nanos>,
    pub(in crate::engine) mirror_due: Option<Nanos>,
    pub(in crate::engine) staging: Staging,
    /// The last durable checkpoint.
    pub(in crate::engine) durable: Header,
    pub(in crate::engine) building: Option<Building>,
    /// Number of the next checkpoint: higher than any header seen, in the region that `durable` is not in.
    pub(in crate::engine) next_number: u64,
    pub(in crate::engine) final_begun: bool,
    pub(in crate::engine) piece: Vec<u8>,
    /// Blocks of `piece` in this round, and the index of the first.
    pub(in crate::engine) piece_blocks: u32,
    pub(in crate::engine) piece_first: u32,
    pub(in crate::engine) header_block: Vec<u8>,
    /// What the mirror must know.
    pub(in crate::engine) follow: Follow,
    /// Nobody reads the bytes of metadata: see [`Params::unread_metadata`].
    unread: bool,
    /// Tell what copies hold clean in every record, not only at the end (a mutant).
    pub(in crate::engine) always_tell: Option<u64>,
}

impl Commit {
    pub(in crate::engine) fn new(
        sb: &Superblock,
        layout: Layout,
        tip: Tip,
        durable: Header,
        highest: u64,
        p: &Params,
        extents: u32,
    ) -> Commit {
        Commit {
            uuid: sb.uuid,
            epoch: sb.epoch,
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
            next_number: highest
                + 1
                + u64::from(Header::region(highest + 1) == Header::region(durable.number)),
            final_begun: false,
            piece: vec![0; p.piece_blocks.clamp(1, PIECE_BLOCKS_MAX) as usize * BLOCK],
            piece_blocks: 0,
            piece_first: 0,
            header_block: vec![0; BLOCK],
            follow: Follow::default(),
            unread: p.unread_metadata,
            always_tell: None,
        }
    }
    pub(in crate::engine) fn has_mirror(&self) -> bool {
        self.layout.mirror.is_some()
    }
    /// As [`Commit::note`], for a change of the home or of what is valid there.
    pub(in crate::engine) fn note_home(&mut self, e: ExtentId, now: Nanos, within: Nanos) {
        self.follow.homes_changed();
        self.note(e, now, within);
    }
    /// The durable state of `e` differs from the map: a record is due.
    pub(in crate::engine) fn note(&mut self, e: ExtentId, now: Nanos, within: Nanos) {
        if self.is_pending.set(e.0 as usize) {
            self.pending.push_back(e);
            self.pushed += 1;
        }
        self.due.get_or_insert(now + within);
    }
    /// Everything noted so far is durable once this many records were committed.
    pub(in crate::engine) fn pending_mark(&self) -> u64 {
        self.pushed
    }
    /// Records committed on (primary, mirror).
    pub(in crate::engine) fn committed(&self) -> (u64, u64) {
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
    pub(in crate::engine) fn is_recorded(&self, e: ExtentId) -> bool {
        self.step == Step::Idle && !self.is_pending.get(e.0 as usize)
    }
    /// Request `r` is answered when a round that starts from now on is durable.
    pub(in crate::engine) fn join(&mut self, r: u32) {
        self.queue.push((r, self.pushed));
    }
    /// Is metadata being written or flushed?
    pub(in crate::engine) fn writing_metadata(&self) -> bool {
        matches!(self.step, Step::WritingMeta | Step::FlushingMeta)
    }
    pub(in crate::engine) fn next_wake(&self, mirror_awake: bool) -> Option<Nanos> {
        let mirror_due = self.mirror_due.filter(|_| mirror_awake);
        [self.due, mirror_due]
            .into_iter()
            .flatten()
            .min()
            .filter(|_| self.is_idle())
    }
    /// Is no round under way?
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.step == Step::Idle
    }
    /// The member whose journal decides.
    pub(in crate::engine) fn primary(&self) -> MemberId {
        self.layout.primary
    }
    /// The member that carries the second copy of the metadata.
    pub(in crate::engine) fn mirror(&self) -> Option<MemberId> {
        self.layout.mirror
    }
    /// For the report of a run that hangs.
    pub(in crate::engine) fn under_way(&self) -> impl core::fmt::Debug + use<> {
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
    pub(in crate::engine) fn is_settled(&self) -> bool {
        self.step == Step::Idle
            && self.queue.is_empty()
            && self.pending.is_empty()
            && self.building.is_none()
            && self.final_begun
            && (!self.has_mirror() || self.staging.lag() == 0)
    }
    pub(in crate::engine) fn meta_bytes(&self, source: MetaSource, len: u32) -> &[u8] {
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
    pub(in crate::engine) fn ring_room(&self) -> u64 {
        let used = self.staging.tip().next_seq - self.durable.start.next_seq;
        u64::from(self.layout.area.ring_blocks).saturating_sub(used)
    }
    pub(in crate::engine) fn half_full(&self) -> bool {
        self.ring_room() * 2 < u64::from(self.layout.area.ring_blocks)
    }
    /// Bytes of memory.
    pub(in crate::engine) fn memory(&self) -> usize {
        self.staging.memory()
            + self.piece.len()
            + self.is_pending.bytes()
            + self.follow.bytes()
            + self.pending.capacity() * 4
    }
    /// Lag of the mirror in blocks, checkpoint number.
    pub(in crate::engine) fn progress(&self) -> (u64, u64) {
        (
            if self.has_mirror() {
                self.staging.lag()
            } else {
                0
            },
            self.durable.number,
        )
    }
    pub(in crate::engine) fn mirror_wanted(&self) -> bool {
        self.has_mirror() && self.staging.lag() * 2 >= self.staging.lag() + self.staging.room()
    }
    /// Encode one extent's record with its home in `slot`; false if this round has no room for it.
    pub(in crate::engine) fn encode(
        &mut self,
        map: &mut ExtentMap,
        e: ExtentId,
        slot: Option<crate::Slot>,
        geo: &Geometry,
        limit: u64,
    ) -> bool {
        for _ in 0..2 {
            if self.staging.tip().next_seq >= limit {
                return false;
            }
            if let Some(units) =
                record::encode(map, e, slot, geo, self.always_tell, self.staging.rest())
            {
                self.staging.advance(units);
                mark_recorded(map, e);
                self.follow.recorded(e, slot.is_some() && map.is_dirty(e));
                return true;
            }
            self.staging.seal();
        }
        false
    }
    /// Add to the checkpoint being built, from the map as it is now.
    pub(in crate::engine) fn encode_piece(&mut self, map: &mut ExtentMap, geo: &Geometry) {
        self.piece_blocks = 0;
        // Nothing changes any more while the last checkpoint is written: what copies hold clean may be told.
        let closing = self.final_begun.then_some(self.epoch).or(self.always_tell);
        let Some(b) = &mut self.building else { return };
        if b.header_due {
            return;
        }
        self.piece_first = b.header.blocks;
        let stop = self.extents.min(b.cursor.saturating_add(PIECE_ROWS));
        let room = self.piece.len() / BLOCK;
        let mut at = HEADER;
        let mut n = 0usize;
        while b.cursor < stop && n < room {
            let e = ExtentId(b.cursor);
            if self.unread {
                // One unit each, whatever they say.
                let room = ((BLOCK - at) / 16) as u32;
                let plain = map.plain_run(e, room.min(stop - b.cursor));
                if plain > 0 {
                    at += plain as usize * 16;
                    b.cursor += plain;
                    continue;
                }
            }
            if let Some(slot) = map.home(e).filter(|_| !map.is_gone(e)) {
                if at == HEADER {
                    self.piece[n * BLOCK..(n + 1) * BLOCK].fill(0);
                }
                if let Some(units) = record::encode(
                    map,
                    e,
                    Some(slot),
                    geo,
                    closing,
                    &mut self.piece[n * BLOCK + at..(n + 1) * BLOCK],
                ) {
                    at += units * 16;
                    mark_recorded(map, e);
                    if !map.is_dirty(e) {
                        self.follow.recorded(e, false);
                    }
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
        let n = n.min(room);
        for i in 0..if self.unread { 0 } else { n } {
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

/// A record of `e` is on its way that names its copy, if that is dirty.
fn mark_recorded(map: &mut ExtentMap, e: ExtentId) {
    if let Some(s) = map.copy(e).filter(|_| map.is_dirty(e)) {
        map.set_recorded(s, true);
    }
}
