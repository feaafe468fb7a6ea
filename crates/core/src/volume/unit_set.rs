//! A set of units in the order of their numbers, whose memory follows from its members and not from the number of units.
//!
//! Units are divided into groups of 65 536. A group lists its members in two bytes each, or has a bitmap once that is smaller; a group
//! without members has at most a short list. (Roaring bitmaps, Chambi, Lemire, Kaser and Godin, 2016, have the same two forms.)

use super::UnitId;
use crate::bits::{BitTree, Bits};
use alloc::vec::Vec;

/// log2 of the units of a group.
const SHIFT: u32 = 16;
const UNITS: usize = 1 << SHIFT;
/// From this number of members on, a group has a bitmap. It takes as much memory as a list of so many.
const MANY: usize = UNITS / 16;
/// With fewer members than this, a group returns to a list. It is lower, so that a group does not change its form again and again.
const FEW: usize = MANY / 2;

/// A group without members keeps a list of at most this length, so that a few members that come and go allocate nothing.
const KEPT: usize = 64;

#[derive(Clone, Debug)]
enum Group {
    List(Vec<u16>),
    Bitmap(Bits, usize),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct UnitSet {
    groups: Vec<Group>,
    /// The groups with members.
    used: BitTree,
    len: u32,
}

impl Default for UnitSet {
    fn default() -> UnitSet {
        UnitSet::new(0)
    }
}

impl Group {
    fn insert(&mut self, unit: u16) -> bool {
        match self {
            Group::Bitmap(bits, n) => {
                let new = bits.set(usize::from(unit));
                *n += usize::from(new);
                new
            }
            Group::List(list) => {
                let Err(at) = list.binary_search(&unit) else {
                    return false;
                };
                if list.len() + 1 >= MANY {
                    let mut bits = Bits::new(UNITS);
                    for u in list.iter().chain([&unit]) {
                        bits.set(usize::from(*u));
                    }
                    *self = Group::Bitmap(bits, list.len() + 1);
                    return true;
                }
                if list.len() == list.capacity() {
                    // The list grows by an eighth. After a doubling, half of the memory might be unused.
                    list.reserve_exact(list.len() / 8 + 4);
                }
                list.insert(at, unit);
                true
            }
        }
    }
    fn remove(&mut self, unit: u16) -> bool {
        match self {
            Group::List(list) => {
                let Ok(at) = list.binary_search(&unit) else {
                    return false;
                };
                list.remove(at);
                if list.is_empty() && list.capacity() > KEPT {
                    *list = Vec::new();
                }
                true
            }
            Group::Bitmap(bits, n) => {
                if !bits.get(usize::from(unit)) {
                    return false;
                }
                bits.clear(usize::from(unit));
                *n -= 1;
                if *n < FEW {
                    let mut list = Vec::with_capacity(*n);
                    let mut at = 0;
                    while let Some(u) = next_in(bits, at) {
                        list.push(u as u16);
                        at = u + 1;
                    }
                    *self = Group::List(list);
                }
                true
            }
        }
    }
    fn contains(&self, unit: u16) -> bool {
        match self {
            Group::List(list) => list.binary_search(&unit).is_ok(),
            Group::Bitmap(bits, _) => bits.get(usize::from(unit)),
        }
    }
    fn is_empty(&self) -> bool {
        matches!(self, Group::List(list) if list.is_empty())
    }
    fn first_from(&self, from: usize) -> Option<usize> {
        match self {
            Group::List(list) => {
                let at = list.partition_point(|u| usize::from(*u) < from);
                list.get(at).map(|u| usize::from(*u))
            }
            Group::Bitmap(bits, _) => next_in(bits, from),
        }
    }
    fn bytes(&self) -> usize {
        match self {
            Group::List(list) => list.capacity() * 2,
            Group::Bitmap(bits, _) => bits.bytes(),
        }
    }
}

fn next_in(bits: &Bits, from: usize) -> Option<usize> {
    let at = from + bits.run(from.min(UNITS), UNITS, false);
    (at < UNITS).then_some(at)
}

impl UnitSet {
    /// An empty set for units below `units`. It takes 32 bytes for each 65 536 of them.
    #[must_use]
    pub fn new(units: u32) -> UnitSet {
        let groups = (units as usize).div_ceil(UNITS);
        UnitSet {
            groups: (0..groups).map(|_| Group::List(Vec::new())).collect(),
            used: BitTree::new(groups),
            len: 0,
        }
    }
    fn parts(e: UnitId) -> (usize, u16) {
        ((e.0 >> SHIFT) as usize, e.0 as u16)
    }
    /// Adds a unit. Returns whether it was not in the set before.
    ///
    /// # Panics
    /// If the set is not for this unit.
    pub fn insert(&mut self, e: UnitId) -> bool {
        let (group, unit) = UnitSet::parts(e);
        let new = self.groups[group].insert(unit);
        if new {
            self.used.insert(group);
            self.len += 1;
        }
        new
    }
    /// Removes a unit. Returns whether it was in the set.
    pub fn remove(&mut self, e: UnitId) -> bool {
        let (group, unit) = UnitSet::parts(e);
        let Some(members) = self.groups.get_mut(group) else {
            return false;
        };
        let was = members.remove(unit);
        if was {
            self.len -= 1;
            if members.is_empty() {
                self.used.remove(group);
            }
        }
        was
    }
    /// Adds or removes a unit. Returns whether that changed anything.
    pub fn put(&mut self, e: UnitId, on: bool) -> bool {
        if on { self.insert(e) } else { self.remove(e) }
    }
    /// Whether a unit is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, e: UnitId) -> bool {
        let (group, unit) = UnitSet::parts(e);
        self.len > 0 && self.groups.get(group).is_some_and(|g| g.contains(unit))
    }
    /// Number of units in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }
    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The lowest unit of the set from number `from` on.
    #[must_use]
    pub fn first_from(&self, from: u32) -> Option<UnitId> {
        let (group, unit) = UnitSet::parts(UnitId(from));
        let at = |g: usize, u: usize| UnitId((g << SHIFT | u) as u32);
        let here = self.groups.get(group)?.first_from(usize::from(unit));
        if let Some(u) = here {
            return Some(at(group, u));
        }
        let next = self.used.first_from(group + 1)?;
        self.groups[next].first_from(0).map(|u| at(next, u))
    }
    /// Memory in bytes: about two and a quarter for each member, and 32 for each 65 536 units of the volume.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(Group::bytes).sum();
        groups + self.groups.len() * size_of::<Group>() + self.used.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use alloc::collections::BTreeSet;

    #[test]
    fn agrees_with_a_btree() {
        for (units, span) in [
            (1, 1),
            (70_000, 70_000),
            (u32::MAX - 1, 9000),
            (300_000, 300_000),
        ] {
            let mut random = SplitMix64::new(u64::from(units));
            let (mut set, mut model) = (UnitSet::new(units), BTreeSet::new());
            let first = units - span;
            for turn in 0..60_000u32 {
                // The set grows and shrinks, so that groups take both forms.
                let adds = turn / 20_000 != 1;
                let e = first + random.below(span.into()) as u32;
                if random.below(8) == 0 {
                    assert_eq!(
                        set.put(UnitId(e), !adds),
                        if adds {
                            model.remove(&e)
                        } else {
                            model.insert(e)
                        }
                    );
                } else {
                    assert_eq!(
                        set.put(UnitId(e), adds),
                        if adds {
                            model.insert(e)
                        } else {
                            model.remove(&e)
                        }
                    );
                }
                let e = first + random.below(span.into()) as u32;
                assert_eq!(set.contains(UnitId(e)), model.contains(&e));
                let next = model.range(e..).next().map(|e| UnitId(*e));
                assert_eq!(set.first_from(e), next);
                assert_eq!(set.len() as usize, model.len());
            }
            let all: Vec<u32> = model.into_iter().collect();
            for e in all {
                assert!(set.remove(UnitId(e)));
            }
            assert!(set.is_empty() && set.first_from(0).is_none());
        }
    }

    #[test]
    fn memory_follows_from_the_members() {
        let mut set = UnitSet::new(1 << 27);
        assert!(set.bytes() < 70_000, "{}", set.bytes());
        let mut random = SplitMix64::new(9);
        while set.len() < 1_000_000 {
            set.insert(UnitId(random.below(1 << 27) as u32));
        }
        assert!(set.bytes() < 2_400_000, "{}", set.bytes());
        for e in 0..1_000_000 {
            set.insert(UnitId(e));
        }
        assert!(set.bytes() < 2_600_000, "{}", set.bytes());
    }
}
