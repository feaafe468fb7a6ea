//! The protocol without sockets, threads or clock: bytes are the input, events the output.
//!
//! A [`Connection`] is one peer. Its owner keeps the received bytes, calls [`Connection::receive`] with them, drops the consumed bytes and
//! acts on the event. The payload of a WRITE never passes through here: the event [`Event::Payload`] means that the next bytes belong to
//! the request that was just announced, and the owner may receive them directly into that request's buffer. The code that completes a
//! request builds the reply from the request's [`Ticket`], on any thread.
//!
//! Invariant: no code here panics or needs unbounded memory, whatever the peer sends. A connection holds no received bytes, the owner needs
//! at most [`MAX_UNIT`] of them until a message is understood, and at most `limits` requests are open.

#[cfg(test)]
mod fuzz;
mod handshake;
mod reply;
pub(super) mod starttls;
#[cfg(test)]
mod tests;
mod transmission;
mod wire;

use std::fmt;
use std::sync::Arc;

pub use reply::{Head, Ticket};

/// Longest READ or WRITE in bytes, as announced to the client.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// Longest WRITE that is refused while the stream stays in step; a longer one ends the connection.
const MAX_SKIPPED_PAYLOAD: u32 = 2 * MAX_PAYLOAD;
/// Longest understood option data in bytes: a name of 4096 bytes, and as much again for the other fields.
const MAX_OPTION: u32 = 8192;
/// Longest option that is refused while the stream stays in step.
const MAX_SKIPPED_OPTION: u32 = 1 << 20;
/// The specification's limit of strings, in bytes.
const MAX_STRING: usize = 4096;
/// Largest number of options in a handshake. Known clients send at most about ten.
const MAX_OPTIONS: u32 = 256;
/// [`Connection::receive`] understands every message once it has this many bytes of it.
pub const MAX_UNIT: usize = 16 + MAX_OPTION as usize;
/// Length of the server's first message.
pub const GREETING_BYTES: usize = 18;

/// The volume as it is exported.
#[derive(Clone, Debug)]
pub struct Export {
    /// The volume's name; the empty name refers to it, too. At most 4096 bytes.
    pub name: String,
    /// For people, shown by `nbdinfo`. At most 4096 bytes.
    pub description: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Refuse everything that writes.
    pub read_only: bool,
}

/// Limits on the open requests of a peer; beyond either limit, [`Event::Hold`] stops reading.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests without a sent reply, at least 1.
    pub requests: u32,
    /// Payload bytes of those requests. One request may exceed the limit, by at most [`MAX_PAYLOAD`].
    pub bytes: u64,
}

impl Default for Limits {
    /// Four times the deepest queue in common use (64), and two payloads of the largest size.
    fn default() -> Limits {
        Limits {
            requests: 256,
            bytes: 2 * u64::from(MAX_PAYLOAD),
        }
    }
}

/// Errors that a client can receive, with the numbers of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the volume is read-only.
    Perm = 1,
    /// A device failed.
    Io = 5,
    /// Bad range, flags or length.
    Inval = 22,
    /// No space, or a write past the end.
    NoSpc = 28,
    /// An unfragmented read that is too long.
    Overflow = 75,
    /// Zeroing this would not be fast.
    NotSup = 95,
    /// The server is going down.
    Shutdown = 108,
}

impl From<isotherm_core::IoError> for Errno {
    fn from(error: isotherm_core::IoError) -> Errno {
        use isotherm_core::IoError as E;
        match error {
            // The protocol has no ENODEV.
            E::Io | E::Gone => Errno::Io,
            E::NoSpace => Errno::NoSpc,
            E::Invalid => Errno::Inval,
            E::ReadOnly => Errno::Perm,
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reply with `len` bytes.
    Read,
    /// Write `len` bytes; [`Event::Payload`] follows if `len` is not 0.
    Write,
    /// Make all writes durable that were answered so far.
    Flush,
    /// The range is not used any more.
    Trim,
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// Space must stay allocated (`NO_HOLE`).
        keep: bool,
    },
    /// The range will be read soon.
    Cache,
    /// Return the allocation of the range as at most `max` runs, with [`Ticket::block_status`].
    BlockStatus {
        /// Number of runs.
        max: usize,
    },
}

/// One valid request: its range lies inside the export and its flags are allowed.
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub command: Command,
    /// First byte.
    pub offset: u64,
    /// Length in bytes. 0 is possible for reads, writes and similar requests, and means success without work.
    pub len: u32,
    /// Whether it must be durable before the reply.
    pub fua: bool,
    /// The ticket for the reply.
    pub ticket: Ticket,
}

/// The reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The client ends the connection: answer the open requests, then close.
    Disconnect,
    /// The client ended the handshake.
    Abort,
    /// The client broke the protocol, and the stream can no longer be understood.
    Violation(&'static str),
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Close::Disconnect => f.write_str("the client disconnected"),
            Close::Abort => f.write_str("the client ended the handshake"),
            Close::Violation(what) => write!(f, "protocol violation: {what}"),
        }
    }
}

/// The next step for the connection's owner.
#[derive(Debug)]
pub enum Event {
    /// Send these handshake bytes.
    Send(Vec<u8>),
    /// Carry this out and reply through its ticket.
    Request(Request),
    /// The next `left` bytes are payload of the last request. Put them (or some of them) into its buffer, and report this with
    /// [`Connection::payload_received`].
    Payload {
        /// Bytes, not 0.
        left: u32,
    },
    /// Reply with this error.
    Refuse(Ticket, Errno),
    /// The limits of open requests are reached: receive again after [`Connection::release`].
    Hold,
    /// Receive no more.
    Close(Close),
}

enum State {
    ClientFlags,
    Options,
    SkipOption {
        option: u32,
        left: u32,
    },
    Requests,
    Payload {
        left: u32,
    },
    SkipPayload {
        left: u32,
        ticket: Ticket,
        error: Errno,
    },
    Closed(Close),
}

/// One peer, from the first byte to the last.
pub struct Connection {
    export: Arc<Export>,
    limits: Limits,
    state: State,
    options_seen: u32,
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    allocation: bool,
    shutting_down: bool,
    open: u32,
    open_bytes: u64,
}

impl Connection {
    /// A new peer, and the greeting to send to it.
    pub fn new(export: Arc<Export>, limits: Limits) -> (Connection, [u8; GREETING_BYTES]) {
        let connection = Connection {
            export,
            limits,
            state: State::ClientFlags,
            options_seen: 0,
            fixed: false,
            no_zeroes: false,
            structured: false,
            allocation: false,
            shutting_down: false,
            open: 0,
            open_bytes: 0,
        };
        (connection, handshake::greeting())
    }

    /// Interprets the front of `input`: returns the number of consumed bytes, and an event, if any. `(0, None)` means that more bytes are
    /// needed.
    pub fn receive(&mut self, input: &[u8]) -> (usize, Option<Event>) {
        match self.state {
            State::ClientFlags => self.client_flags(input),
            State::Options => self.option(input),
            State::SkipOption { option, left } => self.skip_option(option, left, input),
            State::Requests => self.request(input),
            State::Payload { left } => (0, Some(Event::Payload { left })),
            State::SkipPayload { .. } => self.skip_payload(input),
            State::Closed(why) => (0, Some(Event::Close(why))),
        }
    }

    /// `n` bytes of payload reached their buffer; returns true if they were the last ones.
    pub fn payload_received(&mut self, n: u32) -> bool {
        let State::Payload { left } = &mut self.state else {
            return true;
        };
        *left = left.saturating_sub(n);
        if *left == 0 {
            self.state = State::Requests;
            return true;
        }
        false
    }

    /// Replies were sent: their number, and the sum of their [`Ticket::payload_bytes`].
    pub fn release(&mut self, requests: u32, bytes: u64) {
        self.open = self.open.saturating_sub(requests);
        self.open_bytes = self.open_bytes.saturating_sub(bytes);
    }

    /// Number of requests whose replies were not released yet.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// The handshake is over.
    pub fn in_transmission(&self) -> bool {
        matches!(
            self.state,
            State::Requests | State::Payload { .. } | State::SkipPayload { .. }
        )
    }

    /// From now on every new request is answered with `ESHUTDOWN`.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    fn close(&mut self, why: Close) -> Event {
        self.state = State::Closed(why);
        Event::Close(why)
    }

    fn violation(&mut self, what: &'static str) -> Event {
        self.close(Close::Violation(what))
    }

    /// Adds a request to the open ones.
    fn ticket(
        &mut self,
        cookie: u64,
        kind: reply::Kind,
        offset: u64,
        payload_bytes: u32,
    ) -> Ticket {
        self.open += 1;
        self.open_bytes += u64::from(payload_bytes);
        Ticket::new(cookie, kind, offset, payload_bytes)
    }
}
