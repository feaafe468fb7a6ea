//! What a client is owed: one reply for each request.

use crate::nbd::outbox::{Outbox, Reply, Tail};
use crate::nbd::proto::{Errno, Ticket};
use crate::port::Buffer;
use isotherm_core::IoError;
use std::sync::Arc;

/// A reply that the client waits for. Dropped without an answer (the engine ended), it says so.
pub(super) struct Owed {
    pub(super) ticket: Ticket,
    pub(super) outbox: Arc<Outbox>,
    pub(super) data_bytes: Option<u32>,
    pub(super) paid: bool,
}

impl Owed {
    pub(super) fn pay(mut self, result: Result<(), IoError>, buffer: Option<Buffer>) {
        self.paid = true;
        let reply = match (result, self.data_bytes, buffer) {
            (Err(error), ..) => failed(&self.ticket, error.into()),
            (Ok(()), None, _) => succeeded(&self.ticket, None),
            (Ok(()), Some(len), Some(data)) if data.len() == len as usize => {
                succeeded(&self.ticket, Some(data))
            }
            // A read without its data is a fault of the port: no bytes are better than wrong ones.
            (Ok(()), Some(_), _) => failed(&self.ticket, Errno::Io),
        };
        self.outbox.complete(reply);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.paid {
            self.outbox.complete(failed(&self.ticket, Errno::Shutdown));
        }
    }
}

pub(super) fn succeeded(ticket: &Ticket, data: Option<Buffer>) -> Reply {
    let tail = data.map_or(Tail::None, Tail::Data);
    Reply {
        head: Some(ticket.success()),
        tail,
        payload_bytes: ticket.payload_bytes(),
    }
}

pub(super) fn failed(ticket: &Ticket, error: Errno) -> Reply {
    Reply {
        head: Some(ticket.failure(error)),
        tail: Tail::None,
        payload_bytes: ticket.payload_bytes(),
    }
}
