//! When data and metadata reach the disk: write-back by age and by memory pressure, the journal, syncs.
//!
//! With a journal (ext3's ordered mode), the data of files is written first, then the transaction's metadata blocks to the journal, then a
//! commit block, and only later each metadata block to its place. A crash before the commit block leaves the old metadata; after it, the
//! journal holds the new metadata.

use isotherm_core::Nanos;

use super::cache::Dirty;
use super::{BLOCK, FileSystem, Ino, Owner};
use crate::record::{Op, Record};

/// Number of blocks that one descriptor block of the journal can name (8 bytes each).
const TAGS: u32 = BLOCK / 8 - 2;

impl FileSystem {
    /// Adds a page to the cache and evicts others if needed.
    pub(super) fn cache_in(&mut self, block: u32, owner: Owner) {
        if !self.cache.add(block, owner) {
            return;
        }
        while let Some((victim, dirty)) = self.cache.over() {
            if dirty {
                // The dirty neighbours of the page are written with it: one request instead of many.
                let reach = self.config.max_request / BLOCK;
                let (from, to) = (victim.saturating_sub(reach), victim.saturating_add(reach));
                self.write_back(from..=to, |_| true, false);
            }
        }
    }

    /// Begins an operation.
    pub(super) fn begin(&mut self) {
        self.now.0 = self.now.0.saturating_add(self.config.think.0);
        self.on_time();
    }

    /// Ends an operation that may have changed something.
    pub(super) fn end(&mut self) {
        if self.config.sync {
            // In ext2, the counters in the superblock and the descriptors are not worth a synchronous write.
            self.commit();
            self.write_back(
                ..,
                |d| !matches!(d.owner, Owner::Superblock | Owner::Descriptors),
                true,
            );
        }
        let most = self.cache.capacity() * self.config.dirty_percent as usize / 100;
        if self.cache.dirty.len() > most.max(16) {
            self.write_everything();
        }
    }

    /// Does everything that is due by now.
    pub(super) fn on_time(&mut self) {
        if self.now >= self.next_drop {
            self.write_everything();
            self.cache.drop_clean();
            if let Some(every) = self.config.drop_every {
                self.next_drop = Nanos(self.now.0.saturating_add(every.0));
            }
        }
        if self.now >= self.next_commit {
            self.commit();
            let old = self.now.0.saturating_sub(self.config.dirty_age.0);
            self.write_back(.., |d| d.since.0 <= old, false);
            self.next_commit = Nanos(self.now.0.saturating_add(self.config.commit_every.0));
        }
    }

    /// Commits the running transaction.
    pub(super) fn commit(&mut self) {
        let blocks = self.journal.running.len() as u32;
        if blocks == 0 {
            return;
        }
        self.write_back(.., |d| !d.owner.is_meta(), false);
        self.journal.running.clear();
        self.append_to_journal(blocks + blocks.div_ceil(TAGS));
        self.append_to_journal(1);
        if self.config.barriers {
            self.out.push(Record {
                device: self.config.device,
                ..Record::new(self.now, Op::Flush, 0, 0)
            });
        }
        if self.journal.used > self.journal.blocks / 4 * 3 {
            // Checkpoint: the blocks that the journal protects are written to their places, then the journal is free again.
            self.write_back(.., |d| d.owner.is_meta(), false);
            self.journal.used = 0;
            self.emit(Op::Write, self.journal.first, 1, Owner::Journal, false);
        }
    }

    /// Appends blocks to the journal.
    fn append_to_journal(&mut self, mut blocks: u32) {
        self.journal.used = self.journal.used.saturating_add(blocks);
        while blocks > 0 {
            if self.journal.at >= self.journal.blocks {
                self.journal.at = 1;
            }
            let n = blocks
                .min(self.journal.blocks - self.journal.at)
                .min(self.config.max_request / BLOCK);
            self.emit(
                Op::Write,
                self.journal.first + self.journal.at,
                n,
                Owner::Journal,
                true,
            );
            self.journal.at += n;
            blocks -= n;
        }
    }

    /// Writes back everything that is dirty.
    pub(super) fn write_everything(&mut self) {
        self.commit();
        self.write_back(.., |_| true, false);
    }

    /// Writes the data of a file and all metadata on the path to it.
    pub(super) fn write_file(&mut self, ino: Ino) {
        self.write_back(
            ..,
            |d| matches!(d.owner, Owner::File(i) | Owner::Indirect(i) if i == ino),
            true,
        );
        if self.journal.blocks > 0 {
            self.commit();
        } else {
            let table = self.inode_block(ino);
            self.write_back(table..=table, |_| true, true);
        }
    }

    /// Writes the dirty pages of a range for which `which` is true, in the order of their blocks, with neighbours merged.
    fn write_back(
        &mut self,
        range: impl std::ops::RangeBounds<u32> + Clone,
        which: impl Fn(&Dirty) -> bool,
        waited: bool,
    ) {
        let held = |(b, d): (&u32, &Dirty)| which(d) && self.journal.running.contains(b);
        if !self.journal.running.is_empty() && self.cache.dirty.range(range.clone()).any(held) {
            // A block may not be written to its place before the journal has it. (A commit empties `running`, so the recursion ends.)
            self.commit();
        }
        let mut picked = std::mem::take(&mut self.picked);
        picked.clear();
        let matching = self.cache.dirty.range(range).filter(|(_, d)| which(d));
        picked.extend(matching.map(|(&b, d)| (b, d.owner)));
        let most = self.config.max_request / BLOCK;
        let mut rest = &picked[..];
        while let [(first, owner), ..] = *rest {
            let growing = self.config.class_at_growth;
            let class = self.written_class(owner, first);
            let together = |i: usize| {
                let (block, next) = rest[i];
                block == first + i as u32
                    && owner.joins(next)
                    && (!growing || self.written_class(next, block) == class)
            };
            let n = (1..rest.len().min(most as usize))
                .take_while(|&i| together(i))
                .count()
                + 1;
            for (block, _) in &rest[..n] {
                self.cache.dirty.remove(block);
            }
            self.emit(Op::Write, first, n as u32, owner, waited);
            rest = &rest[n..];
        }
        self.picked = picked;
    }
}
