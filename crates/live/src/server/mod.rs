//! Serves a volume: the loop on the engine's thread, and the handle for front ends and control.
//!
//! ```text
//! loop { wait; each event: submit or complete; tick when due; commands }
//! ```

mod handle;
pub(crate) mod start;

pub use handle::Handle;
pub use start::{is_ignored, prepare_process};

use crate::config::VolumeConfig;
use crate::error::{Error, ErrorKind};
use crate::inbox::{Inbox, Submission};
use crate::loss::Listed;
use crate::media::FileMedia;
use crate::mutants::{LiveMutant, broken};
use crate::port::Port;
use crate::recorder::Driver;
use crate::reopen::Reopening;
use crate::volume::{OpenMode, Volume};
use crate::world::{Command, UringWorld};
use isotherm_core::run::{Host, Loop};
use isotherm_core::store::{self, Superblock};
use isotherm_core::{Effect, Engine, Event, IoError, Nanos, OpId, Params};
use isotherm_core::{Request, RequestOp, World};
use isotherm_events::Ending;
use start::prepare;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Engine and world on one thread. [`Server`] runs it on a thread of its own; a benchmark runs it directly.
pub struct Session {
    pub(crate) engine: Driver,
    pub(crate) world: UringWorld,
    pub(crate) superblock: Superblock,
    pub(crate) mode: OpenMode,
    run: Loop,
    inbox: Arc<Inbox<Command>>,
    pub(crate) closing: bool,
    /// The description at the start; the engine holds knobs that were set since.
    pub(crate) config: VolumeConfig,
    pub(crate) params: Params,
    pub(crate) handle: Handle,
    /// A recording or a change of the members that is about to begin.
    pub(crate) reopening: Option<Reopening>,
    /// Events that the engine did not get, because its cache is about to end (`cache_end.rs`).
    pub(crate) withheld: Option<Vec<Event>>,
    /// Whether a FLUSH must fail, because data that was answered before is lost with flash (`cache_end.rs`).
    pub(crate) owes_error: bool,
    /// The number of lost blocks that the handle knows, and when it was told.
    listed: (u64, Nanos),
    /// The reason why the volume could not be opened again.
    pub(crate) lost: Option<Error>,
    /// Whether the failure was reported in [`Handle::failure`].
    failure_reported: bool,
}

/// Interval at which an engine that waits for the end of its cache looks whether that can be carried out.
const LOOK_AGAIN: Nanos = Nanos(20_000_000);

/// Interval at which the handle is told of lost data that was written again.
const TELL_LISTED: Nanos = Nanos(1_000_000_000);

/// The reason why a volume can only be read, or not even that, until it is served again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFailure {
    /// The failed operation, as in `a flush failed`.
    pub reason: String,
    /// The member, by its number in the member list, and its path.
    pub member: Option<(usize, std::path::PathBuf)>,
    /// The system's error number, if there is one.
    pub errno: Option<i32>,
    /// The time of the failure.
    pub at: std::time::SystemTime,
    /// Whether another server has the volume: then this one must end at once.
    pub overtaken: bool,
}

impl VolumeFailure {
    /// The failure of a volume that can give no guarantee any more, from the world's first fault.
    pub(crate) fn of(world: &UringWorld) -> VolumeFailure {
        let fault = world.fault();
        let path = |i: usize| Some(world.devices().get(i)?.as_ref()?.path.clone());
        VolumeFailure {
            reason: fault.map_or_else(
                || "a flush or metadata write failed".to_owned(),
                |f| f.what.clone(),
            ),
            member: fault.map(|f| (f.member, path(f.member).unwrap_or_default())),
            errno: fault.and_then(|f| f.errno),
            at: fault.map_or_else(std::time::SystemTime::now, |f| f.at),
            overtaken: world.is_overtaken(),
        }
    }
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

/// The engine behind a gate, which is closed while the volume is opened again.
struct Gate<'a> {
    engine: &'a mut Driver,
    reopening: &'a mut Option<Reopening>,
    withheld: &'a mut Option<Vec<Event>>,
    owes_error: &'a mut bool,
}

impl Gate<'_> {
    /// Keeps an event from an engine that has lost its cache. Returns whether it did.
    fn withhold(&mut self, event: impl FnOnce() -> Event) -> bool {
        if self.engine.has_lost_cache() {
            self.withheld.get_or_insert_with(Vec::new);
        }
        if let Some(all) = self.withheld.as_mut() {
            all.push(event());
            return true;
        }
        false
    }
}

impl Host for Gate<'_> {
    fn engine(&self) -> &Engine {
        self.engine
    }
    fn submit(&mut self, now: Nanos, r: Request, out: &mut Vec<Effect>) {
        if self.withhold(|| Event::Arrived(r)) {
            return;
        }
        if r.op == RequestOp::Flush && std::mem::take(self.owes_error) {
            let (tag, result) = (r.tag, Err(IoError::Io));
            return out.push(Effect::Reply { tag, result });
        }
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
        if !self.withhold(|| Event::Finished { id, result }) {
            self.engine.complete(now, id, result, out);
        }
    }
    fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        if self.withheld.is_none() {
            self.engine.tick(now, out);
        }
    }
    fn close(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.engine.close(now, out);
    }
}

impl Session {
    /// Calls the engine, and carries out the resulting effects.
    pub(crate) fn call(&mut self, what: impl FnOnce(&mut Driver, &mut Vec<Effect>)) {
        self.run.call(&mut self.engine, &mut self.world, what);
    }

    /// Opens the engine on the calling thread, for sources that run on it. The handle works from any thread.
    ///
    /// # Errors
    /// No memory, no io_uring.
    pub fn here(volume: Volume) -> Result<(Session, Handle), Error> {
        let (prepared, handle) = prepare(volume)?;
        Ok((prepared.start()?, handle))
    }

    /// Waits for the next events, at most until `until`, and handles all of them. Returns false once the volume is closed, or nothing can be
    /// served any more.
    pub fn step(&mut self, until: Option<Nanos>) -> bool {
        let mut host = Gate {
            engine: &mut self.engine,
            reopening: &mut self.reopening,
            withheld: &mut self.withheld,
            owes_error: &mut self.owes_error,
        };
        let waits = host.withheld.is_some();
        let wake = host.engine.next_wake().filter(|_| !waits);
        let again = waits.then(|| self.world.now() + LOOK_AGAIN);
        let until = Nanos::earlier(until, again);
        self.run.turn(&mut host, &mut self.world, wake, until);
        self.end_cache_if_due();
        self.tell_listed();
        // Commands see why it has failed.
        self.report_if_broken();
        while let Some(command) = self.inbox.pop_command() {
            command(&mut self.engine, &mut self.world);
        }
        // An engine that is closing does not need the classes; an engine that is being opened again gets them afterwards.
        while self.reopening.is_none()
            && self.withheld.is_none()
            && !self.closing
            && let Some(news) = self.world.reclassified.pop_front()
        {
            let now = self.world.now();
            self.call(|engine, out| {
                engine.reclassify(now, news.extent, (news.class, news.runs), out);
            });
        }
        if self.withheld.is_none() && (self.reopening.is_some() || self.engine.requested.is_some())
        {
            self.reopen_if_due();
        }
        self.report_if_broken();
        !self.engine.is_closed() && self.lost.is_none()
    }

    /// Tells the handle what is listed as lost. Of what is written again it is told once a second, because the first ranges must be searched.
    pub(crate) fn tell_listed(&mut self) {
        let lost = &self.engine.space().lost;
        let (blocks, (known, at)) = (lost.blocks(), self.listed);
        let at_once = blocks == 0 || blocks > known;
        if blocks != known && (at_once || self.world.now() >= at + TELL_LISTED) {
            self.handle.set_listed(Listed::of(self.engine.space()));
            self.listed = (blocks, self.world.now());
        }
    }

    fn report_if_broken(&mut self) {
        if !self.failure_reported && self.is_broken() {
            self.report_failure();
        }
    }

    /// Whether the volume can give no guarantee any more.
    pub(crate) fn is_broken(&self) -> bool {
        let world = &self.world;
        self.engine.has_failed() || world.is_cut() || world.is_unstamped() || world.is_unkept()
    }

    /// Stores a failure where other threads can see it, because this thread must not spend time on messages.
    fn report_failure(&mut self) {
        self.failure_reported = true;
        // Kept records may expose data that a failed device has lost.
        self.world.give_up_kept();
        // It is set once, and only by this thread.
        let _ = self.handle.failure.set(VolumeFailure::of(&self.world));
    }

    /// Submits a request from this thread, without queue or bell.
    pub fn submit(&mut self, s: Submission) {
        if let Some(r) = self.world.admit(s) {
            self.submit_admitted(r);
        }
    }

    pub(crate) fn submit_admitted(&mut self, r: Request) {
        self.tell(Event::Arrived(r));
    }

    /// Passes an event to the engine, unless it is withheld from it.
    pub(crate) fn tell(&mut self, event: Event) {
        let mut host = Gate {
            engine: &mut self.engine,
            reopening: &mut self.reopening,
            withheld: &mut self.withheld,
            owes_error: &mut self.owes_error,
        };
        self.run.tell(&mut host, &mut self.world, event);
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The world.
    pub fn world(&mut self) -> &mut UringWorld {
        &mut self.world
    }

    /// Ends the acceptance of requests: earlier requests are served, then all state is written. Call [`Session::step`] until it returns
    /// false.
    pub fn close(&mut self) {
        // A recording or change that is about to begin holds requests that were already handed over. They are served first.
        while (self.reopening.is_some() || self.withheld.is_some()) && self.step(None) {}
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        self.inbox.close();
        while let Some(s) = self.inbox.pop() {
            self.submit(s);
        }
        // From here on, a request can still arrive only if its sender checked the inbox before and pushes it now.
        self.world.refuse_from_now_on();
        let now = self.world.now();
        self.call(|engine, out| engine.close(now, out));
    }

    /// Serves until a stop is requested, then closes.
    ///
    /// # Errors
    /// The last writes could not be made durable; the next opening reports this.
    pub fn run(mut self, stop: &StopFlag) -> Result<(), Error> {
        // The loop also ends if the volume is closed without a request, because it could not be opened again.
        while !stop.is_set() && self.step(None) {}
        self.finish()
    }

    /// Closes, marks the members clean and ends.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn finish(mut self) -> Result<(), Error> {
        self.close();
        while !self.engine.is_closed() && self.lost.is_none() {
            self.step(None);
        }
        self.engine.end_recording(Ending::Closed);
        self.inbox.end();
        if let Some(e) = self.lost.take() {
            return Err(e);
        }
        let failed = self.is_broken();
        if failed && !broken(LiveMutant::CleanAfterFailure) {
            if !self.failure_reported {
                self.report_failure();
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
        let devices = Arc::clone(self.world.devices());
        let mut media = FileMedia::watched(&devices, &self.handle.vitals);
        debug_assert_eq!(self.engine.contracts(), Ok(()));
        store::mark_clean(&mut media, &self.superblock, &self.engine.closing(), now).map_err(|e| {
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
        })?;
        self.world.forget_kept();
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A thread that waits for this one must be released, whatever the reason for the end.
        self.inbox.end();
    }
}

/// A flag with which a stop is requested.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<std::sync::atomic::AtomicBool>);

impl StopFlag {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
    /// Whether a stop was requested.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A volume that a thread of its own serves.
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
    /// The handle for front ends and control.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The volume as a port.
    pub fn port(&self) -> Arc<dyn Port> {
        Arc::new(self.handle())
    }

    /// Whether the engine's thread has ended by itself.
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Serves earlier requests, writes all state, marks the members clean.
    ///
    /// # Errors
    /// See [`Session::run`], or the thread panicked.
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
        // The caller did not ask for errors; `stop` reports them.
        let _ = self.end();
    }
}
