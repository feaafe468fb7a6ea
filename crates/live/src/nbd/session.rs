//! One connection, which is served by its reader thread, or by the engine's thread if that is faster.
//!
//! For a client that sends small requests, a thread of its own only causes two thread switches for each request, or for each few. So the
//! reader lends such a session to the engine's thread, which watches the socket in its ring and receives without waiting. If there is
//! anything for which it might have to wait (block status, lack of memory, large requests, many of moderate size at once, the end), the
//! session goes back to the reader.
//!
//! ```text
//!  reader thread ── LIGHT receives in succession ───────► engine's thread (a `Source`)
//!        ▲                                                      │
//!        └── HEAVY receives, large, must wait, end ◄────────────┘
//! ```

mod lent;

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_core::RequestOp;

use super::outbox::{Outbox, Reply, Tail};
use super::pending_reply::{PendingReply, failed, succeeded};
use super::proto::{Close, Command, Connection, Event, Export, Limits, MAX_UNIT, Request};
use super::socket;
use super::time_limits::TimeLimits;
use crate::mutants::{LiveMutant, broken};
use crate::port::{Buffer, Completion, IoRequest, Port, Share};
use crate::server::Handle;
use lent::lend;

/// Number of bytes received at once: sixteen 4 KiB writes with their headers.
const INPUT_BYTES: usize = 68 << 10;
/// Size from which a payload is received in place, and only the following header with it, so that a stream of large writes is never copied.
/// Below this size, one copy costs less than a system call.
const IN_PLACE_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 28;
/// Slowest accepted transfer of a WRITE's payload in bytes per second, in addition to the time that any payload may take.
const PAYLOAD_RATE: u64 = 1 << 20;
const _: () = assert!(INPUT_BYTES > MAX_UNIT + HEADER_BYTES);
/// Number of consecutive receives with one request each, or with small ones only, after which the session is lent.
const LIGHT: u32 = 16;
/// Number of consecutive receives with several requests, not all of them small, after which it is returned.
const HEAVY: u32 = 4;
/// Requests up to this size are small: if many come together, copying them costs less than two threads that wake each other.
const SMALL_BYTES: u32 = 16 << 10;
/// Largest request that the engine's thread receives, in bytes: copying more would delay others.
const LENT_BYTES: u32 = 64 << 10;

/// The way in which a connection ended.
pub(super) enum End {
    /// The socket failed.
    Lost,
    /// The protocol ended it.
    Closed(Close),
    /// The peer closed the socket.
    Eof,
    /// The peer stopped in the middle of a message.
    Stalled,
}

struct Session {
    /// Called when the peer has chosen the export; returns false if there are too many clients.
    admit: Option<Admit>,
    port: Arc<dyn Port>,
    /// Its share of the port's memory.
    share: Option<Arc<Share>>,
    time_limits: TimeLimits,
    begun: Instant,
    outbox: Arc<Outbox>,
    connection: Connection,
    stopping: Arc<AtomicBool>,
    /// The engine's thread, if sessions can be lent to it.
    engine: Option<Handle>,
    /// Whether this is the engine's thread, which must never wait.
    lent: bool,
    /// An event that the other thread has to handle.
    pending: Option<Event>,
    /// Number of requests since the last receive, of those among them that are not small, and of consecutive receives after which the
    /// engine's thread should serve, or should not.
    requests: u32,
    not_small: u32,
    light: u32,
    heavy: u32,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// Number of bytes to receive next, beyond those that were interpreted.
    appetite: usize,
    /// The WRITE whose payload is being received.
    writing: Option<Writing>,
}

/// See [`Session::admit`].
pub(super) type Admit = Box<dyn FnOnce() -> bool + Send>;

struct Writing {
    request: Request,
    buffer: Buffer,
    filled: usize,
    /// All of it must have arrived by this time.
    until: Instant,
}

/// Serves one peer until it leaves. When it returns, every request has ended.
pub(super) fn run(
    admit: Admit,
    port: Arc<dyn Port>,
    engine: Option<Handle>,
    export: Arc<Export>,
    (limits, time_limits): (Limits, TimeLimits),
    outbox: &Arc<Outbox>,
    stopping: Arc<AtomicBool>,
) -> End {
    let (connection, greeting) = Connection::new(export, limits);
    let mut session = Session {
        admit: Some(admit),
        share: port.share(),
        time_limits,
        begun: Instant::now(),
        port,
        outbox: Arc::clone(outbox),
        connection,
        stopping,
        engine,
        lent: false,
        pending: None,
        requests: 0,
        not_small: 0,
        light: 0,
        heavy: 0,
        input: vec![0; INPUT_BYTES].into_boxed_slice(),
        start: 0,
        end: 0,
        appetite: INPUT_BYTES,
        writing: None,
    };
    let greeted = socket::set_send_timeout(outbox.socket(), time_limits.transmission)
        .and_then(|()| socket::send_all(outbox.socket(), &greeting));
    let end = match greeted {
        Ok(()) => loop {
            if let Some(end) = session.serve() {
                break end;
            }
            match lend(session) {
                Some(back) => session = back,
                // The session is lost only if the engine's thread panicked.
                None => break End::Lost,
            }
        },
        Err(_) => End::Lost,
    };
    if matches!(end, End::Lost | End::Stalled) {
        outbox.give_up();
    }
    outbox.uncork();
    outbox.drain();
    end
}

impl Session {
    fn next(&mut self) -> (usize, Option<Event>) {
        if let Some(event) = self.pending.take() {
            return (0, Some(event));
        }
        if self.stopping.load(Ordering::Relaxed) {
            self.connection.shut_down();
        }
        let (used, event) = self.connection.receive(&self.input[self.start..self.end]);
        self.start += used;
        (used, event)
    }

    /// Serves on the reader's thread. `None`: the session should be lent to the engine's thread.
    fn serve(&mut self) -> Option<End> {
        loop {
            let (used, event) = self.next();
            let outcome = match event {
                None if used != 0 => Ok(true),
                None if self.light >= LIGHT && self.engine.is_some() => {
                    self.pause();
                    return None;
                }
                None => self.fill(),
                Some(Event::Payload { left }) => self.payload(left as usize),
                Some(Event::Request(request)) => {
                    self.note(&request);
                    self.carry_out(request);
                    Ok(true)
                }
                Some(Event::Refuse(ticket, error)) => {
                    self.outbox.answer(failed(&ticket, error));
                    Ok(true)
                }
                Some(Event::Send(bytes)) => self.handshake(&bytes),
                Some(Event::Hold) => Ok(self.hold()),
                Some(Event::Close(why)) => return Some(End::Closed(why)),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => {
                    if let Some(half) = self
                        .writing
                        .take_if(|_| broken(LiveMutant::WriteHalfPayload))
                    {
                        self.submit(half.request, RequestOp::Write, Some(half.buffer));
                    }
                    return Some(End::Eof);
                }
                Err(e) if e.kind() == io::ErrorKind::TimedOut => return Some(End::Stalled),
                Err(_) => return Some(End::Lost),
            }
        }
    }

    /// Handles the available input, on the engine's thread. Returns false if the reader must continue.
    fn take_some(&mut self) -> bool {
        // The descriptor is known to be readable only for the first call.
        let mut received = false;
        loop {
            let (used, event) = self.next();
            let outcome = match event {
                None if used != 0 => Ok(true),
                None if received || self.heavy >= HEAVY => return self.heavy < HEAVY,
                None => {
                    received = true;
                    self.fill()
                }
                Some(Event::Payload { left }) => self.payload(left as usize),
                Some(Event::Request(request)) if self.is_for_engine(&request) => {
                    self.note(&request);
                    self.carry_out(request);
                    Ok(true)
                }
                Some(event) => {
                    self.pending = Some(event);
                    return false;
                }
            };
            match outcome {
                Ok(true) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                // The reader thread will find the same end of the stream.
                Ok(false) | Err(_) => return false,
            }
        }
    }

    /// Counts a request for the choice of the thread.
    fn note(&mut self, request: &Request) {
        self.requests += 1;
        self.not_small += u32::from(request.len > SMALL_BYTES);
        if request.len > LENT_BYTES {
            // This keeps the session with the reader.
            self.requests += 1;
        }
    }

    fn is_for_engine(&self, request: &Request) -> bool {
        let simple = matches!(
            request.command,
            Command::Read | Command::Write | Command::Flush
        );
        let bytes = request.len as usize + 2 * self.port.engine_block() as usize;
        let has = |share: &Arc<Share>| share.has(bytes);
        simple && request.len <= LENT_BYTES && self.share.as_ref().is_some_and(has)
    }

    /// Memory from this connection's share. Waits, except on the engine's thread.
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        match &self.share {
            Some(share) if self.lent => share.buffer_now(offset, len, self.port.engine_block()),
            Some(share) => share.buffer(offset, len, self.port.engine_block()),
            None => self.port.buffer(offset, len),
        }
    }

    /// The error for a receive that got no bytes in time.
    fn stalled(&self, e: io::Error) -> io::Error {
        if !self.lent && e.kind() == io::ErrorKind::WouldBlock {
            io::ErrorKind::TimedOut.into()
        } else {
            e
        }
    }

    /// From now on replies accumulate; not on the engine's thread, which sends each reply at once.
    fn cork(&self) {
        if !self.lent {
            self.outbox.cork();
        }
    }

    /// Sends handshake replies, before more options are read. Returns false if there is no room for the client.
    fn handshake(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let in_transmission = self.connection.in_transmission();
        if in_transmission && self.admit.take().is_some_and(|admit| !admit()) {
            return Ok(false);
        }
        socket::send_all(self.outbox.socket(), bytes)?;
        if in_transmission {
            socket::set_receive_timeout(self.outbox.socket(), self.time_limits.transmission)?;
        }
        Ok(true)
    }

    /// Sends the replies; called before every wait.
    fn pause(&mut self) {
        let (requests, bytes) = self.outbox.uncork();
        self.connection.release(requests, bytes);
    }

    /// Receives more bytes. Returns false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        self.pause();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start != 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let is_small = std::mem::take(&mut self.not_small) == 0;
        (self.light, self.heavy) = match std::mem::take(&mut self.requests) {
            0 => (self.light, self.heavy),
            n if n > 1 && !is_small => (0, self.heavy + 1),
            _ => (self.light + 1, 0),
        };
        if !self.connection.in_transmission() {
            let left = self.time_limits.handshake.checked_sub(self.begun.elapsed());
            let left = left
                .filter(|l| !l.is_zero())
                .ok_or(io::ErrorKind::TimedOut)?;
            socket::set_receive_timeout(self.outbox.socket(), left)?;
        }
        let until = self.input.len().min(self.end + self.appetite);
        let received = socket::receive(
            self.outbox.socket(),
            &mut [IoSliceMut::new(&mut self.input[self.end..until])],
            !self.lent,
        );
        let n = match received {
            // After the choice of an export, a client may be idle.
            Err(e) if !self.lent && e.kind() == io::ErrorKind::WouldBlock => {
                self.cork();
                return Ok(true);
            }
            other => other?,
        };
        self.appetite = INPUT_BYTES;
        self.end += n;
        self.cork();
        Ok(n != 0)
    }

    /// Passes payload to its buffer: received bytes by copying, the rest directly from the socket.
    fn payload(&mut self, left: usize) -> io::Result<bool> {
        let Some(mut writing) = self.writing.take() else {
            return Err(io::Error::other("payload without a request"));
        };
        let here = left.min(self.end - self.start);
        let mut taken = here;
        writing.buffer[writing.filled..writing.filled + here]
            .copy_from_slice(&self.input[self.start..self.start + here]);
        self.start += here;
        if here < left {
            self.pause();
            // All received bytes are consumed: the input buffer is free for the bytes after the payload.
            let large = writing.buffer.len() >= IN_PLACE_BYTES;
            let beyond = if large {
                HEADER_BYTES
            } else {
                self.input.len()
            };
            if !self.lent && Instant::now() > writing.until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let rest = &mut writing.buffer[writing.filled + here..];
            let rest_bytes = rest.len();
            let received = socket::receive(
                self.outbox.socket(),
                &mut [
                    IoSliceMut::new(rest),
                    IoSliceMut::new(&mut self.input[..beyond]),
                ],
                !self.lent,
            );
            // The bytes copied above are consumed, whatever the socket returns.
            (self.start, self.end) = (0, 0);
            let n = match received {
                Ok(n) if n != 0 => n,
                end => {
                    writing.filled += here;
                    self.connection.payload_received(here as u32);
                    self.writing = Some(writing);
                    return end.map(|_| false).map_err(|e| self.stalled(e));
                }
            };
            self.cork();
            let placed = n.min(rest_bytes);
            taken += placed;
            (self.start, self.end) = (0, n - placed);
            self.appetite = if large {
                HEADER_BYTES - self.end
            } else {
                INPUT_BYTES
            };
            self.appetite = self.appetite.max(1);
        }
        writing.filled += taken;
        if self.connection.payload_received(taken as u32) {
            self.submit(writing.request, RequestOp::Write, Some(writing.buffer));
        } else {
            self.writing = Some(writing);
        }
        Ok(true)
    }

    /// Called when the limits of open requests are reached: waits until a reply was sent.
    fn hold(&mut self) -> bool {
        let before = self.connection.open();
        self.pause();
        if self.connection.open() == before {
            let Some((requests, bytes)) = self.outbox.wait_released() else {
                return false;
            };
            self.connection.release(requests, bytes);
        }
        self.outbox.cork();
        true
    }

    fn carry_out(&mut self, request: Request) {
        let (offset, len) = (request.offset, request.len);
        let op = match request.command {
            Command::BlockStatus { max } => {
                self.pause();
                let runs = self.port.block_status(offset, len, max);
                self.outbox.cork();
                let bytes = request
                    .ticket
                    .block_status(len, &runs[..runs.len().min(max)]);
                self.outbox.answer(Reply {
                    head: None,
                    tail: Tail::Bytes(bytes),
                    payload_bytes: 0,
                });
                return;
            }
            Command::Flush if !broken(LiveMutant::AnswerNbdFlush) => RequestOp::Flush,
            _ if len == 0 => {
                self.outbox.answer(succeeded(&request.ticket, None));
                return;
            }
            Command::Read | Command::Cache => RequestOp::Read,
            Command::Flush | Command::Trim => RequestOp::Discard,
            Command::WriteZeroes { keep } => RequestOp::WriteZeroes {
                keep: keep && !broken(LiveMutant::FreeKeptZeroes),
            },
            Command::Write => {
                let buffer = self.buffer(offset, len);
                let slow = Duration::from_secs(u64::from(len) / PAYLOAD_RATE);
                self.writing = Some(Writing {
                    request,
                    buffer,
                    filled: 0,
                    until: Instant::now() + self.time_limits.transmission + slow,
                });
                return;
            }
        };
        let buffer = matches!(op, RequestOp::Read).then(|| self.buffer(offset, len));
        self.submit(request, op, buffer);
    }

    fn submit(&self, request: Request, op: RequestOp, buffer: Option<Buffer>) {
        let Request {
            command,
            offset,
            len,
            fua,
            ticket,
        } = request;
        self.outbox.begin();
        let data_bytes = (command == Command::Read).then_some(len);
        let pending = PendingReply::new(ticket, Arc::clone(&self.outbox), data_bytes);
        let done = Completion::new(move |result, buffer| pending.complete(result, buffer));
        // A connection has no class: classifiers determine it by address.
        let fua = fua && !broken(LiveMutant::DropNbdFua);
        let request = IoRequest::new(op, offset, len).with_buffer(buffer);
        self.port.submit(request.with_fua(fua), done);
    }
}
