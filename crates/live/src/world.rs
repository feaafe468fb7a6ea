//! The real world: one thread, one io_uring, one loop.
//!
//! ```text
//! carry_out ─► SQE … SQE ─┐                       ┌─► CQE ─┐
//!                         ├─ one enter per loop ──┤        ├─ both done? ─► Event::Finished
//!              model.start ──────────────────────────► poll ┘   (paced members only)
//! other threads ─► inbox ─► bell, only if asleep ──► Event::Arrived
//! ```
//! `flight.rs` has the life of one operation.
//!
//! Invariant: memory that a device operation uses is neither returned nor used for anything else until its completion.

mod faults;
mod flight;
mod heartbeat;
mod joined;
mod keeping;
mod members;
mod pages;
mod polling;
mod returning;
mod ring;
mod sources;
mod stamping;
mod start;
mod trial;
mod unanswered;

use crate::buffers::{Arena, Buffer};
use crate::classes::Reclassified;
use crate::copying::stale::Stale;
use crate::device::Device;
use crate::inbox::{Inbox, Submission};
use crate::paced::Pacer;
use crate::recorder::Driver;
pub use crate::requests::Ended;
use crate::requests::{Place, Table};
use crate::vitals::Board;
pub use faults::Fault;
use flight::Flight;
use heartbeat::{Heartbeat, STAMP};
use io_uring::{cqueue, opcode, squeue, types};
use isotherm_core::{Effect, Event, IoError, Nanos, OpId, OpKind, Request, Tag, World};
use isotherm_models::{Counters, Wear};
use keeping::Keeping;
pub use members::MemberStats;
use polling::Polling;
use returning::Away;
use ring::Ring;
pub(crate) use ring::offers_fuse;
pub use ring::{RingEntry, RingSource};
use rustix::event::PollFlags;
use rustix::io::Errno;
use sources::BUSY_PAUSE;
pub use sources::{Source, Watch};
pub(crate) use start::{NOT_A_FLUSHER, Parts};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A command for the engine's thread, executed between events.
pub type Command = Box<dyn FnOnce(&mut Driver, &mut UringWorld) + Send>;

const BELL: u64 = u64::MAX;
const WATCH: u64 = 1 << 32;
const REAL: u8 = 1;
const MODEL: u8 = 2;
/// A member as the world sees it.
#[derive(Default)]
struct MemberState {
    fd: Option<RawFd>,
    is_block: bool,
    /// The byte at which it continues on its tail device, if it has one.
    boundary: Option<u64>,
    /// Whether it is a file whose file system has a server.
    has_server: bool,
    /// If so: the number of its operations in the kernel, and those that wait for their turn ([`UringWorld::issue`]).
    open: u32,
    queued: VecDeque<u32>,
    pacer: Option<Pacer>,
    no_punch: bool,
    no_zero_range: bool,
    /// Bytes that the file must keep, if that can be checked.
    keep: Option<u64>,
    /// Where the ends of writes are noted while the member is being copied.
    stale: Option<Arc<Stale>>,
    /// Whether a forced write failed in the page cache ([`UringWorld::note_unsynced`]).
    unsynced: bool,
    /// Whether its server has ended and comes back, and what waits for that.
    away: Away,
    /// Whether the file has become shorter. Then nothing is read from it or written to it any more.
    cut: bool,
    stats: MemberStats,
}

/// Results of operations that ran in their own threads.
#[derive(Default)]
struct ThreadResults {
    /// Whether there is a result. It is read without the lock, so that the loop takes the lock only if there is one.
    pending: AtomicBool,
    results: Mutex<Vec<(u32, Result<u32, IoError>)>>,
}

impl ThreadResults {
    fn push(&self, id: u32, result: Result<u32, IoError>) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.push((id, result));
        self.pending.store(true, Ordering::Release);
    }

    fn take(&self) -> Vec<(u32, Result<u32, IoError>)> {
        if !self.pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Ordering::Release);
        std::mem::take(&mut results)
    }
}

/// See the module.
pub struct UringWorld {
    ring: Ring,
    fixed: bool,
    inbox: Arc<Inbox<Command>>,
    devices: Arc<Vec<Option<Device>>>,
    members: Vec<MemberState>,
    paced: bool,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Writes that wait for the end of their event, see `pages.rs`.
    held_writes: Vec<u32>,
    /// Number of the ring's buffers for pages of requests.
    page_buffers: u16,
    requests: Table,
    ready: Vec<Event>,
    cqes: Vec<(u64, i32, bool)>,
    sources: Vec<(Option<Box<dyn Source>>, bool)>,
    ring_sources: Vec<Option<Box<dyn RingSource>>>,
    /// Extents whose class was not yet passed to the engine.
    pub(crate) reclassified: VecDeque<Reclassified>,
    thread_results: Arc<ThreadResults>,
    start: Instant,
    base: Nanos,
    /// The time as of the last events: the clock is read once per loop.
    seen: Nanos,
    /// See `polling.rs`.
    polling: Polling,
    woken: bool,
    refusing: bool,
    /// See `faults.rs`.
    fault: Option<Fault>,
    sizes_checked: Nanos,
    /// What the members answered lately, for other threads.
    vitals: Arc<Board>,
    /// See `unanswered.rs`.
    answers_checked: Nanos,
    /// Whether a member was reported as not answering.
    any_unanswered: bool,
    /// The stamp of a volume that is written to.
    heartbeat: Option<Heartbeat>,
    /// Members that the volume can lose, one bit each.
    can_lose: u32,
    /// See `keeping.rs`.
    keeping: Keeping,
    /// The last field, so that the ring and all flights are dropped before the memory.
    arena: Arc<Arena>,
}

impl UringWorld {
    /// Accepts a request from a source on this thread, without queue or bell. `None`: it was invalid and is answered.
    pub fn admit(&mut self, s: Submission) -> Option<Request> {
        self.requests.admit(s)
    }

    /// A request buffer, if there is memory. This thread must not wait, because it returns the memory itself.
    pub fn try_buffer(&self, offset: u64, len: u32, block_bytes: u32) -> Option<Buffer> {
        let pool = &self.arena.pool;
        pool.has(len as usize + 2 * block_bytes as usize)
            .then(|| pool.buffer(offset, len, block_bytes))
    }

    /// Sets the classifier that determines the class of requests.
    pub(crate) fn classify(&mut self, classifier: isotherm_classify::Classifier) {
        self.requests.classifier = Some(classifier);
    }

    /// The classifier that determines the class of requests.
    pub fn classifier(&mut self) -> Option<&mut isotherm_classify::Classifier> {
        self.requests.classifier.as_mut()
    }

    /// Registers classes of extents; they are passed to the engine before the next event.
    pub fn reclassify(&mut self, extents: Vec<Reclassified>) {
        self.reclassified.extend(extents);
    }

    /// Request memory of the pools that is in use, bytes.
    pub fn buffer_bytes_out(&self) -> usize {
        self.arena.pool.bytes_out() + self.arena.file.bytes_out()
    }

    /// Ends of requests that came with a ticket, to be drained.
    pub fn ended(&mut self) -> &mut Vec<Ended> {
        self.requests.ended()
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Whether the memory is registered with the ring.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Events on a member.
    pub fn member_stats(&self, member: usize) -> MemberStats {
        self.members[member].stats
    }

    /// Model counters and wear of a paced member.
    pub fn model(&self, member: usize) -> Option<(Counters, Wear)> {
        let pacer = self.members[member].pacer.as_ref()?;
        Some((pacer.counters(self.model_now()), pacer.wear()))
    }

    /// Answers every later request with `ENODEV`.
    pub(crate) fn refuse_from_now_on(&mut self) {
        self.refusing = true;
    }

    fn model_now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn watch_bell(&mut self) {
        let entry = opcode::PollAdd::new(types::Fd(self.inbox.bell()), PollFlags::IN.bits().into())
            .multi(true)
            .build();
        self.push(&entry.user_data(BELL));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: whatever the entry points to stays until its completion: see the module's invariant.
            if unsafe { self.ring.push(entry) } {
                return;
            }
            self.enter(0, None);
        }
    }

    /// Submits what is queued and waits for `want` completions, at most for `limit`.
    fn enter(&mut self, want: usize, limit: Option<Duration>) {
        let done = match limit {
            Some(limit) => {
                let t = types::Timespec::from(limit);
                self.ring
                    .submitter()
                    .submit_with_args(want, &types::SubmitArgs::new().timespec(&t))
            }
            None => self.ring.submitter().submit_and_wait(want),
        };
        if let Err(e) = done {
            match Errno::from_io_error(&e) {
                // EBUSY or EAGAIN: the kernel accepts entries again only after completions were taken. `push` relies on this, too.
                Some(Errno::BUSY | Errno::AGAIN) => self.take_completions(),
                Some(Errno::INTR | Errno::TIME) => {}
                _ => panic!("io_uring_enter failed: {e}"),
            }
        }
    }

    fn take_completions(&mut self) {
        for c in self.ring.completion() {
            self.cqes
                .push((c.user_data(), c.result(), cqueue::more(c.flags())));
        }
    }

    /// Collects all events, without a system call.
    fn collect(&mut self, events: &mut Vec<Event>) {
        self.take_completions();
        let mut cqes = std::mem::take(&mut self.cqes);
        for (data, res, more) in cqes.drain(..) {
            if let Some((i, number)) = ring::named(data) {
                if let Some(Some(source)) = self.ring_sources.get_mut(i) {
                    source.back(number, res);
                }
                continue;
            }
            match data {
                BELL => {
                    self.woken = true;
                    if !more {
                        self.watch_bell();
                    }
                }
                STAMP => self.stamped(res),
                data if data >= WATCH => {
                    if let Some(s) = self.sources.get_mut((data - WATCH) as usize) {
                        s.1 = true;
                    }
                }
                id => self.completed(id as u32, res),
            }
        }
        self.cqes = cqes;
        if self.paced {
            self.poll_models();
        }
        for (id, result) in self.thread_results.take() {
            self.settle(id, REAL, result);
        }
        self.call_sources();
        events.append(&mut self.ready);
        let first = events.len();
        while let Some(s) = self.inbox.pop() {
            if self.refusing {
                s.refuse(IoError::Gone);
            } else if let Some(r) = self.requests.take_in(s) {
                events.push(Event::Arrived(r));
            }
        }
        self.requests.classify_all(&mut events[first..]);
    }

    fn poll_models(&mut self) {
        let now = self.model_now();
        for m in 0..self.members.len() {
            let Some(mut pacer) = self.members[m].pacer.take() else {
                continue;
            };
            for id in pacer.poll(now) {
                self.settle(id as u32, MODEL, Ok(0));
            }
            self.members[m].pacer = Some(pacer);
        }
    }

    fn next_model_event(&self) -> Option<Nanos> {
        let next = self
            .members
            .iter()
            .filter_map(|m| m.pacer.as_ref()?.next_event())
            .min()?;
        Some(self.base + next)
    }

    /// Whether there is an event without waiting.
    fn is_pending(&mut self) -> bool {
        self.woken
            || !self.ready.is_empty()
            || !self.cqes.is_empty()
            || self.inbox.has_mail()
            || !self.ring.completion().is_empty()
    }
}

impl World for UringWorld {
    /// The time at the end of the last [`World::wait`].
    fn now(&self) -> Nanos {
        self.seen
    }

    /// Also returns without events: at `until`, or if there is a command.
    fn wait(&mut self, until: Option<Nanos>, events: &mut Vec<Event>) {
        // The handling of the last events may have returned memory.
        let mut eager = self.has_busy_source();
        loop {
            self.issue_held_writes();
            self.issue_queued();
            self.heartbeat_if_due();
            self.settle_sources();
            self.take_from_ring_sources();
            let model = if self.paced {
                self.next_model_event()
            } else {
                None
            };
            let own = Nanos::earlier(self.next_heartbeat(), self.next_answers_check());
            let deadline = Nanos::earlier(Nanos::earlier(until, own), model);
            let left = deadline.map(|d| Duration::from_nanos(d.since(self.seen).0));
            let due = left.is_some_and(|l| l.is_zero());
            if due || std::mem::take(&mut eager) || self.is_pending() || self.poll_for_work() {
                // One call submits the operations of the last effects and takes the completions that have arrived meanwhile.
                if !self.ring.is_idle() || self.ring.taskrun() {
                    self.enter(0, None);
                }
            } else if self.inbox.prepare_sleep() {
                let left = if self.has_busy_source() {
                    Some(left.map_or(BUSY_PAUSE, |l| l.min(BUSY_PAUSE)))
                } else {
                    left
                };
                self.enter(1, left);
                self.inbox.woken();
                self.wait_average().slept();
            }
            self.seen = self.base + self.model_now();
            if let Some(heartbeat) = &mut self.heartbeat {
                heartbeat.look();
            }
            self.check_sizes();
            self.collect(events);
            self.check_answers();
            let woken = std::mem::take(&mut self.woken);
            if !events.is_empty() || woken || until.is_some_and(|u| u <= self.now()) {
                return;
            }
            if self.inbox.has_mail() {
                return;
            }
        }
    }

    fn carry_out(&mut self, effect: &Effect, meta: &[u8]) {
        match *effect {
            Effect::Start(op) if !self.may_go(&op, meta) => {}
            Effect::Start(op) => self.begin(&op, meta),
            Effect::Zero { tag, offset, len } => {
                match self.requests.place(tag, offset, len, true) {
                    // SAFETY: `place` checked that `len` bytes are there; no device uses them (the engine says so by asking).
                    Some(Place::Memory(p)) => unsafe { p.write_bytes(0, len as usize) },
                    Some(Place::Registered(..)) => self.zero_pages(tag, offset, len),
                    None => {}
                }
            }
            Effect::CopyFromMove {
                index,
                from,
                tag,
                to,
                len,
            } => {
                let source = self.arena.move_at(index, from, len);
                match self.requests.place(tag, to, len, true) {
                    // SAFETY: both ranges are checked, and a move buffer never overlaps a request's.
                    Some(Place::Memory(p)) => unsafe {
                        p.copy_from_nonoverlapping(source, len as usize);
                    },
                    Some(Place::Registered(..)) => {
                        // SAFETY: `move_at` checked the range, and the engine copies only bytes that no device writes to any more.
                        let bytes = unsafe { std::slice::from_raw_parts(source, len as usize) };
                        self.requests.copy_in(tag, to, bytes);
                    }
                    None => {}
                }
            }
            Effect::Patch { tag } => self.requests.patch(tag),
            Effect::Keep { seq } => self.keep(seq, meta),
            Effect::Reply { tag, result } => self.requests.reply(tag, self.after_keeping(result)),
        }
    }
}

impl Drop for UringWorld {
    fn drop(&mut self) {
        self.finish_heartbeat();
        self.issue_held_writes();
        self.forget_queued();
        // The kernel may still write to the memory of requests, so wait for it in any case.
        while self
            .flights
            .iter()
            .flatten()
            .any(|f| f.waiting & REAL != 0 && f.op.kind != OpKind::Standby)
        {
            self.enter(1, Some(Duration::from_secs(1)));
            self.take_completions();
            for (data, ..) in std::mem::take(&mut self.cqes) {
                if let Some(Some(f)) = self.flights.get_mut(data as usize) {
                    f.waiting &= !REAL;
                }
            }
        }
        // The files are unregistered now and not when the kernel gets to it, so that block devices can be claimed again at once.
        let _ = self.ring.submitter().unregister_files();
        self.requests.refuse_all(IoError::Gone);
    }
}

// The name of an operation must fit into the ring's user data.
const _: () = assert!(size_of::<OpId>() == 4 && size_of::<Tag>() == 4);

#[cfg(test)]
#[path = "world_tests.rs"]
mod tests;
