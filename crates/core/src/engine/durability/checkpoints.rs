//! Checkpoints: the last durable one, and the one that is being built, one piece per round.
//!
//! Checkpoints are fuzzy, that is, they are written while the map changes. Each piece is encoded together with the records of its round, so
//! the data that it refers to is durable when the piece is written. Changes after the checkpoint's start are also in the journal.

use super::records::mark_in_checkpoint;
use crate::engine::{Mutant, Params};
use crate::store::checkpoint::{self, Header};
use crate::store::counter::Known;
use crate::store::journal::Tip;
use crate::store::{BLOCK, HEADER, Opened, record};
use crate::units::{ExtentId, Nanos};
use crate::volume::{ExtentMap, Geometry, Space};
use alloc::vec;
use alloc::vec::Vec;

/// Largest number of checkpoint blocks that a round may add: 1 MiB.
const PIECE_BLOCKS_MAX: u32 = 256;
/// Largest number of map rows that a round may read for a checkpoint, which takes about 2 ms.
const PIECE_ROWS: u32 = 1 << 20;

/// A checkpoint being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Building {
    header: Header,
    /// The next row.
    cursor: u32,
    /// Whether all blocks are durable, so that the header is written in the next round.
    header_due: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    uuid: [u8; 16],
    /// Number of rows of the map ([`ExtentMap::checkpoint_rows`]).
    rows: u32,
    durable: Header,
    building: Option<Building>,
    /// Number of the next checkpoint. It is higher than that of any header found, and selects the region that does not hold `durable`.
    next_number: u64,
    /// Whether the last checkpoint of this session was begun.
    final_begun: bool,
    piece: Vec<u8>,
    /// Number of blocks of `piece` in this round, and the index of the first one.
    piece_blocks: u32,
    piece_first: u32,
    header_block: Vec<u8>,
    /// Whether the bytes of metadata are never read: see [`Params::unread_metadata`].
    unread: bool,
    /// Records are not kept (a mutant).
    pub(super) forgetful: bool,
    /// Records name what the journal does not, and count before the checkpoint is complete (a mutant).
    names_all: bool,
    /// Copies that were cleaned are omitted although they are named (a mutant).
    forgets_claims: bool,
    /// Rows at the ends of blocks are omitted (a mutant).
    skips_rows: bool,
    /// Replay begins where it ended (a mutant).
    starts_late: bool,
}

impl Checkpoints {
    pub(super) fn new(opened: &Opened, p: &Params) -> Checkpoints {
        let durable = opened.checkpoint;
        let highest = if p.breaks(Mutant::RepeatCheckpointNumber) {
            durable.number
        } else {
            opened.highest_checkpoint
        };
        let same = Header::region(highest + 1) == Header::region(durable.number);
        Checkpoints {
            uuid: opened.superblock.uuid,
            rows: opened.space.map.checkpoint_rows(),
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
            names_all: p.breaks(Mutant::PieceNamesAll),
            forgets_claims: p.breaks(Mutant::PieceForgetsClaims),
            skips_rows: p.breaks(Mutant::SkipRowAtBlockEnd),
            starts_late: p.breaks(Mutant::StartCheckpointLate),
        }
    }
    /// The number of the last durable checkpoint.
    pub(super) fn number(&self) -> u64 {
        self.durable.number
    }
    pub(super) fn start(&self) -> u64 {
        self.durable.start.next_seq
    }
    /// The time at which the last durable checkpoint was begun. It may lack the statistics of extents that were used since then.
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
    /// Whether the last checkpoint of this session was written.
    pub(super) fn is_final(&self) -> bool {
        self.building.is_none() && self.final_begun
    }
    /// Begins a checkpoint that contains all records before `start`. `last`: it is the last checkpoint of the session.
    pub(super) fn begin(&mut self, start: Tip, time: Nanos, last: bool) {
        let header = Header {
            number: self.next_number,
            start,
            blocks: 0,
            time,
        };
        self.building = Some(Building {
            header,
            cursor: 0,
            header_due: false,
        });
        self.final_begun = last;
    }
    /// The session ends without a checkpoint, because it has no journal.
    pub(super) fn end_without(&mut self) {
        self.final_begun = true;
    }
    /// Whether this round writes the header of the checkpoint.
    pub(super) fn header_due(&self) -> bool {
        self.building.is_some_and(|b| b.header_due)
    }
    /// Writes the header together with the last piece (a mutant).
    pub(super) fn write_header_early(&mut self) {
        let rows = self.rows;
        if let Some(b) = &mut self.building {
            b.header_due = b.cursor >= rows;
        }
    }
    /// Notes that this round adds no piece.
    pub(super) fn skip(&mut self) {
        self.piece_blocks = 0;
    }
    pub(super) fn adds(&self) -> bool {
        self.piece_blocks > 0
    }
    /// The writes of this round: region, byte offset in it, bytes, and whether it is the header.
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
    /// Encodes the header, with the known values of members' counters.
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
    /// Notes that the blocks that this round added are durable. Returns true if that completes a checkpoint.
    pub(super) fn round_done(&mut self) -> bool {
        let Some(b) = &mut self.building else {
            return false;
        };
        if b.header_due {
            self.durable = b.header;
            self.next_number = b.header.number + 1;
            self.building = None;
            return true;
        }
        b.header_due = b.cursor >= self.rows;
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

    /// Adds a piece to the checkpoint that is being built, from the present map. `clean_epoch` is this session's number if the clean blocks
    /// of copies may be recorded.
    pub(super) fn add_piece(&mut self, space: &mut Space, clean_epoch: Option<u64>) {
        self.piece_blocks = 0;
        let Some(mut b) = self.building.filter(|b| !b.header_due) else {
            return;
        };
        self.piece_first = b.header.blocks;
        let n = self.fill_piece(space, &mut b, clean_epoch);
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

    /// Passes over rows from the cursor on, before row `stop`, whose records have a known number of units. Returns this number, which is at
    /// most `free`; `None`: the next record must be encoded to know its length, or does not fit.
    #[inline]
    fn count_rows(
        &self,
        map: &mut ExtentMap,
        geo: &Geometry,
        b: &mut Building,
        (stop, free): (u32, usize),
        clean_epoch: Option<u64>,
    ) -> Option<usize> {
        if map.has_fixed_homes() {
            let (row, e) = map.next_record(b.cursor, stop, clean_epoch.is_some())?;
            b.cursor = row;
            return self.count_named(map, geo, b, (e, free), clean_epoch);
        }
        let e = ExtentId(b.cursor);
        let rows = (stop - b.cursor).min(free as u32);
        if rows > 0 && map.is_all_plain() {
            b.cursor += rows;
            return Some(rows as usize);
        }
        let clean = clean_epoch.is_none();
        // If clean blocks are recorded, the record of a clean copy has more than one unit.
        let counted = if clean_epoch.is_none() || map.copied() == 0 {
            map.indexed_rows(e, stop, free)
        } else {
            None
        };
        let (rows, units) = counted.unwrap_or_else(|| map.plain_rows(e, stop, free, clean));
        if rows > 0 {
            b.cursor += rows;
            return Some(units);
        }
        let units = map.plain_units(e, clean_epoch.is_some());
        if let Some(units) = units.filter(|n| *n <= free) {
            b.cursor += 1;
            return Some(units);
        }
        self.count_named(map, geo, b, (e, free), clean_epoch)
    }

    /// As [`Checkpoints::count_rows`], for the row of one extent, if its copy is named. If no clean blocks are recorded, the copy's valid
    /// bits alone determine the length of the record.
    #[inline]
    fn count_named(
        &self,
        map: &mut ExtentMap,
        geo: &Geometry,
        b: &mut Building,
        (e, free): (ExtentId, usize),
        clean_epoch: Option<u64>,
    ) -> Option<usize> {
        let (_, all) = map.named_copy(e).filter(|_| clean_epoch.is_none())?;
        let units = record::named_units(geo.kind(), all, geo.blocks_per_extent());
        if units > free {
            return None;
        }
        b.cursor += 1;
        if !self.forgetful {
            mark_in_checkpoint(map, e, self.names_all);
        }
        Some(units)
    }

    /// Encodes rows into the piece, from the cursor on. Returns the number of blocks.
    fn fill_piece(
        &mut self,
        space: &mut Space,
        b: &mut Building,
        clean_epoch: Option<u64>,
    ) -> usize {
        let (map, geo) = (&mut space.map, &space.geo);
        let stop = self.rows.min(b.cursor.saturating_add(PIECE_ROWS));
        let room = self.piece.len() / BLOCK;
        let (mut at, mut n) = (HEADER, 0usize);
        while b.cursor < stop && n < room {
            // No bytes are needed, only the number of units.
            let free = (BLOCK - at) / 16;
            if self.unread
                && let Some(units) = self.count_rows(map, geo, b, (stop, free), clean_epoch)
            {
                at += units * 16;
                continue;
            }
            let Some((row, e)) = map.next_record(b.cursor, stop, clean_epoch.is_some()) else {
                b.cursor = stop;
                break;
            };
            b.cursor = row;
            if self.forgets_claims && map.has_fixed_homes() && !map.is_dirty(e) {
                b.cursor += 1;
                continue;
            }
            let slot = map.home(e);
            let units = if self.unread {
                let units = record::units(map, e, slot, geo, claim(map, e, clean_epoch));
                (units * 16 <= BLOCK - at).then_some(units)
            } else {
                if at == HEADER {
                    self.piece[n * BLOCK..(n + 1) * BLOCK].fill(0);
                }
                let place = &mut self.piece[n * BLOCK + at..(n + 1) * BLOCK];
                record::encode(map, e, slot, geo, claim(map, e, clean_epoch), place)
            };
            let Some(units) = units else {
                n += 1;
                at = HEADER;
                b.cursor += u32::from(self.skips_rows);
                continue;
            };
            at += units * 16;
            if !self.forgetful && claim(map, e, None).is_none() {
                mark_in_checkpoint(map, e, self.names_all);
            }
            b.cursor = row + 1;
        }
        (n + usize::from(at > HEADER)).min(room)
    }
}

/// The number with which the clean blocks of a copy are recorded: `clean_epoch`, or that of a claim, if one is in force.
fn claim(map: &ExtentMap, e: ExtentId, clean_epoch: Option<u64>) -> Option<u64> {
    let claimed = map.copy(e).filter(|s| map.is_claimed_clean(*s));
    clean_epoch.or(claimed.map(|_| record::CLAIMED))
}
