//! Writing of zeros instead of keeping a bitmap, when the volume's memory for bitmaps is used up.
//!
//! A bitmap records which blocks of an extent were written, until all of them were. A volume has memory for a limited number of bitmaps
//! ([`crate::map::ExtentMap::has_bitmap_room`]). When the limit is reached,
//!
//! - the slot of an extent whose first write covers only a part of it is filled with zeros before any of it is exposed. That write, and
//!   every other change of the extent, waits. Then the extent is fully valid, a record says so, and a round flushes the zeros before that
//!   record is written, as for any other data;
//! - a discard of a part of a fully valid extent writes zeros over it.
//!
//! If a fill fails, the extent stays as it was, with a bitmap and without a valid block. The write that waited proceeds and gets the
//! device's result. So only failed fills can exceed the memory limit, and no request fails because of the limit.

use super::{Req, Requests, Waiter};
use crate::engine::devices::{Cause, Op, What};
use crate::engine::parts::Parts;
use crate::engine::relocation::Relocation;
use crate::io::{BufRef, DeviceOp, IoError, OpId, OpKind, QUIET, RequestOp};
use crate::mutants::Mutant;
use crate::units::{ExtentId, Slot};

impl Requests {
    /// Fills `slot` with zeros: it is the new home of `e`, and nothing was written to it yet.
    pub(super) fn fill(p: &mut Parts<'_>, e: ExtentId, slot: Slot) {
        let g = &mut *p.globals;
        let (member, offset) = g.space.geo.locate(slot);
        if g.devices.of(member).missing {
            // The write itself will get the error.
            return;
        }
        if !g.broken(Mutant::WriteDuringFill) {
            g.waiting.edges.fill(e);
            g.space.map.hold(e, true);
        }
        g.space.pins.pin(slot, true);
        g.counters.zero_fills += 1;
        if g.broken(Mutant::ExposeBeforeFill) {
            g.space.map.validate(e, 0, g.space.geo.blocks_per_extent());
            p.durability.note(g, e);
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

    /// A fill of a new home has ended.
    pub(in crate::engine) fn filled(p: &mut Parts<'_>, op: &Op, result: Result<(), IoError>) {
        let What::Fill { ext, slot, .. } = op.what else {
            return;
        };
        let (e, slot) = (ExtentId(ext), Slot(slot));
        Relocation::unpin(p.globals, p.durability, slot, true);
        let g = &mut *p.globals;
        g.devices.members[op.member()].unflushed |= !g.broken(Mutant::ForgetFilled);
        let blocks = g.space.geo.blocks_per_extent();
        // The blocks become valid only now, because a round that starts while the zeros are being written must not expose the slot's former
        // contents.
        let own = result.is_ok() && g.space.map.home(e) == Some(slot);
        if own && g.space.map.validate(e, 0, blocks) {
            p.durability.note(g, e);
        }
        g.waiting.edges.filled(e);
        p.relocation.release_hold(p.globals, e);
        p.globals.waiting.extent_changed(e);
    }

    /// Writes zeros on behalf of a discard: it discards a part of a fully valid extent, and there is no room for a bitmap.
    pub(super) fn zero_instead(&mut self, p: &mut Parts<'_>, w: Waiter) {
        if p.globals.broken(Mutant::DiscardKeepsBytes) {
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
            // Like a discard, it is not an access.
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

    /// Ends request `r`, which was made on behalf of `other`.
    pub(super) fn ended_for(&mut self, p: &mut Parts<'_>, r: u32, other: u32) {
        if let Some(e) = self.list.remove(r).error {
            self.fail(other, e);
        }
        self.piece_done(p, other);
    }
}
