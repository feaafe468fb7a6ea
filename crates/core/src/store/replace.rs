//! Replacement of a member by another device, in a volume that is not being served.
//!
//! ```text
//! open (a session begins) ─► settle: a checkpoint of the whole map, then *clean* on all members that are present
//!    ─► (the caller copies the slots in use, if the member holds data) ─► replace:
//!       metadata on the successor ─► checkpoint in the words of the new member table ─► superblocks *preparing* ─► *clean*
//! ```
//! The change of the member table is the beginning of a session. So the rules for a crash between the superblocks of two members are the
//! same as for every other session: until a member has got further than *preparing*, the members with the older table belong to the volume.
//! Both checkpoints are complete and start where the journal ends. The one before the change names the member's old identity, the one
//! after it the new identity, and they lie in different regions. So each table has a checkpoint that it can read.

use super::checkpoint::{self, Header};
use super::counter::{self, Counter, Known};
use super::error::OpenError;
use super::layout::STAMP_AT;
use super::mutants::broken;
use super::open::{
    Closing, FIRST_COUNTER, Opened, mark_clean, write_superblock, write_superblocks,
};
use super::recover::CHUNK;
use super::superblock::{Follow, MemberEntry, MemberState, ROWS_MAX, State, Superblock};
use super::{BLOCK, HEADER, Media, record};
use crate::mutants::Mutant;
use crate::units::{ExtentId, MemberId, Slot};
use crate::volume::geometry::{Geometry, MEMBER_IDS_MAX};
use crate::volume::{ExtentMap, Space};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The device that takes the place of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The place of the member in the member list.
    pub place: MemberId,
    /// The identity of the new device, which is random.
    pub uuid: [u8; 16],
    /// Number of its slots.
    pub slots: u32,
    /// First byte of its slots.
    pub data_offset: u64,
    /// Number of bytes that the volume uses of it.
    pub bytes: u64,
    /// Its path, as a hint.
    pub hint: String,
    /// Whether it already holds the bytes of all slots of the member that are in use, at the same indices. Otherwise the member must hold
    /// nothing that the volume needs.
    pub holds_data: bool,
}

/// A volume that [`settle`] has closed.
#[derive(Clone, Debug)]
pub struct Settled {
    superblock: Superblock,
    checkpoint: Header,
    counters: Known,
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
        lazy: None,
    };
    let writer = Writer {
        sb,
        geo: &opened.space.geo,
        epoch: sb.epoch,
        counters: &opened.counters,
    };
    let carriers = [Some(opened.layout.primary), opened.layout.mirror];
    let checkpoint = writer.write(media, &carriers, &opened.space.map, checkpoint)?;
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

/// What the volume would lose if the member in this place were replaced by an empty device: the number of extents with their home there,
/// and of those with a dirty copy there.
pub fn held_by(space: &Space, place: MemberId) -> (u32, u32) {
    let on = |s: Option<Slot>| s.is_some_and(|s| space.geo.locate(s).0 == place);
    let (mut homes, mut writes) = (0, 0);
    for e in (0..space.geo.extents).map(ExtentId) {
        homes += u32::from(on(space.map.home(e)));
        writes += u32::from(space.map.is_dirty(e) && on(space.map.copy(e)));
    }
    (homes, writes)
}

/// The slots of this member that hold data of the volume, as indices from its first slot on, ascending.
pub fn slots_in_use(space: &Space, place: MemberId) -> Vec<u32> {
    let geo = &space.geo;
    let mut used = Vec::new();
    for e in (0..geo.extents).map(ExtentId) {
        for s in space.map.home(e).into_iter().chain(space.map.copy(e)) {
            if geo.locate(s).0 == place {
                used.push(geo.member_slot(s).index);
            }
        }
    }
    used.sort_unstable();
    used
}

/// Puts `successor` into the place of a member. `media` has the new device in that place. `epoch` is a new random number. Returns the
/// superblock of the volume, which is closed.
///
/// # Errors
/// The member holds data that the successor does not have, the new table is impossible, or a device fails. After a failure the volume can
/// be opened: as it was before, or, if superblocks were written already, with the successor.
pub fn replace<M: Media + ?Sized>(
    media: &mut M,
    opened: &mut Opened,
    settled: &Settled,
    successor: &Successor,
    epoch: u64,
) -> Result<Superblock, OpenError> {
    let place = successor.place;
    if !successor.holds_data {
        let (homes, writes) = held_by(&opened.space, place);
        if homes > 0 {
            return Err(OpenError::LostHomes {
                member: place,
                extents: homes,
            });
        }
        if writes > 0 {
            return Err(OpenError::LostWrites {
                member: place,
                extents: writes,
            });
        }
        drop_copies(&mut opened.space, place);
    }
    let sb = next_table(settled, successor, epoch)?;
    let (layout, seq) = (sb.layout(), settled.checkpoint.start.next_seq);
    let mut counters = settled.counters.clone();
    counters.retain(|k| sb.members.iter().any(|m| m.id == k.0));
    counter::learn(
        &mut counters,
        sb.members[usize::from(place.0)].id,
        FIRST_COUNTER,
    );
    clear(media, &sb, place, &counters)?;
    // The slots keep their numbers in the map; only the identity by which records name the member changes.
    let named = if broken(media, Mutant::ReplaceOldIdentity) {
        &settled.superblock
    } else {
        &sb
    };
    let ids = named.members.iter().map(|m| m.id).collect();
    let geo = opened
        .space
        .geo
        .clone()
        .with_ids(ids)
        .map_err(OpenError::BadSuccessor)?;
    let writer = Writer {
        sb: &sb,
        geo: &geo,
        epoch,
        counters: &counters,
    };
    let present = [Some(layout.primary), layout.mirror].map(|m| m.filter(|m| !sb.is_absent(*m)));
    let next = Header {
        number: settled.checkpoint.number + 1,
        blocks: 0,
        ..settled.checkpoint
    };
    writer.write(media, &present, &opened.space.map, next)?;
    // As soon as any other member has the new table, the former member is no part of the volume. So the successor must be one by then.
    if !broken(media, Mutant::SuccessorLast) {
        write_superblock(media, &sb, place)?;
    }
    if !broken(media, Mutant::ActiveAtOnce) {
        write_superblocks(media, &sb)?;
    }
    let closing = Closing {
        next_seq: seq,
        counters,
    };
    mark_clean(media, &sb, &closing, sb.time_base)?;
    Ok(sb)
}

/// The superblock of the session that begins with the new table of members.
fn next_table(
    settled: &Settled,
    successor: &Successor,
    epoch: u64,
) -> Result<Superblock, OpenError> {
    let mut sb = with_successor(&settled.superblock, successor)?;
    let seq = settled.checkpoint.start.next_seq;
    (sb.prev_generation, sb.prev_epoch, sb.prev_first_seq) =
        (sb.generation, sb.epoch, sb.first_seq);
    (sb.generation, sb.epoch, sb.first_seq) = (sb.generation + 1, epoch, seq);
    sb.prev_follow = Follow::Exact;
    sb.follow = if sb.layout().mirror.is_some() {
        Follow::Mirror
    } else {
        Follow::Exact
    };
    sb.absent &= !(1 << successor.place.0);
    sb.copies |= sb.has_room_for_copies();
    sb.closed_seq = 0;
    // The ring of the successor is empty, which is known and no damage.
    sb.void_at = seq;
    sb.state = State::Preparing;
    // This is the check that every reader of the superblock makes.
    let possible = Superblock::decode(&sb.encode());
    possible.map_err(|_| OpenError::BadSuccessor("the member table would be impossible"))?;
    Ok(sb)
}

/// The superblock with `successor` in the member table, and the former member among those that are gone.
fn with_successor(sb: &Superblock, successor: &Successor) -> Result<Superblock, OpenError> {
    let mut sb = sb.clone();
    if sb.next_id >= MEMBER_IDS_MAX {
        return Err(OpenError::BadSuccessor(
            "all identities of members were given out",
        ));
    }
    let Some(row) = sb.members.get_mut(usize::from(successor.place.0)) else {
        return Err(OpenError::BadSuccessor("the volume has no such member"));
    };
    let gone = MemberEntry {
        state: MemberState::Gone,
        ..row.clone()
    };
    if successor.holds_data && successor.slots < gone.slots {
        return Err(OpenError::BadSuccessor(
            "it has fewer slots than the member whose data it holds",
        ));
    }
    *row = MemberEntry {
        uuid: successor.uuid,
        id: sb.next_id,
        tier: gone.tier,
        slots: successor.slots,
        data_offset: successor.data_offset,
        bytes: successor.bytes,
        counter: FIRST_COUNTER,
        hint: successor.hint.clone(),
        ..MemberEntry::default()
    };
    sb.others.push(gone);
    while sb.members.len() + sb.others.len() > ROWS_MAX {
        sb.others.remove(0);
    }
    sb.next_id += 1;
    sb.table_version += 1;
    Ok(sb)
}

/// Drops the copies on this member, none of which is dirty.
fn drop_copies(space: &mut Space, place: MemberId) {
    let fast = space.geo.tier_slots(space.geo.slowest()).start;
    for s in (0..fast).map(Slot) {
        if space.geo.locate(s).0 != place {
            continue;
        }
        if let Some(e) = space.map.owner(s).filter(|&e| space.map.copy(e) == Some(s)) {
            space.map.drop_copy(e);
        }
    }
}

/// Makes the successor an empty member: no stamp, new counters, and no block of an earlier use of the device in ring and regions. (It may
/// have been a member of this volume before.)
fn clear<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    place: MemberId,
    counters: &Known,
) -> Result<(), OpenError> {
    let layout = sb.layout();
    // While the successor is not complete, it must not look like a member.
    for at in [0, sb.copy_offset(place), STAMP_AT] {
        media.write(place, at, &[0; BLOCK])?;
    }
    if (place == layout.primary || Some(place) == layout.mirror)
        && !broken(media, Mutant::KeepOldRing)
    {
        let zeros = vec![0; CHUNK * BLOCK];
        let (mut at, end) = (layout.area.ring_offset(0), layout.area.region_offset(0));
        while at < end {
            let n = (end - at).min(zeros.len() as u64);
            media.write(place, at, &zeros[..n as usize])?;
            at += n;
        }
        for region in 0..2 {
            media.write(place, layout.area.region_offset(region), &zeros[..BLOCK])?;
        }
    }
    for value in [FIRST_COUNTER - 1, FIRST_COUNTER] {
        let c = Counter::of(sb, place, value, 0, counters);
        media.write(place, counter::offset(value), &c.encode(&sb.uuid))?;
    }
    Ok(media.flush(place)?)
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
    /// Writes checkpoint `header` to each of `carriers`, durably. A crash may leave the header without its blocks; then the checkpoint in the
    /// other region is used, which starts at the same place of the journal or before.
    fn write<M: Media + ?Sized>(
        &self,
        media: &mut M,
        carriers: &[Option<MemberId>],
        map: &ExtentMap,
        mut header: Header,
    ) -> Result<Header, OpenError> {
        let area = self.sb.area;
        let base = area.region_offset(Header::region(header.number));
        let carriers: Vec<MemberId> = carriers.iter().copied().flatten().collect();
        let mut piece = vec![0; CHUNK * BLOCK];
        let mut next = ExtentId(0);
        while next.0 < self.sb.extents {
            let blocks = self.fill(map, &mut next, &mut piece);
            if blocks == 0 {
                break;
            }
            for (i, b) in (header.blocks..).zip(piece[..blocks * BLOCK].chunks_exact_mut(BLOCK)) {
                checkpoint::seal_data(b, &self.sb.uuid, header.number, i);
            }
            let at = base + (1 + u64::from(header.blocks)) * BLOCK as u64;
            header.blocks += blocks as u32;
            if header.blocks >= area.region_blocks {
                return Err(OpenError::BadSuccessor(
                    "the metadata areas have no room for the map",
                ));
            }
            for &m in &carriers {
                media.write(m, at, &piece[..blocks * BLOCK])?;
            }
        }
        let block = header.encode(&self.sb.uuid, self.counters);
        for &m in &carriers {
            media.write(m, base, &block)?;
            media.flush(m)?;
        }
        Ok(header)
    }

    /// Fills `piece` with records, from `next` on. Returns the number of blocks in use.
    fn fill(&self, map: &ExtentMap, next: &mut ExtentId, piece: &mut [u8]) -> usize {
        piece.fill(0);
        let mut n = 0;
        for b in piece.chunks_exact_mut(BLOCK) {
            let mut at = HEADER;
            while next.0 < self.sb.extents {
                if let Some(home) = map.home(*next).filter(|_| !map.is_gone(*next)) {
                    let room = &mut b[at..];
                    let Some(units) =
                        record::encode(map, *next, Some(home), self.geo, Some(self.epoch), room)
                    else {
                        break;
                    };
                    at += units * 16;
                }
                next.0 += 1;
            }
            if at == HEADER {
                break;
            }
            n += 1;
        }
        n
    }
}
