//! Handles the frequent requests (reads, writes, flushes) without a thread of their own.
//!
//! At queue depth 1 the hand-off from a session thread to the engine's thread costs as much as the rest of the request. A [`Pump`] lets the
//! engine's thread take requests from `/dev/fuse` itself: it watches the descriptor in its ring and calls [`Pump::receive`] when it is
//! readable. Reads, writes and flushes go to the port on that thread. Everything else (directory, attributes, `fallocate`, `lseek`) is
//! passed on unread to fuser, whose session runs on one end of a packet socket instead of `/dev/fuse`. So most of the protocol is left to
//! fuser, and this module decodes only three messages.
//!
//! ```text
//! /dev/fuse ──► Pump ── READ, WRITE, FSYNC ──► port ──► reply to /dev/fuse from the completion
//!                 └── all others ──► socket ──► fuser ──► socket ──► relay thread ──► /dev/fuse
//! ```
//!
//! Message layouts: `include/uapi/linux/fuse.h`, all fields in native byte order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use isotherm_core::IoError;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::answers::{errno, fsync, is_durable};
use super::ring::Answers;
use super::wire::{FUSE_FSYNC, FUSE_READ, FUSE_WRITE, IN_HEADER, IO_HEADER, MAX_IO, OUT_HEADER};
use crate::port::{Buffer, Completion, IoRequest, Port};
use crate::server::Handle;

const FUSE_INIT: u32 = 26;
/// `FUSE_INIT_EXT`: the message has a second word of flags, one of which is `FUSE_OVER_IO_URING`.
const INIT_MORE: u32 = 1 << 30;
const INIT_RING: u32 = 1 << 9;
/// Byte offsets of the first and the second word of flags in `fuse_init_in` and in `fuse_init_out`.
const INIT_IN_FLAGS: [usize; 2] = [12, 16];
const INIT_OUT_FLAGS: [usize; 2] = [12, 32];
/// Longest wait for fuser's answer to INIT.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// `FUSE_NOTIFY_INVAL_INODE`: a header and three numbers.
const FORGET: i32 = 2;
const FORGET_BYTES: usize = OUT_HEADER + 24;
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

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The answer to one request. If it is dropped without being sent (a port that loses a completion), it answers `EIO`, because a caller must
/// never wait for ever.
struct Reply {
    device: Option<Arc<File>>,
    unique: u64,
}

impl Reply {
    fn send(mut self, error: i32, payload: &[u8]) {
        self.write(error, payload);
    }

    fn write(&mut self, error: i32, payload: &[u8]) {
        let Some(device) = self.device.take() else {
            return;
        };
        let mut header = [0; OUT_HEADER];
        header[..4].copy_from_slice(&((OUT_HEADER + payload.len()) as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&(-error).to_ne_bytes());
        header[8..].copy_from_slice(&self.unique.to_ne_bytes());
        // This fails only if the caller was killed or the mount is gone; then the answer is not needed.
        let _ = (&*device).write_vectored(&[IoSlice::new(&header), IoSlice::new(payload)]);
    }

    fn error(self, error: IoError) {
        self.send(i32::from(errno(error)), &[]);
    }

    /// The answer to a write: `fuse_write_out`, bytes written and padding.
    fn written(self, len: u32) {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&len.to_ne_bytes());
        self.send(0, &out);
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
        let opcode = u32_at(message, 4)?;
        let unique = u64_at(message, 8)?;
        let reply = || Reply {
            device: Some(Arc::clone(&self.device)),
            unique,
        };
        if opcode == FUSE_FSYNC {
            self.flush(reply());
            return Some(());
        }
        if !matches!(opcode, FUSE_READ | FUSE_WRITE) {
            return None;
        }
        let (offset, asked) = (
            u64_at(message, IN_HEADER + 8)?,
            u32_at(message, IN_HEADER + 16)?,
        );
        let flags = u32_at(message, IN_HEADER + 32)? as i32;
        let len = u64::from(asked).min(self.port.volume_bytes().saturating_sub(offset)) as u32;
        if opcode == FUSE_READ {
            self.read(offset, len, reply());
        } else {
            let payload = message
                .get(IN_HEADER + IO_HEADER..)?
                .get(..asked as usize)?;
            self.write(offset, len, payload, flags, reply());
        }
        Some(())
    }

    fn flush(&self, reply: Reply) {
        let done = move |result, _buffer| match result {
            Ok(()) => reply.send(0, &[]),
            Err(error) => reply.error(error),
        };
        fsync(&*self.port, Completion::new(done));
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        if len == 0 {
            return reply.send(0, &[]);
        }
        let buffer = self.port.buffer(offset, len);
        let done = move |result, buffer: Option<Buffer>| match (result, buffer) {
            (Ok(()), Some(buffer)) => reply.send(0, &buffer),
            (Ok(()), None) => reply.error(IoError::Io),
            (Err(error), _) => reply.error(error),
        };
        self.port
            .submit(IoRequest::read(offset, len, buffer), Completion::new(done));
    }

    /// `len` is the number of bytes of `payload` inside the volume.
    fn write(&self, offset: u64, len: u32, payload: &[u8], flags: i32, reply: Reply) {
        if self.port.read_only() {
            return reply.error(IoError::ReadOnly);
        }
        if len == 0 {
            return if payload.is_empty() {
                reply.written(0);
            } else {
                reply.error(IoError::NoSpace);
            };
        }
        let mut buffer = self.port.buffer(offset, len);
        buffer.copy_from_slice(&payload[..len as usize]);
        let fua = is_durable(flags);
        let done = move |result, _buffer| match result {
            Ok(()) => reply.written(len),
            Err(error) => reply.error(error),
        };
        self.port.submit(
            IoRequest::write(offset, len, buffer).with_fua(fua),
            Completion::new(done),
        );
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
        let unique = u64_at(reply, 8);
        let mut init = self.init();
        if let Init::Asked {
            unique: asked,
            ring,
        } = *init
            && unique == Some(asked)
        {
            let ring = ring && agree(reply);
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
        let mut message = Vec::with_capacity(FORGET_BYTES);
        message.extend((FORGET_BYTES as u32).to_ne_bytes());
        message.extend(FORGET.to_ne_bytes());
        // A message without a request.
        message.extend(0u64.to_ne_bytes());
        message.extend(inode.to_ne_bytes());
        // A negative offset: no pages are meant.
        message.extend((-1i64).to_ne_bytes());
        message.extend(0i64.to_ne_bytes());
        match (&*self.device).write(&message) {
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

/// Whether this INIT offers requests through io_uring.
fn offered(message: &[u8]) -> bool {
    let [flags, more] = INIT_IN_FLAGS.map(|at| u32_at(message, IN_HEADER + at).unwrap_or(0));
    flags & INIT_MORE != 0 && more & INIT_RING != 0
}

/// Changes fuser's answer to INIT so that it accepts requests through io_uring, which fuser does not know. Returns false if the answer is
/// an error or too short for that.
fn agree(reply: &mut [u8]) -> bool {
    let long = reply.len() >= OUT_HEADER + INIT_OUT_FLAGS[1] + 4;
    if !long || u32_at(reply, 4) != Some(0) {
        return false;
    }
    for (at, flag) in INIT_OUT_FLAGS.into_iter().zip([INIT_MORE, INIT_RING]) {
        let at = OUT_HEADER + at;
        let flags = u32_at(reply, at).unwrap_or(0) | flag;
        reply[at..at + 4].copy_from_slice(&flags.to_ne_bytes());
    }
    true
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
    if u32_at(&pump.buffer, 4) == Some(FUSE_INIT) {
        let unique = u64_at(&pump.buffer, 8).unwrap_or_default();
        let ring = ring && offered(&pump.buffer);
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
