//! Doubly linked rings whose links are in one array, for orders of recency without allocation.

use alloc::vec::Vec;

const NIL: u32 = u32::MAX;

/// Rings of nodes `0..nodes`. Each ring has its own sentinel. So a node can be removed without knowing its ring, and two rings can be
/// joined in constant time.
#[derive(Clone, Debug)]
pub struct Lists {
    links: Vec<(u32, u32)>, // (previous, next)
    nodes: u32,
}

impl Lists {
    /// Creates `rings` empty rings over `nodes` nodes.
    pub fn new(nodes: u32, rings: u32) -> Lists {
        let mut links = Vec::with_capacity((nodes + rings) as usize);
        links.resize(nodes as usize, (NIL, NIL));
        links.extend((0..rings).map(|r| (nodes + r, nodes + r)));
        Lists { links, nodes }
    }
    /// Whether the node is in a ring.
    #[inline]
    pub fn contains(&self, node: u32) -> bool {
        self.links[node as usize].0 != NIL
    }
    /// Appends a node at the tail of a ring.
    #[inline]
    pub fn push_tail(&mut self, ring: u32, node: u32) {
        debug_assert!(!self.contains(node));
        let s = self.nodes + ring;
        let last = self.links[s as usize].0;
        self.links[node as usize] = (last, s);
        self.links[last as usize].1 = node;
        self.links[s as usize].0 = node;
    }
    /// Inserts a node before the head of a ring.
    #[inline]
    pub fn push_head(&mut self, ring: u32, node: u32) {
        self.insert_after(self.nodes + ring, node);
    }
    /// Inserts a node directly after `before`, which is in a ring.
    #[inline]
    pub fn insert_after(&mut self, before: u32, node: u32) {
        debug_assert!(!self.contains(node));
        let next = self.links[before as usize].1;
        self.links[node as usize] = (before, next);
        self.links[next as usize].0 = node;
        self.links[before as usize].1 = node;
    }
    /// Removes a node from its ring, if it is in one.
    #[inline]
    pub fn unlink(&mut self, node: u32) {
        let (p, n) = self.links[node as usize];
        if p != NIL {
            self.links[p as usize].1 = n;
            self.links[n as usize].0 = p;
            self.links[node as usize] = (NIL, NIL);
        }
    }
    /// The node at the head of a ring.
    #[inline]
    pub fn head(&self, ring: u32) -> Option<u32> {
        self.checked(self.links[(self.nodes + ring) as usize].1)
    }
    /// The node at the tail of a ring.
    #[inline]
    pub fn tail(&self, ring: u32) -> Option<u32> {
        self.checked(self.links[(self.nodes + ring) as usize].0)
    }
    /// The first node from the head for which `skip` is false.
    #[inline]
    pub fn first(&self, ring: u32, mut skip: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.head(ring);
        while let Some(n) = at.filter(|&n| skip(n)) {
            at = self.next(n);
        }
        at
    }
    /// The node after `node` in its ring.
    #[inline]
    pub fn next(&self, node: u32) -> Option<u32> {
        self.checked(self.links[node as usize].1)
    }
    #[inline]
    fn checked(&self, n: u32) -> Option<u32> {
        (n < self.nodes).then_some(n)
    }
    /// Moves all nodes of `from` before the head of `to`; `from` is empty afterwards.
    pub fn prepend(&mut self, from: u32, to: u32) {
        let (f, t) = (self.nodes + from, self.nodes + to);
        let (last, first) = self.links[f as usize];
        if first == f {
            return;
        }
        let head = self.links[t as usize].1;
        self.links[t as usize].1 = first;
        self.links[first as usize].0 = t;
        self.links[last as usize].1 = head;
        self.links[head as usize].0 = last;
        self.links[f as usize] = (f, f);
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.links.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(l: &Lists, ring: u32) -> Vec<u32> {
        let mut v = Vec::new();
        let mut n = l.head(ring);
        while let Some(x) = n {
            v.push(x);
            n = l.next(x);
        }
        v
    }

    #[test]
    fn push_unlink_prepend() {
        let mut l = Lists::new(6, 2);
        for n in [0, 1, 2] {
            l.push_tail(0, n);
        }
        for n in [3, 4] {
            l.push_tail(1, n);
        }
        l.unlink(1);
        l.unlink(1);
        assert_eq!(all(&l, 0), [0, 2]);
        l.prepend(1, 0);
        assert_eq!(all(&l, 0), [3, 4, 0, 2]);
        assert_eq!(l.head(1), None);
        l.push_tail(1, 5);
        l.prepend(0, 1);
        assert_eq!(all(&l, 1), [3, 4, 0, 2, 5]);
        l.unlink(2);
        assert!(!l.contains(2));
        assert_eq!(all(&l, 1), [3, 4, 0, 5]);
    }
}
