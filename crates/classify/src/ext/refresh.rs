//! Updates a layout after writes.

use super::{Ext, ExtError, Inode, Out};
use crate::classes::{self, Source};
use crate::ext::Bytes;
use crate::{Layers, ext::Superblock};
use std::collections::BTreeSet;
use std::ops::Range;

/// The result of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The layout reflects everything that was written.
    Current,
    /// There is another file system, or its geometry has changed: read everything again.
    Another,
}

/// The metadata that was written.
#[derive(Default)]
struct Written {
    superblock: bool,
    descriptors: BTreeSet<u64>,
    bitmaps: BTreeSet<u32>,
    /// Group, and index of the block in its inode table.
    tables: BTreeSet<(u32, u64)>,
    inodes: BTreeSet<u32>,
}

impl Ext {
    /// Reads the metadata again in the byte ranges that were written.
    ///
    /// # Errors
    /// See [`ExtError`]. Classes that were found before the error are kept.
    pub fn refresh(
        &mut self,
        from: &mut dyn Bytes,
        layers: &mut Layers,
        written: &[Range<u64>],
    ) -> Result<Refreshed, ExtError> {
        let what = self.sort_out(layers, written);
        if what.superblock {
            let mut raw = [0; 1024];
            from.read(self.start + 1024, &mut raw)?;
            let room = layers.bytes().saturating_sub(self.start);
            if Superblock::parse(&raw, room)? != self.sb {
                return Ok(Refreshed::Another);
            }
        }
        if self.sb.is_journal_device() {
            return Ok(Refreshed::Current);
        }
        let (base, scale) = (self.base, self.scale);
        let mut out = Out {
            layers,
            base,
            scale,
        };
        let mut tables = what.tables;
        for part in what.descriptors {
            let changed = self.groups.read_part(&self.sb, self.start, from, part)?;
            for (g, before) in changed {
                let now = *self.groups.get(g);
                let moved = (before.block_bitmap, before.inode_bitmap, before.inode_table)
                    != (now.block_bitmap, now.inode_bitmap, now.inode_table);
                if moved {
                    return Ok(Refreshed::Another);
                }
                // Inodes that were unused before: all blocks of the table that are in use now.
                let per = (1u64 << self.sb.block_shift) / u64::from(self.sb.inode_size);
                let (old, new) = (before.used_inodes(&self.sb), now.used_inodes(&self.sb));
                tables.extend((old / per..new.div_ceil(per)).map(|b| (g, b)));
            }
        }
        // Freed blocks come first, because some of them belong to other files now.
        for g in what.bitmaps {
            let before = self.groups.seen[g as usize].take();
            self.read_bitmap(from, g)?;
            if let Some(before) = before {
                self.forget_freed(&mut out, g, &before);
            }
        }
        let mut budget = self.budget();
        let inode_size = u64::from(self.sb.inode_size);
        let per = (1u64 << self.sb.block_shift) / inode_size;
        for (g, b) in tables {
            let table = self.groups.get(g).inode_table;
            if table == 0 || b >= self.sb.table_blocks() {
                continue;
            }
            let raw = self.read_block(from, table + b)?;
            let first = u64::from(g) * u64::from(self.sb.inodes_per_group) + b * per + 1;
            self.read_inodes(from, &mut out, first as u32, &raw, &mut budget)?;
        }
        for number in what.inodes {
            let (g, i) = (
                (number - 1) / self.sb.inodes_per_group,
                u64::from((number - 1) % self.sb.inodes_per_group),
            );
            if g >= self.groups.len() || self.groups.get(g).inode_table == 0 {
                continue;
            }
            let table = self.start + (self.groups.get(g).inode_table << self.sb.block_shift);
            let mut raw = vec![0; inode_size as usize];
            from.read(table + i * inode_size, &mut raw)?;
            if let Some(inode) = Inode::parse(&raw, number, &self.sb) {
                self.read_inode(from, &mut out, &inode, &mut budget)?;
            }
        }
        Ok(Refreshed::Current)
    }

    fn sort_out(&self, layers: &Layers, written: &[Range<u64>]) -> Written {
        let mut what = Written::default();
        let shift = self.sb.block_shift;
        for range in written {
            let (from, to) = (
                range.start.max(self.start),
                range.end.min(self.start + self.bytes()),
            );
            if from >= to {
                continue;
            }
            let (from, to) = (from - self.start, to - self.start);
            what.superblock |= from < 2048 && to > 1024;
            for block in from >> shift..=(to - 1) >> shift {
                let at = self.base + block * self.scale;
                match layers.class_at(Source::Layout, at) {
                    classes::DESCRIPTORS => {
                        what.descriptors.extend(self.part_at(block));
                    }
                    classes::BITMAP => what.bitmaps.extend(self.groups.of_bitmap(block)),
                    classes::INODES => {
                        what.tables.extend(self.groups.of_table(block, &self.sb));
                    }
                    classes::INDIRECT => {
                        what.inodes.extend(self.trees.get(&block));
                    }
                    _ => {}
                }
            }
        }
        what
    }

    /// The index of the part of the active descriptors in that block, if it holds one.
    fn part_at(&self, block: u64) -> Option<u64> {
        let first = self.sb.descriptor_block(0);
        let near = block.checked_sub(first)?;
        let of_meta = (block.saturating_sub(self.sb.first_data_block) / self.sb.blocks_per_group)
            / self.sb.descriptors_per_block();
        [near, of_meta]
            .into_iter()
            .find(|&i| i < self.sb.descriptor_blocks() && self.sb.descriptor_block(i) == block)
    }

    /// Stores a group's block bitmap.
    pub(super) fn read_bitmap(&mut self, from: &mut dyn Bytes, group: u32) -> Result<(), ExtError> {
        let g = *self.groups.get(group);
        self.groups.seen[group as usize] = None;
        if g.has_bitmap(&self.sb) {
            let raw = self.read_block(from, g.block_bitmap)?;
            self.groups.seen[group as usize] = Some(raw.into());
        }
        Ok(())
    }

    /// Removes the classes of blocks that were in use in `before` and are free now.
    fn forget_freed(&mut self, out: &mut Out<'_>, group: u32, before: &[u8]) {
        let Some(now) = &self.groups.seen[group as usize] else {
            return;
        };
        let start = self.sb.group_start(group);
        let ratio = self.sb.cluster_blocks;
        let limit = self.sb.blocks.min(start + self.sb.blocks_per_group);
        for (i, (was, is)) in before.iter().zip(now.iter()).enumerate() {
            let freed = was & !is;
            for bit in (0..8).filter(|b| freed >> b & 1 != 0) {
                let block = start + (i as u64 * 8 + bit) * ratio;
                let n = ratio.min(limit.saturating_sub(block));
                out.set_unless_fixed(block, n, classes::NONE);
                (block..block + n).for_each(|b| {
                    self.trees.remove(&b);
                });
            }
        }
    }
}
