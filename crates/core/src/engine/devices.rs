//! The member devices from the engine's view: operations in progress, standby states, durations.

use super::globals::Globals;
use super::meter::Meter;
use super::slab::Slab;
use super::wear::Wear;
use crate::io::{BufRef, DeviceOp, Effect, OpId, OpKind};
use crate::load::Sample;
use crate::stats::{MemberCounters, SleepRecord, Waker};
use crate::units::{MemberId, Nanos, Slot, TierId};
use alloc::vec;
use alloc::vec::Vec;

/// The place of the bytes of a metadata write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaSource {
    None,
    /// The staged journal blocks from sequence number `seq` on.
    Journal {
        seq: u64,
        skip: u32,
    },
    /// The checkpoint piece of this round.
    Piece {
        skip: u32,
    },
    /// The checkpoint header.
    Header {
        skip: u32,
    },
    /// A member's counter.
    Counter {
        member: MemberId,
        skip: u32,
    },
    /// The mark of a disk.
    Mark {
        member: MemberId,
        skip: u32,
    },
    /// A page of a list of lost data, by its number in this round.
    Written {
        page: u32,
        skip: u32,
    },
}

impl MetaSource {
    /// Skips the first `n` bytes, which are already written.
    pub(super) fn skip(&mut self, n: u32) {
        match self {
            MetaSource::None => {}
            MetaSource::Journal { skip, .. }
            | MetaSource::Piece { skip }
            | MetaSource::Header { skip }
            | MetaSource::Counter { skip, .. }
            | MetaSource::Mark { skip, .. }
            | MetaSource::Written { skip, .. } => *skip += n,
        }
    }
}

/// The purpose of a device operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Part of a request: whole or partial extents `ext…` in slots `slot…`, bytes `start…start + len` of the volume.
    Data {
        req: u32,
        write: bool,
        ext: u32,
        count: u16,
        slot: u32,
        start: u64,
        len: u32,
        /// The class of its data; with [`crate::QUIET`] it counts for no class.
        class: u8,
    },
    /// Writes zeros over the new home of an extent.
    Fill {
        ext: u32,
        slot: u32,
        start: u64,
        len: u32,
    },
    /// Reads or writes the buffers of `count` moves, which are consecutive.
    Move { index: u16, count: u16 },
    /// A flush, metadata write or metadata flush of the current round.
    Round,
    /// Passes a discard to the device before the slot is allocated again.
    Trim { slot: Slot },
    /// Sends a disk to sleep.
    Standby,
}

impl What {
    /// The cause of a wake-up of a member.
    fn waker(self) -> Waker {
        match self {
            What::Data {
                start, len, write, ..
            } => Waker::Request(start, len, write),
            What::Fill { start, len, .. } => Waker::Request(start, len, true),
            What::Move { .. } => Waker::Move,
            What::Trim { .. } => Waker::Discard,
            What::Round | What::Standby => Waker::Metadata,
        }
    }
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) what: What,
    #[allow(clippy::struct_field_names)]
    pub(super) op: DeviceOp,
    /// The time of its start, whether a request waits for it, whether the device had nothing else to do, and whether it begins where the
    /// device's last operation ended.
    issued: Nanos,
    foreground: bool,
    alone: bool,
    pub(super) sequential: bool,
    /// The place of the bytes, if it is a metadata write.
    meta: MetaSource,
}

impl Op {
    pub(super) fn member(&self) -> usize {
        usize::from(self.op.member.0)
    }
    /// The time of its start.
    pub(super) fn issued(&self) -> Nanos {
        self.issued
    }
    /// The place of the bytes of a metadata write.
    pub(super) fn meta(&self) -> MetaSource {
        self.meta
    }
}

/// The state of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberState {
    /// Whether writes have completed since the last flush was issued.
    pub(super) unflushed: bool,
    pub(super) in_flight: u32,
    /// Number of writes of requests in progress.
    pub(super) writing: u32,
    pub(super) last_used: Nanos,
    pub(super) asleep: bool,
    /// The time of the operation that woke it, until it is ready ([`Globals::note_woken`]).
    pub(super) waking: Option<Nanos>,
    pub(super) missing: bool,
    pub(super) trims: bool,
    /// Only for display; no decision depends on it.
    pub(super) sleep: SleepRecord,
}

/// See the module.
pub(super) struct Devices {
    ops: Slab<Op>,
    pub(super) members: Vec<MemberState>,
    /// The budget of writes to the fastest tier.
    pub(super) wear: Wear,
    /// The energy of the members' operations.
    pub(super) meter: Meter,
}

impl Devices {
    pub(super) fn new(trims: bool, wear: Wear, meter: Meter, now: Nanos) -> Devices {
        let blank = MemberState {
            unflushed: false,
            in_flight: 0,
            writing: 0,
            last_used: now,
            asleep: false,
            waking: None,
            missing: false,
            trims,
            sleep: SleepRecord::default(),
        };
        Devices {
            ops: Slab::new(1024),
            members: vec![blank; meter.members()],
            wear,
            meter,
        }
    }
    #[inline]
    pub(super) fn of(&mut self, m: MemberId) -> &mut MemberState {
        &mut self.members[usize::from(m.0)]
    }
    pub(super) fn is_asleep(&self, m: MemberId) -> bool {
        self.members[usize::from(m.0)].asleep
    }
    /// An operation in progress.
    pub(super) fn get(&self, id: OpId) -> Option<&Op> {
        self.ops.get(id.0)
    }
    /// Returns an operation whose end was reported by its device. The operation must be in progress.
    pub(super) fn ended(&mut self, id: OpId) -> Op {
        let op = *self.ops.at(id.0);
        self.members[op.member()].in_flight -= 1;
        op
    }
    /// Removes an operation that is over.
    pub(super) fn remove(&mut self, id: OpId) {
        self.ops.remove(id.0);
    }
    /// Number of operations in progress.
    pub(super) fn in_flight(&self) -> usize {
        self.ops.len()
    }
}

/// The cause of an operation, as far as devices and measurements need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    pub(super) what: What,
    /// Whether a request waits for it.
    pub(super) foreground: bool,
    /// Bytes of the wear budget that were reserved for it.
    pub(super) promised: u32,
    pub(super) meta: MetaSource,
}

impl Cause {
    /// The cause of an operation that belongs neither to a move nor to metadata.
    pub(super) fn plain(what: What) -> Cause {
        Cause {
            what,
            foreground: matches!(what, What::Data { .. } | What::Fill { .. }),
            promised: 0,
            meta: MetaSource::None,
        }
    }
}

impl Globals {
    /// Starts a device operation.
    pub(super) fn start(&mut self, cause: Cause, mut op: DeviceOp) {
        let Cause { what, meta, .. } = cause;
        let i = usize::from(op.member.0);
        let tier = self.space.geo.members[i].tier;
        let alone = self.space.loads.begin(i, cause.foreground);
        let moves_bytes = matches!(op.kind, OpKind::Read | OpKind::Write);
        let sequential = moves_bytes && self.space.loads.issue(i, op.offset, op.len);
        op.id = OpId(self.devices.ops.insert(Op {
            what,
            op,
            issued: self.clock,
            foreground: cause.foreground,
            alone,
            sequential,
            meta,
        }));
        if self.background.has_sleep_mode() && op.kind != OpKind::Standby {
            let m = &self.devices.members[i];
            let (asleep, alone) = (m.asleep, m.in_flight == 0);
            if asleep || (alone && cause.foreground) {
                self.lull_ends(i, asleep);
            }
        }
        let m = &mut self.devices.members[i];
        m.in_flight += 1;
        m.writing += u32::from(matches!(what, What::Data { write: true, .. }));
        if m.asleep && op.kind != OpKind::Standby {
            m.sleep.wakes += 1;
            m.sleep.last_wake = Some((self.clock, what.waker()));
            self.devices.members[i].waking = Some(self.clock);
            self.set_asleep(i, false);
            self.policy_due |= self.background.woke();
            // The disk then stays awake for at least its standby time, whatever woke it.
            if !self.background.has_sleep_mode() {
                self.devices.members[i].last_used = self.clock;
            }
        }
        if matches!(op.kind, OpKind::Write | OpKind::WriteZeroes) && tier == TierId(0) {
            self.devices.wear.wrote(op.len, cause.promised);
        }
        let is_move = matches!(what, What::Move { .. });
        count(
            &mut self.counters.members[i],
            &op,
            is_move,
            op.buf == BufRef::Meta,
        );
        self.out.push(Effect::Start(op));
    }

    /// A member was sent to sleep, or woke.
    pub(super) fn set_asleep(&mut self, member: usize, asleep: bool) {
        let m = &mut self.devices.members[member];
        m.asleep = asleep;
        m.sleep.slept_before = m.sleep.slept(self.clock);
        m.sleep.asleep_since = asleep.then_some(self.clock);
        self.space.loads.sleeps(member, asleep);
    }

    /// An operation ended: notes the time at which a woken member is ready, if the operation waited for that.
    #[inline]
    pub(super) fn note_woken(&mut self, op: &Op) {
        let Some(woken) = self.devices.members[op.member()].waking else {
            return;
        };
        if op.issued < woken || op.op.kind == OpKind::Standby {
            return;
        }
        // While it wakes up, the member's own cache can answer. Operations that need the medium still wait then.
        let (down, up) = self.wake_times(op.member());
        let waited = self.clock.since(op.issued).0 >= up.0 / 2;
        if waited || self.clock >= woken + down + up {
            self.devices.members[op.member()].waking = None;
        }
        if waited {
            self.background.woken(self.clock);
        }
    }

    /// Issues the rest of an operation of which only `n` bytes were transferred.
    pub(super) fn resume(&mut self, id: OpId, op: &Op, n: u32) {
        let mut d = DeviceOp { id, ..op.op };
        d.offset += u64::from(n);
        d.len -= n;
        let mut meta = op.meta;
        match &mut d.buf {
            BufRef::Request { offset, .. } | BufRef::Move { offset, .. } => *offset += n,
            BufRef::Meta => meta.skip(n),
            BufRef::None => {}
        }
        let o = self.devices.ops.at(id.0);
        o.op = d;
        o.meta = meta;
        self.devices.of(d.member).in_flight += 1;
        self.out.push(Effect::Start(d));
    }

    /// An operation ended: reports its duration to [`crate::load`]. Returns the time for which it occupied its device, and its energy in
    /// nanojoules.
    pub(super) fn measure(&mut self, op: &Op) -> (Nanos, u64) {
        let data = matches!(op.what, What::Data { .. } | What::Move { .. })
            && matches!(op.op.kind, OpKind::Read | OpKind::Write);
        let sample = Sample {
            member: op.member(),
            data,
            flush: op.op.kind == OpKind::Flush,
            write: op.op.kind == OpKind::Write,
            len: op.op.len,
            sequential: op.sequential,
            foreground: op.foreground,
            alone: op.alone,
            issued: op.issued,
        };
        let took = self.space.loads.end(self.clock, sample);
        let energy = self.energy_of(op, took);
        self.counters.members[op.member()].energy_nj += energy;
        self.fill_power();
        (took, energy)
    }
}

fn count(c: &mut MemberCounters, op: &DeviceOp, is_move: bool, is_meta: bool) {
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
}
