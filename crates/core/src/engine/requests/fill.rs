//! Zeros instead of a bitmap, where the volume's room for bitmaps is used up.
//!
//! Which blocks of an extent were written is known by a bitmap for as long as not all of them were, and a volume has memory for so
//! many bitmaps ([`crate::map::ExtentMap::has_bitmap_room`]). Where that is used up,
//!
//! - the slot of an extent whose first write covers a part of it is filled with zeros before anything of it is exposed. The write, and
//!   whoever else wants to change the extent, waits. Then the extent is whole, a record says so, and a round flushes the zeros
//!   before that record is written, like any other data;
//! - a discard of a part of an extent that is whole writes zeros over it.
//!
//! A fill that fails leaves the extent as it was, without a valid block and with its bitmap: the write that waited goes on and is told
//! what the device says to it. So the bound on memory is exceeded by failed fills only, and no request fails because of it.

use super::{Req, Requests, Waiter};
use crate::engine::devices::{Cause, Op, What};
use crate::engine::ground::Parts;
use crate::engine::mutants::Mutant;
use crate::engine::relocation::Relocation;
use crate::io::{BufRef, DeviceOp, IoError, OpId, OpKind, QUIET, RequestOp};
use crate::units::{ExtentId, Slot};

/// In the place of a request, in the list of locked extents: a fill has this one.
const FILLER: u32 = u32::MAX;

impl Requests {
    /// Fill the new home `slot` of `e`, of which nothing was written yet, with zeros.
    pub(super) fn fill(p: &mut Parts<'_>, e: ExtentId, slot: Slot) {
        let g = &mut *p.g;
        let (member, offset) = g.space.geo.locate(slot);
        if g.devices.of(member).missing {
            // The write itself will be told.
            return;
        }
        if !g.broken(Mutant::WriteDuringFill) {
            g.waiting.edges.lock(e, FILLER);
            g.space.map.hold(e, true);
        }
        g.space.pins.pin(slot, true);
        g.counters.zero_fills += 1;
        if g.broken(Mutant::ExposeBeforeFill) {
            g.space.map.validate(e, 0, g.space.geo.blocks_per_extent());
            p.d.note_home(g, e);
        }
        let op = DeviceOp {
            id: OpId(0),
            member,
            kind: OpKind::WriteZeroes,
            offset,
            len: g.space.geo.extent_bytes(),
            buf: BufRef::None,
            fua: false,
        };
        let what = What::Fill {
            ext: e.0,
            slot: slot.0,
            start: g.byte_of(e, 0),
            len: op.len,
        };
        g.start(Cause::plain(what), op);
    }

    /// Such a fill ended.
    pub(in crate::engine) fn filled(p: &mut Parts<'_>, op: &Op, result: Result<(), IoError>) {
        let What::Fill { ext, slot, .. } = op.what else {
            return;
        };
        let (e, slot) = (ExtentId(ext), Slot(slot));
        Relocation::unpin(p.g, p.d, slot, true);
        let g = &mut *p.g;
        g.devices.members[op.member()].unflushed |= !g.broken(Mutant::ForgetFilled);
        let blocks = g.space.geo.blocks_per_extent();
        // Only now: a round that starts while the zeros are on their way must not expose what was in the slot before.
        let own = result.is_ok() && g.space.map.home(e) == Some(slot);
        if own && g.space.map.validate(e, 0, blocks) {
            p.d.note_home(g, e);
        }
        g.waiting.edges.unlock_one(e, FILLER);
        p.r.release_hold(p.g, e);
        p.g.waiting.try_queue();
    }

    /// Bytes of an extent that is whole are discarded, and there is no room for a bitmap: they are written as zeros, on account of the
    /// discard.
    pub(super) fn zero_instead(&mut self, p: &mut Parts<'_>, w: Waiter) {
        if p.g.broken(Mutant::DiscardKeepsBytes) {
            return;
        }
        self.list.at(w.req).left += 1;
        let by = *self.list.at(w.req);
        let zeros = self.list.insert(Req {
            op: RequestOp::WriteZeroes { keep: true },
            start: w.from,
            end: w.to,
            bytes: (w.to - w.from) as u32,
            fua: false,
            // It is no access, as little as a discard is.
            class: by.class | QUIET,
            left: 1,
            error: None,
            needs_round: false,
            on_behalf: Some(w.req),
            ..by
        });
        self.hand_out(p, zeros, w.from, w.to);
        self.piece_done(p, zeros);
    }

    /// Everything of a request that was made on behalf of `other` has ended.
    pub(super) fn ended_for(&mut self, p: &mut Parts<'_>, r: u32, other: u32) {
        if let Some(e) = self.list.remove(r).error {
            self.fail(other, e);
        }
        self.piece_done(p, other);
    }
}
