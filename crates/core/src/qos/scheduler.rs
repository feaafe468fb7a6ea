//! Chooses the request that begins next.

use super::group::{Group, NONE, WINDOW};
use super::{Row, Spec, Standing};
use crate::stats::CLASSES;
use crate::units::{Nanos, TierId};
use alloc::vec;
use alloc::vec::Vec;

/// Largest number of consecutive requests that are chosen by deadline while another request waits that would be chosen by share.
const BY_DEADLINE: u8 = 3;

/// A request that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The caller's number of the request. Numbers are small and are reused.
    pub number: u32,
    /// Class of its data.
    pub class: u8,
    /// The tier that will probably serve it.
    pub tier: TierId,
    /// Length in bytes.
    pub bytes: u32,
    /// Estimated time for which a device of that tier works on it.
    pub work: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    Held,
    Begun,
}

/// The state of a request, indexed by its number.
#[derive(Clone, Copy, Debug)]
struct Place {
    state: State,
    class: u8,
    group: u8,
    lane: u8,
    bytes: u32,
    next: u32,
    work: Nanos,
    arrived: Nanos,
}

/// State of a tier.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// Largest number of concurrent requests of rows that keep their guarantees.
    depth: u16,
    /// Number of requests in progress of rows that keep their guarantees (`common`) and of rows that miss them (`behind`).
    common: u32,
    behind: u32,
    /// Virtual time: the start tag of the request that began last.
    time: u64,
    by_deadline: u8,
}

/// See [`super`]. Every request is passed to [`Scheduler::admit`]; if it is held, [`Scheduler::next`] returns it later. At its
/// end it is passed to [`Scheduler::ended`].
#[derive(Clone, Debug)]
pub struct Scheduler {
    spec: Spec,
    of: [u8; CLASSES],
    groups: Vec<Group>,
    lanes: Vec<Lane>,
    places: Vec<Place>,
    held: u32,
    /// Whether something has happened that may allow a held request to begin.
    due: bool,
    /// Whether requests at the devices are limited, because a row has a share, a floor or a latency.
    bounded: bool,
    /// Whether all requests may begin at once, because the volume closes.
    open: bool,
    window: Nanos,
    missed_guarantee: bool,
}

impl Scheduler {
    /// A scheduler for a volume with `tiers` tiers, from `now` on.
    pub fn new(spec: Spec, tiers: u8, now: Nanos) -> Scheduler {
        let n = usize::from(tiers.max(1));
        let lane = Lane {
            depth: spec.depth.max(1),
            common: 0,
            behind: 0,
            time: 0,
            by_deadline: 0,
        };
        let rest = Group::new(Row::of(0), n);
        let rows = spec.rows.iter().map(|r| Group::new(*r, n));
        Scheduler {
            of: spec.groups(),
            groups: [rest].into_iter().chain(rows).collect(),
            lanes: vec![lane; n],
            places: Vec::new(),
            held: 0,
            due: false,
            bounded: spec.rows.iter().any(Row::bounds),
            open: false,
            window: now,
            missed_guarantee: false,
            spec,
        }
    }

    /// Replaces the rows from `now` on, also for requests that have arrived already. Statistics start anew.
    pub fn replace(&mut self, spec: Spec, now: Nanos) {
        let fresh = Scheduler::new(spec, self.lanes.len() as u8, now);
        let old = core::mem::replace(self, fresh);
        self.open = old.open;
        self.places = old.places;
        let mut held: Vec<u32> = Vec::new();
        for number in 0..self.places.len() as u32 {
            let p = &mut self.places[number as usize];
            p.group = self.of[usize::from(p.class) % CLASSES];
            match p.state {
                State::Unknown => {}
                State::Held => held.push(number),
                State::Begun => {
                    let p = *p;
                    let g = &mut self.groups[usize::from(p.group)];
                    g.arrived(now, usize::from(p.lane), p.bytes);
                    g.begins(usize::from(p.lane), None);
                    self.lanes[usize::from(p.lane)].common += 1;
                }
            }
        }
        held.sort_by_key(|&n| (self.places[n as usize].arrived, n));
        for number in held {
            let p = self.places[number as usize];
            self.groups[usize::from(p.group)].arrived(now, usize::from(p.lane), p.bytes);
            self.hold(number);
        }
        self.due = true;
    }

    /// The rows in force.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
    /// Number of requests that wait to begin.
    pub fn held(&self) -> u32 {
        self.held
    }
    /// Holds no request any more. [`Scheduler::next`] returns those that are held now.
    pub fn open(&mut self) {
        (self.open, self.due) = (true, true);
    }
    /// Whether [`Scheduler::next`] should be called.
    pub fn is_due(&self) -> bool {
        self.due
    }
    /// Notes that [`Scheduler::next`] returned `None`. It need not be called before the next event or [`Scheduler::wake`].
    pub fn asked(&mut self) {
        self.due = false;
    }
    /// Whether a row misses its guarantees. Background work should pause then.
    pub fn misses_guarantee(&self) -> bool {
        self.missed_guarantee
    }

    /// Decides about a request that arrives; returns true if it may begin now. Otherwise it is held.
    pub fn admit(&mut self, now: Nanos, a: Arrival) -> bool {
        self.judge_if_due(now);
        let lane = usize::from(a.tier.0).min(self.lanes.len() - 1);
        let group = self.of[usize::from(a.class) % CLASSES];
        let place = Place {
            state: State::Begun,
            class: a.class,
            group,
            lane: lane as u8,
            bytes: a.bytes,
            next: NONE,
            work: a.work,
            arrived: now,
        };
        let i = a.number as usize;
        if i >= self.places.len() {
            let none = Place {
                state: State::Unknown,
                ..place
            };
            self.places.resize(i + 1, none);
        }
        self.places[i] = place;
        self.groups[usize::from(group)].arrived(now, lane, a.bytes);
        if self.open || (self.held == 0 && self.may_begin(now, usize::from(group), lane, a.bytes)) {
            self.begin(now, a.number, false);
            return true;
        }
        self.hold(a.number);
        self.due = true;
        false
    }

    fn hold(&mut self, number: u32) {
        let p = &mut self.places[number as usize];
        (p.state, p.next) = (State::Held, NONE);
        let g = &mut self.groups[usize::from(p.group)];
        let q = &mut g.queues[usize::from(p.lane)];
        let last = core::mem::replace(&mut q.tail, number);
        if q.head == NONE {
            q.head = number;
        }
        g.held += 1;
        self.held += 1;
        if last != NONE {
            self.places[last as usize].next = number;
        }
    }

    /// Whether a request of `bytes` bytes of a row may begin on a tier.
    fn may_begin(&mut self, now: Nanos, group: usize, lane: usize, bytes: u32) -> bool {
        self.has_room(group, lane) && self.below_ceiling(now, group, bytes)
    }

    fn has_room(&self, group: usize, lane: usize) -> bool {
        let l = &self.lanes[lane];
        !self.bounded
            || if self.groups[group].behind {
                l.behind < u32::from(self.spec.depth)
            } else {
                l.common < u32::from(l.depth)
            }
    }

    fn below_ceiling(&mut self, now: Nanos, group: usize, bytes: u32) -> bool {
        let g = &mut self.groups[group];
        let fits = (g.ceiling).is_none_or(|c| c.ready(bytes.into()) <= now);
        if !fits {
            g.capped = now;
        }
        fits
    }

    /// The oldest held request of a row. The ceiling must admit this one first; otherwise small requests could delay a large one for ever.
    fn oldest(&self, group: usize) -> Option<u32> {
        let heads = self.groups[group].queues.iter().map(|q| q.head);
        let heads = heads.filter(|&h| h != NONE);
        heads.min_by_key(|&h| self.places[h as usize].arrived)
    }

    /// Whether the first request that a row holds for a tier may begin now.
    fn may_leave(&mut self, now: Nanos, group: usize, lane: usize) -> bool {
        let head = self.groups[group].queues[lane].head;
        if head == NONE {
            return false;
        }
        if self.open {
            return true;
        }
        if self.groups[group].ceiling.is_some()
            && let Some(oldest) = self.oldest(group)
            && oldest != head
        {
            let bytes = self.places[oldest as usize].bytes;
            if !self.below_ceiling(now, group, bytes) {
                return false;
            }
        }
        let bytes = self.places[head as usize].bytes;
        self.may_begin(now, group, lane, bytes)
    }

    /// Returns a held request that begins now; `None` if none may begin.
    pub fn next(&mut self, now: Nanos) -> Option<u32> {
        self.judge_if_due(now);
        if self.held == 0 {
            return None;
        }
        for lane in 0..self.lanes.len() {
            if let Some(group) = self.choose(now, lane) {
                let q = &mut self.groups[group].queues[lane];
                let number = q.head;
                let p = &mut self.places[number as usize];
                q.head = core::mem::replace(&mut p.next, NONE);
                if q.head == NONE {
                    q.tail = NONE;
                }
                p.state = State::Begun;
                self.groups[group].held -= 1;
                self.held -= 1;
                self.begin(now, number, true);
                return Some(number);
            }
        }
        None
    }

    /// The row whose request is next at a tier: first floors that are due, then deadlines, then shares.
    fn choose(&mut self, now: Nanos, lane: usize) -> Option<usize> {
        let (mut owed, mut urgent, mut fair) = (None, None, None);
        for group in 0..self.groups.len() {
            if self.groups[group].held == 0 || !self.may_leave(now, group, lane) {
                continue;
            }
            let g = &self.groups[group];
            let head = &self.places[g.queues[lane].head as usize];
            if let Some(time) = g.floor.and_then(|f| f.overdue(now))
                && owed.is_none_or(|(most, _)| time > most)
            {
                owed = Some((time, group));
            }
            if let Some(limit) = g.row.latency {
                let by = head.arrived + limit;
                if urgent.is_none_or(|(first, _)| by < first) {
                    urgent = Some((by, group));
                }
            }
            let start = g.queues[lane].finish.max(self.lanes[lane].time);
            if fair.is_none_or(|(first, _)| start < first) {
                fair = Some((start, group));
            }
        }
        if let Some((_, group)) = owed {
            return Some(group);
        }
        let l = &mut self.lanes[lane];
        let (_, group) = fair?;
        if let Some((_, urgent)) = urgent
            && urgent != group
            && l.by_deadline < BY_DEADLINE
        {
            l.by_deadline += 1;
            return Some(urgent);
        }
        l.by_deadline = 0;
        Some(group)
    }

    fn begin(&mut self, now: Nanos, number: u32, held: bool) {
        let p = self.places[number as usize];
        let (group, lane) = (usize::from(p.group), usize::from(p.lane));
        let g = &mut self.groups[group];
        let l = &mut self.lanes[lane];
        if let Some(c) = &mut g.ceiling {
            c.take(now, p.bytes.into());
        }
        if let Some(f) = &mut g.floor {
            if f.overdue(now).is_some() {
                f.serve(now, p.bytes.into());
            } else {
                f.serve_extra(now, p.bytes.into());
            }
        }
        let q = &mut g.queues[lane];
        let start = q.finish.max(l.time);
        l.time = start;
        let share = u64::from(g.row.share.max(1));
        q.finish = start.saturating_add((p.work.0.max(1)).saturating_mul(100) / share);
        if g.behind {
            l.behind += 1;
        } else {
            l.common += 1;
        }
        g.begins(lane, held.then(|| now.since(p.arrived)));
    }

    /// Counts a request that has ended. A request that began before the scheduler was created is ignored.
    pub fn ended(&mut self, now: Nanos, number: u32) {
        let Some(p) = self.places.get_mut(number as usize) else {
            return;
        };
        if p.state != State::Begun {
            return;
        }
        p.state = State::Unknown;
        let p = *p;
        let (group, lane) = (usize::from(p.group), usize::from(p.lane));
        let g = &mut self.groups[group];
        let l = &mut self.lanes[lane];
        if g.behind {
            l.behind -= 1;
        } else {
            l.common -= 1;
        }
        g.ended(now, lane, p.bytes, p.arrived);
        self.judge_if_due(now);
        self.due |= self.held > 0;
    }

    /// The time at which a ceiling allows a held request to begin, if no event comes before.
    pub fn wake(&self) -> Option<Nanos> {
        if self.held == 0 {
            return None;
        }
        if self.due {
            return Some(Nanos(0));
        }
        let one = |(i, g): (usize, &Group)| {
            let c = g.ceiling.filter(|_| g.held > 0)?;
            let oldest = self.oldest(i)?;
            let p = &self.places[oldest as usize];
            // Otherwise it waits until another request ends.
            self.has_room(i, usize::from(p.lane))
                .then(|| c.ready(p.bytes.into()))
        };
        self.groups.iter().enumerate().filter_map(one).min()
    }

    #[inline]
    fn judge_if_due(&mut self, now: Nanos) {
        if now.since(self.window) >= WINDOW {
            self.judge(now);
        }
    }

    /// Called every half second: finds the rows that miss their guarantees, and adjusts the number of concurrent requests of the other
    /// rows.
    fn judge(&mut self, now: Nanos) {
        let length = now.since(self.window);
        self.window = now;
        let (mut slower, mut same) = (0u8, 0u8);
        self.missed_guarantee = false;
        for l in &mut self.lanes {
            (l.common, l.behind) = (0, 0);
        }
        for g in &mut self.groups {
            let v = g.judge(now, length);
            self.missed_guarantee |= v.behind;
            if v.behind {
                slower |= v.lanes;
            } else if !v.easy {
                same |= v.lanes;
            }
            for (l, q) in self.lanes.iter_mut().zip(&g.queues) {
                if v.behind {
                    l.behind += q.in_flight;
                } else {
                    l.common += q.in_flight;
                }
            }
        }
        for (i, l) in self.lanes.iter_mut().enumerate() {
            if slower >> i & 1 != 0 {
                l.depth = (l.depth / 2).max(1);
            } else if same >> i & 1 == 0 {
                l.depth = (l.depth + (l.depth / 4).max(1)).min(self.spec.depth.max(1));
            }
        }
        self.due |= self.held > 0;
    }

    /// The state of each row, and then of the classes that are in no row. This has no effect on decisions.
    pub fn standing(&self, now: Nanos) -> Vec<Standing> {
        let length = now.since(self.window);
        // No request has come since the last window, so its result is out of date.
        let old = length >= WINDOW + WINDOW;
        let mut groups = self.groups.clone();
        let one = |g: &mut Group| {
            if old {
                g.judge(now, length);
            }
            g.standing()
        };
        let mut all: Vec<Standing> = groups.iter_mut().map(one).collect();
        all.rotate_left(1);
        all
    }
}

#[cfg(test)]
mod tests;
