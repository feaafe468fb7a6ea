//! `lfu`: evicts the least frequently used copy; on ties, the one accessed longest ago (docs/policy-rules.md section 1).
//!
//! The count is 1 at the fetch and forgotten at the eviction; it saturates at 2^32 − 1. Copies with the same count form a list in the order
//! of their last access, and these lists are in the order of their counts. So every step takes constant time.
//!
//! Parameters: none. When not to use it: when the popular data changes. Counts never age, so units that were popular in the past stay, and
//! all new data shares one slot. The counts of `hot-dst-frequency` and `w-tinylfu` age.

use super::Replacement;
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Lfu {
    /// Slots, in one ring per bucket.
    slots: Lists,
    /// Slot → bucket.
    bucket: Vec<u32>,
    /// Bucket → count.
    count: Vec<u32>,
    /// Buckets in use, by rising count, and unused buckets.
    buckets: Lists,
}

const USED: u32 = 0;
const UNUSED: u32 = 1;

impl Default for Lfu {
    fn default() -> Lfu {
        Lfu {
            slots: Lists::new(0, 0),
            bucket: Vec::new(),
            count: Vec::new(),
            buckets: Lists::new(0, 2),
        }
    }
}

impl Lfu {
    /// Takes an unused bucket for `count` and inserts it after `before` (at the front if `None`).
    fn open(&mut self, before: Option<u32>, count: u32) -> u32 {
        let b = self.buckets.head(UNUSED).unwrap_or(0);
        debug_assert!(self.buckets.head(UNUSED).is_some(), "a bucket a slot");
        self.buckets.unlink(b);
        match before {
            Some(x) => self.buckets.insert_after(x, b),
            None => self.buckets.push_head(USED, b),
        }
        self.count[b as usize] = count;
        b
    }
    fn leave(&mut self, slot: u32) {
        let b = self.bucket[slot as usize];
        self.slots.unlink(slot);
        if self.slots.head(b).is_none() {
            self.buckets.unlink(b);
            self.buckets.push_tail(UNUSED, b);
        }
    }
    fn enter(&mut self, slot: u32, bucket: u32) {
        self.slots.push_tail(bucket, slot);
        self.bucket[slot as usize] = bucket;
    }
}

impl Replacement for Lfu {
    fn attach(&mut self, slots: u32, _extents: u32) {
        // One bucket more than slots, because a slot's new bucket is opened before its old one is closed.
        let buckets = slots + 1;
        self.slots = Lists::new(slots, buckets);
        self.bucket = vec![0; slots as usize];
        self.count = vec![0; buckets as usize];
        self.buckets = Lists::new(buckets, 2);
        for b in 0..buckets {
            self.buckets.push_tail(UNUSED, b);
        }
    }
    fn hit(&mut self, slot: u32, _access: &Access) {
        let b = self.bucket[slot as usize];
        let count = self.count[b as usize].saturating_add(1);
        if count == self.count[b as usize] {
            self.slots.unlink(slot);
            self.slots.push_tail(b, slot);
            return;
        }
        let next = self.buckets.next(b);
        match next.filter(|&n| self.count[n as usize] == count) {
            Some(n) => {
                self.leave(slot);
                self.enter(slot, n);
            }
            None if self.slots.head(b) == self.slots.tail(b) => self.count[b as usize] = count,
            None => {
                let n = self.open(Some(b), count);
                self.leave(slot);
                self.enter(slot, n);
            }
        }
    }
    fn admit(&mut self, _access: &Access, _full: bool) -> bool {
        true
    }
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut bucket = self.buckets.head(USED);
        while let Some(b) = bucket {
            if let Some(s) = self.slots.first(b, &mut busy) {
                return Some(s);
            }
            bucket = self.buckets.next(b);
        }
        None
    }
    fn inserted(&mut self, slot: u32, _extent: UnitId, _write: bool) {
        let first = self.buckets.head(USED);
        let b = match first.filter(|&b| self.count[b as usize] == 1) {
            Some(b) => b,
            None => self.open(None, 1),
        };
        self.enter(slot, b);
    }
    fn removed(&mut self, slot: u32, _extent: UnitId) {
        self.leave(slot);
    }
    fn bytes(&self) -> usize {
        self.slots.bytes() + self.buckets.bytes() + (self.bucket.len() + self.count.len()) * 4
    }
}
