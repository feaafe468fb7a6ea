//! The page cache: which blocks are in memory, in order of use, and which of them are dirty since when.

use std::collections::BTreeMap;

use isotherm_core::Nanos;
use lru::LruCache;

use super::owner::Owner;

/// A dirty page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dirty {
    pub owner: Owner,
    pub since: Nanos,
}

#[derive(Debug)]
pub(super) struct Cache {
    /// Least recently used last. Never iterated, so the hash order decides nothing.
    pages: LruCache<u32, Owner>,
    capacity: usize,
    /// By block number: write-back goes up the disk, as an elevator does.
    pub dirty: BTreeMap<u32, Dirty>,
}

impl Cache {
    pub fn new(capacity: usize) -> Cache {
        Cache {
            pages: LruCache::unbounded(),
            capacity,
            dirty: BTreeMap::new(),
        }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the block is cached; it becomes the most recently used.
    pub fn touch(&mut self, block: u32) -> bool {
        self.pages.get(&block).is_some()
    }

    /// Adds a page. Returns whether there are now too many.
    pub fn add(&mut self, block: u32, owner: Owner) -> bool {
        self.pages.put(block, owner);
        self.pages.len() > self.capacity
    }

    /// The page to give up next, if there are too many. It stays if it is dirty: write it, then ask again.
    pub fn over(&mut self) -> Option<(u32, bool)> {
        if self.pages.len() <= self.capacity {
            return None;
        }
        let (&block, _) = self.pages.peek_lru()?;
        let dirty = self.dirty.contains_key(&block);
        if !dirty {
            self.pages.pop_lru();
        }
        Some((block, dirty))
    }

    pub fn dirty(&mut self, block: u32, owner: Owner, now: Nanos) {
        self.dirty
            .entry(block)
            .and_modify(|d| d.owner = owner)
            .or_insert(Dirty { owner, since: now });
    }

    /// The block was freed: nothing of it has to be written any more.
    pub fn forget(&mut self, block: u32) {
        self.pages.pop(&block);
        self.dirty.remove(&block);
    }

    /// Forgets all pages that are not dirty.
    pub fn drop_clean(&mut self) {
        self.pages.clear();
        for (&block, d) in &self.dirty {
            self.pages.put(block, d.owner);
        }
    }
}
