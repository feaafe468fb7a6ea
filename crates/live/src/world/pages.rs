//! Requests whose memory stays in the kernel ([`crate::pages`]): the ring's buffers for them, and what cannot be done with them directly.
//!
//! | case | how |
//! |---|---|
//! | a device reads into the pages, or writes from them | with the buffer's number: nothing is copied |
//! | zeros; a read from a move's buffer | copied into the pages |
//! | the same bytes are written to two members | copied to memory first, because the user may change the pages meanwhile, and the two members must not differ |
//! | a member refuses the pages (their alignment, or a file system that cannot) | this operation goes through memory |
//!
//! The writes that one event causes are issued together, so that a second write of the same bytes is known before the first one begins.
//!
//! Invariant: no two device writes of one request take the same bytes from its pages.

use super::flight::Flight;
use super::ring::Ring;
use super::start::iovec;
use super::{REAL, UringWorld};
use crate::buffers::{Arena, Region};
use crate::mutants::{LiveMutant, broken};
use crate::requests::Place;
use isotherm_core::{BufRef, IoError, OpKind, Tag};
use rustix::io::Errno;
use std::io;

/// Number of buffers for pages in the ring's table, after buffer 0, which is this process's memory.
pub(super) const BUFFERS: u16 = 4096;

/// Registers `region` as buffer 0, and with `pages` also free places for the pages of requests. Returns whether there is a buffer 0, and
/// the number of free places. If locked memory is limited or the kernel is older (5.19), plain operations do the same, only slower.
///
/// # Safety
/// The region lives longer than the ring.
pub(super) unsafe fn register(ring: &Ring, region: &Region, pages: bool) -> (bool, u16) {
    let memory = iovec(region.base(), region.bytes());
    let submitter = ring.submitter();
    if pages
        && submitter
            .register_buffers_sparse(1 + u32::from(BUFFERS))
            .is_ok()
    {
        // SAFETY: the caller's guarantee.
        let fixed = unsafe { submitter.register_buffers_update(0, &[memory], None) };
        return (fixed.is_ok(), BUFFERS);
    }
    // SAFETY: the caller's guarantee.
    let fixed: io::Result<()> = unsafe { submitter.register_buffers(&[memory]) };
    (fixed.is_ok(), 0)
}

impl UringWorld {
    /// The first of `number` consecutive buffers of the ring that no source uses. `None`: there are not so many.
    pub(crate) fn free_buffers(&self, number: u16) -> Option<u16> {
        let used = self.ring_sources.iter().flatten().map(|s| s.buffers().end);
        let first = used.max().unwrap_or(0).max(1);
        let end = first.checked_add(number)?;
        (end <= 1 + self.page_buffers).then_some(first)
    }

    /// Fills bytes of a request's pages with zeros.
    pub(super) fn zero_pages(&mut self, tag: Tag, offset: u32, len: u32) {
        let end = offset + len;
        for at in (offset..end).step_by(Arena::ZEROS) {
            let part = (end - at).min(Arena::ZEROS as u32);
            let zeros = &self.arena.zero_bytes()[..part as usize];
            self.requests.copy_in(tag, at, zeros);
        }
    }

    /// A write from a request's pages: it is issued together with all writes of this event. If another one takes the same bytes, the request
    /// leaves its pages.
    pub(super) fn hold_write(&mut self, id: u32, tag: Tag) {
        let range = |f: &Flight| match f.op.buf {
            BufRef::Request { tag: t, offset } if t == tag => Some((offset, offset + f.op.len)),
            _ => None,
        };
        let flights = &self.flights;
        let of = |id: u32| flights[id as usize].as_ref().and_then(range);
        let (from, to) = of(id).unwrap_or_default();
        // Writes of other requests may lie between those of this one.
        let mut others = self.held_writes.iter().filter_map(|&other| of(other));
        let twice = others.any(|(a, b)| a < to && from < b);
        if twice && !broken(LiveMutant::WritePagesTwice) {
            self.requests.leave_pages(tag);
        }
        self.held_writes.push(id);
    }

    /// Issues the writes that wait for the end of their event.
    pub(super) fn issue_held_writes(&mut self) {
        if self.held_writes.is_empty() {
            return;
        }
        let mut held = std::mem::take(&mut self.held_writes);
        for id in held.drain(..) {
            let op = self.flight(id).op;
            let BufRef::Request { tag, offset } = op.buf else {
                continue;
            };
            let place = self.requests.place(tag, offset, op.len, false);
            match place {
                Some(place) if !self.requests.has_failed(tag) => {
                    self.flight(id).at = place;
                    self.issue(id);
                }
                _ => self.settle(id, REAL, Err(IoError::Io)),
            }
        }
        // Keeps the list's memory. Nothing was added meanwhile: only an event adds writes.
        self.held_writes = held;
    }

    /// Whether this error can mean that a member does not accept pages of another process.
    pub(super) fn refuses_pages(&mut self, id: u32, error: Option<Errno>) -> bool {
        let refused = matches!(error, Some(Errno::INVAL | Errno::FAULT | Errno::OPNOTSUPP));
        refused && matches!(self.flight(id).at, Place::Registered(..))
    }

    /// Repeats an operation on a request's pages with memory of this process.
    pub(super) fn repeat_in_memory(&mut self, id: u32) {
        let op = self.flight(id).op;
        let BufRef::Request { tag, offset } = op.buf else {
            return self.settle(id, REAL, Err(IoError::Io));
        };
        let len = op.len as usize;
        let mut memory = self.arena.own.get_now(len);
        let bytes = &mut memory.bytes_mut()[..len];
        if op.kind == OpKind::Write && !self.requests.copy_out(tag, offset, bytes) {
            return self.settle(id, REAL, Err(IoError::Io));
        }
        let f = self.flight(id);
        f.at = Place::Memory(memory.as_ptr());
        f.bounce = Some(memory);
        self.pass(id);
    }

    /// Copies the bytes that a repeated read has read into the request's pages.
    pub(super) fn copy_read(&mut self, id: u32, bytes: u32) {
        let f = self.flights[id as usize].as_ref();
        if let Some(f) = f.filter(|f| f.op.kind == OpKind::Read)
            && let (Some(memory), BufRef::Request { tag, offset }) = (&f.bounce, f.op.buf)
        {
            let bytes = &memory.bytes()[..bytes as usize];
            self.requests.copy_in(tag, offset, bytes);
        }
    }
}
