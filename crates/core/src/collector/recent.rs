//! The last request of each unit that had one recently, for rules that test whether a request continues where the previous one ended,
//! within some time. Units without a recent request take no memory.

use super::Lists;
use crate::node_index::NodeIndex;
use crate::units::Nanos;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// A unit's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Time of the request.
    pub time: Nanos,
    /// End of the request, in a form that the caller chooses.
    pub end: u32,
}

/// Rings of the list: units in the order of their last requests, and free entries.
const USED: u32 = 0;
const FREE: u32 = 1;
/// Initial number of entries.
const FIRST: u32 = 64;

/// See the module. It grows to the number of units that have a request within the time window: 28 bytes per unit and 5 for its
/// index, and at most twice that, because the capacity doubles.
#[derive(Clone, Debug)]
pub struct Recent {
    last: Vec<(UnitId, Last)>,
    lists: Lists,
    index: NodeIndex,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent::with_room(0)
    }
}

impl Recent {
    fn with_room(most: u32) -> Recent {
        let mut lists = Lists::new(most, 2);
        (0..most).for_each(|n| lists.push_tail(FREE, n));
        let none = Last {
            time: Nanos(0),
            end: 0,
        };
        Recent {
            last: alloc::vec![(UnitId(0), none); most as usize],
            lists,
            index: NodeIndex::new(most),
        }
    }
    fn grow(&mut self) {
        let most = (self.last.len() as u32 * 2).max(FIRST);
        let old = core::mem::replace(self, Recent::with_room(most));
        let mut at = old.lists.head(USED);
        while let Some(n) = at {
            let (unit, last) = old.last[n as usize];
            self.put(unit, last);
            at = old.lists.next(n);
        }
    }
    /// Adds a unit that has no entry yet as the newest.
    fn put(&mut self, unit: UnitId, last: Last) {
        let Some(n) = self.lists.head(FREE) else {
            return;
        };
        self.lists.unlink(n);
        self.lists.push_tail(USED, n);
        self.last[n as usize] = (unit, last);
        self.index.insert(unit.0, n);
    }
    /// Records a request of `unit`. Returns the previous one if it came less than `window` ago. Times never decrease.
    pub fn replace(&mut self, unit: UnitId, last: Last, window: Nanos) -> Option<Last> {
        let old = |then: &Last| last.time.since(then.time) >= window;
        while let Some(n) = self.lists.head(USED) {
            let (forgotten, then) = self.last[n as usize];
            if !old(&then) {
                break;
            }
            let known = &self.last;
            self.index.remove(forgotten.0, |n| known[n as usize].0.0);
            self.lists.unlink(n);
            self.lists.push_tail(FREE, n);
        }
        if let Some(n) = self.index.get(unit.0, |n| self.last[n as usize].0.0) {
            self.lists.unlink(n);
            self.lists.push_tail(USED, n);
            return Some(core::mem::replace(&mut self.last[n as usize].1, last));
        }
        if self.lists.head(FREE).is_none() {
            self.grow();
        }
        self.put(unit, last);
        None
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.last.len() * size_of::<(UnitId, Last)>() + self.lists.bytes() + self.index.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map() {
        let (mut recent, mut map) = (Recent::default(), BTreeMap::new());
        let (mut random, mut now, mut most) = (crate::random::SplitMix64::new(5), 0u64, 0);
        for i in 0..50_000u32 {
            // Bursts in which many units have a request, and pauses after which no unit has a recent one.
            now += if random.below(2000) == 0 {
                700
            } else {
                random.below(2)
            };
            let unit = UnitId(random.below(1500) as u32);
            let last = Last {
                time: Nanos(now),
                end: i,
            };
            let before = map.insert(unit, last);
            let wanted = before.filter(|b: &Last| now - b.time.0 < 500);
            assert_eq!(recent.replace(unit, last, Nanos(500)), wanted);
            most = most.max(recent.last.len());
        }
        assert!((512..=2048).contains(&most), "{most}");
    }
}
