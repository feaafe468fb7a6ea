//! A member's counter, by which it is detected that a member is an older copy of itself.
//!
//! ```text
//! 0 magic "ISON" │ 4 version │ 8 volume uuid │ 24 member uuid │ 40 value │ 48 epoch │ 56 last flushed │ 64 crc │ 68 member
//! 70 rows │ 72 second superblock │ 80 rows: 0 member 2, 8 value 8 (16 bytes each, 16 at most)
//! ```
//! Value *v* is in block *v* mod 2 of the two blocks, so one of them is always complete, even if a write is torn. All fields fit into the
//! first sector. A value is durable on its member before any journal block, checkpoint or other member's counter states it. So a member
//! whose value is lower than a stated one is an older copy of itself.

use super::codec::{id_at, put, seal, sealed, u16_at, u32_at, u64_at};
use super::superblock::{COUNT_MAX, Superblock};
use super::{BLOCK, layout};
use crate::units::MemberId;
use crate::volume::geometry::{MEMBER_IDS_MAX, MEMBERS_MAX};
use alloc::vec::Vec;

const MAGIC: [u8; 4] = *b"ISON";
const VERSION: u32 = 2;
const CRC_AT: usize = 64;
const ROWS_AT: usize = 80;

/// The known values of members' counters: identity and value, each identity once.
pub type Known = Vec<(u16, u64)>;

/// One block of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Identity of the member in the volume.
    pub member: u16,
    /// Identity of the device.
    pub uuid: [u8; 16],
    /// The value, which is raised by one each time.
    pub value: u64,
    /// The session that wrote it.
    pub epoch: u64,
    /// Highest journal sequence number that was known to be durable at that time.
    pub last_flushed: u64,
    /// The place of the second superblock on this member, so that it can be found if the first is lost.
    pub copy_offset: u64,
    /// The values of all other members' counters that were known at that time.
    pub known: Known,
}

/// The byte offset of the block for value `v`.
pub fn offset(v: u64) -> u64 {
    (layout::HEAD_BLOCKS - 2 + v % 2) * BLOCK as u64
}

/// Writes the rows of `known` at byte `at`, at most 16 of them.
pub(super) fn put_known(b: &mut [u8], at: usize, known: &Known) {
    for (i, &(member, value)) in known.iter().take(MEMBERS_MAX).enumerate() {
        put(b, at + i * 16, &member.to_le_bytes());
        put(b, at + i * 16 + 8, &value.to_le_bytes());
    }
}

/// Reads `count` rows at byte `at`; `None` if their values are impossible.
pub(super) fn known_at(b: &[u8], at: usize, count: usize) -> Option<Known> {
    if count > MEMBERS_MAX {
        return None;
    }
    let rows = (0..count).map(|i| (u16_at(b, at + i * 16), u64_at(b, at + i * 16 + 8)));
    let known: Known = rows.collect();
    let fine = |&(m, v): &(u16, u64)| m < MEMBER_IDS_MAX && v <= COUNT_MAX;
    known.iter().all(fine).then_some(known)
}

/// Adds a value of a member's counter to `known`. A lower value than the known one is ignored.
pub fn learn(known: &mut Known, member: u16, value: u64) {
    match known.iter_mut().find(|k| k.0 == member) {
        Some(k) => k.1 = k.1.max(value),
        None => known.push((member, value)),
    }
}

impl Counter {
    /// The counter of the member at index `m` of the volume's member list.
    pub fn of(
        sb: &Superblock,
        m: MemberId,
        value: u64,
        last_flushed: u64,
        known: &Known,
    ) -> Counter {
        let entry = &sb.members[usize::from(m.0)];
        Counter {
            member: entry.id,
            uuid: entry.uuid,
            value,
            epoch: sb.epoch,
            last_flushed,
            copy_offset: sb.copy_offset(m),
            known: known.clone(),
        }
    }
    /// Encodes the counter as a block of the volume `volume`.
    pub fn encode(&self, volume: &[u8; 16]) -> [u8; BLOCK] {
        let mut b = [0; BLOCK];
        put(&mut b, 0, &MAGIC);
        put(&mut b, 4, &VERSION.to_le_bytes());
        put(&mut b, 8, volume);
        put(&mut b, 24, &self.uuid);
        put(&mut b, 40, &self.value.to_le_bytes());
        put(&mut b, 48, &self.epoch.to_le_bytes());
        put(&mut b, 56, &self.last_flushed.to_le_bytes());
        put(&mut b, 68, &self.member.to_le_bytes());
        let rows = self.known.len().min(MEMBERS_MAX) as u16;
        put(&mut b, 70, &rows.to_le_bytes());
        put(&mut b, 72, &self.copy_offset.to_le_bytes());
        put_known(&mut b, ROWS_AT, &self.known);
        seal(&mut b, CRC_AT);
        b
    }
    /// Decodes a block, if it is a complete counter block of this volume.
    pub fn decode(b: &[u8], volume: &[u8; 16]) -> Option<Counter> {
        Counter::decode_any(b).filter(|_| id_at(b, 8) == *volume)
    }
    /// Decodes a block of any volume.
    pub fn decode_any(b: &[u8]) -> Option<Counter> {
        if b.len() < BLOCK || b[..4] != MAGIC || u32_at(b, 4) != VERSION {
            return None;
        }
        sealed(&b[..BLOCK], CRC_AT)?;
        let c = Counter {
            member: u16_at(b, 68),
            uuid: id_at(b, 24),
            value: u64_at(b, 40),
            epoch: u64_at(b, 48),
            last_flushed: u64_at(b, 56),
            copy_offset: u64_at(b, 72),
            known: known_at(b, ROWS_AT, usize::from(u16_at(b, 70)))?,
        };
        let fine = c.value <= COUNT_MAX && c.last_flushed <= COUNT_MAX && c.member < MEMBER_IDS_MAX;
        fine.then_some(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn round_trip_and_damage_detection() {
        let c = Counter {
            member: 3,
            uuid: [5; 16],
            value: 77,
            epoch: 9,
            last_flushed: 1234,
            copy_offset: (1 << 20) - 4096,
            known: vec![(0, 5), (4000, 1 << 50)],
        };
        let b = c.encode(&[1; 16]);
        assert!(b[512..].iter().all(|&x| x == 0), "it fits a sector");
        assert_eq!(Counter::decode(&b, &[1; 16]), Some(c));
        assert_eq!(Counter::decode(&b, &[2; 16]), None);
        for i in 0..BLOCK {
            let mut d = b;
            d[i] ^= 8;
            assert_eq!(Counter::decode(&d, &[1; 16]), None, "byte {i}");
        }
        assert_ne!(offset(4), offset(5));
    }

    #[test]
    fn values_only_grow() {
        let mut known = vec![(1, 5)];
        learn(&mut known, 1, 4);
        learn(&mut known, 2, 1);
        learn(&mut known, 2, 9);
        assert_eq!(known, [(1, 5), (2, 9)]);
    }
}
