//! `frequency`: the least frequently used unit is the coldest. Counts age: after every `AGE_EVERY` × (fast slots) accesses, all counts are
//! halved.
//!
//! Units are ordered by the power of two of their count, and by recency within the same power; an exact order would need a heap, and is not
//! worth this. Halving moves every ring one power down, which takes constant time per ring. The count of a unit is updated when the unit is
//! accessed next. The policy's 16 bits contain the count (11 bits, saturating) and the age at which it was valid (5 bits).
//!
//! Parameters: none. When not to use it: for working sets that change faster than the counts age.

use super::{Collector, Lists, Rank};
use crate::policy::{Access, Passed, View};
use crate::units::TierId;
use crate::volume::{Position, UnitId};

const RINGS: u32 = 12; // bit length 0…11
const COUNT_MAX: u16 = (1 << 11) - 1;
const AGE_EVERY: u64 = 10;

/// See the module.
#[derive(Clone, Debug)]
pub struct Frequency {
    lists: Lists,
    upper: u32,
    age: u16,
    until_older: u64,
    tiers: u32,
}

impl Default for Frequency {
    fn default() -> Frequency {
        Frequency {
            lists: Lists::new(0, 0),
            upper: 0,
            age: 0,
            until_older: 1,
            tiers: 0,
        }
    }
}

impl Frequency {
    fn count(&self, stat: u16) -> u16 {
        // Ages are stored modulo 32, so the age of a unit that was not accessed for 32 ages is misread. Its count should be 0, but for some
        // ages it seems to be up to its old value again. This does little harm.
        let older = self.age.wrapping_sub(stat >> 11) & 31;
        (stat & COUNT_MAX) >> older.min(15)
    }
    fn ring(tier: TierId, count: u16) -> u32 {
        u32::from(tier.0) * RINGS + (16 - count.leading_zeros())
    }
    fn grow_older(&mut self) {
        self.age = (self.age + 1) & 31;
        for t in 0..self.tiers {
            for b in 1..RINGS {
                // The units of ring b are put before the head of the ring below, so they are evicted first there. Only ring 0 can contain
                // units at this point, because each other ring was just emptied. Each part keeps its order of recency.
                self.lists.prepend(t * RINGS + b, t * RINGS + b - 1);
            }
        }
    }
}

impl Collector for Frequency {
    fn name(&self) -> &'static str {
        "frequency"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.tiers = u32::from(view.tiers());
        self.upper = view.faster_positions();
        self.lists = Lists::new(self.upper, self.tiers * RINGS);
        self.until_older = AGE_EVERY * u64::from(self.upper.max(1));
        for s in 0..self.upper {
            if let Some(e) = view.owner(view.position(s)) {
                self.placed(view, e, view.position(s));
            }
        }
    }
    fn touch(&mut self, view: &mut View<'_>, access: &Access) {
        let n = self
            .count(view.stat(access.extent))
            .saturating_add(1)
            .min(COUNT_MAX);
        view.set_stat(access.extent, n | self.age << 11);
        view.set_last(access.extent, access.now);
        if let Some(s) = access.served() {
            self.placed(view, access.extent, s);
        }
        self.until_older -= 1;
        if self.until_older == 0 {
            self.until_older = AGE_EVERY * u64::from(self.upper.max(1));
            self.grow_older();
        }
    }
    fn placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        if position.index() < self.upper {
            self.lists.unlink(position.index());
            let n = self.count(view.stat(extent));
            self.lists
                .push_tail(Self::ring(view.tier_of(position), n), position.index());
        }
    }
    fn left(&mut self, _view: &mut View<'_>, _extent: UnitId, position: Position) {
        if position.index() < self.upper {
            self.lists.unlink(position.index());
        }
    }
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId> {
        let mut passed = Passed::default();
        for b in 0..RINGS {
            let mut n = self.lists.head(u32::from(tier.0) * RINGS + b);
            while let Some(s) = n.filter(|_| !passed.is_limit()) {
                let owner = view.owner(view.position(s));
                if let Some(e) = owner.filter(|&e| !passed.over(view, e)) {
                    return Some(e);
                }
                n = self.lists.next(s);
            }
        }
        None
    }
    fn rank(&self, view: &View<'_>, extent: UnitId) -> Rank {
        (
            u64::from(self.count(view.stat(extent))),
            view.last(extent).0,
        )
    }
    fn bytes(&self) -> usize {
        self.lists.bytes()
    }
}
