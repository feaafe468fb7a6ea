//! [`Interval`] as a policy: its reactions to events, and the times of its plans.

use super::super::hold::{FAST, Hold, is_fast, is_large, is_large_file};
use super::super::{
    Access, Action, Outcome, ParamError, Place, Policy, Uses, View, WriteTo, param,
};
use super::{AT_ONCE, Due, Every, Interval, LOOK_AGAIN};
use crate::bits::Bits;
use crate::collector::Raised;
use crate::units::{Nanos, TierId};
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Policy for Interval {
    fn name(&self) -> &'static str {
        self.name
    }
    fn uses(&self) -> Uses {
        self.rules.hold.uses()
    }
    fn unit_bytes(&self) -> u32 {
        // The collector of the caching presets: a counter, the number of the last access, and a bit.
        9
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.collector.attach(view);
        self.middle.attach(view);
        self.level = FAST;
        if self.rules.sieve {
            self.large = Bits::new(view.units() as usize);
            self.passed = Raised::new(view.units());
        }
    }
    fn fixes_places(&self) -> bool {
        self.rules.neighbours
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place {
        let slowest = view.slowest();
        match self.beside(view, extent, slowest) {
            Some(e) => Place::Beside(e),
            None => Place::Tier(slowest),
        }
    }
    fn beside(&self, view: &View<'_>, extent: UnitId, to: TierId) -> Option<UnitId> {
        if !self.rules.neighbours || to == FAST {
            return None;
        }
        let before = UnitId(extent.0.checked_sub(1)?);
        let there = view.home(before).is_some_and(|s| view.tier_of(s) == to);
        there.then_some(before)
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.placed(view, extent, position);
    }
    fn on_discarded(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.left(view, extent, position);
        self.collector.forget(extent);
        self.room |= view.tier_of(position) == FAST;
    }
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        wanted: &mut Vec<Action>,
    ) {
        if self.rules.sieve {
            self.sieve(view, extent, is_large(class), wanted);
        }
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.placed(view, extent, position);
    }
    fn on_uncopied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.collector.left(view, extent, position);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        self.count(view, access);
        self.collector.touch(view, access);
        if self.rules.sieve {
            self.sieve(view, access.extent, is_large_file(access), wanted);
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
        if self.rules.matrix {
            if how != Outcome::Done
                && let Some(s) = view.home(extent)
            {
                self.collector.placed(view, extent, s);
            }
            return;
        }
        if let Some(i) = self.sieved.iter().position(|&e| e == extent) {
            self.sieved.swap_remove(i);
            self.room = true;
            return;
        }
        let next = self.waiting.pop_front();
        if how == Outcome::Done {
            self.last_evicted = self.collector.worth(view, extent);
            let next = next.filter(|&e| self.may_come(view, e));
            match next {
                // The unit needs more room than the evicted one has freed: the next coldest is evicted, too, if it is worth less.
                Some(e) if view.weight(e) > 1 && view.missing_grains(FAST, e) > 0 => {
                    let worth = self.collector.worth(view, e);
                    let cold = self.collector.coldest(view, FAST);
                    if let Some(cold) = cold.filter(|&c| self.collector.worth(view, c) < worth) {
                        self.waiting.push_front(e);
                        wanted.push(self.rules.hold.down(view, cold));
                    }
                }
                _ => wanted.extend(next.map(|e| self.rules.hold.up(e))),
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
        if self.queue.is_empty() && self.cells.is_empty() && self.is_due(view.now()) {
            self.begin(view);
        }
        self.cells(view, wanted);
        let makes_room =
            self.fills_middle(view) && self.middle.keep_room(view, &mut *self.collector, wanted);
        // One exchange per call, because the next one depends on the outcome of this one.
        if !makes_room && view.moves() < AT_ONCE && wanted.is_empty() {
            self.step(view, wanted);
        }
        let under_way = !self.queue.is_empty() || !self.cells.is_empty();
        self.busy = under_way.then_some(view.now());
    }
    fn next_wake(&self) -> Option<Nanos> {
        if let Some(last) = self.busy {
            // The next plan waits until this one ends, even if it is overdue. A wake-up time in the past would call `tick` in vain,
            // again and again. Moves that settle continue this plan. The periodic wake-up covers the case that all moves were refused.
            let look = Some(last + LOOK_AGAIN);
            look.into_iter().chain(self.middle.next_wake()).min()
        } else if self.due == Due::Now {
            Some(Nanos(0))
        } else {
            self.next.into_iter().chain(self.middle.next_wake()).min()
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        if key == self.rules.every_name {
            self.rules.every = match self.rules.every {
                Every::Time(_) => {
                    let s = param::within(value, 0.001, 1e9, "seconds, 0.001 to 10^9")?;
                    let period = Nanos((s * 1e9) as u64);
                    self.next = self.next.map(|_| Nanos(0)); // plan at once, then with the new period
                    Every::Time(period)
                }
                Every::Requests(_) => {
                    Every::Requests(param::whole(value, 1.0, 1e12, "requests, 1 to 10^12")?)
                }
            };
            return Ok(());
        }
        if let Some(r) = self.collector.set(key, value) {
            return r.map_err(ParamError::Range);
        }
        if self.collector.names().iter().any(|n| n.0 == key) {
            return Err(ParamError::Range("a name"));
        }
        Err(self.unknown(key))
    }
    fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        match self.collector.set_name(key, name) {
            Some(r) => r.map_err(ParamError::Range),
            None if self.params().iter().any(|p| p.0 == key) => Err(ParamError::Range("a number")),
            None => Err(self.unknown(key)),
        }
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        self.collector.names()
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        let every = match self.rules.every {
            Every::Time(t) => t.as_secs_f64(),
            Every::Requests(n) => n as f64,
        };
        let mut v = alloc::vec![(self.rules.every_name, every)];
        v.extend(self.collector.params());
        v
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let when = match (self.rules.every, self.next) {
            (Every::Time(_), Some(t)) => format!("in {:.0} s", t.since(view.now()).as_secs_f64()),
            (Every::Requests(n), _) => format!("in {} requests", n - self.requests % n),
            _ => String::from("after the first access"),
        };
        let what = if is_fast(view, extent) {
            "on the fast tier until others are worth more"
        } else {
            "goes to the fast tier if it is worth more than the coldest there"
        };
        let bar = if self.rules.admission {
            format!(" and than the last one evicted ({})", self.last_evicted)
        } else {
            String::new()
        };
        format!(
            "{}; {what}{bar}; next plan {when}",
            self.collector.explain(view, extent)
        )
    }
    fn warning(&self) -> Option<String> {
        (self.plans == 0).then(|| {
            format!(
                "{} made no plan: the work ended before its first planning instant; choose a smaller {}",
                self.name, self.rules.every_name
            )
        })
    }
    fn bytes(&self) -> usize {
        self.collector.bytes()
            + self.queue.capacity() * size_of::<UnitId>()
            + self.cells.capacity() * size_of::<(UnitId, TierId)>()
            + self.large.bytes()
            + self.passed.bytes()
    }
}
