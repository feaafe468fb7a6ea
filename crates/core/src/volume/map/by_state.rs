//! The copies by state: finds the next clean or dirty one without a look at the slots between.

use super::ExtentMap;
use crate::bits::BitTree;
use crate::units::Slot;

/// The slots of clean copies and of dirty ones. It is made by the first search, because most volumes never search: only a volume whose homes
/// and copies share its slots does so.
#[derive(Clone, Debug)]
struct Sets {
    clean: BitTree,
    dirty: BitTree,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct ByState(Option<Sets>);

impl ByState {
    /// The copy in `s` is dirty or clean now.
    #[inline]
    pub(super) fn put(&mut self, s: u32, dirty: bool) {
        if let Some(sets) = &mut self.0 {
            let (from, to) = if dirty {
                (&mut sets.clean, &mut sets.dirty)
            } else {
                (&mut sets.dirty, &mut sets.clean)
            };
            from.remove(s as usize);
            to.insert(s as usize);
        }
    }
    /// There is no copy in `s` any more.
    #[inline]
    pub(super) fn remove(&mut self, s: u32) {
        if let Some(sets) = &mut self.0 {
            sets.clean.remove(s as usize);
            sets.dirty.remove(s as usize);
        }
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let sets = self.0.as_ref();
        sets.map_or(0, |s| s.clean.bytes() + s.dirty.bytes())
    }
}

impl ExtentMap {
    /// The first slot from `from` on that contains a clean copy, or a `dirty` one; after the last slot, the search continues with the first.
    pub fn next_copy(&mut self, from: Slot, dirty: bool) -> Option<Slot> {
        let kind = if dirty {
            self.dirty
        } else {
            self.copied - self.dirty
        };
        if kind == 0 {
            return None;
        }
        let sets = self.by_state.0.take().unwrap_or_else(|| self.sets());
        let set = if dirty { &sets.dirty } else { &sets.clean };
        let next = set.first_from(from.0 as usize);
        let next = next.or_else(|| set.first_from(0));
        self.by_state.0 = Some(sets);
        next.map(|s| Slot(s as u32))
    }
    fn sets(&self) -> Sets {
        let n = self.rows.fast();
        let (mut clean, mut dirty) = (BitTree::new(n), BitTree::new(n));
        for s in (0..n as u32).map(Slot) {
            if self.copied_in(s).is_some() {
                let set = if self.is_dirty_in(s) {
                    &mut dirty
                } else {
                    &mut clean
                };
                set.insert(s.0 as usize);
            }
        }
        Sets { clean, dirty }
    }
    /// The first slot from `from` on that contains a dirty copy.
    pub fn next_dirty(&self, from: Slot) -> Option<Slot> {
        if self.dirty == 0 {
            return None;
        }
        let n = self.rows.fast();
        let from = (from.0 as usize).min(n);
        let s = from + self.dirty_slots.run(from, n, false);
        (s < n).then_some(Slot(s as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use crate::units::{ExtentId, TierId};
    use crate::volume::geometry::{Geometry, Member};
    use alloc::vec;

    /// The search agrees with a look at every slot.
    #[test]
    fn agrees_with_a_scan() {
        const FAST: u32 = 200;
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let members = vec![m(0, FAST), m(1, 300)];
        let mut map = ExtentMap::new(&Geometry::new(16, 12, 300, members).unwrap());
        (0..300).for_each(|e| map.map(ExtentId(e), Slot(FAST + e), false));
        let mut random = SplitMix64::new(5);
        for _ in 0..5000 {
            let s = Slot(random.below(u64::from(FAST)) as u32);
            let e = ExtentId(random.below(300) as u32);
            match (random.below(4), map.owner(s)) {
                (0, Some(e)) => drop(map.drop_copy(e)),
                (1, Some(e)) => drop(map.set_dirty(e, random.below(2) == 0)),
                (_, None) if map.copy(e).is_none() => map.add_copy(e, s),
                _ => {}
            }
            let from = random.below(u64::from(FAST)) as u32;
            for dirty in [false, true] {
                let fits = |s: &Slot| map.owner(*s).is_some() && map.is_dirty_in(*s) == dirty;
                let naive = (0..FAST).map(|i| Slot((from + i) % FAST)).find(fits);
                assert_eq!(map.next_copy(Slot(from), dirty), naive);
            }
            let naive = (from..FAST).map(Slot).find(|&s| map.is_dirty_in(s));
            assert_eq!(map.next_dirty(Slot(from)), naive);
        }
    }
}
