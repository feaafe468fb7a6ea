//! `fifo`: evicts the copy that was fetched longest ago, whether it was used or not (docs/policy-rules.md section 1).
//!
//! Parameters: none. When not to use it: it is a baseline. `sieve` costs as little and keeps units that are used.

use super::Replacement;
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;

/// See the module.
#[derive(Clone, Debug)]
pub struct Fifo {
    list: Lists,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo {
            list: Lists::new(0, 1),
        }
    }
}

impl Replacement for Fifo {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.list = Lists::new(slots, 1);
    }
    #[inline]
    fn hit(&mut self, _slot: u32, _access: &Access) {}
    #[inline]
    fn admit(&mut self, _access: &Access, _full: bool) -> bool {
        true
    }
    #[inline]
    fn victim(&mut self, _newcomer: UnitId, busy: impl FnMut(u32) -> bool) -> Option<u32> {
        self.list.first(0, busy)
    }
    #[inline]
    fn inserted(&mut self, slot: u32, _extent: UnitId, _write: bool) {
        self.list.push_tail(0, slot);
    }
    #[inline]
    fn removed(&mut self, slot: u32, _extent: UnitId) {
        self.list.unlink(slot);
    }
    fn bytes(&self) -> usize {
        self.list.bytes()
    }
}
