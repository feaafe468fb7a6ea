//! The mark of a disk of a cache volume: which parts of the volume may have dirty data on flash, and how the disk's head stands.
//!
//! ```text
//! 0 magic "ISOM" │ 4 version │ 8 volume uuid │ 24 member uuid │ 40 number │ 48 crc │ 52 cover │ 53 shift │ 54 whether: │ 56 sum of stash
//! 64 list's number │ 72 its place │ 73 shift of its granules │ 74 number of its pages │ 512: one bit for each region │ 1024: one bit for each region of the list
//! ```
//! Mark number *n* is in block *n* mod 2 of the two blocks, so one of them is always complete, even if a write is torn. A region is marked
//! durably before a request is answered that relies on a dirty copy in it. If all flash is lost, the marked regions are those that may have
//! lost data. A mark of which a block is damaged may have been the newer one, so it proves nothing. Without flash, marks are written only when the
//! volume is opened, and both blocks state the same then; so one of them is enough after a session without flash.
//!
//! The mark also states the disk's list of what was lost with earlier flash ([`super::lost`]).

use super::codec::{id_at, put, seal, sealed, u16_at, u32_at, u64_at};
use super::superblock::{COUNT_MAX, Superblock};
use super::{BLOCK, Media, MediaError};
use crate::geometry::Kind;
use crate::units::MemberId;
use crate::volume::lost::{ListHead, SHIFT_MAX};
use crate::volume::regions::Regions;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

const MAGIC: [u8; 4] = *b"ISOM";
const VERSION: u32 = 3;
const CRC_AT: usize = 48;
const SET_AT: usize = 512;
const LIST_AT: usize = 1024;

/// What the first bytes of a disk are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cover {
    /// The volume's own metadata. What belongs there is in the stash.
    #[default]
    Covered,
    /// They are being given back (`isotherm release`): a part of them may be the volume's data already. Nothing but a release may write. From
    /// now on the stash does not change, so its checksum is known. `None`: a program that stated none has begun this.
    Releasing(Option<u32>),
}

impl Cover {
    /// Whether the first bytes are being given back.
    pub fn is_releasing(self) -> bool {
        matches!(self, Cover::Releasing(_))
    }
}

/// A mark of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its number, which grows by one each time.
    pub number: u64,
    /// The state of the disk's head.
    pub cover: Cover,
    /// log2 of the number of extents in a region.
    pub shift: u32,
    /// The regions that may have dirty data on flash.
    pub set: Regions,
    /// What was lost with flash that the volume has no more.
    pub list: ListHead,
}

/// What the two blocks of a disk state together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// The newest complete mark.
    pub newest: Option<Mark>,
    /// Number of blocks that are not complete.
    pub damaged: u32,
}

impl Mark {
    /// Encodes the mark as a block of member `uuid` of the volume `volume`.
    pub fn encode(&self, volume: &[u8; 16], uuid: &[u8; 16]) -> [u8; BLOCK] {
        let mut b = [0; BLOCK];
        put(&mut b, 0, &MAGIC);
        put(&mut b, 4, &VERSION.to_le_bytes());
        put(&mut b, 8, volume);
        put(&mut b, 24, uuid);
        put(&mut b, 40, &self.number.to_le_bytes());
        b[52] = if self.cover.is_releasing() { 2 } else { 1 };
        if let Cover::Releasing(Some(sum)) = self.cover {
            b[54] = 1;
            put(&mut b, 56, &sum.to_le_bytes());
        }
        b[53] = self.shift as u8;
        put(&mut b, 64, &self.list.number.to_le_bytes());
        b[72] = self.list.place;
        b[73] = self.list.shift as u8;
        put(&mut b, 74, &(self.list.pages as u16).to_le_bytes());
        for (at, set) in [(SET_AT, &self.set), (LIST_AT, &self.list.regions)] {
            for (i, w) in set.0.iter().enumerate() {
                put(&mut b, at + i * 8, &w.to_le_bytes());
            }
        }
        seal(&mut b, CRC_AT);
        b
    }
    /// Decodes a block, if it is a complete mark of this member.
    pub fn decode(b: &[u8], volume: &[u8; 16], uuid: &[u8; 16]) -> Option<Mark> {
        if b[..4] != MAGIC || u32_at(b, 4) != VERSION {
            return None;
        }
        if id_at(b, 8) != *volume || id_at(b, 24) != *uuid {
            return None;
        }
        sealed(b, CRC_AT)?;
        let cover = match b[52] {
            1 => Cover::Covered,
            2 => Cover::Releasing((b[54] == 1).then(|| u32_at(b, 56))),
            _ => return None,
        };
        let set = |at: usize| Regions(core::array::from_fn(|i| u64_at(b, at + i * 8)));
        let m = Mark {
            number: u64_at(b, 40),
            cover,
            shift: b[53].into(),
            set: set(SET_AT),
            list: ListHead {
                number: u64_at(b, 64),
                place: b[72],
                shift: b[73].into(),
                pages: u16_at(b, 74).into(),
                regions: set(LIST_AT),
            },
        };
        let list = m.list.place <= 1 && m.list.shift <= SHIFT_MAX;
        (m.number <= COUNT_MAX && m.shift <= 32 && list).then_some(m)
    }
}

impl Superblock {
    /// The disks of a cache volume, which have a mark.
    pub fn disks(&self) -> impl Iterator<Item = MemberId> + '_ {
        let slowest = self.members.iter().map(|m| m.tier).max();
        let is_cache = self.kind == Kind::Cache;
        (0u8..)
            .zip(&self.members)
            .filter(move |(_, m)| is_cache && Some(m.tier) == slowest)
            .map(|(i, _)| MemberId(i))
    }
}

/// Reads the mark of a disk.
pub fn read<M: Media + ?Sized>(media: &mut M, sb: &Superblock, m: MemberId) -> Stated {
    let uuid = &sb.members[usize::from(m.0)].uuid;
    let mut stated = Stated::default();
    let mut b = vec![0; BLOCK];
    for n in 0..2 {
        let there = media.read(m, sb.mark_offset(m, n), &mut b).is_ok();
        match Mark::decode(&b, &sb.uuid, uuid).filter(|k| there && k.number % 2 == n) {
            None => stated.damaged += 1,
            Some(k) if stated.newest.as_ref().is_none_or(|o| o.number < k.number) => {
                stated.newest = Some(k);
            }
            Some(_) => {}
        }
    }
    stated
}

/// Writes `set` as the mark of a disk, durably, to both blocks: the older one first. Returns the number of the mark.
///
/// # Errors
/// The device fails.
pub fn write<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
    cover: Cover,
    set: Regions,
    list: ListHead,
) -> Result<u64, MediaError> {
    let mut number = read(media, sb, m).newest.map_or(0, |k| k.number);
    let uuid = &sb.members[usize::from(m.0)].uuid;
    for _ in 0..2 {
        number += 1;
        let mark = Mark {
            number,
            cover,
            shift: Regions::shift(sb.extents, sb.extent_shift),
            set,
            list,
        };
        media.write(m, sb.mark_offset(m, number), &mark.encode(&sb.uuid, uuid))?;
        media.flush(m)?;
    }
    Ok(number)
}

/// A disk, and the extents that may have lost data according to its mark, as ranges.
pub(super) type Suspects = (MemberId, Vec<Range<u32>>);

/// The extents that may have lost data on flash that is missing, according to the mark of each disk. `None`: a mark is damaged, so all may
/// have. `was_alone`: the last session had no flash.
pub(super) fn suspects<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    was_alone: bool,
) -> Option<Vec<Suspects>> {
    let disks: Vec<MemberId> = sb.disks().collect();
    let mut all = Vec::new();
    for m in disks {
        let stated = read(media, sb, m);
        let trusted = was_alone || stated.damaged == 0;
        let mark = stated.newest.filter(|_| trusted)?;
        all.push((m, mark.set.ranges(mark.shift, sb.extents)));
    }
    Some(all)
}

/// The extents of all disks together, ascending.
pub(super) fn joined(all: &[Suspects]) -> Vec<Range<u32>> {
    let mut set: Vec<Range<u32>> = all.iter().flat_map(|s| s.1.clone()).collect();
    set.sort_by_key(|r| (r.start, r.end));
    let mut out: Vec<Range<u32>> = Vec::new();
    for r in set {
        match out.last_mut().filter(|last| r.start <= last.end) {
            Some(last) => last.end = last.end.max(r.end),
            None => out.push(r),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage_detection() {
        let mut set = Regions::default();
        set.add(0);
        set.add(4095);
        let m = Mark {
            number: 7,
            cover: Cover::Releasing(Some(0x1234_5678)),
            shift: 9,
            set,
            list: ListHead {
                number: 77,
                place: 1,
                shift: 3,
                pages: 1024,
                regions: set,
            },
        };
        let b = m.encode(&[1; 16], &[2; 16]);
        assert_eq!(Mark::decode(&b, &[1; 16], &[2; 16]), Some(m));
        assert_eq!(Mark::decode(&b, &[1; 16], &[3; 16]), None);
        for i in 0..BLOCK {
            let mut c = b;
            c[i] ^= 1;
            assert_eq!(Mark::decode(&c, &[1; 16], &[2; 16]), None, "byte {i}");
        }
    }
}
