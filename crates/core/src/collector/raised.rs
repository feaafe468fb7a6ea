//! Units whose worth grew since somebody last asked: what a planner looks at, so that a plan costs what the interval
//! touched. One bit an extent, and a sixty-fourth of that; handed over by number.

use crate::bits::BitTree;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Raised {
    set: BitTree,
    count: usize,
}

impl Default for Raised {
    fn default() -> Raised {
        Raised::new(0)
    }
}

impl Raised {
    /// For units below `n`.
    pub fn new(n: u32) -> Raised {
        Raised {
            set: BitTree::new(n as usize),
            count: 0,
        }
    }
    /// `e` is worth more than before.
    #[inline]
    pub fn note(&mut self, e: UnitId) {
        if !self.set.contains(e.0 as usize) {
            self.set.insert(e.0 as usize);
            self.count += 1;
        }
    }
    /// Has nothing grown?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }
    /// Hand over all of them, lowest number first, and start anew.
    pub fn take(&mut self, out: &mut Vec<UnitId>) {
        out.reserve_exact(self.count);
        let mut at = 0;
        while let Some(i) = self.set.first_from(at) {
            self.set.remove(i);
            out.push(UnitId(i as u32));
            at = i + 1;
        }
        self.count = 0;
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.set.bytes()
    }
}
