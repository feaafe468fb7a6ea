//! `sieve`: one queue, one bit, one hand (Zhang et al., NSDI '24; docs/policy-rules.md section 1).
//!
//! Newcomers enter at the young end and never move. A hit sets the unit's bit. The hand moves from old to young, clears bits, and evicts
//! the first unit whose bit is not set. After the young end it continues at the old end.
//!
//! Parameters: none. When not to use it: if most hits are to data that was fetched a moment ago, as in many block traces. The hand then
//! reaches new units before their second use; `s3-fifo` and `arc` are better for such work.

use super::Replacement;
use crate::bits::Bits;
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;

/// See the module.
#[derive(Clone, Debug)]
pub struct Sieve {
    /// Oldest at the head.
    list: Lists,
    visited: Bits,
    /// Position of the hand; `None` is the old end.
    hand: Option<u32>,
    len: u32,
}

impl Default for Sieve {
    fn default() -> Sieve {
        Sieve {
            list: Lists::new(0, 1),
            visited: Bits::new(0),
            hand: None,
            len: 0,
        }
    }
}

impl Replacement for Sieve {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.list = Lists::new(slots, 1);
        self.visited = Bits::new(slots as usize);
        (self.hand, self.len) = (None, 0);
    }
    #[inline]
    fn hit(&mut self, slot: u32, _access: &Access) {
        self.visited.set(slot as usize);
    }
    #[inline]
    fn admit(&mut self, _access: &Access, _full: bool) -> bool {
        true
    }
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        // The first round clears bits; the second finds a victim unless all are busy.
        for _ in 0..2 * u64::from(self.len) {
            let s = self.hand.or_else(|| self.list.head(0))?;
            if !busy(s) {
                if !self.visited.get(s as usize) {
                    self.hand = Some(s);
                    return Some(s);
                }
                self.visited.clear(s as usize);
            }
            self.hand = self.list.next(s);
        }
        None
    }
    #[inline]
    fn inserted(&mut self, slot: u32, _extent: UnitId, _write: bool) {
        self.list.push_tail(0, slot);
        self.visited.clear(slot as usize);
        self.len += 1;
    }
    #[inline]
    fn removed(&mut self, slot: u32, _extent: UnitId) {
        if self.hand == Some(slot) {
            self.hand = self.list.next(slot);
        }
        self.list.unlink(slot);
        self.len -= 1;
    }
    fn bytes(&self) -> usize {
        self.list.bytes() + self.visited.bytes()
    }
}
