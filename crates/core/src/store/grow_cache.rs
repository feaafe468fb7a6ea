//! Growth of a cache volume that is closed. The homes of its extents are at the addresses of their disk, so only the last disk may become
//! larger, and nothing is stored for its new part. But its tail is at its end, so it moves, in a step of its own:
//!
//! ```text
//! zeros where an abandoned growth wanted the tail ─► note: where this one wants it ─► stash and mark copied there ─► table: the tail is there
//!    ─► (opened again) ─► zeros where the old tail was ─► table: more extents
//! ```
//! So the old tail is in use until the new one is, and no slot is where a tail is. A tail follows the last slot, but for less than an extent, or
//! there was a crash between the two steps; then the slots come first.
//!
//! The note is in the head, behind the counter. A growth that ends before the table is changed leaves bytes of a tail at the place that it names,
//! which a later growth may make data:
//!
//! ```text
//! 0 magic "ISOG" │ 4 version │ 8 volume uuid │ 24 member uuid │ 40 first byte of the tail │ 48 crc
//! ```

use super::codec::{id_at, put, seal, sealed, u32_at, u64_at};
use super::error::OpenError;
use super::grow::Growth;
use super::layout::HEAD_BLOCKS;
use super::mark::{self, Cover};
use super::mutants::broken;
use super::open::Opened;
use super::recover::CHUNK;
use super::superblock::{Room, State, Superblock};
use super::table::settle;
use super::{BLOCK, Media, MediaError};
use crate::geometry::SLOTS_MAX;
use crate::mutants::Mutant;
use crate::units::MemberId;
use crate::volume::lost::ListHead;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The place of the note.
const NOTE_AT: u64 = HEAD_BLOCKS * BLOCK as u64;
const MAGIC: [u8; 4] = *b"ISOG";
const VERSION: u32 = 1;
const CRC_AT: usize = 48;

const SMALL: &str = "the last device of the slowest tier has not become large enough for another extent (the other disks of a cache volume cannot grow, because the data on the disks behind them has fixed addresses)";
const NO_ROOM_FOR_TAIL: &str = "its last device has become only a little larger: the end of the old size is in use until the new end is, so it must grow by 16 MiB and 1/8192 of its size at least";
const LISTED: &str = "data that was lost with flash is listed at the end of the disk (see `status`): restore it, or accept what the disk holds with `serve --accept-loss`";
const MANY: &str =
    "the volume would have too many extents: it needs larger ones, which are chosen at creation";

/// Plans the growth to devices of these sizes; see [`super::plan_growth`].
pub(super) fn plan(sb: &Superblock, sizes: &[u64]) -> Result<Growth, &'static str> {
    let last = sb.members.len() - 1;
    let old = &sb.members[last];
    let place = MemberId(last as u8);
    let now = sb.room(place, old.bytes, SLOTS_MAX);
    let room = if now.slots > old.slots {
        now
    } else {
        sb.room(place, sizes[last].max(old.bytes), SLOTS_MAX)
    };
    let more = room.slots.checked_sub(old.slots).filter(|&n| n > 0);
    let extents = sb.extents.checked_add(more.ok_or(SMALL)?).ok_or(MANY)?;
    if room.behind_at != old.behind_at && room.behind_at < old.bytes {
        return Err(NO_ROOM_FOR_TAIL);
    }
    let mut slots: Vec<u32> = sb.members.iter().map(|m| m.slots).collect();
    let others = slots[..last].iter().fold(0u32, |n, s| n.saturating_add(*s));
    if others.saturating_add(room.slots) > SLOTS_MAX {
        return Err(MANY);
    }
    let mut bytes: Vec<u64> = sb.members.iter().map(|m| m.bytes).collect();
    let mut behind_at = vec![0; slots.len()];
    (slots[last], bytes[last], behind_at[last]) = (room.slots, room.bytes, room.behind_at);
    Ok(Growth {
        extents,
        slots,
        bytes,
        behind_at,
        area: sb.area,
    })
}

impl Growth {
    /// The step in which only the tail of the last disk moves.
    pub(super) fn tail_first(&self, sb: &Superblock) -> Option<Growth> {
        let last = sb.members.len() - 1;
        let moves = self.behind_at[last] != sb.members[last].behind_at;
        moves.then(|| Growth {
            extents: sb.extents,
            slots: sb.members.iter().map(|m| m.slots).collect(),
            ..self.clone()
        })
    }
}

/// See [`super::grow`].
pub(super) fn grow<M: Media + ?Sized>(
    media: &mut M,
    opened: &mut Opened,
    growth: &Growth,
    epoch: u64,
) -> Result<Superblock, OpenError> {
    if !opened.space.lost.is_empty() {
        return Err(OpenError::BadGrowth(LISTED));
    }
    let settled = settle(media, opened)?;
    let old = &settled.superblock;
    let last = MemberId(old.members.len() as u8 - 1);
    let i = usize::from(last.0);
    let mut sb = old.clone();
    let room = Room {
        slots: growth.slots[i],
        data_offset: 0,
        behind_at: growth.behind_at[i],
        bytes: growth.bytes[i],
    };
    room.put(&mut sb.members[i]);
    sb.extents = growth.extents;
    if growth.tail_first(old).is_some() {
        if growth.extents != old.extents || room.behind_at < old.members[i].bytes {
            return Err(OpenError::BadGrowth("the tail of the disk must move first"));
        }
        announce(media, old, last, &room)?;
        copy(
            media,
            last,
            old.members[i].behind_at,
            room.behind_at,
            old.head_bytes(),
        )?;
        let set = opened.space.map.regions().dirty();
        mark::write(media, &sb, last, Cover::Covered, set, ListHead::default())?;
    } else {
        clear_old_tail(media, old, last)?;
    }
    let mut sb = settled.next_session(sb, epoch)?;
    let geo = &opened.space.geo;
    settled.change(media, &sb, &opened.space.map, geo, &settled.counters, None)?;
    sb.state = State::Clean;
    Ok(sb)
}

/// Copies bytes on a member, durably.
fn copy<M: Media + ?Sized>(
    media: &mut M,
    m: MemberId,
    from: u64,
    to: u64,
    bytes: u64,
) -> Result<(), OpenError> {
    let mut buf = vec![0; CHUNK * BLOCK];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(buf.len() as u64);
        let part = &mut buf[..n as usize];
        media.read(m, from + at, part)?;
        media.write(m, to + at, part)?;
        at += n;
    }
    Ok(media.flush(m)?)
}

/// The place that a note of this member names.
fn noted(b: &[u8], volume: &[u8; 16], uuid: &[u8; 16]) -> Option<u64> {
    let is_note = b[..4] == MAGIC && u32_at(b, 4) == VERSION;
    let is_own = id_at(b, 8) == *volume && id_at(b, 24) == *uuid;
    sealed(b, CRC_AT).filter(|_| is_note && is_own)?;
    Some(u64_at(b, 40)).filter(|at| at % BLOCK as u64 == 0)
}

/// Writes zeros where an abandoned growth wanted the tail, and then states where this one wants it, before anything is written there.
fn announce<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
    room: &Room,
) -> Result<(), MediaError> {
    let entry = &sb.members[usize::from(m.0)];
    let mut note = vec![0; BLOCK];
    media.read(m, NOTE_AT, &mut note)?;
    let noted = noted(&note, &sb.uuid, &entry.uuid).unwrap_or(0);
    if !broken(media, Mutant::GrowOverAbandoned) {
        // (If that growth came to its end, the place is in use.)
        let end = noted.saturating_add(room.bytes - room.behind_at);
        zero(media, m, noted.max(entry.bytes)..end.min(room.bytes))?;
    }
    if !broken(media, Mutant::NoteBeforeCleared) {
        media.flush(m)?;
    }
    note.fill(0);
    put(&mut note, 0, &MAGIC);
    put(&mut note, 4, &VERSION.to_le_bytes());
    put(&mut note, 8, &sb.uuid);
    put(&mut note, 24, &entry.uuid);
    put(&mut note, 40, &room.behind_at.to_le_bytes());
    seal(&mut note, CRC_AT);
    media.write(m, NOTE_AT, &note)?;
    if broken(media, Mutant::TailBeforeNote) {
        return Ok(());
    }
    media.flush(m)
}

/// Writes zeros where the tail was before it moved, because slots come there. It began within an extent behind the last slot.
fn clear_old_tail<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
) -> Result<(), MediaError> {
    let entry = &sb.members[usize::from(m.0)];
    let extent = 1u64 << sb.extent_shift;
    let from = (u64::from(entry.slots) << sb.extent_shift).max(sb.head_bytes());
    let tail = entry.bytes - entry.behind_at;
    zero(media, m, from..entry.behind_at.min(from + extent + tail))?;
    media.flush(m)
}

/// Writes zeros to whole blocks.
fn zero<M: Media + ?Sized>(
    media: &mut M,
    m: MemberId,
    range: Range<u64>,
) -> Result<(), MediaError> {
    let zeros = vec![0; CHUNK * BLOCK];
    let mut at = range.start;
    while at < range.end {
        let n = (range.end - at).min(zeros.len() as u64);
        media.write(m, at, &zeros[..n as usize])?;
        at += n;
    }
    Ok(())
}
