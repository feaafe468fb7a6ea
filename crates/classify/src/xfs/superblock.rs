//! The superblock: the geometry of an XFS file system, and the decoding of block and inode numbers.

use super::XfsError;

pub(super) fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

pub(super) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

pub(super) fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) << 32 | u64::from(u32_at(b, at + 4))
}

/// Bytes of a superblock that are read.
pub(super) const BYTES: usize = 512;
/// Most allocation groups that this reader accepts.
const GROUPS_MAX: u32 = 1 << 20;

/// The fields of a superblock that determine the layout. They were checked: no field points outside of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// log2 of the block size in bytes: 9…16.
    pub block_shift: u32,
    /// Number of blocks of the file system.
    pub blocks: u64,
    /// Number of allocation groups.
    pub groups: u32,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// Version 5: metadata includes its own block number, its owner and a checksum.
    pub(super) v5: bool,
    pub(super) sector: u64,
    pub(super) inode_shift: u32,
    pub(super) group_blocks: u32,
    /// First block and number of blocks of the log, if it is internal.
    pub(super) log: Option<(u64, u64)>,
    group_shift: u32,
}

/// Incompatible features of version 5 of which this reader knows what they mean for the layout: file types in directories, sparse inode
/// chunks, a UUID of its own for metadata, wide times, repair needed, wide extent counts, exchange of ranges, parent pointers.
const INCOMPAT_KNOWN: u32 = 0xff;

impl Superblock {
    /// Parses the first bytes of a file system in a room of `bytes`.
    ///
    /// # Errors
    /// It is not a superblock, or the error names the invalid field; or the file system has features that change the layout in a way that is
    /// unknown here.
    pub fn parse(b: &[u8; BYTES], bytes: u64) -> Result<Superblock, XfsError> {
        let bad = |what| Err(XfsError::NotXfs(what));
        if &b[..4] != b"XFSB" {
            return bad("magic number");
        }
        let version = u16_at(b, 100) & 15;
        if version != 4 && version != 5 {
            return bad("version");
        }
        let (block_shift, inode_shift) = (u32::from(b[120]), u32::from(b[122]));
        let shifts = (9..=16).contains(&block_shift) && (8..=11).contains(&inode_shift);
        if !shifts || u32_at(b, 4) != 1 << block_shift || inode_shift > block_shift {
            return bad("block or inode size");
        }
        let sector = u64::from(u16_at(b, 102));
        if !sector.is_power_of_two() || !(512..=1 << block_shift.min(15)).contains(&sector) {
            return bad("sector size");
        }
        let (blocks, groups, group_blocks) = (u64_at(b, 8), u32_at(b, 88), u32_at(b, 84));
        let group_shift = u32::from(b[124]);
        let all = u64::from(groups) * u64::from(group_blocks);
        let before = all.saturating_sub(u64::from(group_blocks));
        if groups == 0 || groups > GROUPS_MAX || blocks > all || blocks <= before {
            return bad("allocation groups");
        }
        if group_shift > 31 || u64::from(group_blocks) > 1 << group_shift {
            return bad("size of allocation groups");
        }
        if blocks > bytes >> block_shift {
            return bad("more blocks than the volume has");
        }
        let mut sb = Superblock {
            block_shift,
            blocks,
            groups,
            uuid: b[32..48].try_into().unwrap_or_default(),
            v5: version == 5,
            sector,
            inode_shift,
            group_blocks,
            log: None,
            group_shift,
        };
        let (first, n) = (u64_at(b, 48), u64::from(u32_at(b, 96)));
        if first != 0 {
            sb.log = sb.blocks_at(first, n).map(|at| (at, n));
            if sb.log.is_none() {
                return bad("log");
            }
        }
        match u32_at(b, 216) & !INCOMPAT_KNOWN {
            unknown if sb.v5 && unknown != 0 => Err(XfsError::Unknown(unknown)),
            _ => Ok(sb),
        }
    }

    /// Number of blocks of a group; the last group may be shorter.
    pub(super) fn length_of(&self, group: u32) -> u32 {
        let first = u64::from(group) * u64::from(self.group_blocks);
        (self.blocks - first).min(u64::from(self.group_blocks)) as u32
    }

    /// Converts block `at` of a group to a block of the file system; `None` if the group has no such block.
    pub(super) fn in_group(&self, group: u32, at: u32) -> Option<u64> {
        let known = group < self.groups && at < self.length_of(group);
        known.then(|| u64::from(group) * u64::from(self.group_blocks) + u64::from(at))
    }

    /// `n` blocks from a number in the form that files and the log use (group in the upper bits, block of the group in the lower bits).
    pub(super) fn blocks_at(&self, number: u64, n: u64) -> Option<u64> {
        let group = u32::try_from(number >> self.group_shift).ok()?;
        let at = (number & ((1 << self.group_shift) - 1)) as u32;
        let first = self.in_group(group, at)?;
        (u64::from(at) + n <= u64::from(self.length_of(group))).then_some(first)
    }

    /// log2 of the number of inodes per block.
    pub(super) fn inodes_shift(&self) -> u32 {
        self.block_shift - self.inode_shift
    }

    /// Block of an inode, and offset in the block, from the inode number.
    pub(super) fn inode_at(&self, number: u64) -> Option<(u64, usize)> {
        let block = self.blocks_at(number >> self.inodes_shift(), 1)?;
        let i = number & ((1 << self.inodes_shift()) - 1);
        Some((block, (i << self.inode_shift) as usize))
    }

    /// Group of a block, and block in the group.
    pub(super) fn group_of(&self, block: u64) -> (u32, u32) {
        let per = u64::from(self.group_blocks);
        ((block / per) as u32, (block % per) as u32)
    }

    /// Number of blocks of the headers at the beginning of every group: superblock, free space, inodes, free list, one sector each.
    pub(super) fn header_blocks(&self) -> u64 {
        (4 * self.sector).div_ceil(1 << self.block_shift)
    }
}
