//! The first block of a device onto which a member is being copied while the volume is served. It says that the device is no member yet, and
//! that nothing on it is needed, so the copy may begin anew there.
//!
//! ```text
//! 0 magic "ISOMCOPY" │ 8 version │ 12 crc │ 16 volume uuid │ 32 uuid of the member │ 48 its place │ 49 length of the name │ 64 name
//! ```

use super::BLOCK;
use super::codec::{id_at, put, seal, sealed, u32_at};
use super::superblock::Superblock;
use crate::units::MemberId;
use alloc::string::String;

const MAGIC: [u8; 8] = *b"ISOMCOPY";
const VERSION: u32 = 1;
const CRC_AT: usize = 12;
const NAME_AT: usize = 64;
/// Longest name of a volume that is stated, in bytes; a longer one is cut.
const NAME_MAX: usize = 128;

/// An unfinished copy of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The identity of the volume.
    pub volume: [u8; 16],
    /// The identity of the member that was being copied.
    pub member: [u8; 16],
    /// Its place in the list of members.
    pub place: MemberId,
    /// The name of the volume.
    pub name: String,
}

impl Unfinished {
    /// A copy of the member in this place of the volume of `sb`. `None`: it has no such member.
    pub fn of(sb: &Superblock, place: MemberId) -> Option<Unfinished> {
        let member = sb.members.get(usize::from(place.0))?.uuid;
        let mut name = sb.name.clone();
        while name.len() > NAME_MAX {
            name.pop();
        }
        Some(Unfinished {
            volume: sb.uuid,
            member,
            place,
            name,
        })
    }

    /// The block.
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut b = [0; BLOCK];
        put(&mut b, 0, &MAGIC);
        put(&mut b, 8, &VERSION.to_le_bytes());
        put(&mut b, 16, &self.volume);
        put(&mut b, 32, &self.member);
        let name = &self.name.as_bytes()[..self.name.len().min(NAME_MAX)];
        (b[48], b[49]) = (self.place.0, name.len() as u8);
        put(&mut b, NAME_AT, name);
        seal(&mut b, CRC_AT);
        b
    }

    /// Reads the first block of a device. `None`: it is something else, or damaged.
    pub fn decode(block: &[u8]) -> Option<Unfinished> {
        let is_one = block.len() == BLOCK && block.starts_with(&MAGIC);
        if !is_one || sealed(block, CRC_AT).is_none() || u32_at(block, 8) != VERSION {
            return None;
        }
        let name = block.get(NAME_AT..NAME_AT + usize::from(block[49]))?;
        Some(Unfinished {
            volume: id_at(block, 16),
            member: id_at(block, 32),
            place: MemberId(block[48]),
            name: String::from_utf8_lossy(name).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_noticed() {
        let copy = Unfinished {
            volume: [7; 16],
            member: [9; 16],
            place: MemberId(2),
            name: "v".into(),
        };
        let block = copy.encode();
        assert_eq!(Unfinished::decode(&block), Some(copy));
        assert!(Superblock::decode(&block).is_err());
        for at in [0, 8, 12, 16, 48, 49, 64, BLOCK - 1] {
            let mut damaged = block;
            damaged[at] ^= 0x80;
            assert_eq!(Unfinished::decode(&damaged), None, "byte {at}");
        }
        assert_eq!(Unfinished::decode(&block[..512]), None);
        assert_eq!(Unfinished::decode(&[0; BLOCK]), None);
    }
}
