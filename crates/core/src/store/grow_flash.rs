//! Growth of the flash of a cache volume that is closed, after flash devices have become larger. Copies stay where they are, and so do the
//! numbers by which records name them. Journal and checkpoints need more room; they get it behind the slots, in the new part of their device:
//!
//! ```text
//! before   ring and regions │ slots                │
//! after    (unused)         │ slots, old and new          │ ring and regions │
//! ```
//! The old ones are in use until the new member table is durable (`table.rs`), so each table has its own, and nothing that the old table uses
//! lies where the new ones are.

use super::error::OpenError;
use super::grow::Growth;
use super::open::Opened;
use super::replace::clear_areas;
use super::superblock::{Room, State, Superblock};
use super::table::settle;
use super::{Media, MetaArea};
use crate::geometry::{Kind, SLOTS_MAX};
use crate::units::MemberId;
use alloc::vec::Vec;

const TIERED: &str = "the faster tiers of this volume hold data of their own: `isotherm replace` puts a larger device into the place of one";
const CARRIER: &str = "each flash device with the metadata of the volume, which are the first one and, if there are several, the second one, must become larger by at least the size of the metadata of all flash: with extents of 64 KiB these are 128 MiB and 1/500 of it at most";
const MANY: &str =
    "the volume would have too many extents: it needs larger ones, which are chosen at creation";

/// Plans the growth of a cache volume's flash to devices of these sizes in bytes, one for each member. If no flash device has become large
/// enough for another extent, the plan changes nothing ([`Growth::changes`]).
///
/// # Errors
/// It is impossible; the text says why.
pub fn plan_flash_growth(sb: &Superblock, sizes: &[u64]) -> Result<Growth, &'static str> {
    if sb.kind != Kind::Cache {
        return Err(TIERED);
    }
    let old = &sb.members;
    let flash: Vec<usize> = (0..old.len())
        .filter(|&i| sb.is_flash(MemberId(i as u8)))
        .collect();
    let mut members: Vec<Room> = (old.iter())
        .map(|m| Room {
            slots: m.slots,
            data_offset: m.data_offset,
            behind_at: m.behind_at,
            bytes: m.bytes,
        })
        .collect();
    let grown = |&i: &usize| sizes[i] >= old[i].bytes + (1 << sb.extent_shift);
    if !flash.iter().any(grown) {
        return Ok(shape(sb, sb.area, &members));
    }
    let slots_before = |i: usize, end: u64| {
        let bytes = end.saturating_sub(old[i].data_offset);
        u32::try_from(bytes >> sb.extent_shift).unwrap_or(SLOTS_MAX)
    };
    let sum = |of: &dyn Fn(usize) -> u32| flash.iter().fold(0u32, |n, &i| n.saturating_add(of(i)));
    // This is without the metadata, so it is an upper bound.
    let copies = sum(&|i| slots_before(i, sizes[i]));
    let bytes = flash.iter().map(|&i| sizes[i]).sum();
    let blocks = 1 << (sb.extent_shift - sb.block_shift);
    let need = MetaArea::of(sb.kind, sb.recorded(copies), copies, blocks, bytes);
    let area = MetaArea {
        ring_blocks: need.ring_blocks.max(sb.area.ring_blocks),
        region_blocks: need.region_blocks.max(sb.area.region_blocks),
    };
    for &i in &flash {
        let room = &mut members[i];
        let behind = sb.layout().copies_on(MemberId(i as u8)) * area.bytes();
        if behind > 0 && area == sb.area && room.behind_at > 0 {
            continue;
        }
        let moves = behind > 0 && area != sb.area;
        let end = if moves {
            sizes[i].saturating_sub(behind)
        } else {
            sizes[i]
        };
        let slots = slots_before(i, end);
        let at = room.data_offset + (u64::from(slots) << sb.extent_shift);
        if moves && (slots < room.slots || (room.behind_at > 0 && at < room.bytes)) {
            return Err(CARRIER);
        }
        room.slots = slots.max(room.slots);
        room.behind_at = if moves { at } else { room.behind_at };
        room.bytes = room.bytes.max(at + if moves { behind } else { 0 });
    }
    let slots = members.iter().map(|m| u64::from(m.slots)).sum::<u64>();
    if slots > u64::from(SLOTS_MAX) {
        return Err(MANY);
    }
    Ok(shape(sb, area, &members))
}

/// A volume with these places on its members and these metadata areas.
fn shape(sb: &Superblock, area: MetaArea, members: &[Room]) -> Growth {
    Growth {
        extents: sb.extents,
        slots: members.iter().map(|m| m.slots).collect(),
        bytes: members.iter().map(|m| m.bytes).collect(),
        behind_at: members.iter().map(|m| m.behind_at).collect(),
        area,
    }
}

/// See [`super::grow`].
pub(super) fn grow<M: Media + ?Sized>(
    media: &mut M,
    opened: &Opened,
    growth: &Growth,
    epoch: u64,
) -> Result<Superblock, OpenError> {
    let settled = settle(media, opened)?;
    let mut sb = settled.superblock.clone();
    growth.put(&mut sb);
    let mut sb = settled.next_session(sb, epoch)?;
    if sb.area != settled.superblock.area {
        for m in (0..sb.members.len() as u8).map(MemberId) {
            clear_areas(media, &sb, m)?;
        }
    }
    let geo = &opened.space.geo;
    settled.change(media, &sb, &opened.space.map, geo, &settled.counters, None)?;
    sb.state = State::Clean;
    Ok(sb)
}
