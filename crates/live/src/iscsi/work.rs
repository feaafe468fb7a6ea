//! Commands whose data is complete: requests to the volume, and answers that need no request.

use isotherm_core::RequestOp;

use super::outbox::{AtVolume, Body, Ends};
use super::pdu::Command;
use super::reservations::{Order, Refusal, use_of};
use super::scsi::{self, Sense, Task};
use super::session::Session;
use super::transfer::{PendingReply, Sink};
use crate::port::{Buffer, Completion, IoRequest};
use crate::zeroing;

impl Session {
    /// Checks the reservation when the command is sent to the volume, not when it arrives. From then on an initiator that fences this one
    /// off can wait for the command.
    fn admit(&self, c: &Command) -> Option<AtVolume> {
        let all = self.shared.reservations();
        let passes = c.lun != 0 || all.allow(&self.nexus, use_of(&c.cdb));
        passes.then(|| self.outbox.enter_volume())
    }

    /// Executes a command whose data is complete.
    pub(super) fn carry_out(&mut self, c: &Command, task: Task, sink: Sink, residual: i64) {
        let ends = Ends::of(c.order);
        let Some(at) = self.admit(c) else {
            return self.outbox.conflict(c.itt, ends);
        };
        let owe = |read, residual| PendingReply {
            at,
            itt: c.itt,
            ends,
            read,
            residual,
            paid: false,
        };
        match (task, sink) {
            (Task::Read(e), _) => {
                let room = if c.read { c.expected } else { 0 };
                let n = e.len.min(room);
                let pending = owe(n > 0, i64::from(e.len) - i64::from(room));
                self.read(e.offset, n, e.class, pending);
            }
            (Task::Verify(e), _) => {
                let pending = owe(false, residual);
                self.read(e.offset, e.len, e.class, pending);
            }
            (Task::Write(e), Sink::Memory(buffer)) => {
                let done = owe(false, residual).completion();
                self.write(e, buffer, done);
            }
            (Task::Compare(e), Sink::Bytes(data)) => self.compare(e, data, owe(false, residual)),
            (Task::Flush { class }, _) => {
                let done = owe(false, residual).completion();
                self.port().submit(IoRequest::flush().in_class(class), done);
            }
            (Task::Unmap { class, .. }, Sink::Bytes(list)) => {
                match scsi::unmap_ranges(self.disk(), &list) {
                    Ok(ranges) => {
                        let done = owe(false, residual).completion();
                        let like = IoRequest::new(RequestOp::Discard, 0, 0).in_class(class);
                        zeroing::submit(self.port(), &like, &ranges, done);
                    }
                    Err(sense) => self.outbox.respond(c.itt, ends, Some(sense), 0),
                }
            }
            (Task::WriteSame { extent, unmap, .. }, Sink::Bytes(block))
                if block.len() == self.disk().block as usize || block.is_empty() =>
            {
                self.write_same(extent, unmap, &block, owe(false, residual));
            }
            (task, sink) => {
                // The volume receives no request for these.
                drop(owe);
                self.answer(c, task, sink, residual);
            }
        }
    }

    /// Executes the commands that need no request to the volume.
    fn answer(&self, c: &Command, task: Task, sink: Sink, residual: i64) {
        let ends = Ends::of(c.order);
        match (task, sink) {
            (Task::Say(mut bytes, most), _) => {
                bytes.truncate(most);
                self.say(c, bytes);
            }
            (Task::Status { offset, room: most }, _) => {
                let runs = most.saturating_sub(8) / 16;
                let len = (self.port().volume_bytes() - offset).min(1 << 31) as u32;
                let runs = self.port().block_status(offset, len, runs.clamp(1, 64));
                let mut bytes = super::vpd::lba_status(self.disk(), offset, &runs);
                bytes.truncate(most);
                self.say(c, bytes);
            }
            (Task::ReserveIn { action, room }, _) => {
                let keeps = self.shared.config.reservation_file.is_some();
                match self.shared.reservations().report(action, keeps) {
                    Ok(mut bytes) => {
                        bytes.truncate(room);
                        self.say(c, bytes);
                    }
                    Err(sense) => self.outbox.respond(c.itt, ends, Some(sense), 0),
                }
            }
            (Task::ReserveOut { action, scope_type }, Sink::Bytes(data)) => {
                let order = Order::parse(action, scope_type, &data).map_err(Refusal::Sense);
                match order.and_then(|o| self.shared.reserve(&self.nexus, &o)) {
                    Ok(()) => self.outbox.respond(c.itt, ends, None, residual),
                    Err(Refusal::Conflict) => self.outbox.conflict(c.itt, ends),
                    Err(Refusal::Sense(sense)) => self.outbox.respond(c.itt, ends, Some(sense), 0),
                }
            }
            (Task::Nothing, _) | (Task::Write(_), Sink::Bytes(_)) => {
                self.outbox.respond(c.itt, ends, None, residual);
            }
            // The length of the data is wrong; only the data of writes goes to memory.
            _ => self.outbox.respond(c.itt, ends, Some(Sense::FIELD), 0),
        }
    }

    fn write(&self, e: scsi::Extent, buffer: Buffer, done: Completion) {
        let len = buffer.len() as u32;
        self.port().submit(
            IoRequest::write(e.offset, len, buffer)
                .with_fua(e.fua)
                .in_class(e.class),
            done,
        );
    }

    fn say(&self, c: &Command, mut bytes: Vec<u8>) {
        let room = if c.read { c.expected } else { 0 };
        let residual = bytes.len() as i64 - i64::from(c.expected.min(room));
        bytes.truncate(room as usize);
        self.outbox
            .give(c.itt, Ends::of(c.order), Body::Bytes(bytes), residual);
    }

    fn read(&self, offset: u64, len: u32, class: u8, pending: PendingReply) {
        if len == 0 {
            return pending.completion().call(Ok(()), None);
        }
        let buffer = self.buffer(offset, len);
        let done = pending.completion();
        self.port()
            .submit(IoRequest::read(offset, len, buffer).in_class(class), done);
    }

    fn compare(&self, e: scsi::Extent, data: Vec<u8>, pending: PendingReply) {
        let n = data.len() as u32;
        if n == 0 {
            return pending.completion().call(Ok(()), None);
        }
        let done = pending.comparison(data);
        let buffer = self.buffer(e.offset, n);
        self.port()
            .submit(IoRequest::read(e.offset, n, buffer).in_class(e.class), done);
    }

    fn write_same(&self, e: scsi::Extent, unmap: bool, block: &[u8], pending: PendingReply) {
        if block.iter().all(|b| *b == 0) {
            let op = RequestOp::WriteZeroes { keep: !unmap };
            let like = IoRequest::new(op, 0, 0).in_class(e.class);
            let range = [(e.offset, e.len.into())];
            return zeroing::submit(self.port(), &like, &range, pending.completion());
        }
        let mut buffer = self.buffer(e.offset, e.len);
        for place in buffer.chunks_exact_mut(block.len()) {
            place.copy_from_slice(block);
        }
        self.write(
            scsi::Extent { fua: false, ..e },
            buffer,
            pending.completion(),
        );
    }
}
