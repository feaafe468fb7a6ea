//! The life of a discard, and of a write-zeroes request that may free space.
//!
//! Both change only the map: whole extents lose their home, and partly discarded extents lose valid blocks. Discarded data reads as zeros
//! at once. A record makes the change durable, like any other change.

use super::{Requests, Waiter};
use crate::engine::globals::Parts;
use crate::mutants::Mutant;
use crate::units::{ExtentId, Slot};

impl Requests {
    /// Processes the pieces of a discard (or of a write-zeroes request that may free space).
    pub(super) fn hand_out_discard(&mut self, p: &mut Parts<'_>, r: u32) {
        let req = *self.list.at(r);
        let shift = p.g.space.geo.extent_shift;
        let mut at = req.start;
        while at < req.end {
            let extent = p.g.space.geo.extent_at(at);
            let to = req.end.min((u64::from(extent.0) + 1) << shift);
            let w = Waiter {
                req: r,
                extent,
                from: at,
                to,
                touched: true,
            };
            self.discard_piece(p, w);
            at = to;
        }
    }

    pub(super) fn discard_piece(&mut self, p: &mut Parts<'_>, w: Waiter) {
        let e = w.extent;
        if p.g.space.map.is_held(e) && !may_discard(p, &w) {
            return self.wait(p.g, w);
        }
        let g = &mut *p.g;
        let Some(slot) = g.space.map.home(e) else {
            return;
        };
        if g.has_writers(e) && !g.broken(Mutant::DiscardUnderWriter) {
            return self.wait(g, w);
        }
        let (from, to) = g.blocks_of(&w);
        let whole = (from, to) == (0, g.space.geo.blocks_per_extent());
        if !whole && !g.space.map.is_partial(e) && !g.space.map.has_bitmap_room() {
            return self.zero_instead(p, w);
        }
        let keeps = g.broken(Mutant::DiscardKeepsCopy);
        let map = &mut g.space.map;
        let changed = whole
            || map.invalidate(e, from, to)
                | (map.copy(e).is_some() && !keeps && map.copy_forget(e, from, to));
        if whole || map.is_gone(e) {
            unmap(p, e, slot);
        } else if changed {
            p.d.note_home(g, e);
        }
    }
}

/// Whether this piece of a discard may proceed although its extent is in use.
fn may_discard(p: &mut Parts<'_>, w: &Waiter) -> bool {
    let waiting = &p.g.waiting;
    if waiting.has_other_changer(w.extent, w.req) || waiting.edges.blocks(w.extent, w.req) {
        return false;
    }
    let Some(index) = p.r.of(w.extent) else {
        return true;
    };
    let m = p.r.get(index);
    if m.is_committing() {
        return false;
    }
    p.r.mark_stale(index);
    // The move's writes to the home or the copy must have ended before a new write goes to the same place.
    !m.writes_in_place() || p.g.broken(Mutant::DiscardUnderClean)
}

fn unmap(p: &mut Parts<'_>, e: ExtentId, slot: Slot) {
    p.r.drop_copy(p.g, p.d, e);
    p.g.space.map.unmap(e);
    p.d.note_home(p.g, e);
    p.d.free_slot(p.g, slot, true);
    let (policy, mut view, _) = p.r.ask(p.g, p.d, 0);
    policy.on_discarded(&mut view, e, slot.into());
    p.g.space.map.forget(e);
    p.g.policy_due = true;
}
