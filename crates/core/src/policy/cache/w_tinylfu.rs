//! `w-tinylfu`: a small window in front of a segmented LRU, with admission by estimated frequency (Einziger, Friedman and
//! Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM Transactions on Storage 2017; docs/policy-rules.md section 1).
//!
//! Newcomers enter the window (LRU, max(1, ⌊F/100⌋) units). When a slot is needed, the oldest unit of the window is compared with the
//! oldest unit of probation. The one with the higher recent frequency stays; on ties the unit of probation stays. If the window's unit
//! stays, it moves to probation. A hit in probation moves a unit to protected (80 % of main). If protected is full, its oldest units return
//! to probation. Frequencies are those of a count-min sketch of 4-bit counters that halves all counters once in 10 · F touches.
//!
//! It differs from the reference implementations in the hash functions, in gradual ageing, and in having neither a doorkeeper nor random
//! admission. So hit ratios are close to theirs, but not equal.
//!
//! Parameters: `window` (share of the fast slots, 0.001 to 1, default 0.01), `protected` (share of main, 0 to 1, default
//! 0.8), both read when the volume is opened. When not to use it: when new data is used soon and then never again (mail
//! spools, builds), because such data is not admitted to main.

use super::Replacement;
use super::sketch::Sketch;
use crate::collector::Lists;
use crate::policy::{Access, ParamError, nearest};
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct WTinyLfu {
    lists: Lists,
    list: Vec<u8>,
    extent: Vec<u32>,
    len: [u32; 3],
    window_most: u32,
    protected_most: u32,
    sketch: Sketch,
    window: f64,
    protected: f64,
}

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

impl Default for WTinyLfu {
    fn default() -> WTinyLfu {
        WTinyLfu {
            lists: Lists::new(0, 3),
            list: Vec::new(),
            extent: Vec::new(),
            len: [0; 3],
            window_most: 1,
            protected_most: 0,
            sketch: Sketch::new(1),
            window: 0.01,
            protected: 0.8,
        }
    }
}

impl WTinyLfu {
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
    /// Moves the oldest units of `from` to the young end of `to` until at most `most` are left.
    fn overflow(&mut self, from: u8, to: u8, most: u32) {
        while self.len[usize::from(from)] > most {
            let Some(s) = self.lists.head(u32::from(from)) else {
                return;
            };
            self.leave(s);
            self.enter(s, to);
        }
    }
}

impl Replacement for WTinyLfu {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.lists = Lists::new(slots, 3);
        self.list = vec![0; slots as usize];
        self.extent = vec![0; slots as usize];
        self.len = [0; 3];
        // The cast truncates, which is the floor in the specification.
        self.window_most = ((f64::from(slots) * self.window) as u32).clamp(1, slots.max(1));
        let main = slots - self.window_most.min(slots);
        self.protected_most = (f64::from(main) * self.protected) as u32;
        self.sketch = Sketch::new(slots);
    }
    fn hit(&mut self, slot: u32, access: &Access) {
        self.sketch.touch(access.extent.0);
        if self.leave(slot) == WINDOW {
            self.enter(slot, WINDOW);
        } else {
            self.enter(slot, PROTECTED);
            self.overflow(PROTECTED, PROBATION, self.protected_most);
        }
    }
    fn admit(&mut self, access: &Access, _full: bool) -> bool {
        self.sketch.touch(access.extent.0);
        true
    }
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut oldest = |list: u8| self.lists.first(u32::from(list), &mut busy);
        let candidate = oldest(WINDOW);
        let resident = oldest(PROBATION).or_else(|| oldest(PROTECTED));
        match (candidate, resident) {
            (Some(c), Some(r)) => {
                let count = |s: u32| self.sketch.count(self.extent[s as usize]);
                // A window with room keeps its oldest unit, so there is no comparison.
                let stays = self.len[0] < self.window_most || count(c) > count(r);
                Some(if stays { r } else { c })
            }
            (c, r) => c.or(r),
        }
    }
    fn inserted(&mut self, slot: u32, extent: UnitId, _write: bool) {
        self.extent[slot as usize] = extent.0;
        self.enter(slot, WINDOW);
        self.overflow(WINDOW, PROBATION, self.window_most);
    }
    fn removed(&mut self, slot: u32, _extent: UnitId) {
        self.leave(slot);
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        match key {
            "window" if (0.001..=1.0).contains(&value) => self.window = value,
            "window" => return Err(ParamError::Range("0.001 to 1")),
            "protected" if (0.0..=1.0).contains(&value) => self.protected = value,
            "protected" => return Err(ParamError::Range("0 to 1")),
            _ => {
                return Err(ParamError::Unknown(nearest(
                    key,
                    ["window", "protected"].into_iter(),
                )));
            }
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        vec![("protected", self.protected), ("window", self.window)]
    }
    fn bytes(&self) -> usize {
        self.lists.bytes() + self.list.len() + self.extent.len() * 4 + self.sketch.bytes()
    }
}
