//! The page cache: the cached blocks in order of use, and the dirty ones with the time since when they are dirty.

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
    /// In order of use, the least recently used page last. It is never iterated, so the order of hashes decides nothing.
    pages: LruCache<u32, Owner>,
    capacity: usize,
    /// By block number, because write-back goes over the disk in ascending order, like an elevator.
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

    /// Whether the block is cached. If so, it becomes the most recently used one.
    pub fn touch(&mut self, block: u32) -> bool {
        self.pages.get(&block).is_some()
    }

    /// Adds a page. Returns whether the cache now has more pages than it may hold.
    pub fn add(&mut self, block: u32, owner: Owner) -> bool {
        self.pages.put(block, owner);
        self.pages.len() > self.capacity
    }

    /// The page to evict next, if the cache has more pages than it may hold. A dirty page is not evicted: write it, then ask again.
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

    /// The block was freed, so it need not be written any more.
    pub fn forget(&mut self, block: u32) {
        self.pages.pop(&block);
        self.dirty.remove(&block);
    }

    /// Drops all pages that are not dirty.
    pub fn drop_clean(&mut self) {
        self.pages.clear();
        for (&block, d) in &self.dirty {
            self.pages.put(block, d.owner);
        }
    }
}
