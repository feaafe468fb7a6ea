//! The queues of a virtual machine, as a source of the engine's thread.
//!
//! The engine's thread watches the eventfds of all queues through one epoll descriptor, takes requests from the rings, and puts them back
//! when they have ended. So a request wakes no thread but that one. Data is copied between the guest's memory and the engine's: a guest may
//! change what it writes while it is written, and copies of a block on two members must stay alike.
//!
//! The session's thread starts and stops queues. Both threads hold the lock for short, and never while they call the port, which may call
//! back.

use super::block::{self, Task, status};
use super::inflight::Area;
use super::queue::{Queue, Slot};
use super::ring::{Broken, SIZE_MAX};
use crate::port::{Buffer, Completion, IoRequest, Port, Share};
use crate::world::{Source, Watch};
use crate::zeroing;
use isotherm_core::{IoError, RequestOp};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use vm_memory::GuestMemoryMmap;

/// The number of the session's own eventfd beside those of queues.
const BELL: u64 = u64::MAX;

/// What both threads use.
pub(super) struct State {
    pub memory: GuestMemoryMmap,
    pub queues: Vec<Queue>,
    /// What the driver has accepted.
    pub features: u64,
    pub area: Option<Area>,
    /// Queues with requests that no eventfd will report, one bit each.
    due: u32,
    /// Whether the session has ended.
    is_over: bool,
}

/// See the module.
pub(super) struct Device {
    port: Arc<dyn Port>,
    share: Option<Arc<Share>>,
    name: [u8; 20],
    state: Mutex<State>,
    /// Told when a queue has no request in flight any more.
    idle: Condvar,
    epoll: OwnedFd,
    bell: File,
    /// How often a peer or its guest broke the rules.
    violations: Arc<AtomicU64>,
}

/// A request for the volume, and the number of bytes that it reads.
type Submission = (IoRequest, Vec<(u64, u64)>, u32);

/// What comes next in a queue.
enum Next {
    Nothing,
    /// There is no memory for it now.
    Later,
    /// It needed no volume.
    Answered,
    Request(u16, Submission),
}

impl Device {
    /// A device without queues.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(
        port: Arc<dyn Port>,
        uuid: [u8; 16],
        violations: Arc<AtomicU64>,
    ) -> io::Result<Arc<Device>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edges: what has arrived need not be read to be forgotten.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), edges)?;
        let queues = std::iter::repeat_with(Queue::default);
        Ok(Arc::new(Device {
            share: port.share(),
            port,
            name: block::name(uuid),
            state: Mutex::new(State {
                memory: GuestMemoryMmap::new(),
                queues: queues.take(block::QUEUES_MAX.into()).collect(),
                features: 0,
                area: None,
                due: 0,
                is_over: false,
            }),
            idle: Condvar::new(),
            epoll,
            bell: File::from(bell),
            violations,
        }))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the engine's thread. This fails only if the counter is full, and then it is awake already.
    fn ring(&self) {
        let _ = (&self.bell).write(&1u64.to_ne_bytes());
    }

    /// Takes no more requests from the queue, and waits for the end of those in flight. [`Device::start`] goes on with it.
    pub fn pause(&self, index: usize) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let q = &mut state.queues[index];
        if std::mem::take(&mut q.runs)
            && let Some(kick) = &q.kick
        {
            // If the peer keeps it open, it would be reported on.
            let _ = epoll::delete(&self.epoll, kick);
        }
        while state.queues[index].in_flight > 0 {
            let waited = self.idle.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let State { memory, queues, .. } = &mut *state;
        queues[index].settle(memory);
        state
    }

    /// Lets the engine's thread take requests from the queue, if all that this needs is there.
    ///
    /// # Errors
    /// The queue is not in the memory, or the marks have no room for it, or its eventfd cannot be watched.
    pub fn start(&self, index: usize) -> io::Result<()> {
        let mut state = self.lock();
        let State {
            memory,
            queues,
            area,
            features,
            due,
            ..
        } = &mut *state;
        let q = &mut queues[index];
        let Some(kick) = q.kick.as_ref() else {
            return Ok(());
        };
        if q.runs || !q.enabled || !q.ring.is_described() {
            return Ok(());
        }
        let failed = |b: Broken| io::Error::new(io::ErrorKind::InvalidData, b.0);
        q.ring.event_idx = *features & block::feature::EVENT_IDX != 0;
        q.ring.find_used(memory).map_err(failed)?;
        q.marks = match area {
            Some(area) => {
                let marks = area.queue(index, q.ring.size);
                let small = Broken("the area for requests in flight is too small");
                Some(marks.ok_or(small).map_err(failed)?)
            }
            None => None,
        };
        if let Some(marks) = &mut q.marks {
            q.again = marks.left(q.ring.used).into();
            // All that was taken was given back, or has a mark.
            q.ring.available = q.ring.used.wrapping_add(q.again.len() as u16);
        }
        q.slots.resize_with(q.ring.size.into(), Slot::default);
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &self.epoll,
            kick,
            epoll::EventData::new_u64(index as u64),
            edges,
        )?;
        q.runs = true;
        // The server before may have given requests back without telling. A firmware that polls must not be told: nobody would take the
        // interrupt back, which other devices may share.
        if q.marks.is_some() && q.ring.wants_interrupts(memory).map_err(failed)? {
            q.tell();
        }
        *due |= 1 << index;
        drop(state);
        self.ring();
        Ok(())
    }

    /// Ends the queue. Returns the index of its next request.
    pub fn stop(&self, index: usize) -> u16 {
        let mut state = self.pause(index);
        let q = &mut state.queues[index];
        (q.kick, q.call, q.marks) = (None, None, None);
        // These keep their marks in the area.
        q.again.clear();
        q.ring.available
    }

    /// Ends all queues, and takes this source from the engine's thread.
    pub fn end(&self) {
        (0..usize::from(block::QUEUES_MAX)).for_each(|i| {
            self.stop(i);
        });
        self.lock().is_over = true;
        self.ring();
    }

    /// The next request of a queue.
    fn next(&self, index: usize) -> Next {
        let mut state = self.lock();
        let State {
            memory,
            queues,
            features,
            due,
            ..
        } = &mut *state;
        let q = &mut queues[index];
        let durable = *features & block::feature::FLUSH == 0;
        match self.prepare(q, memory, durable) {
            Ok(Next::Nothing) => {
                *due &= !(1 << index);
                Next::Nothing
            }
            Ok(next) => next,
            Err(why) => {
                *due &= !(1 << index);
                self.fail(q, index, why);
                Next::Nothing
            }
        }
    }

    /// The driver broke a rule: nothing is taken from the queue until it is started again.
    fn fail(&self, q: &mut Queue, index: usize, Broken(why): Broken) {
        q.runs = false;
        if let Some(kick) = &q.kick {
            let _ = epoll::delete(&self.epoll, kick);
        }
        if let Some(error) = &mut q.error {
            let _ = error.write(&1u64.to_ne_bytes());
        }
        self.violations.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            queue = index,
            "vhost-user: the guest's driver gave {why}: its queue {index} is not served until the driver starts again"
        );
    }

    fn prepare(
        &self,
        q: &mut Queue,
        memory: &GuestMemoryMmap,
        durable: bool,
    ) -> Result<Next, Broken> {
        if !q.runs {
            return Ok(Next::Nothing);
        }
        let repeated = q.again.front().copied();
        let head = match repeated {
            Some(head) => head,
            None => match q.ring.peek(memory)? {
                Some(head) => head,
                None if !q.ring.listen(memory)? => return Ok(Next::Nothing),
                None => match q.ring.peek(memory)? {
                    Some(head) => head,
                    None => return Ok(Next::Later),
                },
            },
        };
        let slot = &mut q.slots[usize::from(head)];
        if slot.is_in_flight {
            return Err(Broken("a request that is in flight already"));
        }
        q.ring.chain(memory, head, &mut slot.parts)?;
        if block::to_write(&slot.parts).is_none() {
            return Err(Broken("a request without a byte for its status"));
        }
        let task = block::task(memory, &slot.parts, self.port.volume_bytes());
        let memory_needed = match &task {
            Ok((Task::Io(_, _, len), _)) => *len as usize + 2 * self.port.engine_block() as usize,
            _ => 0,
        };
        if memory_needed > 0
            && q.in_flight > 0
            && self.share.as_ref().is_some_and(|s| !s.has(memory_needed))
        {
            return Ok(Next::Later);
        }
        let prepared = task.and_then(|(task, data)| self.submission(memory, task, &data, durable));
        slot.is_in_flight = true;
        q.in_flight += 1;
        match repeated {
            Some(_) => drop(q.again.pop_front()),
            None => q.ring.advance(),
        }
        if let Some(marks) = &mut q.marks {
            marks.taken(head);
        }
        match prepared {
            Ok(Some(submission)) => Ok(Next::Request(head, submission)),
            Ok(None) => {
                q.answer(memory, head, status::OK, Some(&self.name))?;
                Ok(Next::Answered)
            }
            Err(status) => {
                q.answer(memory, head, status, None)?;
                Ok(Next::Answered)
            }
        }
    }

    /// The request for the volume; `None` if the answer is the device's name.
    fn submission(
        &self,
        memory: &GuestMemoryMmap,
        task: Task,
        data: &block::Data<'_>,
        durable: bool,
    ) -> Result<Option<Submission>, u8> {
        let (op, offset, len) = match task {
            Task::Name => return Ok(None),
            Task::Ranges(op, ranges) => {
                let like = IoRequest::new(op, 0, 0).with_fua(durable);
                return Ok(Some((like, ranges, 0)));
            }
            Task::Io(op, offset, len) => (op, offset, len),
        };
        let buffer = match op {
            RequestOp::Read => Some(self.buffer(offset, len)),
            RequestOp::Write => {
                let mut buffer = self.buffer(offset, len);
                if !data.copy_to(memory, &mut buffer) {
                    return Err(status::ERROR);
                }
                Some(buffer)
            }
            _ => None,
        };
        let read = if op == RequestOp::Read { len } else { 0 };
        let request = IoRequest::new(op, offset, len).with_buffer(buffer);
        let fua = durable && op == RequestOp::Write;
        Ok(Some((request.with_fua(fua), Vec::new(), read)))
    }

    /// This thread returns memory itself, so it must not wait for any.
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        match &self.share {
            Some(share) => share.buffer_now(offset, len, self.port.engine_block()),
            None => self.port.buffer(offset, len),
        }
    }

    /// Takes requests from a queue. Returns whether there are more.
    fn take(this: &Arc<Device>, index: usize) -> bool {
        // At most as many as the largest queue holds at once, so that no guest can keep this thread for itself.
        for _ in 0..SIZE_MAX {
            let (head, (request, ranges, read)) = match this.next(index) {
                Next::Nothing => return false,
                Next::Later => return true,
                Next::Answered => continue,
                Next::Request(head, submission) => (head, submission),
            };
            let pending = PendingReply {
                device: Arc::clone(this),
                queue: index as u16,
                head,
                read,
                sent: false,
            };
            let done =
                Completion::new(move |result, buffer| pending.complete(result, buffer.as_ref()));
            if ranges.is_empty() {
                this.port.submit(request, done);
            } else {
                zeroing::submit(&*this.port, &request, &ranges, done);
            }
        }
        true
    }

    /// A request has ended.
    fn finish(&self, pending: &PendingReply, result: Result<(), IoError>, buffer: Option<&Buffer>) {
        let index = usize::from(pending.queue);
        let mut state = self.lock();
        let State { memory, queues, .. } = &mut *state;
        let q = &mut queues[index];
        let data = buffer.filter(|b| pending.read > 0 && b.len() == pending.read as usize);
        let status = match result {
            // A read without its data is a fault of the port. An error is better than wrong data.
            Ok(()) if pending.read == 0 || data.is_some() => status::OK,
            _ => status::ERROR,
        };
        let answered = q.answer(memory, pending.head, status, data.map(|b| &**b));
        if let Err(why) = answered {
            self.fail(q, index, why);
        }
        if q.in_flight == 0 {
            self.idle.notify_all();
        }
    }
}

/// A request for which a guest waits. If it is dropped without a result (a port that loses a completion), the guest gets an error.
struct PendingReply {
    device: Arc<Device>,
    queue: u16,
    head: u16,
    read: u32,
    sent: bool,
}

impl PendingReply {
    fn complete(mut self, result: Result<(), IoError>, buffer: Option<&Buffer>) {
        self.sent = true;
        self.device.finish(&self, result, buffer);
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.sent {
            self.device.finish(self, Err(IoError::Gone), None);
        }
    }
}

/// The device as a source of the engine's thread.
pub(super) struct Kicks(pub Arc<Device>);

impl Source for Kicks {
    fn fd(&self) -> RawFd {
        self.0.epoll.as_raw_fd()
    }

    fn receive(&mut self) -> Watch {
        let mut events = [MaybeUninit::uninit(); block::QUEUES_MAX as usize + 1];
        let now = Timespec::default();
        // Interrupted: the descriptor stays readable.
        let kicked = epoll::wait(&self.0.epoll, &mut events, Some(&now));
        let mut state = self.0.lock();
        for event in kicked.map(|k| k.0).unwrap_or_default() {
            let data = event.data;
            if data.u64() != BELL {
                state.due |= 1 << data.u64();
            }
        }
        let (due, is_over) = (state.due, state.is_over);
        drop(state);
        if is_over {
            return Watch::Ended;
        }
        let queues = (0..usize::from(block::QUEUES_MAX)).filter(|i| due >> i & 1 == 1);
        let mut more = false;
        for index in queues {
            more |= Device::take(&self.0, index);
        }
        if more { Watch::Busy } else { Watch::Empty }
    }

    fn settle(&mut self) {
        let mut state = self.0.lock();
        let State { memory, queues, .. } = &mut *state;
        for q in queues.iter_mut().filter(|q| q.owes_call) {
            q.settle(memory);
        }
    }
}
