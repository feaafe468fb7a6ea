//! Joining: moves that start in one event and are adjacent on a device become one device operation.
//!
//! Parts of moves are collected while an event is handled, and issued at its end in the order of addresses. Two parts become one operation
//! if the second begins where the first ends, on the device and in the move buffers, which are one range of memory. For this reason, moves
//! that start one after another get consecutive buffers. So a read of many extents that are not in the cache causes one read of the slow
//! device, and the fetches write the same data.
//!
//! Rules: a joined operation that fails or is short is repeated extent by extent, and only the faulty extent gets the error. A write that
//! arrives in the meantime cancels only the move of its own extent. A joined operation has at most `join_bytes` bytes. It also takes at
//! most about `join_s`, estimated from the device's last joined operations, so that a later request does not wait longer than that.

use super::Relocation;
use crate::engine::devices::{Cause, Op, What};
use crate::engine::durability::Durability;
use crate::engine::globals::Globals;
use crate::io::{BufRef, DeviceOp, IoError, OpId, OpKind};
use crate::mutants::Mutant;
use crate::units::{MemberId, Nanos, Slot, TierId};
use alloc::vec;
use alloc::vec::Vec;

/// The time limit never makes joined operations shorter than this, because the transfer takes no longer than the seek of a disk.
const LEAST_BYTES: u64 = 32 << 10;

/// One move's part of a device operation that will be issued.
#[derive(Clone, Copy, Debug)]
struct Part {
    index: u16,
    kind: OpKind,
    member: MemberId,
    /// First byte on the device.
    offset: u64,
    len: u32,
    /// First byte in the move's buffer.
    at: u32,
    /// Whether it is background work, whose end does not count as use of the member ([`Relocation::is_background`]).
    background: bool,
}

/// The move that was started last in this event.
#[derive(Clone, Copy, Debug)]
struct Tail {
    index: u16,
    up: bool,
    member: MemberId,
    /// The offset at which it ends on the slower of its two devices, and the number of bytes of the joined operation up to there.
    end: u64,
    bytes: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Joins {
    parts: Vec<Part>,
    tail: Option<Tail>,
    /// Number of events so far that started moves. Moves with the same number were started by the same event.
    batch: u32,
    /// For each member, the largest size of a joined operation in bytes, as learned from the durations of earlier ones.
    learned: Vec<u64>,
}

impl Joins {
    pub(super) fn new(members: usize) -> Joins {
        Joins {
            parts: Vec::with_capacity(128),
            tail: None,
            batch: 0,
            learned: vec![u64::MAX; members],
        }
    }
    /// The number of the batch to which moves that start now belong.
    pub(super) fn batch(&self) -> u32 {
        self.batch
    }
    /// The buffer that a move should use so that it can be joined with the previous one.
    pub(super) fn next_buffer(&self) -> Option<u16> {
        self.tail.map(|t| t.index + 1)
    }
}

impl Relocation {
    /// Whether a promotion from `slot` that starts now would begin where the previous one of this event ends, so that both are one
    /// operation on the slower device. Then the promotion costs that device no additional operation, and the policy's limit of moves does
    /// not count it.
    pub(super) fn would_join(&self, g: &Globals, slot: Slot, up: bool) -> bool {
        let Some(t) = self.joins.tail.filter(|t| t.up && up) else {
            return false;
        };
        let bytes = t.bytes + u64::from(g.space.geo.extent_bytes());
        g.space.geo.locate(slot) == (t.member, t.end)
            && bytes <= self.join_cap(g, t.member)
            && self.moves.is_free(t.index + 1)
    }

    /// Notes that a move in buffer `index` starts. `slot` is the one on the slower of its two devices.
    pub(super) fn note_start(&mut self, g: &Globals, index: u16, slot: Slot, up: bool) {
        let (member, offset) = g.space.geo.locate(slot);
        let extent = u64::from(g.space.geo.extent_bytes());
        let before = self.joins.tail.filter(|t| {
            t.up == up && (t.member, t.end) == (member, offset) && t.index + 1 == index
        });
        let bytes = before.map_or(0, |t| t.bytes) + extent;
        let bytes = if bytes > self.join_cap(g, member) {
            extent
        } else {
            bytes
        };
        self.joins.tail = Some(Tail {
            index,
            up,
            member,
            end: offset + extent,
            bytes,
        });
    }

    /// The largest size of a joined operation on a member, in bytes.
    fn join_cap(&self, g: &Globals, m: MemberId) -> u64 {
        let bytes = g.params.join_bytes;
        if g.params.join_time.0 == 0 {
            return bytes;
        }
        self.joins.learned[usize::from(m.0)].min(bytes)
    }

    /// Collects a part, which is issued at the end of this event.
    pub(super) fn want_part(
        &mut self,
        g: &Globals,
        index: u16,
        kind: OpKind,
        (member, offset): (MemberId, u64),
        (at, len): (u32, u32),
    ) {
        let background = g.background.has_sleep_mode() && self.moves.is_background(index);
        self.joins.parts.push(Part {
            index,
            kind,
            member,
            offset,
            len,
            at,
            background,
        });
    }

    /// Issues the collected parts: by member, reads first, in the order of addresses.
    pub(in crate::engine) fn issue_parts(&mut self, g: &mut Globals) {
        self.joins.tail = None;
        if self.joins.parts.is_empty() {
            return;
        }
        self.joins.batch = self.joins.batch.wrapping_add(1);
        let mut parts = core::mem::take(&mut self.joins.parts);
        parts.sort_unstable_by_key(|p| (p.member.0, p.kind == OpKind::Write, p.offset, p.index));
        let extent = g.space.geo.extent_bytes();
        let mut run: Option<(Part, u16, u32)> = None;
        for &p in &parts {
            if let Some((first, count, len)) = &mut run
                && first.follows(&p, *count, *len, extent)
                && u64::from(*len + p.len) <= self.join_cap(g, p.member)
            {
                (*count, *len) = (*count + 1, *len + p.len);
                continue;
            }
            let full = run.replace((p, 1, p.len));
            self.issue_run(g, full);
        }
        self.issue_run(g, run);
        parts.clear();
        self.joins.parts = parts;
    }

    fn issue_run(&mut self, g: &mut Globals, run: Option<(Part, u16, u32)>) {
        let Some((p, count, len)) = run else { return };
        let op = DeviceOp {
            id: OpId(0),
            member: p.member,
            kind: p.kind,
            offset: p.offset,
            len,
            buf: BufRef::Move {
                index: p.index,
                offset: p.at,
            },
            fua: false,
        };
        g.counters.joined += u64::from(count - 1);
        self.start_op(g, p.index, count, op);
    }

    fn start_op(&mut self, g: &mut Globals, index: u16, count: u16, op: DeviceOp) {
        let tier = g.space.geo.members[usize::from(op.member.0)].tier;
        let pays = op.kind == OpKind::Write && tier == TierId(0);
        let cause = Cause {
            // The request is answered from the buffer: it waits for the read, and not for the copy.
            foreground: op.kind == OpKind::Read && self.moves.is_foreground(index),
            promised: if pays {
                self.moves.pay(index, count, op.len)
            } else {
                0
            },
            ..Cause::plain(What::Move { index, count })
        };
        g.start(cause, op);
    }

    /// A joined operation failed or was short: the part of each extent is issued again by itself.
    pub(in crate::engine) fn repeat_apart(&mut self, g: &mut Globals, d: &mut Durability, op: &Op) {
        let (What::Move { index, count }, BufRef::Move { offset: mut at, .. }) =
            (op.what, op.op.buf)
        else {
            return;
        };
        g.counters.joins_repeated += 1;
        let extent = g.space.geo.extent_bytes();
        let mut done = 0;
        for index in index..index + count {
            let len = (extent - at).min(op.op.len - done);
            let part = DeviceOp {
                offset: op.op.offset + u64::from(done),
                len,
                buf: BufRef::Move { index, offset: at },
                ..op.op
            };
            if done == 0 || !g.broken(Mutant::RepeatOnlyFirst) {
                self.start_op(g, index, 1, part);
            } else {
                self.move_step(g, d, index, Ok(()), true);
            }
            (at, done) = (0, done + len);
        }
    }

    /// An operation of moves ended: handles the moves one by one.
    pub(in crate::engine) fn moves_done(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        op: &Op,
        result: Result<(), IoError>,
    ) {
        let What::Move { index, count } = op.what else {
            return;
        };
        let joined = count > 1;
        if op.op.kind == OpKind::Write && !(joined && g.broken(Mutant::JoinForgetsFlush)) {
            g.devices.members[op.member()].unflushed = true;
        }
        for i in index..index + count {
            self.move_step(g, d, i, result, joined);
        }
    }

    /// Learns from the duration of a joined operation how large such operations may be.
    pub(in crate::engine) fn learn_join(&mut self, g: &Globals, op: &Op, took: Nanos) {
        if !matches!(op.what, What::Move { count: 2.., .. }) || took.0 == 0 {
            return;
        }
        let limit = u128::from(g.params.join_time.0);
        let fits = u128::from(op.op.len) * limit / u128::from(took.0);
        let fits = (fits.min(u128::from(u32::MAX)) as u64).max(LEAST_BYTES);
        // A moving average; the first value is taken as it is.
        let known = &mut self.joins.learned[op.member()];
        *known = if *known == u64::MAX {
            fits
        } else {
            (3 * *known + fits) / 4
        };
    }
}

impl Part {
    /// Whether `next` begins where a run of `count` parts and `len` bytes that starts with this part ends.
    fn follows(&self, next: &Part, count: u16, len: u32, extent: u32) -> bool {
        let whole = self.at + len == u32::from(count) * extent;
        whole
            && next.at == 0
            && next.index == self.index + count
            && next.offset == self.offset + u64::from(len)
            && (next.member, next.kind, next.background)
                == (self.member, self.kind, self.background)
    }
}
