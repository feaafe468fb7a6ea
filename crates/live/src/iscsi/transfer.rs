//! The data of commands while it is received, and the requests to the volume.

use std::time::Instant;

use isotherm_core::IoError;

use super::outbox::{AtVolume, Body, Ends};
use super::pdu::Command;
use super::scsi::{Sense, Task};
use crate::port::{Buffer, Completion};

/// The destination of a command's data.
pub(super) enum Sink {
    /// A buffer for the volume.
    Memory(Buffer),
    /// The parameters of the command.
    Bytes(Vec<u8>),
}

impl Sink {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Sink::Memory(b) => b,
            Sink::Bytes(b) => b,
        }
    }
}

/// A command whose data has not arrived completely.
pub(super) struct Transfer {
    pub command: Command,
    pub task: Task,
    pub sink: Sink,
    pub residual: i64,
    /// The number of bytes that are needed, that have arrived, and up to which data was requested.
    pub want: u32,
    pub have: u32,
    pub asked: u32,
    /// The target's tag for the transfer, the number of the next request for data, and of the next PDU of data.
    pub ttt: u32,
    pub r2t_sn: u32,
    pub data_sn: u32,
    /// All data must arrive by this time.
    pub until: Instant,
}

/// A command that waits for memory.
pub(super) struct Held {
    pub command: Command,
    pub task: Task,
    pub immediate: Vec<u8>,
}

/// An answer for which an initiator waits. If it is dropped without a result (because the engine ended), it sends an error.
pub(super) struct PendingReply {
    pub at: AtVolume,
    pub itt: u32,
    pub ends: Ends,
    pub read: bool,
    pub residual: i64,
    pub paid: bool,
}

impl PendingReply {
    fn complete(mut self, result: Result<(), IoError>, buffer: Option<Buffer>) {
        self.paid = true;
        let (itt, ends, residual) = (self.itt, self.ends, self.residual);
        match (result, buffer) {
            (Ok(()), Some(data)) if self.read => {
                self.at
                    .outbox()
                    .give(itt, ends, Body::Memory(data), residual);
            }
            (Ok(()), _) if !self.read => self.at.outbox().respond(itt, ends, None, residual),
            // A read without its data is a fault of the port. An error is better than wrong data.
            (result, _) => {
                let error = result.err().unwrap_or(IoError::Io);
                let sense = Some(Sense::of(error, self.read));
                self.at.outbox().respond(itt, ends, sense, 0);
            }
        }
    }

    /// The completion of a read whose data should equal `want`.
    pub(super) fn comparison(mut self, want: Vec<u8>) -> Completion {
        Completion::new(move |result: Result<(), IoError>, buffer: Option<Buffer>| {
            let same = buffer.as_deref().is_some_and(|b| *b == want[..]);
            if result.is_ok() && !same {
                self.paid = true;
                let sense = Some(Sense::DIFFERS);
                let outbox = self.at.outbox();
                return outbox.respond(self.itt, self.ends, sense, self.residual);
            }
            self.complete(result, None);
        })
    }

    pub(super) fn completion(self) -> Completion {
        Completion::new(move |result, buffer| self.complete(result, buffer))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.paid {
            let sense = Some(Sense::of(IoError::Gone, self.read));
            self.at.outbox().respond(self.itt, self.ends, sense, 0);
        }
    }
}
