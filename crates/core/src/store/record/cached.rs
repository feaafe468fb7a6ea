//! The record of an extent of a cache volume. Its home follows from its address, so only the copy is stated:
//!
//! ```text
//!  0                     2       4        8          14     16          22     23      24      26      28      32
//! ┌─────────────────────┬───────┬────────┬──────────┬──────┬───────────┬──────┬───────┬───────┬───────┬───────┬─────────────────┐
//! │ kind 4 b, member 12 │ stat  │ last 4 │ extent 6 │disk 2│ place   6 │sets 1│level 1│dirty 2│clean 2│epoch 4│ bitmaps         │
//! └─────────────────────┴───────┴────────┴──────────┴──────┴───────────┴──────┴───────┴───────┴───────┴───────┴─────────────────┘
//! ```
//! An extent without a copy has only the first 16 bytes ([`HOME`]), with member 0. `extent` counts from the start of disk number `disk`, and
//! `place` counts blocks of 4 KiB from the first slot of the copy's member. `disk` and `level` are 0 now, and a place is the first block of a
//! slot; so volumes of several disks, several copies of an extent, and copies that are smaller than an extent need no other record.

use super::{ANY_EPOCH, At, CLAIMED, form::export_clean};
use super::{CACHED, CleanIf, Copied, HOME, Record, Set, bitmap_units};
use crate::map::ExtentMap;
use crate::store::codec::{put, u16_at, u32_at, u64_at};
use crate::units::{ExtentId, Nanos};
use crate::volume::geometry::Geometry;

/// Largest extent, in blocks, whose bitmaps are within the record.
const INLINE: u32 = 16;
/// log2 of the block in which places are counted.
const PLACE_SHIFT: u32 = 12;
const DIRTY: usize = 24;
const CLEAN: usize = 26;
/// The two bits behind those of the sets: the condition of the clean blocks.
const NEVER: u8 = 0;
const IF_SESSION: u8 = 1;
const IF_CLAIMED: u8 = 2;
const ALWAYS: u8 = 3;

/// Number of units of a record with these sets, dirty and clean.
pub(super) fn units(sets: [Set<'_>; 2], blocks: u32) -> usize {
    if blocks <= INLINE {
        return 2;
    }
    let each = bitmap_units(blocks);
    2 + sets.iter().map(|s| s.units(each)).sum::<usize>()
}

/// Number of units of the largest record.
pub(super) fn most_units(blocks: u32) -> usize {
    units([Set::Some(&[]); 2], blocks)
}

/// Encodes the first unit; `member` is that of the copy.
pub(super) fn encode_head(map: &ExtentMap, e: ExtentId, kind: u8, member: u16, out: &mut [u8]) {
    put(out, 0, &(u16::from(kind) | member << 4).to_le_bytes());
    put(out, 2, &map.stat(e).to_le_bytes());
    put(out, 4, &super::coarse(map.last(e)).to_le_bytes());
    put(out, 8, &u64::from(e.0).to_le_bytes());
}

/// Encodes the record of an extent with a copy. `sets`: see [`units`]; `closing`: as for [`super::encode`].
pub(super) fn encode(
    map: &ExtentMap,
    e: ExtentId,
    geo: &Geometry,
    sets: [Set<'_>; 2],
    closing: Option<u64>,
    out: &mut [u8],
) {
    let blocks = geo.blocks_per_extent();
    let Some(copy) = map.copy(e).map(|s| geo.member_slot(s)) else {
        return;
    };
    encode_head(map, e, CACHED, copy.member, out);
    out[16..].fill(0);
    let place = u64::from(copy.index) << (geo.extent_shift - PLACE_SHIFT);
    put(out, 16, &place.to_le_bytes()[..6]);
    let (condition, epoch) = match closing.filter(|_| sets[1] != Set::None) {
        None => (NEVER, 0),
        Some(CLAIMED) => (IF_CLAIMED, 0),
        Some(ANY_EPOCH) => (ALWAYS, 0),
        Some(epoch) => (IF_SESSION, epoch as u32),
    };
    out[22] = sets[0].code() | sets[1].code() << 2 | condition << 4;
    put(out, 28, &epoch.to_le_bytes());
    let bytes = (blocks as usize).div_ceil(8);
    let (mut within, mut behind) = ([DIRTY, CLEAN].into_iter(), 32);
    for (is_clean, set) in [(false, sets[0]), (true, sets[1])] {
        let inline = within.next().filter(|_| blocks <= INLINE);
        let Set::Some(_) = set else {
            continue;
        };
        let at = inline.unwrap_or(behind);
        let bits = &mut out[at..at + bytes];
        match is_clean {
            true => export_clean(map, e, blocks, bits),
            false if closing.is_none() => map.export_copied(e, bits),
            false => map.export_dirty(e, bits),
        }
        behind += bitmap_units(blocks) * 16;
    }
}

/// Decodes a record of kind [`CACHED`] or [`HOME`].
pub(super) fn decode(units: &[u8], blocks: u32) -> Result<(Record<'_>, usize), &'static str> {
    let number = u64_at(units, 8);
    let extent = u32::try_from(number & ((1 << 48) - 1));
    if number >> 48 != 0 {
        return Err("record of a disk that the volume does not have (written by a newer version?)");
    }
    let is_home = units[0] & 15 == HOME;
    let (copy, used) = if is_home {
        (None, 1)
    } else {
        let (copy, used) = decode_copy(units, blocks)?;
        (Some(copy), used)
    };
    let record = Record {
        extent: ExtentId(extent.map_err(|_| "record names an extent outside the volume")?),
        home: None,
        is_fixed: true,
        valid: Set::All,
        copy,
        stat: u16_at(units, 2),
        last: Nanos::from_micros(u64::from(u32_at(units, 4)) << 20),
    };
    Ok((record, used))
}

fn decode_copy(units: &[u8], blocks: u32) -> Result<(Copied<'_>, usize), &'static str> {
    if units.len() < 32 {
        return Err("record of a copy that is cut short");
    }
    let mut place = [0; 8];
    place[..6].copy_from_slice(&units[16..22]);
    let (sets, level) = (units[22], units[23]);
    if level != 0 || sets >> 6 != 0 {
        return Err("record of a copy with reserved bytes in use (written by a newer version?)");
    }
    let each = bitmap_units(blocks) * 16;
    let bytes = (blocks as usize).div_ceil(8);
    let mut behind = &units[32..];
    let mut set = |i: usize, inline: usize| {
        let code = sets >> (2 * i) & 3;
        if code == 2 && (2..=INLINE).contains(&blocks) {
            return Ok(Set::Some(&units[inline..inline + bytes]));
        }
        Set::decode(code, each, &mut behind).ok_or("record of a copy with impossible bitmaps")
    };
    let (dirty, clean) = (set(0, DIRTY)?, set(1, CLEAN)?);
    if dirty == Set::None && clean == Set::None {
        return Err("record of a copy that holds nothing");
    }
    let copy = Copied {
        member: u16_at(units, 0) >> 4,
        at: At::Block(u64::from_le_bytes(place)),
        dirty,
        clean,
        clean_if: match sets >> 4 & 3 {
            NEVER => CleanIf::Never,
            IF_SESSION => CleanIf::SessionEnding(u32_at(units, 28)),
            IF_CLAIMED => CleanIf::Claimed,
            _ => CleanIf::Any,
        },
    };
    Ok((copy, 2 + (units.len() - 32 - behind.len()) / 16))
}

/// The slot, of an extent of 2^`extent_shift` bytes, that begins at block `place`.
pub(super) fn slot_at(place: u64, extent_shift: u32) -> Result<u32, &'static str> {
    let shift = extent_shift - PLACE_SHIFT;
    u32::try_from(place >> shift)
        .ok()
        .filter(|&n| u64::from(n) << shift == place)
        .ok_or("record names a copy that is not a whole slot (written by a newer version?)")
}
