//! One queue of a device: a thread that receives requests from the kernel, passes them to the volume, and answers them.
//!
//! The thread copies data between the request's pages and the engine's memory by pread and pwrite. Completions arrive on the engine's
//! thread, which only stores a note and signals an eventfd.

use super::abi::{self, COMMIT_AND_FETCH, DESCRIPTOR, Descriptor, FETCH};
use crate::port::{Buffer, Completion, IoRequest, Port, Share};
use io_uring::{IoUring, opcode, types};
use isotherm_classify::classes;
use isotherm_core::{IoError, RequestOp};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

/// User data of the eventfd's entry in the ring; tags are smaller.
const BELL: u64 = 1 << 32;

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
    pub errors: AtomicU64,
}

fn count(which: &AtomicU64) {
    which.fetch_add(1, Ordering::Relaxed);
}

/// A request's tag, its result, and its buffer.
type Note = (u16, Result<(), IoError>, Option<Buffer>);

/// Requests that have ended and were not answered yet.
struct Ended {
    bell: OwnedFd,
    is_rung: AtomicBool,
    notes: Mutex<Vec<Note>>,
}

impl Ended {
    fn tell(&self, tag: u16, result: Result<(), IoError>, buffer: Option<Buffer>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((tag, result, buffer));
        drop(notes);
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            // This fails only if the counter is at its limit; the eventfd is signalled then anyway.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

/// A request for which the kernel waits. If it is dropped without a result (because the engine ended), it reports an error.
struct PendingReply {
    ended: Arc<Ended>,
    tag: u16,
    paid: bool,
}

impl PendingReply {
    fn complete(mut self, result: Result<(), IoError>, buffer: Option<Buffer>) {
        self.paid = true;
        self.ended.tell(self.tag, result, buffer);
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.paid {
            self.ended.tell(self.tag, Err(IoError::Gone), None);
        }
    }
}

/// The descriptors of a queue; the kernel writes them.
struct Descriptors {
    at: *const u64,
    len: usize,
}

// SAFETY: the mapping lives as long as this value, and it is only read.
unsafe impl Send for Descriptors {}

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

/// The parameters of a queue's thread.
pub(super) struct Plan {
    pub device: Arc<File>,
    pub port: Arc<dyn Port>,
    pub queue: u16,
    pub depth: u16,
    pub counts: Arc<Counts>,
    /// Changes are answered only when they are durable: the kernel was told that the device has no cache to flush.
    pub durable: bool,
}

struct Queue {
    plan: Plan,
    ring: IoUring,
    descriptors: Descriptors,
    share: Option<Arc<Share>>,
    ended: Arc<Ended>,
    /// Destination of reads from the eventfd.
    rung: Box<u64>,
    /// Number of the kernel's requests at the volume, and of entries that the kernel will not use again.
    at_work: u32,
    over: u16,
    /// Requests that wait for memory.
    held: VecDeque<u16>,
    /// An empty list that is exchanged with the list of ended requests, so that neither is allocated again.
    spare: Vec<Note>,
}

/// Serves until the device is stopped. Reports to `ready` that the kernel has all entries, or the error.
pub(super) fn run(plan: Plan, ready: &SyncSender<io::Result<()>>) {
    // The kernel frees memory by writing to this device, so this thread must not wait for such a write.
    crate::block_file::become_io_flusher();
    let mut queue = match Queue::new(plan) {
        Ok(queue) => queue,
        Err(e) => {
            // The receiver may no longer wait.
            let _ = ready.send(Err(e));
            return;
        }
    };
    let fetched = queue.fetch_all();
    let failed = fetched.is_err();
    let _ = ready.send(fetched);
    if failed {
        return;
    }
    if let Err(e) = queue.serve() {
        tracing::error!(
            queue = queue.plan.queue,
            "ublk queue {}: {e}: its requests wait until the volume is served again",
            queue.plan.queue
        );
    }
    // The results of requests that the volume still has are discarded; their memory is freed when they end.
}

impl Queue {
    fn new(plan: Plan) -> io::Result<Queue> {
        let ring = IoUring::builder().build(u32::from(plan.depth) + 1)?;
        let descriptors = Descriptors::map(&plan.device, plan.queue, plan.depth)?;
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Queue {
            share: plan.port.share(),
            ring,
            descriptors,
            ended: Arc::new(Ended {
                bell,
                is_rung: AtomicBool::new(false),
                notes: Mutex::default(),
            }),
            rung: Box::new(0),
            at_work: 0,
            over: 0,
            held: VecDeque::new(),
            spare: Vec::new(),
            plan,
        })
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: commands contain their data; the eventfd's count is read into a box that lives as long as the ring.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn command(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let fd = types::Fd(self.plan.device.as_raw_fd());
        let bytes = abi::io_command(self.plan.queue, tag, result);
        let entry = opcode::UringCmd16::new(fd, command).cmd(bytes).build();
        self.push(&entry.user_data(tag.into()))
    }

    fn listen(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.ended.bell.as_raw_fd());
        let to = std::ptr::from_mut(&mut *self.rung).cast();
        self.push(&opcode::Read::new(fd, to, 8).build().user_data(BELL))
    }

    /// Gives all entries to the kernel.
    fn fetch_all(&mut self) -> io::Result<()> {
        self.listen()?;
        for tag in 0..self.plan.depth {
            self.command(FETCH, tag, -1)?;
        }
        self.ring.submit()?;
        // Entries that the kernel refuses are completed at once.
        let refused = self
            .ring
            .completion()
            .find(|c| c.user_data() != BELL && c.result() < 0);
        match refused {
            Some(c) => Err(io::Error::from_raw_os_error(-c.result())),
            None => Ok(()),
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut came = Vec::with_capacity(usize::from(self.plan.depth) + 1);
        while self.over < self.plan.depth || self.at_work > 0 {
            match self.ring.submit_and_wait(1) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            came.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
            for (name, result) in came.drain(..) {
                if name == BELL {
                    self.listen()?;
                } else if result == 0 {
                    self.held.push_back(name as u16);
                } else {
                    // -ENODEV: the device is stopped. After another error, the entry is not used again either.
                    self.over += 1;
                }
            }
            self.answer()?;
            self.take()?;
        }
        Ok(())
    }

    /// Passes requests to the volume, as long as there is memory.
    fn take(&mut self) -> io::Result<()> {
        while let Some(&tag) = self.held.front() {
            let d = self.descriptors.read(tag);
            let op = d.op_flags & 0xff;
            let moves = matches!(op, abi::OP_READ | abi::OP_WRITE);
            if moves
                && self.at_work > 0
                && self
                    .share
                    .as_ref()
                    .is_some_and(|s| !s.has((d.sectors as usize) << 9))
            {
                // Memory is freed only when this thread has answered the requests that have ended.
                return Ok(());
            }
            self.held.pop_front();
            if let Err(error) = self.hand_over(tag, d) {
                count(&self.plan.counts.errors);
                self.command(COMMIT_AND_FETCH, tag, answer_of(error))?;
            }
        }
        Ok(())
    }

    /// Passes a request to the volume.
    fn hand_over(&mut self, tag: u16, d: Descriptor) -> Result<(), Errno> {
        let counts = &self.plan.counts;
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
        let moves = matches!(op, RequestOp::Read | RequestOp::Write);
        let changes = !matches!(op, RequestOp::Read | RequestOp::Flush);
        let fua = changes && (self.plan.durable || d.op_flags & abi::IO_FUA != 0);
        let is_metadata = moves && d.op_flags & abi::IO_META != 0;
        if fua {
            count(&counts.fua);
        }
        if is_metadata {
            count(&counts.metadata);
        }
        let buffer = match op {
            RequestOp::Read => Some(self.buffer(offset, len)),
            RequestOp::Write => {
                let mut buffer = self.buffer(offset, len);
                let from = abi::data_at(self.plan.queue, tag);
                let read = self.plan.device.read_exact_at(&mut buffer, from);
                read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
                Some(buffer)
            }
            _ => None,
        };
        let pending = PendingReply {
            ended: Arc::clone(&self.ended),
            tag,
            paid: false,
        };
        let done = Completion::new(move |result, buffer| pending.complete(result, buffer));
        let class = if is_metadata { classes::METADATA } else { 0 };
        self.at_work += 1;
        self.plan.port.submit(
            IoRequest {
                op,
                offset,
                len,
                fua,
                class,
                buffer,
            },
            done,
        );
        Ok(())
    }

    /// Waits for memory only while none of this queue's requests could free some.
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        let block = self.plan.port.block_bytes();
        match &self.share {
            Some(s) if self.at_work > 0 => s.buffer_now(offset, len, block),
            Some(s) => s.buffer(offset, len, block),
            None => self.plan.port.buffer(offset, len),
        }
    }

    /// Answers the requests that have ended.
    fn answer(&mut self) -> io::Result<()> {
        // The flag is cleared before the queue is read: a request that ends afterwards signals again.
        self.ended.is_rung.store(false, Ordering::Release);
        let mut notes = std::mem::take(&mut self.spare);
        {
            let told = self.ended.notes.lock();
            std::mem::swap(
                &mut notes,
                &mut *told.unwrap_or_else(PoisonError::into_inner),
            );
        }
        for (tag, result, buffer) in notes.drain(..) {
            self.at_work -= 1;
            let d = self.descriptors.read(tag);
            let len = d.sectors.wrapping_shl(9) as i32;
            let code = match (result, d.op_flags & 0xff, buffer) {
                (Err(e), ..) => answer_of(errno(e)),
                (Ok(()), abi::OP_READ, Some(data)) if data.len() == len as usize => {
                    let to = abi::data_at(self.plan.queue, tag);
                    let written = self.plan.device.write_all_at(&data, to);
                    let failed = |e| answer_of(Errno::from_io_error(&e).unwrap_or(Errno::IO));
                    written.map_or_else(failed, |()| len)
                }
                // A read without its data is a fault of the port. An error is better than wrong data.
                (Ok(()), abi::OP_READ, _) => answer_of(Errno::IO),
                (Ok(()), abi::OP_WRITE, _) => len,
                (Ok(()), ..) => 0,
            };
            if code < 0 {
                count(&self.plan.counts.errors);
            }
            self.command(COMMIT_AND_FETCH, tag, code)?;
        }
        self.spare = notes;
        Ok(())
    }
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
