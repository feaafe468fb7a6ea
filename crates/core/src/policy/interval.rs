//! `hot-dst-5s`, `hot-dst-80s`, `cache-interval` (Loris IV-A 2 and IV-C 2; docs/policy-rules.md section 5): homes start on the slowest tier;
//! every `period` seconds from the first access, the hottest units on slow change places with the coldest on fast.
//!
//! A plan takes candidates hottest first, and ends at the first that is not worth more than the unit last evicted was (where
//! admission applies), or, with fast full, not worth more than the coldest there. Only units whose worth grew since the
//! last plan can qualify, because the lowest worth on fast never falls: a plan costs O(k log k) for k of them.
//! Where files are sieved, room that a large one or a discard leaves is offered to the units only just passed over as well.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | period | 0.001…10⁹ | by preset | seconds between plans |
//!
//! Over more than two tiers: `middle.rs`; what a plan does not take to the fastest tier it offers to the next.
//!
//! When not to use it: working sets that live shorter than the period.

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

/// Exchanges under way at once, live.
const AT_ONCE: u32 = 8;
/// Moves of a migration under way at once: as many as a live volume has buffers for. They share the flushes of their
/// commits, which is what a migration takes most of its time for on a disk.
const MATRIX_AT_ONCE: u32 = 16;

/// A plan under way is looked at again after so long without any event.
const LOOK_AGAIN: Nanos = Nanos(10_000_000);

/// When plans are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// So long after each other, from the first access on.
    Time(Nanos),
    /// Before every so-many-th request but the first.
    Requests(u64),
}

/// Where planning stands with [`Every::Requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    No,
    /// The last access of a request is under way: due once it is over.
    AfterThis,
    Now,
}

/// What differs between the presets that plan.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Homes or copies.
    pub hold: Hold,
    /// Period.
    pub every: Every,
    /// Its parameter's name.
    pub every_name: &'static str,
    /// A candidate must be worth more than the unit last evicted was.
    pub admission: bool,
    /// Units of large files stay off fast.
    pub sieve: bool,
    /// A plan is a migration matrix (OODT III-A): made as a whole, demotions first, each cell by address, over all tiers.
    /// Otherwise exchanges with the fastest tier are made one by one, the hottest first.
    pub matrix: bool,
    /// On slower tiers logical neighbours lie next to each other, where there is room (OODT III-C).
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
    /// Candidates of the plan under way, hottest last.
    queue: Vec<UnitId>,
    /// When a tick last left a plan under way.
    busy: Option<Nanos>,
    /// What is left of the migration matrix.
    cells: VecDeque<(UnitId, TierId)>,
    last_evicted: u64,
    waiting: VecDeque<UnitId>,
    sieved: Vec<UnitId>,
    /// Extents of large files.
    large: Bits,
    /// Units that were good enough but for the coldest, kept for when room is made outside a plan.
    passed: Raised,
    /// Passed units when they were last looked through, and whether that is needed.
    passed_then: usize,
    room: bool,
    middle: Middle,
    /// The tier that the plan under way fills.
    level: TierId,
}

impl Interval {
    /// With that collector.
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
    /// Plans made so far.
    pub fn plans(&self) -> u64 {
        self.plans
    }
    /// Note the access for the planning instants.
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
                // Instants without an access between them would find nothing to do.
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
    /// Line up the candidates.
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
            // What is not for the fastest tier may be for the next.
            _ if self.fills_middle(view) => 0,
            // What is worth no more than the coldest now will not be later in this plan.
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
    /// The matrix of two tiers, from the candidates: as many of the coldest go down as the hottest need room.
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
                let Some((cold, seat)) = cold.and_then(|c| Some((c, view.home(c)?))) else {
                    break;
                };
                // Out of the order, so that the next coldest is found; it returns if it does not leave.
                self.collector.left(view, cold, seat);
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
    /// The next moves of the matrix: of those up, no more than there are free slots.
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
                    // Nobody will make room any more: not every demotion came about.
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
    /// A large file that leaves makes room outside a plan: then those count too that were only just not good enough.
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
    /// Are there tiers in between, and does this preset fill them by and by?
    fn fills_middle(&self, view: &View<'_>) -> bool {
        self.rules.hold == Hold::Home && !self.rules.matrix && view.tiers() > 2
    }
    /// The next exchange of the plan under way.
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
    /// The same for the tiers below the fastest, one after the other: who was not worth that is worth this, perhaps.
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
