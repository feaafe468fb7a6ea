//! Allocation groups: the trees to which their headers point, and the blocks of inodes that these trees list.

use super::superblock::{u16_at, u32_at};
use super::{LEVELS, Reading, Xfs, XfsError};
use crate::classes;

/// Number of inodes that one record of the inode tree describes.
const CHUNK: u32 = 64;

/// A tree of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tree {
    /// Free space by block: its leaves list the free blocks.
    Free,
    /// Inodes: its leaves list the blocks of inodes.
    Inodes,
    /// A tree of which only the blocks themselves matter.
    Other,
}

/// The root of a tree of a group.
#[derive(Clone, Copy, Debug)]
struct Root {
    tree: Tree,
    magics: [&'static [u8; 4]; 2],
    /// Size of a key in bytes.
    key: usize,
    at: u32,
    levels: u32,
}

impl Xfs {
    /// Sets the classes of a group's trees, and returns the blocks that hold inodes.
    pub(super) fn read_group(
        &self,
        reading: &mut Reading<'_, '_>,
        group: u32,
    ) -> Result<Vec<u64>, XfsError> {
        let first = u64::from(group) * u64::from(self.sb.group_blocks);
        let start = self.start + (first << self.sb.block_shift);
        let sector = self.sb.sector;
        let (mut free, mut inodes) = ([0u8; 96], [0u8; 344]);
        reading.from.read(start + sector, &mut free)?;
        reading.from.read(start + 2 * sector, &mut inodes)?;
        let mut roots = Vec::new();
        let mut add = |tree, magics, key, at, levels| {
            roots.push(Root {
                tree,
                magics,
                key,
                at,
                levels,
            });
        };
        let f = |at| u32_at(&free, at);
        if &free[..4] == b"XAGF" {
            add(Tree::Free, [b"ABTB", b"AB3B"], 8, f(16), f(28));
            add(Tree::Other, [b"ABTC", b"AB3C"], 8, f(20), f(32));
            if self.sb.v5 {
                // The block number is zero if the feature is off.
                add(Tree::Other, [b"RMB3"; 2], 40, f(24), f(36));
                add(Tree::Other, [b"R3FC"; 2], 4, f(88), f(92));
            }
        }
        let i = |at| u32_at(&inodes, at);
        if &inodes[..4] == b"XAGI" {
            add(Tree::Inodes, [b"IABT", b"IAB3"], 4, i(20), i(24));
            if self.sb.v5 {
                add(Tree::Other, [b"FIBT", b"FIB3"], 4, i(328), i(332));
            }
        }
        let mut found = Vec::new();
        for root in roots {
            if (1..=u32::from(LEVELS)).contains(&root.levels) {
                self.read_tree(reading, group, root, root.at, root.levels, &mut found)?;
            }
        }
        for &block in &found {
            reading.out.set(block, 1, classes::INODES);
        }
        Ok(found)
    }

    /// Reads a block of a tree, and the `levels` below it up to the leaves.
    fn read_tree(
        &self,
        reading: &mut Reading<'_, '_>,
        group: u32,
        root: Root,
        at: u32,
        levels: u32,
        found: &mut Vec<u64>,
    ) -> Result<(), XfsError> {
        let Some(block) = self.sb.in_group(group, at) else {
            return Ok(());
        };
        let raw = self.read_block(reading, block)?;
        let magic = root.magics[usize::from(self.sb.v5)];
        if &raw[..4] != magic || u32::from(u16_at(&raw, 4)) != levels - 1 {
            return Ok(());
        }
        reading.out.set(block, 1, classes::BITMAP);
        let body = &raw[if self.sb.v5 { 56 } else { 16 }..];
        let n = usize::from(u16_at(&raw, 6));
        if levels == 1 {
            match root.tree {
                Tree::Free if reading.frees => self.read_free(reading, group, body, n)?,
                Tree::Inodes => self.read_chunks(reading, group, body, n, found)?,
                Tree::Free | Tree::Other => {}
            }
            return Ok(());
        }
        let most = body.len() / (root.key + 4);
        for p in body[most * root.key..].chunks_exact(4).take(n.min(most)) {
            self.read_tree(reading, group, root, u32_at(p, 0), levels - 1, found)?;
        }
        Ok(())
    }

    /// Removes the class of free blocks.
    fn read_free(
        &self,
        reading: &mut Reading<'_, '_>,
        group: u32,
        body: &[u8],
        n: usize,
    ) -> Result<(), XfsError> {
        for r in body.chunks_exact(8).take(n) {
            let (at, n) = (u32_at(r, 0), u32_at(r, 4));
            let end = at.checked_add(n).filter(|e| *e <= self.sb.length_of(group));
            if let (Some(block), Some(_)) = (self.sb.in_group(group, at), end) {
                Reading::take(&mut reading.names, n.into())?;
                reading.out.set_unless_fixed(block, n.into(), classes::NONE);
            }
        }
        Ok(())
    }

    /// The blocks of inodes: 64 inodes per record, of which parts may be missing (sparse).
    fn read_chunks(
        &self,
        reading: &mut Reading<'_, '_>,
        group: u32,
        body: &[u8],
        n: usize,
        found: &mut Vec<u64>,
    ) -> Result<(), XfsError> {
        let per = 1u32 << self.sb.inodes_shift();
        for r in body.chunks_exact(16).take(n) {
            let first = u32_at(r, 0);
            // If all 64 inodes exist, these are the high bits of a count of free inodes, and zero.
            let holes = u16_at(r, 4);
            let mut i = 0;
            while i < CHUNK {
                let agbno = (first.saturating_add(i)) >> self.sb.inodes_shift();
                if holes >> (i / 4) & 1 == 0
                    && let Some(block) = self.sb.in_group(group, agbno)
                    && found.last() != Some(&block)
                {
                    Reading::take(&mut reading.names, 1)?;
                    found.push(block);
                }
                i += per.min(CHUNK);
            }
        }
        Ok(())
    }
}
