//! One connection: its reader thread.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isotherm_core::{IoError, RequestOp};

use super::outbox::{Outbox, Reply, Tail};
use super::proto::{
    Close, Command, Connection, Errno, Event, Export, Limits, MAX_UNIT, Request, Ticket,
};
use super::socket;
use crate::port::{Buffer, Port};

/// Received bytes at once: sixteen 4 KiB writes with their headers.
const INPUT_BYTES: usize = 68 << 10;
/// Payload from which on it is received in place, and the following header alone with it, so that a stream of large
/// writes is never copied. Below, one copy costs less than a system call.
const IN_PLACE_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 28;
/// How long a peer may be silent before it has chosen an export.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
const _: () = assert!(INPUT_BYTES > MAX_UNIT + HEADER_BYTES);

/// How a connection ended.
pub(super) enum End {
    /// The socket failed.
    Lost,
    /// The protocol ended it.
    Closed(Close),
    /// The peer closed the socket.
    Eof,
}

struct Session<'a> {
    port: &'a dyn Port,
    outbox: &'a Arc<Outbox>,
    connection: Connection,
    stopping: &'a AtomicBool,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// How much to receive next, beyond what is understood.
    appetite: usize,
    /// The WRITE whose payload is being received.
    writing: Option<Writing>,
}

struct Writing {
    request: Request,
    buffer: Buffer,
    filled: usize,
}

/// Serve one peer until it leaves. Returns with every request completed.
pub(super) fn run(
    port: &dyn Port,
    export: Arc<Export>,
    limits: Limits,
    outbox: &Arc<Outbox>,
    stopping: &AtomicBool,
) -> End {
    let (connection, greeting) = Connection::new(export, limits);
    let mut session = Session {
        port,
        outbox,
        connection,
        stopping,
        input: vec![0; INPUT_BYTES].into_boxed_slice(),
        start: 0,
        end: 0,
        appetite: INPUT_BYTES,
        writing: None,
    };
    let greeted = socket::set_patience(outbox.socket(), Some(HANDSHAKE_PATIENCE))
        .and_then(|()| socket::send_all(outbox.socket(), &greeting));
    let end = match greeted {
        Ok(()) => session.serve(),
        Err(_) => End::Lost,
    };
    if matches!(end, End::Lost) {
        outbox.give_up();
    }
    outbox.uncork();
    outbox.drain();
    end
}

impl Session<'_> {
    fn serve(&mut self) -> End {
        loop {
            if self.stopping.load(Ordering::Relaxed) {
                self.connection.shut_down();
            }
            let (used, event) = self.connection.receive(&self.input[self.start..self.end]);
            self.start += used;
            let outcome = match event {
                None if used != 0 => Ok(true),
                None => self.fill(),
                Some(Event::Payload { left }) => self.payload(left as usize),
                Some(Event::Request(request)) => {
                    self.carry_out(request);
                    Ok(true)
                }
                Some(Event::Refuse(ticket, error)) => {
                    self.outbox.answer(failed(&ticket, error));
                    Ok(true)
                }
                Some(Event::Send(bytes)) => self.handshake(&bytes),
                Some(Event::Hold) => Ok(self.hold()),
                Some(Event::Close(why)) => return End::Closed(why),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => return End::Eof,
                Err(_) => return End::Lost,
            }
        }
    }

    /// Handshake replies are sent from here, before more options are read.
    fn handshake(&mut self, bytes: &[u8]) -> io::Result<bool> {
        socket::send_all(self.outbox.socket(), bytes)?;
        if self.connection.in_transmission() {
            // Idle clients are welcome from here on.
            socket::set_patience(self.outbox.socket(), None)?;
        }
        Ok(true)
    }

    /// Before every wait: let the replies go.
    fn pause(&mut self) {
        let (requests, bytes) = self.outbox.uncork();
        self.connection.release(requests, bytes);
    }

    /// Receive more. False at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        self.pause();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start != 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let until = self.input.len().min(self.end + self.appetite);
        self.appetite = INPUT_BYTES;
        let n = socket::receive(
            self.outbox.socket(),
            &mut [IoSliceMut::new(&mut self.input[self.end..until])],
        )?;
        self.end += n;
        self.outbox.cork();
        Ok(n != 0)
    }

    /// Move payload on: what is here by copying, the rest from the socket in place.
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
            // Everything received is consumed: the input is free for what follows the payload.
            let large = writing.buffer.len() >= IN_PLACE_BYTES;
            let beyond = if large {
                HEADER_BYTES
            } else {
                self.input.len()
            };
            let rest = &mut writing.buffer[writing.filled + here..];
            let rest_bytes = rest.len();
            let n = socket::receive(
                self.outbox.socket(),
                &mut [
                    IoSliceMut::new(rest),
                    IoSliceMut::new(&mut self.input[..beyond]),
                ],
            )?;
            if n == 0 {
                self.writing = Some(writing);
                return Ok(false);
            }
            self.outbox.cork();
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

    /// Too much is open: wait for a reply to go out.
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
            Command::Flush => RequestOp::Flush,
            _ if len == 0 => {
                self.outbox.answer(succeeded(&request.ticket, None));
                return;
            }
            Command::Read | Command::Cache => RequestOp::Read,
            Command::Trim => RequestOp::Discard,
            Command::WriteZeroes { keep } => RequestOp::WriteZeroes { keep },
            Command::Write => {
                let buffer = self.port.buffer(offset, len);
                self.writing = Some(Writing {
                    request,
                    buffer,
                    filled: 0,
                });
                return;
            }
        };
        let buffer = matches!(op, RequestOp::Read).then(|| self.port.buffer(offset, len));
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
        let owed = Owed {
            ticket,
            outbox: Arc::clone(self.outbox),
            data_bytes,
            paid: false,
        };
        let done = Box::new(move |result, buffer| owed.pay(result, buffer));
        // A connection carries no class: classifiers know better, by address.
        self.port.submit(op, offset, len, fua, 0, buffer, done);
    }
}

/// A reply that the client waits for. Dropped without an answer (the engine ended), it says so.
struct Owed {
    ticket: Ticket,
    outbox: Arc<Outbox>,
    data_bytes: Option<u32>,
    paid: bool,
}

impl Owed {
    fn pay(mut self, result: Result<(), IoError>, buffer: Option<Buffer>) {
        self.paid = true;
        let reply = match (result, self.data_bytes, buffer) {
            (Err(error), ..) => failed(&self.ticket, error.into()),
            (Ok(()), None, _) => succeeded(&self.ticket, None),
            (Ok(()), Some(len), Some(data)) if data.len() == len as usize => {
                succeeded(&self.ticket, Some(data))
            }
            // A read without its data is a fault of the port: no bytes are better than wrong ones.
            (Ok(()), Some(_), _) => failed(&self.ticket, Errno::Io),
        };
        self.outbox.complete(reply);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.paid {
            self.outbox.complete(failed(&self.ticket, Errno::Shutdown));
        }
    }
}

fn succeeded(ticket: &Ticket, data: Option<Buffer>) -> Reply {
    let tail = data.map_or(Tail::None, Tail::Data);
    Reply {
        head: Some(ticket.success()),
        tail,
        payload_bytes: ticket.payload_bytes(),
    }
}

fn failed(ticket: &Ticket, error: Errno) -> Reply {
    Reply {
        head: Some(ticket.failure(error)),
        tail: Tail::None,
        payload_bytes: ticket.payload_bytes(),
    }
}
