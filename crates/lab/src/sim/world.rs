//! The virtual world: time jumps to what happens next.
//!
//! ```text
//!   Feed ─► submit ─► Engine ─► Effect::Start ─► DeviceModel
//!             ▲          ▲  └─► Effect::Reply ─► figures      │
//!             └ a place  └────────── complete ◄── poll ───────┘
//! ```
//! Never made false: at one instant, what ended comes first, then the engine's own wishes, then new requests, one at a time;
//! members in their order. So a run is the same wherever it runs.

use std::collections::VecDeque;

use isotherm_core::stats::{CLASSES, Counters, Histogram};
use isotherm_core::{BufRef, Effect, Engine, Nanos, OpId, OpKind, RequestOp, Tag};
use isotherm_models::{Counters as DeviceCounters, DeviceModel, ModelOp, Wear};

use super::feed::{Feed, Want};
use super::observe::{Observer, Totals, device_counters};
use super::phases::Phases;
use super::setup::TimeMode;
use super::spread::Spread;
use super::{Watch, digest::Digest};
use crate::LabError;

/// Requests in the volume at once when the trace's clock drives. More wait outside; their latency counts all the same.
const OPEN_MAX: usize = 1024;
/// A policy that wants to be woken at once again and again gets time to pass, nanoseconds.
const TICK_GAP: u64 = 1_000;
/// Looks at the clock of the real world, requests.
const WATCH_EVERY: u64 = 1 << 14;

/// A member: its model and when that next has something.
pub(crate) struct Device {
    pub model: Box<dyn DeviceModel>,
    pub tier: u8,
    next: u64,
    /// It tells finish times at the start (flash, remote), as far as is known.
    timed: bool,
    /// What it told: (finish, id), in order of time, then of the start.
    finishing: VecDeque<(u64, u32)>,
    /// Where its slots lie.
    spread: Option<Spread>,
    /// By operation: pieces still to finish beside the first. Short, and mostly empty.
    more: Vec<(u32, u32)>,
}

impl Device {
    /// Start an operation.
    #[inline]
    fn start(&mut self, now: u64, id: u32, op: ModelOp, offset: u64, len: u32) {
        if self.timed {
            if let Some(finish) = self.model.start_timed(Nanos(now), op, offset, len) {
                // Mostly the last of all, so a look from the back beats a heap.
                let mut i = self.finishing.len();
                while i > 0 && self.finishing[i - 1].0 > finish.0 {
                    i -= 1;
                }
                self.finishing.insert(i, (finish.0, id));
                return self.look();
            }
            self.timed = false;
        }
        self.model.start(Nanos(now), u64::from(id), op, offset, len);
        self.look();
    }

    /// Start an operation of the engine, which knows slots, where they lie.
    #[inline]
    fn start_spread(&mut self, now: u64, id: u32, op: ModelOp, offset: u64, len: u32) {
        let Some(spread) = self.spread.take() else {
            return self.start(now, id, op, offset, len);
        };
        let mut pieces = 0;
        spread.pieces(offset, len, |at, n| {
            pieces += 1;
            self.start(now, id, op, at, n);
        });
        self.spread = Some(spread);
        if pieces > 1 {
            self.more.push((id, pieces - 1));
        }
    }

    /// A piece of `id` ended: was it the last?
    #[inline]
    fn whole(&mut self, id: u32) -> bool {
        if self.more.is_empty() {
            return true;
        }
        let Some(i) = self.more.iter().position(|m| m.0 == id) else {
            return true;
        };
        self.more[i].1 -= 1;
        if self.more[i].1 == 0 {
            self.more.swap_remove(i);
        }
        false
    }

    #[inline]
    fn look(&mut self) {
        self.next = self.finishing.front().map_or(u64::MAX, |f| f.0);
        if !self.timed {
            let event = self.model.next_event().map_or(u64::MAX, |t| t.0);
            self.next = self.next.min(event);
        }
    }
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    arrived: u64,
    offset: u64,
    len: u32,
    kind: Kind,
    class: u8,
    counts: bool,
    /// Which request of the trace, from 0.
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Other,
}

/// Sums over requests that count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub requests: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Bytes of reads that moves' buffers served.
    pub from_moves: u64,
    /// Bytes of reads of what was discarded.
    pub zeros: u64,
    pub latency: Histogram,
    pub classes: Vec<ClassSum>,
    pub errors: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassSum {
    pub requests: u64,
    pub bytes: u64,
    pub time_ns: u64,
}

/// Everything that only grows, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub now: u64,
    pub counters: Counters,
    pub devices: Vec<DeviceCounters>,
    pub wear: Vec<Wear>,
}

/// See the module.
pub(crate) struct World<'a> {
    pub engine: Engine,
    pub devices: Vec<Device>,
    feed: Feed<'a>,
    mode: TimeMode,
    now: u64,
    /// The engine's time zero.
    base: u64,
    wake: u64,
    ticked: u64,
    out: Vec<Effect>,
    done: Vec<u64>,
    flights: Vec<Flight>,
    free: Vec<u32>,
    in_flight: usize,
    places: usize,
    warm_up: u64,
    submitted: u64,
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
        engine: Engine,
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
        let flight = Flight {
            arrived: 0,
            offset: 0,
            len: 0,
            kind: Kind::Other,
            class: 0,
            counts: false,
            number: 0,
        };
        let boundary = observer.as_ref().map_or(u64::MAX, Observer::boundary);
        World {
            engine,
            devices: devices
                .into_iter()
                .map(|(model, tier, spread)| Device {
                    model,
                    tier,
                    next: u64::MAX,
                    timed: true,
                    finishing: VecDeque::with_capacity(64),
                    spread,
                    more: Vec::new(),
                })
                .collect(),
            feed,
            mode,
            now: 0,
            base: 0,
            wake: u64::MAX,
            ticked: 0,
            out: Vec::with_capacity(64),
            done: Vec::with_capacity(64),
            flights: vec![flight; places],
            free: (0..places as u32).rev().collect(),
            in_flight: 0,
            places,
            warm_up,
            submitted: 0,
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

    /// Play everything. Returns the marks between which figures count.
    pub fn play(&mut self, watch: Option<&Watch>) -> Result<(Mark, Mark), LabError> {
        if self.warm_up == 0 {
            self.begin_counting();
        }
        self.look_at_clock();
        let mut watched = 0;
        loop {
            let (due, member) = self.next_device();
            if due <= self.now {
                self.finish_operations(member);
                continue;
            }
            let wake = self.wake.max(self.ticked);
            if wake <= self.now {
                self.engine.tick(Nanos(self.now), &mut self.out);
                self.ticked = self.now + TICK_GAP;
                self.carry_out();
                self.look_at_clock();
                continue;
            }
            let mut next = due.min(wake);
            if self.in_flight < self.places {
                let engine = &self.engine;
                match self.feed.peek(|offset| engine.expect(offset))? {
                    Some(want) => {
                        let want = *want;
                        let at = self.arrival(&want);
                        if at <= self.now {
                            self.feed.taken();
                            self.submit(&want, at);
                            continue;
                        }
                        next = next.min(at);
                    }
                    // Moves, records and sleep that are still to come are nobody's wait.
                    None if self.in_flight == 0 => break,
                    None => {}
                }
            }
            if next == u64::MAX {
                return Err(LabError::setup(format!(
                    "the simulated volume hangs, please report: {}",
                    self.engine.under_way()
                )));
            }
            self.go_to(next);
            if self.submitted - watched >= WATCH_EVERY {
                watched = self.submitted;
                if let Some(w) = watch {
                    w.note(self.submitted)?;
                }
            }
        }
        if let Some(w) = watch {
            w.note(self.submitted)?;
        }
        let end = self.mark(self.last_reply.max(self.base));
        if let Some(p) = &mut self.phases {
            p.end(end.clone(), self.submitted, &self.engine);
        }
        let Some(begin) = self.warm.take() else {
            return Err(LabError::setup(format!(
                "warm-up: the trace has only {} requests, nothing is left to count",
                self.submitted
            )));
        };
        Ok((begin, end))
    }

    /// The series, where asked for.
    pub fn series(&mut self, end: &Mark, names: &[(String, u8)]) -> Option<super::Series> {
        let totals = totals(&end.counters);
        let o = self.observer.take()?;
        Some(o.finish(end.now, totals, &end.devices, names))
    }

    /// Time that the reader took, and what it counted.
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
    fn go_to(&mut self, at: u64) {
        while at >= self.boundary {
            self.close_bin();
        }
        self.now = self.now.max(at);
    }

    #[cold]
    fn close_bin(&mut self) {
        let at = self.boundary;
        let devices = self.device_counters(at);
        let totals = totals(self.engine.counters());
        if let Some(o) = &mut self.observer {
            o.close_bin(totals, &devices);
            self.boundary = o.boundary();
        }
    }

    fn device_counters(&self, at: u64) -> Vec<DeviceCounters> {
        device_counters(self.devices.iter().map(|d| d.model.as_ref()), Nanos(at))
    }

    fn mark(&self, now: u64) -> Mark {
        Mark {
            now,
            counters: self.engine.counters().clone(),
            devices: self.device_counters(now),
            wear: self.devices.iter().map(|d| d.model.wear()).collect(),
        }
    }

    #[cold]
    fn begin_counting(&mut self) {
        let mark = self.mark(self.now);
        if let Some(o) = &mut self.observer {
            o.begin(self.now, totals(&mark.counters), &mark.devices);
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

    #[inline]
    fn look_at_clock(&mut self) {
        self.wake = self.engine.next_wake().map_or(u64::MAX, |w| w.0);
    }

    #[inline]
    fn submit(&mut self, want: &Want, at: u64) {
        if want.first {
            if self
                .phases
                .as_ref()
                .is_some_and(|p| p.begins_at(self.submitted))
            {
                let mark = self.mark(self.now);
                if let Some(p) = &mut self.phases {
                    p.end(mark, self.submitted, &self.engine);
                }
            }
            self.submitted += 1;
            if self.submitted == self.warm_up + 1 && self.warm.is_none() {
                self.begin_counting();
            }
        }
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
        self.engine.submit(Nanos(self.now), req, &mut self.out);
        self.carry_out();
        self.look_at_clock();
    }

    #[inline]
    fn count(&mut self, req: &isotherm_core::Request, first: bool, kind: Kind) {
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
    fn finish_operations(&mut self, member: usize) {
        let d = &mut self.devices[member];
        while let Some(&(finish, id)) = d.finishing.front()
            && finish <= self.now
        {
            d.finishing.pop_front();
            if !d.whole(id) {
                continue;
            }
            // Whole, whatever its length: models do not fall short.
            self.engine
                .complete(Nanos(self.now), OpId(id), Ok(u32::MAX), &mut self.out);
        }
        if !d.timed {
            d.model.poll(Nanos(self.now), &mut self.done);
        }
        d.look();
        for i in 0..self.done.len() {
            let id = OpId(self.done[i] as u32);
            if !self.devices[member].whole(id.0) {
                continue;
            }
            self.engine
                .complete(Nanos(self.now), id, Ok(u32::MAX), &mut self.out);
        }
        self.done.clear();
        self.carry_out();
        self.look_at_clock();
    }

    #[inline]
    fn carry_out(&mut self) {
        for i in 0..self.out.len() {
            match self.out[i] {
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
                Effect::Patch { .. } => {}
            }
        }
        self.out.clear();
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
            o.reply(latency, f.len);
        }
    }
}

fn totals(c: &Counters) -> Totals {
    Totals {
        accesses: c.accesses,
        hits: c.tier_hits[0],
        up: c.promotions.done,
        down: c.demotions.done,
        migrated: c.migrated_bytes,
    }
}
