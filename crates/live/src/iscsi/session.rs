//! The thread that reads from a connection, which is one session.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::input::Input;
use super::login::Terms;
use super::outbox::{Body, Ends, Item, Kind, Outbox};
use super::pdu::{Command, Header, Incoming, NO_TAG, Order, What, add_pair, header, pairs, put};
use super::reservations::Nexus;
use super::scsi::Disk;
use super::shared::{End, Shared};
use super::transfer::{Held, Transfer};
use crate::port::{Port, Share};

/// Maximum length of the text of a text request in bytes.
const MAX_TEXT: usize = 8 << 10;
/// Maximum length of a ping that is echoed, in bytes.
const MAX_PING: usize = 32 << 10;

pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) share: Option<Arc<Share>>,
    pub(super) input: Input,
    pub(super) outbox: Arc<Outbox>,
    pub(super) terms: Terms,
    pub(super) nexus: Nexus,
    pub(super) transfers: Vec<Transfer>,
    pub(super) held: VecDeque<Held>,
    pub(super) next_ttt: u32,
    pub(super) text: Vec<u8>,
    pub(super) logged_out: bool,
}

/// The reason why a session ends: an error of the socket, or a fault of the peer.
pub(super) enum Stop {
    Socket(io::Error),
    Fault(&'static str),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Stop {
        Stop::Socket(e)
    }
}

impl Session {
    pub(super) fn port(&self) -> &dyn Port {
        &*self.shared.port
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.shared.disk
    }

    /// Serves the session until the initiator leaves, in the middle of whatever. When this returns, the volume has answered everything that
    /// it got; for a command whose data never came it owes no answer.
    pub(super) fn run(mut self) -> End {
        let end = loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break End::Eof,
                Err(Stop::Fault(why)) => break End::Violation(why),
                Err(Stop::Socket(e)) if e.kind() == io::ErrorKind::TimedOut => break End::Stalled,
                Err(Stop::Socket(_)) => break End::Lost,
            }
        };
        self.transfers.clear();
        self.held.clear();
        if !matches!(end, End::Eof) {
            self.outbox.give_up();
        }
        // The writer sends the last answers, unless the initiator is gone.
        self.outbox.wait_for_volume();
        end
    }

    /// Processes one PDU. Returns false at the end of the stream.
    fn step(&mut self) -> Result<bool, Stop> {
        // The data of several transfers is requested in their order, so the time limit of the oldest applies.
        self.input.until = self.transfers.first().map(|t| t.until);
        let Some(b) = self.input.header(self.transfers.is_empty())? else {
            return Ok(false);
        };
        let incoming = Incoming::parse(&b).map_err(|v| Stop::Fault(v.0))?;
        let time_limits = self.shared.config.time_limits.transmission;
        if self.transfers.is_empty() {
            self.input.until = Some(Instant::now() + time_limits);
        }
        self.input.skip(incoming.more_header)?;
        if !self.accepts(&incoming.what)? {
            self.input.skip(incoming.data + incoming.padding)?;
            return Ok(true);
        }
        self.dispatch(&b, &incoming)?;
        self.input.skip(incoming.padding)?;
        self.resume()?;
        Ok(!self.logged_out)
    }

    /// Returns true if the PDU is in order and must be processed; otherwise it is ignored.
    fn accepts(&self, what: &What) -> Result<bool, Stop> {
        let is_any = matches!(
            what,
            What::Text { .. } | What::Logout { .. } | What::Nop { .. }
        );
        if self.terms.discovery && !is_any {
            return Err(Stop::Fault("a command in a discovery session"));
        }
        let order = match what {
            // An answer to a ping of the target has no place in the order.
            What::Nop { itt: NO_TAG, .. }
            | What::Data { .. }
            | What::Login(_)
            | What::Unknown { .. } => None,
            What::Nop { order, .. }
            | What::Task { order, .. }
            | What::Text { order, .. }
            | What::Logout { order, .. } => Some(*order),
            What::Command(c) => Some(c.order),
        };
        let Some(order) = order else { return Ok(true) };
        let accepted = self.outbox.accept(order);
        accepted.map_err(|()| Stop::Fault("too many immediate commands"))
    }

    fn dispatch(&mut self, b: &Header, incoming: &Incoming) -> Result<(), Stop> {
        let data = incoming.data;
        match incoming.what {
            What::Nop { order, itt, lun } => self.ping(order, itt, lun, data),
            What::Command(c) => self.command(c, data),
            What::Data { .. } => self.data(&incoming.what, data),
            What::Text { order, itt, more } => self.text(order, itt, more, data),
            What::Task {
                order,
                itt,
                function,
                lun,
                about,
            } => {
                self.input.skip(data)?;
                self.manage(order, itt, function, lun, about)
            }
            What::Logout { order, itt, reason } => {
                self.input.skip(data)?;
                self.logout(order, itt, reason);
                Ok(())
            }
            What::Login(_) => Err(Stop::Fault("a login within a session")),
            What::Unknown { .. } => {
                self.input.skip(data)?;
                let mut reject = header(0x3f, 0x80, NO_TAG);
                // Command not supported.
                reject[2] = 5;
                self.outbox.push(Item {
                    header: reject,
                    body: Body::Bytes(b.to_vec()),
                    kind: Kind::Status,
                    ends: Ends::Nothing,
                });
                // Each rejection takes memory until it is sent, and their number is not limited.
                Err(Stop::Fault("an operation that is not offered"))
            }
        }
    }

    fn ping(&mut self, order: Order, itt: u32, lun: u64, data: usize) -> Result<(), Stop> {
        let mut echo = vec![0; data.min(MAX_PING).min(self.terms.max_send as usize)];
        self.input.fill(&mut echo)?;
        self.input.skip(data - echo.len())?;
        if itt == NO_TAG {
            return Ok(());
        }
        let mut b = header(0x20, 0x80, itt);
        b[8..16].copy_from_slice(&lun.to_be_bytes());
        put(&mut b, 20, NO_TAG);
        self.outbox.push(Item {
            header: b,
            body: Body::Bytes(echo),
            kind: Kind::Status,
            ends: Ends::of(order),
        });
        Ok(())
    }

    fn text(&mut self, order: Order, itt: u32, more: bool, data: usize) -> Result<(), Stop> {
        if self.text.len() + data > MAX_TEXT {
            return Err(Stop::Fault("a text request that is too long"));
        }
        let start = self.text.len();
        self.text.resize(start + data, 0);
        let mut text = std::mem::take(&mut self.text);
        self.input.fill(&mut text[start..])?;
        let mut out = Vec::new();
        if more {
            self.text = text;
        } else {
            let target = self.shared.target();
            for (key, value) in pairs(&text).map_err(|v| Stop::Fault(v.0))? {
                let wanted = value == "All" || value.is_empty() || value == target.name;
                match key {
                    "SendTargets" if wanted => {
                        add_pair(&mut out, "TargetName", &target.name);
                        if let Ok(at) = self.outbox.socket().local_addr() {
                            add_pair(&mut out, "TargetAddress", &format!("{at},1"));
                        }
                    }
                    "SendTargets" => {}
                    _ => add_pair(&mut out, key, "NotUnderstood"),
                }
            }
            out.truncate(self.terms.max_send as usize);
        }
        let mut b = header(0x24, if more { 0 } else { 0x80 }, itt);
        put(&mut b, 20, if more { 1 } else { NO_TAG });
        self.outbox.push(Item {
            header: b,
            body: Body::Bytes(out),
            kind: Kind::Status,
            ends: Ends::of(order),
        });
        Ok(())
    }

    /// Commands that wait for data or memory are ended; the ones that the volume is executing are waited for.
    fn manage(
        &mut self,
        order: Order,
        itt: u32,
        function: u8,
        lun: u64,
        about: u32,
    ) -> Result<(), Stop> {
        // 0 done, 1 no such task, 2 no such unit, 5 not supported.
        let response = match function {
            1..=3 | 5 if lun != 0 => 2,
            1 => {
                let before = self.transfers.len() + self.held.len();
                self.abandon(|c| c.itt == about);
                u8::from(self.transfers.len() + self.held.len() == before)
            }
            // Abort or clear the task set, reset the unit or the target.
            2 | 3 | 5 | 6 => {
                self.abandon(|_| true);
                0
            }
            _ => 5,
        };
        if response < 2 {
            // This request itself is open, and so are the commands that wait for data.
            let left = 1 + self.transfers.len() + self.held.len();
            if !self.outbox.wait(left as u32) {
                return Err(Stop::Socket(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        let mut b = header(0x22, 0x80, itt);
        b[2] = response;
        self.outbox.push(Item {
            header: b,
            body: Body::None,
            kind: Kind::Status,
            ends: Ends::of(order),
        });
        Ok(())
    }

    fn abandon(&mut self, which: impl Fn(&Command) -> bool) {
        let outbox = &self.outbox;
        let keeps = |c: &Command| {
            let goes = which(c);
            if goes {
                outbox.forget(Ends::of(c.order));
            }
            !goes
        };
        self.transfers.retain(|t| keeps(&t.command));
        self.held.retain(|h| keeps(&h.command));
    }

    fn logout(&mut self, order: Order, itt: u32, reason: u8) {
        self.abandon(|_| true);
        self.outbox.wait(1);
        let mut b = header(0x26, 0x80, itt);
        // Connections cannot be taken over for recovery.
        b[2] = if reason < 2 { 0 } else { 2 };
        self.logged_out = reason < 2;
        self.outbox.push(Item {
            header: b,
            body: Body::None,
            kind: Kind::Status,
            ends: Ends::of(order),
        });
    }
}
