//! Handles the frequent requests (reads, writes, flushes) without a thread of their own.
//!
//! At queue depth 1 the hand-off from a session thread to the engine's thread costs as much as the rest of the request. A [`Pump`] lets the
//! engine's thread take requests from `/dev/fuse` itself: it watches the descriptor in its ring and calls [`Pump::receive`] when it is
//! readable. Reads, writes and flushes go to the port on that thread. Everything else (directory, attributes, `fallocate`, `lseek`) is
//! passed on unread to fuser, whose session runs on one end of a packet socket instead of `/dev/fuse`. So most of the protocol is left to
//! fuser.
//!
//! ```text
//! /dev/fuse ──► Pump ── READ, WRITE, FSYNC ──► port ──► reply to /dev/fuse from the completion
//!                 └── all others ──► socket ──► fuser ──► socket ──► relay thread ──► /dev/fuse
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use isotherm_core::IoError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::calls::{self, Carrier};
use super::ring::Answers;
use super::wire::{self, Call, IN_HEADER, IO_HEADER, MAX_IO, out_header, unique};
use crate::port::{Buffer, Port};
use crate::server::Handle;

/// Longest wait for fuser's answer to INIT.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of the largest message that is not a write, guaranteed by the kernel (`FUSE_MIN_READ_BUFFER`).
const OTHER_MESSAGE_MAX: usize = 8192;
/// Largest reply of fuser: a directory page or the answer to INIT.
const FUSER_REPLY_MAX: usize = 1 << 17;

/// The result of [`Pump::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A request was taken, and is in progress or answered.
    Request,
    /// No request is waiting: watch the descriptor for input.
    Nothing,
    /// The file system was unmounted or its connection cut: no request will come any more.
    Ended,
}

/// Takes requests from `/dev/fuse` on the caller's thread and never blocks, with one exception: [`Port::buffer`] waits for memory that
/// completions return. If completions run on this same thread, that wait would not end; so call [`Pump::receive`] only while the port has
/// [`Pump::LARGEST`] bytes available.
pub struct Pump {
    device: Arc<File>,
    fuser_link: Arc<FuserLink>,
    port: Arc<dyn Port>,
    buffer: Box<[u8]>,
}

impl AsFd for Pump {
    /// Readable when a request waits or the session has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// The answer to one request, written to `/dev/fuse`.
struct Reply {
    device: Option<Arc<File>>,
    unique: u64,
}

impl Reply {
    fn write(&mut self, error: i32, payload: &[u8]) {
        let Some(device) = self.device.take() else {
            return;
        };
        let header = out_header(self.unique, error, payload.len());
        // This fails only if the caller was killed or the mount is gone; then the answer is not needed.
        let _ = (&*device).write_vectored(&[IoSlice::new(&header), IoSlice::new(payload)]);
    }
}

impl Carrier for Reply {
    fn lend(&self, _offset: u64, _bytes: u32) -> Option<Buffer> {
        None
    }

    fn fail(mut self, error: IoError) {
        self.write(calls::errno(error).raw_os_error(), &[]);
    }

    fn answer(mut self, payload: &[u8]) {
        self.write(0, payload);
    }

    fn answer_from_lent(self, _bytes: u32) {
        self.fail(IoError::Io);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.write(Errno::IO.raw_os_error(), &[]);
    }
}

impl Pump {
    /// Payload of the largest request, bytes.
    pub const LARGEST: u32 = MAX_IO;

    /// Takes and starts one request, if one waits.
    ///
    /// # Errors
    /// The kernel's descriptor fails in a way that leaves no session; the mount should be dropped then.
    pub fn receive(&mut self) -> io::Result<Received> {
        let read = loop {
            match (&*self.device).read(&mut self.buffer) {
                Ok(read) => break read,
                Err(error) => match Errno::from_io_error(&error) {
                    // ENOENT: the request was interrupted before it could be read.
                    Some(Errno::INTR | Errno::NOENT) => {}
                    Some(Errno::AGAIN) => return Ok(Received::Nothing),
                    Some(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Ended),
                    _ => return Err(error),
                },
            }
        };
        let message = &self.buffer[..read];
        if self.take_frequent(message).is_none() {
            self.fuser_link.pass_on(message);
        }
        Ok(Received::Request)
    }

    /// The descriptor from which requests come.
    pub(super) fn device(&self) -> Arc<File> {
        Arc::clone(&self.device)
    }

    /// Called when no more requests can be taken: ends fuser's session as well, so that the mount notices the end.
    pub(super) fn end(&self) {
        self.fuser_link.close();
    }

    /// Starts a read, write or flush. Returns `None` for everything else; then nothing was done.
    fn take_frequent(&self, message: &[u8]) -> Option<()> {
        let (header, arguments) = message.split_at_checked(IN_HEADER)?;
        let call = Call::decode(header, arguments)?;
        let payload = match call {
            Call::Write(range) => arguments.get(IO_HEADER..)?.get(..range.bytes as usize)?,
            Call::Read(_) | Call::Fsync => &[],
        };
        let reply = Reply {
            device: Some(Arc::clone(&self.device)),
            unique: unique(header)?,
        };
        let copy = |_: &Reply, to: &mut [u8]| to.copy_from_slice(&payload[..to.len()]);
        calls::start(&*self.port, call, reply, payload.len(), copy);
        Some(())
    }

    /// A pump of the same mount, for another thread.
    pub(super) fn another(&self) -> Pump {
        Pump {
            device: Arc::clone(&self.device),
            fuser_link: Arc::clone(&self.fuser_link),
            port: Arc::clone(&self.port),
            buffer: vec![0; self.buffer.len()].into(),
        }
    }

    /// Takes requests on this thread until the mount ends. The port's completions must run on other threads, or before `submit` returns.
    pub(super) fn run(mut self) {
        loop {
            match self.receive() {
                Ok(Received::Request) => {}
                Ok(Received::Nothing) => {
                    // If it fails, the next call says why.
                    let _ = poll(&mut [PollFd::new(&self, PollFlags::IN)], None);
                }
                Ok(Received::Ended) | Err(_) => return self.end(),
            }
        }
    }
}

/// The connection to fuser's session and back.
pub(super) struct FuserLink {
    socket: OwnedFd,
    device: Arc<File>,
    /// Messages for which the socket was full. The engine's thread must not wait for fuser, because fuser may be waiting for the engine
    /// (allocation status). So they wait here until the relay has received an answer of fuser.
    backlog: Mutex<VecDeque<Vec<u8>>>,
    init: Mutex<Init>,
    initialised: Condvar,
    /// For answers to requests that came through ring entries: the engine's thread, and the entries.
    ring: OnceLock<(Handle, Answers)>,
    /// Whether fuser gives no more answers.
    ended: AtomicBool,
}

/// The state of the negotiation with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Init {
    /// fuser has not answered INIT yet. `ring`: whether to accept requests through io_uring, because the kernel offered it and it is
    /// wanted.
    Asked { unique: u64, ring: bool },
    /// The kernel has the answer.
    Answered { ring: bool },
}

impl std::fmt::Debug for FuserLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FuserLink").finish_non_exhaustive()
    }
}

impl FuserLink {
    pub(super) fn new(socket: OwnedFd, device: Arc<File>) -> FuserLink {
        FuserLink {
            socket,
            device,
            backlog: Mutex::default(),
            init: Mutex::new(Init::Answered { ring: false }),
            initialised: Condvar::new(),
            ring: OnceLock::new(),
            ended: AtomicBool::new(false),
        }
    }

    fn init(&self) -> MutexGuard<'_, Init> {
        // A plain value is always consistent.
        self.init.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, answers to requests that came through ring entries go to these entries.
    pub(super) fn set_ring(&self, handle: Handle, answers: Answers) {
        // Set once, because a mount has its entries once.
        let _ = self.ring.set((handle, answers));
    }

    /// Waits for fuser's answer to INIT. Returns whether the answer accepted requests through io_uring; `None` if no answer came in time.
    pub(super) fn agreed(&self) -> Option<bool> {
        let asked = |init: &mut Init| matches!(init, Init::Asked { .. });
        let waited = self
            .initialised
            .wait_timeout_while(self.init(), INIT_TIMEOUT, asked);
        match *waited.unwrap_or_else(PoisonError::into_inner).0 {
            Init::Answered { ring } => Some(ring),
            Init::Asked { .. } => None,
        }
    }

    /// Passes one of fuser's replies to the kernel.
    fn relay_reply(&self, reply: &mut [u8]) {
        let mut init = self.init();
        if let Init::Asked {
            unique: asked,
            ring,
        } = *init
            && unique(reply) == Some(asked)
        {
            let ring = ring && wire::accept_ring(reply);
            // A caller that was killed does not need its answer; the kernel then returns an error.
            let _ = (&*self.device).write(reply);
            *init = Init::Answered { ring };
            self.initialised.notify_all();
            return;
        }
        drop(init);
        let Some((handle, answers)) = self.ring.get() else {
            let _ = (&*self.device).write(reply);
            return;
        };
        let (answers, device, reply) = (answers.clone(), Arc::clone(&self.device), reply.to_vec());
        // Entries belong to the engine's thread. A closed volume gives no more answers.
        handle.post(move || {
            if !answers.answer(&reply) {
                let _ = (&*device).write(&reply);
            }
        });
    }

    fn backlog(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        // Whole messages are added and removed, so a panic elsewhere leaves the list consistent.
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false if the socket is full.
    fn send(&self, message: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // Any other error means that the session has ended, so the answer is not needed.
        net::send(&self.socket, message, flags) != Err(Errno::AGAIN)
    }

    /// Passes a request to fuser. Returns false if its session has ended.
    pub(super) fn pass_on(&self, message: &[u8]) -> bool {
        let mut backlog = self.backlog();
        backlog.push_back(message.to_vec());
        self.drain(&mut backlog);
        !self.ended.load(Ordering::SeqCst)
    }

    fn drain(&self, backlog: &mut VecDeque<Vec<u8>>) {
        while backlog.front().is_some_and(|message| self.send(message)) {
            backlog.pop_front();
        }
    }

    /// Relays fuser's replies to the kernel until the socket is closed. Requests that fuser has not answered by then get an error.
    pub(super) fn relay(&self) {
        self.relay_replies();
        // A request that is passed on before this is in its entry when the engine's thread looks for it below.
        self.ended.store(true, Ordering::SeqCst);
        if let Some((handle, answers)) = self.ring.get() {
            let answers = answers.clone();
            handle.post(move || answers.fuser_ended());
        }
    }

    fn relay_replies(&self) {
        let mut reply = vec![0; FUSER_REPLY_MAX];
        loop {
            match net::recv(&self.socket, &mut *reply, RecvFlags::empty()) {
                Ok((0, _)) => return,
                Ok((len, _)) => self.relay_reply(&mut reply[..len]),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
            self.drain(&mut self.backlog());
        }
    }

    /// Tells the kernel to forget the attributes of an inode. It has done so when this returns. (A message through fuser and the relay would
    /// take effect some time later.)
    pub(super) fn forget_attributes(&self, inode: u64) -> io::Result<()> {
        match (&*self.device).write(&wire::forget_attributes(inode)) {
            // The kernel knows nothing of the inode.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NOENT) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Ends fuser's session and the relay.
    pub(super) fn close(&self) {
        // This fails only if it was closed before.
        let _ = net::shutdown(&self.socket, net::Shutdown::Both);
    }
}

/// A pump, and the parts that keep fuser's session beside it alive.
pub(super) struct Parts {
    pub pump: Pump,
    /// fuser's end of the socket.
    pub session: OwnedFd,
    /// Our end.
    pub fuser_link: Arc<FuserLink>,
}

/// Two connected sockets that keep the boundaries of messages.
fn packet_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(net::socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)?)
}

/// Divides the requests of a new mount between a pump and fuser's session. The kernel's INIT is passed on at once, so that fuser's session
/// finds it; its answer is relayed like all others. With `ring`, the answer accepts requests through io_uring if the kernel offers them.
pub(super) fn split(device: OwnedFd, port: Arc<dyn Port>, ring: bool) -> io::Result<Parts> {
    let (ours, session) = packet_sockets()?;
    let device = Arc::new(File::from(device));
    let fuser_link = Arc::new(FuserLink::new(ours, Arc::clone(&device)));
    // The kernel requires room for the largest write with its headers before it gives any request.
    let buffer = vec![0; MAX_IO as usize + OTHER_MESSAGE_MAX].into_boxed_slice();
    let mut pump = Pump {
        device,
        fuser_link: Arc::clone(&fuser_link),
        port,
        buffer,
    };
    // The descriptor is still blocking, so this waits for INIT.
    pump.receive()?;
    if let Some((unique, offered)) = wire::init(&pump.buffer) {
        let ring = ring && offered;
        *fuser_link.init() = Init::Asked { unique, ring };
    }
    fcntl_setfl(&*pump.device, OFlags::NONBLOCK)?;
    Ok(Parts {
        pump,
        session,
        fuser_link,
    })
}

#[cfg(test)]
mod tests;
