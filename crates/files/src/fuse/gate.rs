//! Space for the writes that the kernel itself carries out (`--passthrough`).
//!
//! Such a file cannot move, and its writer gets ENOSPC from the kernel when the tier is full. Two things prevent that as far as possible:
//!
//! - Free space is sampled while files are written in this way, the more often the less there is. If the tier has less than the reserve of
//!   these files, other files move away, the coldest first.
//! - If the kernel asks before each write (`questions.rs`), the answer waits until the tier has space for it. The kernel is told to ask only
//!   when the fastest conceivable writers could fill the tier before the next sample, so writes are not slower as long as there is space.
//!
//! - What this program itself does with such a file (fallocate, copies, writes through other handles) takes no space that was promised to
//!   them: it waits in the same way, and what it may need is counted until it is done.
//!
//! What remains: if no other file can move, the answer comes at once, and the kernel reports that the tier is full.

mod claim;

use super::helpers::Helpers;
use super::questions::{Inode, Question, Questions};
use crate::copies::EVICT_BYTES;
use crate::layout::DISKS_MAX;
use crate::ops::data::growth;
use crate::store::Store;
use crate::sync::lock;
use crate::tiers::Tiers;
use crate::tree::Tier;
pub(super) use claim::Claim;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes in a millisecond that all writers together are assumed never to exceed: 8 GiB/s.
const FASTEST_PER_MS: u64 = 8 << 20;
/// Shortest and longest time between two looks at the free space of a tier.
const SAMPLES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// If no file could move, none is tried for this time before a write needs it.
const REST: Duration = Duration::from_secs(1);
/// Free space that the metadata of a write may need, besides a sixty-fourth of its length.
const METADATA: u64 = 1 << 20;

/// Stands for the thread that moves files away before it has begun. No thread has this number.
const UNSTARTED: i32 = 0;

/// A file that the kernel writes.
struct Writer {
    fd: OwnedFd,
    tier: Tier,
    handles: u32,
    watched: bool,
    /// Bytes that its last write may take, which the free space may not show yet. The kernel carries out one write to a file at a time.
    last: u64,
}

/// A write that waits for space.
struct Waiting {
    question: Question,
    file: Inode,
    bytes: u64,
}

/// The state of one tier.
#[derive(Default)]
struct Space {
    /// Whether the kernel does not ask.
    muted: bool,
    /// Time of the next look at the free space.
    due: Option<Instant>,
    /// Whether a file was opened to be written since the last look.
    entered: bool,
    /// Files should move away.
    wanted: bool,
    /// The thread that moves files away.
    worker: Option<i32>,
    /// No file could move; before that time none is tried unless a write waits.
    rest: Option<Instant>,
    waiting: VecDeque<Waiting>,
    /// Bytes that calls of this program in progress may take, which the free space may not show yet.
    claimed: u64,
}

#[derive(Default)]
struct State {
    writers: HashMap<Inode, Writer>,
    tiers: Vec<Space>,
    questions: Option<Arc<Questions>>,
    stopped: bool,
    /// Whether it was said that the kernel does not ask.
    said: bool,
}

impl State {
    fn at(&mut self, tier: Tier) -> &mut Space {
        &mut self.tiers[usize::from(tier)]
    }
    fn on(&self, tier: Tier) -> impl Iterator<Item = (&Inode, &Writer)> {
        self.writers.iter().filter(move |w| w.1.tier == tier)
    }
}

/// See the module. No lock of files in use or of the catalogue is taken while its state is locked.
pub(crate) struct Gate {
    store: Arc<Store>,
    helpers: Arc<Helpers>,
    state: Mutex<State>,
    wake: OwnedFd,
}

impl Gate {
    /// Connects to the kernel. If it has no questions, `status` says so.
    pub(crate) fn new(store: Arc<Store>, helpers: Arc<Helpers>) -> Result<Gate, Errno> {
        let questions = Questions::open().map(Arc::new);
        let state = State {
            tiers: (0..DISKS_MAX).map(|_| Space::default()).collect(),
            questions: questions.ok(),
            ..State::default()
        };
        Ok(Gate {
            store,
            helpers,
            state: Mutex::new(state),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
    fn wake(&self) {
        // It fails only if it is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
    /// Free space of a tier's device, and its reserve for the files that the kernel writes there.
    fn room(&self, state: &State, tier: Tier) -> (u64, u64, u64) {
        let (free, all) = self.store.root(tier).room().unwrap_or((0, 0));
        let files = state.on(tier).count() as u64;
        (free, all, Tiers::reserve(all).saturating_mul(files))
    }
    /// Begins to keep space for a handle with which the kernel will write this file on that tier. The kernel must not have opened it yet.
    /// The result is for [`Gate::leave`].
    pub(super) fn enter(&self, fd: &OwnedFd, tier: Tier) -> Option<Inode> {
        let file = Inode::of(fd).ok()?;
        let mut state = self.state();
        let State {
            writers,
            tiers,
            questions,
            said,
            ..
        } = &mut *state;
        let space = &mut tiers[usize::from(tier)];
        if let Some(there) = writers.get_mut(&file) {
            there.handles += 1;
        } else {
            let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()?;
            let asks = questions.as_ref().ok_or(Errno::PERM);
            let asks = asks.and_then(|q| q.watch(&fd));
            if let Err(e) = asks
                && !std::mem::replace(said, true)
            {
                let tier = self.store.tier_name(tier);
                self.store.say(&format!(
                    "{tier}: the kernel cannot be told to ask before it writes there ({e}): a file that grows faster than others can leave \
                     the tier gets ENOSPC (said once)"
                ));
            }
            let watched = asks.is_ok();
            if let Some(questions) = questions.as_ref().filter(|_| watched && space.muted) {
                // If this fails, its writes are slower.
                let _ = questions.mute(&fd, true);
            }
            let writer = Writer {
                fd,
                tier,
                handles: 1,
                watched,
                last: 0,
            };
            writers.insert(file, writer);
            let figures = &self.store.kernel_writes(tier);
            figures.set_asks(watched);
            figures.set_asking(!space.muted);
        }
        space.entered = true;
        if space.due.is_none() {
            space.due = Some(Instant::now());
            self.wake();
        }
        Some(file)
    }
    /// The end of [`Gate::enter`].
    pub(super) fn leave(&self, file: Inode) {
        let mut state = self.state();
        let Some(writer) = state.writers.get_mut(&file) else {
            return;
        };
        writer.handles -= 1;
        if writer.handles > 0 {
            return;
        }
        let writer = state.writers.remove(&file);
        let writer = writer.filter(|w| w.watched);
        if let Some((writer, questions)) = writer.zip(state.questions.as_ref()) {
            // It fails if the mark is not muted.
            let _ = questions.mute(&writer.fd, false);
            let _ = questions.unwatch(&writer.fd);
        }
    }
    /// Frees space on a tier: drops copies, or moves files away. Returns false if there is nothing that can go.
    fn make_room(&self, tier: Tier) -> bool {
        tier == 0 && self.store.copies.evict(&self.store.tiers, EVICT_BYTES)
            || self.store.push_out(tier, 0)
    }
    /// Ends [`Gate::run`].
    pub(crate) fn stop(&self) {
        self.state().stopped = true;
        self.wake();
    }
    /// Answers the kernel and samples free space, until [`Gate::stop`]. From then on the kernel does not wait for answers.
    pub(crate) fn run(self: &Arc<Self>) {
        // Whatever ends this function, no writer waits for an answer that will not come.
        let _end = End(self);
        loop {
            let (next, questions) = {
                let state = self.state();
                if state.stopped {
                    return;
                }
                let next = state.tiers.iter().filter_map(|t| t.due).min();
                (next, state.questions.clone())
            };
            let left = next.map(|n| n.saturating_duration_since(Instant::now()));
            let limit = left.and_then(|l| Timespec::try_from(l).ok());
            let asked = questions.iter().map(|q| q.as_fd());
            let mut fds: Vec<_> = [self.wake.as_fd()]
                .into_iter()
                .chain(asked)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            match poll(&mut fds, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            // There is nothing to read if it was not woken.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            if let Some(questions) = &questions {
                // After an error there is no question: the kernel has refused that access.
                for question in questions.read().unwrap_or_default() {
                    self.answer(questions, question);
                }
            }
            self.sample();
            self.start_work();
        }
    }
    /// Answers one question, now or when there is space.
    fn answer(&self, questions: &Questions, question: Question) {
        let mut state = self.state();
        let ours = (state.tiers)
            .iter()
            .any(|t| t.worker == Some(question.thread));
        let file = question.file().ok().filter(|_| !ours);
        let found = file.and_then(|f| {
            (state.writers)
                .get(&f)
                .map(|w| (f, w.tier, growth(&w.fd, question.offset, question.bytes)))
        });
        let Some((file, tier, bytes)) = found.filter(|f| f.2 > 0) else {
            return questions.allow(&question);
        };
        let first = state.at(tier).waiting.is_empty();
        if first && self.fits(&state, tier, Some(file), bytes) {
            questions.allow(&question);
            if let Some(writer) = state.writers.get_mut(&file) {
                writer.last = bytes;
            }
            return;
        }
        let space = state.at(tier);
        space.wanted = true;
        space.waiting.push_back(Waiting {
            question,
            file,
            bytes,
        });
        self.store
            .kernel_writes(tier)
            .set_waiting(space.waiting.len());
    }
    /// Whether a tier has space for a change of that length, besides those that may not be finished. If the kernel writes that file, the
    /// last write to it is.
    fn fits(&self, state: &State, tier: Tier, file: Option<Inode>, bytes: u64) -> bool {
        let (free, all, _) = self.room(state, tier);
        let others = state.on(tier).filter(|w| Some(*w.0) != file);
        let others = others.map(|w| w.1.last).sum::<u64>() + state.tiers[usize::from(tier)].claimed;
        let metadata = METADATA.min(all / 64) + bytes / 64;
        free >= bytes.saturating_add(others).saturating_add(metadata)
    }
    /// Looks at the free space of the tiers where that is due.
    fn sample(&self) {
        let now = Instant::now();
        let mut state = self.state();
        for tier in 0..state.tiers.len() as Tier {
            if state.at(tier).due.is_none_or(|d| d > now) {
                continue;
            }
            let entered = std::mem::take(&mut state.at(tier).entered);
            if !entered && state.on(tier).next().is_none() {
                state.at(tier).due = None;
                continue;
            }
            let (free, _, reserve) = self.room(&state, tier);
            let slack = self.ask_if_short(&mut state, tier);
            let space = state.at(tier);
            let wait = Duration::from_millis(slack / FASTEST_PER_MS / 2);
            space.due = Some(now + wait.clamp(SAMPLES.0, SAMPLES.1));
            space.wanted |= free < reserve && space.rest.is_none_or(|r| r <= now);
        }
    }
    /// Has the kernel ask before it writes, if space is short. Returns how much there is besides the reserve.
    fn ask_if_short(&self, state: &mut State, tier: Tier) -> u64 {
        let (free, _, reserve) = self.room(state, tier);
        let slack = free
            .saturating_sub(reserve)
            .saturating_sub(state.at(tier).claimed);
        let margin = FASTEST_PER_MS * SAMPLES.0.as_millis() as u64;
        // The two limits differ, so that the answer does not change with each sample.
        let limit = if state.at(tier).muted { 1 } else { 2 };
        self.mute(state, tier, slack >= limit * margin);
        slack
    }
    fn mute(&self, state: &mut State, tier: Tier, mute: bool) {
        if std::mem::replace(&mut state.at(tier).muted, mute) == mute {
            return;
        }
        self.store.kernel_writes(tier).set_asking(!mute);
        let Some(questions) = &state.questions else {
            return;
        };
        for (_, writer) in state.on(tier).filter(|w| w.1.watched) {
            // If this fails, writes are slower, or are not asked about.
            let _ = questions.mute(&writer.fd, mute);
        }
    }
    /// Where files should move away, another thread does that, unless one does already.
    fn start_work(self: &Arc<Self>) {
        for tier in 0..self.store.roots.len() as Tier {
            let mut state = self.state();
            let space = state.at(tier);
            if !space.wanted || space.worker.is_some() {
                continue;
            }
            space.wanted = false;
            space.worker = Some(UNSTARTED);
            drop(state);
            let mut work = Work {
                gate: Arc::clone(self),
                tier,
                begun: false,
            };
            // If no thread can be started, the job is dropped, and whoever waits is answered.
            self.helpers.hand_over(move || {
                work.begun = true;
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                work.gate.state().at(tier).worker = Some(thread);
                while work.once() {}
            });
        }
    }
}

/// A thread moves files away from a tier until this is dropped.
struct Work {
    gate: Arc<Gate>,
    tier: Tier,
    begun: bool,
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        if !self.begun || std::thread::panicking() {
            // The kernel must not wait for it.
            self.answer(&mut state, true);
            state.at(self.tier).worker = None;
        }
    }
}

impl Work {
    /// Moves some files if that is needed, and answers those that waited for it. Returns whether more may have to move.
    fn once(&mut self) -> bool {
        let mut state = self.gate.state();
        let (free, _, reserve) = self.gate.room(&state, self.tier);
        let space = state.at(self.tier);
        if free >= reserve && space.waiting.is_empty() {
            space.worker = None;
            return false;
        }
        drop(state);
        let moved = self.gate.make_room(self.tier);
        let mut state = self.gate.state();
        self.answer(&mut state, !moved);
        if !moved {
            let space = state.at(self.tier);
            space.worker = None;
            space.rest = Some(Instant::now() + REST);
        }
        moved
    }
    /// Answers those that wait and for which there is space now, in their order, or all.
    fn answer(&self, state: &mut State, all: bool) {
        while let Some(first) = state.at(self.tier).waiting.front() {
            let (file, bytes) = (first.file, first.bytes);
            if !all && !self.gate.fits(state, self.tier, Some(file), bytes) {
                break;
            }
            let first = state.at(self.tier).waiting.pop_front();
            if let Some((first, questions)) = first.zip(state.questions.as_ref()) {
                questions.allow(&first.question);
            }
            if let Some(writer) = state.writers.get_mut(&file) {
                writer.last = bytes;
            }
        }
        let waiting = state.at(self.tier).waiting.len();
        self.gate
            .store
            .kernel_writes(self.tier)
            .set_waiting(waiting);
    }
}

/// The end of [`Gate::run`].
struct End<'a>(&'a Gate);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        for space in &mut state.tiers {
            space.waiting.clear();
        }
        // When the last user drops it, the kernel lets all accesses go on.
        state.questions = None;
    }
}
