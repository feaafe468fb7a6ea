//! Group descriptors: the places of bitmaps and inode tables.

use super::{Bytes, ExtError, Superblock};

const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;

/// A group. All of its block numbers are inside the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    unused_inodes: u32,
    flags: u16,
}

impl Group {
    fn parse(b: &[u8], sb: &Superblock) -> Option<Group> {
        let low = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let wide = sb.is_64bit();
        let place = |at: usize| {
            u64::from(low(at))
                | if wide {
                    u64::from(low(at + 0x20)) << 32
                } else {
                    0
                }
        };
        let high = if wide { u32::from(half(0x32)) << 16 } else { 0 };
        let group = Group {
            block_bitmap: place(0),
            inode_bitmap: place(4),
            inode_table: place(8),
            unused_inodes: u32::from(half(0x1c)) | high,
            flags: half(0x12),
        };
        let sound = group.block_bitmap.max(group.inode_bitmap) < sb.blocks
            && group.inode_table.saturating_add(sb.table_blocks()) <= sb.blocks
            && group
                .block_bitmap
                .min(group.inode_bitmap)
                .min(group.inode_table)
                > 0;
        sound.then_some(group)
    }

    /// The number of inodes in the table that may be in use; the inodes after them were never written.
    pub fn used_inodes(&self, sb: &Superblock) -> u64 {
        if self.inode_table == 0 || sb.has_uninit() && self.flags & INODE_UNINIT != 0 {
            return 0;
        }
        let unused = if sb.has_uninit() {
            self.unused_inodes
        } else {
            0
        };
        u64::from(sb.inodes_per_group.saturating_sub(unused))
    }

    /// Whether the block bitmap on the volume is valid.
    pub fn has_bitmap(&self, sb: &Superblock) -> bool {
        self.block_bitmap != 0 && !(sb.has_uninit() && self.flags & BLOCK_UNINIT != 0)
    }
}

/// All groups, with an index from blocks to groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// Block bitmaps and the starts of inode tables, each with its group, in order.
    bitmaps: Vec<(u64, u32)>,
    tables: Vec<(u64, u32)>,
    /// Block bitmaps, as they were when last read.
    pub seen: Vec<Option<Box<[u8]>>>,
}

impl Groups {
    pub fn read(sb: &Superblock, start: u64, from: &mut dyn Bytes) -> Result<Groups, ExtError> {
        let mut groups = Groups {
            all: vec![Group::default(); sb.groups as usize],
            ..Groups::default()
        };
        groups.seen.resize(sb.groups as usize, None);
        for i in 0..sb.descriptor_blocks() {
            groups.read_part(sb, start, from, i)?;
        }
        groups.sort();
        Ok(groups)
    }

    /// Reads the descriptors in part `i`. Returns the groups whose descriptor has changed, with the previous descriptor.
    pub fn read_part(
        &mut self,
        sb: &Superblock,
        start: u64,
        from: &mut dyn Bytes,
        i: u64,
    ) -> Result<Vec<(u32, Group)>, ExtError> {
        let mut changed = Vec::new();
        let block = sb.descriptor_block(i);
        if block >= sb.blocks {
            return Ok(changed);
        }
        let mut buf = vec![0; 1 << sb.block_shift];
        from.read(start + (block << sb.block_shift), &mut buf)?;
        let per = sb.descriptors_per_block();
        for (k, raw) in buf
            .chunks_exact(usize::from(sb.descriptor_size))
            .enumerate()
        {
            let Some(slot) = self.all.get_mut((i * per) as usize + k) else {
                break;
            };
            // The descriptor is half written or damaged. The group has no classes until the descriptor is valid.
            let group = Group::parse(raw, sb).unwrap_or_default();
            if *slot != group {
                changed.push(((i * per) as u32 + k as u32, *slot));
                *slot = group;
            }
        }
        Ok(changed)
    }

    /// To be called after descriptors have changed.
    pub fn sort(&mut self) {
        let numbered = || (0u32..).zip(&self.all).filter(|(_, g)| g.inode_table != 0);
        self.bitmaps = numbered().map(|(i, g)| (g.block_bitmap, i)).collect();
        self.tables = numbered().map(|(i, g)| (g.inode_table, i)).collect();
        self.bitmaps.sort_unstable();
        self.tables.sort_unstable();
    }

    pub fn len(&self) -> u32 {
        self.all.len() as u32
    }

    pub fn get(&self, group: u32) -> &Group {
        &self.all[group as usize]
    }

    /// The group whose block bitmap is in that block.
    pub fn of_bitmap(&self, block: u64) -> Option<u32> {
        let i = self.bitmaps.binary_search_by_key(&block, |b| b.0).ok()?;
        Some(self.bitmaps[i].1)
    }

    /// The group whose inode table includes the block, and the index of the block in the table.
    pub fn of_table(&self, block: u64, sb: &Superblock) -> Option<(u32, u64)> {
        let i = self
            .tables
            .partition_point(|t| t.0 <= block)
            .checked_sub(1)?;
        let (start, group) = self.tables[i];
        (block - start < sb.table_blocks()).then_some((group, block - start))
    }

    pub fn memory(&self) -> usize {
        let seen: usize = self.seen.iter().flatten().map(|b| b.len()).sum();
        seen + self.all.capacity() * (size_of::<Group>() + 16 + 32)
    }
}
