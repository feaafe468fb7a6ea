//! The set of units whose worth grew since the last plan. A plan examines only these, so its cost depends on the number of units that were
//! accessed in the interval. The set takes one bit per extent and 1/63 more, and lists the units by number.

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
    /// Creates an empty set for units below `n`.
    pub fn new(n: u32) -> Raised {
        Raised {
            set: BitTree::new(n as usize),
            count: 0,
        }
    }
    /// Notes that the worth of `e` has grown.
    #[inline]
    pub fn note(&mut self, e: UnitId) {
        if !self.set.contains(e.0 as usize) {
            self.set.insert(e.0 as usize);
            self.count += 1;
        }
    }
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Number of units in the set.
    pub fn len(&self) -> usize {
        self.count
    }
    /// Moves all units to the list, lowest number first, and empties the set.
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
