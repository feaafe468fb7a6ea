//! The superblock: its fields that determine the layout.

use super::{ExtError, JOURNAL_INODE};

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

const MAGIC: u16 = 0xef53;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const INCOMPAT_JOURNAL_DEV: u32 = 8;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_MMP: u32 = 0x100;
/// Features of which this reader knows what they mean for the layout: file types in directories, recovery, external journal, meta_bg,
/// extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir, inline_data, encrypt, casefold.
const INCOMPAT_KNOWN: u32 = 0x2
    | 0x4
    | INCOMPAT_JOURNAL_DEV
    | INCOMPAT_META_BG
    | 0x40
    | INCOMPAT_64BIT
    | INCOMPAT_MMP
    | 0x200
    | 0x400
    | 0x2000
    | 0x4000
    | 0x8000
    | 0x1_0000
    | 0x2_0000;
const COMPAT_HAS_JOURNAL: u32 = 4;
const RO_SPARSE_SUPER: u32 = 1;
const RO_GDT_CSUM: u32 = 0x10;
const RO_BIGALLOC: u32 = 0x200;
const RO_METADATA_CSUM: u32 = 0x400;
/// 512 TiB in groups of 128 MiB. A file system with more groups is damaged, or too large for this reader.
const GROUPS_MAX: u64 = 1 << 22;

/// The fields of a superblock that determine the layout. They were checked: no field points outside of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// log2 of the block size in bytes: 10…16.
    pub block_shift: u32,
    /// Blocks per cluster, a power of two; more than 1 with bigalloc.
    pub cluster_blocks: u64,
    /// Number of blocks of the file system.
    pub blocks: u64,
    /// Number of groups.
    pub groups: u32,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    pub(super) first_data_block: u64,
    pub(super) blocks_per_group: u64,
    pub(super) inodes_per_group: u32,
    pub(super) inode_size: u16,
    pub(super) journal_inode: u32,
    pub(super) mmp_block: u64,
    pub(super) descriptor_size: u16,
    reserved_descriptors: u64,
    first_meta_group: u64,
    backups: [u32; 2],
    compat: u32,
    incompat: u32,
    ro_compat: u32,
}

impl Superblock {
    /// Parses the 1024 bytes at byte 1024 of a file system in a room of `bytes`.
    ///
    /// # Errors
    /// It is not a superblock, or the error names the invalid field; or the file system has features that change the layout in a way that is
    /// unknown here.
    #[expect(clippy::too_many_lines, reason = "fields in their order")]
    pub fn parse(b: &[u8; 1024], bytes: u64) -> Result<Superblock, ExtError> {
        let bad = |what| Err(ExtError::NotExt(what));
        if u16_at(b, 0x38) != MAGIC {
            return bad("no magic number");
        }
        let (compat, incompat, ro_compat) = (u32_at(b, 0x5c), u32_at(b, 0x60), u32_at(b, 0x64));
        let log_block = u32_at(b, 0x18);
        if log_block > 6 {
            return bad("s_log_block_size");
        }
        let block_shift = 10 + log_block;
        let block_bytes = 1u64 << block_shift;
        let mut blocks = u64::from(u32_at(b, 4));
        if incompat & INCOMPAT_64BIT != 0 {
            blocks |= u64::from(u32_at(b, 0x150)) << 32;
        }
        if blocks == 0 || blocks > bytes >> block_shift {
            return bad("s_blocks_count: more than there is room for");
        }
        let bigalloc = ro_compat & RO_BIGALLOC != 0;
        let log_cluster = u32_at(b, 0x1c);
        if bigalloc && !(log_block..=20).contains(&log_cluster) {
            return bad("s_log_cluster_size");
        }
        let cluster_blocks = if bigalloc {
            1 << (log_cluster - log_block)
        } else {
            1
        };
        let first_data_block = u64::from(u32_at(b, 0x14));
        let blocks_per_group = u64::from(u32_at(b, 0x20));
        let inodes_per_group = u32_at(b, 0x28);
        let old = u32_at(b, 0x4c) == 0;
        let inode_size = if old { 128 } else { u16_at(b, 0x58) };
        let descriptor_size = match incompat & INCOMPAT_64BIT {
            0 => 32,
            _ => u16_at(b, 0xfe),
        };
        let has_journal = compat & COMPAT_HAS_JOURNAL != 0;
        let inside = has_journal && u32_at(b, 0xe0) != 0;
        let mut sb = Superblock {
            block_shift,
            cluster_blocks,
            blocks,
            groups: 0,
            uuid: std::array::from_fn(|i| b[0x68 + i]),
            first_data_block,
            blocks_per_group,
            inodes_per_group,
            inode_size,
            journal_inode: if inside {
                u32_at(b, 0xe0)
            } else {
                JOURNAL_INODE
            },
            mmp_block: 0,
            descriptor_size,
            reserved_descriptors: u64::from(u16_at(b, 0xce)),
            first_meta_group: u64::from(u32_at(b, 0x104)),
            backups: [u32_at(b, 0x24c), u32_at(b, 0x250)],
            compat,
            incompat,
            ro_compat,
        };
        match incompat & !INCOMPAT_KNOWN {
            0 => {}
            unknown => return Err(ExtError::Unknown(unknown)),
        }
        if sb.is_journal_device() {
            return Ok(sb);
        }
        if incompat & INCOMPAT_MMP != 0 {
            sb.mmp_block = u64::from(u32_at(b, 0x168)) | u64::from(u32_at(b, 0x16c)) << 32;
        }
        if first_data_block > 1 || first_data_block >= blocks {
            return bad("s_first_data_block");
        }
        let most = 8 * block_bytes;
        if !(256..=most * cluster_blocks).contains(&blocks_per_group)
            || !blocks_per_group.is_multiple_of(cluster_blocks)
        {
            return bad("s_blocks_per_group");
        }
        if !inode_size.is_power_of_two() || !(128..=block_bytes).contains(&u64::from(inode_size)) {
            return bad("s_inode_size");
        }
        if !(1..=most).contains(&u64::from(inodes_per_group)) {
            return bad("s_inodes_per_group");
        }
        if !descriptor_size.is_power_of_two() || !(32..=1024).contains(&descriptor_size) {
            return bad("s_desc_size");
        }
        if sb.reserved_descriptors > block_bytes / 4 {
            return bad("s_reserved_gdt_blocks");
        }
        let groups = (blocks - first_data_block).div_ceil(blocks_per_group);
        if groups > GROUPS_MAX || groups * u64::from(inodes_per_group) > u64::from(u32::MAX) {
            return bad("more groups or inodes than can be");
        }
        sb.groups = groups as u32;
        Ok(sb)
    }

    /// Whether it is the external journal of another file system.
    pub fn is_journal_device(&self) -> bool {
        self.incompat & INCOMPAT_JOURNAL_DEV != 0
    }

    /// Whether group descriptors tell which parts of a group were never used.
    pub(super) fn has_uninit(&self) -> bool {
        self.ro_compat & (RO_GDT_CSUM | RO_METADATA_CSUM) != 0
    }

    /// Whether descriptors have upper halves.
    pub(super) fn is_64bit(&self) -> bool {
        self.incompat & INCOMPAT_64BIT != 0 && self.descriptor_size >= 64
    }

    /// The block of group 0's superblock. If blocks have 1 KiB, block 0 belongs to the boot loader.
    pub(super) fn first_block(&self) -> u64 {
        u64::from(self.block_shift == 10)
    }

    /// First block of a group.
    pub(super) fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * self.blocks_per_group
    }

    /// Number of blocks of an inode table.
    pub(super) fn table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size))
            .div_ceil(1 << self.block_shift)
    }

    pub(super) fn descriptors_per_block(&self) -> u64 {
        (1 << self.block_shift) / u64::from(self.descriptor_size)
    }

    pub(super) fn descriptor_blocks(&self) -> u64 {
        u64::from(self.groups).div_ceil(self.descriptors_per_block())
    }

    fn has_super(&self, group: u32) -> bool {
        let power_of = |n: u32| {
            let mut x = n;
            while x < group {
                x = x.saturating_mul(n);
            }
            x == group
        };
        if group == 0 {
            return true;
        }
        if self.compat & COMPAT_SPARSE_SUPER2 != 0 {
            return self.backups.contains(&group);
        }
        self.ro_compat & RO_SPARSE_SUPER == 0 || group == 1 || [3, 5, 7].into_iter().any(power_of)
    }

    /// The block of the superblock or its backup in a group.
    pub(super) fn superblock_of(&self, group: u32) -> Option<u64> {
        let b = self.group_start(group).max(self.first_block());
        (self.has_super(group) && b < self.blocks).then_some(b)
    }

    fn is_meta_bg(&self, meta_group: u64) -> bool {
        self.incompat & INCOMPAT_META_BG != 0 && meta_group >= self.first_meta_group
    }

    /// The group descriptors, their copies, and the blocks reserved for them, in a group: first block and number of blocks.
    pub(super) fn descriptors_of(&self, group: u32) -> Option<(u64, u64)> {
        let start = self.group_start(group).max(self.first_block());
        let per = self.descriptors_per_block();
        let has_super = u64::from(self.has_super(group));
        if self.is_meta_bg(u64::from(group) / per) {
            let i = u64::from(group) % per;
            return (i <= 1 || i == per - 1).then_some((start + has_super, 1));
        }
        let n = if self.incompat & INCOMPAT_META_BG == 0 {
            self.descriptor_blocks() + self.reserved_descriptors
        } else {
            self.first_meta_group.min(self.descriptor_blocks())
        };
        (has_super == 1).then_some((start + 1, n))
    }

    /// The block with the `i`-th part of the active group descriptors.
    pub(super) fn descriptor_block(&self, i: u64) -> u64 {
        if self.is_meta_bg(i) {
            let group = (i * self.descriptors_per_block()) as u32;
            let start = self.group_start(group).max(self.first_block());
            return start + u64::from(self.has_super(group));
        }
        self.first_data_block.max(self.first_block()) + 1 + i
    }
}
