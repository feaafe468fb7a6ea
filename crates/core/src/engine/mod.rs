//! The engine: one owner of map, moves and commits. Events in, effects out.
//!
//! Never false: a request is answered only when what it promises is true on the devices (or, for data not yet flushed, in
//! their caches), and no byte is shown to anyone but the extent that it was written to.
//!
//! | where | what it owns |
//! |---|---|
//! | `mod.rs` | the entry points |
//! | `requests/` | the life of a read, a write, a discard: `data.rs`, `discard.rs`; odd ones, `edges.rs`; extents with a copy, `replicas.rs`; whether a piece may touch an extent that something holds, `gate.rs`; what is known of the data, `classes.rs` |
//! | `relocation/` | moves under way and what limits them, `move_list.rs`, `moves.rs`; copies, `copies.rs`; what both read and write, and neighbours as one operation, `transfer.rs`, `join.rs`; the wear budget, `wear.rs` |
//! | `durability/` | rounds, `round.rs`, and what they work on, `commit.rs`; what the mirror must know before anything is acknowledged, `follow.rs`; slots between "given up" and "free", `free.rs` |
//! | `background/` | what is due, `upkeep.rs`; another policy for a running volume, `switch.rs`; what waits while a disk sleeps, `lull.rs` |
//! | `measure.rs` | how long operations took |
//! | `knobs.rs` | what can be set while it runs, beside the policy's parameters |

mod background;
mod durability;
mod inspect;
mod knobs;
mod measure;
mod mutants;
mod params;
mod relocation;
mod requests;
mod slab;

pub use background::switch::{Drain, SwitchError, fits};
pub use inspect::{Explained, Memory};
pub use knobs::{KNOBS, Knob, is_knob, knob};
pub use mutants::{MUTANTS, Mutant};
pub use params::Params;
pub use relocation::wear::WearBudget;

use crate::io::{BufRef, DeviceOp, Effect, IoError, OpId, OpKind, Request, RequestOp, Tag};
use crate::policy::{Action, Policy, Uses, View};
use crate::stats::{CLASSES, ClassCounters, Counters, MemberCounters};
use crate::store::{self, Opened};
use crate::units::{ExtentId, Nanos, Slot, TierId};
use crate::volume::Space;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use background::lull::Lull;
use background::switch;
use durability::commit::{self, Commit};
use durability::follow;
use durability::free::Freeing;
use relocation::join::Joins;
use relocation::move_list::Moves;
use relocation::wear::Wear;
use requests::edges::Edges;
use requests::replicas::Replicas;
use slab::Slab;

/// Longest read or write.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Slots that a policy may look at in one call, for an access or in the background: about 20 µs.
const SCAN_BUDGET: u32 = 2048;
/// Slots looked at in one go in the background: about 20 µs.
const LOOKS: u32 = 2048;

/// A request being served.
#[derive(Clone, Copy, Debug)]
struct Req {
    tag: Tag,
    op: RequestOp,
    /// First byte, rounded down to a block.
    start: u64,
    /// End, rounded up.
    end: u64,
    bytes: u32,
    fua: bool,
    class: u8,
    arrived: Nanos,
    /// Device operations and waiting pieces, plus one while pieces are being handed out.
    left: u32,
    error: Option<IoError>,
    /// The reply must wait for a commit round.
    needs_round: bool,
    /// An odd write that still reads its edge blocks.
    reading_edges: bool,
}

impl Req {
    fn is_write(&self) -> bool {
        !self.reading_edges
            && matches!(
                self.op,
                RequestOp::Write | RequestOp::WriteZeroes { keep: true }
            )
    }
}

/// What a device operation is for.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Part of a request: whole or partial extents `ext…` in slots `slot…`, bytes `start…start + len` of the volume.
    Data {
        req: u32,
        write: bool,
        ext: u32,
        count: u16,
        slot: u32,
        start: u64,
        len: u32,
    },
    /// Reading or writing the buffers of `count` moves, which follow one another.
    Move { index: u16, count: u16 },
    /// A flush, metadata write or metadata flush of the current round.
    Round,
    /// Passing a discard down before the slot is given out again.
    Trim { slot: Slot },
    /// Sending a disk to sleep.
    Standby,
}

#[derive(Clone, Copy, Debug)]
struct Op {
    what: What,
    #[allow(clippy::struct_field_names)]
    op: DeviceOp,
    /// When it was started, whether a request waits for it, and whether it goes on where the device's last one ended.
    issued: Nanos,
    foreground: bool,
    sequential: bool,
    /// Bytes of metadata, as (staging sequence numbers | checkpoint buffer | header).
    meta: commit::MetaSource,
}

/// A piece of a request (within one extent) that cannot go on just now.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    req: u32,
    extent: ExtentId,
    from: u64,
    to: u64,
    /// The policy has seen this access.
    touched: bool,
}

#[derive(Clone, Copy, Debug)]
struct MemberState {
    /// Writes completed since the last flush was issued.
    unflushed: bool,
    in_flight: u32,
    last_used: Nanos,
    asleep: bool,
    missing: bool,
    trims: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Closing,
    Closed,
}

/// The volume's engine: see the module.
pub struct Engine {
    space: Space,
    policy: Box<dyn Policy>,
    params: Params,
    reqs: Slab<Req>,
    ops: Slab<Op>,
    waiting: VecDeque<Waiter>,
    /// The other of the two queues that take turns.
    spare_queue: VecDeque<Waiter>,
    /// Pieces that wait for a free slot; tried again only when one was freed.
    starving: VecDeque<Waiter>,
    freed: bool,
    /// Something changed that a waiting piece may have waited for.
    retry: bool,
    /// The policy should have a look: an access or a settled move since the last tick.
    policy_due: bool,
    edges: Edges,
    replicas: Replicas,
    /// Checkpoints have room for copies.
    copies_fit: bool,
    /// Where the next look for a copy to give up starts.
    hand: u32,
    /// What the policy has no use for, and is given up in the background.
    drain: switch::Draining,
    moves: Moves,
    joins: Joins,
    wear: Wear,
    lull: Lull,
    commit: Commit,
    freeing: Freeing,
    members: Vec<MemberState>,
    wanted: Vec<Action>,
    counters: Counters,
    phase: Phase,
    /// A flush or metadata write failed: nothing can be promised any more.
    failed: bool,
    /// The time of the event that is being worked on.
    clock: Nanos,
    /// Unmapped extents must not be read as zeros (degraded, mirror not complete).
    incomplete: bool,
}

impl Engine {
    /// Over an opened volume.
    pub fn new(opened: Opened, mut policy: Box<dyn Policy>, params: Params) -> Engine {
        let mut space = opened.space;
        if params.own_slots {
            space.keep_own();
        }
        space.loads.start_with(&params.costs);
        let n = space.geo.members.len();
        let withdraw = !params.read_only && !mutants::chosen(&params, Mutant::HandOutLost);
        for m in opened.report.missing.iter().filter(|_| withdraw) {
            let m = &space.geo.members[usize::from(m.0)];
            (m.first_slot..m.first_slot + m.slots).for_each(|s| space.slots.withdraw(Slot(s)));
        }
        policy.attach(&mut View::new(
            &mut space,
            opened.time_base,
            0,
            false,
            u32::MAX,
        ));
        let blank = MemberState {
            unflushed: false,
            in_flight: 0,
            last_used: opened.time_base,
            asleep: false,
            missing: false,
            trims: params.pass_discards,
        };
        let mut members = vec![blank; n];
        for m in &opened.report.missing {
            members[usize::from(m.0)].missing = true;
        }
        let counters = Counters {
            members: vec![MemberCounters::default(); n],
            classes: vec![ClassCounters::default(); CLASSES],
            ..Counters::default()
        };
        let mut commit = Commit::new(
            &opened.superblock,
            opened.layout,
            opened.tip,
            opened.checkpoint,
            opened.highest_checkpoint,
            &params,
            space.geo.extents,
        );
        // Nobody recovers a volume that keeps no bytes: it need not say that its mirror lags.
        let claimed = opened.superblock.follow == store::superblock::Follow::Mirror
            && opened.layout.mirror.is_some()
            && !(params.unread_metadata && policy.uses() != Uses::Copies);
        let fast = space.geo.tier_slots(space.geo.slowest()).start;
        commit.follow = follow::Follow::new(claimed, &space.map, fast);
        for &e in &opened.report.dropped {
            commit.note(e, opened.time_base, params.commit_interval);
        }
        Engine {
            commit,
            freeing: Freeing::default(),
            moves: Moves::new(&params),
            joins: Joins::new(n),
            clock: opened.time_base,
            wear: Wear::new(&params, space.geo.extent_bytes(), opened.time_base),
            lull: Lull::new(params.sleep_hold, params.sleep_hold_bytes, opened.time_base),
            edges: Edges::default(),
            replicas: Replicas::default(),
            copies_fit: opened.superblock.has_room_for_copies(),
            hand: 0,
            drain: switch::Draining::new(&*policy, &space),
            reqs: Slab::new(1024),
            ops: Slab::new(1024),
            waiting: VecDeque::with_capacity(256),
            spare_queue: VecDeque::with_capacity(256),
            starving: VecDeque::new(),
            freed: false,
            retry: false,
            policy_due: true,
            wanted: Vec::with_capacity(64),
            phase: Phase::Running,
            failed: false,
            incomplete: opened.report.incomplete,
            members,
            counters,
            space,
            policy,
            params,
        }
    }

    /// A request arrived.
    pub fn submit(&mut self, now: Nanos, req: Request, out: &mut Vec<Effect>) {
        self.pass(now);
        if let Err(error) = self.admissible(&req) {
            self.counters.errors += 1;
            out.push(Effect::Reply {
                tag: req.tag,
                result: Err(error),
            });
            return;
        }
        let (start, end) = match req.op {
            // A discard is advice: it covers the whole blocks inside.
            RequestOp::Discard => {
                let b = u64::from(self.space.geo.block_bytes());
                let (a, z) = (
                    (req.offset + b - 1) & !(b - 1),
                    (req.offset + u64::from(req.len)) & !(b - 1),
                );
                (a, z.max(a))
            }
            _ => self.space.geo.align(req.offset, u64::from(req.len)),
        };
        let r = self.reqs.insert(Req {
            tag: req.tag,
            op: req.op,
            start,
            end,
            bytes: req.len,
            fua: req.fua && !self.broken(Mutant::ForgetFua),
            class: req.class,
            arrived: now,
            left: 1,
            error: None,
            needs_round: false,
            reading_edges: false,
        });
        match req.op {
            RequestOp::Flush => self.commit.join(r),
            RequestOp::Write if (start, end) != (req.offset, req.offset + u64::from(req.len)) => {
                self.start_odd_write(now, r, req.offset, out);
            }
            RequestOp::Discard | RequestOp::WriteZeroes { keep: false } => {
                self.reqs.at(r).needs_round = req.fua;
                self.hand_out_discard(now, r, out);
                self.piece_done(now, r, out);
            }
            RequestOp::Read | RequestOp::Write | RequestOp::WriteZeroes { keep: true } => {
                self.hand_out(now, r, start, end, out);
                self.piece_done(now, r, out);
            }
        }
        self.upkeep(now, out);
    }

    fn admissible(&self, req: &Request) -> Result<(), IoError> {
        if req.op == RequestOp::Flush {
            // A failed flush is sticky: no later one pretends success (design.md section 5).
            let ended = self.phase == Phase::Closed;
            return if ended {
                Err(IoError::Gone)
            } else if self.failed && !self.broken(Mutant::ForgetFailedFlush) {
                Err(IoError::Io)
            } else {
                Ok(())
            };
        }
        let end = req
            .offset
            .checked_add(u64::from(req.len))
            .ok_or(IoError::Invalid)?;
        if req.len == 0 || end > self.space.geo.volume_bytes() || self.phase != Phase::Running {
            return Err(IoError::Invalid);
        }
        match req.op {
            RequestOp::Read | RequestOp::Write if req.len > REQUEST_BYTES_MAX => {
                return Err(IoError::Invalid);
            }
            RequestOp::WriteZeroes { .. }
                if self.space.geo.align(req.offset, u64::from(req.len)) != (req.offset, end) =>
            {
                return Err(IoError::Invalid);
            }
            RequestOp::Read => return Ok(()),
            _ => {}
        }
        if self.params.read_only {
            return Err(IoError::ReadOnly);
        }
        if self.failed && !self.broken(Mutant::ForgetFailedFlush) {
            Err(IoError::Io)
        } else {
            Ok(())
        }
    }

    /// A device operation ended: bytes transferred, or an error.
    pub fn complete(
        &mut self,
        now: Nanos,
        id: OpId,
        result: Result<u32, IoError>,
        out: &mut Vec<Effect>,
    ) {
        self.pass(now);
        let op = self.ops.at(id.0);
        let (i, len, what) = (usize::from(op.op.member.0), op.op.len, op.what);
        self.members[i].in_flight -= 1;
        if !self.is_background(what) {
            self.members[i].last_used = now;
        }
        let whole = result.map(|n| n >= len || self.broken(Mutant::TrustShortTransfer));
        let op = *self.ops.at(id.0);
        if matches!(what, What::Move { count: 2.., .. })
            && whole != Ok(true)
            && !(whole == Ok(false) && self.broken(Mutant::TrustTornJoin))
        {
            self.counters.members[i].errors += u64::from(whole.is_err());
            self.ops.remove(id.0);
            self.measure(now, &op);
            self.repeat_apart(&op, out);
            return self.upkeep(now, out);
        }
        let torn = matches!(what, What::Move { count: 2.., .. });
        if whole == Ok(false) && !torn {
            // A short transfer: the rest is asked for again, from the block in which the device stopped; one that did not
            // get past its first block is an error, or it would be asked for for ever.
            let n = result.unwrap_or(0) & !(self.space.geo.block_bytes() - 1);
            if n > 0 && matches!(op.op.kind, OpKind::Read | OpKind::Write) {
                self.resume(op, n, id, out);
                return;
            }
        }
        let op = self.ops.remove(id.0);
        self.measure(now, &op);
        let result = match whole {
            Ok(true) => Ok(()),
            Ok(false) if torn => Ok(()),
            Ok(false) => Err(IoError::Io),
            Err(e) => Err(e),
        };
        let c = &mut self.counters.members[i];
        c.errors += u64::from(result.is_err());
        match op.what {
            What::Data { .. } => self.data_done(now, &op, result, out),
            What::Move { .. } => self.joined_step(now, &op, result, out),
            What::Round => self.round_step(now, &op, result, out),
            What::Trim { slot } => {
                // Discards are advice; a device that cannot is not asked again.
                self.members[i].trims &= result.is_ok();
                self.trimmed(slot);
            }
            // Another operation may have woken it since.
            What::Standby if result.is_err() => self.set_asleep(i, false),
            What::Standby => {}
        }
        self.upkeep(now, out);
    }

    fn resume(&mut self, op: Op, n: u32, id: OpId, out: &mut Vec<Effect>) {
        let mut d = DeviceOp { id, ..op.op };
        d.offset += u64::from(n);
        d.len -= n;
        let mut meta = op.meta;
        match &mut d.buf {
            BufRef::Request { offset, .. } | BufRef::Move { offset, .. } => *offset += n,
            BufRef::Meta => meta.skip(n),
            BufRef::None => {}
        }
        if let What::Data { req, .. } = op.what {
            debug_assert!(self.reqs.get(req).is_some());
        }
        let o = self.ops.at(id.0);
        o.op = d;
        o.meta = meta;
        self.members[usize::from(d.member.0)].in_flight += 1;
        out.push(Effect::Start(d));
    }

    /// A hint that byte `offset` will be asked for soon: bring its row of the map near. Worth it for a caller that knows many
    /// requests to come, since the misses of these rows then overlap; without effect on what the engine does.
    #[inline]
    pub fn expect(&self, offset: u64) {
        let e = self.space.geo.extent_at(offset);
        if e.0 < self.space.geo.extents {
            core::hint::black_box(self.space.map.fastest(e));
        }
    }

    /// No more requests will come: drain, write everything down.
    pub fn close(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.pass(now);
        if self.phase == Phase::Running {
            self.phase = Phase::Closing;
            for i in 0..self.moves.len() {
                self.cancel_move(now, i as u16, out);
            }
            self.upkeep(now, out);
        }
    }

    /// Everything that can be durable is, and nothing is in flight.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Did a flush or metadata write fail, so that nothing can be promised any more?
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The bytes of a metadata write in flight.
    pub fn meta(&self, op: &DeviceOp) -> &[u8] {
        match self.ops.get(op.id.0) {
            Some(o) if op.buf == BufRef::Meta => self.commit.meta_bytes(o.meta, op.len),
            _ => &[],
        }
    }

    /// Start a device operation.
    fn start(
        &mut self,
        what: What,
        mut op: DeviceOp,
        meta: commit::MetaSource,
        out: &mut Vec<Effect>,
    ) {
        let issued = self.clock;
        let (foreground, sequential) = self.noted(what, &op);
        op.id = OpId(self.ops.insert(Op {
            what,
            op,
            issued,
            foreground,
            sequential,
            meta,
        }));
        let m = &mut self.members[usize::from(op.member.0)];
        m.in_flight += 1;
        if m.asleep && op.kind != OpKind::Standby {
            self.set_asleep(usize::from(op.member.0), false);
            self.lull.woke();
            self.policy_due |= self.lull.is_on();
        }
        if matches!(op.kind, OpKind::Write | OpKind::WriteZeroes)
            && self.space.geo.members[usize::from(op.member.0)].tier == TierId(0)
        {
            let promised = self.moves.pay(what, op.len);
            self.wear.wrote(op.len, promised);
        }
        let c = &mut self.counters.members[usize::from(op.member.0)];
        let (is_move, is_meta) = (matches!(what, What::Move { .. }), op.buf == BufRef::Meta);
        match op.kind {
            OpKind::Read => {
                c.reads += 1;
                c.bytes_read += u64::from(op.len);
                c.move_bytes_read += if is_move { u64::from(op.len) } else { 0 };
            }
            OpKind::Write if is_meta => c.meta_bytes_written += u64::from(op.len),
            OpKind::Write | OpKind::WriteZeroes => {
                c.writes += 1;
                c.bytes_written += u64::from(op.len);
                c.move_bytes_written += if is_move { u64::from(op.len) } else { 0 };
            }
            OpKind::Flush => c.flushes += 1,
            OpKind::Discard => c.bytes_discarded += u64::from(op.len),
            OpKind::Standby => c.spin_downs += 1,
        }
        out.push(Effect::Start(op));
    }

    /// A member was sent to sleep, or woke.
    fn set_asleep(&mut self, member: usize, asleep: bool) {
        self.members[member].asleep = asleep;
        self.space.loads.sleeps(member, asleep);
    }

    fn view(&mut self, now: Nanos, budget: u32) -> (&mut dyn Policy, View<'_>, &mut Vec<Action>) {
        let flushing = self.commit.writing_metadata();
        (
            self.policy.as_mut(),
            View::new(&mut self.space, now, self.moves.copying(), flushing, budget),
            &mut self.wanted,
        )
    }
}
