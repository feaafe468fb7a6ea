//! The replies to one peer that were not sent yet.
//!
//! Replies are sent by a thread that is awake, so that a lone request (queue depth 1) costs no thread switch, and several replies share a
//! system call:
//!
//! - While the reader handles received requests, replies accumulate; it sends them before it waits for more. The engine's thread does the
//!   same while it serves the session.
//! - Otherwise a completion sends at once, on the engine's thread, if no other request is open and the socket accepts it.
//! - Otherwise, or if the socket is full, the writer thread sends all accumulated replies.
//!
//! Only one thread sends at a time, in the order of completion.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::net::Shutdown;

use super::proto::Head;
use super::socket;
use crate::port::Buffer;

/// Largest number of replies in one system call: two parts each, far below the system's 1024.
const BATCH: usize = 64;
/// Largest amount of reply data that may wait while the reader is busy. It limits the memory that replies hold while the reader itself
/// waits for memory.
const CORKED_BYTES: usize = 128 << 10;

/// The data after the head of a reply.
pub(super) enum Tail {
    None,
    Data(Buffer),
    Bytes(Vec<u8>),
}

/// One whole reply.
pub(super) struct Reply {
    pub head: Option<Head>,
    pub tail: Tail,
    /// The bytes that the connection releases when the reply is sent.
    pub payload_bytes: u32,
}

impl Reply {
    fn parts(&self) -> [&[u8]; 2] {
        let head: &[u8] = self.head.as_deref().unwrap_or_default();
        let tail: &[u8] = match &self.tail {
            Tail::None => &[],
            Tail::Data(buffer) => buffer,
            Tail::Bytes(bytes) => bytes,
        };
        [head, tail]
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|p| p.len()).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    None,
    /// A thread that does not wait for the socket.
    Passing,
    /// The writer thread, woken or at work.
    Writer,
}

struct State {
    queue: VecDeque<Reply>,
    queued_bytes: usize,
    /// Number of bytes at the front of the queue that were sent.
    skip: usize,
    sender: Sender,
    /// Whether the reader will send before it waits.
    corked: bool,
    /// Whether the engine's thread serves the session; it sends before it waits.
    lent: bool,
    reader_waits: bool,
    /// Time by which the payload must have arrived that the engine's thread is receiving.
    payload_until: Option<Instant>,
    closing: bool,
    dead: bool,
    released: (u32, u64),
    spare: VecDeque<Reply>,
}

pub(super) struct Outbox {
    socket: OwnedFd,
    /// Number of requests in the engine.
    at_work: AtomicU32,
    /// Whether the peer has chosen the export and so is a client.
    client: AtomicBool,
    state: Mutex<State>,
    writer: Condvar,
    reader: Condvar,
}

impl Outbox {
    pub(super) fn new(socket: OwnedFd) -> Outbox {
        Outbox {
            socket,
            at_work: AtomicU32::new(0),
            client: AtomicBool::new(false),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                queued_bytes: 0,
                skip: 0,
                sender: Sender::None,
                corked: false,
                lent: false,
                reader_waits: false,
                payload_until: None,
                closing: false,
                dead: false,
                released: (0, 0),
                spare: VecDeque::new(),
            }),
            writer: Condvar::new(),
            reader: Condvar::new(),
        }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Called when the handshake is over.
    pub(super) fn become_client(&self) {
        self.client.store(true, Ordering::Release);
    }

    pub(super) fn is_client(&self) -> bool {
        self.client.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called when a request goes to the engine. [`Outbox::complete`] must be called for it later.
    pub(super) fn begin(&self) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the engine's answer, on any thread; does not wait for the socket.
    pub(super) fn complete(&self, reply: Reply) {
        let mut state = self.lock();
        // Under the lock, so that `drained` sees either the request in the engine or its reply in the queue.
        let others = self.at_work.fetch_sub(1, Ordering::Relaxed) - 1;
        Self::push(&mut state, reply);
        if state.dead {
            if state.reader_waits {
                self.reader.notify_all();
            }
            return;
        }
        if state.sender != Sender::None
            || state.lent
            || (state.corked && state.queued_bytes < CORKED_BYTES)
        {
            return;
        }
        if others == 0 && !state.corked {
            drop(self.send_passing(state));
        } else {
            self.wake_writer(&mut state);
        }
    }

    /// Takes the reader's own answer to a request that did not go to the engine.
    pub(super) fn answer(&self, reply: Reply) {
        Self::push(&mut self.lock(), reply);
    }

    fn push(state: &mut State, reply: Reply) {
        if state.dead {
            // The reply will not be read; its memory is free.
            state.released.0 += 1;
            state.released.1 += u64::from(reply.payload_bytes);
            return;
        }
        state.queued_bytes += reply.len();
        state.queue.push_back(reply);
    }

    /// Called when the reader begins to handle received requests. Replies accumulate until it calls [`Outbox::uncork`].
    pub(super) fn cork(&self) {
        self.lock().corked = true;
    }

    /// The engine's thread serves the session from now on: replies accumulate until it has handled all events that came together.
    pub(super) fn lend(&self) {
        self.lock().lent = true;
    }

    /// The engine's thread is receiving a payload, which must be complete at this time; or it is not any more.
    pub(super) fn awaits_payload(&self, until: Option<Instant>) {
        self.lock().payload_until = until;
    }

    /// Whether that time has passed.
    pub(super) fn is_payload_late(&self) -> bool {
        let until = self.lock().payload_until;
        until.is_some_and(|until| Instant::now() > until)
    }

    /// The reader serves the session again.
    pub(super) fn take_back(&self) {
        let mut state = self.lock();
        state.lent = false;
        if state.sender == Sender::None && !state.queue.is_empty() {
            self.wake_writer(&mut state);
        }
    }

    /// The thread that serves the session is about to wait. Sends the accumulated replies, and returns what was sent since the last call.
    pub(super) fn uncork(&self) -> (u32, u64) {
        let mut state = self.lock();
        state.corked = false;
        if state.sender == Sender::None && !state.queue.is_empty() {
            state = self.send_passing(state);
        }
        std::mem::take(&mut state.released)
    }

    /// Waits until at least one reply was sent; returns what was sent. `None`: the peer is gone.
    pub(super) fn wait_released(&self) -> Option<(u32, u64)> {
        let mut state = self.lock();
        loop {
            if state.dead {
                return None;
            }
            if state.released.0 != 0 {
                return Some(std::mem::take(&mut state.released));
            }
            state = self.reader_wait(state);
        }
    }

    /// Waits until every request has ended and its reply was sent or dropped.
    pub(super) fn drain(&self) {
        let mut state = self.lock();
        while self.at_work.load(Ordering::Relaxed) != 0
            || !state.queue.is_empty()
            || state.sender != Sender::None
        {
            state = self.reader_wait(state);
        }
    }

    fn reader_wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.reader_waits = true;
        state = self
            .reader
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.reader_waits = false;
        state
    }

    /// Called when the peer is gone: drops the queued replies and all later ones.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        self.mark_dead(&mut state);
    }

    fn mark_dead(&self, state: &mut State) {
        state.dead = true;
        // Wakes the reader if it waits for the peer, and the writer if it waits for room.
        socket::shut(&self.socket, Shutdown::Both);
        for reply in std::mem::take(&mut state.queue) {
            Self::push(state, reply);
        }
        state.queued_bytes = 0;
        self.reader.notify_all();
    }

    /// Ends the writer thread once it has no more work.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.writer.notify_all();
    }

    fn wake_writer(&self, state: &mut State) {
        state.sender = Sender::Writer;
        self.writer.notify_one();
    }

    /// Sends until the queue is empty or the socket is full; then the writer continues.
    fn send_passing<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.sender = Sender::Passing;
        loop {
            let (back, end) = self.send_queue(state, false);
            state = back;
            match end {
                Ok(()) if state.queue.is_empty() => {
                    state.sender = Sender::None;
                    return state;
                }
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wake_writer(&mut state);
                    return state;
                }
                Err(_) => {
                    state.sender = Sender::None;
                    self.mark_dead(&mut state);
                    return state;
                }
            }
        }
    }

    /// The writer thread.
    pub(super) fn run_writer(&self) {
        let mut state = self.lock();
        loop {
            if state.sender == Sender::Writer {
                let (back, end) = self.send_queue(state, true);
                state = back;
                if end.is_err() {
                    self.mark_dead(&mut state);
                }
                if state.queue.is_empty() {
                    state.sender = Sender::None;
                    if state.reader_waits {
                        self.reader.notify_all();
                    }
                }
            } else if state.closing {
                return;
            } else {
                state = self
                    .writer
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Sends the queued replies. The lock is not held during the system call; unsent bytes go back to the front.
    fn send_queue<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wait: bool,
    ) -> (MutexGuard<'a, State>, io::Result<()>) {
        let spare = std::mem::take(&mut state.spare);
        let mut taken = std::mem::replace(&mut state.queue, spare);
        let taken_bytes = std::mem::take(&mut state.queued_bytes);
        let mut skip = std::mem::take(&mut state.skip);
        drop(state);

        let mut released = (0, 0);
        let mut result = Ok(());
        while !taken.is_empty() {
            match self.send_batch(&taken, skip, wait) {
                Ok(n) => {
                    skip += n;
                    while let Some(front) = taken.front()
                        && skip >= front.len()
                    {
                        skip -= front.len();
                        released.0 += 1;
                        released.1 += u64::from(front.payload_bytes);
                        taken.pop_front();
                    }
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }

        let mut state = self.lock();
        state.released.0 += released.0;
        state.released.1 += released.1;
        if taken.is_empty() {
            state.spare = taken;
        } else if state.dead {
            for reply in taken {
                Self::push(&mut state, reply);
            }
        } else {
            state.queued_bytes += taken_bytes;
            state.skip = skip;
            taken.append(&mut state.queue);
            state.queue = taken;
        }
        if state.reader_waits && released.0 != 0 {
            self.reader.notify_all();
        }
        (state, result)
    }

    fn send_batch(&self, queue: &VecDeque<Reply>, skip: usize, wait: bool) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); 2 * BATCH];
        let mut used = 0;
        let mut skip = skip;
        for part in queue.iter().take(BATCH).flat_map(Reply::parts) {
            let cut = skip.min(part.len());
            skip -= cut;
            if cut < part.len() {
                slices[used] = IoSlice::new(&part[cut..]);
                used += 1;
            }
        }
        socket::send(&self.socket, &slices[..used], wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn reply(byte: u8) -> Reply {
        Reply {
            head: None,
            tail: Tail::Bytes(vec![byte]),
            payload_bytes: 0,
        }
    }

    /// An outbox, and the peer's socket, which does not wait.
    fn pair() -> (Outbox, UnixStream) {
        let (ours, peer) = UnixStream::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        (Outbox::new(ours.into()), peer)
    }

    /// What has arrived at the peer.
    fn arrived(peer: &mut UnixStream) -> Vec<u8> {
        let mut bytes = [0; 16];
        peer.read(&mut bytes)
            .map(|n| bytes[..n].to_vec())
            .unwrap_or_default()
    }

    #[test]
    fn replies_of_a_lent_session_are_sent_together_before_the_engine_waits() {
        let (outbox, mut peer) = pair();
        outbox.lend();
        for byte in 0..3 {
            outbox.begin();
            outbox.complete(reply(byte));
        }
        assert!(arrived(&mut peer).is_empty());
        assert_eq!(outbox.uncork().0, 3);
        assert_eq!(arrived(&mut peer), [0, 1, 2]);
    }

    #[test]
    fn replies_that_a_lent_session_leaves_are_sent_by_the_writer() {
        let (outbox, mut peer) = pair();
        outbox.lend();
        outbox.begin();
        outbox.complete(reply(7));
        outbox.take_back();
        std::thread::scope(|s| {
            s.spawn(|| outbox.run_writer());
            // Returns when all replies are sent.
            outbox.drain();
            outbox.close();
        });
        assert_eq!(arrived(&mut peer), [7]);
        // The reader serves the session again: a lone reply is sent at once.
        outbox.begin();
        outbox.complete(reply(8));
        assert_eq!(arrived(&mut peer), [8]);
    }
}
