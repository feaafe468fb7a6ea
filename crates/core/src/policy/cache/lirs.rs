//! `lirs`: evicts by the distance between the last two accesses (Jiang and Zhang, SIGMETRICS '02; docs/policy-rules.md section 1).
//!
//! A stack S has units by their last access, and some that were evicted (ghosts). A unit that is accessed while it is in S has a short
//! distance between two accesses: it becomes LIR. All but max(1, ⌊F/100⌋) slots are for LIR units. The other units are in the queue Q as
//! well, and the oldest of Q leaves. If there are too many LIR units, the one at the bottom of S goes to Q; then what lies below the lowest
//! LIR unit leaves S, so that a unit is in S only if its distance is less than that of a LIR unit.
//!
//! The paper does not bound the ghosts. Here there are as many as slots; the one that was evicted first is forgotten.
//!
//! Parameters: none. When not to use it: with little memory, or where the popular data changes quickly.

use super::Replacement;
use crate::bits::Bits;
use crate::collector::Lists;
use crate::node_index::NodeIndex;
use crate::policy::Access;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module. Nodes below the number of slots are slots, the others ghosts.
#[derive(Clone, Debug)]
pub struct Lirs {
    /// S, with its bottom at the head.
    stack: Lists,
    /// Q, oldest at the head.
    queue: Lists,
    /// The slots whose units are LIR.
    lir: Bits,
    near: u32,
    near_most: u32,
    slots: u32,
    /// Ghosts by age, and unused ones.
    ghosts: Lists,
    /// Ghost → extent.
    extent: Vec<u32>,
    index: NodeIndex,
    /// Newcomers that were found among the ghosts and whose fetch is in progress.
    returning: Vec<u32>,
}

const KNOWN: u32 = 0;
const UNUSED: u32 = 1;

impl Default for Lirs {
    fn default() -> Lirs {
        Lirs {
            stack: Lists::new(0, 1),
            queue: Lists::new(0, 1),
            lir: Bits::new(0),
            near: 0,
            near_most: 0,
            slots: 0,
            ghosts: Lists::new(0, 2),
            extent: Vec::new(),
            index: NodeIndex::new(0),
            returning: Vec::new(),
        }
    }
}

impl Lirs {
    fn is_lir(&self, node: u32) -> bool {
        node < self.slots && self.lir.get(node as usize)
    }
    fn has_returned(&mut self, extent: UnitId) -> bool {
        let at = self.returning.iter().position(|r| *r == extent.0);
        at.map(|i| self.returning.swap_remove(i)).is_some()
    }
    fn ghost(&self, extent: UnitId) -> Option<u32> {
        self.index.get(extent.0, |g| self.extent[g as usize])
    }
    fn forget(&mut self, ghost: u32) {
        let extents = &self.extent;
        self.index
            .remove(extents[ghost as usize], |g| extents[g as usize]);
        self.stack.unlink(self.slots + ghost);
        self.ghosts.unlink(ghost);
        self.ghosts.push_tail(UNUSED, ghost);
    }
    /// Takes what lies below the lowest LIR unit out of S.
    fn prune(&mut self) {
        while let Some(node) = self.stack.head(0).filter(|&n| !self.is_lir(n)) {
            if node < self.slots {
                self.stack.unlink(node);
            } else {
                self.forget(node - self.slots);
            }
        }
    }
    /// Makes a unit LIR, which is on top of S; the one at the bottom goes to Q if there are too many.
    fn raise(&mut self, slot: u32) {
        self.lir.set(slot as usize);
        self.near += 1;
        self.prune();
        if self.near <= self.near_most {
            return;
        }
        if let Some(lowest) = self.stack.head(0) {
            self.stack.unlink(lowest);
            self.lir.clear(lowest as usize);
            self.near -= 1;
            self.queue.push_tail(0, lowest);
            self.prune();
        }
    }
    fn raise_to_top(&mut self, slot: u32) {
        self.stack.unlink(slot);
        self.stack.push_tail(0, slot);
    }
}

impl Replacement for Lirs {
    fn attach(&mut self, slots: u32, _extents: u32) {
        *self = Lirs {
            stack: Lists::new(2 * slots, 1),
            queue: Lists::new(slots, 1),
            lir: Bits::new(slots as usize),
            near_most: slots - (slots / 100).max(1),
            slots,
            ghosts: Lists::new(slots, 2),
            extent: vec![0; slots as usize],
            index: NodeIndex::new(slots),
            ..Lirs::default()
        };
        for ghost in 0..slots {
            self.ghosts.push_tail(UNUSED, ghost);
        }
    }
    fn hit(&mut self, slot: u32, _access: &Access) {
        if self.is_lir(slot) {
            self.raise_to_top(slot);
            return self.prune();
        }
        self.queue.unlink(slot);
        if self.stack.contains(slot) {
            self.raise_to_top(slot);
            self.raise(slot);
        } else {
            self.raise_to_top(slot);
            self.queue.push_tail(0, slot);
            self.prune();
        }
    }
    fn admit(&mut self, access: &Access, _full: bool) -> bool {
        if self.ghost(access.extent).is_some() {
            self.returning.push(access.extent.0);
        }
        true
    }
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let victim = self.queue.first(0, &mut busy);
        victim.or_else(|| self.stack.first(0, |n| !self.is_lir(n) || busy(n)))
    }
    fn inserted(&mut self, slot: u32, extent: UnitId, _write: bool) {
        let near = self.has_returned(extent);
        if let Some(ghost) = self.ghost(extent) {
            self.forget(ghost);
        }
        self.raise_to_top(slot);
        if near || self.near < self.near_most {
            self.raise(slot);
        } else {
            self.queue.push_tail(0, slot);
            self.prune();
        }
    }
    fn refused(&mut self, extent: UnitId) {
        self.has_returned(extent);
    }
    fn removed(&mut self, slot: u32, extent: UnitId) {
        if self.is_lir(slot) {
            self.stack.unlink(slot);
            self.lir.clear(slot as usize);
            self.near -= 1;
            return self.prune();
        }
        self.queue.unlink(slot);
        if !self.stack.contains(slot) {
            return;
        }
        if self.ghosts.head(UNUSED).is_none()
            && let Some(oldest) = self.ghosts.head(KNOWN)
        {
            self.forget(oldest);
        }
        if let Some(ghost) = self.ghosts.head(UNUSED) {
            self.ghosts.unlink(ghost);
            self.ghosts.push_tail(KNOWN, ghost);
            self.extent[ghost as usize] = extent.0;
            self.index.insert(extent.0, ghost);
            self.stack.insert_after(slot, self.slots + ghost);
        }
        self.stack.unlink(slot);
    }
    fn bytes(&self) -> usize {
        let lists = self.stack.bytes() + self.queue.bytes() + self.ghosts.bytes();
        let index = self.index.bytes() + self.extent.len() * 4;
        lists + index + self.lir.bytes() + self.returning.capacity() * 4
    }
}
