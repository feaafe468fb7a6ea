//! The virtual world: time jumps to the next event.
//!
//! ```text
//!   Feed ─► submit ─► Engine ─► Effect::Start ─► DeviceModel
//!             ▲          ▲  └─► Effect::Reply ─► figures      │
//!             └ a place  └────────── complete ◄── poll ───────┘
//! ```
//! The loop is the core's ([`isotherm_core::run`]): between two turns [`World::plan`] decides what happens next and when.
//!
//! Invariant: at one instant, ends of operations come first, then the engine's wake-up, then new requests, one at a time; members go in
//! their order. So a run gives the same result on every machine.

mod device;
mod flight;

use std::collections::VecDeque;

use isotherm_core::run::{Loop, Next};
use isotherm_core::stats::CLASSES;
use isotherm_core::{
    BufRef, Effect, Engine, Event, MemberId, Nanos, OpId, OpKind, Request, RequestOp, Tag,
};
use isotherm_models::{Counters as DeviceCounters, DeviceModel, ModelOp};

use super::feed::{Feed, Want};
use super::observe::{Observer, Totals, device_counters};
use super::phases::Phases;
use super::rest::Rest;
use super::setup::TimeMode;
use super::spread::Spread;
pub(crate) use super::sums::{ClassSum, Mark, Sums};
use super::{Watch, digest::Digest};
use crate::LabError;
pub(crate) use device::Device;
use flight::{Flight, Kind};

/// Most requests in the volume at a time if the trace's clock sets the pace. Further requests wait outside, and their latency counts from
/// their time in the trace.
const OPEN_MAX: usize = 1024;
/// Nanoseconds that pass before a policy is woken again that wants to be woken at once again and again.
const TICK_GAP: u64 = 1_000;
/// The wall clock is read after this many requests.
const WATCH_EVERY: u64 = 1 << 14;

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// The engine's wake-up.
    Wake,
    /// Operations of this member end.
    Operations(usize),
    /// A request arrives.
    Request(Request),
}

/// See the module.
pub(crate) struct World<'a> {
    pub devices: Vec<Device>,
    feed: Feed<'a>,
    mode: TimeMode,
    now: u64,
    /// The engine's time at the start.
    base: u64,
    plan: Plan,
    ticked: u64,
    done: Vec<u64>,
    flights: Vec<Flight>,
    free: Vec<u32>,
    in_flight: usize,
    places: usize,
    warm_up: u64,
    /// The pause between the warm-up and the measured part.
    pub rest: Rest,
    /// Whether a request waits for requests in flight that overlap it, if one of the two is a write.
    pub ordered: bool,
    /// Nanoseconds between a reply and the next request of the same place.
    pub client_ns: u64,
    /// The times at which places for requests are ready again.
    client: VecDeque<u64>,
    submitted: u64,
    /// The number of requests when the wall clock was last read.
    watched: u64,
    warm: Option<Mark>,
    last_reply: u64,
    pub sums: Sums,
    pub digest: Digest,
    observer: Option<Box<Observer>>,
    boundary: u64,
    pub phases: Option<Box<Phases>>,
}

impl<'a> World<'a> {
    pub fn new(
        devices: Vec<(Box<dyn DeviceModel>, u8, Option<Spread>)>,
        feed: Feed<'a>,
        mode: TimeMode,
        warm_up: u64,
        observer: Option<Observer>,
    ) -> World<'a> {
        let places = match mode {
            TimeMode::Closed { depth } => depth as usize,
            TimeMode::Trace { .. } => OPEN_MAX,
        };
        let boundary = observer.as_ref().map_or(u64::MAX, Observer::boundary);
        World {
            devices: devices
                .into_iter()
                .map(|(model, tier, spread)| Device::new(model, tier, spread))
                .collect(),
            feed,
            mode,
            now: 0,
            base: 0,
            plan: Plan::Wake,
            ticked: 0,
            done: Vec::with_capacity(64),
            flights: vec![Flight::default(); places],
            free: (0..places as u32).rev().collect(),
            in_flight: 0,
            places,
            warm_up,
            rest: Rest::default(),
            ordered: false,
            client_ns: 0,
            client: VecDeque::new(),
            submitted: 0,
            watched: 0,
            warm: None,
            last_reply: 0,
            sums: Sums {
                classes: vec![ClassSum::default(); CLASSES],
                ..Sums::default()
            },
            digest: Digest::default(),
            observer: observer.map(Box::new),
            boundary,
            phases: None,
        }
    }

    /// The engine's time at the start, if it is not 0.
    pub fn begin_at(&mut self, begun: Nanos) {
        (self.base, self.now) = (begun.0, begun.0);
    }

    /// Plays the whole trace. Returns the marks between which figures count.
    pub fn play(
        &mut self,
        engine: &mut Engine,
        watch: Option<&Watch>,
    ) -> Result<(Mark, Mark), LabError> {
        if self.warm_up == 0 {
            self.begin_counting(engine);
        }
        Loop::new().run(engine, self, |_, engine, me| me.plan(engine, watch))?;
        if let Some(w) = watch {
            w.note(self.submitted)?;
        }
        let end = self.mark(engine, self.last_reply.max(self.base));
        if let Some(p) = &mut self.phases {
            p.end(end.clone(), self.submitted, engine);
        }
        let Some(begin) = self.warm.take() else {
            return Err(LabError::setup(format!(
                "warm-up: the trace has only {} requests, nothing is left to count",
                self.submitted
            )));
        };
        Ok((begin, end))
    }

    /// Decides the next event and advances the time to it.
    #[inline]
    fn plan(&mut self, engine: &Engine, watch: Option<&Watch>) -> Result<Next, LabError> {
        let wake = engine.next_wake().map_or(u64::MAX, |w| w.0);
        let wake = wake.max(self.ticked);
        loop {
            let (due, member) = self.next_device();
            if due <= self.now {
                self.plan = Plan::Operations(member);
                return Ok(Next::Wait(None));
            }
            if wake <= self.now {
                self.ticked = self.now + TICK_GAP;
                self.plan = Plan::Wake;
                return Ok(Next::Wait(Some(Nanos(self.now))));
            }
            let mut next = due.min(wake);
            let warming = self.submitted < self.warm_up;
            let rested = self.rest.until(self.now, warming, self.in_flight);
            while self.client.front().is_some_and(|&t| t <= self.now) {
                self.client.pop_front();
            }
            next = next.min(self.client.front().copied().unwrap_or(u64::MAX));
            if rested > self.now {
                next = next.min(rested);
            } else if self.in_flight + self.client.len() < self.places {
                match self.feed.peek(|offset| engine.expect(offset))? {
                    Some(want) => {
                        let want = *want;
                        let at = self.arrival(&want);
                        if self.ordered && self.flights.iter().any(|f| f.conflicts(&want.req)) {
                            // The next reply may change this.
                        } else if at <= self.now {
                            self.feed.taken();
                            self.submit(engine, &want, at);
                            return Ok(Next::Wait(None));
                        } else {
                            next = next.min(at);
                        }
                    }
                    // No request waits for moves, records and standby that are still to come.
                    None if self.in_flight == 0 => return Ok(Next::Stop),
                    None => {}
                }
            }
            if next == u64::MAX {
                return Err(LabError::setup(format!(
                    "the simulated volume hangs, please report: {}",
                    engine.under_way()
                )));
            }
            self.go_to(engine, next);
            if self.submitted - self.watched >= WATCH_EVERY {
                self.watched = self.submitted;
                if let Some(w) = watch {
                    w.note(self.submitted)?;
                }
            }
        }
    }

    /// The series, if requested.
    pub fn series(&mut self, end: &Mark, names: &[(String, u8)]) -> Option<super::Series> {
        let totals = Totals::of(&end.counters);
        let o = self.observer.take()?;
        Some(o.finish(end.now, totals, &end.devices, names))
    }

    /// Time that the reader took, and its counters.
    pub fn reader(&self) -> (std::time::Duration, isotherm_traces::Stats) {
        (self.feed.reading, self.feed.stats())
    }

    #[inline]
    fn next_device(&self) -> (u64, usize) {
        let mut best = (u64::MAX, 0);
        for (i, d) in self.devices.iter().enumerate() {
            if d.next < best.0 {
                best = (d.next, i);
            }
        }
        best
    }

    #[inline]
    fn go_to(&mut self, engine: &Engine, at: u64) {
        while at >= self.boundary {
            self.close_bin(engine);
        }
        self.now = self.now.max(at);
    }

    #[cold]
    fn close_bin(&mut self, engine: &Engine) {
        let at = self.boundary;
        let devices = self.device_counters(at);
        let totals = Totals::of(engine.counters());
        if let Some(o) = &mut self.observer {
            o.close_bin(totals, &devices);
            self.boundary = o.boundary();
        }
    }

    fn device_counters(&self, at: u64) -> Vec<DeviceCounters> {
        device_counters(self.devices.iter().map(|d| d.model.as_ref()), Nanos(at))
    }

    fn mark(&self, engine: &Engine, now: u64) -> Mark {
        Mark {
            now,
            counters: engine.counters().clone(),
            devices: self.device_counters(now),
            wear: self.devices.iter().map(|d| d.model.wear()).collect(),
            estimates: (0..self.devices.len())
                .map(|m| engine.energy_j(MemberId(m as u8), Nanos(now)))
                .collect(),
        }
    }

    #[cold]
    fn begin_counting(&mut self, engine: &Engine) {
        let mark = self.mark(engine, self.now);
        if let Some(o) = &mut self.observer {
            o.begin(self.now, Totals::of(&mark.counters), &mark.devices);
            self.boundary = o.boundary();
        }
        self.warm = Some(mark);
        self.last_reply = self.now;
    }

    #[inline]
    fn arrival(&self, want: &Want) -> u64 {
        match self.mode {
            TimeMode::Closed { .. } => self.now,
            TimeMode::Trace { acceleration: 1.0 } => self.base + want.time,
            TimeMode::Trace { acceleration } => {
                self.base + (want.time as f64 / acceleration) as u64
            }
        }
    }

    /// Puts a request of the trace in flight.
    #[inline]
    fn submit(&mut self, engine: &Engine, want: &Want, at: u64) {
        if want.first {
            if self
                .phases
                .as_ref()
                .is_some_and(|p| p.begins_at(self.submitted))
            {
                let mark = self.mark(engine, self.now);
                if let Some(p) = &mut self.phases {
                    p.end(mark, self.submitted, engine);
                }
            }
            self.submitted += 1;
            if self.submitted == self.warm_up + 1 && self.warm.is_none() {
                self.begin_counting(engine);
            }
        }
        // There is a free tag because of the test of `in_flight`.
        let Some(tag) = self.free.pop() else { return };
        let mut req = want.req;
        req.tag = Tag(tag);
        let counts = self.warm.is_some();
        let kind = match req.op {
            RequestOp::Read => Kind::Read,
            RequestOp::Write => Kind::Write,
            _ => Kind::Other,
        };
        self.flights[tag as usize] = Flight {
            arrived: at,
            offset: req.offset,
            len: req.len,
            kind,
            class: req.class,
            counts,
            number: self.submitted.saturating_sub(1),
        };
        if let Some(p) = &mut self.phases {
            p.submitted(self.now, &req, want.first);
        }
        if counts {
            self.count(&req, want.first, kind);
        }
        self.in_flight += 1;
        self.plan = Plan::Request(req);
    }

    #[inline]
    fn count(&mut self, req: &Request, first: bool, kind: Kind) {
        let s = &mut self.sums;
        s.requests += u64::from(first);
        let len = u64::from(req.len);
        match kind {
            Kind::Read => {
                s.reads += u64::from(first);
                s.bytes_read += len;
            }
            Kind::Write => {
                s.writes += u64::from(first);
                s.bytes_written += len;
            }
            Kind::Other => return,
        }
        if let Some(o) = &mut self.observer {
            o.request(req.len);
        }
    }

    #[inline]
    fn finish_operations(&mut self, member: usize, events: &mut Vec<Event>) {
        let d = &mut self.devices[member];
        // Operations always transfer all bytes, because models have no short reads or writes.
        let finished = |id| Event::Finished {
            id: OpId(id),
            result: Ok(u32::MAX),
        };
        while let Some(&(finish, id)) = d.finishing.front()
            && finish <= self.now
        {
            d.finishing.pop_front();
            if d.whole(id) {
                events.push(finished(id));
            }
        }
        if !d.timed {
            d.model.poll(Nanos(self.now), &mut self.done);
        }
        d.look();
        for id in self.done.drain(..) {
            if d.whole(id as u32) {
                events.push(finished(id as u32));
            }
        }
    }

    #[inline]
    fn start(&mut self, op: &isotherm_core::DeviceOp) {
        self.digest
            .mix(op.offset ^ u64::from(op.member.0) << 56 ^ (op.kind as u64) << 48);
        let kind = match op.kind {
            OpKind::Read => ModelOp::Read,
            OpKind::Write | OpKind::WriteZeroes => ModelOp::Write,
            OpKind::Flush => ModelOp::Flush,
            OpKind::Discard => ModelOp::Discard,
            OpKind::Standby => ModelOp::Standby,
        };
        let d = &mut self.devices[usize::from(op.member.0)];
        d.start_spread(self.now, op.id.0, kind, op.offset, op.len);
        if let (Some(p), BufRef::Request { tag, .. }, 0, ModelOp::Read) =
            (&mut self.phases, op.buf, d.tier, kind)
        {
            p.served_by_fastest(self.flights[tag.0 as usize].class, op.len);
        }
        if let (Some(o), BufRef::Request { tag, offset }) = (&mut self.observer, op.buf) {
            let f = &self.flights[tag.0 as usize];
            if f.counts {
                o.operation(d.tier, f.offset + u64::from(offset), op.len);
            }
        }
    }

    #[inline]
    fn reply(&mut self, tag: Tag, failed: bool) {
        let f = self.flights[tag.0 as usize];
        self.flights[tag.0 as usize].over();
        if self.client_ns > 0 {
            self.client.push_back(self.now + self.client_ns);
        }
        self.free.push(tag.0);
        self.in_flight -= 1;
        let latency = self.now - f.arrived.min(self.now);
        self.digest.mix(self.now ^ u64::from(tag.0) << 40);
        self.sums.errors += u64::from(failed);
        if let Some(p) = &mut self.phases {
            p.answered(f.number, self.now);
        }
        if !f.counts {
            return;
        }
        self.last_reply = self.now;
        if f.kind == Kind::Other {
            return;
        }
        self.sums.latency.add(Nanos(latency));
        let c = &mut self.sums.classes[usize::from(f.class) % CLASSES];
        c.requests += 1;
        c.bytes += u64::from(f.len);
        c.time_ns += latency;
        if let Some(o) = &mut self.observer {
            o.reply(f.arrived.min(self.now), latency, f.len);
        }
    }
}

impl isotherm_core::World for World<'_> {
    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.now)
    }
    /// [`World::plan`] has already advanced the time.
    #[inline]
    fn wait(&mut self, _until: Option<Nanos>, events: &mut Vec<Event>) {
        match self.plan {
            Plan::Wake => {}
            Plan::Operations(member) => self.finish_operations(member, events),
            Plan::Request(r) => events.push(Event::Arrived(r)),
        }
    }
    #[inline]
    fn carry_out(&mut self, effect: &Effect, _meta: &[u8]) {
        match *effect {
            Effect::Start(op) => self.start(&op),
            Effect::Reply { tag, result } => self.reply(tag, result.is_err()),
            Effect::CopyFromMove { tag, len, .. } => {
                if self.flights[tag.0 as usize].counts {
                    self.sums.from_moves += u64::from(len);
                }
            }
            Effect::Zero { tag, len, .. } => {
                if self.flights[tag.0 as usize].counts {
                    self.sums.zeros += u64::from(len);
                }
            }
            Effect::Patch { .. } | Effect::Keep { .. } => {}
        }
    }
}
