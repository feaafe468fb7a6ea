//! One connection, which is one session: the thread that reads from it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::input::Input;
use super::login::Terms;
use super::outbox::{Body, Ends, Item, Kind, Outbox};
use super::pdu::{Command, Incoming, NO_TAG, Order, What, add_pair, header, pairs, put};
use super::scsi::{self, Disk, Sense, Task};
use super::server::{End, Shared};
use super::transfer::{Held, Sink, Transfer};
use crate::port::{Buffer, Port, Share};

/// Slowest data that is waited for, bytes per second, beside the time that any may take.
const DATA_RATE: u32 = 1 << 20;
/// Longest text of a text request, bytes.
const MAX_TEXT: usize = 8 << 10;
/// Longest ping that is echoed, bytes.
const MAX_PING: usize = 32 << 10;

pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) share: Option<Arc<Share>>,
    pub(super) input: Input,
    pub(super) outbox: Arc<Outbox>,
    pub(super) terms: Terms,
    pub(super) transfers: Vec<Transfer>,
    pub(super) held: VecDeque<Held>,
    pub(super) next_ttt: u32,
    pub(super) text: Vec<u8>,
    pub(super) logged_out: bool,
}

/// What ends a session: the socket, or the peer's fault.
enum Stop {
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

    /// Serves until the initiator leaves. Every request is completed when it returns.
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
        for t in std::mem::take(&mut self.transfers) {
            self.outbox.forget(Ends::of(t.command.order));
        }
        for h in std::mem::take(&mut self.held) {
            self.outbox.forget(Ends::of(h.command.order));
        }
        if !matches!(end, End::Eof) {
            self.outbox.give_up();
        }
        self.outbox.drain();
        end
    }

    /// One PDU. False: the end.
    #[expect(clippy::too_many_lines, reason = "to be divided")]
    fn step(&mut self) -> Result<bool, Stop> {
        // Of several transfers the oldest must be through first: they are asked for in this order.
        self.input.until = self.transfers.first().map(|t| t.until);
        let Some(b) = self.input.header(self.transfers.is_empty())? else {
            return Ok(false);
        };
        let incoming = Incoming::parse(&b).map_err(|v| Stop::Fault(v.0))?;
        let patience = self.shared.config.patience.transmission;
        if self.transfers.is_empty() {
            self.input.until = Some(Instant::now() + patience);
        }
        self.input.skip(incoming.more_header)?;
        if self.terms.discovery
            && !matches!(
                incoming.what,
                What::Text { .. } | What::Logout { .. } | What::Nop { .. }
            )
        {
            return Err(Stop::Fault("a command in a discovery session"));
        }
        let data = incoming.data;
        let order = match incoming.what {
            What::Nop { order, .. }
            | What::Task { order, .. }
            | What::Text { order, .. }
            | What::Logout { order, .. } => Some(order),
            What::Command(c) => Some(c.order),
            What::Data { .. } | What::Login(_) | What::Unknown { .. } => None,
        };
        let is_answer = matches!(incoming.what, What::Nop { itt: NO_TAG, .. });
        if let Some(order) = order.filter(|_| !is_answer) {
            let accepted = self.outbox.accept(order);
            if !accepted.map_err(|()| Stop::Fault("too many immediate commands"))? {
                self.input.skip(data + incoming.padding)?;
                return Ok(true);
            }
        }
        match incoming.what {
            What::Nop { order, itt, lun } => self.ping(order, itt, lun, data)?,
            What::Command(c) => self.command(c, data)?,
            What::Data { .. } => self.data(&incoming.what, data)?,
            What::Text { order, itt, more } => self.text(order, itt, more, data)?,
            What::Task {
                order,
                itt,
                function,
                lun,
                about,
            } => {
                self.input.skip(data)?;
                self.manage(order, itt, function, lun, about)?;
            }
            What::Logout { order, itt, reason } => {
                self.input.skip(data)?;
                self.logout(order, itt, reason);
            }
            What::Login(_) => return Err(Stop::Fault("a login within a session")),
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
                // Each costs memory until it is sent, and nothing bounds them.
                return Err(Stop::Fault("an operation that is not offered"));
            }
        }
        self.input.skip(incoming.padding)?;
        self.resume()?;
        Ok(!self.logged_out)
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

    /// Commands that wait for data or memory end; those that the volume has are waited for.
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
            // This request is open itself, and whatever waits for data.
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
        // Connections are not taken over for recovery.
        b[2] = if reason < 2 { 0 } else { 2 };
        self.logged_out = reason < 2;
        self.outbox.push(Item {
            header: b,
            body: Body::None,
            kind: Kind::Status,
            ends: Ends::of(order),
        });
    }

    fn command(&mut self, c: Command, data: usize) -> Result<(), Stop> {
        let ends = Ends::of(c.order);
        if data > 0
            && (data > self.terms.first_burst as usize || !self.terms.immediate_data || !c.write)
        {
            return Err(Stop::Fault("data with a command that was not agreed on"));
        }
        if self.transfers.iter().any(|t| t.command.itt == c.itt) {
            return Err(Stop::Fault("a tag that is in use"));
        }
        let task = if c.lun == 0 {
            scsi::task(self.disk(), &c.cdb)
        } else {
            self.elsewhere(&c)
        };
        let task = match task {
            Ok(task) => task,
            Err(sense) => {
                self.input.skip(data)?;
                self.outbox.respond(c.itt, ends, Some(sense), 0);
                return Ok(());
            }
        };
        let busy = !self.held.is_empty() || !self.has_memory(&task);
        if busy && (!self.transfers.is_empty() || !self.held.is_empty()) {
            // Memory comes back only when this thread takes in what it has asked for.
            let mut immediate = vec![0; data];
            self.input.fill(&mut immediate)?;
            self.held.push_back(Held {
                command: c,
                task,
                immediate,
            });
            return Ok(());
        }
        self.begin(c, task, data, None)
    }

    /// Units other than 0: they can be asked whether they are there.
    fn elsewhere(&self, c: &Command) -> Result<Task, Sense> {
        match c.cdb[0] {
            0x12 if c.cdb[1] & 1 == 0 => {
                let room = usize::from(c.cdb[3]) << 8 | usize::from(c.cdb[4]);
                Ok(Task::Say(super::vpd::nobody(), room))
            }
            0xa0 => scsi::task(self.disk(), &c.cdb),
            _ => Err(Sense::UNIT),
        }
    }

    fn has_memory(&self, task: &Task) -> bool {
        let (Task::Read(e)
        | Task::Write(e)
        | Task::Verify(e)
        | Task::Compare(e)
        | Task::WriteSame { extent: e, .. }) = task
        else {
            return true;
        };
        self.share.as_ref().is_none_or(|s| s.has(e.len as usize))
    }

    /// Memory on this connection's account. Waits only while nothing is owed to it.
    pub(super) fn buffer(&self, offset: u64, len: u32) -> Buffer {
        let block = self.port().block_bytes();
        match &self.share {
            Some(s) if !self.transfers.is_empty() => s.buffer_now(offset, len, block),
            Some(s) => s.buffer(offset, len, block),
            None => self.port().buffer(offset, len),
        }
    }

    /// Commands that waited for memory go on, in their order.
    fn resume(&mut self) -> Result<(), Stop> {
        while let Some(h) = self.held.front() {
            if !self.transfers.is_empty() && !self.has_memory(&h.task) {
                return Ok(());
            }
            if let Some(h) = self.held.pop_front() {
                self.begin(h.command, h.task, h.immediate.len(), Some(h.immediate))?;
            }
        }
        Ok(())
    }

    /// Takes in the data that is there, from the socket unless it was taken already, and asks for more or carries it out.
    fn begin(
        &mut self,
        c: Command,
        task: Task,
        data: usize,
        taken: Option<Vec<u8>>,
    ) -> Result<(), Stop> {
        let block = self.disk().block;
        let needs = task.data_in(block);
        let expected = if c.write { c.expected } else { 0 };
        let mut want = needs.min(expected);
        if matches!(task, Task::Write(_) | Task::Compare(_)) {
            want -= want % block;
        }
        if needs == 0 || want == 0 {
            if taken.is_none() {
                self.input.skip(data)?;
            }
            let residual = i64::from(needs) - i64::from(expected);
            let nothing = Sink::Bytes(Vec::new());
            self.carry_out(&c, task, nothing, if c.read { 0 } else { residual });
            return Ok(());
        }
        let mut sink = match &task {
            Task::Write(e) => Sink::Memory(self.buffer(e.offset, want)),
            _ => Sink::Bytes(vec![0; want as usize]),
        };
        let have = data.min(want as usize);
        if let Some(bytes) = taken {
            sink.bytes()[..have].copy_from_slice(&bytes[..have]);
        } else {
            self.input.fill(&mut sink.bytes()[..have])?;
            self.input.skip(data - have)?;
        }
        let patience = self.shared.config.patience.transmission;
        let slow = std::time::Duration::from_secs((want / DATA_RATE).into());
        let mut t = Transfer {
            residual: i64::from(needs) - i64::from(expected),
            command: c,
            task,
            sink,
            want,
            have: have as u32,
            asked: have as u32,
            ttt: self.next_ttt,
            r2t_sn: 0,
            data_sn: 0,
            until: Instant::now() + patience + slow,
        };
        if t.have == t.want {
            self.carry_out(&c, t.task, t.sink, t.residual);
        } else {
            self.next_ttt = self.next_ttt.wrapping_add(1) & 0x7fff_ffff;
            self.ask(&mut t);
            self.transfers.push(t);
        }
        Ok(())
    }

    /// Asks for the next burst.
    fn ask(&self, t: &mut Transfer) {
        let n = (t.want - t.have).min(self.terms.max_burst);
        let mut b = header(0x31, 0x80, t.command.itt);
        b[8..16].copy_from_slice(&t.command.lun.to_be_bytes());
        put(&mut b, 20, t.ttt);
        put(&mut b, 36, t.r2t_sn);
        put(&mut b, 40, t.have);
        put(&mut b, 44, n);
        t.asked = t.have + n;
        t.r2t_sn += 1;
        t.data_sn = 0;
        self.outbox.push(Item {
            header: b,
            body: Body::None,
            kind: Kind::Plain,
            ends: Ends::Nothing,
        });
    }

    fn data(&mut self, what: &What, data: usize) -> Result<(), Stop> {
        let What::Data {
            itt,
            ttt,
            data_sn,
            offset,
            last,
        } = *what
        else {
            return Ok(());
        };
        let Some(at) = self.transfers.iter().position(|t| t.command.itt == itt) else {
            // Of a command that was aborted or refused.
            return Ok(self.input.skip(data)?);
        };
        let t = &mut self.transfers[at];
        let end = t.have + data as u32;
        if ttt != t.ttt || data_sn != t.data_sn || offset != t.have || end > t.asked {
            return Err(Stop::Fault("data that was not asked for"));
        }
        if last != (end == t.asked) {
            return Err(Stop::Fault("a burst that ends where it should not"));
        }
        if data == 0 {
            return Err(Stop::Fault("data without bytes"));
        }
        self.input
            .fill(&mut t.sink.bytes()[offset as usize..end as usize])?;
        t.have = end;
        t.data_sn += 1;
        if t.have == t.want {
            let t = self.transfers.remove(at);
            self.carry_out(&t.command, t.task, t.sink, t.residual);
        } else if t.have == t.asked {
            let mut t = self.transfers.remove(at);
            self.ask(&mut t);
            self.transfers.insert(at, t);
        }
        Ok(())
    }
}

impl Shared {
    /// Ended by whoever stops the server.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
