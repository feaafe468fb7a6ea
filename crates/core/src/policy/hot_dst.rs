//! `hot-dst-dynamic`, `cache-ondemand` and `hot-dst-recency | -frequency | -wsclock`: on demand (Loris IV-A 1 and IV-C 1;
//! docs/policy-rules.md section 5). Homes start on the slowest tier; a read that a slower tier serves brings the extent to the fastest
//! one; if that is full, the coldest extent there is evicted first. Under `cache-ondemand` it is copied instead, eviction only drops the
//! copy, and writes that hit update copy and home.
//!
//! The collector, which may be any, decides which extent is coldest. Admission: the newcomer must be worth more than the extent evicted
//! last was at its eviction. With `recency`, every extent that is read qualifies. If the class tells the size of the file, extents of files
//! over 1 MiB (classes 13…18) are not admitted, and are removed when the file grows beyond that size. Such a removal does not count as an
//! eviction for the admission rule ("evicted … during cleanup").
//!
//! Over more than two tiers: `middle.rs`.
//!
//! Parameters: none. When not to use it: for work that mostly writes (writes do not promote), and for scans.

use super::hold::{FAST, Hold, is_fast, is_large, is_large_file};
use super::middle::Middle;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, WriteTo};
use crate::collector::Collector;
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of promotions that wait for room. Older ones are dropped (the next read proposes them again).
const WAITING_MAX: usize = 16;

/// See the module.
pub struct HotDst {
    name: &'static str,
    pub(super) collector: Box<dyn Collector>,
    hold: Hold,
    pub(super) last_evicted: u64,
    waiting: VecDeque<UnitId>,
    /// Extents of large files that are being removed.
    sieved: Vec<UnitId>,
    /// Number of evictions that were proposed because a newcomer needed the room.
    pub(super) forced: u64,
    pub(super) middle: Middle,
}

impl HotDst {
    /// Creates the policy that moves homes, with the given collector.
    pub fn new(name: &'static str, collector: Box<dyn Collector>) -> HotDst {
        HotDst::holding(name, collector, Hold::Home)
    }
    /// Creates the policy; `hold` decides whether it moves homes or makes copies.
    pub fn holding(name: &'static str, collector: Box<dyn Collector>, hold: Hold) -> HotDst {
        HotDst {
            name,
            collector,
            hold,
            last_evicted: 0,
            waiting: VecDeque::with_capacity(WAITING_MAX),
            sieved: Vec::new(),
            forced: 0,
            middle: Middle::default(),
        }
    }
    /// Proposes the eviction of the coldest extent; false if there is no victim.
    pub(super) fn evict(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) -> bool {
        let cold = self.collector.coldest(view, FAST);
        wanted.extend(cold.map(|e| self.hold.down(view, e)));
        cold.is_some()
    }
    /// Counts the access. True if the extent must not be on the fast tier (its removal is proposed then).
    pub(super) fn note(
        &mut self,
        view: &mut View<'_>,
        access: &Access,
        wanted: &mut Vec<Action>,
    ) -> bool {
        self.collector.touch(view, access);
        let large = is_large_file(access);
        if large {
            self.sift(view, access.extent, wanted);
        }
        large
    }
    /// The unit belongs to a large file: proposes its removal if it is on the fast tier.
    fn sift(&mut self, view: &View<'_>, e: UnitId, wanted: &mut Vec<Action>) {
        if is_fast(view, e) && !self.sieved.contains(&e) {
            self.sieved.push(e);
            wanted.push(self.hold.out(view, e));
        }
    }
}

impl Policy for HotDst {
    fn name(&self) -> &'static str {
        self.name
    }
    fn uses(&self) -> Uses {
        self.hold.uses()
    }
    fn unit_bytes(&self) -> u32 {
        // The collector of the caching presets: a counter, the number of the last access, and a bit.
        9
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.collector.attach(view);
        self.middle.attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.placed(view, extent, position);
    }
    fn on_discarded(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.left(view, extent, position);
        self.collector.forget(extent);
    }
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        wanted: &mut Vec<Action>,
    ) {
        if is_large(class) {
            self.sift(view, extent, wanted);
        }
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.placed(view, extent, position);
    }
    fn on_uncopied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.left(view, extent, position);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        if self.note(view, access, wanted) || access.write || is_fast(view, access.extent) {
            return;
        }
        let worth = self.collector.worth(view, access.extent);
        if worth <= self.last_evicted {
            if self.hold == Hold::Home {
                self.middle.rise(view, access.extent, worth, wanted);
            }
            return;
        }
        if view.missing_grains(FAST, access.extent) == 0 {
            wanted.push(self.hold.up(access.extent));
        } else if view.could_fit(FAST, access.extent) && self.evict(view, wanted) {
            self.forced += 1;
            // The promotion follows when there is room: at once without devices, later with devices.
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(access.extent);
        }
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        if self.middle.settled(view, &*self.collector, action, how) || Hold::is_up(action) {
            return;
        }
        let extent = action.extent();
        if let Some(i) = self.sieved.iter().position(|&e| e == extent) {
            self.sieved.swap_remove(i);
        } else if how == Outcome::Done {
            self.last_evicted = self.collector.worth(view, extent);
        }
        let next = self.waiting.pop_front();
        if how == Outcome::Done {
            let next = next.filter(|&e| view.home(e).is_some() && !is_fast(view, e));
            match next {
                // The unit needs more room than the evicted one has freed.
                Some(e) if view.weight(e) > 1 && view.missing_grains(FAST, e) > 0 => {
                    if self.evict(view, wanted) {
                        self.waiting.push_front(e);
                    }
                }
                _ => wanted.extend(next.map(|e| self.hold.up(e))),
            }
        }
    }
    fn writes_through(&self) -> bool {
        true
    }
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        WriteTo::Both
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if self.hold == Hold::Home {
            self.middle.keep_room(view, &mut *self.collector, wanted);
        }
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.middle.next_wake()
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::new()))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let what = match (is_fast(view, extent), self.hold) {
            (true, _) => "on the fast tier until it is the coldest there and room is needed",
            (false, Hold::Home) => "on a slower tier; a read promotes it if it is worth more",
            (false, Hold::Copy) => view.either(
                "without a copy; a read makes one if it is worth more",
                "on a slower tier; a read promotes it if it is worth more",
            ),
        };
        format!(
            "{}; {what}; last evicted was worth {}",
            self.collector.explain(view, extent),
            self.last_evicted
        )
    }
    fn bytes(&self) -> usize {
        self.collector.bytes()
    }
}
