//! Which block of an XFS is what, from the layout on the volume itself: the classes of DSS Table 3 for a file system that the paper
//! did not have.
//!
//! | class | blocks |
//! |---|---|
//! | 1 | headers of allocation groups: superblock, free space, inodes, free list (a sector each) |
//! | 3 | trees of free space, inodes, owners and references |
//! | 4 | inodes |
//! | 5 | trees of extents, blocks of extended attributes |
//! | 6, 7 | directories; the log, where it is inside |
//! | 8…18 | data of files and long symbolic links, by the file's size |
//!
//! [`Xfs::read`] looks at everything once; [`Xfs::refresh`] at the metadata that was seen being written: a block of inodes has them
//! walked again, a block of a group's trees that group, a block of an extent tree its owner. What a group's tree says is free is
//! nobody's from then on. XFS puts metadata in its place when its log is written back, so what was just written has no class yet.
//!
//! As for ext: every number is checked before it is used, trees have a depth, a budget bounds the work.
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

/// Trees are no deeper.
const LEVELS: u16 = 12;

/// Why there is no layout, or not all of it.
#[derive(Debug)]
pub enum XfsError {
    /// No XFS begins there, or its superblock makes no sense: which field.
    NotXfs(&'static str),
    /// The volume cannot be read.
    Io(io::Error),
    /// More work than a sound file system of this size can need: it is damaged. What was found so far stands.
    Damaged,
}

impl fmt::Display for XfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XfsError::NotXfs(what) => write!(f, "no XFS: {what}"),
            XfsError::Io(e) => write!(f, "the volume cannot be read: {e}"),
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

/// A file system as last seen. Nothing is kept of it but its shape.
#[derive(Debug)]
pub struct Xfs {
    start: u64,
    sb: Superblock,
    base: u64,
    scale: u64,
}

/// What one look works with.
struct Look<'a, 'b> {
    from: &'a mut dyn Bytes,
    out: Out<'b>,
    /// Blocks that may still be read, and extents that may still be named.
    reads: u64,
    names: u64,
    /// Whether what is free is taken back; in the first look nothing was said yet.
    frees: bool,
}

impl Look<'_, '_> {
    fn take(left: &mut u64, n: u64) -> Result<(), XfsError> {
        *left = left.checked_sub(n).ok_or(XfsError::Damaged)?;
        Ok(())
    }
}

impl Xfs {
    /// The file system that begins at byte `start` of a volume of `bytes`, not looked at yet.
    ///
    /// # Errors
    /// There is none.
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

    /// Bytes of the volume that it takes.
    pub fn bytes(&self) -> u64 {
        self.sb.blocks << self.sb.block_shift
    }

    /// The layout's map has blocks of 2^`shift` bytes, and its first is byte `base` of the volume.
    pub(crate) fn place(&mut self, base: u64, shift: u32) {
        self.base = (self.start - base) >> shift;
        self.scale = 1 << (self.sb.block_shift - shift);
    }

    fn look<'a, 'b>(
        &self,
        from: &'a mut dyn Bytes,
        layers: &'b mut Layers,
        frees: bool,
    ) -> Look<'a, 'b> {
        Look {
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

    fn read_block(&self, look: &mut Look<'_, '_>, block: u64) -> Result<Vec<u8>, XfsError> {
        Look::take(&mut look.reads, 1)?;
        let mut buf = vec![0; 1 << self.sb.block_shift];
        look.from
            .read(self.start + (block << self.sb.block_shift), &mut buf)?;
        Ok(buf)
    }

    /// Looks at everything, and says the class of every block that has one. The layer must be empty.
    ///
    /// # Errors
    /// See [`XfsError`]; what was found before stands.
    pub fn read(&mut self, from: &mut dyn Bytes, layers: &mut Layers) -> Result<(), XfsError> {
        let look = &mut self.look(from, layers, false);
        // What lies where the superblock says goes first: no file can claim it afterwards.
        if let Some((at, n)) = self.sb.log {
            look.out.say(at, n, classes::JOURNAL);
        }
        for g in 0..self.sb.groups {
            let headers = self.sb.header_blocks().min(self.sb.length_of(g).into());
            if let Some(at) = self.sb.in_group(g, 0) {
                look.out.say(at, headers, classes::SUPERBLOCK);
            }
        }
        for g in 0..self.sb.groups {
            for block in self.see_group(look, g)? {
                self.see_inodes(look, block)?;
            }
        }
        Ok(())
    }

    /// Walks the inodes of a block.
    fn see_inodes(&self, look: &mut Look<'_, '_>, block: u64) -> Result<(), XfsError> {
        let raw = self.read_block(look, block)?;
        for raw in raw.chunks_exact(1 << self.sb.inode_shift) {
            if let Some(inode) = Inode::parse(raw) {
                self.see_fork(look, inode.data, inode.class)?;
                self.see_fork(look, inode.attributes, classes::INDIRECT)?;
            }
        }
        Ok(())
    }

    fn see_fork(&self, look: &mut Look<'_, '_>, fork: Fork<'_>, class: u8) -> Result<(), XfsError> {
        match fork {
            Fork::None => Ok(()),
            Fork::Extents(records) => self.see_extents(look, records, class),
            Fork::Tree(root) => {
                let (level, n) = (u16_at(root, 0), usize::from(u16_at(root, 2)));
                let most = (root.len() - 4) / 16;
                let pointers = &root[4 + most * 8..];
                self.see_pointers(look, pointers, n.min(most), level, class)
            }
        }
    }

    fn see_extents(
        &self,
        look: &mut Look<'_, '_>,
        records: &[u8],
        class: u8,
    ) -> Result<(), XfsError> {
        for r in records.chunks_exact(16) {
            if let Some((at, n)) = inode::extent(r, &self.sb) {
                Look::take(&mut look.names, n)?;
                self.say_owned(look, at, n, class);
            }
        }
        Ok(())
    }

    /// The log stays the log, whatever an inode claims.
    fn say_owned(&self, look: &mut Look<'_, '_>, at: u64, n: u64, class: u8) {
        let (log, len) = self.sb.log.unwrap_or_default();
        if at < log + len && log < at + n {
            return;
        }
        look.out.say_owned(at, n, class);
    }

    /// The blocks that a node at `level` of an extent tree points to.
    fn see_pointers(
        &self,
        look: &mut Look<'_, '_>,
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
            let raw = self.read_block(look, block)?;
            if !self.is_extent_block(&raw, level - 1) {
                continue;
            }
            self.say_owned(look, block, 1, classes::INDIRECT);
            let body = &raw[self.long_header()..];
            let n = usize::from(u16_at(&raw, 6)).min(body.len() / 16);
            if level == 1 {
                self.see_extents(look, &body[..n * 16], class)?;
            } else {
                let most = body.len() / 16;
                self.see_pointers(look, &body[most * 8..], n, level - 1, class)?;
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

    /// Looks again at the metadata in the ranges of bytes that were written.
    ///
    /// # Errors
    /// See [`XfsError`]; what was found before stands.
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
                match layers.said(classes::Source::Layout, at) {
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
        let look = &mut self.look(from, layers, true);
        for g in groups {
            // What is new among them has not been walked yet; walking the others again costs little.
            blocks.extend(self.see_group(look, g)?);
        }
        for block in trees {
            let raw = self.read_block(look, block)?;
            if self.sb.v5
                && &raw[..4] == b"BMA3"
                && let Some((at, _)) = self.sb.inode_at(u64_at(&raw, 56))
            {
                blocks.insert(at);
            }
        }
        for block in blocks {
            self.see_inodes(look, block)?;
        }
        Ok(Refreshed::Current)
    }
}
