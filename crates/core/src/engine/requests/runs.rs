//! Runs: neighbouring pieces on one device, which become one operation.

use super::replicas::Written;
use super::{Requests, Waiter};
use crate::engine::devices::{Cause, Op, What};
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::engine::relocation::Relocation;
use crate::io::{BufRef, DeviceOp, IoError, OpId, OpKind, RequestOp};
use crate::mutants::Mutant;
use crate::units::{ExtentId, MemberId, Slot};
use alloc::vec::Vec;

/// Neighbouring pieces that are collected for one device operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    member: MemberId,
    device_offset: u64,
    ext: u32,
    count: u16,
    slot: u32,
    start: u64,
    len: u32,
    fua: bool,
}

/// The runs that are being collected: one per replica, because the pieces of a write-through request alternate between the two.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Runs {
    pub(super) home: Option<Run>,
    pub(super) copy: Option<Run>,
}

impl Requests {
    pub(super) fn emit_all(&mut self, g: &mut Globals, r: u32, runs: Runs) {
        self.emit(g, r, runs.copy);
        self.emit(g, r, runs.home);
    }

    pub(super) fn write_piece(
        &mut self,
        p: &mut Parts<'_>,
        w: &Waiter,
        slot: Slot,
        runs: &mut Runs,
    ) {
        let mut fua = false;
        let req = *self.list.at(w.req);
        if req.found {
            // No round is needed only if every record that is needed to find the data is already durable.
            let (from, to) = p.globals.blocks_of(w);
            // After a failed round it is unknown which of two records is the durable one.
            let found = !p.globals.failed
                && p.durability.is_findable(p.globals, w.extent, req.fua)
                && p.globals.space.map.all_valid(w.extent, from, to);
            self.list.at(w.req).needs_round |= !found;
            fua = found && req.fua;
        }
        self.join_run(p.globals, w, slot, (w.from, w.to), fua, &mut runs.home);
    }

    /// Pins `slot`, and adds bytes `from..to` of the volume, which are in this slot, to the run.
    pub(super) fn join_run(
        &mut self,
        g: &mut Globals,
        w: &Waiter,
        slot: Slot,
        (from, to): (u64, u64),
        fua: bool,
        run: &mut Option<Run>,
    ) {
        let (member, slot_offset) = g.space.geo.locate(slot);
        if g.devices.of(member).missing {
            return self.fail(w.req, IoError::Gone);
        }
        let write = self.list.at(w.req).changes_devices();
        if !(write && g.broken(Mutant::SkipPin)) {
            g.space.pins.pin(slot, write);
        }
        let device_offset =
            slot_offset + (from - (u64::from(w.extent.0) << g.space.geo.extent_shift));
        let len = (to - from) as u32;
        if let Some(r) = run
            && r.member == member
            && r.device_offset + u64::from(r.len) == device_offset
            && r.start + u64::from(r.len) == from
            && r.ext + u32::from(r.count) == w.extent.0
            && r.slot + u32::from(r.count) == slot.0
            && r.fua == fua
            && r.count < u16::MAX
        {
            r.len += len;
            r.count += 1;
            return;
        }
        let new = Run {
            member,
            device_offset,
            ext: w.extent.0,
            count: 1,
            slot: slot.0,
            start: from,
            len,
            fua,
        };
        let full = run.replace(new);
        self.emit(g, w.req, full);
    }

    fn emit(&mut self, g: &mut Globals, r: u32, run: Option<Run>) {
        let Some(run) = run else { return };
        let req = self.list.at(r);
        req.left += 1;
        let kind = match req.op {
            RequestOp::WriteZeroes { .. } => OpKind::WriteZeroes,
            RequestOp::Discard => OpKind::Discard,
            _ if req.is_write() => OpKind::Write,
            _ => OpKind::Read,
        };
        let buf = match req.op {
            RequestOp::WriteZeroes { .. } | RequestOp::Discard => BufRef::None,
            _ => BufRef::Request {
                tag: req.tag,
                offset: req.buffer_offset(run.start),
            },
        };
        let write = kind != OpKind::Read;
        let what = What::Data {
            req: r,
            write,
            ext: run.ext,
            count: run.count,
            slot: run.slot,
            start: run.start,
            len: run.len,
            class: g.space.class_of(req.class, ExtentId(run.ext)),
        };
        let op = DeviceOp {
            id: OpId(0),
            member: run.member,
            kind,
            offset: run.device_offset,
            len: run.len,
            buf,
            fua: run.fua && write,
        };
        g.start(Cause::plain(what), op);
    }

    /// A device operation of a request has ended.
    pub(in crate::engine) fn data_done(
        &mut self,
        p: &mut Parts<'_>,
        op: &Op,
        result: Result<(), IoError>,
    ) {
        let What::Data {
            req,
            write,
            ext,
            count,
            slot,
            start,
            len,
            ..
        } = op.what
        else {
            return;
        };
        let discard = op.op.kind == OpKind::Discard;
        let failed = result.is_err() && !discard;
        // What the other place does instead of the device that failed; and whether anything cannot be done.
        let (mut elsewhere, mut lost) = (Vec::new(), false);
        for i in 0..u32::from(count) {
            let (e, s) = (ExtentId(ext + i), Slot(slot + i));
            if !(write && p.globals.broken(Mutant::SkipPin)) {
                Relocation::unpin(p.globals, p.durability, s, write);
            }
            let mut piece = piece_of(p.globals, (req, write), e, (start, len));
            let blocks = p.globals.blocks_of(&piece);
            if failed && write {
                lost |= !self.rescues_write(p.globals, e, s, blocks.0);
            } else if failed {
                if Requests::rescue_read(p, &mut piece, s) {
                    elsewhere.push(piece);
                } else {
                    lost = true;
                }
            }
            if write {
                if !discard {
                    match self.written(p, e, s, blocks, result.is_ok()) {
                        Written::Again => elsewhere.push(piece),
                        Written::Lost => lost = true,
                        Written::Elsewhere | Written::Noted => {}
                    }
                    if self.list.at(req).fua && p.durability.owes(p.globals, e) {
                        self.list.at(req).needs_round = true;
                    }
                }
                // A discard or an unaligned write may have waited for the end of all writes.
                if p.globals.space.map.is_held(e) {
                    p.globals.waiting.extent_changed(e);
                }
            }
        }
        if write {
            let member = &mut p.globals.devices.members[op.member()];
            member.writing -= 1;
            if !(op.op.fua && result.is_ok()) {
                member.unflushed = true;
            }
            p.durability.write_ended(p.globals, op.issued());
            p.durability.written_on(p.globals, op.op.member);
        }
        match result {
            // Discards are only hints: a device that refuses one gets no more of them.
            Err(_) if discard => p.globals.devices.members[op.member()].trims = false,
            Err(e) if lost => self.fail(req, e),
            Ok(()) if lost => self.fail(req, IoError::Io),
            Err(_) | Ok(()) => {}
        }
        for piece in elsewhere {
            self.piece_alone(p, piece);
        }
        self.piece_done(p, req);
    }

    /// Handles the end of a device write for one extent: of `blocks` of `e`, in its slot `s`.
    fn written(
        &mut self,
        p: &mut Parts<'_>,
        e: ExtentId,
        s: Slot,
        blocks: (u32, u32),
        ok: bool,
    ) -> Written {
        if !self.replicas.is_empty() {
            let how = self.replica_written(p, e, s, blocks, ok);
            if how != Written::Elsewhere {
                return how;
            }
        }
        // The blocks become valid only now, because a round that starts while the write is in progress must not expose them.
        let g = &mut *p.globals;
        let ok = ok || g.broken(Mutant::TrustFailedWrite);
        if ok && g.space.map.home(e) == Some(s) && g.space.map.validate(e, blocks.0, blocks.1) {
            p.durability.note(g, e);
        }
        Written::Elsewhere
    }
}

/// The part of an operation on bytes `start..start + len` of the volume that is in `e`, as a piece; a write goes past the copy.
fn piece_of(
    g: &Globals,
    (req, write): (u32, bool),
    e: ExtentId,
    (start, len): (u64, u32),
) -> Waiter {
    let base = u64::from(e.0) << g.space.geo.extent_shift;
    Waiter {
        req,
        extent: e,
        from: start.max(base),
        to: (start + u64::from(len)).min(base + u64::from(g.space.geo.extent_bytes())),
        touched: true,
        past_copy: write,
        past_home: false,
    }
}
