//! Commands whose data is complete: requests to the volume, and answers that need none.

use std::sync::Arc;

use isotherm_core::RequestOp;

use super::outbox::{Body, Ends};
use super::pdu::Command;
use super::scsi::{self, Sense, Task};
use super::session::Session;
use super::transfer::{Owed, Sink, zero};

impl Session {
    fn owe(&self, c: &Command, read: bool, residual: i64) -> Owed {
        Owed {
            outbox: Arc::clone(&self.outbox),
            itt: c.itt,
            ends: Ends::of(c.order),
            read,
            residual,
            paid: false,
        }
    }

    /// The data is complete.
    #[expect(clippy::too_many_lines, reason = "to be divided")]
    pub(super) fn carry_out(&mut self, c: &Command, task: Task, sink: Sink, residual: i64) {
        let room = if c.read { c.expected } else { 0 };
        match (task, sink) {
            (Task::Nothing, _) => self
                .outbox
                .respond(c.itt, Ends::of(c.order), None, residual),
            (Task::Say(mut bytes, most), _) => {
                bytes.truncate(most);
                self.say(c, bytes);
            }
            (Task::Status { offset, room: most }, _) => {
                let runs = most.saturating_sub(8) / 16;
                let len = (self.port().volume_bytes() - offset).min(1 << 31) as u32;
                let runs = self.port().block_status(offset, len, runs.clamp(1, 64));
                let mut bytes = scsi::lba_status(self.disk(), offset, &runs);
                bytes.truncate(most);
                self.say(c, bytes);
            }
            (Task::Read(e), _) => {
                let n = e.len.min(room);
                let owed = self.owe(c, n > 0, i64::from(e.len) - i64::from(room));
                self.read(e.offset, n, e.class, owed);
            }
            (Task::Verify(e), _) => {
                let owed = self.owe(c, false, residual);
                self.read(e.offset, e.len, e.class, owed);
            }
            (Task::Write(e), Sink::Memory(buffer)) => {
                let len = buffer.len() as u32;
                let done = self.owe(c, false, residual).completion();
                self.port().submit(
                    RequestOp::Write,
                    e.offset,
                    len,
                    e.fua,
                    e.class,
                    Some(buffer),
                    done,
                );
            }
            (Task::Compare(e), Sink::Bytes(data)) => {
                let owed = self.owe(c, false, residual);
                self.compare(e, data, owed);
            }
            (Task::Write(_), Sink::Bytes(_)) => {
                self.outbox
                    .respond(c.itt, Ends::of(c.order), None, residual);
            }
            (Task::Flush { class }, _) => {
                let done = self.owe(c, false, residual).completion();
                self.port()
                    .submit(RequestOp::Flush, 0, 0, false, class, None, done);
            }
            (Task::Unmap { class, .. }, Sink::Bytes(list)) => {
                match scsi::unmap_ranges(self.disk(), &list) {
                    Ok(ranges) => {
                        let owed = self.owe(c, false, residual);
                        zero(self.port(), &ranges, RequestOp::Discard, class, owed);
                    }
                    Err(sense) => self
                        .outbox
                        .respond(c.itt, Ends::of(c.order), Some(sense), 0),
                }
            }
            (Task::WriteSame { zeros: false, .. }, Sink::Bytes(block))
                if block.len() != self.disk().block as usize =>
            {
                self.outbox
                    .respond(c.itt, Ends::of(c.order), Some(Sense::FIELD), 0);
            }
            (Task::WriteSame { extent, unmap, .. }, Sink::Bytes(block)) => {
                let owed = self.owe(c, false, residual);
                self.write_same(extent, unmap, &block, owed);
            }
            // Only writes go to memory.
            (Task::Unmap { .. } | Task::WriteSame { .. } | Task::Compare(_), Sink::Memory(_)) => {
                self.outbox
                    .respond(c.itt, Ends::of(c.order), Some(Sense::FIELD), 0);
            }
        }
    }

    fn say(&self, c: &Command, mut bytes: Vec<u8>) {
        let room = if c.read { c.expected } else { 0 };
        let residual = bytes.len() as i64 - i64::from(c.expected.min(room));
        bytes.truncate(room as usize);
        self.outbox
            .give(c.itt, Ends::of(c.order), Body::Bytes(bytes), residual);
    }

    fn read(&self, offset: u64, len: u32, class: u8, owed: Owed) {
        if len == 0 {
            return owed.completion().call(Ok(()), None);
        }
        let buffer = self.buffer(offset, len);
        let done = owed.completion();
        self.port().submit(
            RequestOp::Read,
            offset,
            len,
            false,
            class,
            Some(buffer),
            done,
        );
    }

    fn compare(&self, e: scsi::Extent, data: Vec<u8>, owed: Owed) {
        let n = data.len() as u32;
        if n == 0 {
            return owed.completion().call(Ok(()), None);
        }
        let done = owed.comparison(data);
        let buffer = self.buffer(e.offset, n);
        self.port().submit(
            RequestOp::Read,
            e.offset,
            n,
            false,
            e.class,
            Some(buffer),
            done,
        );
    }

    fn write_same(&self, e: scsi::Extent, unmap: bool, block: &[u8], owed: Owed) {
        if block.iter().all(|b| *b == 0) {
            let op = RequestOp::WriteZeroes { keep: !unmap };
            return zero(self.port(), &[(e.offset, e.len.into())], op, e.class, owed);
        }
        let mut buffer = self.buffer(e.offset, e.len);
        for place in buffer.chunks_exact_mut(block.len()) {
            place.copy_from_slice(block);
        }
        let done = owed.completion();
        self.port().submit(
            RequestOp::Write,
            e.offset,
            e.len,
            false,
            e.class,
            Some(buffer),
            done,
        );
    }
}
