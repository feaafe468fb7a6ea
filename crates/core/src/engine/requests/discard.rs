//! The life of a discard, and of a write-zeroes request that may free space.
//!
//! In a tiering volume both change only the map: whole extents lose their home, and partly discarded extents lose valid blocks. Discarded data
//! reads as zeros at once. A record makes the change durable, like any other change.
//!
//! In a cache volume a discard drops the blocks from the copy and is passed on to the home's device, and nothing is promised about what the
//! blocks contain until they are written again: the map has no place to note it. (Zeros are written there: `mod.rs`.)

use super::runs::Runs;
use super::{Requests, Waiter};
use crate::engine::parts::Parts;
use crate::mutants::Mutant;
use crate::units::{ExtentId, Slot};

impl Requests {
    /// Processes the pieces of a discard (or of a write-zeroes request that may free space).
    pub(super) fn hand_out_discard(&mut self, p: &mut Parts<'_>, r: u32) {
        let req = *self.list.at(r);
        let shift = p.globals.space.geo.extent_shift;
        let mut runs = Runs::default();
        let mut at = req.start;
        while at < req.end {
            let extent = p.globals.space.geo.extent_at(at);
            let to = req.end.min((u64::from(extent.0) + 1) << shift);
            let w = Waiter {
                req: r,
                extent,
                from: at,
                to,
                touched: true,
                past_copy: false,
                past_home: false,
            };
            self.discard_piece(p, w, &mut runs);
            at = to;
        }
        self.emit_all(p.globals, r, runs);
    }

    /// Processes one piece again, which has waited.
    pub(super) fn discard_alone(&mut self, p: &mut Parts<'_>, w: Waiter) {
        let mut runs = Runs::default();
        self.discard_piece(p, w, &mut runs);
        self.emit_all(p.globals, w.req, runs);
    }

    fn discard_piece(&mut self, p: &mut Parts<'_>, w: Waiter, runs: &mut Runs) {
        let e = w.extent;
        if p.globals.space.map.is_held(e) && !may_discard(p, &w) {
            return self.wait(p.globals, w);
        }
        let g = &mut *p.globals;
        let Some(slot) = g.space.map.home(e) else {
            return;
        };
        if g.has_writers(e) && !g.broken(Mutant::DiscardUnderWriter) {
            return self.wait(g, w);
        }
        if p.durability.must_withdraw(g, e) && !g.broken(Mutant::DiscardUnderClaim) {
            return self.wait_durable(g, w);
        }
        let (from, to) = g.blocks_of(&w);
        let whole = (from, to) == (0, g.space.geo.blocks_per_extent());
        if g.space.geo.is_cache() {
            drop_from_copy(p, e, slot, (from, to));
            return self.discard_home(p, &w, slot, runs);
        }
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
            p.durability.note(g, e);
        }
    }
}

impl Requests {
    /// Passes a piece of a discard on to the device of its extent's home, if it takes discards.
    fn discard_home(&mut self, p: &mut Parts<'_>, w: &Waiter, slot: Slot, runs: &mut Runs) {
        let member = p.globals.space.geo.locate(slot).0;
        let m = p.globals.devices.of(member);
        if m.trims && !m.missing {
            self.join_run(p.globals, w, slot, (w.from, w.to), false, &mut runs.home);
        }
    }
}

/// Drops discarded blocks from the copy of an extent of a cache volume, dirty ones too, and the copy if it has no others. `home`: the slot of
/// its home.
fn drop_from_copy(p: &mut Parts<'_>, e: ExtentId, home: Slot, (from, to): (u32, u32)) {
    let whole = (from, to) == (0, p.globals.space.geo.blocks_per_extent());
    if p.globals.space.map.copy(e).is_some() && !p.globals.broken(Mutant::DiscardKeepsCopy) {
        let changed = p.globals.space.map.copy_forget(e, from, to);
        if changed && !p.globals.broken(Mutant::DiscardUnrecorded) {
            p.durability.note(p.globals, e);
        }
        if p.globals.space.map.copy_is_empty(e) {
            p.relocation.drop_copy(p.globals, p.durability, e);
        }
    }
    if whole {
        let (policy, mut view, _) = p.relocation.ask(p.globals, p.durability, 0);
        policy.on_discarded(&mut view, e, home.into());
        p.globals.space.map.forget(e);
        p.globals.policy_due = true;
    }
}

/// Whether this piece of a discard may proceed although its extent is in use.
fn may_discard(p: &mut Parts<'_>, w: &Waiter) -> bool {
    let waiting = &p.globals.waiting;
    if waiting.has_other_changer(w.extent, w.req) || waiting.edges.blocks(w.extent, w.req) {
        return false;
    }
    let Some(index) = p.relocation.of(w.extent) else {
        return true;
    };
    let m = p.relocation.get(index);
    if m.is_committing() {
        return false;
    }
    p.relocation.mark_stale(index);
    // The move's writes to the home or the copy must have ended before a new write goes to the same place.
    !m.writes_in_place() || p.globals.broken(Mutant::DiscardUnderClean)
}

fn unmap(p: &mut Parts<'_>, e: ExtentId, slot: Slot) {
    p.relocation.drop_copy(p.globals, p.durability, e);
    p.globals.space.map.unmap(e);
    p.durability.note(p.globals, e);
    p.durability.free_slot(p.globals, slot, true);
    let (policy, mut view, _) = p.relocation.ask(p.globals, p.durability, 0);
    policy.on_discarded(&mut view, e, slot.into());
    p.globals.space.map.forget(e);
    p.globals.policy_due = true;
}
