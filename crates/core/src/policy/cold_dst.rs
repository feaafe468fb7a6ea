//! `cold-dst-plain`, `cold-dst-dynamic`, `cold-dst-dynamic-bgclean` (Loris IV-B; docs/policy-rules.md section 5): new extents go to the
//! fastest tier; the coldest extents there are demoted first if there is no room.
//!
//! *plain*: a demoted extent never returns. *dynamic*: a read that a slower tier serves promotes its extent, as in `hot-dst-dynamic`, if
//! the extent is worth more than the extent that was evicted last. *bgclean*: the same with a cleaner. E counts the evictions for which a
//! newcomer had to wait. After each of them, up to min(E, F/64) of the coldest extents are demoted in the background.
//!
//! Parameters: none. For the admission rule, the cleaner's victims count as evicted, because in the paper the cleaner is the same code in
//! another thread. Extents of files over 1 MiB (classes 13…18) start on the slowest tier. Over more than two tiers: `middle.rs`. In a live
//! volume a new extent does not wait for room: it goes to a slower tier, and the room that is made serves a later one.
//!
//! When not to use it: a fast tier much smaller than the data that is written once and not read soon; each new extent then costs
//! a demotion. Loris found background cleaning to gain little (VI).

use super::hold::{FAST, Hold, is_fast, is_large_file};
use super::hot_dst::HotDst;
use super::{Access, Action, Outcome, ParamError, Place, Policy, View};
use crate::collector::Collector;
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The cleaner takes at most this share of the fast tier after one eviction (docs/policy-rules.md section 5).
const CLEAN_SHARE: u32 = 64;

/// The work of the policy in addition to the first placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// A demoted extent never returns.
    Plain,
    /// A read promotes its extent.
    Dynamic,
    /// A read promotes its extent, and a cleaner makes room in advance.
    BackgroundClean,
}

/// See the module.
pub struct ColdDst {
    base: HotDst,
    kind: Cold,
    /// Whether the extent that is being placed belongs to a large file.
    large: bool,
    /// Number of extents that are still to be cleaned, and the number of evictions from which it was computed last.
    to_clean: u64,
    seen: u64,
}

impl ColdDst {
    /// Creates the policy with the given collector.
    pub fn new(name: &'static str, collector: Box<dyn Collector>, kind: Cold) -> ColdDst {
        ColdDst {
            base: HotDst::new(name, collector),
            kind,
            large: false,
            to_clean: 0,
            seen: 0,
        }
    }
}

impl Policy for ColdDst {
    fn name(&self) -> &'static str {
        self.base.name()
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.base.attach(view);
    }
    fn make_room(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        self.large = is_large_file(access);
        let full = view.missing_grains(FAST, access.extent) > 0;
        if !self.large && full && self.base.evict(view, wanted) {
            self.base.forced += 1;
        }
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(if self.large { view.slowest() } else { FAST })
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.base.on_placed(view, extent, position);
    }
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        wanted: &mut Vec<Action>,
    ) {
        self.base.on_reclassified(view, extent, class, wanted);
    }
    fn on_discarded(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.base.on_discarded(view, extent, position);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        if self.kind == Cold::Plain {
            self.base.note(view, access, wanted);
        } else {
            self.base.on_access(view, access, wanted);
        }
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        if how != Outcome::Done && !Hold::is_up(action) {
            // A refused cleaning is not tried again until the next eviction for which a newcomer waits.
            self.to_clean = 0;
        }
        self.base.on_settled(view, action, how, wanted);
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        self.base.tick(view, wanted);
        if self.kind != Cold::BackgroundClean || !wanted.is_empty() {
            return;
        }
        if self.base.forced != self.seen {
            self.seen = self.base.forced;
            let share = view.positions(FAST).end / CLEAN_SHARE;
            self.to_clean = self.seen.min(u64::from(share));
        }
        // Only one at a time is demoted, because the next coldest extent is known only when the previous one has left.
        if self.to_clean > 0 && wanted.is_empty() {
            self.to_clean = if self.base.evict(view, wanted) {
                self.to_clean - 1
            } else {
                0
            };
        }
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.base.next_wake()
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        self.base.set(key, value)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.base.params()
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        match self.kind {
            Cold::Plain if view.home(extent).is_some() && !is_fast(view, extent) => format!(
                "{}; demoted or of a large file, and nothing returns",
                self.base.collector.explain(view, extent)
            ),
            _ => self.base.explain(view, extent),
        }
    }
    fn bytes(&self) -> usize {
        self.base.bytes()
    }
}
