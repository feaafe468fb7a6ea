//! SCSI commands from their arrival until their data is complete.

use std::time::Instant;

use super::outbox::{Body, Ends, Item, Kind};
use super::pdu::{Command, What, header, put};
use super::reservations::use_of;
use super::scsi::{self, Sense, Task};
use super::session::{Session, Stop};
use super::transfer::{Held, Sink, Transfer};
use crate::port::Buffer;

/// Minimum rate in bytes per second at which data must arrive, in addition to the time that any data may take.
const DATA_RATE: u32 = 1 << 20;

impl Session {
    pub(super) fn command(&mut self, c: Command, data: usize) -> Result<(), Stop> {
        let ends = Ends::of(c.order);
        if data > 0
            && (data > self.terms.first_burst as usize || !self.terms.immediate_data || !c.write)
        {
            return Err(Stop::Fault("data with a command that was not agreed on"));
        }
        if self.transfers.iter().any(|t| t.command.itt == c.itt) {
            return Err(Stop::Fault("a tag that is in use"));
        }
        // INQUIRY, REPORT LUNS and REQUEST SENSE are answered even if a unit attention is pending.
        let is_told = c.lun == 0 && !matches!(c.cdb[0], 0x12 | 0xa0 | 0x03);
        let news = is_told
            .then(|| self.shared.attention(&self.nexus))
            .flatten();
        let task = if let Some(sense) = news {
            Err(sense)
        } else if c.lun == 0 {
            scsi::task(self.disk(), &c.cdb)
        } else {
            self.command_to_other_unit(&c)
        };
        let task = match task {
            // The command is refused before its data is requested.
            Ok(_) if self.is_reserved_for_others(&c) => {
                self.input.skip(data)?;
                self.outbox.conflict(c.itt, ends);
                return Ok(());
            }
            Ok(task) => task,
            Err(sense) => {
                self.input.skip(data)?;
                self.outbox.respond(c.itt, ends, Some(sense), 0);
                return Ok(());
            }
        };
        let busy = !self.held.is_empty() || !self.has_memory(&task);
        if busy && (!self.transfers.is_empty() || !self.held.is_empty()) {
            // There is no memory now. This thread itself frees memory when it receives the data that it has requested, so the command must
            // wait.
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

    /// Returns true if a reservation of another initiator forbids the command.
    fn is_reserved_for_others(&self, c: &Command) -> bool {
        c.lun == 0
            && !self
                .shared
                .reservations()
                .allow(&self.nexus, use_of(&c.cdb))
    }

    /// A command to a unit other than 0. Initiators may ask whether such a unit exists.
    fn command_to_other_unit(&self, c: &Command) -> Result<Task, Sense> {
        match c.cdb[0] {
            0x12 if c.cdb[1] & 1 == 0 => {
                let room = usize::from(c.cdb[3]) << 8 | usize::from(c.cdb[4]);
                Ok(Task::Say(super::vpd::absent_unit(), room))
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

    /// Memory that is charged to this connection. Waits for memory only while the connection has no transfer in progress.
    pub(super) fn buffer(&self, offset: u64, len: u32) -> Buffer {
        let block = self.port().engine_block();
        match &self.share {
            Some(s) if !self.transfers.is_empty() => s.buffer_now(offset, len, block),
            Some(s) => s.buffer(offset, len, block),
            None => self.port().buffer(offset, len),
        }
    }

    /// Continues the commands that waited for memory, in their order.
    pub(super) fn resume(&mut self) -> Result<(), Stop> {
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

    /// Takes the data that has arrived, from the socket unless it was read already. Then it requests more data or executes the command.
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
        let time_limits = self.shared.config.time_limits.transmission;
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
            until: Instant::now() + time_limits + slow,
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

    /// Requests the next burst.
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

    pub(super) fn data(&mut self, what: &What, data: usize) -> Result<(), Stop> {
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
            // The data belongs to a command that was aborted or refused.
            return Ok(self.input.skip(data)?);
        };
        if data_sn != self.transfers[at].data_sn {
            // A PDU was lost or is out of order. Without error recovery the command fails and the session continues (RFC 7143, 7.8); other
            // data for the command is discarded.
            let t = self.transfers.remove(at);
            self.input.skip(data)?;
            let ends = Ends::of(t.command.order);
            self.outbox.respond(itt, ends, Some(Sense::DATA_PHASE), 0);
            return Ok(());
        }
        let t = &mut self.transfers[at];
        let end = t.have + data as u32;
        if ttt != t.ttt || offset != t.have || end > t.asked {
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
