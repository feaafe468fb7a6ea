//! `hot-dst-5s`, `hot-dst-80s`, `cache-interval` (Loris IV-A 2 and IV-C 2; docs/policy-rules.md section 5): homes start on the slowest
//! tier; every `period` seconds from the first access, the hottest units on the slow tier are exchanged with the coldest on the fast tier.
//!
//! A plan takes the hottest candidates first. It ends at the first candidate that is not worth more than the unit evicted last
//! was (where admission applies) or, if the fast tier is full, than the coldest unit there. Only units whose worth grew since the
//! last plan can qualify, because the lowest worth on the fast tier never falls. So a plan costs O(k log k) for k such units.
//! With sieving, the room that a large file or a discard leaves is also offered to units that the last plan narrowly rejected.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | period | 0.001…10⁹ | by preset | seconds between plans |
//!
//! Over more than two tiers: `middle.rs`. Units that a plan does not move to the fastest tier are offered to the next one.
//!
//! When not to use it: working sets that last less than a period.

mod policy;

use super::hold::{FAST, Hold, is_fast};
use super::middle::Middle;
use super::{Access, Action, ParamError, Policy, View, matrix};
use crate::bits::Bits;
use crate::collector::{Collector, Raised, Rank};
use crate::units::{Nanos, TierId};
use crate::volume::UnitId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Maximum number of concurrent exchanges in a live volume.
const AT_ONCE: u32 = 8;
/// Maximum number of concurrent moves of a migration: the number for which a live volume has buffers. Concurrent moves share the
/// flushes of their commits, and on a disk a migration spends most of its time in those.
const MATRIX_AT_ONCE: u32 = 16;

/// A plan in progress is continued after this time, if no event continues it earlier.
const LOOK_AGAIN: Nanos = Nanos(10_000_000);

/// The times at which plans are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// At this interval, beginning with the first access.
    Time(Nanos),
    /// Before every n-th request except the first.
    Requests(u64),
}

/// Whether a plan is due, with [`Every::Requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    No,
    /// The last access of a request is in progress; the plan is due after it.
    AfterThis,
    Now,
}

/// The differences between the presets that plan.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether the preset moves homes or makes copies.
    pub hold: Hold,
    /// Interval between plans.
    pub every: Every,
    /// Name of the parameter that sets the interval.
    pub every_name: &'static str,
    /// Whether a candidate must be worth more than the unit evicted last was.
    pub admission: bool,
    /// Whether units of large files are kept off the fast tier.
    pub sieve: bool,
    /// Whether a plan is a migration matrix (OODT III-A): computed as a whole over all tiers, demotions first, each cell in address
    /// order. Otherwise units are exchanged with the fastest tier one by one, the hottest first.
    pub matrix: bool,
    /// Whether logical neighbours are placed next to each other on slower tiers, if there is room (OODT III-C).
    pub neighbours: bool,
}

/// See the module.
pub struct Interval {
    name: &'static str,
    pub(super) collector: Box<dyn Collector>,
    rules: Rules,
    next: Option<Nanos>,
    requests: u64,
    planned: u64,
    due: Due,
    plans: u64,
    /// Candidates of the plan in progress, hottest last.
    queue: Vec<UnitId>,
    /// Time of the last tick that left a plan unfinished.
    busy: Option<Nanos>,
    /// The remaining moves of the migration matrix.
    cells: VecDeque<(UnitId, TierId)>,
    last_evicted: u64,
    waiting: VecDeque<UnitId>,
    sieved: Vec<UnitId>,
    /// Extents of large files.
    large: Bits,
    /// Units that passed the admission rule but were not worth more than the coldest unit. They become candidates if room is made outside a
    /// plan.
    passed: Raised,
    /// Number of passed units at their last examination, and whether a new examination is needed.
    passed_then: usize,
    room: bool,
    middle: Middle,
    /// The tier that the plan in progress fills.
    level: TierId,
}

impl Interval {
    /// Creates the policy with the given collector.
    pub fn new(name: &'static str, collector: Box<dyn Collector>, rules: Rules) -> Interval {
        Interval {
            name,
            collector,
            rules,
            next: None,
            requests: 0,
            planned: 0,
            due: Due::No,
            plans: 0,
            queue: Vec::new(),
            busy: None,
            cells: VecDeque::new(),
            last_evicted: 0,
            waiting: VecDeque::new(),
            sieved: Vec::new(),
            large: Bits::default(),
            passed: Raised::default(),
            passed_then: 0,
            room: false,
            middle: Middle::default(),
            level: FAST,
        }
    }
    fn unknown(&self, key: &str) -> ParamError {
        let (numbers, names) = (self.params(), self.collector.names());
        let valid = numbers.iter().map(|p| p.0);
        ParamError::Unknown(super::nearest(key, valid.chain(names.iter().map(|n| n.0))))
    }
    /// Number of plans so far.
    pub fn plans(&self) -> u64 {
        self.plans
    }
    /// Updates the time of the next plan after an access.
    fn count(&mut self, view: &View<'_>, access: &Access) {
        match self.rules.every {
            Every::Time(period) => {
                self.next.get_or_insert(access.now + period);
            }
            Every::Requests(n) => {
                self.requests += u64::from(access.first);
                let end = access.request_offset + u64::from(access.request_bytes.max(1)) - 1;
                let boundary =
                    self.requests.is_multiple_of(n) && view.unit_at(end) == access.extent;
                if boundary && self.requests / n > self.planned {
                    self.due = Due::AfterThis;
                } else if self.requests.saturating_sub(1) / n > self.planned {
                    self.due = Due::Now; // its last extent was not seen
                }
            }
        }
    }
    fn is_due(&mut self, now: Nanos) -> bool {
        match self.rules.every {
            Every::Time(period) => {
                let Some(next) = self.next.filter(|&n| n <= now) else {
                    return false;
                };
                // A plan without an access since the last one would find nothing to do.
                let missed = (now.0 - next.0) / period.0;
                self.next = Some(Nanos(next.0 + (missed + 1) * period.0));
                true
            }
            Every::Requests(n) => match self.due {
                Due::No => false,
                Due::AfterThis => {
                    self.due = Due::Now;
                    false
                }
                Due::Now => {
                    self.due = Due::No;
                    self.planned = self.requests / n;
                    true
                }
            },
        }
    }
    fn sieve(&mut self, view: &View<'_>, e: UnitId, large: bool, wanted: &mut Vec<Action>) {
        if large != self.large.get(e.0 as usize) {
            self.large.fill(e.0 as usize, e.0 as usize + 1, large);
        }
        if large && is_fast(view, e) && !self.sieved.contains(&e) {
            self.sieved.push(e);
            wanted.push(self.rules.hold.out(view, e));
        }
    }
    fn may_come(&self, view: &View<'_>, e: UnitId) -> bool {
        let large = self.rules.sieve && self.large.get(e.0 as usize);
        view.home(e).is_some() && !is_fast(view, e) && !large
    }
    /// Collects and sorts the candidates.
    fn begin(&mut self, view: &mut View<'_>) {
        self.plans += 1;
        self.level = FAST;
        self.collector.settle(view);
        self.queue.clear();
        self.collector.raised(&mut self.queue);
        if self.rules.matrix && view.tiers() > 2 {
            self.queue.clear();
            self.cells = matrix::plan(view, &*self.collector);
            return;
        }
        if self.rules.sieve {
            self.keep_passed(view);
        }
        let bar = if self.rules.admission {
            self.last_evicted
        } else {
            0
        };
        let bar = match self.collector.coldest(view, FAST) {
            // A unit that does not belong on the fastest tier may belong on the next.
            _ if self.fills_middle(view) => 0,
            // A unit that is not worth more than the coldest now will not be worth more later in this plan.
            Some(cold) if view.free(FAST) == 0 => bar.max(self.collector.worth(view, cold)),
            _ => bar,
        };
        let mut ranked: Vec<(Rank, UnitId)> = Vec::new();
        for &e in &self.queue {
            let rank = self.collector.rank(view, e);
            if rank.0 > bar && self.may_come(view, e) {
                ranked.push((rank, e));
            }
        }
        ranked.sort_unstable();
        self.queue.clear();
        self.queue.extend(ranked.iter().map(|x| x.1));
        if self.rules.matrix {
            self.exchange_all(view);
        }
    }
    /// Computes the matrix of two tiers from the candidates: as many of the coldest units are demoted as the hottest need room.
    fn exchange_all(&mut self, view: &mut View<'_>) {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut free = view.free(FAST);
        while let Some(e) = self.queue.pop() {
            if !view.could_fit(FAST, e) {
                continue;
            }
            let worth = self.collector.worth(view, e);
            while free < view.weight(e) {
                let cold = self.collector.coldest(view, FAST);
                let cold = cold.filter(|&c| self.collector.worth(view, c) < worth);
                let Some((cold, position)) = cold.and_then(|c| Some((c, view.home(c)?))) else {
                    break;
                };
                // Removed from the order, so that the next coldest is found. It is inserted again if it is not demoted.
                self.collector.left(view, cold, position);
                down.push(cold);
                free += view.weight(cold);
            }
            if free < view.weight(e) {
                break;
            }
            free -= view.weight(e);
            up.push(e);
        }
        self.queue.clear();
        down.sort_unstable();
        up.sort_unstable();
        let slowest = view.slowest();
        self.cells.extend(down.into_iter().map(|e| (e, slowest)));
        self.cells.extend(up.into_iter().map(|e| (e, FAST)));
    }
    /// Proposes the next moves of the matrix, with no more promotions than there are free slots.
    fn cells(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        let mut up = 0;
        while view.moves() + (wanted.len() as u32) < MATRIX_AT_ONCE
            && let Some(&(extent, to)) = self.cells.front()
        {
            if to == FAST {
                if view.free(FAST) < up + view.weight(extent) {
                    if view.moves() + view.freeing(FAST) > 0 || !wanted.is_empty() {
                        return;
                    }
                    // No further room will be made, because some demotions failed.
                    self.cells.pop_front();
                    continue;
                }
                up += view.weight(extent);
            }
            self.cells.pop_front();
            wanted.push(Action::Move { extent, to });
        }
        if self.cells.is_empty() && self.cells.capacity() > 0 {
            self.cells = VecDeque::new();
        }
    }
    /// Remembers the units that were narrowly rejected. They become candidates when a large file is removed and so makes room outside a
    /// plan.
    fn keep_passed(&mut self, view: &View<'_>) {
        let mut known = Vec::new();
        if self.room || self.passed.len() > 2 * self.passed_then + 1024 {
            self.passed.take(&mut known);
        }
        if self.room {
            self.queue.append(&mut known);
            self.queue.sort_unstable();
            self.queue.dedup();
            self.room = false;
        }
        for &e in self.queue.iter().chain(&known) {
            if self.may_come(view, e) && self.collector.worth(view, e) > self.last_evicted {
                self.passed.note(e);
            }
        }
        self.passed_then = self.passed.len();
    }
    /// Whether there are tiers in between that this preset fills gradually.
    fn fills_middle(&self, view: &View<'_>) -> bool {
        self.rules.hold == Hold::Home && !self.rules.matrix && view.tiers() > 2
    }
    /// Proposes the next exchange of the plan in progress.
    fn step(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if self.level != FAST {
            return self.step_below(view, wanted);
        }
        while let Some(e) = self.queue.pop() {
            if !self.may_come(view, e) {
                continue;
            }
            let worth = self.collector.worth(view, e);
            if self.rules.admission && worth <= self.last_evicted {
                self.queue.push(e);
                break;
            }
            let promised: u32 = self.waiting.iter().map(|&w| view.weight(w)).sum();
            if view.free(FAST) >= promised.saturating_add(view.weight(e)) {
                return wanted.push(self.rules.hold.up(e));
            }
            if !view.could_fit(FAST, e) {
                continue;
            }
            let cold = self.collector.coldest(view, FAST);
            let Some(cold) = cold.filter(|&c| self.collector.worth(view, c) < worth) else {
                self.queue.push(e);
                break;
            };
            self.waiting.push_back(e);
            return wanted.push(self.rules.hold.down(view, cold));
        }
        if self.fills_middle(view) && !self.queue.is_empty() {
            self.level = TierId(1);
            return self.step_below(view, wanted);
        }
        self.queue = Vec::new(); // a plan is rare, and may be long
    }
    /// Like [`Interval::step`] for the tiers below the fastest, one after the other. A unit that was rejected there may be admitted here.
    fn step_below(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        while self.level < view.slowest()
            && let Some(&e) = self.queue.last()
        {
            let t = self.level;
            let lower = view.home(e).is_some_and(|s| view.tier_of(s) > t);
            if !lower || !self.may_come(view, e) {
                self.queue.pop();
                continue;
            }
            let worth = self.collector.worth(view, e);
            if view.free(t) == 0 && self.middle.is_clearing(t) {
                return;
            }
            if !self.rules.admission || self.middle.admits(t, worth) {
                if view.free(t) > 0 {
                    self.queue.pop();
                    return self.middle.raise(e, t, wanted);
                }
                let cold = self.collector.coldest(view, t);
                if let Some(cold) = cold.filter(|&c| self.collector.worth(view, c) < worth)
                    && self.middle.clear(view, t, cold, wanted)
                {
                    return;
                }
            }
            self.level = TierId(t.0 + 1);
        }
        self.queue = Vec::new(); // a plan is rare, and may be long
        self.level = FAST;
    }
}
