//! `hot-dst` on demand (Loris III, "hot-DST dynamic" as an architecture): homes start on the slowest tier; a read that a
//! slower tier serves moves the extent to the fastest one, the coldest extent there making room first.
//!
//! Any collector decides what is coldest. Admission: the newcomer must be worth more than the extent last evicted was at
//! its eviction (Loris IV: "counter > last evicted"); with `recency`, everything just read qualifies.
//!
//! Parameters: none of its own. When not to use it: write-mostly work (writes do not promote), scans.

use super::{Access, Action, Outcome, ParamError, Place, Policy, View};
use crate::collector::Collector;
use crate::units::{ExtentId, Slot, TierId};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Promotions that wait for room at most; older ones are forgotten (the next read asks again).
const WAITING_MAX: usize = 16;

/// See the module.
pub struct HotDst {
    name: &'static str,
    collector: Box<dyn Collector>,
    last_evicted: u64,
    waiting: VecDeque<ExtentId>,
}

impl HotDst {
    /// With that collector.
    pub fn new(name: &'static str, collector: Box<dyn Collector>) -> HotDst {
        HotDst {
            name,
            collector,
            last_evicted: 0,
            waiting: VecDeque::with_capacity(WAITING_MAX),
        }
    }
}

impl Policy for HotDst {
    fn name(&self) -> &'static str {
        self.name
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.collector.attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: ExtentId) -> Place {
        Place::Tier(view.geo().slowest())
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: ExtentId, slot: Slot) {
        self.collector.placed(view, extent, slot);
    }
    fn on_discarded(&mut self, view: &mut View<'_>, extent: ExtentId, slot: Slot) {
        self.collector.left(view, extent, slot);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        self.collector.touch(view, access);
        let slow = access.home.is_some_and(|h| view.tier_of(h) != TierId(0));
        if access.write || !slow || self.collector.worth(view, access.extent) <= self.last_evicted {
            return;
        }
        if view.free(TierId(0)) == 0 {
            let Some(cold) = self.collector.coldest(view, TierId(0)) else {
                return;
            };
            wanted.push(Action::Move {
                extent: cold,
                to: view.geo().slowest(),
            });
            // Live, the demotion takes its time: the promotion is asked for again when it is through.
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(access.extent);
        }
        wanted.push(Action::Move {
            extent: access.extent,
            to: TierId(0),
        });
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        let Action::Move { extent, to } = action else {
            return;
        };
        match (to, how) {
            (TierId(0), Outcome::Done) => self.waiting.retain(|&e| e != extent),
            (TierId(0), _) => {}
            (_, Outcome::Done) => {
                self.last_evicted = self.collector.worth(view, extent);
                if let Some(e) = self.waiting.pop_front()
                    && view.home(e).is_some_and(|h| view.tier_of(h) != TierId(0))
                {
                    wanted.push(Action::Move {
                        extent: e,
                        to: TierId(0),
                    });
                }
            }
            (_, _) => {
                self.waiting.pop_front();
            }
        }
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::from(
            "(hot-dst has no parameters)",
        )))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, view: &View<'_>, extent: ExtentId) -> String {
        format!(
            "worth {} by {}, last evicted was worth {}; a read from a slower tier promotes it if it is worth more",
            self.collector.worth(view, extent),
            self.collector.name(),
            self.last_evicted
        )
    }
    fn bytes(&self) -> usize {
        self.collector.bytes()
    }
}
