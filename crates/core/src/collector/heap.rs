//! Finds the unit of lowest worth on the faster tiers, for counters that mostly grow.
//!
//! The rank of a unit is read only when the unit reaches the top of the heap. So a hit does not change the heap. If a stored rank is too
//! low, the unit reaches the top too early, and its present rank is then stored: at most one step of O(log n) for each access that raised
//! the rank. Memory: 24 bytes per slot of the faster tiers, and at most 2.5 bytes more as room to grow.

use super::Rank;
use crate::policy::{Passed, View};
use crate::units::TierId;
use crate::volume::{Position, UnitId};
use alloc::vec::Vec;

const OUT: u32 = u32::MAX;

/// A node and its key, stored as five words, because a struct of both would have a sixth word of padding.
#[derive(Clone, Copy, Debug)]
struct Item([u32; 5]);

impl Item {
    fn new((a, b): Rank, node: u32) -> Item {
        Item([(a >> 32) as u32, a as u32, (b >> 32) as u32, b as u32, node])
    }
    #[inline]
    fn key(self) -> Rank {
        let [a, b, c, d, _] = self.0.map(u64::from);
        (a << 32 | b, c << 32 | d)
    }
    #[inline]
    fn node(self) -> u32 {
        self.0[4]
    }
    /// By key, then by node.
    #[inline]
    fn order(self) -> (Rank, u32) {
        (self.key(), self.node())
    }
}

/// A binary heap of nodes `0..n` with the smallest key on top. It knows the position of each node, so that any node can be removed.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    items: Vec<Item>,
    at: Vec<u32>,
}

impl Heap {
    /// Creates an empty heap for nodes below `n`.
    pub fn new(n: u32) -> Heap {
        Heap {
            items: Vec::new(),
            at: alloc::vec![OUT; n as usize],
        }
    }
    /// Like `new`, with room for `most` nodes at the same time.
    pub fn with_room(n: u32, most: u32) -> Heap {
        let mut h = Heap::new(n);
        h.items.reserve_exact(most.min(n) as usize);
        h
    }
    /// The node and key on top.
    pub fn top(&self) -> Option<(Rank, u32)> {
        self.items.first().map(|i| i.order())
    }
    /// The key of a node, if it is in the heap.
    pub fn key(&self, node: u32) -> Option<Rank> {
        let i = self.at[node as usize];
        (i != OUT).then(|| self.items[i as usize].key())
    }
    /// Number of nodes in the heap.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Whether the heap is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// Inserts a node, or changes its key.
    pub fn set(&mut self, node: u32, key: Rank) {
        let i = self.at[node as usize];
        if i == OUT {
            if self.items.len() == self.items.capacity() {
                // The list grows by an eighth. After a doubling, the unused half would take more memory than the table of the slots'
                // owners.
                let most = self.at.len() - self.items.len();
                self.items
                    .reserve_exact((self.items.len() / 8 + 16).min(most));
            }
            self.items.push(Item::new(key, node));
            self.at[node as usize] = self.items.len() as u32 - 1;
            self.up(self.items.len() - 1);
        } else {
            self.items[i as usize] = Item::new(key, node);
            let i = self.up(i as usize);
            self.down(i);
        }
    }
    /// Removes a node, if it is in the heap.
    pub fn remove(&mut self, node: u32) {
        let i = self.at[node as usize];
        if i == OUT {
            return;
        }
        self.at[node as usize] = OUT;
        self.items.swap_remove(i as usize);
        if let Some(moved) = self.items.get(i as usize) {
            self.at[moved.node() as usize] = i;
            let i = self.up(i as usize);
            self.down(i);
        }
    }
    fn up(&mut self, mut i: usize) -> usize {
        let item = self.items[i];
        while i > 0 {
            let parent = (i - 1) / 2;
            if self.items[parent].order() <= item.order() {
                break;
            }
            self.put(i, self.items[parent]);
            i = parent;
        }
        self.put(i, item);
        i
    }
    fn down(&mut self, mut i: usize) {
        let item = self.items[i];
        loop {
            let mut child = 2 * i + 1;
            if child >= self.items.len() {
                break;
            }
            if child + 1 < self.items.len()
                && self.items[child + 1].order() < self.items[child].order()
            {
                child += 1;
            }
            if item.order() <= self.items[child].order() {
                break;
            }
            self.put(i, self.items[child]);
            i = child;
        }
        self.put(i, item);
    }
    fn put(&mut self, i: usize, item: Item) {
        self.items[i] = item;
        self.at[item.node() as usize] = i as u32;
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.at.len() * 4
    }
}

/// One heap for each tier but the slowest, by slot.
#[derive(Clone, Debug, Default)]
pub struct Coldest {
    tiers: Vec<(u32, Heap)>,
    aside: Vec<(Rank, u32)>,
}

impl Coldest {
    /// Creates empty heaps for the tiers of this volume.
    pub fn empty(view: &View<'_>) -> Coldest {
        Coldest {
            tiers: (0..view.slowest().0)
                .map(|t| view.positions(TierId(t)))
                .map(|r| (r.start, Heap::new(r.end - r.start)))
                .collect(),
            aside: Vec::new(),
        }
    }
    /// Creates the heaps for the tiers of this volume. Units that are on the faster tiers already are inserted; their ranks are read when
    /// they reach the top.
    pub fn new(view: &View<'_>) -> Coldest {
        let mut c = Coldest::empty(view);
        for t in (0..view.slowest().0).map(TierId) {
            for (s, _) in view.residents(t) {
                c.enter(t, s);
            }
        }
        c
    }
    /// Notes that a unit was placed in `position`.
    pub fn enter(&mut self, tier: TierId, position: Position) {
        if let Some((start, heap)) = self.tiers.get_mut(usize::from(tier.0)) {
            heap.set(position.index() - *start, (0, 0));
        }
    }
    /// Notes that the unit in `position` has left.
    pub fn leave(&mut self, tier: TierId, position: Position) {
        if let Some((start, heap)) = self.tiers.get_mut(usize::from(tier.0)) {
            heap.remove(position.index() - *start);
        }
    }
    /// The unit with the lowest rank on `tier` that is not busy. Since the last call, ranks may have grown. If ranks have become lower,
    /// [`Coldest::again`] must be called before.
    pub fn find(
        &mut self,
        view: &View<'_>,
        tier: TierId,
        rank: impl Fn(UnitId) -> Rank,
    ) -> Option<UnitId> {
        let (start, heap) = self.tiers.get_mut(usize::from(tier.0))?;
        let mut found = None;
        let mut passed = Passed::default();
        while let Some((stored, node)) = heap.top().filter(|_| !passed.is_limit()) {
            let Some(e) = view.owner(view.position(*start + node)) else {
                heap.remove(node);
                continue;
            };
            let now = rank(e);
            if now != stored {
                heap.set(node, now);
            } else if passed.over(view, e) {
                heap.remove(node);
                self.aside.push((now, node));
            } else {
                found = Some(e);
                break;
            }
        }
        for (key, node) in self.aside.drain(..) {
            heap.set(node, key);
        }
        found
    }
    /// Must be called when ranks have become lower: all ranks are read again.
    pub fn again(&mut self) {
        for (_, heap) in &mut self.tiers {
            // Equal keys are ordered by node. So the nodes must be inserted again; it is not enough to overwrite the keys.
            let nodes: Vec<u32> = heap.items.iter().map(|x| x.node()).collect();
            for n in nodes {
                heap.set(n, (0, 0));
            }
        }
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.tiers.iter().map(|t| t.1.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn agrees_with_a_sorted_map() {
        let (mut heap, mut naive) = (Heap::new(40), BTreeMap::new());
        let mut random = crate::random::SplitMix64::new(88);
        for _ in 0..20_000 {
            let s = random.draw();
            let (node, key) = ((s >> 40) as u32 % 40, ((s >> 33) % 9, (s >> 50) % 3));
            if s >> 62 == 0 {
                heap.remove(node);
                naive.remove(&node);
            } else {
                heap.set(node, key);
                naive.insert(node, key);
            }
            assert_eq!(heap.key(node), naive.get(&node).copied());
            let lowest = naive.iter().map(|(n, k)| (*k, *n)).min();
            assert_eq!((heap.top(), heap.len()), (lowest, naive.len()));
        }
    }
}
