//! Ghost lists: the numbers of units whose copies were evicted, in the order of eviction.
//!
//! The memory is fixed when the number of fast slots is known; docs/policies.md has the memory of each policy.

use crate::collector::Lists;
use crate::node_index::NodeIndex;
use alloc::vec;
use alloc::vec::Vec;

/// Ghosts in `rings` lists that share one budget of nodes.
#[derive(Clone, Debug)]
pub struct Ghosts {
    extent: Vec<u32>,
    ring: Vec<u8>,
    lists: Lists,
    len: Vec<u32>,
    index: NodeIndex,
    free: u32,
}

impl Ghosts {
    /// Creates lists for at most `most` ghosts in total.
    pub fn new(most: u32, rings: u8) -> Ghosts {
        // One more list, for the free nodes.
        let free = u32::from(rings);
        let mut lists = Lists::new(most, free + 1);
        for n in 0..most {
            lists.push_tail(free, n);
        }
        Ghosts {
            extent: vec![0; most as usize],
            ring: vec![0; most as usize],
            lists,
            len: vec![0; usize::from(rings)],
            index: NodeIndex::new(most),
            free,
        }
    }
    /// Number of ghosts in a list.
    #[inline]
    pub fn count(&self, ring: u8) -> u32 {
        self.len[usize::from(ring)]
    }
    /// The list that contains an extent.
    #[inline]
    pub fn find(&self, extent: u32) -> Option<u8> {
        Some(self.ring[self.node(extent)? as usize])
    }
    /// Removes an extent; returns the list that contained it.
    pub fn take(&mut self, extent: u32) -> Option<u8> {
        let extents = &self.extent;
        let n = self.index.remove(extent, |n| extents[n as usize])?;
        let ring = self.ring[n as usize];
        self.len[usize::from(ring)] -= 1;
        self.lists.unlink(n);
        self.lists.push_tail(self.free, n);
        Some(ring)
    }
    /// Removes the oldest ghost of a list.
    pub fn drop_oldest(&mut self, ring: u8) -> bool {
        match self.lists.head(u32::from(ring)) {
            Some(n) => self.take(self.extent[n as usize]).is_some(),
            None => false,
        }
    }
    /// Adds an extent as the newest of a list. If there is no room, the oldest ghost of that list is removed; if the list is empty,
    /// the extent is not added. Returns its node, which is below the number of ghosts and does not change while it is in a list.
    pub fn push(&mut self, ring: u8, extent: u32) -> Option<u32> {
        self.take(extent);
        if self.lists.head(self.free).is_none() {
            self.drop_oldest(ring);
        }
        let n = self.lists.head(self.free)?;
        self.lists.unlink(n);
        self.lists.push_tail(u32::from(ring), n);
        (self.extent[n as usize], self.ring[n as usize]) = (extent, ring);
        self.len[usize::from(ring)] += 1;
        self.index.insert(extent, n);
        Some(n)
    }
    /// The node of an extent that is in a list.
    #[inline]
    pub fn node(&self, extent: u32) -> Option<u32> {
        self.index.get(extent, |n| self.extent[n as usize])
    }
    /// Memory, bytes.
    pub fn bytes(&self) -> usize {
        self.extent.len() * 5 + self.lists.bytes() + self.index.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_go_first_and_memory_is_fixed() {
        let mut g = Ghosts::new(3, 2);
        let bytes = g.bytes();
        for e in [10, 11, 12, 13] {
            g.push(0, e);
        }
        assert_eq!((g.find(10), g.find(11), g.count(0)), (None, Some(0), 3));
        g.push(1, 14); // there is no room, and list 1 has no ghost that could be removed
        assert_eq!(g.find(14), None);
        assert!(g.drop_oldest(0));
        g.push(1, 14);
        assert_eq!((g.find(11), g.find(14)), (None, Some(1)));
        g.push(0, 14); // moves to the other list
        assert_eq!((g.count(0), g.count(1), g.take(14)), (3, 0, Some(0)));
        assert_eq!(g.take(14), None);
        let mut none = Ghosts::new(0, 1);
        none.push(0, 1);
        assert!(none.count(0) == 0 && none.find(1).is_none());
        assert_eq!(g.bytes(), bytes);
    }
}
