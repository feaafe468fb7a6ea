//! `lru-2`: LRU-K with K = 2 (O'Neil, O'Neil and Weikum, SIGMOD '93; docs/policy-rules.md section 1).
//!
//! The unit whose last access but one is the oldest leaves; units with one access leave before all others, the least recently used of them
//! first. Time counts accesses. The last access of an evicted unit is remembered (the paper's retained information) until as many other units
//! were evicted after it as there are fast slots. The correlated reference period is 0, so each access counts.
//!
//! The units that may leave are in a heap by (last access but one, last access).
//!
//! Parameters: none. When not to use it: if data is used in bursts, as each burst looks like frequent use.

use super::{Ghosts, Replacement};
use crate::collector::Heap;
use crate::policy::Access;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Lru2 {
    /// Slots by (last access but one or 0, last access).
    order: Heap,
    /// Number of accesses.
    now: u64,
    ghosts: Ghosts,
    /// Ghost → its last access.
    last: Vec<u64>,
    /// Newcomers that were found among the ghosts and whose fetch is in progress, with their last access.
    returning: Vec<(u32, u64)>,
    /// Slots that were busy in a search, until its end.
    aside: Vec<((u64, u64), u32)>,
}

impl Default for Lru2 {
    fn default() -> Lru2 {
        Lru2 {
            order: Heap::default(),
            now: 0,
            ghosts: Ghosts::new(0, 1),
            last: Vec::new(),
            returning: Vec::new(),
            aside: Vec::new(),
        }
    }
}

impl Lru2 {
    fn returned(&mut self, extent: UnitId) -> Option<u64> {
        let i = self.returning.iter().position(|r| r.0 == extent.0)?;
        Some(self.returning.swap_remove(i).1)
    }
    fn remember(&mut self, extent: UnitId, last: u64) {
        if let Some(node) = self.ghosts.push(0, extent.0) {
            self.last[node as usize] = last;
        }
    }
    fn last(&self, slot: u32) -> u64 {
        self.order.key(slot).map_or(0, |times| times.1)
    }
}

impl Replacement for Lru2 {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.order = Heap::with_room(slots, slots);
        self.now = 0;
        self.ghosts = Ghosts::new(slots, 1);
        self.last = vec![0; slots as usize];
    }
    fn hit(&mut self, slot: u32, _access: &Access) {
        self.now += 1;
        self.order.set(slot, (self.last(slot), self.now));
    }
    fn admit(&mut self, access: &Access, _full: bool) -> bool {
        self.now += 1;
        if let Some(node) = self.ghosts.node(access.extent.0) {
            self.ghosts.take(access.extent.0);
            self.returning
                .push((access.extent.0, self.last[node as usize]));
        }
        true
    }
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut found = None;
        while let Some((times, slot)) = self.order.top() {
            if !busy(slot) {
                found = Some(slot);
                break;
            }
            self.order.remove(slot);
            self.aside.push((times, slot));
        }
        for (times, slot) in self.aside.drain(..) {
            self.order.set(slot, times);
        }
        found
    }
    fn inserted(&mut self, slot: u32, extent: UnitId, _write: bool) {
        let last = self.returned(extent).unwrap_or(0);
        self.order.set(slot, (last, self.now));
    }
    fn refused(&mut self, extent: UnitId) {
        if let Some(last) = self.returned(extent) {
            self.remember(extent, last);
        }
    }
    fn removed(&mut self, slot: u32, extent: UnitId) {
        let last = self.last(slot);
        self.order.remove(slot);
        self.remember(extent, last);
    }
    fn bytes(&self) -> usize {
        let lists = self.last.len() * 8 + self.aside.capacity() * 24;
        self.order.bytes() + self.ghosts.bytes() + lists + self.returning.capacity() * 16
    }
}
