//! Clock, devices and buffers that do the worst they may.

use super::Rng;
use super::disk::Disk;
use isotherm_core::{
    BufRef, DeviceOp, Effect, Event, IoError, MemberId, Nanos, OpKind, Tag, World,
};
use std::collections::BTreeMap;

/// How often what goes wrong: once in so many operations, 0 = never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Reads and writes of data end in an error; a failed write may have landed in part.
    pub data_errors: u64,
    /// Transfers stop short.
    pub short: u64,
    /// Flushes and metadata writes fail.
    pub meta_errors: u64,
}

/// What becomes of an operation in a scripted world, which ends them in the order in which they were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It ends well when its turn comes.
    Go,
    /// It does not end; later ones pass it by.
    Hold,
    /// It ends in an error and changes nothing.
    Fail,
    /// It ends well after half of its bytes.
    Half,
}

/// Says what becomes of each operation.
pub type Script = Box<dyn Fn(&DeviceOp) -> Fate>;

#[derive(Clone, Debug)]
struct InFlight {
    op: DeviceOp,
    meta: Vec<u8>,
    /// For flushes: what had landed when it was issued.
    stamp: u64,
}

/// A request's memory: the aligned buffer, and an odd write's payload with its place in it.
#[derive(Clone, Debug)]
struct Memory {
    aligned: Vec<u8>,
    payload: Option<(usize, Vec<u8>)>,
}

/// See the module.
pub struct Hostile {
    /// Member devices.
    pub disks: Vec<Disk>,
    /// Randomness.
    pub rng: Rng,
    /// What goes wrong.
    pub faults: Faults,
    /// Nothing is left to chance: operations end in order, as this says.
    pub script: Option<Script>,
    now: Nanos,
    in_flight: Vec<InFlight>,
    memory: BTreeMap<Tag, Memory>,
    moves: Vec<u8>,
    extent: usize,
    /// Replies since the last [`Hostile::take_replies`].
    replies: Vec<(Tag, Result<(), IoError>)>,
    /// Completed operations that change or flush a device; where crashes are counted.
    pub steps: u64,
}

impl Hostile {
    /// Over these devices.
    pub fn new(disks: Vec<Disk>, rng: Rng, faults: Faults, extent: usize, now: Nanos) -> Hostile {
        Hostile {
            disks,
            rng,
            faults,
            script: None,
            now,
            in_flight: Vec::new(),
            memory: BTreeMap::new(),
            moves: Vec::new(),
            extent,
            replies: Vec::new(),
            steps: 0,
        }
    }
    /// Memory for a request: `len` bytes whose first `head` lie before its first byte. A write's payload is given.
    pub fn give(&mut self, tag: Tag, aligned: usize, head: usize, payload: Option<Vec<u8>>) {
        let mut memory = Memory {
            aligned: vec![0x5a; aligned],
            payload: None,
        };
        match payload {
            Some(p) if head == 0 && p.len() == aligned => memory.aligned = p,
            Some(p) => memory.payload = Some((head, p)),
            None => {}
        }
        self.memory.insert(tag, memory);
    }
    /// A request's memory back.
    pub fn take(&mut self, tag: Tag) -> Vec<u8> {
        self.memory
            .remove(&tag)
            .map(|m| m.aligned)
            .unwrap_or_default()
    }
    /// What was answered.
    pub fn take_replies(&mut self) -> Vec<(Tag, Result<(), IoError>)> {
        std::mem::take(&mut self.replies)
    }
    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
    /// Jump ahead.
    pub fn pass(&mut self, t: Nanos) {
        self.now = self.now + t;
    }
    fn buffer(&mut self, buf: BufRef, len: usize) -> &mut [u8] {
        let extent = self.extent;
        match buf {
            BufRef::Request { tag, offset } => {
                let m = self
                    .memory
                    .get_mut(&tag)
                    .expect("operation on a request that was answered");
                &mut m.aligned[offset as usize..offset as usize + len]
            }
            BufRef::Move { index, offset } => {
                // One stretch of memory: a joined operation uses buffers that follow one another.
                let at = usize::from(index) * extent + offset as usize;
                if self.moves.len() < at + len {
                    self.moves.resize(at + len, 0x77);
                }
                &mut self.moves[at..at + len]
            }
            BufRef::None | BufRef::Meta => &mut [],
        }
    }
    fn payload(&mut self, f: &InFlight, len: usize) -> Vec<u8> {
        match (f.op.kind, f.op.buf) {
            (OpKind::WriteZeroes, _) => vec![0; len],
            (OpKind::Discard, _) => vec![0xdd; len], // contents after a discard are undefined
            (_, BufRef::Meta) => f.meta[..len].to_vec(),
            (_, buf) => self.buffer(buf, len).to_vec(),
        }
    }
    /// End one operation in flight.
    fn finish(&mut self, f: &InFlight, fate: Fate) -> Event {
        let op = f.op;
        let is_meta = op.buf == BufRef::Meta || op.kind == OpKind::Flush;
        let errors = if is_meta {
            self.faults.meta_errors
        } else {
            self.faults.data_errors
        };
        let disk = usize::from(op.member.0);
        let mut result = Ok(op.len);
        let mut len = op.len as usize;
        if fate == Fate::Fail {
            (result, len) = (Err(IoError::Io), 0);
        } else if fate == Fate::Half {
            len = len / 1024 * 512;
            result = Ok(len as u32);
        } else if !matches!(op.kind, OpKind::Standby | OpKind::Discard) && self.rng.one_in(errors) {
            result = Err(IoError::Io);
            // A failed write may have landed, whole sectors of it.
            len = if op.kind == OpKind::Write {
                self.rng.below(op.len as u64 / 512 + 1) as usize * 512
            } else {
                0
            };
        } else if matches!(op.kind, OpKind::Read | OpKind::Write)
            && op.len > 512
            && self.rng.one_in(self.faults.short)
        {
            len = self.rng.below(u64::from(op.len)) as usize / 512 * 512;
            result = Ok(len as u32);
            if len == 0 {
                result = Err(IoError::Io);
            }
        }
        match op.kind {
            OpKind::Read if result.is_ok() => {
                let data = self.disks[disk].read(op.offset, len).to_vec();
                self.buffer(op.buf, len).copy_from_slice(&data);
            }
            OpKind::Write | OpKind::WriteZeroes | OpKind::Discard => {
                self.steps += 1;
                let data = self.payload(f, len);
                if op.fua && result.is_ok() {
                    self.disks[disk].write_through(op.offset, &data);
                } else if !data.is_empty() {
                    self.disks[disk].write(op.offset, &data);
                }
            }
            OpKind::Flush => {
                self.steps += 1;
                if result.is_ok() {
                    self.disks[disk].flush(f.stamp);
                }
            }
            OpKind::Read | OpKind::Standby => {}
        }
        Event::Finished { id: op.id, result }
    }
    /// Power is lost: what is in flight may have landed in part, what was not flushed is torn.
    pub fn crash(mut self) -> (Vec<Disk>, Rng) {
        let mut extra: BTreeMap<u8, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
        let flying = std::mem::take(&mut self.in_flight);
        for f in flying.iter().filter(|f| super::disk::changes(f.op.kind)) {
            let data = self.payload(f, f.op.len as usize);
            extra
                .entry(f.op.member.0)
                .or_default()
                .push((f.op.offset, data));
        }
        for (i, d) in self.disks.iter_mut().enumerate() {
            let none = Vec::new();
            d.crash(&mut self.rng, extra.get(&(i as u8)).unwrap_or(&none));
        }
        (self.disks, self.rng)
    }
    /// The operation that ends next as the script has it, if any does.
    pub fn next_scripted(&self) -> Option<(usize, Fate)> {
        let script = self.script.as_ref()?;
        let mut fates = self.in_flight.iter().map(|f| script(&f.op)).enumerate();
        fates.find(|(_, fate)| *fate != Fate::Hold)
    }
    /// What is in flight.
    pub fn flying(&self) -> impl Iterator<Item = DeviceOp> + '_ {
        self.in_flight.iter().map(|f| f.op)
    }
    /// Power is lost; of each sector that was not flushed, those in flight among them, `keep` says whether it landed.
    pub fn lose_power(mut self, keep: &dyn Fn(MemberId, u64) -> bool) -> Vec<Disk> {
        let flying = std::mem::take(&mut self.in_flight);
        for f in flying.iter().filter(|f| super::disk::changes(f.op.kind)) {
            let data = self.payload(f, f.op.len as usize);
            self.disks[usize::from(f.op.member.0)].write(f.op.offset, &data);
        }
        for (m, d) in (0u8..).zip(&mut self.disks) {
            d.settle(&|at| keep(MemberId(m), at));
        }
        self.disks
    }
    /// The process dies, the machine lives on: what landed stays in the caches, and so may what is in flight.
    pub fn die(mut self) -> (Vec<Disk>, Rng) {
        let flying = std::mem::take(&mut self.in_flight);
        for f in flying.iter().filter(|f| super::disk::changes(f.op.kind)) {
            if self.rng.one_in(2) {
                let data = self.payload(f, f.op.len as usize);
                self.disks[usize::from(f.op.member.0)].write(f.op.offset, &data);
            }
        }
        (self.disks, self.rng)
    }
    /// The member that an operation in flight is on, for tests.
    pub fn busy_members(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.in_flight.iter().map(|f| f.op.member)
    }
}

impl World for Hostile {
    fn now(&self) -> Nanos {
        self.now
    }
    fn wait(&mut self, until: Option<Nanos>, events: &mut Vec<Event>) {
        if self.in_flight.is_empty() {
            // Where nobody waits for anything, time passes all the same.
            self.now = until.map_or(self.now + Nanos::from_millis(1), |t| self.now.max(t));
            return;
        }
        if self.script.is_some() {
            let Some((i, fate)) = self.next_scripted() else {
                self.now = until.map_or(self.now + Nanos::from_millis(1), |t| self.now.max(t));
                return;
            };
            self.now = self.now + Nanos::from_micros(10);
            let f = self.in_flight.remove(i);
            events.push(self.finish(&f, fate));
            return;
        }
        self.now = self.now + Nanos(1 + self.rng.below(2_000_000));
        let i = self.rng.below(self.in_flight.len() as u64) as usize;
        let f = self.in_flight.swap_remove(i);
        events.push(self.finish(&f, Fate::Go));
    }
    fn carry_out(&mut self, effect: &Effect, meta: &[u8]) {
        match *effect {
            Effect::Start(op) => {
                let stamp = self.disks[usize::from(op.member.0)].stamp();
                self.in_flight.push(InFlight {
                    op,
                    meta: meta.to_vec(),
                    stamp,
                });
            }
            Effect::Zero { tag, offset, len } => {
                self.buffer(BufRef::Request { tag, offset }, len as usize)
                    .fill(0);
            }
            Effect::CopyFromMove {
                index,
                from,
                tag,
                to,
                len,
            } => {
                let data = self
                    .buffer(
                        BufRef::Move {
                            index,
                            offset: from,
                        },
                        len as usize,
                    )
                    .to_vec();
                self.buffer(BufRef::Request { tag, offset: to }, len as usize)
                    .copy_from_slice(&data);
            }
            Effect::Patch { tag } => {
                let m = self
                    .memory
                    .get_mut(&tag)
                    .expect("patch of a request that was answered");
                let (head, p) = m
                    .payload
                    .take()
                    .expect("patch of a request without an odd payload");
                m.aligned[head..head + p.len()].copy_from_slice(&p);
            }
            Effect::Reply { tag, result } => self.replies.push((tag, result)),
        }
    }
}
