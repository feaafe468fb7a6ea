//! Requests through the engine's io_uring instead of `/dev/fuse` (Linux 6.14 and later, if `/sys/module/fuse/parameters/enable_uring` is
//! on).
//!
//! A request through `/dev/fuse` costs a poll, a read and a write in addition to its I/O. Here the engine's ring holds *entries*: each is a
//! command to the kernel's FUSE connection that comes back with a request in the entry's memory, and that is put into the ring again with
//! the answer. So a request costs no system call of its own, and this program never copies its payload: a write goes from the entry's
//! memory to the device, and a read from the device into that memory.
//!
//! ```text
//! REGISTER ─► kernel ─► request in the entry ─► READ, WRITE, FSYNC: port ─► answer in the entry ─► COMMIT_AND_FETCH ─┐
//!                ▲                          └─► all others: fuser, by way of the pump's socket ─┘                     │
//!                └────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! The kernel has a queue for each processor, and each queue needs an entry before the kernel sends anything in this way. FORGET and
//! INTERRUPT still come through `/dev/fuse`, from which the [`Pump`](super::Pump) continues to read.
//!
//! Invariant: an entry is put into the ring only when its memory has no other user, and it is answered only after its request has ended; a
//! request whose end is lost is answered with `EIO`.
//!
//! Layouts: `include/uapi/linux/fuse.h` (`fuse_uring_req_header`, `fuse_uring_cmd_req`), `Documentation/filesystems/fuse/fuse-io-uring.rst`.

mod queues;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use io_uring::{opcode, squeue, types};
use isotherm_core::IoError;
use rustix::io::Errno;

use super::calls::{self, Carrier};
use super::pump::FuserLink;
use super::wire::{Call, IN_HEADER, OUT_HEADER, Range, out_header, u32_at, u64_at, unique};
use crate::buffers::{Buffer, Memory, Pool, Region};
use crate::port::Port;
use crate::world::{RingEntry, RingSource};
pub(crate) use queues::memory;
use queues::queues;

/// Payload of an entry, bytes: the largest read or write request.
pub(super) const LARGEST: u32 = 256 << 10;
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Byte offsets in `fuse_uring_req_header`: `op_in`, and `commit_id` and `payload_sz` of `ring_ent_in_out`. `in_out` is first.
const OP_IN: usize = 128;
const COMMIT_ID: usize = 264;
const PAYLOAD_SIZE: usize = 272;
const HEADER: usize = 288;
/// Room for a header, so that no header crosses a page boundary.
const HEADER_ROOM: usize = 512;

/// `struct iovec`.
#[repr(C)]
struct IoVec {
    base: *mut u8,
    len: usize,
}

struct Entry {
    queue: u16,
    memory: Memory,
    /// Header and payload, as REGISTER names them.
    parts: Box<[IoVec; 2]>,
    /// The kernel's number of the request in this entry.
    commit: u64,
    /// Whether the entry holds a request that is not answered.
    open: bool,
    /// Whether fuser has that request.
    at_fuser: bool,
}

// SAFETY: the pointers refer to memory that the entry (payload) and its `Shared` (header) own.
unsafe impl Send for Entry {}

struct State {
    entries: Vec<Entry>,
    /// Entries to be put into the ring: for the first time with REGISTER, later with an answer.
    put: Vec<(u16, u32)>,
    /// Number of entries that have neither come back with an error nor been lost.
    live: usize,
}

struct Shared {
    port: Arc<dyn Port>,
    fuser_link: Arc<FuserLink>,
    device: Arc<File>,
    block: u32,
    headers: Arc<Region>,
    state: Mutex<State>,
}

/// The entries, as a source of the engine's thread.
pub(super) struct Entries(Arc<Shared>);

/// Passes fuser's answers to the entries, as long as these exist.
#[derive(Clone)]
pub(super) struct Answers(Weak<Shared>);

impl Entries {
    /// Makes entries for all queues, with payloads from `pool`, to be put into the ring. `None` if there is not enough memory.
    pub(super) fn new(
        device: Arc<File>,
        port: Arc<dyn Port>,
        fuser_link: Arc<FuserLink>,
        pool: &Arc<Pool>,
    ) -> Option<Entries> {
        let (queues, number) = (queues(), memory() / LARGEST as usize);
        let headers = Region::new(number * HEADER_ROOM).ok()?;
        let mut entries = Vec::with_capacity(number);
        for i in 0..number {
            let memory = pool.get_if_idle(LARGEST as usize)?;
            let header = headers.base().wrapping_add(i * HEADER_ROOM);
            let part = |base, len| IoVec { base, len };
            entries.push(Entry {
                queue: (i % queues) as u16,
                parts: Box::new([
                    part(header, HEADER),
                    part(memory.as_ptr(), LARGEST as usize),
                ]),
                memory,
                commit: 0,
                open: false,
                at_fuser: false,
            });
        }
        let put = (0..number).map(|i| (i as u16, REGISTER)).collect();
        Some(Entries(Arc::new(Shared {
            block: port.engine_block(),
            port,
            fuser_link,
            device,
            headers,
            state: Mutex::new(State {
                entries,
                put,
                live: number,
            }),
        })))
    }

    pub(super) fn answers(&self) -> Answers {
        Answers(Arc::downgrade(&self.0))
    }
}

impl RingSource for Entries {
    fn put(&mut self, push: &mut dyn FnMut(u16, RingEntry)) {
        let shared = &*self.0;
        let mut guard = shared.lock();
        let state = &mut *guard;
        for (number, command) in state.put.drain(..) {
            let entry = shared.command(&state.entries[usize::from(number)], command);
            push(number, RingEntry::Long(entry));
        }
    }

    fn back(&mut self, number: u16, result: i32) {
        if result < 0 {
            // The connection has ended, or the kernel never accepted this entry; in the latter case it uses `/dev/fuse`.
            self.0.lock().live -= 1;
            return;
        }
        Shared::serve(&self.0, number);
    }

    fn is_over(&self) -> bool {
        self.0.lock().live == 0
    }
}

impl Answers {
    /// Handles fuser's reply to a request that came through an entry; on the engine's thread. Returns false if it came in another way.
    pub(super) fn answer(&self, reply: &[u8]) -> bool {
        let (Some(error), Some(unique)) = (u32_at(reply, 4), unique(reply)) else {
            return false;
        };
        let Some(shared) = self.0.upgrade() else {
            return false;
        };
        let mut state = shared.lock();
        let Some(number) = state
            .entries
            .iter()
            .position(|e| e.open && e.commit == unique)
        else {
            return false;
        };
        let body = reply.get(OUT_HEADER..).unwrap_or_default();
        let len = body.len().min(LARGEST as usize);
        let entry = &mut state.entries[number];
        entry.memory.bytes_mut()[..len].copy_from_slice(&body[..len]);
        // As numbers of errors are written: negative.
        let error = (error as i32).wrapping_neg();
        shared.finish(&mut state, number as u16, error, len as u32);
        true
    }

    /// fuser's session has ended: the requests that it had are answered with an error, so that the kernel gives their entries back; on the
    /// engine's thread.
    pub(super) fn fuser_ended(&self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        #[cfg(test)]
        if MUTANT.get() == Some(Mutant::ForgetSession) {
            return;
        }
        let mut state = shared.lock();
        for number in 0..state.entries.len() {
            if state.entries[number].at_fuser {
                shared.finish(&mut state, number as u16, Errno::NOTCONN.raw_os_error(), 0);
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The lock is only taken on the engine's thread; every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, entry: &Entry, command: u32) -> squeue::Entry128 {
        let mut words = [0; 80];
        words[8..16].copy_from_slice(&entry.commit.to_ne_bytes());
        words[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
        let built = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), command).cmd(words);
        if command == REGISTER {
            let parts = entry.parts.as_ptr() as u64;
            with_len(built.addr(Some(parts)).build(), 2)
        } else {
            built.build()
        }
    }

    fn header(&self, number: u16) -> *mut u8 {
        self.headers
            .base()
            .wrapping_add(usize::from(number) * HEADER_ROOM)
    }

    /// The header of an entry that is not in the ring.
    fn read_header(&self, number: u16) -> [u8; HEADER] {
        // SAFETY: the region has `HEADER_ROOM` bytes for each entry. The kernel writes there only while it owns the entry, and on this
        // thread.
        unsafe { self.header(number).cast::<[u8; HEADER]>().read() }
    }

    /// Serves the request with which the entry has completed.
    fn serve(this: &Arc<Shared>, entry: u16) {
        let header = this.read_header(entry);
        let payload = u32_at(&header, PAYLOAD_SIZE).unwrap_or_default();
        let payload = payload.min(LARGEST) as usize;
        {
            let mut state = this.lock();
            let e = &mut state.entries[usize::from(entry)];
            e.commit = u64_at(&header, COMMIT_ID).unwrap_or_default();
            (e.open, e.at_fuser) = (true, false);
        }
        let reply = Reply {
            shared: Arc::clone(this),
            entry,
            unique: unique(&header).unwrap_or_default(),
            sent: false,
        };
        let call = Call::decode(&header, &header[OP_IN..]).map(|call| match call {
            // The answer has no more room.
            Call::Read(range) => Call::Read(Range {
                bytes: range.bytes.min(LARGEST),
                ..range
            }),
            other => other,
        });
        match call {
            #[cfg(test)]
            Some(Call::Fsync) if MUTANT.get() == Some(Mutant::AnswerEarly) => reply.answer(&[]),
            Some(call) => calls::start(&*this.port, call, reply, payload, Reply::copy),
            None => this.pass_on(entry, &header, payload, reply),
        }
    }

    /// A buffer over the entry's own memory, if the range is whole blocks.
    fn own_buffer(&self, entry: u16, offset: u64, len: u32) -> Option<Buffer> {
        let block = u64::from(self.block);
        if !offset.is_multiple_of(block) || !u64::from(len).is_multiple_of(block) {
            return None;
        }
        // SAFETY: the memory of an entry that is not in the ring has no other user until its `Reply` ends. The engine ends it only when no
        // device uses the buffer.
        let memory = unsafe { self.lock().entries[usize::from(entry)].memory.lend() };
        Some(Buffer::over(memory, offset, len, self.block))
    }

    /// Passes any other request to fuser, as a message like one from `/dev/fuse`: headers and payload in one piece.
    fn pass_on(&self, entry: u16, header: &[u8; HEADER], payload: usize, mut reply: Reply) {
        let whole = u32_at(header, 0).unwrap_or_default() as usize;
        let Some(op) = whole
            .checked_sub(IN_HEADER + payload)
            .filter(|n| *n <= OP_IN)
        else {
            return reply.fail(IoError::Invalid);
        };
        let mut message = Vec::with_capacity(whole);
        message.extend_from_slice(&header[..IN_HEADER]);
        message.extend_from_slice(&header[OP_IN..OP_IN + op]);
        let mut state = self.lock();
        let e = &mut state.entries[usize::from(entry)];
        message.extend_from_slice(&e.memory.bytes()[..payload]);
        e.at_fuser = self.fuser_link.pass_on(&message);
        // If it was passed on, it is answered by `Answers`, else by the end of `reply`.
        reply.sent = e.at_fuser;
        drop(state);
    }

    /// The request in the entry has ended, with this error or with `payload` bytes in its memory: the entry may go back to the kernel.
    fn finish(&self, state: &mut State, number: u16, error: i32, payload: u32) {
        let entry = &mut state.entries[usize::from(number)];
        entry.at_fuser = false;
        if !std::mem::take(&mut entry.open) {
            return;
        }
        let payload = if error == 0 { payload } else { 0 };
        let header = self.header(number);
        let out = out_header(entry.commit, error, payload as usize);
        // SAFETY: as in `read_header`; both lie within `HEADER` bytes.
        unsafe {
            header.cast::<[u8; OUT_HEADER]>().write(out);
            header
                .add(PAYLOAD_SIZE)
                .cast::<[u8; 4]>()
                .write(payload.to_ne_bytes());
        }
        state.put.push((number, COMMIT_AND_FETCH));
    }
}

/// Sets the number of parts in an entry's command to `len`; the io-uring crate sets all other fields.
fn with_len(mut entry: squeue::Entry128, len: u32) -> squeue::Entry128 {
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    // SAFETY: an entry is the kernel's `io_uring_sqe` followed by 64 bytes; `len` is its field at byte 24.
    unsafe { (&raw mut entry).cast::<u32>().add(6).write(len) };
    entry
}

/// The answer to one request, in its entry.
struct Reply {
    shared: Arc<Shared>,
    entry: u16,
    unique: u64,
    sent: bool,
}

impl Reply {
    /// The answer is an error, or `payload`, or the first `lies_there` bytes of the entry's memory.
    fn send(&mut self, error: i32, payload: &[u8], lies_there: u32) {
        if std::mem::replace(&mut self.sent, true) {
            return;
        }
        let mut state = self.shared.lock();
        let entry = &mut state.entries[usize::from(self.entry)];
        if entry.commit != self.unique {
            return;
        }
        entry.memory.bytes_mut()[..payload.len()].copy_from_slice(payload);
        let bytes = lies_there + payload.len() as u32;
        self.shared.finish(&mut state, self.entry, error, bytes);
    }

    /// Copies the first bytes of a write's payload.
    fn copy(&self, to: &mut [u8]) {
        let state = self.shared.lock();
        let memory = &state.entries[usize::from(self.entry)].memory;
        to.copy_from_slice(&memory.bytes()[..to.len()]);
    }
}

impl Carrier for Reply {
    fn lend(&self, offset: u64, bytes: u32) -> Option<Buffer> {
        self.shared.own_buffer(self.entry, offset, bytes)
    }

    fn fail(mut self, error: IoError) {
        self.send(calls::errno(error).raw_os_error(), &[], 0);
    }

    fn answer(mut self, payload: &[u8]) {
        self.send(0, payload, 0);
    }

    fn answer_from_lent(mut self, bytes: u32) {
        self.send(0, &[], bytes);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        #[cfg(test)]
        if MUTANT.get() == Some(Mutant::ForgetLost) {
            return;
        }
        self.send(Errno::IO.raw_os_error(), &[], 0);
    }
}

/// Rules that the tests below remove, to check that they notice it.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// A request is answered as soon as it is handed over, before it has ended.
    AnswerEarly,
    /// The end of a lost request is not reported.
    ForgetLost,
    /// Requests that fuser had at the end of its session are not answered.
    ForgetSession,
}

#[cfg(test)]
std::thread_local! {
    static MUTANT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
