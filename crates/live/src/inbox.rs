//! Passes requests from other threads to the engine's thread: a bounded lock-free queue, and an eventfd that is written only when the
//! engine's thread sleeps.

mod doorbell;
#[cfg(test)]
mod modelled;

/// The atomics of [`doorbell`]; its model uses others.
mod atomics {
    pub use std::sync::atomic::{AtomicBool, Ordering, fence};
}

use crate::port::{Completion, IoRequest};
use crossbeam_queue::ArrayQueue;
use doorbell::Doorbell;
use isotherm_core::IoError;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

/// A request on its way to the engine.
pub struct Submission {
    /// The operation, its range and its payload.
    pub request: IoRequest,
    /// The receiver of the result.
    pub done: Done,
}

/// The way in which the end of a request is reported.
pub enum Done {
    /// This function is called.
    Call(Completion),
    /// This number is pushed to [`crate::world::UringWorld::ended`]: for sources on the engine's own thread, which allocate nothing.
    Ticket(u64),
}

/// See the module. `C` is the type on which commands act.
pub struct Inbox<C> {
    queue: ArrayQueue<Submission>,
    /// Requests that the engine's own thread submits. It must not wait for space in the queue, because it is the thread that empties the
    /// queue, and it need not be woken.
    own: Mutex<VecDeque<Submission>>,
    owned: AtomicUsize,
    commands: Mutex<VecDeque<C>>,
    commanded: AtomicBool,
    closed: AtomicBool,
    door: Doorbell,
    owner: OnceLock<ThreadId>,
    bell: File,
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C> Inbox<C> {
    /// An inbox with room for `capacity` requests.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(capacity: usize) -> io::Result<Inbox<C>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox {
            queue: ArrayQueue::new(capacity),
            own: Mutex::new(VecDeque::with_capacity(1024)),
            owned: AtomicUsize::new(0),
            commands: Mutex::default(),
            commanded: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            door: Doorbell::new(),
            owner: OnceLock::new(),
            bell: File::from(bell),
        })
    }

    /// Hands a request over; waits while the queue is full, except on the engine's own thread.
    ///
    /// # Errors
    /// Returns the request if the volume is closed.
    // A boxed error would be an allocation for each request.
    #[allow(clippy::result_large_err)]
    pub fn push(&self, mut s: Submission) -> Result<(), Submission> {
        if self.on_own_thread() {
            if self.closed.load(Ordering::Acquire) {
                return Err(s);
            }
            locked(&self.own).push_back(s);
            self.owned.fetch_add(1, Ordering::Release);
            return Ok(());
        }
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(s);
            }
            match self.queue.push(s) {
                Ok(()) => break,
                Err(back) => s = back,
            }
            self.wake();
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        self.wake();
        // The engine's thread may have ended between the check above and the push.
        if self.door.has_ended() {
            self.refuse_all();
        }
        Ok(())
    }

    /// Hands over a command to run between events. Returns false if the volume is closed: then it will not run.
    pub fn command(&self, c: C) -> bool {
        let mut commands = locked(&self.commands);
        if self.closed.load(Ordering::Acquire) {
            return false;
        }
        commands.push_back(c);
        self.commanded.store(true, Ordering::Release);
        drop(commands);
        self.wake();
        true
    }

    /// Wakes the engine's thread if it sleeps.
    pub fn wake(&self) {
        if self.door.must_ring() {
            // This fails only if the counter is full, and then the bell rings already.
            let _ = (&self.bell).write(&1u64.to_ne_bytes());
        }
    }

    /// A descriptor that becomes readable when the bell is rung.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Makes the calling thread the engine's thread.
    pub fn adopt(&self) {
        let _ = self.owner.set(std::thread::current().id());
    }

    /// Whether the caller is the engine's thread.
    pub fn on_own_thread(&self) -> bool {
        self.owner.get() == Some(&std::thread::current().id())
    }

    /// The next request; the requests of one thread stay in order.
    pub fn pop(&self) -> Option<Submission> {
        // Popping from an empty queue costs a fence, and the engine's thread calls this in every loop.
        let handed = if self.queue.is_empty() {
            None
        } else {
            self.queue.pop()
        };
        handed.or_else(|| {
            if self.owned.load(Ordering::Acquire) == 0 {
                return None;
            }
            let s = locked(&self.own).pop_front();
            self.owned
                .fetch_sub(usize::from(s.is_some()), Ordering::Release);
            s
        })
    }

    /// The next command.
    pub fn pop_command(&self) -> Option<C> {
        if !self.commanded.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = locked(&self.commands);
        let c = commands.pop_front();
        self.commanded
            .store(!commands.is_empty(), Ordering::Release);
        c
    }

    /// Whether there is anything to pop.
    pub fn has_mail(&self) -> bool {
        !self.queue.is_empty()
            || self.owned.load(Ordering::Acquire) != 0
            || self.commanded.load(Ordering::Acquire)
    }

    /// Called before the engine's thread sleeps. Returns false if it must not sleep, because there is something to pop.
    pub fn prepare_sleep(&self) -> bool {
        self.door.prepare_sleep(|| self.has_mail())
    }

    /// Called when the engine's thread has woken up.
    pub fn woken(&self) {
        self.door.woken();
    }

    /// From now on, new requests and commands are refused. Queued ones can still be popped.
    pub fn close(&self) {
        let _commands = locked(&self.commands);
        self.closed.store(true, Ordering::Release);
    }

    /// Called when the engine's thread ends: refuses all queued and later requests.
    pub fn end(&self) {
        self.close();
        self.door.end();
        self.refuse_all();
        let dropped = std::mem::take(&mut *locked(&self.commands));
        drop(dropped);
    }

    fn refuse_all(&self) {
        while let Some(s) = self.pop() {
            s.refuse(IoError::Gone);
        }
    }
}

impl Submission {
    /// Ends the request without the engine. Tickets cannot be reported here: their source is on the engine's thread and sees the end
    /// itself.
    pub fn refuse(self, error: IoError) {
        if let Done::Call(done) = self.done {
            done.call(Err(error), self.request.buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::RequestOp;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::sync::Arc;

    fn flush(n: u64) -> Submission {
        let done = Done::Ticket(n);
        Submission {
            request: IoRequest::new(RequestOp::Flush, n, 0),
            done,
        }
    }

    #[test]
    fn nothing_is_lost_between_pushing_and_sleeping() {
        let inbox = Arc::new(Inbox::<()>::new(8).unwrap());
        let threads: Vec<_> = (0..3u64)
            .map(|t| {
                let inbox = Arc::clone(&inbox);
                std::thread::spawn(move || {
                    (0..3000).for_each(|i| assert!(inbox.push(flush(t << 32 | i)).is_ok()));
                })
            })
            .collect();
        let mut next = [0u64; 3];
        while next.iter().sum::<u64>() < 9000 {
            match inbox.pop() {
                Some(s) => {
                    let t = (s.request.offset >> 32) as usize;
                    assert_eq!(s.request.offset & 0xffff_ffff, next[t], "out of order");
                    next[t] += 1;
                }
                None if inbox.prepare_sleep() => {
                    // Sleeps as the world does, without a time limit: a lost wake-up would hang here.
                    let mut watched = [PollFd::new(&inbox.bell, PollFlags::IN)];
                    poll(&mut watched, None).unwrap();
                    let mut count = [0; 8];
                    let _ = io::Read::read(&mut &inbox.bell, &mut count);
                    inbox.woken();
                }
                None => {}
            }
        }
        for t in threads {
            t.join().unwrap();
        }
    }

    #[test]
    fn the_own_thread_never_waits_and_a_closed_inbox_refuses() {
        let inbox = Inbox::<u8>::new(2).unwrap();
        inbox.adopt();
        for i in 0..5 {
            assert!(inbox.push(flush(i)).is_ok());
        }
        assert!(inbox.command(7));
        inbox.close();
        assert!(inbox.push(flush(9)).is_err() && !inbox.command(8));
        let order: Vec<u64> = std::iter::from_fn(|| inbox.pop())
            .map(|s| s.request.offset)
            .collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert_eq!((inbox.pop_command(), inbox.pop_command()), (Some(7), None));
        assert!(!inbox.has_mail());
    }
}
