//! Messages of vhost-user: what their bytes and descriptors are, not what they mean.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The requests that are understood.
pub(super) mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// A request to the monitor, on a socket of its own: the configuration has changed.
const CONFIG_CHANGED: u32 = 2;

const HEADER: usize = 12;
const BODY_MAX: usize = 512;
/// Most descriptors of a message: the regions of a memory table.
const FILES_MAX: usize = 8;
const VERSION: u32 = 1;
const IS_REPLY: u32 = 4;
const NEEDS_REPLY: u32 = 8;

/// An error of a peer that broke the protocol.
pub(super) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A request of the peer.
#[derive(Debug)]
pub(super) struct Message {
    pub code: u32,
    /// The peer wants to know whether this succeeded.
    pub wants_ack: bool,
    pub body: Vec<u8>,
    pub files: Vec<File>,
}

/// The numbers of a body, little-endian, from its start.
pub(super) struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (taken, rest) =
            (self.0.split_first_chunk()).ok_or_else(|| invalid("a short message"))?;
        self.0 = rest;
        Ok(*taken)
    }
    pub fn u16(&mut self) -> io::Result<u16> {
        self.take().map(u16::from_le_bytes)
    }
    pub fn u32(&mut self) -> io::Result<u32> {
        self.take().map(u32::from_le_bytes)
    }
    pub fn u64(&mut self) -> io::Result<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

impl Message {
    pub fn fields(&self) -> Fields<'_> {
        Fields(&self.body)
    }

    /// The only descriptor.
    pub fn file(&mut self) -> io::Result<File> {
        let file = self.files.pop().filter(|_| self.files.is_empty());
        file.ok_or_else(|| invalid("not one descriptor"))
    }
}

/// Receives a request; `None` at the end of the stream.
///
/// # Errors
/// The peer broke the protocol, or stopped in the middle of a message for the socket's time limit.
pub(super) fn receive(mut socket: &UnixStream) -> io::Result<Option<Message>> {
    let mut header = [0; HEADER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut header)];
    let got = rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            files.extend(all.map(File::from));
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(invalid("too many descriptors"));
    }
    socket.read_exact(&mut header[got.bytes..])?;
    let mut fields = Fields(&header);
    let (code, flags, size) = (fields.u32()?, fields.u32()?, fields.u32()? as usize);
    if flags & 3 != VERSION || flags & IS_REPLY != 0 || size > BODY_MAX {
        return Err(invalid("a wrong header"));
    }
    let mut body = vec![0; size];
    socket.read_exact(&mut body)?;
    Ok(Some(Message {
        code,
        wants_ack: flags & NEEDS_REPLY != 0,
        body,
        files,
    }))
}

fn send(
    socket: impl AsFd,
    (code, flags): (u32, u32),
    body: &[u8],
    file: Option<BorrowedFd<'_>>,
    how: SendFlags,
) -> io::Result<()> {
    let header = [code, flags, body.len() as u32].map(u32::to_le_bytes);
    let parts = [IoSlice::new(header.as_flattened()), IoSlice::new(body)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = file.as_slice();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let sent = rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL | how)?;
    if sent != HEADER + body.len() {
        return Err(invalid("a peer that does not take its replies"));
    }
    Ok(())
}

/// Answers a request.
///
/// # Errors
/// The peer has gone, or does not read.
pub(super) fn reply(
    socket: &UnixStream,
    code: u32,
    body: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    send(
        socket,
        (code, VERSION | IS_REPLY),
        body,
        file,
        SendFlags::empty(),
    )
}

/// Tells the monitor that the device's configuration has changed. Does not wait.
///
/// # Errors
/// As [`reply`].
pub(super) fn tell_change(channel: &File) -> io::Result<()> {
    send(
        channel,
        (CONFIG_CHANGED, VERSION),
        &[],
        None,
        SendFlags::DONTWAIT,
    )
}
