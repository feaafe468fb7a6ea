//! Records the calls of the engine and its decisions, without delaying it.
//!
//! ```text
//! engine's thread: Driver ─► Encoder ─ full chunks ─► Recording: another thread ─► file or socket
//!                                    ◄ empty ones ──
//! ```
//! Both queues are bounded and allocated beforehand. When there is no empty chunk, the recording ends and states the reason. The engine
//! never waits for it and, once chunks have their size, never allocates for it.
//!
//! Invariant: the engine is changed only through [`Driver`], so a recording is complete.

use crate::reopen::{BEING_CHANGED, Purpose};
use crate::server::Handle;
use isotherm_core::engine::Explained;
use isotherm_core::engine::{SwitchError, WarmError};
use isotherm_core::policy::ParamError;
use isotherm_core::policy::Policy;
use isotherm_core::qos::Spec;
use isotherm_core::run::Host;
use isotherm_core::{Effect, Engine, ExtentId, IoError, Nanos, OpId, Request, World};
use isotherm_events::{
    CLEAN, Call, Encoder, End, Ending, Image, Origin, Standing, Writer, meta_hash, warm_calls,
};
use std::io::{self, Write};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Number of bytes after which a chunk is handed over.
const CHUNK: usize = 64 << 10;
/// Capacity of a chunk: the event that fills it rarely exceeds this.
const CHUNK_ROOM: usize = CHUNK + (16 << 10);
/// Largest number of chunks in the queue: 8 MiB, about a second at several hundred thousand requests per second.
const CHUNKS: usize = 128;
/// A chunk is handed over after this time even if it is not full.
const HAND_OVER_AFTER: Nanos = Nanos::from_secs(1);
/// If no chunk arrives for this time, the writer asks for one that is not full.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The engine and its recorder. Every change of the engine goes through this type.
pub struct Driver {
    engine: Engine,
    id: u64,
    recorder: Option<Box<Recorder>>,
    /// The policy that was set last, if the policy was changed.
    policy: Option<String>,
    /// A requested recording or change, which begins as soon as no request is in progress.
    pub(crate) requested: Option<Purpose>,
}

impl Deref for Driver {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Driver {
    /// Wraps an engine that has not been used yet.
    pub(crate) fn new(engine: Engine, recorder: Option<Box<Recorder>>) -> Driver {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Driver {
            engine,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            recorder,
            policy: None,
            requested: None,
        }
    }

    /// See [`Engine::go_on_without_guarantee`]; the engine is not recorded any more.
    pub(crate) fn go_on_without_guarantee(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.engine.go_on_without_guarantee(now, out);
    }

    /// Requests that the engine is closed and opened again. If there are two requests at a time, the later one gets an error.
    pub(crate) fn request(&mut self, purpose: Purpose) {
        if self.requested.is_some() {
            purpose.refuse(BEING_CHANGED);
        } else {
            self.requested = Some(purpose);
        }
    }

    /// A number that no other engine of this process has. A volume that is opened again in place gets a new engine.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// See [`Engine::set`].
    ///
    /// # Errors
    /// As for that function.
    pub fn set(&mut self, now: Nanos, key: &str, value: f64) -> Result<(), ParamError> {
        let result = self.engine.set(key, value);
        if self.recorder.is_some() {
            let key = key.to_owned();
            self.record(now, &Call::Set { key, value }, &[]);
        }
        result
    }

    /// Replaces the policy by the one that `text` describes: see [`Engine::set_policy`].
    ///
    /// # Errors
    /// As for that function.
    pub fn set_policy(
        &mut self,
        now: Nanos,
        text: &str,
        policy: Box<dyn Policy>,
    ) -> Result<(), SwitchError> {
        let result = self.engine.set_policy(now, policy);
        if result.is_ok() {
            self.policy = Some(text.to_owned());
        }
        if self.recorder.is_some() {
            let text = text.to_owned();
            self.record(now, &Call::Policy { text }, &[]);
        }
        result
    }

    /// Writes home what is dirty: see [`Engine::clean`].
    ///
    /// # Errors
    /// As for that function.
    pub fn clean(&mut self, now: Nanos) -> Result<(), SwitchError> {
        let result = self.engine.clean();
        if self.recorder.is_some() {
            let key = CLEAN.to_owned();
            self.record(now, &Call::Set { key, value: 1.0 }, &[]);
        }
        result
    }

    /// Copies ranges of extents to flash: see [`Engine::warm`].
    ///
    /// # Errors
    /// As for that function.
    pub fn warm(&mut self, now: Nanos, ranges: Vec<Range<u32>>) -> Result<(), WarmError> {
        let calls = self.recorder.as_ref().map(|_| warm_calls(&ranges));
        let result = self.engine.warm(now, ranges);
        for call in calls.into_iter().flatten() {
            self.record(now, &call, &[]);
        }
        result
    }

    /// Makes promises to classes: see [`Engine::promise`].
    pub fn promise(&mut self, now: Nanos, spec: Spec) {
        let text = isotherm_words::qos::items(&spec).join(";");
        self.engine.promise(spec);
        if self.recorder.is_some() {
            self.record(now, &Call::Promise { text }, &[]);
        }
    }

    /// See [`Engine::reclassify_blocks`].
    pub fn reclassify(
        &mut self,
        now: Nanos,
        extent: ExtentId,
        (class, mut runs): (u8, Vec<(u32, u8)>),
        out: &mut Vec<Effect>,
    ) {
        let space = self.engine.space();
        if !space.keeps_classes_of(extent) {
            runs.clear();
        }
        if space.class(extent) == class && runs.is_empty() {
            return;
        }
        let from = out.len();
        self.engine
            .reclassify_blocks(now, extent, class, &runs, out);
        if self.recorder.is_some() {
            let call = Call::Reclassify {
                extent,
                class,
                runs,
            };
            self.record(now, &call, &out[from..]);
        }
    }

    /// The policy that took over since the start, in its text form.
    pub(crate) fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// See [`Engine::explain`]. It changes nothing.
    pub fn explain(&mut self, now: Nanos, extent: ExtentId) -> Explained {
        self.engine.explain(now, extent)
    }

    /// The engine itself, for tests that break its rules. A recording cannot hold this and ends.
    pub fn unrecorded(&mut self) -> &mut Engine {
        self.end_recording(Ending::Untold);
        &mut self.engine
    }

    /// Whether a recording is in progress.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Ends the recording, if there is one.
    pub fn end_recording(&mut self, ending: Ending) {
        if let Some(r) = self.recorder.take() {
            r.end(ending, &self.engine);
        }
    }

    /// Hands over the events that were recorded so far, if any.
    fn hand_over(&mut self, now: Nanos) {
        if let Some(r) = &mut self.recorder
            && !r.encoder.is_empty()
            && !r.hand_over(now)
        {
            self.recorder = None;
        }
    }

    #[inline(never)]
    fn record(&mut self, now: Nanos, call: &Call, effects: &[Effect]) {
        let Some(r) = &mut self.recorder else { return };
        r.encoder
            .event(now, call, effects, |op| meta_hash(self.engine.meta(op)));
        if (r.encoder.len() >= CHUNK || now.since(r.begun) >= HAND_OVER_AFTER) && !r.hand_over(now)
        {
            self.recorder = None;
        }
    }
}

impl Host for Driver {
    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn submit(&mut self, now: Nanos, r: Request, out: &mut Vec<Effect>) {
        let from = out.len();
        self.engine.submit(now, r, out);
        if self.recorder.is_some() {
            self.record(now, &Call::Submit(r), &out[from..]);
        }
    }

    fn complete(
        &mut self,
        now: Nanos,
        id: OpId,
        result: Result<u32, IoError>,
        out: &mut Vec<Effect>,
    ) {
        let from = out.len();
        self.engine.complete(now, id, result, out);
        if self.recorder.is_some() {
            self.record(now, &Call::Complete { id, result }, &out[from..]);
        }
    }

    fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let from = out.len();
        self.engine.tick(now, out);
        if self.recorder.is_some() {
            self.record(now, &Call::Tick, &out[from..]);
        }
    }

    fn close(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let from = out.len();
        self.engine.close(now, out);
        if self.recorder.is_some() {
            self.record(now, &Call::Close, &out[from..]);
        }
    }
}

enum Message {
    Events(Vec<u8>),
    End(Box<End>),
}

/// The engine's side of a recording.
pub(crate) struct Recorder {
    encoder: Encoder,
    /// The time at which the chunk began.
    begun: Nanos,
    /// Numbers of events and requests that were handed over.
    sent: (u64, u64),
    full: SyncSender<Message>,
    empty: Receiver<Vec<u8>>,
    /// The reason of the end, if the queue has no room for it.
    ended: Arc<Mutex<Option<End>>>,
}

impl Recorder {
    /// Both sides of a new recording. The writer uses `handle` to ask for the end.
    pub(crate) fn new(
        now: Nanos,
        origin: Origin,
        image: Image,
        handle: Handle,
    ) -> (Box<Recorder>, Recording) {
        // One more place, for the last message.
        let (full, chunks) = sync_channel(CHUNKS + 1);
        let (back, empty) = sync_channel(CHUNKS);
        for _ in 0..CHUNKS {
            // The queue has room for all of them.
            let _ = back.try_send(Vec::with_capacity(CHUNK_ROOM));
        }
        let ended = Arc::default();
        let recorder = Recorder {
            encoder: Encoder::new(Vec::with_capacity(CHUNK_ROOM)),
            begun: now,
            sent: (0, 0),
            full,
            empty,
            ended: Arc::clone(&ended),
        };
        let recording = Recording {
            origin: Box::new(origin),
            image,
            chunks,
            back,
            ended,
            handle,
        };
        (Box::new(recorder), recording)
    }

    /// Returns false if this was not possible: the recording is over, and consists of the chunks that were handed over before.
    fn hand_over(&mut self, now: Nanos) -> bool {
        self.begun = now;
        let Ok(room) = self.empty.try_recv() else {
            self.say(Ending::FellBehind, None);
            return false;
        };
        let chunk = self.encoder.take(room);
        // There are as many places as chunks, so this fails only if the writer has gone.
        let sent = self.full.try_send(Message::Events(chunk)).is_ok();
        self.sent = self.encoder.counts();
        sent
    }

    fn say(&self, ending: Ending, standing: Option<Standing>) {
        let end = End {
            ending,
            events: self.sent.0,
            requests: self.sent.1,
            standing,
        };
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    fn end(mut self, ending: Ending, engine: &Engine) {
        let now = self.begun;
        if !self.encoder.is_empty() && !self.hand_over(now) {
            return;
        }
        let end = End {
            ending,
            events: self.sent.0,
            requests: self.sent.1,
            standing: Some(Standing::of(engine)),
        };
        // This fails only if the writer has gone.
        let _ = self.full.try_send(Message::End(Box::new(end)));
    }
}

/// A recording in progress, to be written by a thread that may wait. Dropping it ends the recording.
pub struct Recording {
    origin: Box<Origin>,
    image: Image,
    chunks: Receiver<Message>,
    back: SyncSender<Vec<u8>>,
    ended: Arc<Mutex<Option<End>>>,
    handle: Handle,
}

/// Summary of a written recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The last block; `None` if the engine's thread died.
    pub end: Option<End>,
    /// Number of bytes.
    pub bytes: u64,
}

impl Recording {
    /// The state in which the engine began.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Writes until the recording ends; asks for its end when more than `limit` bytes are written. It must not run on the engine's thread,
    /// because it sends queries to that thread.
    ///
    /// # Errors
    /// Those of `out`; the recording is over then.
    pub fn write_to<W: Write>(self, out: W, limit: u64) -> io::Result<Recorded> {
        let mut writer = Writer::create(out, &self.origin, &self.image)?;
        writer.flush()?;
        drop(self.image);
        let mut asked = false;
        loop {
            if writer.bytes() > limit && !asked {
                asked = true;
                self.handle.end_events();
            }
            match self.chunks.recv_timeout(CHECK_INTERVAL) {
                Ok(Message::Events(mut chunk)) => {
                    writer.events(&chunk)?;
                    chunk.clear();
                    chunk.shrink_to(4 * CHUNK_ROOM);
                    // This fails only if the recorder has gone.
                    let _ = self.back.try_send(chunk);
                }
                Ok(Message::End(end)) => {
                    let bytes = writer.bytes();
                    writer.finish(&end)?;
                    return Ok(Recorded {
                        end: Some(*end),
                        bytes,
                    });
                }
                Err(RecvTimeoutError::Timeout) => {
                    writer.flush()?;
                    // Perhaps there are no new events, and the last ones are in a chunk that is not full.
                    let _ = self
                        .handle
                        .call(|driver, world| driver.hand_over(world.now()));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let end = self
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let bytes = writer.bytes();
        match &end {
            Some(end) => drop(writer.finish(end)?),
            None => writer.flush()?,
        }
        Ok(Recorded { end, bytes })
    }
}
