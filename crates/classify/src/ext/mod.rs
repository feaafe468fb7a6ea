//! The class of each block of an ext2, ext3 or ext4 file system (DSS Table 3), from the layout on the volume itself.
//!
//! | class | blocks |
//! |---|---|
//! | 1 | superblocks and their backups, the multi-mount protection block |
//! | 2 | group descriptors, their backups, the blocks reserved for further descriptors |
//! | 3, 4 | bitmaps; inode tables, including unused parts |
//! | 5 | indirect and extent-tree blocks, blocks of extended attributes |
//! | 6, 7 | directories; the journal, if it is internal |
//! | 8…18 | data of files and long symbolic links, by the file's size |
//! | 0 | free blocks, and bad ones |
//!
//! [`Ext::read`] reads all metadata once. After that, writes of metadata are observed ([`crate::Watch`]), and [`Ext::refresh`] reads only
//! the blocks that were written. For a block of an inode table it walks the block's inodes again. A bitmap shows which blocks were freed
//! since it was last read. For a block of an extent tree it walks the file again.
//!
//! The metadata on the volume may be half written, damaged or hostile. Every number is checked before use, the depth of trees is limited,
//! and a budget bounds the work. Metadata that exceeds these limits affects classes and nothing else. Memory: one bit per block (32 KiB per
//! GiB at 4 KiB) for the last bitmaps, 48 bytes per group, 24 to 48 bytes per tree block.
//!
//! Source: the on-disk format as the Linux kernel's `Documentation/filesystems/ext4` describes it.

mod file;
mod group;
mod refresh;
mod superblock;

pub use refresh::Refreshed;
pub use superblock::Superblock;

use crate::Layers;
use crate::classes::{self, Source};
use file::{Inode, Kind};
use group::Groups;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Range;

/// Bytes of an inode table that are read at a time.
const CHUNK: u64 = 1 << 20;
/// Inodes below this one belong to the file system itself.
const JOURNAL_INODE: u32 = 8;
const RESIZE_INODE: u32 = 7;
const BAD_BLOCKS_INODE: u32 = 1;

/// Reads the bytes of a volume; `offset` counts from the volume's start.
pub trait Bytes {
    /// Fills `buf`.
    ///
    /// # Errors
    /// The range is beyond the end, or the volume fails.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl Bytes for std::fs::File {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }
}

impl Bytes for &[u8] {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|o| self.get(o..));
        match from.and_then(|b| b.get(..buf.len())) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The reason why there is no layout, or only a part of it.
#[derive(Debug)]
pub enum ExtError {
    /// There is no ext2, ext3 or ext4 file system, or this field of its superblock is invalid.
    NotExt(&'static str),
    /// The volume cannot be read.
    Io(io::Error),
    /// The file system has these incompatible features (bits of `s_feature_incompat`), whose layout is not known. It is not read, because it
    /// would be misread.
    Unknown(u32),
    /// The work exceeded what a valid file system of this size can need, so it is damaged. Classes that were found so far are kept.
    Damaged,
}

impl fmt::Display for ExtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtError::NotExt(what) => write!(f, "no ext2, ext3 or ext4: {what}"),
            ExtError::Io(e) => write!(f, "the volume cannot be read: {e}"),
            ExtError::Unknown(bits) => write!(
                f,
                "the ext4 on the volume has features that this program does not know (incompat {bits:#x}), so its layout gives no classes: `classify --fs` does"
            ),
            ExtError::Damaged => f.write_str(
                "the file system's trees do not end: run fsck; classes are those found so far",
            ),
        }
    }
}

impl std::error::Error for ExtError {}

impl From<io::Error> for ExtError {
    fn from(e: io::Error) -> ExtError {
        ExtError::Io(e)
    }
}

/// The remaining budget of work.
#[derive(Debug)]
struct Budget {
    /// Tree blocks that may still be read.
    reads: u64,
    /// Blocks that may still be assigned to an inode.
    blocks: u64,
}

impl Budget {
    fn take(left: &mut u64, n: u64) -> Result<(), ExtError> {
        *left = left.checked_sub(n).ok_or(ExtError::Damaged)?;
        Ok(())
    }
}

/// The destination of classes. It converts blocks of one file system to blocks of the layout's map.
pub(crate) struct Out<'a> {
    pub(crate) layers: &'a mut Layers,
    /// Block of the map at which the file system begins.
    pub(crate) base: u64,
    /// Number of map blocks per block of the file system.
    pub(crate) scale: u64,
}

impl Out<'_> {
    pub(crate) fn set(&mut self, from: u64, n: u64, class: u8) {
        let at = self.base + from * self.scale;
        let end = at + n * self.scale;
        self.layers.set(Source::Layout, at, end, class);
    }

    /// As [`Out::set`], except that blocks whose place the superblock determines keep their class, whatever an inode claims.
    pub(crate) fn set_unless_fixed(&mut self, from: u64, n: u64, class: u8) {
        let mut at = self.base + from * self.scale;
        let end = at + n * self.scale;
        while at < end {
            let (old, run) = self.layers.class_run(Source::Layout, at, end - at);
            if !(classes::SUPERBLOCK..=classes::INODES).contains(&old) {
                self.layers.set(Source::Layout, at, at + run, class);
            }
            at += run;
        }
    }
}

/// A file system, as it was when last read.
#[derive(Debug)]
pub struct Ext {
    /// First byte on the volume.
    start: u64,
    sb: Superblock,
    groups: Groups,
    /// Tree block → the inode to which it belongs.
    trees: HashMap<u64, u32>,
    /// First block in the layout's map, and number of map blocks per block of this file system.
    base: u64,
    scale: u64,
}

impl Ext {
    /// Recognises the file system that begins at byte `start` of a volume of `bytes`. Its layout is not read yet.
    ///
    /// # Errors
    /// There is no such file system.
    pub fn find(from: &mut dyn Bytes, start: u64, bytes: u64) -> Result<Ext, ExtError> {
        let mut raw = [0; 1024];
        from.read(start + 1024, &mut raw)?;
        let sb = Superblock::parse(&raw, bytes.saturating_sub(start))?;
        Ok(Ext {
            start,
            groups: Groups::default(),
            trees: HashMap::new(),
            sb,
            base: 0,
            scale: 1,
        })
    }

    /// Its superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// First byte on the volume.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The number of bytes that it occupies on the volume.
    pub fn bytes(&self) -> u64 {
        self.sb.blocks << self.sb.block_shift
    }

    /// The byte ranges of the volume that are set aside for inodes and were never used: the ends of inode tables, in whole blocks.
    pub fn unused_inodes(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let (sb, shift) = (&self.sb, self.sb.block_shift);
        (0..self.groups.len()).filter_map(move |g| {
            let group = self.groups.get(g);
            let used = (group.used_inodes(sb) * u64::from(sb.inode_size)).div_ceil(1 << shift);
            let (from, to) = (
                group.inode_table + used,
                group.inode_table + sb.table_blocks(),
            );
            let byte = |block: u64| self.start + (block << shift);
            (group.inode_table != 0 && from < to).then(|| byte(from)..byte(to))
        })
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.groups.memory() + self.trees.capacity() * 24
    }

    /// Sets the map of the layout: its blocks have 2^`shift` bytes, and its first block is byte `base` of the volume.
    pub(crate) fn place(&mut self, base: u64, shift: u32) {
        self.base = (self.start - base) >> shift;
        self.scale = 1 << (self.sb.block_shift - shift);
    }

    fn budget(&self) -> Budget {
        Budget {
            reads: self.sb.blocks + 1024,
            blocks: self.sb.blocks * 2 + 1024,
        }
    }

    fn read_block(&self, from: &mut dyn Bytes, block: u64) -> Result<Vec<u8>, ExtError> {
        let mut buf = vec![0; 1 << self.sb.block_shift];
        from.read(self.start + (block << self.sb.block_shift), &mut buf)?;
        Ok(buf)
    }

    /// Reads all metadata and sets the class of every block that has one. The layer must be empty.
    ///
    /// # Errors
    /// See [`ExtError`]. Classes that were found before the error are kept.
    pub fn read(&mut self, from: &mut dyn Bytes, layers: &mut Layers) -> Result<(), ExtError> {
        self.groups = Groups::default();
        self.trees.clear();
        let (base, scale) = (self.base, self.scale);
        let mut out = Out {
            layers,
            base,
            scale,
        };
        if self.sb.is_journal_device() {
            out.set(0, self.sb.blocks, classes::JOURNAL);
            out.set(self.sb.first_block(), 1, classes::SUPERBLOCK);
            return Ok(());
        }
        self.groups = Groups::read(&self.sb, self.start, from)?;
        self.set_metadata(&mut out);
        let mut budget = self.budget();
        for g in 0..self.groups.len() {
            self.read_bitmap(from, g)?;
            let group = *self.groups.get(g);
            let used = group.used_inodes(&self.sb) * u64::from(self.sb.inode_size);
            let table = self.start + (group.inode_table << self.sb.block_shift);
            let mut at = 0;
            while at < used {
                let mut buf = vec![0; CHUNK.min(used - at) as usize];
                from.read(table + at, &mut buf)?;
                let size = u64::from(self.sb.inode_size);
                let first = u64::from(g) * u64::from(self.sb.inodes_per_group) + at / size + 1;
                self.read_inodes(from, &mut out, first as u32, &buf, &mut budget)?;
                at += CHUNK;
            }
        }
        Ok(())
    }

    /// Sets the classes of superblocks, descriptors, bitmaps and inode tables.
    fn set_metadata(&self, out: &mut Out<'_>) {
        let sb = &self.sb;
        for g in 0..self.groups.len() {
            if let Some(b) = sb.superblock_of(g) {
                out.set(b, 1, classes::SUPERBLOCK);
            }
            if let Some((b, n)) = sb.descriptors_of(g) {
                out.set(b, n.min(sb.blocks.saturating_sub(b)), classes::DESCRIPTORS);
            }
            let group = self.groups.get(g);
            out.set(group.block_bitmap, 1, classes::BITMAP);
            out.set(group.inode_bitmap, 1, classes::BITMAP);
            out.set(group.inode_table, sb.table_blocks(), classes::INODES);
        }
        if sb.mmp_block != 0 && sb.mmp_block < sb.blocks {
            out.set(sb.mmp_block, 1, classes::SUPERBLOCK);
        }
    }

    /// Walks the inodes in `raw`; the first of them has number `first`.
    fn read_inodes(
        &mut self,
        from: &mut dyn Bytes,
        out: &mut Out<'_>,
        first: u32,
        raw: &[u8],
        budget: &mut Budget,
    ) -> Result<(), ExtError> {
        for (i, raw) in raw
            .chunks_exact(usize::from(self.sb.inode_size))
            .enumerate()
        {
            let number = first.saturating_add(i as u32);
            if let Some(inode) = Inode::parse(raw, number, &self.sb) {
                self.read_inode(from, out, &inode, budget)?;
            }
        }
        Ok(())
    }

    fn read_inode(
        &mut self,
        from: &mut dyn Bytes,
        out: &mut Out<'_>,
        inode: &Inode,
        budget: &mut Budget,
    ) -> Result<(), ExtError> {
        let class = match inode.kind {
            _ if inode.number == BAD_BLOCKS_INODE => return Ok(()),
            _ if inode.number == RESIZE_INODE => classes::DESCRIPTORS,
            _ if inode.number == self.sb.journal_inode => classes::JOURNAL,
            Kind::Directory => classes::DIRECTORY,
            Kind::File => classes::of_file_size(inode.size),
            Kind::Other => classes::NONE,
        };
        if inode.attributes != 0 && inode.attributes < self.sb.blocks {
            out.set_unless_fixed(inode.attributes, 1, classes::INDIRECT);
        }
        if class == classes::NONE {
            return Ok(());
        }
        let limit = self.sb.blocks / 64 + (1 << 16);
        let (sb, start, trees) = (&self.sb, self.start, &mut self.trees);
        let ratio = sb.cluster_blocks;
        let mut last_end = 0;
        file::walk(sb, start, from, inode, budget, &mut |block, n, is_tree| {
            if ratio > 1 {
                // A cluster has one owner. The part of it that this owner does not use may still have the class of a previous owner.
                let (head, end) = (block / ratio * ratio, block + n);
                let before = if last_end > head && last_end <= block {
                    last_end
                } else {
                    head
                };
                out.set_unless_fixed(before, block - before, classes::NONE);
                let tail = end.next_multiple_of(ratio).min(sb.blocks).max(end);
                out.set_unless_fixed(end, tail - end, classes::NONE);
                last_end = end;
            }
            if is_tree {
                out.set_unless_fixed(block, n, classes::INDIRECT);
                if (trees.len() as u64) < limit {
                    trees.insert(block, inode.number);
                }
            } else {
                out.set_unless_fixed(block, n, class);
            }
        })
    }
}
