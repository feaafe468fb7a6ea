//! The life of a discard, and of write-zeroes that may free.
//!
//! Both change only the map: whole extents lose their home, parts lose valid blocks. What was discarded reads as zeros at
//! once; that it stays so after a crash is a record's business, like any other change.

use crate::engine::{Engine, Mutant, Waiter};
use crate::io::Effect;
use crate::units::{ExtentId, Nanos, Slot};
use alloc::vec::Vec;

impl Engine {
    /// Hand out the pieces of a discard (or of write-zeroes that may free).
    pub(in crate::engine) fn hand_out_discard(
        &mut self,
        now: Nanos,
        r: u32,
        out: &mut Vec<Effect>,
    ) {
        let req = *self.reqs.at(r);
        let shift = self.space.geo.extent_shift;
        let mut at = req.start;
        while at < req.end {
            let extent = self.space.geo.extent_at(at);
            let to = req.end.min((u64::from(extent.0) + 1) << shift);
            self.discard_piece(
                now,
                Waiter {
                    req: r,
                    extent,
                    from: at,
                    to,
                    touched: true,
                },
                out,
            );
            at = to;
        }
    }

    pub(in crate::engine) fn discard_piece(
        &mut self,
        now: Nanos,
        w: Waiter,
        out: &mut Vec<Effect>,
    ) {
        let e = w.extent;
        if self.space.map.is_held(e) {
            let queued = self
                .waiting
                .iter()
                .any(|o| o.extent == e && o.req != w.req && self.is_changer(o.req));
            if queued || self.edges.blocks(e, w.req) {
                return self.wait(w);
            }
            if let Some(index) = self.moves.of(e) {
                let m = self.moves.get(index);
                if m.is_committing() {
                    return self.wait(w);
                }
                self.moves.mark_stale(index);
                // What it writes in place must have landed before somebody writes there anew.
                if m.writes_in_place() && !self.broken(Mutant::DiscardUnderClean) {
                    return self.wait(w);
                }
            }
        }
        let Some(slot) = self.space.map.home(e) else {
            return;
        };
        if self.has_writers(e) && !self.broken(Mutant::DiscardUnderWriter) {
            return self.wait(w);
        }
        let geo = &self.space.geo;
        let base = u64::from(e.0) << geo.extent_shift;
        let (from, to) = (
            ((w.from - base) >> geo.block_shift) as u32,
            ((w.to - base) >> geo.block_shift) as u32,
        );
        let whole = (from, to) == (0, geo.blocks_per_extent());
        let changed = whole
            || self.space.map.invalidate(e, from, to)
                | (self.space.map.copy(e).is_some() && self.space.map.copy_forget(e, from, to));
        if whole || self.space.map.is_gone(e) {
            self.unmap(now, e, slot, out);
        } else if changed {
            self.commit.note_home(e, now, self.params.commit_interval);
        }
    }

    fn unmap(&mut self, now: Nanos, e: ExtentId, slot: Slot, out: &mut Vec<Effect>) {
        self.drop_copy(now, e, out);
        self.space.map.unmap(e);
        self.commit.note_home(e, now, self.params.commit_interval);
        self.free_slot(slot, true, out);
        let (policy, mut view, _) = self.view(now, 0);
        policy.on_discarded(&mut view, e, slot.into());
        self.space.map.forget(e);
        self.policy_due = true;
    }
}
