//! Records of the map, which are the contents of journal and checkpoint blocks, in units of 16 bytes.
//!
//! ```text
//!  0                     2       4          8        12           16
//! ┌─────────────────────┬───────┬──────────┬────────┬────────────┬───────────────────────────────┐
//! │ kind 4 b, member 12 │ stat  │ extent   │ index  │ last       │ bitmap, 16 bytes each 128     │
//! └─────────────────────┴───────┴──────────┴────────┴────────────┴───────────────────────────────┘
//! ```
//! A record of an extent with a copy has one more unit before its bitmaps:
//! ```text
//!  16           20       22     23     24         32
//! ┌────────────┬────────┬──────┬──────┬──────────┬─────────────────────────────────┐
//! │ copy index │ member │ sets │ 0    │ epoch    │ bitmaps of those sets that say 2│
//! └────────────┴────────┴──────┴──────┴──────────┴─────────────────────────────────┘
//! ```
//! where `sets` has two bits each for home, dirty and clean, lowest first: 0 (no block), 1 (all blocks) or 2 (a bitmap follows). These are the
//! records of a tiering volume; those of a cache volume are in `cached.rs`. A slot is recorded as (member, index), so a record stays correct
//! when other members are added or removed. A record contains the complete state of an extent (home, copy, valid blocks) and not a change.
//! So it does no harm to apply a record twice, or to apply only the first records of a batch. `stat` and `last` (in 2^20 µs) are access
//! statistics, which may be out of date. The length of a record follows from kind, sets and the size of an extent.

mod cached;
mod form;

use super::codec::{put, u16_at, u32_at, u64_at};
use crate::map::ExtentMap;
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::geometry::{Geometry, Kind, MEMBER_IDS_MAX, MemberSlot};
use form::{Form, export_clean};

/// No more records follow in this block.
pub const END: u8 = 0;
/// The extent's home is this slot, and every block is valid.
pub const MAP: u8 = 1;
/// The extent's home is this slot, and the bitmap shows which blocks are valid.
pub const MAP_PARTIAL: u8 = 2;
/// The extent has no home.
pub const UNMAP: u8 = 3;
/// The extent's home is this slot, and it has a copy with dirty blocks (or, in the records of a clean close, with clean blocks). Volumes in
/// which this record may occur have [`super::superblock::FEATURE_COPIES`] set.
pub const COPY: u8 = 4;
/// The value of a member's counter: see `counter.rs`.
pub const COUNTER: u8 = 5;
/// In a cache volume: the extent has a copy with dirty blocks, or with blocks that are clean under a condition ([`CleanIf`]).
pub const CACHED: u8 = 6;
/// In a cache volume: no copy of the extent counts. Kinds 8…15 are reserved.
pub const HOME: u8 = 7;

/// A value in place of a session's epoch: the clean blocks of the copy are trusted in every case. Only a mutant writes this value, and only
/// a build with mutants accepts it.
pub const ANY_EPOCH: u64 = u64::MAX;

/// A value in place of a session's epoch: copy and home were durable and equal in these blocks when the record was written, and a later record
/// of the extent is durable before that may change ([`crate::volume::map::ExtentMap::is_claimed_clean`]).
pub const CLAIMED: u64 = u64::MAX - 1;

/// Number of units of the largest record of an extent without a copy.
pub fn max_units(blocks_per_extent: u32) -> usize {
    1 + bitmap_units(blocks_per_extent)
}

/// Number of units of the largest record of an extent with a copy, in a tiering volume.
pub fn max_copy_units(blocks_per_extent: u32) -> usize {
    2 + 3 * bitmap_units(blocks_per_extent)
}

/// Number of units of the largest record of a volume of this kind.
pub fn most_units(kind: Kind, blocks_per_extent: u32) -> usize {
    match kind {
        Kind::Tiering => max_copy_units(blocks_per_extent),
        Kind::Cache => cached::most_units(blocks_per_extent),
    }
}

fn bitmap_units(blocks: u32) -> usize {
    if blocks <= 1 {
        0
    } else {
        (blocks as usize).div_ceil(128)
    }
}

/// A set of blocks of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set<'a> {
    /// No block.
    None,
    /// All blocks.
    All,
    /// The blocks whose bits are set, lowest block in the lowest bit.
    Some(&'a [u8]),
}

impl<'a> Set<'a> {
    fn units(self, each: usize) -> usize {
        if matches!(self, Set::Some(_)) {
            each
        } else {
            0
        }
    }
    fn code(self) -> u8 {
        match self {
            Set::None => 0,
            Set::All => 1,
            Set::Some(_) => 2,
        }
    }
    /// Decodes a set from its code. A bitmap is taken from the front of `rest`.
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
    /// Whether block `b` is in the set.
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

/// The condition under which the clean blocks of a record are equal in copy and home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanIf {
    /// There are none.
    Never,
    /// The session with this epoch ended cleanly, and it was the last one or its clean blocks are claims
    /// ([`super::superblock::Superblock::clean_epoch`]).
    Session(u64),
    /// The same for the session whose epoch ends in these 32 bits.
    SessionEnding(u32),
    /// In force: see [`CLAIMED`].
    Claimed,
    /// See [`ANY_EPOCH`].
    Any,
}

impl CleanIf {
    /// Whether session `epoch` is the one whose clean end is the condition.
    pub fn is_session(self, epoch: u64) -> bool {
        epoch != 0
            && match self {
                CleanIf::Session(e) => e == epoch,
                CleanIf::SessionEnding(e) => e == epoch as u32,
                _ => false,
            }
    }
}

/// Where a copy is on its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In the slot with this index.
    Slot(u32),
    /// From this block of 4 KiB on, counted from the first slot.
    Block(u64),
}

/// The part of a record about an extent's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// Identity of the member with the copy.
    pub member: u16,
    /// Its place there.
    pub at: At,
    /// Blocks that must be read from the copy. Some may be equal at the home.
    pub dirty: Set<'a>,
    /// Blocks that are equal in copy and home under the condition `clean_if`.
    pub clean: Set<'a>,
    /// See `clean`.
    pub clean_if: CleanIf,
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The extent.
    pub extent: ExtentId,
    /// Its home, if it has one and the record states it.
    pub home: Option<MemberSlot>,
    /// Whether its home follows from its address (a record of a cache volume).
    pub is_fixed: bool,
    /// Blocks that are valid at the home. If there is no home, this is [`Set::All`].
    pub valid: Set<'a>,
    /// Its copy.
    pub copy: Option<Copied<'a>>,
    /// The 16 bits of the extent that belong to the policy.
    pub stat: u16,
    /// Time of the last access, rounded down to 2^20 µs.
    pub last: Nanos,
}

/// Number of units of the record that [`encode`] would make.
pub fn units(
    map: &ExtentMap,
    e: ExtentId,
    slot: Option<Slot>,
    geo: &Geometry,
    closing: Option<u64>,
) -> usize {
    let slot = slot.filter(|_| !map.is_gone(e));
    let blocks = geo.blocks_per_extent();
    Form::of(map, e, slot, blocks, closing).units(blocks)
}

/// [`units`], without clean blocks, of an extent whose home holds all of its blocks and whose copy is named: with `all` blocks, or with some.
pub fn named_units(kind: Kind, all: bool, blocks: u32) -> usize {
    let dirty = if all { Set::All } else { Set::Some(&[]) };
    match kind {
        Kind::Tiering => 2 + dirty.units(bitmap_units(blocks)),
        Kind::Cache => cached::units([dirty, Set::None], blocks),
    }
}

/// Encodes the state of `e` in the map, but with its home in `slot`, to `out`. Returns the number of units, or `None` if the record does
/// not fit. If `closing`, the session's epoch or [`CLAIMED`], is given, the dirty blocks of a copy are recorded as dirty and the others as clean: see
/// [`Copied::clean`]. Otherwise a copy that is named ([`ExtentMap::is_named`]) is recorded with all of its valid blocks as dirty, so that a
/// later write to one of them needs no record.
pub fn encode(
    map: &ExtentMap,
    e: ExtentId,
    slot: Option<Slot>,
    geo: &Geometry,
    closing: Option<u64>,
    out: &mut [u8],
) -> Option<usize> {
    let blocks = geo.blocks_per_extent();
    // An extent without any valid block is recorded as an extent without a home.
    let slot = slot.filter(|_| !map.is_gone(e));
    let form = Form::of(map, e, slot, blocks, closing);
    let units = form.units(blocks);
    let out = out.get_mut(..units * 16)?;
    let place = slot.map(|s| geo.member_slot(s));
    match form {
        Form::Plain { kind } => {
            head(map, e, place, kind, out);
            if units > 1 {
                out[16..].fill(0);
                map.export_valid(e, &mut out[16..16 + (blocks as usize).div_ceil(8)]);
            }
        }
        Form::Copied { sets } => {
            head(map, e, place, COPY, out);
            encode_copied(map, e, geo, sets, closing, out);
        }
        Form::Home => cached::encode_head(map, e, HOME, 0, out),
        Form::Cached { sets } => cached::encode(map, e, geo, sets, closing, out),
    }
    Some(units)
}

const NO_SLOT: MemberSlot = MemberSlot {
    member: MEMBER_IDS_MAX,
    index: u32::MAX,
};

fn head(map: &ExtentMap, e: ExtentId, place: Option<MemberSlot>, kind: u8, out: &mut [u8]) {
    let place = place.unwrap_or(NO_SLOT);
    put(out, 0, &(u16::from(kind) | place.member << 4).to_le_bytes());
    put(out, 2, &map.stat(e).to_le_bytes());
    put(out, 4, &e.0.to_le_bytes());
    put(out, 8, &place.index.to_le_bytes());
    put(out, 12, &coarse(map.last(e)).to_le_bytes());
}

/// A time in 2^20 µs.
fn coarse(t: Nanos) -> u32 {
    ((t.0 / 1000) >> 20) as u32
}

/// Encodes the part of a record about a copy, which follows the first unit.
fn encode_copied(
    map: &ExtentMap,
    e: ExtentId,
    geo: &Geometry,
    sets: [Set<'_>; 3],
    closing: Option<u64>,
    out: &mut [u8],
) {
    let blocks = geo.blocks_per_extent();
    let each = bitmap_units(blocks);
    out[16..].fill(0);
    let copy = map.copy(e).map_or(NO_SLOT, |s| geo.member_slot(s));
    put(out, 16, &copy.index.to_le_bytes());
    put(out, 20, &copy.member.to_le_bytes());
    let mut at = 32;
    for (i, set) in sets.into_iter().enumerate() {
        out[22] |= set.code() << (2 * i);
        if let Set::Some(_) = set {
            let bits = &mut out[at..at + (blocks as usize).div_ceil(8)];
            match i {
                0 => map.export_valid(e, bits),
                1 if closing.is_none() => map.export_copied(e, bits),
                1 => map.export_dirty(e, bits),
                _ => export_clean(map, e, blocks, bits),
            }
            at += each * 16;
        }
    }
    if sets[2] != Set::None {
        put(out, 24, &closing.unwrap_or(0).to_le_bytes());
    }
}

/// A unit with the value of a member's counter.
pub fn encode_counter(member: u16, value: u64) -> [u8; 16] {
    let mut b = [0; 16];
    put(&mut b, 0, &(u16::from(COUNTER) | member << 4).to_le_bytes());
    put(&mut b, 8, &value.to_le_bytes());
    b
}

/// A decoded entry of a journal or checkpoint block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The state of an extent.
    Extent(Record<'a>),
    /// A value that a member's counter had reached when the block was issued.
    Counter {
        /// Identity of the member.
        member: u16,
        /// The value of its counter.
        value: u64,
    },
}

/// The extents of the records in `units` of one block, up to the first one that cannot be decoded.
pub fn extents(units: &[u8], blocks: u32) -> impl Iterator<Item = ExtentId> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let (entry, used) = decode(units.get(at..)?, blocks).ok()??;
        at += used * 16;
        Some(entry)
    })
    .filter_map(|entry| match entry {
        Entry::Extent(r) => Some(r.extent),
        Entry::Counter { .. } => None,
    })
}

/// Decodes the record at the start of `units`, and returns it with its number of units; `Ok(None)` at the end of a block. Kind and lengths
/// are checked; whether extent, member and slot exist is checked by [`resolve`].
pub fn decode(units: &[u8], blocks: u32) -> Result<Option<(Entry<'_>, usize)>, &'static str> {
    if units.len() < 16 || units[0] == END {
        return Ok(None);
    }
    let (kind, member) = (units[0] & 15, u16_at(units, 0) >> 4);
    let each = bitmap_units(blocks);
    let mut copy = None;
    let (valid, extra) = match kind {
        MAP | UNMAP => (Set::All, 0),
        MAP_PARTIAL => {
            let bits = (each > 0).then(|| units.get(16..16 + each * 16)).flatten();
            (
                Set::Some(bits.ok_or("record has a bitmap of the wrong length")?),
                each,
            )
        }
        COPY => {
            let (valid, c) = decode_copied(&units[16..], each * 16)?;
            let sets = [valid, c.dirty, c.clean];
            copy = Some(c);
            (valid, 1 + sets.iter().map(|s| s.units(each)).sum::<usize>())
        }
        CACHED | HOME => {
            let (record, used) = cached::decode(units, blocks)?;
            return Ok(Some((Entry::Extent(record), used)));
        }
        COUNTER if units[2..8] == [0; 6] => {
            let value = u64_at(units, 8);
            return Ok(Some((Entry::Counter { member, value }, 1)));
        }
        _ => return Err("record of an unknown kind (written by a newer version?)"),
    };
    let slot = MemberSlot {
        member,
        index: u32_at(units, 8),
    };
    let last = Nanos::from_micros(u64::from(u32_at(units, 12)) << 20);
    let r = Record {
        extent: ExtentId(u32_at(units, 4)),
        home: (kind != UNMAP).then_some(slot),
        is_fixed: false,
        valid,
        copy,
        stat: u16_at(units, 2),
        last,
    };
    Ok(Some((Entry::Extent(r), 1 + extra)))
}

/// Decodes the part of a record about a copy. `each` is the length of a bitmap in bytes.
fn decode_copied(body: &[u8], each: usize) -> Result<(Set<'_>, Copied<'_>), &'static str> {
    if body.len() < 16 || body[7] != 0 || body[6] >> 6 != 0 {
        return Err("record of a copy that is cut short, or with reserved bytes in use");
    }
    let mut rest = &body[16..];
    let mut set = |i: usize| {
        Set::decode(body[6] >> (2 * i) & 3, each, &mut rest)
            .ok_or("record of a copy with impossible bitmaps")
    };
    let (valid, dirty, clean) = (set(0)?, set(1)?, set(2)?);
    if dirty == Set::None && clean == Set::None {
        return Err("record of a copy that holds nothing");
    }
    let copy = Copied {
        member: u16_at(body, 4),
        at: At::Slot(u32_at(body, 0)),
        dirty,
        clean,
        clean_if: match u64_at(body, 8) {
            0 => CleanIf::Never,
            CLAIMED => CleanIf::Claimed,
            ANY_EPOCH => CleanIf::Any,
            epoch => CleanIf::Session(epoch),
        },
    };
    Ok((valid, copy))
}

/// The slots of home and copy. An error says that a place in the record does not exist in a volume of this geometry, or that it is not
/// allowed: a copy is never on the slowest tier.
pub fn resolve(
    r: &Record<'_>,
    geo: &Geometry,
) -> Result<(Option<Slot>, Option<Slot>), &'static str> {
    if r.extent.0 >= geo.extents {
        return Err("record names an extent outside the volume");
    }
    if r.is_fixed != geo.is_cache() {
        return Err("record of the other kind of volume");
    }
    let home = r
        .home
        .map(|s| geo.slot(s).ok_or("record names a slot outside the members"));
    let fast = geo.tier_slots(geo.slowest()).start;
    let copy = r.copy.map(|c| {
        let index = match c.at {
            At::Slot(index) => index,
            At::Block(place) => cached::slot_at(place, geo.extent_shift)?,
        };
        let member = c.member;
        geo.slot(MemberSlot { member, index })
            .filter(|s| s.0 < fast)
            .ok_or("record names a copy outside the faster tiers")
    });
    let home = home.transpose()?.or_else(|| geo.home(r.extent));
    Ok((home, copy.transpose()?))
}

#[cfg(test)]
mod tests;
