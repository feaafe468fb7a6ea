//! Units whose worth grew since somebody last asked: what a planner looks at, so that a plan costs what the interval
//! touched. One bit an extent.

use crate::bits::Bits;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Raised {
    list: Vec<UnitId>,
    listed: Bits,
}

impl Raised {
    /// For extents below `n`.
    pub fn new(n: u32) -> Raised {
        Raised {
            list: Vec::new(),
            listed: Bits::new(n as usize),
        }
    }
    /// `e` is worth more than before.
    #[inline]
    pub fn note(&mut self, e: UnitId) {
        if self.listed.set(e.0 as usize) {
            self.list.push(e);
        }
    }
    /// Has nothing grown?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }
    /// Hand over all of them, and start anew.
    pub fn take(&mut self, out: &mut Vec<UnitId>) {
        for e in &self.list {
            self.listed.clear(e.0 as usize);
        }
        out.append(&mut self.list);
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.listed.bytes() + self.list.capacity() * 4
    }
}
