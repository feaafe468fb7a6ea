//! Serving a volume: the loop on the engine's thread, and the handle that front ends and control use.
//!
//! ```text
//! loop { wait; each event: submit or complete; tick when due; commands }
//! ```

use crate::buffers::{Arena, Buffer, Pool};
use crate::config::VolumeConfig;
use crate::error::{Error, ErrorKind};
use crate::inbox::{Done, Inbox, Submission};
use crate::media::FileMedia;
use crate::port::{Completion, Port, Share};
use crate::recorder::{Driver, Recording};
use crate::reopen::Reopening;
use crate::volume::{OpenMode, Volume};
use crate::world::{Command, Parts, UringWorld};
use isotherm_core::run::{Host, Loop};
use isotherm_core::store::{self, Superblock};
use isotherm_core::{
    Effect, Engine, Event, ExtentId, IoError, Nanos, OpId, Params, Request, RequestOp, World,
};
use isotherm_traces::events::Ending;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Requests that may wait for the engine's thread.
const INBOX: usize = 4096;
/// `linux/prctl.h`; the C library's bindings leave it out.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Asks the system to treat this process as part of the storage stack. Call it before any thread or ring is made.
///
/// A volume may hold the file system that memory is written back to: our own allocations must not wait for that
/// (`PR_SET_IO_FLUSHER`), and our pages must not lie on it (`mlockall`). Returns words for people where the system refuses.
pub fn prepare_process() -> Vec<String> {
    let mut notes = Vec::new();
    // SAFETY: no pointers.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } != 0 {
        let e = io::Error::last_os_error();
        crate::world::NOT_A_FLUSHER.store(true, Ordering::Relaxed);
        notes.push(format!(
            "not an I/O flusher ({e}): do not swap to this volume; CAP_SYS_RESOURCE helps"
        ));
    }
    // SAFETY: no pointers.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
        let e = io::Error::last_os_error();
        notes.push(format!("memory is not locked ({e}): do not swap to this volume; CAP_IPC_LOCK or a higher memlock limit helps"));
    }
    notes
}

/// Was this signal ignored by whoever started the process? What it asked to be ignored should stay so.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid `sigaction`, written on success.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only; `now` is ours.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) } == 0;
    known && now.sa_sigaction == libc::SIG_IGN
}

/// Engine and world on one thread: what [`Server`] runs, and what a benchmark drives by itself.
pub struct Session {
    pub(crate) engine: Driver,
    pub(crate) world: UringWorld,
    pub(crate) superblock: Superblock,
    pub(crate) mode: OpenMode,
    run: Loop,
    pub(crate) devices: Arc<Vec<Option<crate::device::Device>>>,
    inbox: Arc<Inbox<Command>>,
    pub(crate) closing: bool,
    /// As at the start; knobs that were set since are the engine's.
    pub(crate) config: VolumeConfig,
    pub(crate) params: Params,
    pub(crate) handle: Handle,
    /// A recording is about to begin.
    pub(crate) reopening: Option<Reopening>,
    /// Why the volume could not be opened again.
    pub(crate) lost: Option<Error>,
    /// It was said in [`Handle::failure`] that the volume has failed.
    told: bool,
}

/// Why a volume serves reads at best from now on, and nothing more until it is served anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFailure {
    /// What failed, as in `a flush failed`.
    pub reason: String,
    /// Member, as in the member list, and its path.
    pub member: Option<(usize, std::path::PathBuf)>,
    /// The system's number, where it gave one.
    pub errno: Option<i32>,
    /// When.
    pub at: std::time::SystemTime,
    /// Another server has the volume: this one must end at once.
    pub overtaken: bool,
}

impl std::fmt::Display for VolumeFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((i, path)) = &self.member {
            write!(f, "{} (member {i}): ", path.display())?;
        }
        f.write_str(&self.reason)?;
        match self.errno {
            Some(n) => write!(f, ": {}", io::Error::from_raw_os_error(n)),
            None => Ok(()),
        }
    }
}

/// What a session needs besides the thread.
struct Prepared {
    volume: Volume,
    arena: Arc<Arena>,
    inbox: Arc<Inbox<Command>>,
    handle: Handle,
}

fn prepare(volume: Volume) -> Result<(Prepared, Handle), Error> {
    let refused = |what: &str, e: io::Error| Error::new(ErrorKind::System, format!("{what}: {e}"));
    let io = &volume.config.io;
    let geo = &volume.opened.space.geo;
    let arena =
        Arena::new(io.buffers.0 as usize, io.move_buffers, geo.extent_bytes()).map_err(|e| {
            refused(
                "[io]: buffers: the system does not give this much memory",
                e,
            )
        })?;
    let arena = Arc::new(arena);
    let inbox = Arc::new(Inbox::new(INBOX).map_err(|e| refused("eventfd", e))?);
    let handle = Handle {
        inbox: Arc::clone(&inbox),
        pool: Arc::clone(&arena.pool),
        file: Arc::clone(&arena.file),
        failure: Arc::default(),
        volume_bytes: geo.volume_bytes(),
        block: geo.block_bytes(),
        read_only: volume.mode == OpenMode::ReadOnly,
    };
    Ok((
        Prepared {
            volume,
            arena,
            inbox,
            handle: handle.clone(),
        },
        handle,
    ))
}

impl Prepared {
    fn start(self) -> Result<Session, Error> {
        let Volume {
            config,
            devices,
            opened,
            policy,
            pacers,
            costs,
            mode,
            stamp,
            ..
        } = self.volume;
        let (io, usual) = (&config.io, Params::default());
        // With the core's `mutants` feature there is one field more.
        #[allow(clippy::needless_update)]
        let params = Params {
            move_buffers: io.move_buffers,
            commit_interval: Nanos::from_millis(io.commit_interval_ms),
            stage_blocks: io.stage_blocks,
            map_on_read: false,
            read_only: mode == OpenMode::ReadOnly,
            standby_after: config
                .members
                .iter()
                .map(|m| m.standby_s.map(|s| Nanos((s * 1e9) as u64)))
                .collect(),
            move_bytes_per_s: io.move_rate.map(|r| r.0),
            p99_limit: io.p99_limit_ms.map(|p| Nanos((p * 1e6) as u64)),
            moves_max: io.moves_max,
            wear_bytes_per_day: config
                .wear_bytes_per_day()
                .map_err(|e| Error::new(ErrorKind::Config, format!("[io]: {e}")))?,
            wear_burst: io.wear_burst(),
            sleep_hold: io.sleep_hold_s.map(|s| Nanos((s * 1e9) as u64)),
            sleep_hold_bytes: io.sleep_hold_bytes.map(|b| b.0),
            pass_discards: io.pass_discards,
            costs,
            join_bytes: io.join_bytes.map_or(usual.join_bytes, |b| b.0),
            join_time: io
                .join_s
                .map_or(usual.join_time, |s| Nanos((s * 1e9) as u64)),
            ..Params::default()
        };
        let devices = Arc::new(devices);
        let parts = Parts {
            devices: Arc::clone(&devices),
            pacers,
            arena: self.arena,
            inbox: Arc::clone(&self.inbox),
            block: opened.space.geo.block_bytes(),
            base: opened.time_base,
            stamp,
        };
        let world = UringWorld::new(parts, io)?;
        let superblock = opened.superblock.clone();
        Ok(Session {
            engine: Driver::new(Engine::new(opened, policy, params.clone()), None),
            world,
            superblock,
            mode,
            config,
            params,
            handle: self.handle,
            reopening: None,
            lost: None,
            told: false,
            run: Loop::new(),
            devices,
            inbox: self.inbox,
            closing: false,
        })
    }
}

/// The engine behind a gate that is closed while the volume is opened again.
struct Gate<'a> {
    engine: &'a mut Driver,
    reopening: &'a mut Option<Reopening>,
}

impl Host for Gate<'_> {
    fn engine(&self) -> &Engine {
        self.engine
    }
    fn submit(&mut self, now: Nanos, r: Request, out: &mut Vec<Effect>) {
        match self.reopening {
            Some(reopening) => reopening.held.push_back(r),
            None => self.engine.submit(now, r, out),
        }
    }
    fn complete(
        &mut self,
        now: Nanos,
        id: OpId,
        result: Result<u32, IoError>,
        out: &mut Vec<Effect>,
    ) {
        self.engine.complete(now, id, result, out);
    }
    fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.engine.tick(now, out);
    }
    fn close(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.engine.close(now, out);
    }
}

impl Session {
    /// Calls the engine, and carries out what it wants done.
    pub(crate) fn call(&mut self, what: impl FnOnce(&mut Driver, &mut Vec<Effect>)) {
        self.run.call(&mut self.engine, &mut self.world, what);
    }

    /// Opens the engine on the calling thread, for sources that live on it. The handle works from any thread.
    ///
    /// # Errors
    /// No memory, no io_uring.
    pub fn here(volume: Volume) -> Result<(Session, Handle), Error> {
        let (prepared, handle) = prepare(volume)?;
        Ok((prepared.start()?, handle))
    }

    /// Waits for the next events, at most until `until`, and handles them all. False once the volume is closed.
    pub fn step(&mut self, until: Option<Nanos>) -> bool {
        let mut host = Gate {
            engine: &mut self.engine,
            reopening: &mut self.reopening,
        };
        let wake = host.engine.next_wake();
        self.run.turn(&mut host, &mut self.world, wake, until);
        while let Some(command) = self.inbox.pop_command() {
            command(&mut self.engine, &mut self.world);
        }
        if self.reopening.is_some() || self.engine.wish.is_some() {
            self.reopen_if_due();
        }
        if !self.told
            && (self.engine.has_failed() || self.world.is_cut() || self.world.is_unstamped())
        {
            self.tell_failure();
        }
        !self.engine.is_closed()
    }

    /// Leaves word of a failure where other threads see it: this one has better things to do than to print.
    fn tell_failure(&mut self) {
        self.told = true;
        let fault = self.world.fault().cloned();
        let path = |i: usize| self.devices.get(i)?.as_ref().map(|d| d.path.clone());
        let failure = VolumeFailure {
            reason: fault.as_ref().map_or_else(
                || "a flush or metadata write failed".to_owned(),
                |f| f.what.clone(),
            ),
            member: fault
                .as_ref()
                .map(|f| (f.member, path(f.member).unwrap_or_default())),
            errno: fault.as_ref().and_then(|f| f.errno),
            at: fault.map_or_else(std::time::SystemTime::now, |f| f.at),
            overtaken: self.world.is_overtaken(),
        };
        // Said once, by this thread alone.
        let _ = self.handle.failure.set(failure);
    }

    /// Submits a request from this thread, without queue or bell.
    pub fn submit(&mut self, s: Submission) {
        if let Some(r) = self.world.admit(s) {
            self.submit_admitted(r);
        }
    }

    pub(crate) fn submit_admitted(&mut self, r: Request) {
        let mut host = Gate {
            engine: &mut self.engine,
            reopening: &mut self.reopening,
        };
        self.run.tell(&mut host, &mut self.world, Event::Arrived(r));
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The world.
    pub fn world(&mut self) -> &mut UringWorld {
        &mut self.world
    }

    /// No more requests: what was handed over before is served, then everything is written down. Call [`Session::step`] until
    /// it says false.
    pub fn close(&mut self) {
        // A recording that is about to begin holds requests that were handed over: they come first.
        while self.reopening.is_some() && self.step(None) {}
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        self.inbox.close();
        while let Some(s) = self.inbox.pop() {
            self.submit(s);
        }
        // From here on only a submitter that was just between its check and its push can still arrive.
        self.world.refuse_from_now_on();
        let now = self.world.now();
        self.call(|engine, out| engine.close(now, out));
    }

    /// Serves until somebody asks to stop, then closes.
    ///
    /// # Errors
    /// The last writes could not be made durable; the members say so at the next opening.
    pub fn run(mut self, stop: &StopFlag) -> Result<(), Error> {
        // Closed before anybody asked: it could not be opened again.
        while !stop.is_set() && self.step(None) {}
        self.finish()
    }

    /// Closes, marks the members clean and ends.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn finish(mut self) -> Result<(), Error> {
        self.close();
        while !self.engine.is_closed() {
            self.step(None);
        }
        self.engine.end_recording(Ending::Closed);
        self.inbox.end();
        if let Some(e) = self.lost.take() {
            return Err(e);
        }
        if self.engine.has_failed() || self.world.is_cut() || self.world.is_unstamped() {
            if !self.told {
                self.tell_failure();
            }
            let why = self.handle.failure().map(ToString::to_string);
            let what = format!(
                "{}: what was written since the last good flush may be lost; check the devices",
                why.unwrap_or_default()
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
        if self.mode == OpenMode::ReadOnly {
            return Ok(());
        }
        if !self.world.is_still_ours() {
            return Err(Error::new(
                ErrorKind::InUse,
                "another server took the volume over: it is not marked clean by this one",
            ));
        }
        let now = self.world.now();
        let devices = Arc::clone(&self.devices);
        let mut media = FileMedia::new(&devices);
        store::mark_clean(&mut media, &self.superblock, now).map_err(|e| {
            let why = media
                .last_error()
                .map(|e| format!(" ({e})"))
                .unwrap_or_default();
            let path = devices[usize::from(e.member.0)]
                .as_ref()
                .map(|d| d.path.display().to_string())
                .unwrap_or_default();
            Error::new(
                ErrorKind::Device,
                format!(
                    "{path}: the clean mark could not be written{why}: the next opening recovers"
                ),
            )
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whoever waits for this thread must not wait for ever, whatever ended it.
        self.inbox.end();
    }
}

/// Whether somebody asked to stop.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<std::sync::atomic::AtomicBool>);

impl StopFlag {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
    /// Was it?
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A volume being served by a thread of its own.
pub struct Server {
    handle: Handle,
    stop: StopFlag,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Volume {
    /// Starts the engine's thread.
    ///
    /// # Errors
    /// No memory, no io_uring, no thread.
    pub fn serve(self) -> Result<Server, Error> {
        let (prepared, handle) = prepare(self)?;
        let stop = StopFlag::default();
        let flag = stop.clone();
        let (started, is_started) = mpsc::channel();
        let run = move || match prepared.start() {
            Ok(session) => {
                let _ = started.send(Ok(()));
                session.run(&flag)
            }
            Err(e) => {
                let _ = started.send(Err(e.clone()));
                Err(e)
            }
        };
        let thread = std::thread::Builder::new()
            .name("isotherm-engine".into())
            .spawn(run)
            .map_err(|e| Error::new(ErrorKind::System, format!("no thread for the engine: {e}")))?;
        match is_started.recv() {
            Ok(Ok(())) => Ok(Server {
                handle,
                stop,
                thread: Some(thread),
            }),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(Error::new(
                ErrorKind::System,
                "the engine's thread died at its start",
            )),
        }
    }
}

impl Server {
    /// For front ends and control.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// As a port.
    pub fn port(&self) -> Arc<dyn Port> {
        Arc::new(self.handle())
    }

    /// Has the engine's thread ended by itself?
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Serves what was handed over, writes everything down, marks the members clean.
    ///
    /// # Errors
    /// See [`Session::run`], or the thread died.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.stop.set();
        let nudge: Command = Box::new(|_, _| {});
        self.handle.inbox.command(nudge);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::new(
                ErrorKind::System,
                "the engine's thread died: the next opening recovers",
            )),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error here was not asked for; `stop` is the way to see it.
        let _ = self.end();
    }
}

/// The way to a served volume from any thread.
#[derive(Clone)]
pub struct Handle {
    inbox: Arc<Inbox<Command>>,
    pool: Arc<Pool>,
    /// See [`Arena::file`].
    file: Arc<Pool>,
    failure: Arc<OnceLock<VolumeFailure>>,
    volume_bytes: u64,
    block: u32,
    read_only: bool,
}

impl Handle {
    /// Runs `f` on the engine's thread between events and waits for it. `None` if the volume is closed. Never call it from a
    /// completion: that would wait for itself.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Driver, &mut UringWorld) -> R + Send + 'static,
    ) -> Option<R> {
        let (send, receive) = mpsc::sync_channel(1);
        let command: Command = Box::new(move |engine, world| {
            // The caller may have given up: then nobody wants the answer.
            let _ = send.send(f(engine, world));
        });
        self.inbox.command(command).then(|| receive.recv().ok())?
    }

    /// Begins to record everything that the engine is told and decides. The engine is opened again for that (see
    /// `reopen.rs`): requests wait meanwhile, as long as recovery takes.
    ///
    /// # Errors
    /// Recorded already, closing, failed; or the volume could not be opened again, and is lost to its clients until it is
    /// served anew.
    pub fn record_events(&self) -> Result<Recording, Error> {
        let closing = || Error::new(ErrorKind::Volume, "the volume is closing");
        let (wish, granted) = mpsc::sync_channel(1);
        self.call(move |driver, _| {
            // Two at a time: the later one hears that its wish is gone.
            driver.wish.get_or_insert(wish);
        })
        .ok_or_else(closing)?;
        granted.recv().map_err(|_| closing())?
    }

    /// Ends the recording, if any; its writer gets the rest.
    pub fn end_events(&self) {
        // Closed: then it has ended.
        let _ = self.call(|driver, _| driver.end_recording(Ending::Asked));
    }

    /// Why the volume has failed, if it has: writes are refused then until it is served anew.
    pub fn failure(&self) -> Option<&VolumeFailure> {
        self.failure.get()
    }

    /// Request memory that is out, bytes.
    pub fn buffer_bytes_out(&self) -> usize {
        self.pool.bytes_out()
    }

    /// Is there memory for a request of the block file of `len` bytes without waiting?
    pub fn has_memory(&self, len: u32) -> bool {
        let bytes = len as usize + 2 * self.block as usize;
        self.pool.has(bytes) || self.file.has(bytes)
    }

    fn hand_over(&self, s: Submission) {
        if let Err(s) = self.inbox.push(s) {
            s.refuse(IoError::Gone);
        }
    }

    /// Write-zeroes with odd ends: the ends become small writes of zeros, the middle whole blocks.
    fn write_odd_zeroes(
        &self,
        op: RequestOp,
        offset: u64,
        len: u32,
        fua: bool,
        class: u8,
        done: Completion,
    ) {
        let end = offset + u64::from(len);
        let block = u64::from(self.block);
        let (first, last) = (offset.next_multiple_of(block).min(end), end / block * block);
        let mut parts = Vec::with_capacity(3);
        if last < first {
            parts.push((RequestOp::Write, offset, end));
        } else {
            parts.extend([
                (RequestOp::Write, offset, first),
                (op, first, last),
                (RequestOp::Write, last, end),
            ]);
        }
        parts.retain(|p| p.1 < p.2);
        let join = Arc::new(Join {
            left: AtomicUsize::new(parts.len()),
            state: Mutex::new((Ok(()), Some(done))),
        });
        for (op, from, to) in parts {
            let len = (to - from) as u32;
            // Memory of its own: this call must not wait for the pool, since its caller may hold some of it.
            let buf = (op == RequestOp::Write).then(|| Buffer::new(from, len, self.block));
            let join = Arc::clone(&join);
            let done: Completion = Box::new(move |result, _| join.ended(result));
            self.hand_over(Submission {
                op,
                offset: from,
                len,
                fua,
                class,
                buf,
                done: Done::Call(done),
            });
        }
    }
}

/// Parts of one request; the last one to end tells.
struct Join {
    left: AtomicUsize,
    state: Mutex<(Result<(), IoError>, Option<Completion>)>,
}

impl Join {
    fn ended(&self, result: Result<(), IoError>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = state.0.and(result);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let (result, done) = (state.0, state.1.take());
            drop(state);
            if let Some(done) = done {
                done(result, None);
            }
        }
    }
}

impl Port for Handle {
    fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        if self.inbox.on_own_thread() {
            // Waiting here would be waiting for ourselves. The block file asks for memory before it takes a request, so this
            // seldom leaves the pools. (Connections have shares.)
            let bytes = crate::buffers::cover(offset, len, self.block).1;
            let memory = self.pool.get_if_idle(bytes);
            let memory = memory.unwrap_or_else(|| self.file.get_now(bytes));
            return Buffer::over(memory, offset, len, self.block);
        }
        self.pool.buffer(offset, len, self.block)
    }

    fn share(&self) -> Option<Arc<Share>> {
        Some(Share::of(&self.pool))
    }

    fn submit(
        &self,
        op: RequestOp,
        offset: u64,
        len: u32,
        fua: bool,
        class: u8,
        buf: Option<Buffer>,
        done: Completion,
    ) {
        let block = u64::from(self.block);
        let odd = !offset.is_multiple_of(block) || !u64::from(len).is_multiple_of(block);
        let inside = offset
            .checked_add(u64::from(len))
            .is_some_and(|end| end <= self.volume_bytes);
        if matches!(op, RequestOp::WriteZeroes { .. }) && odd && inside && len != 0 {
            return self.write_odd_zeroes(op, offset, len, fua, class, done);
        }
        self.hand_over(Submission {
            op,
            offset,
            len,
            fua,
            class,
            buf,
            done: Done::Call(done),
        });
    }

    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)> {
        let end = offset.saturating_add(u64::from(len)).min(self.volume_bytes);
        self.call(move |engine, _| runs(engine, offset, end, max))
            .unwrap_or_default()
    }
}

/// Mapped and unmapped stretches of `from..end`.
fn runs(engine: &Engine, from: u64, end: u64, max: usize) -> Vec<(u32, bool)> {
    let space = engine.space();
    let (shift, block_shift) = (space.geo.extent_shift, space.geo.block_shift);
    let mut out: Vec<(u32, bool)> = Vec::new();
    let mut at = from;
    while at < end {
        let e = ExtentId((at >> shift) as u32);
        let base = u64::from(e.0) << shift;
        let stop = end.min(base + (1 << shift));
        let b = ((at - base) >> block_shift) as u32;
        let (n, mapped) = space.map.data_run(e, b, 1 << (shift - block_shift));
        let to = stop.min(base + (u64::from(b + n) << block_shift));
        let len = (to - at) as u32;
        let full = out.len() == max;
        match out.last_mut() {
            Some(last) if last.1 == mapped => last.0 += len,
            _ if full => break,
            _ => out.push((len, mapped)),
        }
        at = to;
    }
    out
}
