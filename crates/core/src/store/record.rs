//! Map records: what journal and checkpoint blocks are made of, in 16-byte units.
//!
//! ```text
//!  0      1       2       4          8        12           16
//! ┌──────┬───────┬───────┬──────────┬────────┬────────────┬───────────────────────────────┐
//! │ kind │ extra │ stat  │ extent   │ slot   │ last       │ bitmap, extra × 16 bytes      │
//! └──────┴───────┴───────┴──────────┴────────┴────────────┴───────────────────────────────┘
//! ```
//! Records are absolute ("extent e lives in slot s, these blocks valid"), so applying one twice, or a prefix of a batch, is
//! harmless. `stat` and `last` (in 2^20 µs) are the access statistics, best effort.

use super::codec::{put, u16_at, u32_at};
use crate::map::ExtentMap;
use crate::units::{ExtentId, Nanos, Slot};

/// Nothing follows in this block.
pub const END: u8 = 0;
/// Extent lives in slot, every block valid.
pub const MAP: u8 = 1;
/// Extent lives in slot, the bitmap says which blocks are valid.
pub const MAP_PARTIAL: u8 = 2;
/// Extent has no home.
pub const UNMAP: u8 = 3;
// 4…7 are reserved for cached copies (clean, diverged, dropped, with sub-extent bitmaps); volumes that use them set an
// incompatible feature bit in the superblock.

/// Units of the largest record.
pub fn max_units(blocks_per_extent: u32) -> usize {
    1 + bitmap_units(blocks_per_extent)
}

fn bitmap_units(blocks: u32) -> usize {
    if blocks <= 1 {
        0
    } else {
        (blocks as usize).div_ceil(128)
    }
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Which extent.
    pub extent: ExtentId,
    /// Its home, if it has one.
    pub slot: Option<Slot>,
    /// Bitmap of valid blocks, if not all are.
    pub valid: Option<&'a [u8]>,
    /// The policy's 16 bits.
    pub stat: u16,
    /// Last access, rounded down to 2^20 µs.
    pub last: Nanos,
}

/// Encode the state of `e` as the map has it, but with its home in `slot`, into `out`; units used, or `None` if it does not fit.
pub fn encode(
    map: &ExtentMap,
    e: ExtentId,
    slot: Option<Slot>,
    blocks: u32,
    out: &mut [u8],
) -> Option<usize> {
    // An extent without a valid block is, durably, one without a home.
    let slot = slot.filter(|_| !map.is_void(e));
    let partial = slot.is_some() && map.is_partial(e);
    let extra = if partial { bitmap_units(blocks) } else { 0 };
    let bytes = (1 + extra) * 16;
    if out.len() < bytes {
        return None;
    }
    out[0] = match slot {
        None => UNMAP,
        Some(_) if partial => MAP_PARTIAL,
        Some(_) => MAP,
    };
    out[1] = extra as u8;
    put(out, 2, &map.stat(e).to_le_bytes());
    put(out, 4, &e.0.to_le_bytes());
    put(out, 8, &slot.map_or(u32::MAX, |s| s.0).to_le_bytes());
    put(
        out,
        12,
        &(((map.last(e).0 / 1000) >> 20) as u32).to_le_bytes(),
    );
    if extra > 0 {
        out[16..bytes].fill(0);
        map.export_valid(e, &mut out[16..16 + (blocks as usize).div_ceil(8)]);
    }
    Some(1 + extra)
}

/// Decode the record at the start of `units`; `Ok(None)` at the end of a block. Checks kind and lengths, not the ids.
pub fn decode(units: &[u8]) -> Result<Option<(Record<'_>, usize)>, &'static str> {
    if units.len() < 16 || units[0] == END {
        return Ok(None);
    }
    let extra = usize::from(units[1]);
    if units.len() < (1 + extra) * 16 {
        return Err("record longer than its block");
    }
    let valid = match units[0] {
        MAP | UNMAP if extra == 0 => None,
        MAP_PARTIAL if extra > 0 => Some(&units[16..(1 + extra) * 16]),
        MAP | UNMAP | MAP_PARTIAL => return Err("bitmap missing, or where none belongs"),
        _ => return Err("record of an unknown kind (written by a newer version?)"),
    };
    let slot = (units[0] != UNMAP).then(|| Slot(u32_at(units, 8)));
    let last = Nanos::from_micros(u64::from(u32_at(units, 12)) << 20);
    let r = Record {
        extent: ExtentId(u32_at(units, 4)),
        slot,
        valid,
        stat: u16_at(units, 2),
        last,
    };
    Ok(Some((r, 1 + extra)))
}

/// Whether ids and bitmap fit a volume of this shape.
pub fn check(r: &Record<'_>, extents: u32, slots: u32, blocks: u32) -> Result<(), &'static str> {
    if r.extent.0 >= extents {
        return Err("record names an extent outside the volume");
    }
    if r.slot.is_some_and(|s| s.0 >= slots) {
        return Err("record names a slot outside the members");
    }
    if r.valid
        .is_some_and(|v| v.len() != bitmap_units(blocks) * 16)
    {
        return Err("record has a bitmap of the wrong length");
    }
    Ok(())
}
