//! `smq`: stochastic multiqueue, after the published description of the Linux kernel's default dm-cache policy
//! (Documentation/admin-guide/device-mapper/cache-policies.rst); docs/policy-rules.md section 1.
//!
//! There are no hit counts. Entries are in levels of equal size, and a hit exchanges an entry with the least recently used one of a higher
//! level. Units without a copy are in a separate queue of this kind, the hotspot queue, and are admitted when they have risen far enough in
//! it. If that queue works badly (few misses are found in it), its entries rise faster. Clean copies and dirty copies have separate queues.
//! The lowest clean copy is evicted first. While more than the share `dirty` of the fast slots is dirty, the lowest dirty copy is written
//! home after each access.
//!
//! This file was written from that description alone. The following differs from the kernel, or is a choice because the text does not say
//! it: hotspot entries are extents, one per fast slot; there are min(64, max(2, F/8)) levels; free slots take every miss; an entry is
//! admitted at an eighth of the levels and enters the cache at the level that it has reached; a hit in the hotspot queue moves an entry up
//! by 1/32, 1/16 or 1/8 of the levels, which is decided every max(64, F) misses: if at least three quarters of them, at least half, or
//! fewer were found in the queue; levels are balanced one node at a time and not periodically; reads and writes are admitted in the same
//! way; background write-back is controlled by the share of dirty slots and not by an idle timer. There are no published hit ratios to
//! compare with.
//!
//! Parameters: `dirty` (share of the fast slots that may be dirty before cleaning starts, 0 to 1, default 0.1). When not to use it: for
//! short runs and small fast tiers, because a unit must be accessed several times before it is admitted.

use super::Replacement;
use super::multiqueue::Levels;
use crate::node_index::NodeIndex;
use crate::policy::{Access, ParamError, nearest};
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Smq {
    cache: Levels,
    hot: Levels,
    /// Hotspot node → extent.
    extent: Vec<u32>,
    index: NodeIndex,
    used: u32,
    levels: u32,
    step: u32,
    /// Number of misses, and of misses found in the hotspot queue, since the last adjustment.
    seen: u32,
    found: u32,
    slots: u32,
    dirty: f64,
}

const CLEAN: u32 = 0;
const DIRTY: u32 = 1;
const LEVELS_MOST: u32 = 64;
const PERIOD_LEAST: u32 = 64;

impl Default for Smq {
    fn default() -> Smq {
        Smq {
            cache: Levels::new(0, 2, 1),
            hot: Levels::new(0, 1, 1),
            extent: Vec::new(),
            index: NodeIndex::new(0),
            used: 0,
            levels: 1,
            step: 1,
            seen: 0,
            found: 0,
            slots: 0,
            dirty: 0.1,
        }
    }
}

impl Smq {
    /// The lowest level of the hotspot queue at which a miss is admitted.
    fn bar(&self) -> u32 {
        (self.levels / 8).max(1)
    }
    /// Moves a miss up in the hotspot queue, or inserts it; returns its level.
    fn note(&mut self, extent: u32) -> u32 {
        self.seen += 1;
        if self.seen >= self.slots.max(PERIOD_LEAST) {
            let share = if self.found * 4 >= self.seen * 3 {
                32
            } else if self.found * 2 >= self.seen {
                16
            } else {
                8
            };
            self.step = (self.levels / share).max(1);
            (self.seen, self.found) = (0, 0);
        }
        let extents = &mut self.extent;
        if let Some(n) = self.index.get(extent, |n| extents[n as usize]) {
            self.found += 1;
            self.hot.rise(n, self.step);
            return self.hot.level(n);
        }
        let n = if self.used < extents.len() as u32 {
            self.used += 1;
            self.used - 1
        } else {
            let Some(n) = self.hot.lowest(0, |_| false) else {
                return 0;
            };
            self.hot.remove(n);
            let old = extents[n as usize];
            self.index.remove(old, |n| extents[n as usize]);
            n
        };
        extents[n as usize] = extent;
        self.index.insert(extent, n);
        self.hot.push(0, 0, n);
        0
    }
}

impl Replacement for Smq {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.slots = slots;
        self.levels = (slots / 8).clamp(2, LEVELS_MOST);
        self.step = (self.levels / 8).max(1);
        self.cache = Levels::new(slots, 2, self.levels);
        self.hot = Levels::new(slots.max(2), 1, self.levels);
        self.extent = vec![0; slots.max(2) as usize];
        self.index = NodeIndex::new(slots.max(2));
        (self.used, self.seen, self.found) = (0, 0, 0);
    }
    fn hit(&mut self, slot: u32, access: &Access) {
        self.cache.rise(slot, 1);
        if access.write && self.cache.queue(slot) == CLEAN {
            let level = self.cache.level(slot);
            self.cache.remove(slot);
            self.cache.push(DIRTY, level, slot);
        }
    }
    fn admit(&mut self, access: &Access, full: bool) -> bool {
        self.note(access.extent.0) >= self.bar() || !full
    }
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let clean = self.cache.lowest(CLEAN, &mut busy);
        clean.or_else(|| self.cache.lowest(DIRTY, &mut busy))
    }
    fn inserted(&mut self, slot: u32, extent: UnitId, write: bool) {
        let node = self.index.get(extent.0, |n| self.extent[n as usize]);
        let level = node.map_or(0, |n| self.hot.level(n));
        let queue = if write { DIRTY } else { CLEAN };
        self.cache.push(queue, level, slot);
    }
    fn removed(&mut self, slot: u32, _extent: UnitId) {
        self.cache.remove(slot);
    }
    fn to_clean(&mut self, busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let most = (f64::from(self.slots) * self.dirty) as u32;
        if self.cache.total(DIRTY) <= most {
            return None;
        }
        self.cache.lowest(DIRTY, busy)
    }
    fn cleaned(&mut self, slot: u32) {
        if self.cache.queue(slot) == DIRTY {
            let level = self.cache.level(slot);
            self.cache.remove(slot);
            self.cache.push(CLEAN, level, slot);
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        match key {
            "dirty" if (0.0..=1.0).contains(&value) => self.dirty = value,
            "dirty" => return Err(ParamError::Range("0 to 1")),
            _ => return Err(ParamError::Unknown(nearest(key, ["dirty"].into_iter()))),
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        vec![("dirty", self.dirty)]
    }
    fn bytes(&self) -> usize {
        self.cache.bytes() + self.hot.bytes() + self.extent.len() * 4 + self.index.bytes()
    }
}
