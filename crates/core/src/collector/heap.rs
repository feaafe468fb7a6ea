//! An order over the faster tiers' slots for counters that mostly grow: who is worth least?
//!
//! A unit's rank is looked at only when it surfaces. A hit costs the heap nothing, because a stored rank that is too low
//! merely surfaces too early and is then stored anew: at most one O(log n) repair for each access that raised it. 24 bytes a
//! slot of the faster tiers.

use super::Rank;
use crate::policy::View;
use crate::units::TierId;
use crate::volume::{Seat, UnitId};
use alloc::vec::Vec;

const OUT: u32 = u32::MAX;

/// Binary heap over nodes `0..n`, smallest key on top, with each node's position, so that any node can be taken out.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    items: Vec<(Rank, u32)>,
    at: Vec<u32>,
}

impl Heap {
    /// Empty, for nodes below `n`.
    pub fn new(n: u32) -> Heap {
        Heap {
            items: Vec::new(),
            at: alloc::vec![OUT; n as usize],
        }
    }
    /// Node and key on top.
    pub fn top(&self) -> Option<(Rank, u32)> {
        self.items.first().copied()
    }
    /// How many nodes are in.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Is no node in?
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// Put a node in, or change its key.
    pub fn set(&mut self, node: u32, key: Rank) {
        let i = self.at[node as usize];
        if i == OUT {
            if self.items.len() == self.items.capacity() {
                // By a quarter: what a doubling leaves unused would cost more than the slots' owners.
                self.items.reserve_exact(self.items.len() / 4 + 16);
            }
            self.items.push((key, node));
            self.at[node as usize] = self.items.len() as u32 - 1;
            self.up(self.items.len() - 1);
        } else {
            self.items[i as usize].0 = key;
            let i = self.up(i as usize);
            self.down(i);
        }
    }
    /// Take a node out, if it is in.
    pub fn remove(&mut self, node: u32) {
        let i = self.at[node as usize];
        if i == OUT {
            return;
        }
        self.at[node as usize] = OUT;
        self.items.swap_remove(i as usize);
        if let Some(moved) = self.items.get(i as usize) {
            self.at[moved.1 as usize] = i;
            let i = self.up(i as usize);
            self.down(i);
        }
    }
    fn up(&mut self, mut i: usize) -> usize {
        let item = self.items[i];
        while i > 0 {
            let parent = (i - 1) / 2;
            if self.items[parent] <= item {
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
            if child + 1 < self.items.len() && self.items[child + 1] < self.items[child] {
                child += 1;
            }
            if item <= self.items[child] {
                break;
            }
            self.put(i, self.items[child]);
            i = child;
        }
        self.put(i, item);
    }
    fn put(&mut self, i: usize, item: (Rank, u32)) {
        self.items[i] = item;
        self.at[item.1 as usize] = i as u32;
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<(Rank, u32)>() + self.at.len() * 4
    }
}

/// One heap for each tier but the slowest, by slot.
#[derive(Clone, Debug, Default)]
pub struct Coldest {
    tiers: Vec<(u32, Heap)>,
    aside: Vec<(Rank, u32)>,
}

impl Coldest {
    /// For that shape, with nobody in.
    pub fn empty(view: &View<'_>) -> Coldest {
        Coldest {
            tiers: (0..view.slowest().0)
                .map(|t| view.seats(TierId(t)))
                .map(|r| (r.start, Heap::new(r.end - r.start)))
                .collect(),
            aside: Vec::new(),
        }
    }
    /// For that shape; whoever lives on the faster tiers already is in, to be ranked when it surfaces.
    pub fn new(view: &View<'_>) -> Coldest {
        let mut c = Coldest::empty(view);
        for t in (0..view.slowest().0).map(TierId) {
            for (s, _) in view.residents(t) {
                c.enter(t, s);
            }
        }
        c
    }
    /// Somebody lives in `slot` now.
    pub fn enter(&mut self, tier: TierId, seat: Seat) {
        if let Some((start, heap)) = self.tiers.get_mut(usize::from(tier.0)) {
            heap.set(seat.index() - *start, (0, 0));
        }
    }
    /// Nobody lives in `slot` any more.
    pub fn leave(&mut self, tier: TierId, seat: Seat) {
        if let Some((start, heap)) = self.tiers.get_mut(usize::from(tier.0)) {
            heap.remove(seat.index() - *start);
        }
    }
    /// Whose rank is lowest on `tier`, of those that are not busy. `rank` may have grown since it was last asked, not
    /// shrunk (else: [`Coldest::again`]).
    pub fn find(
        &mut self,
        view: &View<'_>,
        tier: TierId,
        rank: impl Fn(UnitId) -> Rank,
    ) -> Option<UnitId> {
        let (start, heap) = self.tiers.get_mut(usize::from(tier.0))?;
        let mut found = None;
        while let Some((stored, node)) = heap.top() {
            let Some(e) = view.owner(view.seat(*start + node)) else {
                heap.remove(node);
                continue;
            };
            let now = rank(e);
            if now != stored {
                heap.set(node, now);
            } else if view.is_held(e) {
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
    /// Ranks have shrunk: look at everybody again.
    pub fn again(&mut self) {
        for (_, heap) in &mut self.tiers {
            // Equal keys tie by node, so the heap has to be made anew, not just overwritten.
            let nodes: Vec<u32> = heap.items.iter().map(|x| x.1).collect();
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
    fn gives_what_a_sorted_map_gives() {
        let (mut heap, mut naive) = (Heap::new(40), BTreeMap::new());
        let mut s = 88u64;
        for _ in 0..20_000 {
            s = s
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (node, key) = ((s >> 40) as u32 % 40, ((s >> 33) % 9, (s >> 50) % 3));
            if s >> 62 == 0 {
                heap.remove(node);
                naive.remove(&node);
            } else {
                heap.set(node, key);
                naive.insert(node, key);
            }
            let lowest = naive.iter().map(|(n, k)| (*k, *n)).min();
            assert_eq!((heap.top(), heap.len()), (lowest, naive.len()));
        }
    }
}
