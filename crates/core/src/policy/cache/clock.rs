//! `clock`: first in, first out, with a second chance (Corbató, 1968; docs/policy-rules.md section 1).
//!
//! A hit sets the unit's bit. The hand looks at the oldest unit: if its bit is set, the bit is cleared and the unit counts as the youngest,
//! else the unit is evicted.
//!
//! Parameters: none. When not to use it: scans and loops longer than the fast tier push everything else out, as with `lru`.

use super::Replacement;
use crate::bits::Bits;
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;

/// See the module.
#[derive(Clone, Debug)]
pub struct Clock {
    /// From the hand on: oldest at the head.
    list: Lists,
    used: Bits,
    len: u32,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            list: Lists::new(0, 1),
            used: Bits::new(0),
            len: 0,
        }
    }
}

impl Replacement for Clock {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.list = Lists::new(slots, 1);
        self.used = Bits::new(slots as usize);
        self.len = 0;
    }
    #[inline]
    fn hit(&mut self, slot: u32, _access: &Access) {
        self.used.set(slot as usize);
    }
    #[inline]
    fn admit(&mut self, _access: &Access, _full: bool) -> bool {
        true
    }
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        // The first round clears bits; the second finds a victim unless all are busy.
        let mut at = self.list.head(0);
        for _ in 0..2 * u64::from(self.len) {
            let s = at.or_else(|| self.list.head(0))?;
            at = self.list.next(s);
            if busy(s) {
                continue;
            }
            if !self.used.get(s as usize) {
                return Some(s);
            }
            self.used.clear(s as usize);
            self.list.unlink(s);
            self.list.push_tail(0, s);
        }
        None
    }
    #[inline]
    fn inserted(&mut self, slot: u32, _extent: UnitId, _write: bool) {
        self.list.push_tail(0, slot);
        self.used.clear(slot as usize);
        self.len += 1;
    }
    #[inline]
    fn removed(&mut self, slot: u32, _extent: UnitId) {
        self.list.unlink(slot);
        self.len -= 1;
    }
    fn bytes(&self) -> usize {
        self.list.bytes() + self.used.bytes()
    }
}
