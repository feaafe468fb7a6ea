//! A disk: zoned geometry, seek curve, rotation, command queue, buffer, spindle.
//!
//! ```text
//!   start ─► waiting ─► queue (≤ queue_depth) ─► arm, one job at a time ─► finished ─► poll
//!                          └─ cache hit ─────────► interface ──────────────┘
//! ```
//! Invariants: the arm does one thing at a time, and a later call never changes what an earlier call has reported.
//!
//! Why 91 random writes/s and 112 reads/s (Loris, Table I): a read may begin while the head still settles, because a bad read is detected
//! and repeated. A write off the track would destroy its neighbour, so after a seek the drive waits `write_settle_ms` longer before a
//! write. The data sheets of the family show it as a write seek that is 2.0 ms longer than the read seek: 1/112 s + 2.0 ms = 1/91.4 s.
//!
//! The write cache is on if the sheet says so, as drives are shipped; [`crate::Options::write_cache`] overrides it. If it is on, a write is
//! answered from the buffer and FLUSH waits for the platter. Adjacent writes are merged into runs, so that a sequential writer streams even
//! at depth 1. If the buffer is full, writes wait for room. The arm takes the nearest run (if a FLUSH waits, the nearest of those that it
//! waits for), so a filled buffer gains as much as a deep queue does. If the write cache is off, FLUSH costs one command, and each
//! sequential write at depth 1 misses a revolution.

mod arm;
mod cache;
mod geometry;
mod sheet;

use std::collections::VecDeque;

use isotherm_core::Nanos;

pub use sheet::{DestageBy, HddPower, HddSheet};

use crate::model::{Counters, DeviceModel, ModelOp, PowerState, Wear};
use crate::options::Options;
use crate::power::Meter;
use crate::span::SpanMap;
use cache::{Ahead, Near, Segments};
use geometry::{Geometry, Place};

/// Adjacent cached writes grow into runs of at most this.
const DESTAGE_RUN: u64 = 1 << 20;
/// Most runs that the buffer manages. A typical value: cache tables are short, so scattered writes fill them before they fill the memory.
const DIRTY_RUNS: usize = 64;
/// Number of latest runs that a write may join. With more than one, several sequential writers at a time keep their runs.
const JOIN_LOOK: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Queued {
    id: u64,
    op: ModelOp,
    offset: u64,
    len: u64,
    /// Time at which the drive has the command (and the data of a write).
    ready: u64,
    place: Place,
    /// Whether a segment of the buffer holds all of its data. It is kept up to date while the command is queued, because otherwise each
    /// choice of the next command would search all segments for each command.
    held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Read,
    Write,
    Destage,
    SpinDown,
    SpinUp,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    job: Job,
    id: u64,
    begin: u64,
    seek_end: u64,
    finish: u64,
    /// The byte after the last one, and its place.
    end: u64,
    after: Place,
    /// For a read: the start of the buffer segment to which it belongs.
    segment: u64,
    /// For a read: whether it continues where an earlier one ended.
    stream: bool,
}

#[derive(Clone, Copy, Debug)]
struct Dirty {
    offset: u64,
    end: u64,
    /// The place of the run's first byte, which is compared each time a run is chosen.
    place: Place,
    /// Number of the run in order of creation. A FLUSH waits for all runs up to the last one before it.
    number: u64,
}

/// The disk model. See the module's head.
#[derive(Debug)]
pub struct Hdd {
    geometry: Geometry,
    capacity: u64,
    span: SpanMap,
    overhead: u64,
    write_settle: u64,
    interface_mb_s: f64,
    read_ahead: u64,
    min_ahead: u64,
    queue_depth: usize,
    max_age: u64,
    spin_up: u64,
    spin_down: u64,
    start_stop_limit: f64,

    now: u64,
    queue: Vec<Queued>,
    waiting: VecDeque<Queued>,
    running: Option<Running>,
    /// Reads that the buffer alone serves: (finish, id), in order, because the interface serves one after another.
    hits: VecDeque<(u64, u64)>,
    finished: VecDeque<(u64, u64)>,
    arm: (u32, u64),
    ahead: Option<Ahead>,
    segments: Segments,

    write_cache: bool,
    /// Runs in the buffer in order of creation, except for the run that is being written back.
    dirty: VecDeque<Dirty>,
    near: Near,
    runs: u64,
    dirty_bytes: u64,
    dirty_limit: u64,
    destage_look: usize,
    destage_by: DestageBy,
    /// Writes that wait for room in the buffer.
    room: VecDeque<Queued>,
    /// Flushes that wait for the dirty runs: (last run, id).
    flushes: VecDeque<(u64, u64)>,
    destaged_last: bool,

    spinning: bool,
    meter: Meter,
    totals: Counters,
}

impl Hdd {
    /// Makes a disk from its data sheet. The sheet must have passed [`crate::Sheet::parse`].
    pub fn new(sheet: &HddSheet, options: &Options) -> Hdd {
        let p = &sheet.power;
        let ns = |ms: f64| (ms * 1e6) as u64;
        Hdd {
            geometry: Geometry::new(sheet),
            capacity: sheet.capacity,
            span: SpanMap::new(options.span, options.size, sheet.capacity),
            overhead: (sheet.overhead_us * 1e3) as u64,
            write_settle: ns(sheet.write_settle_ms),
            interface_mb_s: sheet.interface_mb_s,
            read_ahead: sheet.read_ahead_kib * 1024,
            min_ahead: sheet.min_read_ahead_kib.min(sheet.read_ahead_kib) * 1024,
            queue_depth: options.queue_depth.unwrap_or(sheet.queue_depth).max(1) as usize,
            max_age: ns(sheet.max_age_ms),
            spin_up: ns(p.spin_up_s * 1e3),
            spin_down: ns(p.spin_down_s * 1e3),
            start_stop_limit: sheet.start_stop_limit,
            now: 0,
            queue: Vec::with_capacity(32),
            waiting: VecDeque::new(),
            running: None,
            hits: VecDeque::with_capacity(32),
            finished: VecDeque::with_capacity(32),
            arm: (0, 0),
            ahead: None,
            segments: Segments::new(sheet.cache_mib << 20),
            write_cache: options.write_cache.unwrap_or(sheet.write_cache),
            dirty: VecDeque::new(),
            near: Near::new(),
            runs: 0,
            dirty_bytes: 0,
            dirty_limit: (sheet.cache_mib << 20) / 2,
            destage_look: sheet.destage_look as usize,
            destage_by: sheet.destage_by,
            room: VecDeque::new(),
            flushes: VecDeque::new(),
            destaged_last: false,
            spinning: true,
            meter: Meter::new([
                p.idle_w,
                p.active_w,
                p.seek_w,
                p.standby_w,
                p.idle_w,
                p.spin_up_j / p.spin_up_s,
            ]),
            totals: Counters::default(),
        }
    }

    /// The shortest time of a command with `len` bytes.
    pub(crate) fn command_ns(&self, len: u64) -> u64 {
        self.overhead + self.interface_ns(len)
    }

    fn interface_ns(&self, len: u64) -> u64 {
        (len as f64 * 1e3 / self.interface_mb_s) as u64
    }

    /// Answers `id` from the buffer as soon as the interface is free.
    fn answer(&mut self, id: u64, at: u64, len: u64) {
        let free = self.hits.back().map_or(0, |h| h.0);
        let finish = at.max(free) + self.interface_ns(len);
        self.hits.push_back((finish, id));
    }

    /// Processes all events up to `to`, in the order of time.
    fn advance(&mut self, to: u64) {
        loop {
            let hit = self.hits.front().map_or(u64::MAX, |h| h.0);
            let run = self.running.as_ref().map_or(u64::MAX, |r| r.finish);
            if hit.min(run) > to {
                break;
            }
            if hit <= run {
                self.finished.extend(self.hits.pop_front());
                self.now = self.now.max(hit);
            } else {
                self.now = self.now.max(run);
                self.finish_job();
                self.dispatch(run);
            }
        }
        self.now = self.now.max(to);
    }

    fn finish_job(&mut self) {
        let Some(r) = self.running.take() else { return };
        charge(&mut self.meter, &r, r.finish);
        match r.job {
            Job::SpinDown => {
                self.spinning = false;
                self.finished.push_back((r.finish, r.id));
                return;
            }
            Job::SpinUp => {
                self.spinning = true;
                return;
            }
            Job::Read | Job::Write | Job::Destage => {}
        }
        self.totals.busy_ns += r.finish - r.begin;
        let end = r.after;
        self.arm = (end.cylinder, end.track);
        if r.job == Job::Read && self.read_ahead > 0 {
            self.ahead = Some(Ahead {
                start: r.segment,
                from: r.end,
                since: r.finish,
                place: end,
                limit: (r.end + self.read_ahead).min(self.capacity),
                least: (r.end + if r.stream { self.min_ahead } else { 0 }).min(self.capacity),
            });
        }
        if r.job == Job::Destage {
            self.dirty_bytes -= r.end - r.segment;
            self.fill_room(r.finish);
        } else {
            self.finished.push_back((r.finish, r.id));
        }
    }

    /// The arm is free at `t`: starts the next job, if there is one.
    fn dispatch(&mut self, t: u64) {
        while self.running.is_none() {
            while self.queue.len() < self.queue_depth {
                let Some(mut w) = self.waiting.pop_front() else {
                    break;
                };
                // The age of a command that waited outside counts from now, because the drive learns of it only now.
                w.ready = w.ready.max(t);
                self.enqueue(w);
            }
            // No run is being written back here, so the number of the first run tells which runs are on the platter.
            let first = self.dirty.front().map_or(u64::MAX, |d| d.number);
            while let Some(&(last, id)) = self.flushes.front()
                && last < first
            {
                self.flushes.pop_front();
                self.answer(id, t, 0);
            }
            let wants_platter =
                !self.dirty.is_empty() || self.queue.iter().any(|q| q.op != ModelOp::Standby);
            if !self.spinning && wants_platter {
                self.running = Some(Running::spindle(Job::SpinUp, 0, t, t + self.spin_up));
                return;
            }
            let destage = !self.dirty.is_empty()
                && (!wants_foreground(&self.queue)
                    || !self.flushes.is_empty()
                    || (!self.destaged_last
                        && (!self.room.is_empty() || self.dirty_bytes >= self.dirty_limit / 2)));
            self.destaged_last = destage;
            if destage {
                self.begin_destage(t);
                return;
            }
            let Some(i) = self.choose(t) else { return };
            // The order of arrival is kept, because ageing and depth 1 look at the first command.
            let q = self.queue.remove(i);
            self.begin(&q, t);
        }
    }
}

impl Running {
    fn spindle(job: Job, id: u64, begin: u64, finish: u64) -> Running {
        Running {
            job,
            id,
            begin,
            seek_end: begin,
            finish,
            end: 0,
            after: Place::default(),
            segment: 0,
            stream: false,
        }
    }
}

fn wants_foreground(queue: &[Queued]) -> bool {
    queue.iter().any(|q| q.op != ModelOp::Standby)
}

/// Charges the power states of a job up to `until`.
fn charge(meter: &mut Meter, r: &Running, until: u64) {
    let (first, second, after) = match r.job {
        Job::SpinDown => (
            PowerState::SpinDown,
            PowerState::SpinDown,
            PowerState::Standby,
        ),
        Job::SpinUp => (PowerState::SpinUp, PowerState::SpinUp, PowerState::Idle),
        Job::Read | Job::Write | Job::Destage => {
            (PowerState::Seek, PowerState::Active, PowerState::Idle)
        }
    };
    for (state, at) in [(first, r.begin), (second, r.seek_end), (after, r.finish)] {
        if at <= until {
            meter.set(state, at);
        }
    }
}

impl DeviceModel for Hdd {
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32) {
        self.advance(now.0);
        let now = self.now;
        self.totals.note(op, offset, len);
        let offset = self.span.map(offset);
        let len = u64::from(len).min(self.capacity - offset);
        let through = op == ModelOp::WriteThrough;
        let op = if through { ModelOp::Write } else { op };
        let data_ns = if op == ModelOp::Write {
            self.interface_ns(len)
        } else {
            0
        };
        let mut q = Queued {
            id,
            op,
            offset,
            len,
            ready: now + self.overhead + data_ns,
            place: Place::default(),
            held: op == ModelOp::Read && self.segments.holds(offset, offset + len),
        };
        match op {
            ModelOp::Discard => return self.answer(id, q.ready, 0),
            ModelOp::Flush if self.dirty.is_empty() && !self.destaging() => {
                return self.answer(id, q.ready, 0);
            }
            ModelOp::Flush => return self.flushes.push_back((self.runs, id)),
            // A write with FUA, or one that is larger than the buffer, goes straight to the platter.
            ModelOp::Write if self.write_cache && len <= self.dirty_limit && !through => {
                if !self.room.is_empty() || !self.cache_write(&q, q.ready) {
                    self.room.push_back(q);
                }
                return self.dispatch(now);
            }
            ModelOp::Read if self.buffer_answers(&q) => {
                self.totals.cache_hits += 1;
                return self.answer(id, q.ready, len);
            }
            _ => {}
        }
        q.place = self.geometry.locate(offset);
        self.enter(q, now);
    }

    fn next_event(&self) -> Option<Nanos> {
        if let Some(f) = self.finished.front() {
            return Some(Nanos(f.0));
        }
        let hit = self.hits.front().map(|h| h.0);
        let run = self.running.as_ref().map(|r| r.finish);
        hit.into_iter().chain(run).min().map(Nanos)
    }

    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>) {
        self.advance(now.0);
        done.extend(self.finished.drain(..).map(|f| f.1));
    }

    fn counters(&self, now: Nanos) -> Counters {
        let mut out = self.totals;
        let mut meter = self.meter.clone();
        let now = now.0.max(self.now);
        if let Some(r) = &self.running {
            charge(&mut meter, r, now);
            if matches!(r.job, Job::Read | Job::Write | Job::Destage) {
                out.busy_ns += now.clamp(r.begin, r.finish) - r.begin;
            }
        }
        meter.report(now, &mut out);
        out
    }

    fn wear(&self) -> Wear {
        let used = self.totals.start_stops as f64 * 1e6;
        let host_eu = if self.start_stop_limit > 0.0 {
            used / self.start_stop_limit
        } else {
            0.0
        };
        Wear {
            host_eu,
            flash_eu: None,
        }
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl Hdd {
    fn destaging(&self) -> bool {
        self.running.as_ref().is_some_and(|r| r.job == Job::Destage)
    }

    /// Whether a read that has just arrived is answered from the buffer at once. If the arm is free, [`Hdd::begin`] finds what a segment
    /// holds.
    fn buffer_answers(&self, q: &Queued) -> bool {
        let in_run = |d: &Dirty| d.offset <= q.offset && q.offset + q.len <= d.end;
        (q.held && self.queue_depth > 1 && self.running.is_some())
            || (self.near.may_hold(q.offset) && self.dirty.iter().any(in_run))
    }

    /// Admits a command that needs the arm: it begins at once if the drive has nothing else to do, else it joins the queue, or waits for a
    /// place in it.
    fn enter(&mut self, q: Queued, now: u64) {
        let idle = self.running.is_none() && self.queue.is_empty() && self.dirty.is_empty();
        if idle && self.spinning {
            self.begin(&q, now);
        } else if self.queue.len() < self.queue_depth {
            self.queue.push(q);
            self.dispatch(now);
        } else {
            self.waiting.push_back(q);
        }
    }
}

#[cfg(test)]
mod tests;
