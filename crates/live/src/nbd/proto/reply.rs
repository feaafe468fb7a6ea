//! Replies of the transmission phase, built by the code that completes a request.

use std::ops::Deref;

use super::Errno;
use super::wire::{SIMPLE_REPLY_MAGIC, STATE_HOLE_ZERO, STRUCTURED_REPLY_MAGIC, chunk};

/// The context id of `base:allocation`.
pub(super) const ALLOCATION_ID: u32 = 1;
/// Structured header and the offset of a data chunk.
const MAX_HEAD: usize = 28;

/// The form of the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A simple reply without data.
    Simple,
    /// A simple reply with data.
    SimpleRead,
    /// Structured chunks with data.
    StructuredRead,
    /// A structured reply with runs.
    BlockStatus,
}

/// Permission and obligation to reply once. It is plain data and may be passed to another thread.
#[derive(Debug)]
#[must_use = "every request is owed one reply"]
pub struct Ticket {
    cookie: u64,
    kind: Kind,
    offset: u64,
    payload: u32,
}

/// The bytes of a reply before its data, or all of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; MAX_HEAD],
    len: u8,
}

impl Deref for Head {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Head {
    fn new(parts: &[&[u8]]) -> Head {
        let mut head = Head {
            bytes: [0; MAX_HEAD],
            len: 0,
        };
        for part in parts {
            let at = usize::from(head.len);
            head.bytes[at..at + part.len()].copy_from_slice(part);
            head.len += part.len() as u8;
        }
        head
    }

    fn simple(cookie: u64, error: u32) -> Head {
        Head::new(&[
            &SIMPLE_REPLY_MAGIC.to_be_bytes(),
            &error.to_be_bytes(),
            &cookie.to_be_bytes(),
        ])
    }

    fn last_chunk(cookie: u64, kind: u16, len: u32, body: &[u8]) -> Head {
        Head::new(&[
            &STRUCTURED_REPLY_MAGIC.to_be_bytes(),
            &chunk::FLAG_DONE.to_be_bytes(),
            &kind.to_be_bytes(),
            &cookie.to_be_bytes(),
            &len.to_be_bytes(),
            body,
        ])
    }
}

impl Ticket {
    pub(super) fn new(cookie: u64, kind: Kind, offset: u64, payload: u32) -> Ticket {
        Ticket {
            cookie,
            kind,
            offset,
            payload,
        }
    }

    /// Bytes counted against the connection's limit until the reply is sent.
    pub fn payload_bytes(&self) -> u32 {
        self.payload
    }

    /// The client's identifier of the request.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The beginning of a successful reply; for a READ, exactly `len` bytes of data follow it.
    pub fn success(&self) -> Head {
        match self.kind {
            Kind::Simple | Kind::SimpleRead => Head::simple(self.cookie, 0),
            // The data is complete before the reply starts, so one chunk is enough and no error can follow it.
            Kind::StructuredRead if self.payload != 0 => Head::last_chunk(
                self.cookie,
                chunk::OFFSET_DATA,
                8 + self.payload,
                &self.offset.to_be_bytes(),
            ),
            // A content chunk must not be empty.
            Kind::StructuredRead | Kind::BlockStatus => {
                Head::last_chunk(self.cookie, chunk::NONE, 0, &[])
            }
        }
    }

    /// The whole reply of a failed request.
    pub fn failure(&self, error: Errno) -> Head {
        match self.kind {
            Kind::Simple | Kind::SimpleRead => Head::simple(self.cookie, error as u32),
            Kind::StructuredRead | Kind::BlockStatus => {
                let mut body = [0; 6]; // error, and an empty message
                body[..4].copy_from_slice(&(error as u32).to_be_bytes());
                Head::last_chunk(self.cookie, chunk::ERROR, 6, &body)
            }
        }
    }

    /// The whole reply to BLOCK_STATUS: runs of (bytes, mapped) from the request's offset on; only the part inside its `len` bytes counts.
    /// An empty list of runs is an error, because the protocol cannot express it.
    pub fn block_status(&self, len: u32, runs: &[(u32, bool)]) -> Vec<u8> {
        let mut left = len;
        let mut descriptors = Vec::with_capacity(8 * runs.len());
        for &(bytes, mapped) in runs {
            let bytes = bytes.min(left);
            if bytes != 0 {
                left -= bytes;
                descriptors.extend_from_slice(&bytes.to_be_bytes());
                descriptors
                    .extend_from_slice(&(if mapped { 0 } else { STATE_HOLE_ZERO }).to_be_bytes());
            }
        }
        if descriptors.is_empty() {
            return self.failure(Errno::Io).to_vec();
        }
        let total = 4 + descriptors.len() as u32;
        let mut bytes = Head::last_chunk(
            self.cookie,
            chunk::BLOCK_STATUS,
            total,
            &ALLOCATION_ID.to_be_bytes(),
        )
        .to_vec();
        bytes.extend_from_slice(&descriptors);
        bytes
    }
}
