//! The class of each block of an XFS file system, from the layout on the volume itself. The classes are those of DSS Table 3, applied to a
//! file system that the paper does not cover.
//!
//! | class | blocks |
//! |---|---|
//! | 1 | headers of allocation groups: superblock, free space, inodes, free list (a sector each) |
//! | 3 | trees of free space, inodes, owners and references |
//! | 4 | inodes |
//! | 5 | trees of extents, blocks of extended attributes |
//! | 6, 7 | directories; the log, if it is internal |
//! | 8…18 | data of files and long symbolic links, by the file's size |
//!
//! [`Xfs::read`] reads all metadata once. [`Xfs::refresh`] reads the metadata whose writes were observed: for a block of inodes it walks
//! the inodes again, for a block of a group's trees the group, for a block of an extent tree the owner. Blocks that a group's tree lists as
//! free lose their class. XFS writes metadata to its place when the log is written back, so recently written data has no class yet.
//!
//! As for ext, every number is checked before use, the depth of trees is limited, and a budget bounds the work.
//!
//! Source: "XFS Algorithms & Data Structures", 3rd edition (Silicon Graphics and Red Hat). Checked against `xfs_db` in
//! `tests/xfs_images.rs`.

mod group;
mod inode;
mod superblock;

pub use superblock::Superblock;

use crate::Layers;
use crate::classes;
use crate::ext::{Bytes, Out, Refreshed};
use inode::{Fork, Inode};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Range;
use superblock::{u16_at, u64_at};

/// Largest depth of a tree.
const LEVELS: u16 = 12;

/// The reason why there is no layout, or only a part of it.
#[derive(Debug)]
pub enum XfsError {
    /// There is no XFS file system, or this field of its superblock is invalid.
    NotXfs(&'static str),
    /// The volume cannot be read.
    Io(io::Error),
    /// The file system has these incompatible features (bits of `sb_features_incompat`), whose layout is not known. It is not read, because
    /// it would be misread.
    Unknown(u32),
    /// The work exceeded what a valid file system of this size can need, so it is damaged. Classes that were found so far are kept.
    Damaged,
}

impl fmt::Display for XfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XfsError::NotXfs(what) => write!(f, "no XFS: {what}"),
            XfsError::Io(e) => write!(f, "the volume cannot be read: {e}"),
            XfsError::Unknown(bits) => write!(
                f,
                "the XFS on the volume has features that this program does not know (incompat {bits:#x}), so its layout gives no classes: `classify --fs` does"
            ),
            XfsError::Damaged => f.write_str(
                "the trees of the XFS do not end: run xfs_repair; classes are those found so far",
            ),
        }
    }
}

impl std::error::Error for XfsError {}

impl From<io::Error> for XfsError {
    fn from(e: io::Error) -> XfsError {
        XfsError::Io(e)
    }
}

/// A file system, as it was when last read. Only its geometry is kept.
#[derive(Debug)]
pub struct Xfs {
    start: u64,
    sb: Superblock,
    base: u64,
    scale: u64,
}

/// The state of one reading.
struct Reading<'a, 'b> {
    from: &'a mut dyn Bytes,
    out: Out<'b>,
    /// The remaining budget: blocks that may be read, and extents that may be assigned.
    reads: u64,
    names: u64,
    /// Whether free blocks lose their class; in the first reading no block has one yet.
    frees: bool,
}

impl Reading<'_, '_> {
    fn take(left: &mut u64, n: u64) -> Result<(), XfsError> {
        *left = left.checked_sub(n).ok_or(XfsError::Damaged)?;
        Ok(())
    }
}

impl Xfs {
    /// Recognises the file system that begins at byte `start` of a volume of `bytes`. Its layout is not read yet.
    ///
    /// # Errors
    /// There is no such file system.
    pub fn find(from: &mut dyn Bytes, start: u64, bytes: u64) -> Result<Xfs, XfsError> {
        let mut raw = [0; superblock::BYTES];
        from.read(start, &mut raw)?;
        let sb = Superblock::parse(&raw, bytes.saturating_sub(start))?;
        Ok(Xfs {
            start,
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

    /// Sets the map of the layout: its blocks have 2^`shift` bytes, and its first block is byte `base` of the volume.
    pub(crate) fn place(&mut self, base: u64, shift: u32) {
        self.base = (self.start - base) >> shift;
        self.scale = 1 << (self.sb.block_shift - shift);
    }

    fn reading<'a, 'b>(
        &self,
        from: &'a mut dyn Bytes,
        layers: &'b mut Layers,
        frees: bool,
    ) -> Reading<'a, 'b> {
        Reading {
            from,
            out: Out {
                layers,
                base: self.base,
                scale: self.scale,
            },
            reads: self.sb.blocks + 1024,
            names: self.sb.blocks * 2 + 1024,
            frees,
        }
    }

    fn read_block(&self, reading: &mut Reading<'_, '_>, block: u64) -> Result<Vec<u8>, XfsError> {
        Reading::take(&mut reading.reads, 1)?;
        let mut buf = vec![0; 1 << self.sb.block_shift];
        reading
            .from
            .read(self.start + (block << self.sb.block_shift), &mut buf)?;
        Ok(buf)
    }

    /// Reads all metadata and sets the class of every block that has one. The layer must be empty.
    ///
    /// # Errors
    /// See [`XfsError`]. Classes that were found before the error are kept.
    pub fn read(&mut self, from: &mut dyn Bytes, layers: &mut Layers) -> Result<(), XfsError> {
        let reading = &mut self.reading(from, layers, false);
        // Blocks whose place the superblock determines come first, so that no file can claim them afterwards.
        if let Some((at, n)) = self.sb.log {
            reading.out.set(at, n, classes::JOURNAL);
        }
        for g in 0..self.sb.groups {
            let headers = self.sb.header_blocks().min(self.sb.length_of(g).into());
            if let Some(at) = self.sb.in_group(g, 0) {
                reading.out.set(at, headers, classes::SUPERBLOCK);
            }
        }
        for g in 0..self.sb.groups {
            for block in self.read_group(reading, g)? {
                self.read_inodes(reading, block)?;
            }
        }
        Ok(())
    }

    /// Walks the inodes of a block.
    fn read_inodes(&self, reading: &mut Reading<'_, '_>, block: u64) -> Result<(), XfsError> {
        let raw = self.read_block(reading, block)?;
        for raw in raw.chunks_exact(1 << self.sb.inode_shift) {
            if let Some(inode) = Inode::parse(raw) {
                self.read_fork(reading, inode.data, inode.class)?;
                self.read_fork(reading, inode.attributes, classes::INDIRECT)?;
            }
        }
        Ok(())
    }

    fn read_fork(
        &self,
        reading: &mut Reading<'_, '_>,
        fork: Fork<'_>,
        class: u8,
    ) -> Result<(), XfsError> {
        match fork {
            Fork::None => Ok(()),
            Fork::Extents(records) => self.read_extents(reading, records, class),
            Fork::Tree(root) => {
                let (level, n) = (u16_at(root, 0), usize::from(u16_at(root, 2)));
                let most = (root.len() - 4) / 16;
                let pointers = &root[4 + most * 8..];
                self.read_pointers(reading, pointers, n.min(most), level, class)
            }
        }
    }

    fn read_extents(
        &self,
        reading: &mut Reading<'_, '_>,
        records: &[u8],
        class: u8,
    ) -> Result<(), XfsError> {
        for r in records.chunks_exact(16) {
            if let Some((at, n)) = inode::extent(r, &self.sb) {
                Reading::take(&mut reading.names, n)?;
                self.set_unless_fixed(reading, at, n, class);
            }
        }
        Ok(())
    }

    /// Sets a class, except that the log stays the log, whatever an inode claims.
    fn set_unless_fixed(&self, reading: &mut Reading<'_, '_>, at: u64, n: u64, class: u8) {
        let (log, len) = self.sb.log.unwrap_or_default();
        if at < log + len && log < at + n {
            return;
        }
        reading.out.set_unless_fixed(at, n, class);
    }

    /// The blocks to which a node at `level` of an extent tree points.
    fn read_pointers(
        &self,
        reading: &mut Reading<'_, '_>,
        pointers: &[u8],
        n: usize,
        level: u16,
        class: u8,
    ) -> Result<(), XfsError> {
        if level == 0 || level > LEVELS {
            return Ok(());
        }
        for p in pointers.chunks_exact(8).take(n) {
            let Some(block) = self.sb.blocks_at(u64_at(p, 0), 1) else {
                continue;
            };
            let raw = self.read_block(reading, block)?;
            if !self.is_extent_block(&raw, level - 1) {
                continue;
            }
            self.set_unless_fixed(reading, block, 1, classes::INDIRECT);
            let body = &raw[self.long_header()..];
            let n = usize::from(u16_at(&raw, 6)).min(body.len() / 16);
            if level == 1 {
                self.read_extents(reading, &body[..n * 16], class)?;
            } else {
                let most = body.len() / 16;
                self.read_pointers(reading, &body[most * 8..], n, level - 1, class)?;
            }
        }
        Ok(())
    }

    fn long_header(&self) -> usize {
        if self.sb.v5 { 72 } else { 24 }
    }

    fn is_extent_block(&self, raw: &[u8], level: u16) -> bool {
        let magic: &[u8] = if self.sb.v5 { b"BMA3" } else { b"BMAP" };
        &raw[..4] == magic && u16_at(raw, 4) == level
    }

    /// Reads the metadata again in the byte ranges that were written.
    ///
    /// # Errors
    /// See [`XfsError`]. Classes that were found before the error are kept.
    pub fn refresh(
        &mut self,
        from: &mut dyn Bytes,
        layers: &mut Layers,
        written: &[Range<u64>],
    ) -> Result<Refreshed, XfsError> {
        let (mut groups, mut blocks, mut trees) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for r in written {
            let from = r.start.max(self.start) - self.start;
            let to = r.end.saturating_sub(self.start).min(self.bytes());
            let shift = self.sb.block_shift;
            for block in from >> shift..to.div_ceil(1 << shift) {
                let at = self.base + block * self.scale;
                match layers.class_at(classes::Source::Layout, at) {
                    classes::SUPERBLOCK | classes::BITMAP => {
                        groups.insert(self.sb.group_of(block).0);
                    }
                    classes::INODES => drop(blocks.insert(block)),
                    classes::INDIRECT => drop(trees.insert(block)),
                    _ => {}
                }
            }
        }
        if groups.contains(&0) {
            let mut raw = [0; superblock::BYTES];
            from.read(self.start, &mut raw)?;
            let room = layers.bytes().saturating_sub(self.start);
            if Superblock::parse(&raw, room)? != self.sb {
                return Ok(Refreshed::Another);
            }
        }
        let reading = &mut self.reading(from, layers, true);
        for g in groups {
            // The new blocks among these have not been walked yet. Walking the others again costs little.
            blocks.extend(self.read_group(reading, g)?);
        }
        for block in trees {
            let raw = self.read_block(reading, block)?;
            if self.sb.v5
                && &raw[..4] == b"BMA3"
                && let Some((at, _)) = self.sb.inode_at(u64_at(&raw, 56))
            {
                blocks.insert(at);
            }
        }
        for block in blocks {
            self.read_inodes(reading, block)?;
        }
        Ok(Refreshed::Current)
    }
}
