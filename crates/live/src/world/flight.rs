//! The life cycle of a device operation: started, issued (possibly again), completed, settled.

use super::faults::errno;
use super::{Command, MODEL, MemberState, REAL, UringWorld};
use crate::buffers::{Arena, Memory};
use crate::device::Device;
use crate::mutants::{LiveMutant, broken};
use crate::requests::Place;
use io_uring::{opcode, squeue, types};
use isotherm_core::{BufRef, DeviceOp, Event, IoError, Nanos, OpKind};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::sync::Arc;

/// Most operations that the kernel has at a time of a member whose file system has a server.
pub(super) const SERVED_OPEN_MAX: u32 = 16;

/// A device operation in progress.
pub(super) struct Flight {
    pub op: DeviceOp,
    /// Its bytes. For a write from pages: as of the time at which it is issued.
    pub at: Place,
    /// The parts that have not ended: [`REAL`], [`MODEL`].
    pub waiting: u8,
    /// Time at which it was started.
    pub since: Nanos,
    result: Result<u32, IoError>,
    /// Number of zero bytes written so far, if zeros must be written.
    pub zeroed: Option<u32>,
    /// Whether a flush has reached the first device of its member, and goes on with the tail device.
    pub on_tail: bool,
    /// Memory of its own: of a metadata write, or because its member does not accept the request's pages.
    pub bounce: Option<Memory>,
}

impl MemberState {
    /// Operations on a file whose file system has a server go to a worker of the kernel at once. FUSE accepts them on this thread although it
    /// must not wait, and then waits for the server.
    pub(super) fn how_to_issue(&self) -> squeue::Flags {
        if self.has_server {
            squeue::Flags::ASYNC
        } else {
            squeue::Flags::empty()
        }
    }
}

impl UringWorld {
    /// Starts `op`; `meta` are the bytes of a metadata write.
    pub(super) fn begin(&mut self, op: &DeviceOp, meta: &[u8]) {
        let member = usize::from(op.member.0);
        if self.members.get(member).is_none_or(|m| m.fd.is_none()) {
            self.ready.push(Event::Finished {
                id: op.id,
                result: Err(IoError::Gone),
            });
            return;
        }
        if self.members[member].cut {
            self.ready.push(Event::Finished {
                id: op.id,
                result: Err(IoError::Io),
            });
            return;
        }
        let filling = op.kind == OpKind::Read;
        let mut bounce = None;
        let at = match op.buf {
            BufRef::None => Place::Memory(self.arena.zeros()),
            BufRef::Request { tag, offset } => {
                self.requests.using(tag, 1);
                self.requests
                    .place(tag, offset, op.len, filling)
                    .expect("reads and writes have a buffer")
            }
            BufRef::Move { index, offset } => {
                Place::Memory(self.arena.move_at(index, offset, op.len))
            }
            BufRef::Meta => {
                let mut b = self.arena.own.get_now(op.len as usize);
                b.bytes_mut()[..op.len as usize].copy_from_slice(meta);
                Place::Memory(bounce.insert(b).as_ptr())
            }
        };
        let flight = Flight {
            op: *op,
            at,
            waiting: REAL,
            since: self.seen,
            result: Ok(0),
            zeroed: None,
            on_tail: false,
            bounce,
        };
        let id = if let Some(id) = self.free.pop() {
            self.flights[id as usize] = Some(flight);
            id
        } else {
            self.flights.push(Some(flight));
            self.flights.len() as u32 - 1
        };
        if let Some(pacer) = &mut self.members[member].pacer {
            let now = Nanos(self.start.elapsed().as_nanos() as u64);
            pacer.start(now, u64::from(id), op);
            self.flight(id).waiting |= MODEL;
        }
        match (op.buf, at) {
            (BufRef::Request { tag, .. }, Place::Registered(..)) if op.kind == OpKind::Write => {
                self.hold_write(id, tag);
            }
            _ => self.issue(id),
        }
    }

    pub(super) fn flight(&mut self, id: u32) -> &mut Flight {
        self.flights[id as usize]
            .as_mut()
            .expect("a completion names a flight")
    }

    /// Passes the operation on the device (not its model) to the kernel, unless its member has a server and many operations there already.
    pub(super) fn issue(&mut self, id: u32) {
        if broken(LiveMutant::NoteWritesEarly) {
            self.note_write(id, LiveMutant::NoteNoWrites);
        }
        if let Some(member) = self.limited(id) {
            if member.open >= SERVED_OPEN_MAX {
                return member.queued.push_back(id);
            }
            member.open += 1;
        }
        self.pass(id);
    }

    /// The member of an operation that counts for its limit.
    fn limited(&mut self, id: u32) -> Option<&mut MemberState> {
        let op = self.flight(id).op;
        let member = &mut self.members[usize::from(op.member.0)];
        (member.has_server && op.kind != OpKind::Standby).then_some(member)
    }

    /// Passes operations on that wait for their turn.
    pub(super) fn issue_queued(&mut self) {
        for i in 0..self.members.len() {
            let mut free = SERVED_OPEN_MAX.saturating_sub(self.members[i].open);
            while free > 0
                && let Some(id) = self.members[i].queued.pop_front()
            {
                free -= 1;
                self.members[i].open += 1;
                self.pass(id);
            }
        }
    }

    /// The kernel does not have the operations that still wait for their turn, or for the return of their member.
    pub(super) fn forget_queued(&mut self) {
        for member in &mut self.members {
            for id in member.queued.drain(..).chain(member.away.take_all()) {
                if let Some(f) = &mut self.flights[id as usize] {
                    f.waiting &= !REAL;
                }
            }
        }
    }

    /// As [`UringWorld::issue`], without a limit. Called again if the kernel interrupted it, or for the next piece of zeros.
    pub(super) fn pass(&mut self, id: u32) {
        let f = self.flight(id);
        let (op, at, zeroed) = (f.op, f.at, f.zeroed);
        let (part, fd) = self.next_part(id);
        let len = part.len as u32;
        let member = &mut self.members[usize::from(op.member.0)];
        let how = member.how_to_issue();
        let dsync = if op.fua && !broken(LiveMutant::DropDsync) {
            ReadWriteFlags::DSYNC
        } else {
            ReadWriteFlags::empty()
        };
        let dsync = dsync.bits() as i32;
        // The number of the ring's buffer, if the bytes are in one, and the address.
        let (buffer, at) = match at {
            Place::Registered(buffer, at) => {
                (Some(buffer), std::ptr::without_provenance_mut(at as usize))
            }
            Place::Memory(at) => {
                let fixed = self.fixed && self.arena.region.contains(at, op.len as usize);
                (fixed.then_some(0), at)
            }
        };
        let entry = match (op.kind, buffer) {
            (OpKind::Read, Some(buffer)) => opcode::ReadFixed::new(fd, at, len, buffer)
                .offset(part.at)
                .build(),
            (OpKind::Read, None) => opcode::Read::new(fd, at, len).offset(part.at).build(),
            (OpKind::Write, Some(buffer)) => opcode::WriteFixed::new(fd, at, len, buffer)
                .offset(part.at)
                .rw_flags(dsync)
                .build(),
            (OpKind::Write, None) => opcode::Write::new(fd, at, len)
                .offset(part.at)
                .rw_flags(dsync)
                .build(),
            (OpKind::Flush, _) if broken(LiveMutant::FlushNothing) => {
                return self.settle(id, REAL, Ok(op.len));
            }
            (OpKind::Flush, _) => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            (OpKind::Discard, _) if member.no_punch => return self.settle(id, REAL, Ok(op.len)),
            (OpKind::Discard, _) => {
                // It is only a hint, so what is on the tail device may stay.
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(fd, part.len)
                    .offset(part.at)
                    .mode(mode.bits() as i32)
                    .build()
            }
            (OpKind::WriteZeroes, _)
                if zeroed.is_none()
                    && !member.no_zero_range
                    && len == op.len
                    && (!op.fua || broken(LiveMutant::ZeroRangeForFua)) =>
            {
                let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(fd, part.len)
                    .offset(part.at)
                    .mode(mode.bits() as i32)
                    .build()
            }
            (OpKind::WriteZeroes, _) => {
                self.flight(id).zeroed = Some(zeroed.unwrap_or(0));
                opcode::Write::new(fd, self.arena.zeros(), len.min(Arena::ZEROS as u32))
                    .offset(part.at)
                    .rw_flags(dsync)
                    .build()
            }
            (OpKind::Standby, _) => return self.standby(id),
        };
        self.push(&entry.flags(how).user_data(id.into()));
    }

    /// Runs the command in its own thread, once per sleep, because it takes seconds on a disk.
    fn standby(&mut self, id: u32) {
        let index = usize::from(self.flight(id).op.member.0);
        let member = &mut self.members[index];
        member.stats.standbys += 1;
        if !member.is_block || member.pacer.is_some() {
            return self.settle(id, REAL, Ok(0));
        }
        let (devices, thread_results, inbox) = (
            Arc::clone(&self.devices),
            Arc::clone(&self.thread_results),
            Arc::clone(&self.inbox),
        );
        let run = move || {
            let ok = devices[index]
                .as_ref()
                .is_some_and(|d| Device::standby(&d.file).is_ok());
            let result = if ok { Ok(0) } else { Err(IoError::Io) };
            thread_results.push(id, result);
            let nudge: Command = Box::new(|_, _| {});
            inbox.command(nudge);
            inbox.wake();
        };
        let named = std::thread::Builder::new().name("isotherm-standby".into());
        if named.spawn(run).is_err() {
            self.settle(id, REAL, Err(IoError::Io));
        }
    }

    /// The kernel's answer to the real part.
    pub(super) fn completed(&mut self, id: u32, res: i32) {
        let f = self.flight(id);
        let op = f.op;
        let zeroed = f.zeroed;
        let error = errno(-res);
        if matches!(error, Some(Errno::INTR | Errno::AGAIN)) {
            return self.pass(id);
        }
        if self.flushes_tail(id, res) {
            return;
        }
        if self.waits_for_return(id, error) {
            return;
        }
        if self.refuses_pages(id, error) {
            return self.repeat_in_memory(id);
        }
        if res > 0 {
            self.copy_read(id, res as u32);
        }
        let member = &mut self.members[usize::from(op.member.0)];
        let unsupported = matches!(
            error,
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOTTY)
        );
        let result = match op.kind {
            OpKind::Discard if unsupported => {
                (member.no_punch, member.stats.no_discard) = (true, true);
                Ok(op.len)
            }
            OpKind::WriteZeroes if unsupported && zeroed.is_none() => {
                member.no_zero_range = true;
                return self.pass(id);
            }
            OpKind::WriteZeroes if res > 0 && zeroed.is_some_and(|z| z + (res as u32) < op.len) => {
                self.flight(id).zeroed = zeroed.map(|z| z + res as u32);
                if !broken(LiveMutant::ZeroFirstPiece) {
                    return self.pass(id);
                }
                Ok(op.len)
            }
            // A write of zero bytes does not complete the operation.
            OpKind::WriteZeroes if res == 0 && zeroed.is_some() => Err(IoError::Io),
            OpKind::Flush if broken(LiveMutant::ForgetFlushError) => Ok(op.len),
            OpKind::Discard | OpKind::WriteZeroes | OpKind::Flush if res >= 0 => Ok(op.len),
            // No bytes transferred means the end of a file that was truncated meanwhile; a repetition would not help.
            OpKind::Read | OpKind::Write if res > 0 || (res == 0 && op.len == 0) => Ok(res as u32),
            _ => {
                member.stats.errors += 1;
                member.stats.last_errno = Some(-res);
                self.note_error(&op, -res);
                let on_tail = self.next_part(id).0.on_tail;
                self.note_fault(&op, -res, on_tail);
                self.note_unsynced(&op, -res);
                Err(io_error(-res))
            }
        };
        // Bytes that the file has lost, or that a write replaced by holes, must not count as durable.
        let result = match (op.kind, result) {
            (OpKind::Flush, Ok(_)) if self.check_size(usize::from(op.member.0)) => Err(IoError::Io),
            (OpKind::Flush, Ok(_)) if !self.is_believed(&op) => Err(IoError::Io),
            (_, other) => other,
        };
        self.settle(id, REAL, result);
    }

    /// Notes what an operation writes, if its member is being copied (`copying/stale.rs`), unless this rule was removed.
    fn note_write(&mut self, id: u32, unless: LiveMutant) {
        let op = self.flight(id).op;
        let member = &self.members[usize::from(op.member.0)];
        let Some(stale) = &member.stale else { return };
        let writes = matches!(
            op.kind,
            OpKind::Write | OpKind::WriteZeroes | OpKind::Discard
        );
        if writes && !broken(unless) && !broken(LiveMutant::NoteNoWrites) {
            stale.mark(op.offset, op.len.into());
        }
    }

    /// One of the two parts ended.
    pub(super) fn settle(&mut self, id: u32, part: u8, result: Result<u32, IoError>) {
        if part == REAL
            && let Some(member) = self.limited(id)
        {
            member.open -= 1;
        }
        let f = self.flight(id);
        debug_assert!(f.waiting & part != 0, "each part ends once");
        f.waiting &= !part;
        if part == REAL {
            self.note_write(id, LiveMutant::NoteWritesEarly);
            let f = self.flight(id);
            f.result = result;
            // The kernel no longer uses the memory even if the model has not ended.
            f.bounce = None;
        }
        let f = self.flight(id);
        let (left, result, op) = (f.waiting, f.result, f.op);
        if left == 0 {
            self.flights[id as usize] = None;
            self.free.push(id);
            if let BufRef::Request { tag, .. } = op.buf {
                self.requests.using(tag, -1);
            }
            self.ready.push(Event::Finished { id: op.id, result });
        }
    }
}

fn io_error(raw: i32) -> IoError {
    match errno(raw) {
        Some(Errno::NOSPC | Errno::DQUOT) => IoError::NoSpace,
        Some(Errno::NODEV | Errno::NXIO) => IoError::Gone,
        Some(Errno::ROFS) => IoError::ReadOnly,
        _ => IoError::Io,
    }
}
