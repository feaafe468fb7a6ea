//! The queues of a device, as a source of the engine's thread.
//!
//! ```text
//! FETCH ─► kernel ─► descriptor of a request ─► Port ─► its end ─► COMMIT_AND_FETCH ─┐
//!             ▲                                                                      │
//!             └──────────────────────────────────────────────────────────────────────┘
//! ```
//! The engine's ring holds a command for each tag of each queue, which comes back when the kernel has a request with that tag, and which is
//! put into the ring again with the answer. So a request wakes no other thread and costs no system call for its way. Its data is copied
//! between the request's pages and the engine's memory by pread and pwrite, unless the kernel has registered the pages with the ring
//! ([`PageBuffers`]): then the devices read and write the pages themselves.
//!
//! Invariant: a command is put into the ring only when its request has ended; a request whose end is lost is answered with an error.

use super::abi::{self, COMMIT_AND_FETCH, DESCRIPTOR, Descriptor, FETCH};
use crate::pages::Pages;
use crate::port::{Buffer, Completion, IoRequest, Port, Share};
use crate::world::{RingEntry, RingSource};
use io_uring::{opcode, types};
use isotherm_classify::classes;
use isotherm_core::{IoError, RequestOp};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts of all queues of a device.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub flushes: AtomicU64,
    pub discards: AtomicU64,
    pub fua: AtomicU64,
    /// Reads and writes that the file system marks as metadata.
    pub metadata: AtomicU64,
    /// Reads and writes whose pages are registered with the ring.
    pub registered: AtomicU64,
    pub errors: AtomicU64,
}

fn count(which: &AtomicU64) {
    which.fetch_add(1, Ordering::Relaxed);
}

/// The descriptors of a queue; the kernel writes them.
struct Descriptors {
    at: *const u64,
    len: usize,
}

// SAFETY: the mapping lives as long as this value, and it is only read.
unsafe impl Send for Descriptors {}
// SAFETY: as above; the kernel's writes are ordered by the completions that report the requests.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn map(device: &File, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let len = (usize::from(depth) * DESCRIPTOR).next_multiple_of(4096);
        let kind = MapFlags::SHARED | MapFlags::POPULATE;
        let offset = abi::descriptors_at(queue) as u64;
        // SAFETY: a new read-only mapping at an address that the kernel chooses does not overlap existing memory.
        let at = unsafe {
            mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                kind,
                device,
                offset,
            )?
        };
        Ok(Descriptors { at: at.cast(), len })
    }

    /// The request of this tag, which has just arrived.
    fn read(&self, tag: u16) -> Descriptor {
        let at = self.at.wrapping_add(usize::from(tag) * DESCRIPTOR / 8);
        // SAFETY: `tag` is below the depth, so three whole words are mapped there. The kernel does not write to them between the completion
        // that reported the request and our answer.
        let (first, first_sector) = unsafe { (at.read_volatile(), at.add(1).read_volatile()) };
        let [a, b, c, d, e, f, g, h] = first.to_ne_bytes();
        Descriptor {
            op_flags: u32::from_ne_bytes([a, b, c, d]),
            sectors: u32::from_ne_bytes([e, f, g, h]),
            first_sector,
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping that `map` made; no other code has its address. Unmapping a whole mapping does not fail.
        let _ = unsafe { mm::munmap(self.at.cast_mut().cast(), self.len) };
    }
}

/// Registration of requests' pages with the engine's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageBuffers {
    /// The device does not register pages.
    Off,
    /// The device registers pages, but there is no place for them in the ring, or copies are wanted.
    Nowhere,
    /// The pages of slot N are buffer `first + N` of the ring.
    From(u16),
}

/// The parameters of a device's queues.
pub(super) struct Plan {
    pub device: Arc<File>,
    pub port: Arc<dyn Port>,
    pub queues: u16,
    /// Number of requests in each queue.
    pub depth: u16,
    pub counts: Arc<Counts>,
    /// Changes are answered only when they are durable: the kernel was told that the device has no cache to flush.
    pub durable: bool,
    pub buffers: PageBuffers,
}

struct State {
    /// Commands to be put into the ring: the slot, and the answer to the request before, if there was one.
    put: Vec<(u16, Option<i32>)>,
    /// Slots of requests that wait for memory.
    held: VecDeque<u16>,
    /// Number of requests at the volume.
    at_work: u32,
    /// Number of slots that may still be used.
    live: u32,
    /// Is told that the kernel has all commands, or why it refused one.
    ready: Option<SyncSender<io::Result<()>>>,
}

struct Shared {
    plan: Plan,
    share: Option<Arc<Share>>,
    descriptors: Vec<Descriptors>,
    state: Mutex<State>,
}

/// The queues. A *slot* is a tag of a queue: `queue * depth + tag`.
pub(super) struct Queues(Arc<Shared>);

impl Queues {
    /// Maps the descriptors. `ready` is told that the kernel has all commands, or the error.
    ///
    /// # Errors
    /// The kernel refuses the mapping, or there are more slots than a source can have.
    pub(super) fn new(plan: Plan, ready: SyncSender<io::Result<()>>) -> io::Result<Queues> {
        let slots = plan.queues.checked_mul(plan.depth).ok_or_else(|| {
            let most = u16::MAX / plan.depth.max(1);
            io::Error::other(format!("{} queues: at most {most}", plan.queues))
        })?;
        let descriptors = (0..plan.queues)
            .map(|queue| Descriptors::map(&plan.device, queue, plan.depth))
            .collect::<io::Result<_>>()?;
        Ok(Queues(Arc::new(Shared {
            share: plan.port.share(),
            descriptors,
            state: Mutex::new(State {
                put: (0..slots).map(|slot| (slot, None)).collect(),
                held: VecDeque::with_capacity(slots.into()),
                at_work: 0,
                live: slots.into(),
                ready: Some(ready),
            }),
            plan,
        })))
    }
}

impl RingSource for Queues {
    fn put(&mut self, push: &mut dyn FnMut(u16, RingEntry)) {
        Shared::take(&self.0);
        let mut state = self.0.lock();
        if state.put.is_empty() {
            // All commands were submitted after the call before this one, and none of them was refused.
            if let Some(ready) = state.ready.take() {
                // The receiver may no longer wait.
                let _ = ready.send(Ok(()));
            }
        }
        for (slot, answer) in state.put.drain(..) {
            push(slot, RingEntry::Short(self.0.command(slot, answer)));
        }
    }

    fn back(&mut self, slot: u16, result: i32) {
        let mut state = self.0.lock();
        if result == 0 {
            state.held.push_back(slot);
            drop(state);
            return Shared::take(&self.0);
        }
        // -ENODEV: the device is stopped. After another error, the kernel does not use the slot again either.
        state.live -= 1;
        if let Some(ready) = state.ready.take() {
            let _ = ready.send(Err(io::Error::from_raw_os_error(-result)));
        } else if result != answer_of(Errno::NODEV) {
            let e = io::Error::from_raw_os_error(-result);
            tracing::error!(
                slot,
                "ublk: {e}: a slot of the device is lost until the volume is served again"
            );
        }
    }

    fn buffers(&self) -> Range<u16> {
        let plan = &self.0.plan;
        match plan.buffers {
            PageBuffers::From(first) => first..first + plan.queues * plan.depth,
            _ => 0..0,
        }
    }

    fn is_over(&self) -> bool {
        let state = self.0.lock();
        state.live == 0 && state.at_work == 0
    }
}

/// A request for which the kernel waits. If it is dropped without a result (a port that loses a completion), it is answered with an error.
struct PendingReply {
    shared: Arc<Shared>,
    slot: u16,
    sent: bool,
}

impl PendingReply {
    fn complete(mut self, result: Result<(), IoError>, buffer: Option<&Buffer>) {
        self.sent = true;
        self.shared.finish(self.slot, result, buffer);
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.sent {
            self.shared.finish(self.slot, Err(IoError::Gone), None);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, slot: u16) -> (u16, u16) {
        (slot / self.plan.depth, slot % self.plan.depth)
    }

    /// The request of a slot that is not in the ring.
    fn request(&self, slot: u16) -> Descriptor {
        let (queue, tag) = self.place(slot);
        self.descriptors[usize::from(queue)].read(tag)
    }

    /// Offset of the request's data in the device's file.
    fn data_at(&self, slot: u16) -> u64 {
        let (queue, tag) = self.place(slot);
        abi::data_at(queue, tag)
    }

    fn command(&self, slot: u16, answer: Option<i32>) -> io_uring::squeue::Entry {
        let (queue, tag) = self.place(slot);
        let fd = types::Fd(self.plan.device.as_raw_fd());
        let command = if answer.is_some() {
            COMMIT_AND_FETCH
        } else {
            FETCH
        };
        let bytes = abi::io_command(queue, tag, answer.unwrap_or(-1));
        let registered = match self.plan.buffers {
            PageBuffers::Off => None,
            PageBuffers::Nowhere => Some(abi::register_at(abi::NO_BUFFER)),
            PageBuffers::From(first) => Some(abi::register_at(first + slot)),
        };
        let command = opcode::UringCmd16::new(fd, command).cmd(bytes);
        command.addr(registered).build()
    }

    /// Passes requests to the volume, as long as there is memory.
    fn take(this: &Arc<Shared>) {
        loop {
            let mut state = this.lock();
            let Some(&slot) = state.held.front() else {
                return;
            };
            let d = this.request(slot);
            let len = (d.sectors as usize) << 9;
            if moves(&d)
                && !this.is_registered(&d)
                && state.at_work > 0
                && this.share.as_ref().is_some_and(|s| !s.has(len))
            {
                // `put` calls this again after each end of a request, which frees memory.
                return;
            }
            state.held.pop_front();
            state.at_work += 1;
            drop(state);
            if let Err(error) = Shared::hand_over(this, slot, d) {
                this.answer(slot, answer_of(error));
            }
        }
    }

    /// Passes a request to the volume.
    fn hand_over(this: &Arc<Shared>, slot: u16, d: Descriptor) -> Result<(), Errno> {
        let plan = &this.plan;
        let counts = &plan.counts;
        let is_flush = d.op_flags & 0xff == abi::OP_FLUSH;
        // A flush has no sectors, so these fields have no meaning.
        let (sectors, first) = if is_flush {
            (0, 0)
        } else {
            (d.sectors, d.first_sector)
        };
        let len = sectors.checked_mul(512).ok_or(Errno::INVAL)?;
        let offset = first.checked_mul(512).ok_or(Errno::INVAL)?;
        let (op, which) = match d.op_flags & 0xff {
            abi::OP_READ => (RequestOp::Read, &counts.reads),
            abi::OP_WRITE => (RequestOp::Write, &counts.writes),
            abi::OP_FLUSH => (RequestOp::Flush, &counts.flushes),
            abi::OP_DISCARD => (RequestOp::Discard, &counts.discards),
            abi::OP_ZEROES => {
                let keep = d.op_flags & abi::IO_NOUNMAP != 0;
                (RequestOp::WriteZeroes { keep }, &counts.discards)
            }
            _ => return Err(Errno::OPNOTSUPP),
        };
        count(which);
        let changes = !matches!(op, RequestOp::Read | RequestOp::Flush);
        let fua = changes && (plan.durable || d.op_flags & abi::IO_FUA != 0);
        let is_metadata = moves(&d) && d.op_flags & abi::IO_META != 0;
        if fua {
            count(&counts.fua);
        }
        if is_metadata {
            count(&counts.metadata);
        }
        let pages = this
            .is_registered(&d)
            .then(|| this.pages(slot, len))
            .flatten();
        let buffer = match op {
            _ if pages.is_some() => {
                count(&counts.registered);
                None
            }
            RequestOp::Read => Some(this.buffer(offset, len)),
            RequestOp::Write => {
                let mut buffer = this.buffer(offset, len);
                let read = plan.device.read_exact_at(&mut buffer, this.data_at(slot));
                read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
                Some(buffer)
            }
            _ => None,
        };
        let pending = PendingReply {
            shared: Arc::clone(this),
            slot,
            sent: false,
        };
        let done = move |result, buffer: Option<Buffer>| pending.complete(result, buffer.as_ref());
        let class = if is_metadata { classes::METADATA } else { 0 };
        let request = IoRequest::new(op, offset, len);
        let request = request.with_buffer(buffer).with_pages(pages);
        plan.port
            .submit(request.with_fua(fua).in_class(class), Completion::new(done));
        Ok(())
    }

    /// Whether the pages of this request are registered with the ring. Those of parts of blocks are not used, because the engine would
    /// have to read around them.
    fn is_registered(&self, d: &Descriptor) -> bool {
        let block = u64::from(self.plan.port.engine_block() >> 9);
        matches!(self.plan.buffers, PageBuffers::From(_))
            && moves(d)
            && d.op_flags & abi::IO_UNREGISTERED == 0
            && d.first_sector.is_multiple_of(block)
            && u64::from(d.sectors).is_multiple_of(block)
    }

    fn pages(&self, slot: u16, len: u32) -> Option<Pages> {
        let PageBuffers::From(first) = self.plan.buffers else {
            return None;
        };
        let file = Arc::clone(&self.plan.device);
        Some(Pages::new(file, self.data_at(slot), first + slot, 0, len))
    }

    /// This thread returns memory itself, so it must not wait for any.
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        match &self.share {
            Some(share) => share.buffer_now(offset, len, self.plan.port.engine_block()),
            None => self.plan.port.buffer(offset, len),
        }
    }

    /// The request has ended.
    fn finish(&self, slot: u16, result: Result<(), IoError>, buffer: Option<&Buffer>) {
        let d = self.request(slot);
        let len = d.sectors.wrapping_shl(9) as i32;
        let code = match (result, d.op_flags & 0xff, buffer) {
            (Err(e), ..) => answer_of(errno(e)),
            (Ok(()), abi::OP_READ, Some(data)) if data.len() == len as usize => {
                let written = self.plan.device.write_all_at(data, self.data_at(slot));
                let failed = |e| answer_of(Errno::from_io_error(&e).unwrap_or(Errno::IO));
                written.map_or_else(failed, |()| len)
            }
            (Ok(()), abi::OP_READ, None) if self.is_registered(&d) => len,
            // A read without its data is a fault of the port. An error is better than wrong data.
            (Ok(()), abi::OP_READ, _) => answer_of(Errno::IO),
            (Ok(()), abi::OP_WRITE, _) => len,
            (Ok(()), ..) => 0,
        };
        self.answer(slot, code);
    }

    fn answer(&self, slot: u16, code: i32) {
        if code < 0 {
            count(&self.plan.counts.errors);
        }
        let mut state = self.lock();
        state.at_work -= 1;
        state.put.push((slot, Some(code)));
    }
}

/// Whether the request reads or writes data.
fn moves(d: &Descriptor) -> bool {
    matches!(d.op_flags & 0xff, abi::OP_READ | abi::OP_WRITE)
}

/// The kernel takes an error as a negative number.
fn answer_of(error: Errno) -> i32 {
    -error.raw_os_error()
}

fn errno(error: IoError) -> Errno {
    match error {
        IoError::Io => Errno::IO,
        IoError::NoSpace => Errno::NOSPC,
        IoError::Invalid => Errno::INVAL,
        IoError::ReadOnly => Errno::ROFS,
        IoError::Gone => Errno::NODEV,
    }
}

#[cfg(test)]
mod tests;
