//! `recency`: the least recently used unit is the coldest. One ring per tier over its slots; 8 bytes per fast slot.
//!
//! Parameters: none. When not to use it: for scans and loops larger than the fast tier, because they replace everything else.

use super::{Collector, Lists, Rank};
use crate::policy::{Access, Passed, View};
use crate::units::TierId;
use crate::volume::{Position, UnitId};

/// See the module.
#[derive(Clone, Debug)]
pub struct Recency {
    lists: Lists,
    /// Number of slots on the tiers other than the slowest.
    upper: u32,
}

impl Default for Recency {
    fn default() -> Recency {
        Recency {
            lists: Lists::new(0, 0),
            upper: 0,
        }
    }
}

impl Collector for Recency {
    fn name(&self) -> &'static str {
        "recency"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.upper = view.faster_positions();
        self.lists = Lists::new(self.upper, u32::from(view.tiers()));
        // After a restart, the order is restored from the time stamps that survived.
        let mut known: alloc::vec::Vec<(u64, u32)> = (0..self.upper)
            .filter_map(|s| view.owner(view.position(s)).map(|e| (view.last(e).0, s)))
            .collect();
        known.sort_unstable();
        for (_, s) in known {
            self.lists
                .push_tail(u32::from(view.tier_of(view.position(s)).0), s);
        }
    }
    fn touch(&mut self, view: &mut View<'_>, access: &Access) {
        view.set_last(access.extent, access.now);
        if let Some(s) = access.served().filter(|s| s.index() < self.upper) {
            self.placed(view, access.extent, s);
        }
    }
    fn placed(&mut self, view: &mut View<'_>, _extent: UnitId, position: Position) {
        if position.index() < self.upper {
            self.lists.unlink(position.index());
            self.lists
                .push_tail(u32::from(view.tier_of(position).0), position.index());
        }
    }
    fn left(&mut self, _view: &mut View<'_>, _extent: UnitId, position: Position) {
        if position.index() < self.upper {
            self.lists.unlink(position.index());
        }
    }
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId> {
        let mut n = self.lists.head(u32::from(tier.0));
        let mut passed = Passed::default();
        while let Some(s) = n.filter(|_| !passed.is_limit()) {
            let owner = view.owner(view.position(s));
            if let Some(e) = owner.filter(|&e| !passed.over(view, e)) {
                return Some(e);
            }
            n = self.lists.next(s);
        }
        None
    }
    fn rank(&self, view: &View<'_>, extent: UnitId) -> Rank {
        (view.last(extent).0, 0)
    }
    fn bytes(&self) -> usize {
        self.lists.bytes()
    }
}
