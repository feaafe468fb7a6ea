//! Checkpoints: the last durable one, and the one being built, a piece a round.
//!
//! They are fuzzy: each piece is encoded like the records of its round, so everything in it is durable when it is written. What changes
//! later is in the journal after the checkpoint's start.

use super::follow::Follow;
use super::records::mark_recorded;
use crate::engine::mutants::chosen;
use crate::engine::{Mutant, Params};
use crate::store::checkpoint::{self, Header};
use crate::store::counter::Known;
use crate::store::journal::Tip;
use crate::store::{BLOCK, HEADER, Opened, record};
use crate::units::{ExtentId, Nanos};
use crate::volume::Space;
use alloc::vec;
use alloc::vec::Vec;

/// Checkpoint blocks a round may add at most: 1 MiB.
const PIECE_BLOCKS_MAX: u32 = 256;
/// Rows that a round may look at for a checkpoint: about 2 ms.
const PIECE_ROWS: u32 = 1 << 20;

/// A checkpoint being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Building {
    header: Header,
    /// The next row.
    cursor: u32,
    /// All blocks are durable; the header goes with the next round.
    header_due: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    uuid: [u8; 16],
    extents: u32,
    durable: Header,
    building: Option<Building>,
    /// Number of the next checkpoint: higher than any header seen, in the region that `durable` is not in.
    next_number: u64,
    /// The last one of this session was begun.
    final_begun: bool,
    piece: Vec<u8>,
    /// Blocks of `piece` in this round, and the index of the first.
    piece_blocks: u32,
    piece_first: u32,
    header_block: Vec<u8>,
    /// Nobody reads the bytes of metadata: see [`Params::unread_metadata`].
    unread: bool,
    /// Records are not remembered (a mutant).
    pub(super) forgetful: bool,
    /// Rows at the ends of blocks are left out (a mutant).
    skips_rows: bool,
    /// Replay begins where it ended (a mutant).
    starts_late: bool,
}

impl Checkpoints {
    pub(super) fn new(opened: &Opened, p: &Params) -> Checkpoints {
        let durable = opened.checkpoint;
        let highest = if chosen(p, Mutant::RepeatCheckpointNumber) {
            durable.number
        } else {
            opened.highest_checkpoint
        };
        let same = Header::region(highest + 1) == Header::region(durable.number);
        Checkpoints {
            uuid: opened.superblock.uuid,
            extents: opened.space.geo.extents,
            durable,
            building: None,
            next_number: highest + 1 + u64::from(same),
            final_begun: false,
            piece: vec![0; p.piece_blocks.clamp(1, PIECE_BLOCKS_MAX) as usize * BLOCK],
            piece_blocks: 0,
            piece_first: 0,
            header_block: vec![0; BLOCK],
            unread: p.unread_metadata,
            forgetful: false,
            skips_rows: chosen(p, Mutant::SkipRowAtBlockEnd),
            starts_late: chosen(p, Mutant::StartCheckpointLate),
        }
    }
    /// The last durable one: its number, and where its records begin.
    pub(super) fn number(&self) -> u64 {
        self.durable.number
    }
    pub(super) fn start(&self) -> u64 {
        self.durable.start.next_seq
    }
    /// What was used since then it may not tell.
    pub(super) fn since(&self) -> Nanos {
        self.durable.time
    }
    pub(super) fn building(&self) -> Option<Building> {
        self.building
    }
    pub(super) fn is_building(&self) -> bool {
        self.building.is_some()
    }
    pub(super) fn final_begun(&self) -> bool {
        self.final_begun
    }
    /// Was the last one of this session written?
    pub(super) fn is_final(&self) -> bool {
        self.building.is_none() && self.final_begun
    }
    /// Begin one after the records before `start`; `lazy`: the session, if its mirror may lag.
    pub(super) fn begin(&mut self, start: Tip, time: Nanos, lazy: Option<u64>, last: bool) {
        let header = Header {
            number: self.next_number,
            start,
            blocks: 0,
            time,
            lazy,
        };
        self.building = Some(Building {
            header,
            cursor: 0,
            header_due: false,
        });
        self.final_begun = last;
    }
    /// Is its header part of this round?
    pub(super) fn header_due(&self) -> bool {
        self.building.is_some_and(|b| b.header_due)
    }
    /// Let the header go with the last piece (a mutant).
    pub(super) fn hurry(&mut self) {
        let extents = self.extents;
        if let Some(b) = &mut self.building {
            b.header_due = b.cursor >= extents;
        }
    }
    /// This round adds nothing.
    pub(super) fn skip(&mut self) {
        self.piece_blocks = 0;
    }
    pub(super) fn adds(&self) -> bool {
        self.piece_blocks > 0
    }
    /// The writes of this round: region, byte offset there, bytes, and whether it is the header.
    pub(super) fn writes(&self) -> impl Iterator<Item = (u8, u64, u32, bool)> {
        let (first, blocks) = (u64::from(self.piece_first), self.piece_blocks);
        self.building.into_iter().flat_map(move |b| {
            let region = Header::region(b.header.number);
            let piece = (blocks > 0).then_some((
                region,
                (1 + first) * BLOCK as u64,
                blocks * BLOCK as u32,
                false,
            ));
            let header = b.header_due.then_some((region, 0, BLOCK as u32, true));
            piece.into_iter().chain(header)
        })
    }
    /// The header goes out as it is now, with what is known of members' counters.
    pub(super) fn encode_header(&mut self, counters: &Known, tip: Tip) {
        if let Some(b) = &mut self.building
            && b.header_due
        {
            if self.starts_late {
                b.header.start = tip;
            }
            self.header_block
                .copy_from_slice(&b.header.encode(&self.uuid, counters));
        }
    }
    /// What this round added is durable; true if that completes a checkpoint.
    pub(super) fn landed(&mut self) -> bool {
        let Some(b) = &mut self.building else {
            return false;
        };
        if b.header_due {
            self.durable = b.header;
            self.next_number = b.header.number + 1;
            self.building = None;
            return true;
        }
        b.header_due = b.cursor >= self.extents;
        false
    }
    pub(super) fn piece(&self) -> &[u8] {
        &self.piece
    }
    pub(super) fn header_block(&self) -> &[u8] {
        &self.header_block
    }
    pub(super) fn bytes(&self) -> usize {
        self.piece.len()
    }

    /// Add to the checkpoint being built, from the map as it is now; `tell`: what copies hold clean may be told.
    pub(super) fn add_piece(&mut self, space: &mut Space, tell: Option<u64>, follow: &mut Follow) {
        self.piece_blocks = 0;
        let Some(mut b) = self.building.filter(|b| !b.header_due) else {
            return;
        };
        self.piece_first = b.header.blocks;
        let n = self.fill_piece(space, &mut b, tell, follow);
        if !self.unread {
            for i in 0..n {
                let block = &mut self.piece[i * BLOCK..(i + 1) * BLOCK];
                let index = b.header.blocks + i as u32;
                checkpoint::seal_data(block, &self.uuid, b.header.number, index);
            }
        }
        b.header.blocks += n as u32;
        self.piece_blocks = n as u32;
        self.building = Some(b);
    }

    /// Encode rows into the piece, from the cursor on; how many blocks that makes.
    fn fill_piece(
        &mut self,
        space: &mut Space,
        b: &mut Building,
        tell: Option<u64>,
        follow: &mut Follow,
    ) -> usize {
        let (map, geo) = (&mut space.map, &space.geo);
        let stop = self.extents.min(b.cursor.saturating_add(PIECE_ROWS));
        let room = self.piece.len() / BLOCK;
        let (mut at, mut n) = (HEADER, 0usize);
        while b.cursor < stop && n < room {
            let e = ExtentId(b.cursor);
            if self.unread {
                // One unit each, whatever they say.
                let units = ((BLOCK - at) / 16) as u32;
                let plain = map.plain_run(e, units.min(stop - b.cursor));
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
                let place = &mut self.piece[n * BLOCK + at..(n + 1) * BLOCK];
                let Some(units) = record::encode(map, e, Some(slot), geo, tell, place) else {
                    n += 1;
                    at = HEADER;
                    b.cursor += u32::from(self.skips_rows);
                    continue;
                };
                at += units * 16;
                if !self.forgetful {
                    mark_recorded(map, e);
                }
                if !map.is_dirty(e) {
                    follow.recorded(e, false);
                }
            }
            b.cursor += 1;
        }
        (n + usize::from(at > HEADER)).min(room)
    }
}
