//! What lies in the store: names, and the content of each kind of object. docs/object-store-format.md describes the same for people.
//!
//! | name | content |
//! |---|---|
//! | `isotherm-store.json` | [`Description`]: never changed |
//! | `manifest/N` (20 digits) | [`Manifest`], sealed; the highest N is the state; each is made once, by a conditional PUT |
//! | `map/TOKEN/…` | places of blocks: deltas, segments and the index of the segments |
//! | `data/TOKEN/EPOCH-NUMBER` | blocks with their checksums |

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Bytes of a block, the unit of the map.
pub const BLOCK: u64 = 4096;
/// Blocks of a group; their checksums follow them. A group is what a read fetches and checks.
pub const GROUP: u64 = 64;
/// Bytes of a whole group with its checksums.
pub const GROUP_BYTES: u64 = GROUP * (BLOCK + 4);
/// The version of this layout.
pub const FORMAT: u32 = 1;
/// The description's name.
pub const DESCRIPTION: &str = "isotherm-store.json";
/// The first line of a map.
const MAP_HEAD: &str = "isotherm-store map 1";

/// What a store is, fixed at its creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// [`FORMAT`].
    pub format: u32,
    /// 32 hexadecimal digits, random.
    pub id: String,
    /// Size of the disk in bytes, a multiple of 4096.
    pub bytes: u64,
    /// Largest payload of a data object in bytes, 1 to 32 MiB.
    pub object_bytes: u64,
    /// Bytes of the disk that one segment of the map describes.
    pub segment_bytes: u64,
}

/// A reference to an object that is read whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// CRC-32 of its content.
    pub crc: u32,
    /// Number of lines that it has, for a map: what it costs to keep it.
    pub lines: u64,
    /// Number of the segment, for parts of the index.
    #[serde(default)]
    pub segment: u64,
}

/// The state of the disk at one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The store's id.
    pub id: String,
    /// Its number, also in its name.
    pub number: u64,
    /// The fence token of its writer.
    pub token: String,
    /// The life of the writer's spool: see spool.rs.
    pub spool: String,
    /// Number of commits of data before it.
    pub epoch: u64,
    /// The last write of the spool that is in it.
    pub sequence: u64,
    /// Seconds since 1970 on the writer's clock, for people.
    pub written: u64,
    /// The index of the segments, if there is one.
    pub index: Option<Part>,
    /// Changes since the segments, oldest first.
    pub deltas: Vec<Part>,
}

/// The name of manifest `number`.
pub fn manifest_name(number: u64) -> String {
    format!("manifest/{number:020}")
}

/// A text with its checksum as its last line.
pub fn seal(text: &str) -> Vec<u8> {
    format!("{text}\ncrc32 {:08x}\n", crc32fast::hash(text.as_bytes())).into_bytes()
}

/// The text of what [`seal`] made; `None` if it is damaged.
pub fn unseal(bytes: &[u8]) -> Option<&str> {
    let (text, last) = std::str::from_utf8(bytes).ok()?.rsplit_once("\ncrc32 ")?;
    let crc = u32::from_str_radix(last.strip_suffix('\n')?, 16).ok()?;
    (crc == crc32fast::hash(text.as_bytes())).then_some(text)
}

/// The checksum of a block in the object `name`: a block of another object is noticed.
pub fn block_crc(name: &str, block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(name.as_bytes());
    hasher.update(block);
    hasher.finalize()
}

/// The bytes of the data object `name` with this payload of whole blocks.
pub fn data_object(name: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + payload.len() / 1024 + 4);
    for group in payload.chunks((GROUP * BLOCK) as usize) {
        bytes.extend_from_slice(group);
        for block in group.chunks(BLOCK as usize) {
            bytes.extend_from_slice(&block_crc(name, block).to_le_bytes());
        }
    }
    bytes
}

/// Bytes of a data object with `blocks` blocks.
pub fn object_len(blocks: u64) -> u64 {
    blocks * (BLOCK + 4)
}

/// Checks the bytes of one group and leaves its payload; false if a block is not what was written.
pub fn open_group(name: &str, group: &mut Vec<u8>) -> bool {
    let blocks = group.len() / (BLOCK + 4) as usize;
    if blocks == 0 || group.len() as u64 != blocks as u64 * (BLOCK + 4) {
        return false;
    }
    let (payload, sums) = group.split_at(blocks * BLOCK as usize);
    let whole = payload
        .chunks(BLOCK as usize)
        .zip(sums.chunks(4))
        .all(|(block, sum)| block_crc(name, block).to_le_bytes() == sum);
    group.truncate(blocks * BLOCK as usize);
    whole
}

/// One line of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An object, which later lines call by its number in this map, counted from 0: name, blocks.
    Object(String, u64),
    /// First block, blocks, number of the object, first block there.
    Extent(u64, u64, usize, u64),
    /// First block and blocks that read as zeros.
    Hole(u64, u64),
}

/// Writes a map.
pub struct MapText(String, u64);

impl Default for MapText {
    fn default() -> MapText {
        MapText(format!("{MAP_HEAD}\n"), 0)
    }
}

impl MapText {
    /// Adds a line.
    pub fn push(&mut self, line: &Line) {
        self.1 += 1;
        // Writing to a text does not fail.
        let _ = match line {
            Line::Object(name, blocks) => writeln!(self.0, "o {name} {blocks}"),
            Line::Extent(start, len, object, first) => {
                writeln!(self.0, "e {start} {len} {object} {first}")
            }
            Line::Hole(start, len) => writeln!(self.0, "h {start} {len}"),
        };
    }

    /// The text, and the reference to it under this name.
    pub fn finish(self, name: String, segment: u64) -> (Vec<u8>, Part) {
        let bytes = self.0.into_bytes();
        let part = Part {
            crc: crc32fast::hash(&bytes),
            lines: self.1,
            name,
            segment,
        };
        (bytes, part)
    }
}

/// Reads a map, whose ranges must lie within `blocks` blocks; `None` if a line is not one.
pub fn map_lines(bytes: &[u8], blocks: u64) -> Option<Vec<Line>> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()? != MAP_HEAD {
        return None;
    }
    let mut objects: Vec<u64> = Vec::new();
    let mut found = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words.get(i)?.parse::<u64>().ok();
        let inside =
            |start: u64, len: u64| len > 0 && start.checked_add(len).is_some_and(|e| e <= blocks);
        found.push(match (*words.first()?, words.len()) {
            ("o", 3) => {
                objects.push(number(2)?);
                Line::Object(words[1].to_owned(), number(2)?)
            }
            ("h", 3) if inside(number(1)?, number(2)?) => Line::Hole(number(1)?, number(2)?),
            ("e", 5) if inside(number(1)?, number(2)?) => {
                let (object, first) = (number(3)? as usize, number(4)?);
                if first.checked_add(number(2)?)? > *objects.get(object)? {
                    return None;
                }
                Line::Extent(number(1)?, number(2)?, object, first)
            }
            _ => return None,
        });
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let sealed = seal("{\"number\": 3}");
        assert_eq!(unseal(&sealed), Some("{\"number\": 3}"));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(unseal(&bad), None, "byte {at}");
        }
        let object = data_object("data/a", &[7; 3 * 4096]);
        assert_eq!(object.len() as u64, object_len(3));
        for at in (0..object.len())
            .step_by(97)
            .chain(object.len() - 12..object.len())
        {
            let mut bad = object.clone();
            bad[at] ^= 16;
            assert!(!open_group("data/a", &mut bad), "byte {at}");
        }
        assert!(!open_group("data/b", &mut object.clone()));
        assert!(open_group("data/a", &mut object.clone()));
    }

    #[test]
    fn lines_outside_of_the_disk_or_the_object_are_refused() {
        let map = |text: &str| map_lines(format!("{MAP_HEAD}\n{text}").as_bytes(), 100);
        assert!(map("o data/a 8\ne 92 8 0 0\nh 0 100\n").is_some());
        for bad in [
            "e 0 1 0 0",
            "o data/a 8\ne 0 8 0 1",
            "o data/a 8\ne 93 8 0 0",
            "h 100 1",
            "h 1 18446744073709551615",
            "h 0 0",
            "x",
        ] {
            assert!(map(bad).is_none(), "{bad}");
        }
    }
}
