//! Free slots, and slots that become free once their freeing is durable.

use crate::bits::BitTree;
use crate::units::{Slot, TierId};
use crate::volume::geometry::{Geometry, TIERS_MAX};

/// Free slots by tier. The lowest-numbered one is allocated first (LNL, GreenDM 6.1.3), which packs hot data at the fast start of a disk,
/// or the one nearest to a wanted place.
#[derive(Clone, Debug)]
pub struct Slots {
    free: BitTree,
    /// Slots from this number on are never free: the homes of a cache volume.
    numbers: u32,
    count: [u32; TIERS_MAX],
    freeing: [u32; TIERS_MAX],
    /// Number of slots whose device is absent.
    lost: [u32; TIERS_MAX],
    tiers: [(u32, u32); TIERS_MAX],
    /// No slot of the tier below this number is in the tree, so the search for the lowest free slot begins here.
    low: [u32; TIERS_MAX],
    /// A slot that was freed when its tier had no other free slot. It is kept outside of the tree to save time, because a full cache frees
    /// one slot and allocates it again at each miss.
    last_freed: [u32; TIERS_MAX],
}

const NIL: u32 = u32::MAX;

impl Slots {
    /// The state in which all slots of `geo` are free. In a cache volume those of the slowest tier are not: each is the home of its extent.
    pub fn new(geo: &Geometry) -> Slots {
        let homes = geo.tier_slots(geo.slowest());
        let numbers = if geo.is_cache() {
            homes.start
        } else {
            homes.end
        };
        let mut s = Slots {
            free: BitTree::new(numbers as usize),
            numbers,
            count: [0; 8],
            freeing: [0; 8],
            lost: [0; 8],
            tiers: [(0, 0); 8],
            low: [0; 8],
            last_freed: [NIL; 8],
        };
        for t in 0..geo.tiers() {
            let r = geo.tier_slots(TierId(t));
            s.tiers[usize::from(t)] = (r.start, r.end);
            s.low[usize::from(t)] = r.start;
            for i in r.filter(|i| *i < numbers) {
                s.free.insert(i as usize);
                s.count[usize::from(t)] += 1;
            }
        }
        s
    }
    fn tier(&self, s: Slot) -> usize {
        self.tiers.iter().position(|r| s.0 < r.1).unwrap_or(0)
    }
    /// Number of slots of `t` that can be allocated now.
    pub fn free(&self, t: TierId) -> u32 {
        self.count[usize::from(t.0)]
    }
    /// Number of slots of `t` that were given up and whose freeing is not durable yet.
    pub fn freeing(&self, t: TierId) -> u32 {
        self.freeing[usize::from(t.0)]
    }
    /// Number of slots of `t` on absent members. They are neither free nor owned.
    pub fn lost(&self, t: TierId) -> u32 {
        self.lost[usize::from(t.0)]
    }
    /// Makes sure that `s` is never allocated, if it is free, because its device is absent.
    pub fn withdraw(&mut self, s: Slot) {
        if self.take(s) {
            self.lost[self.tier(s)] += 1;
        }
    }
    /// Whether `s` is free.
    pub fn is_free(&self, s: Slot) -> bool {
        s.0 < self.numbers && (self.free.contains(s.0 as usize) || self.last_freed.contains(&s.0))
    }
    /// Moves the slot that was freed last to the tree, where searches find it.
    fn store_last_freed(&mut self, t: usize) {
        if self.last_freed[t] != NIL {
            self.free.insert(self.last_freed[t] as usize);
            self.low[t] = self.low[t].min(self.last_freed[t]);
            self.last_freed[t] = NIL;
        }
    }
    /// The free slot that [`Slots::take_lowest`] would return.
    pub fn lowest(&self, t: TierId) -> Option<Slot> {
        let t = usize::from(t.0);
        if self.count[t] == 0 {
            return None;
        }
        let last_freed = self.last_freed[t];
        if last_freed != NIL && self.count[t] == 1 {
            return Some(Slot(last_freed));
        }
        let (a, b) = (self.low[t], self.tiers[t].1);
        let in_tree = self.free.first_from(a as usize).map_or(NIL, |i| i as u32);
        let i = if in_tree < b { in_tree } else { NIL }.min(last_freed);
        (i != NIL).then_some(Slot(i))
    }
    /// Allocates the lowest-numbered free slot of a tier.
    pub fn take_lowest(&mut self, t: TierId) -> Option<Slot> {
        let s = self.lowest(t)?;
        let t = usize::from(t.0);
        self.count[t] -= 1;
        if self.last_freed[t] == s.0 {
            self.last_freed[t] = NIL;
        } else {
            self.free.remove(s.0 as usize);
            self.low[t] = s.0 + 1;
        }
        Some(s)
    }
    /// Allocates the first free slot from `near` on, on its tier, or else the lowest one, so that logical neighbours stay together.
    pub fn take_near(&mut self, near: Slot) -> Option<Slot> {
        let t = self.tier(near);
        self.store_last_freed(t);
        let i = self
            .free
            .first_from(near.0 as usize)
            .map(|i| i as u32)
            .filter(|&i| i < self.tiers[t].1);
        match i {
            Some(i) => self.take(Slot(i)).then_some(Slot(i)),
            None => self.take_lowest(TierId(t as u8)),
        }
    }
    /// Allocates the free slot of its tier that is nearest to `near`; of two the higher one.
    pub fn take_nearest(&mut self, near: Slot) -> Option<Slot> {
        let t = self.tier(near);
        self.store_last_freed(t);
        let (a, b) = self.tiers[t];
        let up = self.free.first_from(near.0 as usize).map(|i| i as u32);
        let down = self.free.last_to(near.0 as usize).map(|i| i as u32);
        let i = match (up.filter(|&u| u < b), down.filter(|&d| d >= a)) {
            (Some(u), Some(d)) if near.0 - d < u - near.0 => d,
            (up, down) => up.or(down)?,
        };
        self.take(Slot(i)).then_some(Slot(i))
    }
    /// Allocates exactly `s`; returns false if it is not free.
    pub fn take(&mut self, s: Slot) -> bool {
        if !self.is_free(s) {
            return false;
        }
        let t = self.tier(s);
        self.count[t] -= 1;
        if self.last_freed[t] == s.0 {
            self.last_freed[t] = NIL;
        } else {
            self.free.remove(s.0 as usize);
        }
        true
    }
    /// Counts `s` as given up but not free yet: it may still be read, or recovery may still need it.
    pub fn quarantine(&mut self, s: Slot) {
        self.freeing[self.tier(s)] += 1;
    }
    /// Frees a slot that was quarantined.
    pub fn release(&mut self, s: Slot) {
        self.freeing[self.tier(s)] -= 1;
        self.put_back(s);
    }
    /// Frees a slot at once, for example one that was allocated and never exposed.
    pub fn put_back(&mut self, s: Slot) {
        assert!(!self.is_free(s), "slot freed twice");
        let t = self.tier(s);
        if self.count[t] == 0 {
            self.last_freed[t] = s.0;
        } else {
            self.free.insert(s.0 as usize);
            self.low[t] = self.low[t].min(s.0);
        }
        self.count[t] += 1;
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.free.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Member;
    use alloc::vec;

    #[test]
    fn lowest_first_and_by_tier() {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let mut s = Slots::new(&Geometry::new(16, 12, 5, vec![m(0, 2), m(1, 4)]).unwrap());
        assert_eq!(s.take_lowest(TierId(0)), Some(Slot(0)));
        assert_eq!(s.take_lowest(TierId(0)), Some(Slot(1)));
        assert_eq!(s.take_lowest(TierId(0)), None);
        assert_eq!(s.take_near(Slot(4)), Some(Slot(4)));
        assert_eq!(s.take_near(Slot(4)), Some(Slot(5)));
        assert_eq!(s.take_near(Slot(5)), Some(Slot(2)));
        s.quarantine(Slot(1));
        assert_eq!((s.free(TierId(0)), s.freeing(TierId(0))), (0, 1));
        s.release(Slot(1));
        assert_eq!(s.take_lowest(TierId(0)), Some(Slot(1)));
    }

    #[test]
    fn agrees_with_a_set() {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let mut s = Slots::new(&Geometry::new(16, 12, 5, vec![m(0, 5), m(1, 200)]).unwrap());
        let mut model: alloc::collections::BTreeSet<u32> = (0..205).collect();
        let mut random = crate::random::SplitMix64::new(11);
        for step in 0..20_000 {
            let seed = random.draw();
            let (what, x) = (seed >> 61, (seed >> 33) as u32);
            let tier = if step % 2 == 0 { 0..5 } else { 5..205 };
            let t = TierId(u8::from(tier.start > 0));
            let one = Slot(tier.start + x % tier.len() as u32);
            match what {
                0 | 1 if !model.contains(&one.0) => {
                    s.put_back(one);
                    model.insert(one.0);
                }
                2 => assert_eq!(s.take(one), model.remove(&one.0)),
                3 => {
                    let after = model.range(one.0..tier.end).next();
                    let near = after.or(model.range(tier.clone()).next()).copied();
                    assert_eq!(s.take_near(one), near.map(Slot));
                    near.map(|n| model.remove(&n));
                }
                5 => {
                    let after = model.range(one.0..tier.end).next().copied();
                    let before = model.range(tier.start..=one.0).next_back().copied();
                    let distance = |s: &u32| (s.abs_diff(one.0), u32::MAX - s);
                    let near = after.into_iter().chain(before).min_by_key(distance);
                    assert_eq!(s.take_nearest(one), near.map(Slot));
                    near.map(|n| model.remove(&n));
                }
                4 => {
                    let low = model.range(tier.clone()).next().copied();
                    assert_eq!(
                        (s.lowest(t), s.take_lowest(t)),
                        (low.map(Slot), low.map(Slot))
                    );
                    low.map(|n| model.remove(&n));
                }
                _ => assert_eq!(s.is_free(one), model.contains(&one.0)),
            }
            assert_eq!(s.free(t), model.range(tier).count() as u32);
        }
    }
}
