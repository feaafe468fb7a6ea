//! Replies that are due to clients.

use super::outbox::{Outbox, Reply, Tail};
use super::proto::{Errno, Ticket};
use crate::mutants::{LiveMutant, broken};
use crate::port::Buffer;
use isotherm_core::IoError;
use std::sync::Arc;

/// A reply for which the client waits. If it is dropped without an answer (the engine ended), it reports this to the client.
pub(super) struct PendingReply {
    ticket: Ticket,
    outbox: Arc<Outbox>,
    data_bytes: Option<u32>,
    paid: bool,
}

impl PendingReply {
    /// The reply to a READ has `data_bytes` of data.
    pub(super) fn new(
        ticket: Ticket,
        outbox: Arc<Outbox>,
        data_bytes: Option<u32>,
    ) -> PendingReply {
        PendingReply {
            ticket,
            outbox,
            data_bytes,
            paid: false,
        }
    }

    pub(super) fn complete(mut self, result: Result<(), IoError>, buffer: Option<Buffer>) {
        self.paid = true;
        let reply = match (result, self.data_bytes, buffer) {
            (Err(_), None, _) if broken(LiveMutant::FailedNbdSucceeds) => {
                succeeded(&self.ticket, None)
            }
            (Err(error), ..) => failed(&self.ticket, error.into()),
            (Ok(()), None, _) => succeeded(&self.ticket, None),
            (Ok(()), Some(len), Some(data)) if data.len() == len as usize => {
                succeeded(&self.ticket, Some(data))
            }
            // A read without data is a fault of the port: no bytes are better than wrong ones.
            (Ok(()), Some(_), _) => failed(&self.ticket, Errno::Io),
        };
        self.outbox.complete(reply);
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.paid {
            let reply = if broken(LiveMutant::LostNbdSucceeds) && self.data_bytes.is_none() {
                succeeded(&self.ticket, None)
            } else {
                failed(&self.ticket, Errno::Shutdown)
            };
            self.outbox.complete(reply);
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
