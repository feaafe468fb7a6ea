//! Answers to one initiator, the status and command numbers in them, and the window of commands.
//!
//! Completions queue answers on the engine's thread and never wait; a writer thread sends them. A command occupies a place in the window
//! until its answer is about to be sent.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::login::Terms;
use super::pdu::{HEADER, Header, NO_TAG, Order, header, put, put_data_len};
use super::sense::Sense;
use crate::port::Buffer;

/// Maximum number of open commands of an initiator.
pub(super) const WINDOW: u32 = 128;
/// Maximum number of immediate commands in addition to those; an initiator with more open commands violates the protocol.
const IMMEDIATE: u32 = 64;
/// Interval of the check whether the volume has answered, after an initiator was fenced off.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Number of bytes that are collected before they are sent.
const GATHER: usize = 64 << 10;

/// The payload of an answer.
pub(super) enum Body {
    None,
    Bytes(Vec<u8>),
    Memory(Buffer),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::None => &[],
            Body::Bytes(b) => b,
            Body::Memory(b) => b,
        }
    }
}

/// The kind of command that an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// The answer ends no command.
    Nothing,
    /// An immediate command, which used no number.
    Immediate,
    /// A command of the window.
    Numbered,
}

impl Ends {
    pub(super) fn of(order: Order) -> Ends {
        if order.immediate {
            Ends::Immediate
        } else {
            Ends::Numbered
        }
    }
}

pub(super) enum Kind {
    /// The answer uses a status number.
    Status,
    /// The answer carries the next status number without using it (R2T).
    Plain,
    /// The payload is sent as a sequence of Data-In PDUs, the last one with good status.
    Data,
}

pub(super) struct Item {
    pub header: Header,
    pub body: Body,
    pub kind: Kind,
    pub ends: Ends,
}

struct State {
    queue: VecDeque<Item>,
    /// Next command number.
    exp_cmd_sn: u32,
    /// Commands of the window without an answer.
    numbered: u32,
    /// Commands whose answers were not sent.
    open: u32,
    dead: bool,
    closing: bool,
}

pub(super) struct Outbox {
    socket: TcpStream,
    /// Commands that the volume is executing or is about to get.
    at_volume: AtomicU32,
    state: Mutex<State>,
    writer: Condvar,
    /// Signals that fewer commands are open.
    sent: Condvar,
}

/// See [`Outbox::enter_volume`].
pub(super) struct AtVolume(Arc<Outbox>);

impl AtVolume {
    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.0
    }
}

impl Drop for AtVolume {
    fn drop(&mut self) {
        self.0.at_volume.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns true if `a` is before `b` in serial number arithmetic (RFC 1982).
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Outbox {
    pub(super) fn new(socket: TcpStream) -> Outbox {
        Outbox {
            socket,
            at_volume: AtomicU32::new(0),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                exp_cmd_sn: 0,
                numbered: 0,
                open: 0,
                dead: false,
                closing: false,
            }),
            writer: Condvar::new(),
            sent: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Counts a command as being at the volume until the returned value is dropped.
    pub(super) fn enter_volume(self: &Arc<Self>) -> AtVolume {
        self.at_volume.fetch_add(1, Ordering::SeqCst);
        AtVolume(Arc::clone(self))
    }

    /// Waits until the volume has none of the initiator's commands. The caller must prevent new ones in this time.
    pub(super) fn wait_for_volume(&self) {
        while self.at_volume.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// The first command number.
    pub(super) fn begin(&self, cmd_sn: u32) {
        self.lock().exp_cmd_sn = cmd_sn;
    }

    /// Accepts a command that has arrived. `None`: it is outside of the window or out of order, and is ignored. An error: there are too
    /// many immediate commands.
    pub(super) fn accept(&self, order: Order) -> Result<bool, ()> {
        let mut state = self.lock();
        if state.dead {
            return Ok(false);
        }
        if order.immediate {
            if state.open - state.numbered >= IMMEDIATE + WINDOW {
                return Err(());
            }
        } else {
            let (exp, max) = window(&state);
            if order.cmd_sn != exp || is_before(max, order.cmd_sn) {
                return Ok(false);
            }
            state.exp_cmd_sn = exp.wrapping_add(1);
            state.numbered += 1;
        }
        state.open += 1;
        Ok(true)
    }

    /// Records that a command ends without an answer.
    pub(super) fn forget(&self, ends: Ends) {
        let mut state = self.lock();
        state.numbered -= u32::from(ends == Ends::Numbered);
        state.open -= u32::from(ends != Ends::Nothing);
        self.sent.notify_all();
    }

    /// Queues an answer; does not wait.
    pub(super) fn push(&self, item: Item) {
        let mut state = self.lock();
        if state.dead {
            state.numbered -= u32::from(item.ends == Ends::Numbered);
            state.open -= u32::from(item.ends != Ends::Nothing);
            self.sent.notify_all();
        } else {
            state.queue.push_back(item);
            self.writer.notify_one();
        }
    }

    /// Queues the result of a SCSI command. `residual`: the number of bytes by which the command exceeds (or falls short of) the
    /// initiator's expectation.
    pub(super) fn respond(&self, itt: u32, ends: Ends, sense: Option<Sense>, residual: i64) {
        let mut b = header(0x21, 0x80, itt);
        put_residual(&mut b, residual);
        let mut body = Body::None;
        if let Some(sense) = sense {
            b[3] = 2;
            let mut bytes = vec![0, super::scsi::SENSE as u8];
            bytes.extend_from_slice(&sense.bytes());
            body = Body::Bytes(bytes);
        }
        self.push(Item {
            header: b,
            body,
            kind: Kind::Status,
            ends,
        });
    }

    /// Queues a reservation conflict.
    pub(super) fn conflict(&self, itt: u32, ends: Ends) {
        let mut b = header(0x21, 0x80, itt);
        b[3] = 0x18;
        self.push(Item {
            header: b,
            body: Body::None,
            kind: Kind::Status,
            ends,
        });
    }

    /// Queues the data of a read.
    pub(super) fn give(&self, itt: u32, ends: Ends, body: Body, residual: i64) {
        if body.bytes().is_empty() {
            return self.respond(itt, ends, None, residual);
        }
        let mut b = header(0x25, 0, itt);
        put(&mut b, 20, NO_TAG);
        put_residual(&mut b, residual);
        self.push(Item {
            header: b,
            body,
            kind: Kind::Data,
            ends,
        });
    }

    /// Waits until at most `left` commands are open. Returns false if the initiator is gone.
    pub(super) fn wait(&self, left: u32) -> bool {
        let mut state = self.lock();
        while state.open > left && !state.dead {
            state = self
                .sent
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        !state.dead
    }

    /// Records that the initiator is gone: drops the queued answers and all later ones.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        state.dead = true;
        // This wakes the reader and the writer. It fails only if the socket was shut down before.
        let _ = self.socket.shutdown(Shutdown::Both);
        for item in std::mem::take(&mut state.queue) {
            state.numbered -= u32::from(item.ends == Ends::Numbered);
            state.open -= u32::from(item.ends != Ends::Nothing);
        }
        self.sent.notify_all();
        self.writer.notify_all();
    }

    /// Ends the writer as soon as the queue is empty.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.writer.notify_all();
    }

    /// The writer thread.
    pub(super) fn run_writer(&self, mut stat_sn: u32, terms: &Terms) {
        let mut bytes = Vec::with_capacity(GATHER + HEADER);
        // Changes places with the queue, so that neither is allocated again.
        let mut taken = VecDeque::new();
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() {
                if state.closing || state.dead {
                    return;
                }
                state = self
                    .writer
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut taken, &mut state.queue);
            // Answering these commands makes room in the window; the answers report the new window.
            let numbered = taken.iter().filter(|i| i.ends == Ends::Numbered).count();
            state.numbered -= numbered as u32;
            let window = window(&state);
            drop(state);
            let ended = taken.iter().filter(|i| i.ends != Ends::Nothing).count() as u32;
            let mut result = Ok(());
            for item in taken.drain(..) {
                result = result.and_then(|()| {
                    let mut out = Sender {
                        socket: &self.socket,
                        bytes: &mut bytes,
                        window,
                        stat_sn: &mut stat_sn,
                    };
                    out.item(&item, terms)
                });
            }
            let result = result.and_then(|()| (&self.socket).write_all(&bytes));
            bytes.clear();
            let mut state = self.lock();
            state.open -= ended;
            self.sent.notify_all();
            drop(state);
            if result.is_err() {
                return self.give_up();
            }
        }
    }
}

fn window(state: &State) -> (u32, u32) {
    let exp = state.exp_cmd_sn;
    (
        exp,
        exp.wrapping_add(WINDOW - state.numbered).wrapping_sub(1),
    )
}

fn put_residual(b: &mut Header, residual: i64) {
    match residual {
        0 => {}
        over if over > 0 => b[1] |= 4,
        _ => b[1] |= 2,
    }
    put(b, 44, residual.unsigned_abs() as u32);
}

struct Sender<'a> {
    socket: &'a TcpStream,
    bytes: &'a mut Vec<u8>,
    window: (u32, u32),
    stat_sn: &'a mut u32,
}

impl Sender<'_> {
    fn item(&mut self, item: &Item, terms: &Terms) -> io::Result<()> {
        let body = item.body.bytes();
        match item.kind {
            Kind::Plain => self.pdu(item.header, body, Some(0)),
            Kind::Status => self.pdu(item.header, body, Some(1)),
            Kind::Data => {
                let (most, burst) = (terms.max_send as usize, terms.max_burst as usize);
                let (mut at, mut in_burst) = (0, 0);
                for data_sn in 0.. {
                    let n = (body.len() - at).min(most).min(burst - in_burst);
                    let is_end = at + n == body.len();
                    in_burst = (in_burst + n) % burst;
                    let mut b = item.header;
                    put(&mut b, 36, data_sn);
                    put(&mut b, 40, at as u32);
                    if is_end {
                        b[1] |= 0x81;
                    } else {
                        b[1] = if in_burst == 0 { 0x80 } else { 0 };
                        put(&mut b, 44, 0);
                    }
                    self.pdu(b, &body[at..at + n], is_end.then_some(1))?;
                    at += n;
                    if is_end {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// `stat`: the number of status numbers that the PDU uses, if it carries one.
    fn pdu(&mut self, mut b: Header, body: &[u8], stat: Option<u32>) -> io::Result<()> {
        if let Some(n) = stat {
            put(&mut b, 24, *self.stat_sn);
            *self.stat_sn = self.stat_sn.wrapping_add(n);
        }
        put(&mut b, 28, self.window.0);
        put(&mut b, 32, self.window.1);
        put_data_len(&mut b, body.len());
        self.bytes.extend_from_slice(&b);
        if body.len() >= GATHER / 4 {
            self.flush()?;
            let mut socket = self.socket;
            socket.write_all(body)?;
        } else {
            self.bytes.extend_from_slice(body);
        }
        let padding = body.len().wrapping_neg() & 3;
        self.bytes.extend_from_slice(&[0; 3][..padding]);
        if self.bytes.len() >= GATHER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut socket = self.socket;
        socket.write_all(self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}
