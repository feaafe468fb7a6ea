//! A clock, devices and buffers with the worst behaviour that their interfaces allow.

use super::Rng;
use super::disk::Disk;
use super::truth::DISCARDED;
use isotherm_core::{
    BufRef, DeviceOp, Effect, Event, IoError, MemberId, Nanos, OpKind, Request, Tag, World,
};
use std::collections::BTreeMap;

/// Frequency of each fault: on average one fault in this number of operations; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Reads and writes of data end in an error; a failed write may have changed a part of its range.
    pub data_errors: u64,
    /// Transfers end early.
    pub short: u64,
    /// Flushes and metadata writes fail.
    pub meta_errors: u64,
}

/// The outcome of an operation in a scripted world, in which operations end in the order in which they were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The operation succeeds when its turn comes.
    Go,
    /// The operation does not end; later ones may end before it.
    Hold,
    /// The operation fails and changes nothing.
    Fail,
    /// The operation succeeds after half of its bytes.
    Half,
}

/// Gives the outcome of each operation.
pub type Script = Box<dyn Fn(&DeviceOp) -> Fate>;

#[derive(Clone, Debug)]
struct InFlight {
    op: DeviceOp,
    meta: Vec<u8>,
    /// For flushes: the point in time up to which writes had arrived when the flush was issued.
    stamp: u64,
}

/// The memory of a request: the aligned buffer, and the payload of an unaligned write with its position in the buffer.
#[derive(Clone, Debug)]
struct Memory {
    request: Option<Request>,
    aligned: Vec<u8>,
    payload: Option<(usize, Vec<u8>)>,
}

/// See the module.
pub struct Hostile {
    /// The devices of the members.
    pub disks: Vec<Disk>,
    /// The generator of random numbers.
    pub rng: Rng,
    /// Frequency of the faults.
    pub faults: Faults,
    /// The member that cannot be written.
    pub read_only: Option<MemberId>,
    /// If set, nothing is random: operations end in order, with the outcomes that this function gives.
    pub script: Option<Script>,
    now: Nanos,
    in_flight: Vec<InFlight>,
    memory: BTreeMap<Tag, Memory>,
    moves: Vec<u8>,
    extent: usize,
    /// Replies since the last [`Hostile::take_replies`].
    replies: Vec<(Tag, Result<(), IoError>)>,
    /// The blocks of the journal that outlive the server, if the engine keeps any.
    pub kept: BTreeMap<u64, Vec<u8>>,
    /// Number of completed operations that change or flush a device; crashes are placed by this number.
    pub steps: u64,
}

impl Hostile {
    /// A world with these devices.
    pub fn new(disks: Vec<Disk>, rng: Rng, faults: Faults, extent: usize, now: Nanos) -> Hostile {
        Hostile {
            disks,
            rng,
            faults,
            read_only: None,
            script: None,
            now,
            in_flight: Vec::new(),
            memory: BTreeMap::new(),
            moves: Vec::new(),
            extent,
            replies: Vec::new(),
            kept: BTreeMap::new(),
            steps: 0,
        }
    }
    /// Provides the memory of a request: `aligned` bytes for whole blocks. The request begins `head` bytes after their start; a write also
    /// has its payload.
    pub fn give(&mut self, tag: Tag, aligned: usize, head: usize, payload: Option<Vec<u8>>) {
        let mut memory = Memory {
            aligned: vec![0x5a; aligned],
            payload: None,
            request: None,
        };
        match payload {
            Some(p) if head == 0 && p.len() == aligned => memory.aligned = p,
            Some(p) => memory.payload = Some((head, p)),
            None => {}
        }
        self.memory.insert(tag, memory);
    }
    /// Notes the request to which memory was given.
    pub fn note(&mut self, req: Request) {
        if let Some(m) = self.memory.get_mut(&req.tag) {
            m.request = Some(req);
        }
    }
    /// The requests that were noted and are not answered.
    pub fn unanswered(&self) -> Vec<Request> {
        let answered = |tag: Tag| self.replies.iter().any(|r| r.0 == tag);
        let noted = self.memory.values().filter_map(|m| m.request);
        noted.filter(|r| !answered(r.tag)).collect()
    }
    /// Returns the memory of a request.
    pub fn take(&mut self, tag: Tag) -> Vec<u8> {
        self.memory
            .remove(&tag)
            .map(|m| m.aligned)
            .unwrap_or_default()
    }
    /// The replies since the last call.
    pub fn take_replies(&mut self) -> Vec<(Tag, Result<(), IoError>)> {
        std::mem::take(&mut self.replies)
    }
    /// Number of operations in progress.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
    /// Advances the clock to `t`.
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
                // A joined operation uses consecutive buffers, which are one range of memory.
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
            (OpKind::Discard, _) => vec![DISCARDED; len],
            (_, BufRef::Meta) => f.meta[..len].to_vec(),
            (_, buf) => self.buffer(buf, len).to_vec(),
        }
    }
    /// Ends one operation.
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
            // A failed write may have written some whole sectors.
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
    /// Lets the power fail: operations in progress may have changed a part of their ranges, and unflushed writes are torn.
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
    /// The operation that ends next according to the script, if any.
    pub fn next_scripted(&self) -> Option<(usize, Fate)> {
        let script = self.script.as_ref()?;
        let mut fates = self.in_flight.iter().map(|f| script(&f.op)).enumerate();
        fates.find(|(_, fate)| *fate != Fate::Hold)
    }
    /// The operations in progress.
    pub fn in_progress(&self) -> impl Iterator<Item = DeviceOp> + '_ {
        self.in_flight.iter().map(|f| f.op)
    }
    /// Lets the power fail. For each sector that was not flushed, including those of operations in progress, `keep` tells whether it has
    /// reached the medium.
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
    /// Lets the process die while the machine continues to run: completed writes stay in the caches, and operations in progress may take
    /// effect.
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
    /// The members of the operations in progress, for tests.
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
            // Time passes even if nothing waits for it.
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
        let refused = self.read_only == Some(f.op.member) && super::disk::changes(f.op.kind);
        events.push(self.finish(&f, if refused { Fate::Fail } else { Fate::Go }));
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
                // (A request is carried out once more if its engine was followed by another one.)
                let (head, p) = m
                    .payload
                    .clone()
                    .expect("patch of a request without an odd payload");
                m.aligned[head..head + p.len()].copy_from_slice(&p);
            }
            Effect::Keep { seq } => {
                self.kept.insert(seq, meta.to_vec());
            }
            Effect::Reply { tag, result } => self.replies.push((tag, result)),
        }
    }
}
