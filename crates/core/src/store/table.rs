//! A change of the member table, in a volume that is closed: a member is replaced, or the volume grows.
//!
//! ```text
//! open (a session begins) ─► settle: a checkpoint of the whole map, then *clean* on all members that are present
//!    ─► (the caller copies data) ─► change: a checkpoint in the words of the new table ─► superblocks *preparing* ─► *clean*
//! ```
//! The change is the beginning of a session. So the rules for a crash between the superblocks of two members are the same as for every other
//! session: until a member has got further than *preparing*, the members with the older table belong to the volume. Both checkpoints are
//! complete and start where the journal ends, and they lie in different places. So each table has a checkpoint that it can read.

use super::checkpoint::{self, Header};
use super::counter::Known;
use super::error::OpenError;
use super::mutants::broken;
use super::open::{Closing, Opened, guarantee, mark_clean, write_superblock, write_superblocks};
use super::recover::CHUNK;
use super::superblock::{Follow, State, Superblock};
use super::{BLOCK, Carrier, HEADER, Layout, Media, record};
use crate::mutants::Mutant;
use crate::units::MemberId;
use crate::volume::ExtentMap;
use crate::volume::geometry::Geometry;
use alloc::vec;
use alloc::vec::Vec;

/// A volume that [`settle`] has closed.
#[derive(Clone, Debug)]
pub struct Settled {
    pub(super) superblock: Superblock,
    pub(super) checkpoint: Header,
    pub(super) counters: Known,
}

/// Ends the session that has just begun with `opened`, before an engine used it: writes the whole map as a checkpoint to the members that
/// carry metadata, and marks the volume clean. The clean blocks of copies stay valid.
///
/// # Errors
/// A device fails. The volume can be opened again.
pub fn settle<M: Media + ?Sized>(media: &mut M, opened: &Opened) -> Result<Settled, OpenError> {
    let sb = &opened.superblock;
    let same =
        Header::region(opened.highest_checkpoint + 1) == Header::region(opened.checkpoint.number);
    let checkpoint = Header {
        number: opened.highest_checkpoint + 1 + u64::from(same),
        start: opened.tip,
        blocks: 0,
        time: opened.time_base,
    };
    let writer = Writer {
        sb,
        geo: &opened.space.geo,
        epoch: sb.epoch,
        counters: &opened.counters,
    };
    let carriers: Vec<Carrier> = opened.layout.carriers().collect();
    let checkpoint = writer.write(
        media,
        opened.layout,
        &carriers,
        &opened.space.map,
        checkpoint,
    )?;
    let closing = Closing {
        next_seq: opened.tip.next_seq,
        counters: opened.counters.clone(),
    };
    mark_clean(media, sb, &closing, opened.time_base)?;
    Ok(Settled {
        superblock: Superblock {
            state: State::Clean,
            time_base: opened.time_base,
            closed_seq: closing.next_seq,
            ..sb.clone()
        },
        checkpoint,
        counters: closing.counters,
    })
}

impl Settled {
    /// The superblock of the session that begins with the member table of `sb`.
    pub(super) fn next_session(
        &self,
        mut sb: Superblock,
        epoch: u64,
    ) -> Result<Superblock, OpenError> {
        let (seq, old) = (self.checkpoint.start.next_seq, &self.superblock);
        (sb.prev_generation, sb.prev_epoch, sb.prev_first_seq) =
            (old.generation, old.epoch, old.first_seq);
        (sb.generation, sb.epoch, sb.first_seq) = (old.generation + 1, epoch, seq);
        sb.table_version = old.table_version + 1;
        sb.prev_follow = Follow::Exact;
        sb.follow = guarantee(sb.kind, sb.layout());
        sb.copies |= sb.has_room_for_copies();
        sb.closed_seq = 0;
        // The ring of a new primary is empty, which is known and no damage.
        sb.void_at = seq;
        sb.state = State::Preparing;
        // This is the check that every reader of the superblock makes.
        let possible = Superblock::decode(&sb.encode());
        possible.map_err(|_| OpenError::BadTable("the member table would be impossible"))?;
        Ok(sb)
    }

    /// Begins and ends the session of `sb`, which [`Settled::next_session`] made. `geo` has the slots of `map`, and the identities that
    /// records name from now on. `first` is a member whose superblock must state the new table before that of any other member.
    pub(super) fn change<M: Media + ?Sized>(
        &self,
        media: &mut M,
        sb: &Superblock,
        map: &ExtentMap,
        geo: &Geometry,
        counters: &Known,
        first: Option<MemberId>,
    ) -> Result<(), OpenError> {
        let layout = sb.layout();
        let writer = Writer {
            sb,
            geo,
            epoch: sb.epoch,
            counters,
        };
        let present = layout.carriers().filter(|c| !sb.is_absent(c.member));
        let present: Vec<Carrier> = present.collect();
        let next = Header {
            number: self.checkpoint.number + 1,
            blocks: 0,
            ..self.checkpoint
        };
        writer.write(media, layout, &present, map, next)?;
        // As soon as any other member has the new table, a former member is no part of the volume. So its successor must be one by then.
        if let Some(m) = first {
            write_superblock(media, sb, m)?;
        }
        if !broken(media, Mutant::ActiveAtOnce) {
            write_superblocks(media, sb)?;
        }
        let closing = Closing {
            next_seq: self.checkpoint.start.next_seq,
            counters: counters.clone(),
        };
        Ok(mark_clean(media, sb, &closing, sb.time_base)?)
    }
}

/// Writes the map as a checkpoint.
struct Writer<'a> {
    sb: &'a Superblock,
    /// The geometry of the map, with the identities that the records name.
    geo: &'a Geometry,
    /// The session in which clean blocks of copies count.
    epoch: u64,
    counters: &'a Known,
}

impl Writer<'_> {
    /// Writes checkpoint `header` to each of `carriers`, durably, the blocks before the header. A session that lost its header may have left
    /// blocks of the same number there, which this header must not make valid.
    fn write<M: Media + ?Sized>(
        &self,
        media: &mut M,
        layout: Layout,
        carriers: &[Carrier],
        map: &ExtentMap,
        mut header: Header,
    ) -> Result<Header, OpenError> {
        let region = Header::region(header.number);
        let mut piece = vec![0; CHUNK * BLOCK];
        let mut next = 0;
        while next < map.checkpoint_rows() {
            let blocks = self.fill(map, &mut next, &mut piece);
            if blocks == 0 {
                break;
            }
            for (i, b) in (header.blocks..).zip(piece[..blocks * BLOCK].chunks_exact_mut(BLOCK)) {
                checkpoint::seal_data(b, &self.sb.uuid, header.number, i);
            }
            let at = (1 + u64::from(header.blocks)) * BLOCK as u64;
            header.blocks += blocks as u32;
            if header.blocks >= self.sb.area.region_blocks {
                return Err(OpenError::BadTable(
                    "the metadata areas have no room for the map",
                ));
            }
            for &c in carriers {
                let base = layout.region_offset(c, region);
                media.write(c.member, base + at, &piece[..blocks * BLOCK])?;
            }
        }
        let block = header.encode(&self.sb.uuid, self.counters);
        if !broken(media, Mutant::SettleWithoutBarrier) {
            carriers.iter().try_for_each(|c| media.flush(c.member))?;
        }
        for &c in carriers {
            media.write(c.member, layout.region_offset(c, region), &block)?;
            media.flush(c.member)?;
        }
        Ok(header)
    }

    /// Fills `piece` with records, from row `next` of the map on. Returns the number of blocks in use.
    fn fill(&self, map: &ExtentMap, next: &mut u32, piece: &mut [u8]) -> usize {
        piece.fill(0);
        let mut n = 0;
        for b in piece.chunks_exact_mut(BLOCK) {
            let mut at = HEADER;
            while let Some((row, e)) = map.next_record(*next, map.checkpoint_rows(), true) {
                let room = &mut b[at..];
                *next = row;
                let Some(units) =
                    record::encode(map, e, map.home(e), self.geo, Some(self.epoch), room)
                else {
                    break;
                };
                at += units * 16;
                *next = row + 1;
            }
            if at == HEADER {
                break;
            }
            n += 1;
        }
        n
    }
}
