//! `two-q`: the full version of 2Q (Johnson and Shasha, VLDB '94; docs/policy-rules.md section 1).
//!
//! Newcomers enter A1in, a queue. What leaves it is evicted and remembered in A1out, a list of ghosts. A miss that is found in A1out
//! enters Am, which is an LRU list: data has to come back after its first burst of use to count as hot. A1in is evicted from while it has
//! more than Kin = max(1, ⌊F/4⌋) units; A1out holds Kout = ⌊F/2⌋ ghosts (the paper's recommendations).
//!
//! Parameters: none. When not to use it: if data is used often for a short time, which A1in does not see as use.

use super::{Ghosts, Replacement};
use crate::bits::Bits;
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct TwoQ {
    /// A1in and Am, oldest at the head.
    lists: Lists,
    /// The slots whose units are in Am.
    hot: Bits,
    /// Number of units in A1in.
    new: u32,
    new_most: u32,
    /// A1out.
    ghosts: Ghosts,
    /// Newcomers that were found among the ghosts and whose fetch is in progress.
    returning: Vec<u32>,
}

const NEW: u32 = 0;
const HOT: u32 = 1;

impl Default for TwoQ {
    fn default() -> TwoQ {
        TwoQ {
            lists: Lists::new(0, 2),
            hot: Bits::new(0),
            new: 0,
            new_most: 0,
            ghosts: Ghosts::new(0, 1),
            returning: Vec::new(),
        }
    }
}

impl TwoQ {
    fn has_returned(&mut self, extent: UnitId) -> bool {
        let at = self.returning.iter().position(|r| *r == extent.0);
        at.map(|i| self.returning.swap_remove(i)).is_some()
    }
}

impl Replacement for TwoQ {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.lists = Lists::new(slots, 2);
        self.hot = Bits::new(slots as usize);
        self.new = 0;
        self.new_most = (slots / 4).max(1);
        self.ghosts = Ghosts::new(slots / 2, 1);
    }
    #[inline]
    fn hit(&mut self, slot: u32, _access: &Access) {
        if self.hot.get(slot as usize) {
            self.lists.unlink(slot);
            self.lists.push_tail(HOT, slot);
        }
    }
    #[inline]
    fn admit(&mut self, access: &Access, _full: bool) -> bool {
        if self.ghosts.take(access.extent.0).is_some() {
            self.returning.push(access.extent.0);
        }
        true
    }
    #[inline]
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let (first, second) = if self.new > self.new_most {
            (NEW, HOT)
        } else {
            (HOT, NEW)
        };
        let victim = self.lists.first(first, &mut busy);
        victim.or_else(|| self.lists.first(second, &mut busy))
    }
    #[inline]
    fn inserted(&mut self, slot: u32, extent: UnitId, _write: bool) {
        if self.has_returned(extent) {
            self.lists.push_tail(HOT, slot);
            self.hot.set(slot as usize);
        } else {
            self.lists.push_tail(NEW, slot);
            self.hot.clear(slot as usize);
            self.new += 1;
        }
    }
    fn refused(&mut self, extent: UnitId) {
        if self.has_returned(extent) {
            self.ghosts.push(0, extent.0);
        }
    }
    #[inline]
    fn removed(&mut self, slot: u32, extent: UnitId) {
        self.lists.unlink(slot);
        if !self.hot.get(slot as usize) {
            self.new -= 1;
            self.ghosts.push(0, extent.0);
        }
    }
    fn bytes(&self) -> usize {
        self.lists.bytes() + self.hot.bytes() + self.ghosts.bytes() + self.returning.capacity() * 4
    }
}
