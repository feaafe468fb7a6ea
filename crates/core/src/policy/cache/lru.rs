//! `lru`: evicts the least recently used copy (docs/policy-rules.md section 1).
//!
//! Parameters: none. When not to use it: scans and loops longer than the fast tier push everything else out.

use super::Replacement;
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;

/// See the module.
#[derive(Clone, Debug)]
pub struct Lru {
    list: Lists,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru {
            list: Lists::new(0, 1),
        }
    }
}

impl Replacement for Lru {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.list = Lists::new(slots, 1);
    }
    #[inline]
    fn hit(&mut self, slot: u32, _access: &Access) {
        self.list.unlink(slot);
        self.list.push_tail(0, slot);
    }
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
