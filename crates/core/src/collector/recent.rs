//! The last request of each unit that had one lately: for rules that ask whether a request goes on where the one before ended, within
//! some time. Units without one cost nothing.

use super::{Index, Lists};
use crate::units::Nanos;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// A unit's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// When it came.
    pub time: Nanos,
    /// Where it ended, in whatever form the owner likes.
    pub end: u32,
}

/// Rings of the list: units in the order of their last requests, and places that are free.
const USED: u32 = 0;
const FREE: u32 = 1;
/// Places to begin with.
const FIRST: u32 = 64;

/// See the module. Grows to the number of units that have a request within the time asked for: 28 bytes a unit and 11 to 21 for its
/// index, times two at most, since room doubles.
#[derive(Clone, Debug)]
pub struct Recent {
    last: Vec<(UnitId, Last)>,
    lists: Lists,
    index: Index,
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
            index: Index::new(most),
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
    /// A unit that has none yet becomes the newest.
    fn put(&mut self, unit: UnitId, last: Last) {
        let Some(n) = self.lists.head(FREE) else {
            return;
        };
        self.lists.unlink(n);
        self.lists.push_tail(USED, n);
        self.last[n as usize] = (unit, last);
        self.index.insert(unit.0, n);
    }
    /// `unit` has a request: the one before, if that came less than `window` ago. Times never go back.
    pub fn replace(&mut self, unit: UnitId, last: Last, window: Nanos) -> Option<Last> {
        let old = |then: &Last| last.time.since(then.time) >= window;
        while let Some(n) = self.lists.head(USED) {
            let (forgotten, then) = self.last[n as usize];
            if !old(&then) {
                break;
            }
            self.index.remove(forgotten.0);
            self.lists.unlink(n);
            self.lists.push_tail(FREE, n);
        }
        if let Some(n) = self.index.get(unit.0) {
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
    fn remembers_what_a_map_remembers() {
        let (mut recent, mut map) = (Recent::default(), BTreeMap::new());
        let (mut random, mut now, mut most) = (crate::random::SplitMix64::new(5), 0u64, 0);
        for i in 0..50_000u32 {
            // Bursts, in which many units have one, and lulls, after which none has.
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
