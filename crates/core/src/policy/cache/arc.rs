//! `arc`: adaptive replacement (Megiddo and Modha, FAST '03, figure 4; docs/policy-rules.md section 1).
//!
//! T1 holds units that were accessed once recently, T2 those accessed more often. The ghost lists B1 and B2 remember the units that
//! each of them evicted. A miss that is found in B1 shows that T1 was too small, and one in B2 that T2 was; the target p for the size of
//! T1 is adjusted accordingly. p is a real number; the quotients are not rounded, and are computed before the unit leaves its ghost list.
//!
//! Parameters: none. When not to use it: with little memory, or for loops that are a little longer than the fast tier.

use super::{Ghosts, Replacement};
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Arc {
    /// T1 and T2, least recently used at the head.
    lists: Lists,
    /// Slot → list.
    list: Vec<u8>,
    len: [u32; 2],
    /// B1 and B2.
    ghosts: Ghosts,
    /// Target size of T1.
    p: f64,
    slots: u32,
    /// Newcomers that were found in a ghost list and whose fetch is in progress.
    returning: Vec<(u32, u8)>,
}

const ONCE: u8 = 0;
const OFTEN: u8 = 1;

impl Default for Arc {
    fn default() -> Arc {
        Arc {
            lists: Lists::new(0, 2),
            list: Vec::new(),
            len: [0; 2],
            ghosts: Ghosts::new(0, 2),
            p: 0.0,
            slots: 0,
            returning: Vec::new(),
        }
    }
}

impl Arc {
    fn enter(&mut self, slot: u32, list: u8) {
        self.lists.push_tail(u32::from(list), slot);
        self.list[slot as usize] = list;
        self.len[usize::from(list)] += 1;
    }
    fn leave(&mut self, slot: u32) -> u8 {
        let list = self.list[slot as usize];
        self.lists.unlink(slot);
        self.len[usize::from(list)] -= 1;
        list
    }
    fn origin(&self, extent: UnitId) -> Option<u8> {
        self.returning.iter().find(|r| r.0 == extent.0).map(|r| r.1)
    }
    fn forget(&mut self, extent: UnitId) -> Option<u8> {
        let i = self.returning.iter().position(|r| r.0 == extent.0)?;
        Some(self.returning.swap_remove(i).1)
    }
    /// The paper trims ghosts before it evicts. Trimming after the insertion leaves the same lists: the unit that case IV A
    /// with a full T1 never remembers is here the oldest (and only) ghost of B1.
    fn trim(&mut self) {
        let (l1, l2) = (
            self.len[0] + self.ghosts.count(ONCE),
            self.len[1] + self.ghosts.count(OFTEN),
        );
        if l1 > self.slots {
            self.ghosts.drop_oldest(ONCE);
        } else if l1 + l2 > 2 * self.slots {
            self.ghosts.drop_oldest(OFTEN);
        }
    }
    /// The target size of T1.
    pub fn target(&self) -> f64 {
        self.p
    }
}

impl Replacement for Arc {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.slots = slots;
        self.lists = Lists::new(slots, 2);
        self.list = vec![0; slots as usize];
        self.len = [0; 2];
        // One ghost more than slots, because a victim's ghost is added before trimming.
        self.ghosts = Ghosts::new(slots + 1, 2);
        self.p = 0.0;
    }
    #[inline]
    fn hit(&mut self, slot: u32, _access: &Access) {
        self.leave(slot);
        self.enter(slot, OFTEN);
    }
    fn admit(&mut self, access: &Access, _full: bool) -> bool {
        let Some(ghost) = self.ghosts.find(access.extent.0) else {
            return true;
        };
        let (b1, b2) = (
            f64::from(self.ghosts.count(ONCE)),
            f64::from(self.ghosts.count(OFTEN)),
        );
        self.p = if ghost == ONCE {
            (self.p + if b1 >= b2 { 1.0 } else { b2 / b1 }).min(f64::from(self.slots))
        } else {
            (self.p - if b2 >= b1 { 1.0 } else { b1 / b2 }).max(0.0)
        };
        self.ghosts.take(access.extent.0);
        self.returning.push((access.extent.0, ghost));
        true
    }
    fn victim(&mut self, newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let t1 = f64::from(self.len[0]);
        let from_b2 = self.origin(newcomer) == Some(OFTEN);
        #[expect(clippy::float_cmp, reason = "the paper's |T1| = p with real p")]
        let once = self.len[0] > 0 && (t1 > self.p || (from_b2 && t1 == self.p));
        // Case IV A: T1 alone fills L1, so the victim is from T1 whatever p is.
        let full_l1 = self.origin(newcomer).is_none() && self.len[0] >= self.slots;
        let (first, second) = if once || full_l1 {
            (ONCE, OFTEN)
        } else {
            (OFTEN, ONCE)
        };
        self.lists
            .first(u32::from(first), &mut busy)
            .or_else(|| self.lists.first(u32::from(second), &mut busy))
    }
    fn inserted(&mut self, slot: u32, extent: UnitId, _write: bool) {
        let list = match self.forget(extent) {
            Some(_) => OFTEN,
            None => ONCE,
        };
        self.enter(slot, list);
        self.trim();
    }
    fn refused(&mut self, extent: UnitId) {
        if let Some(ghost) = self.forget(extent) {
            self.ghosts.push(ghost, extent.0);
            self.trim();
        }
    }
    fn removed(&mut self, slot: u32, extent: UnitId) {
        let list = self.leave(slot);
        self.ghosts.push(list, extent.0);
    }
    fn bytes(&self) -> usize {
        self.lists.bytes() + self.list.len() + self.ghosts.bytes() + self.returning.capacity() * 8
    }
}
