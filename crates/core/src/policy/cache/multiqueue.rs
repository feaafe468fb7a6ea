//! The multiqueue of `smq`: levels of equal size, in which a hit exchanges a node with the least recently used node of a higher level.

use crate::collector::Lists;
use alloc::vec;
use alloc::vec::Vec;

/// One ring per level, lowest first. The head of a ring is its least recently used node. Several multiqueues may share the nodes of one
/// [`Levels`]; a node is in at most one of them.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    lists: Lists,
    /// Node → queue · levels + level.
    ring: Vec<u16>,
    /// Nodes in a ring.
    count: Vec<u32>,
    /// Nodes in a queue.
    total: Vec<u32>,
    height: u32,
    /// The level that is balanced next.
    hand: u32,
}

impl Levels {
    pub(super) fn new(nodes: u32, queues: u32, levels: u32) -> Levels {
        Levels {
            lists: Lists::new(nodes, queues * levels),
            ring: vec![0; nodes as usize],
            count: vec![0; (queues * levels) as usize],
            total: vec![0; queues as usize],
            height: levels,
            hand: 0,
        }
    }
    pub(super) fn total(&self, queue: u32) -> u32 {
        self.total[queue as usize]
    }
    pub(super) fn level(&self, node: u32) -> u32 {
        u32::from(self.ring[node as usize]) % self.height
    }
    pub(super) fn queue(&self, node: u32) -> u32 {
        u32::from(self.ring[node as usize]) / self.height
    }
    fn put(&mut self, ring: u32, node: u32) {
        self.ring[node as usize] = ring as u16;
        self.count[ring as usize] += 1;
    }
    /// Adds a node as the most recently used one of a level.
    pub(super) fn push(&mut self, queue: u32, level: u32, node: u32) {
        let ring = queue * self.height + level;
        self.lists.push_tail(ring, node);
        self.put(ring, node);
        self.total[queue as usize] += 1;
        self.balance(queue);
    }
    pub(super) fn remove(&mut self, node: u32) {
        let queue = self.queue(node);
        self.lists.unlink(node);
        self.count[usize::from(self.ring[node as usize])] -= 1;
        self.total[queue as usize] -= 1;
        self.balance(queue);
    }
    /// A hit: moves the node up by `step` levels, in exchange for the least recently used node there.
    pub(super) fn rise(&mut self, node: u32, step: u32) {
        let from = u32::from(self.ring[node as usize]);
        let level = from % self.height;
        let to = from - level + (level + step).min(self.height - 1);
        self.lists.unlink(node);
        self.count[from as usize] -= 1;
        if to != from
            && let Some(other) = self.lists.head(to)
        {
            self.lists.unlink(other);
            self.count[to as usize] -= 1;
            self.lists.push_tail(from, other);
            self.put(from, other);
        }
        self.lists.push_tail(to, node);
        self.put(to, node);
        self.balance(from / self.height);
    }
    /// The least recently used node for which `skip` is false, of the lowest level that has such a node.
    pub(super) fn lowest(&self, queue: u32, mut skip: impl FnMut(u32) -> bool) -> Option<u32> {
        let first = queue * self.height;
        (first..first + self.height)
            .filter(|r| self.count[*r as usize] > 0)
            .find_map(|r| self.lists.first(r, &mut skip))
    }
    /// Moves one node over the next border between two levels, towards levels of equal size: O(1) per step.
    fn balance(&mut self, queue: u32) {
        if self.height < 2 {
            return;
        }
        self.hand = (self.hand + 1) % (self.height - 1);
        let low = queue * self.height + self.hand;
        let high = low + 1;
        let total = self.total[queue as usize];
        let (l, h) = (self.count[low as usize], self.count[high as usize]);
        if l > total.div_ceil(self.height)
            && let Some(n) = self.lists.tail(low)
        {
            self.lists.unlink(n);
            self.count[low as usize] -= 1;
            self.lists.push_head(high, n);
            self.put(high, n);
        } else if l < total / self.height
            && h > 0
            && let Some(n) = self.lists.head(high)
        {
            self.lists.unlink(n);
            self.count[high as usize] -= 1;
            self.lists.push_tail(low, n);
            self.put(low, n);
        }
    }
    pub(super) fn bytes(&self) -> usize {
        self.lists.bytes() + self.ring.len() * 2 + (self.count.len() + self.total.len()) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_swaps_with_the_level_above() {
        let mut q = Levels::new(4, 1, 2);
        q.push(0, 0, 0);
        q.push(0, 0, 1);
        q.push(0, 1, 2);
        q.push(0, 1, 3);
        // 0 moves up. 2, the least recently used node of the level above, moves down and is the most recently used one there.
        q.rise(0, 1);
        assert_eq!([0, 1, 2, 3].map(|n| q.level(n)), [1, 0, 0, 1]);
        assert_eq!(q.lowest(0, |_| false), Some(1));
        assert_eq!(q.lowest(0, |n| n == 1), Some(2));
        assert_eq!(q.lowest(0, |n| n == 1 || n == 2), Some(3));
    }

    #[test]
    fn levels_even_out() {
        let mut q = Levels::new(64, 2, 8);
        for n in 0..64 {
            q.push(1, 0, n);
        }
        for n in (0..64).cycle().take(2000) {
            q.rise(n, 0);
        }
        assert!(
            q.count[8..].iter().all(|c| (7..=9).contains(c)),
            "{:?}",
            q.count
        );
        assert_eq!((q.total(0), q.total(1)), (0, 64));
    }
}
