//! A row of the table of members.

use super::super::codec::{id_at, put, u16_at, u32_at, u64_at};
use super::{HINT_BYTES, SuperblockError};
use crate::units::TierId;
use alloc::string::String;

/// The state of a member in the member table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberState {
    /// It contains part of the volume.
    #[default]
    InUse,
    /// It was removed. Its identity is never given to another member.
    Gone,
    /// It is being added, and no data on it is needed yet.
    Joining,
}

impl MemberState {
    fn code(self) -> u8 {
        match self {
            MemberState::InUse => 1,
            MemberState::Gone => 2,
            MemberState::Joining => 3,
        }
    }
    fn from_code(c: u8) -> Option<MemberState> {
        let all = [MemberState::InUse, MemberState::Gone, MemberState::Joining];
        all.into_iter().find(|s| s.code() == c)
    }
}

/// A row of the member table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberEntry {
    /// Identity of the device.
    pub uuid: [u8; 16],
    /// The member's number in records, which is never given to another device of this volume.
    pub id: u16,
    /// Its state.
    pub state: MemberState,
    /// Its tier.
    pub tier: TierId,
    /// Number of its slots.
    pub slots: u32,
    /// First byte of its slots.
    pub data_offset: u64,
    /// Number of bytes that the volume uses. The device must be at least this large.
    pub bytes: u64,
    /// Offset and size of the space for checksums of its blocks. 0: there is no such space.
    pub sums: (u64, u64),
    /// A value that its counter had reached when the superblock was written.
    pub counter: u64,
    /// First byte of what lies behind the slots; 0: nothing. In a tiering volume these are the checkpoint regions, which move there when the
    /// volume grows. On flash of a cache volume these are rings and regions, which move there when the flash grows. On its disks it is the tail:
    /// stash, mark and second superblock.
    pub behind_at: u64,
    /// The path at which it was last found. It is only a hint and is never trusted.
    pub hint: String,
}

pub(super) fn text(b: &[u8]) -> String {
    let end = b.iter().position(|&c| c == 0).unwrap_or(b.len());
    String::from_utf8_lossy(&b[..end]).into_owned()
}

pub(super) fn put_text(b: &mut [u8], at: usize, room: usize, s: &str) {
    let mut n = s.len().min(room);
    while !s.is_char_boundary(n) {
        n -= 1;
    }
    put(b, at, &s.as_bytes()[..n]);
}

pub(super) fn encode_row(m: &MemberEntry, b: &mut [u8]) {
    put(b, 0, &m.uuid);
    put(b, 16, &m.id.to_le_bytes());
    b[18] = m.state.code();
    b[19] = m.tier.0;
    put(b, 20, &m.slots.to_le_bytes());
    put(b, 24, &m.data_offset.to_le_bytes());
    put(b, 32, &m.bytes.to_le_bytes());
    put(b, 40, &m.sums.0.to_le_bytes());
    put(b, 48, &m.sums.1.to_le_bytes());
    put(b, 56, &m.counter.to_le_bytes());
    put_text(b, 64, HINT_BYTES, &m.hint);
    put(b, 152, &m.behind_at.to_le_bytes());
}

/// Decodes a row of the member table; `None` if it is empty.
pub(super) fn decode_row(b: &[u8]) -> Result<Option<MemberEntry>, SuperblockError> {
    if b[18] == 0 {
        return Ok(None);
    }
    let state = MemberState::from_code(b[18])
        .ok_or(SuperblockError::Impossible("a member in an unknown state"))?;
    Ok(Some(MemberEntry {
        uuid: id_at(b, 0),
        id: u16_at(b, 16),
        state,
        tier: TierId(b[19]),
        slots: u32_at(b, 20),
        data_offset: u64_at(b, 24),
        bytes: u64_at(b, 32),
        sums: (u64_at(b, 40), u64_at(b, 48)),
        counter: u64_at(b, 56),
        hint: text(&b[64..64 + HINT_BYTES]),
        behind_at: u64_at(b, 152),
    }))
}
