//! Map records: what journal and checkpoint blocks are made of, in 16-byte units.
//!
//! ```text
//!  0      1       2       4          8        12           16
//! ┌──────┬───────┬───────┬──────────┬────────┬────────────┬───────────────────────────────┐
//! │ kind │ extra │ stat  │ extent   │ slot   │ last       │ bitmap, extra × 16 bytes      │
//! └──────┴───────┴───────┴──────────┴────────┴────────────┴───────────────────────────────┘
//! ```
//! A record of a copy has one unit more before its bitmaps:
//! ```text
//!  16          20     21      22      23     24         32
//! ┌───────────┬──────┬───────┬───────┬──────┬──────────┬─────────────────────────────────┐
//! │ copy slot │ home │ dirty │ clean │ 0    │ epoch    │ bitmaps of those sets that say 2│
//! └───────────┴──────┴───────┴───────┴──────┴──────────┴─────────────────────────────────┘
//! ```
//! where a set is 0 (no block), 1 (all) or 2 (a bitmap follows). Records are absolute ("extent e lives in slot s, these blocks valid"), so applying one twice, or a prefix of a batch, is
//! harmless. `stat` and `last` (in 2^20 µs) are the access statistics, best effort.

use super::codec::{put, u16_at, u32_at, u64_at};
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
/// Extent lives in slot, and a copy of it holds blocks that the home lacks. 5…7 are reserved. Volumes in which this may
/// occur have [`super::superblock::FEATURE_COPIES`] set.
pub const COPY: u8 = 4;

/// In the place of a session's epoch: what the copy holds clean may be trusted, whatever happened. Only a mutant writes it,
/// and only a build with mutants believes it.
pub const ANY_EPOCH: u64 = u64::MAX;

/// Units of the largest record of an extent without a copy.
pub fn max_units(blocks_per_extent: u32) -> usize {
    1 + bitmap_units(blocks_per_extent)
}

/// Units of the largest record of an extent with a copy.
pub fn max_copy_units(blocks_per_extent: u32) -> usize {
    2 + 3 * bitmap_units(blocks_per_extent)
}

fn bitmap_units(blocks: u32) -> usize {
    if blocks <= 1 {
        0
    } else {
        (blocks as usize).div_ceil(128)
    }
}

/// Some blocks of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set<'a> {
    /// None of them.
    None,
    /// All of them.
    All,
    /// Those whose bits are set, lowest block in the lowest bit.
    Some(&'a [u8]),
}

impl<'a> Set<'a> {
    fn code(self) -> u8 {
        match self {
            Set::None => 0,
            Set::All => 1,
            Set::Some(_) => 2,
        }
    }
    /// From its code; a bitmap is cut off the front of `rest`.
    fn decode(code: u8, each: usize, rest: &mut &'a [u8]) -> Option<Set<'a>> {
        match code {
            0 => Some(Set::None),
            1 => Some(Set::All),
            2 if each > 0 && rest.len() >= each => {
                let (bits, more) = rest.split_at(each);
                *rest = more;
                Some(Set::Some(bits))
            }
            _ => None,
        }
    }
    /// Is block `b` among them?
    pub fn has(self, b: u32) -> bool {
        match self {
            Set::None => false,
            Set::All => true,
            Set::Some(bits) => bits
                .get(b as usize / 8)
                .is_some_and(|x| x >> (b % 8) & 1 == 1),
        }
    }
}

/// What a record says of an extent's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// Where it is.
    pub slot: Slot,
    /// Blocks that count in the copy, whatever the home holds.
    pub dirty: Set<'a>,
    /// Blocks that are alike in copy and home: true only if session `epoch` was the last and ended cleanly.
    pub clean: Set<'a>,
    /// See `clean`; 0 without.
    pub epoch: u64,
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Which extent.
    pub extent: ExtentId,
    /// Its home, if it has one.
    pub slot: Option<Slot>,
    /// Blocks that are valid at the home; all where there is no home.
    pub valid: Set<'a>,
    /// Its copy.
    pub copy: Option<Copied<'a>>,
    /// The policy's 16 bits.
    pub stat: u16,
    /// Last access, rounded down to 2^20 µs.
    pub last: Nanos,
}

/// Encode the state of `e` as the map has it, but with its home in `slot`, into `out`; units used, or `None` if it does not
/// fit. Clean blocks of a copy are told only with `closing`, the session's epoch: see [`Copied::clean`].
pub fn encode(
    map: &ExtentMap,
    e: ExtentId,
    slot: Option<Slot>,
    blocks: u32,
    closing: Option<u64>,
    out: &mut [u8],
) -> Option<usize> {
    // An extent of which nothing counts is, durably, one without a home.
    let slot = slot.filter(|_| !map.is_gone(e));
    if let Some(home) = slot
        && map.is_dirty(e) | (closing.is_some() && map.copied_blocks(e) > 0)
    {
        return encode_copied(map, e, home, blocks, closing, out);
    }
    let partial = slot.is_some() && map.is_partial(e);
    let extra = if partial { bitmap_units(blocks) } else { 0 };
    let bytes = (1 + extra) * 16;
    if out.len() < bytes {
        return None;
    }
    let kind = match slot {
        None => UNMAP,
        Some(_) if partial => MAP_PARTIAL,
        Some(_) => MAP,
    };
    head(map, e, slot, kind, extra, out);
    if extra > 0 {
        out[16..bytes].fill(0);
        map.export_valid(e, &mut out[16..16 + (blocks as usize).div_ceil(8)]);
    }
    Some(1 + extra)
}

fn head(map: &ExtentMap, e: ExtentId, slot: Option<Slot>, kind: u8, extra: usize, out: &mut [u8]) {
    out[0] = kind;
    out[1] = extra as u8;
    put(out, 2, &map.stat(e).to_le_bytes());
    put(out, 4, &e.0.to_le_bytes());
    put(out, 8, &slot.map_or(u32::MAX, |s| s.0).to_le_bytes());
    put(
        out,
        12,
        &(((map.last(e).0 / 1000) >> 20) as u32).to_le_bytes(),
    );
}

fn encode_copied(
    map: &ExtentMap,
    e: ExtentId,
    home: Slot,
    blocks: u32,
    closing: Option<u64>,
    out: &mut [u8],
) -> Option<usize> {
    let of = |n: u32| match n {
        0 => Set::None,
        n if n == blocks => Set::All,
        _ => Set::Some(&[]),
    };
    let dirty = map.dirty_blocks(e);
    let sets = [
        if map.is_void(e) {
            Set::None
        } else if map.is_partial(e) {
            Set::Some(&[])
        } else {
            Set::All
        },
        of(dirty),
        of(closing.map_or(0, |_| map.copied_blocks(e) - dirty)),
    ];
    let each = bitmap_units(blocks);
    let maps = sets.iter().filter(|s| matches!(s, Set::Some(_))).count();
    let extra = 1 + maps * each;
    let bytes = (1 + extra) * 16;
    if out.len() < bytes {
        return None;
    }
    head(map, e, Some(home), COPY, extra, out);
    out[16..bytes].fill(0);
    let copy = map.copy(e).map_or(u32::MAX, |s| s.0);
    put(out, 16, &copy.to_le_bytes());
    let mut at = 32;
    for (i, set) in sets.into_iter().enumerate() {
        out[20 + i] = set.code();
        if let Set::Some(_) = set {
            let bits = &mut out[at..at + (blocks as usize).div_ceil(8)];
            match i {
                0 => map.export_valid(e, bits),
                1 => map.export_dirty(e, bits),
                _ => {
                    map.export_copied(e, bits);
                    for b in (0..blocks).filter(|&b| map.dirty_run(e, b, b + 1).1) {
                        bits[b as usize / 8] &= !(1 << (b % 8));
                    }
                }
            }
            at += each * 16;
        }
    }
    if sets[2] != Set::None {
        put(out, 24, &closing.unwrap_or(0).to_le_bytes());
    }
    Some(1 + extra)
}

/// Decode the record at the start of `units`; `Ok(None)` at the end of a block. Checks kind and lengths, not the ids.
pub fn decode(units: &[u8], blocks: u32) -> Result<Option<(Record<'_>, usize)>, &'static str> {
    if units.len() < 16 || units[0] == END {
        return Ok(None);
    }
    let extra = usize::from(units[1]);
    if units.len() < (1 + extra) * 16 {
        return Err("record longer than its block");
    }
    let each = bitmap_units(blocks) * 16;
    let body = &units[16..(1 + extra) * 16];
    let mut copy = None;
    let valid = match units[0] {
        MAP | UNMAP if extra == 0 => Set::All,
        MAP_PARTIAL if extra > 0 && body.len() == each => Set::Some(body),
        MAP_PARTIAL if extra > 0 => return Err("record has a bitmap of the wrong length"),
        COPY => {
            let (valid, c) = decode_copied(body, each)?;
            copy = Some(c);
            valid
        }
        MAP | UNMAP | MAP_PARTIAL => return Err("bitmap missing, or where none belongs"),
        _ => return Err("record of an unknown kind (written by a newer version?)"),
    };
    let slot = (units[0] != UNMAP).then(|| Slot(u32_at(units, 8)));
    let last = Nanos::from_micros(u64::from(u32_at(units, 12)) << 20);
    let r = Record {
        extent: ExtentId(u32_at(units, 4)),
        slot,
        valid,
        copy,
        stat: u16_at(units, 2),
        last,
    };
    Ok(Some((r, 1 + extra)))
}

fn decode_copied(body: &[u8], each: usize) -> Result<(Set<'_>, Copied<'_>), &'static str> {
    if body.len() < 16 || body[7] != 0 {
        return Err("record of a copy that is cut short, or with reserved bytes in use");
    }
    let mut rest = &body[16..];
    let mut set = |i: usize| {
        Set::decode(body[4 + i], each, &mut rest).ok_or("record of a copy with impossible bitmaps")
    };
    let (valid, dirty, clean) = (set(0)?, set(1)?, set(2)?);
    if !rest.is_empty() {
        return Err("record of a copy with impossible bitmaps");
    }
    if dirty == Set::None && clean == Set::None {
        return Err("record of a copy that holds nothing");
    }
    let copy = Copied {
        slot: Slot(u32_at(body, 0)),
        dirty,
        clean,
        epoch: u64_at(body, 8),
    };
    Ok((valid, copy))
}

/// Whether ids fit a volume of this shape: `fast` slots on all tiers but the slowest, where copies are.
pub fn check(r: &Record<'_>, extents: u32, slots: u32, fast: u32) -> Result<(), &'static str> {
    if r.extent.0 >= extents {
        return Err("record names an extent outside the volume");
    }
    if r.slot.is_some_and(|s| s.0 >= slots) {
        return Err("record names a slot outside the members");
    }
    if r.copy.is_some_and(|c| c.slot.0 >= fast) {
        return Err("record names a copy outside the faster tiers");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Geometry, Member};
    use crate::units::TierId;
    use alloc::vec;

    fn map(block_shift: u32) -> ExtentMap {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        ExtentMap::new(&Geometry::new(12, block_shift, 30, vec![m(0, 8), m(1, 24)]).unwrap())
    }

    #[test]
    fn a_copy_goes_there_and_back() {
        let (mut m, e, mut out) = (map(9), ExtentId(3), [0xaau8; 256]);
        m.map(e, Slot(20), true);
        m.validate(e, 0, 4);
        m.add_empty_copy(e, Slot(2));
        m.copy_validate(e, 0, 2);
        // Nothing dirty: the copy is no business of a record, but for a closing one.
        let n = encode(&m, e, m.home(e), 8, None, &mut out).unwrap();
        let (r, used) = decode(&out, 8).unwrap().unwrap();
        assert_eq!((n, used, r.copy), (2, 2, None));
        let n = encode(&m, e, m.home(e), 8, Some(7), &mut out).unwrap();
        let (r, used) = decode(&out, 8).unwrap().unwrap();
        let c = r.copy.unwrap();
        assert_eq!((n, used, c.dirty, c.epoch), (4, 4, Set::None, 7));
        assert!(c.clean.has(0) && c.clean.has(1) && !c.clean.has(2));
        // Dirty: home partly valid, two runs of blocks.
        m.copy_dirty(e, 1, 5);
        encode(&m, e, m.home(e), 8, None, &mut out).unwrap();
        let (r, _) = decode(&out, 8).unwrap().unwrap();
        let c = r.copy.unwrap();
        assert_eq!(
            (r.slot, c.slot, c.clean),
            (Some(Slot(20)), Slot(2), Set::None)
        );
        assert!((0..8).all(|b| r.valid.has(b) == (b < 4)));
        assert!((0..8).all(|b| c.dirty.has(b) == (1..5).contains(&b)));
        assert_eq!(check(&r, 30, 32, 8), Ok(()));
        assert!(check(&r, 30, 32, 2).is_err(), "no place for a copy");
        // It does not fit: nothing is said rather than half of it.
        assert_eq!(encode(&m, e, m.home(e), 8, None, &mut out[..48]), None);
        for bad in [(20, 3), (21, 0), (22, 2), (23, 1), (1, 2)] {
            let mut b = out;
            b[bad.0] = bad.1;
            assert!(decode(&b, 8).is_err(), "byte {} = {}", bad.0, bad.1);
        }
    }

    #[test]
    fn one_block_an_extent_needs_no_bitmaps() {
        let (mut m, e, mut out) = (map(12), ExtentId(3), [0u8; 64]);
        m.map(e, Slot(20), true);
        m.add_empty_copy(e, Slot(2));
        m.copy_dirty(e, 0, 1);
        assert_eq!(encode(&m, e, m.home(e), 1, None, &mut out), Some(2));
        let (r, _) = decode(&out, 1).unwrap().unwrap();
        assert_eq!((r.valid, r.slot), (Set::None, Some(Slot(20))));
        assert_eq!(r.copy.map(|c| c.dirty), Some(Set::All));
    }
}
