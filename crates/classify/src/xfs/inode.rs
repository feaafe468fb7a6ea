//! Inodes, and the extents of their forks.

use super::superblock::{Superblock, u16_at, u32_at, u64_at};
use crate::classes;

const MAGIC: u16 = 0x494e;
const CORE_V2: usize = 100;
const CORE_V3: usize = 176;
/// `di_flags`: the data is on the real-time device.
const REALTIME: u16 = 1;
/// `di_flags2`: the extent counts are wide.
const WIDE_COUNTS: u64 = 16;

/// The location of a fork's extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fork<'a> {
    /// In the inode, as a list of records.
    Extents(&'a [u8]),
    /// In a tree, with this root.
    Tree(&'a [u8]),
    /// There are none: the data is in the inode itself, or the fork is empty.
    None,
}

/// The fields of an inode that refer to blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode<'a> {
    /// The class of its data.
    pub class: u8,
    pub data: Fork<'a>,
    pub attributes: Fork<'a>,
}

impl<'a> Inode<'a> {
    /// Parses an inode; `None` if it is free or invalid.
    pub fn parse(raw: &'a [u8]) -> Option<Inode<'a>> {
        if raw.len() < 256 || u16_at(raw, 0) != MAGIC {
            return None;
        }
        let (mode, version) = (u16_at(raw, 2), raw[4]);
        let class = match mode & 0o170_000 {
            0o040_000 => classes::DIRECTORY,
            0o100_000 | 0o120_000 => classes::of_file_size(u64_at(raw, 56)),
            _ => return None,
        };
        let core = match version {
            1 | 2 => CORE_V2,
            3 => CORE_V3,
            _ => return None,
        };
        let wide = version == 3 && u64_at(raw, 120) & WIDE_COUNTS != 0;
        let (extents, more) = if wide {
            (u64_at(raw, 24), u64::from(u32_at(raw, 76)))
        } else {
            (u64::from(u32_at(raw, 76)), u64::from(u16_at(raw, 80)))
        };
        let literal = &raw[core..];
        let split = usize::from(raw[82]) * 8;
        let (data, attributes) = match split {
            0 => (literal, &literal[literal.len()..]),
            at if at <= literal.len() => literal.split_at(at),
            _ => return None,
        };
        let realtime = u16_at(raw, 90) & REALTIME != 0;
        Some(Inode {
            class,
            data: if realtime {
                Fork::None
            } else {
                fork(data, raw[5], extents)
            },
            attributes: fork(attributes, raw[83], more),
        })
    }
}

fn fork(bytes: &[u8], format: u8, extents: u64) -> Fork<'_> {
    match format {
        2 => {
            let room = (bytes.len() / 16) as u64;
            Fork::Extents(&bytes[..extents.min(room) as usize * 16])
        }
        3 if bytes.len() >= 4 => Fork::Tree(bytes),
        _ => Fork::None,
    }
}

/// The first block and the number of blocks of a record; `None` if it is outside of the file system.
pub(super) fn extent(record: &[u8], sb: &Superblock) -> Option<(u64, u64)> {
    let (high, low) = (u64_at(record, 0), u64_at(record, 8));
    let number = (high & 0x1ff) << 43 | low >> 21;
    let n = low & 0x1f_ffff;
    sb.blocks_at(number, n).map(|at| (at, n))
}
