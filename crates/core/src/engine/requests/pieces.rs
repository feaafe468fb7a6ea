//! The life of a read and of a write.
//!
//! A request is split at extent borders. Each piece is looked up in the map, is shown to the policy, passes the gate if its extent is in
//! use by a move or a waiting discard, and joins a *run*: neighbouring pieces on one device become one operation.

use super::gate::{Gate, gate};
use super::runs::Runs;
use super::{Edge, Req, Requests, Waiter};
use crate::engine::SCAN_BUDGET;
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::io::{IoError, QUIET, RequestOp};
use crate::mutants::Mutant;
use crate::policy::{Access, Place};
use crate::stats::CLASSES;
use crate::units::{ExtentId, Slot, TierId};

impl Requests {
    /// Processes the pieces of bytes `from..to` of a read or write.
    pub(super) fn hand_out(&mut self, p: &mut Parts<'_>, r: u32, from: u64, to: u64) {
        let shift = p.globals.space.geo.extent_shift;
        let mut runs = Runs::default();
        let mut at = from;
        while at < to {
            let extent = p.globals.space.geo.extent_at(at);
            let end = to.min((u64::from(extent.0) + 1) << shift);
            let w = Waiter {
                req: r,
                extent,
                from: at,
                to: end,
                touched: false,
                past_copy: false,
                past_home: false,
            };
            self.piece(p, w, &mut runs);
            at = end;
        }
        self.emit_all(p.globals, r, runs);
    }

    /// Processes one piece, which is within one extent.
    fn piece(&mut self, p: &mut Parts<'_>, mut w: Waiter, runs: &mut Runs) {
        let req = *self.list.at(w.req);
        let write = req.is_write();
        let e = w.extent;
        let before = p.globals.space.map.home(e);
        let mut home = before;
        if home.is_none() && (write || p.globals.params.map_on_read) {
            if p.globals.space.map.is_held(e) && gate(p, &req, &w) == Gate::Wait {
                return self.wait(p.globals, w);
            }
            let fill = write && wants_fill(p.globals, &w);
            home = self.find_home(p, &req, w);
            let Some(slot) = home else {
                return;
            };
            if fill {
                Requests::fill(p, e, slot);
            }
        }
        if home.is_none() {
            p.globals.counters.unmapped_reads += 1;
        } else if !w.touched && !req.reading_edges && req.class & QUIET == 0 {
            w.touched = true;
            touch(p, &req, e, before);
        }
        // A write that the copy's device has failed keeps its turn. It waits for moves only.
        if p.globals.space.map.is_held(e) && !w.past_copy {
            match gate(p, &req, &w) {
                Gate::Go => {}
                Gate::Wait => return self.wait(p.globals, w),
                Gate::FromMove(index) => return self.read_from_move(p.globals, &req, &w, index),
            }
        }
        let Some(slot) = home else {
            return self.read_nothing(p.globals, &req, &w, (w.from, w.to));
        };
        if write && cuts_lost(p.globals, &req, &w) {
            return self.fail(w.req, IoError::Io);
        }
        if write && !w.past_copy && p.durability.must_withdraw(p.globals, e) {
            return self.wait_durable(p.globals, w);
        }
        match p.globals.space.map.copy(e) {
            Some(copy) if write => self.write_copied(p, &w, (slot, copy), runs),
            Some(copy) => self.read_copied(p.globals, &req, &w, (slot, copy), runs),
            None if write => self.write_piece(p, &w, slot, runs),
            None => self.read_piece(p.globals, &req, &w, slot, runs),
        }
    }

    /// Finds a first home for the extent of a piece. If this returns none, the piece waits for a slot, or its request has an error.
    fn find_home(&mut self, p: &mut Parts<'_>, req: &Req, w: Waiter) -> Option<Slot> {
        make_room(p, req, w.extent);
        let write = req.is_write();
        let mut placed = place(p, w.extent, write);
        let wanted = p.globals.waiting.starving.len() as u32 + 1;
        if placed.is_none() && p.relocation.reclaim(p.globals, p.durability, wanted) {
            placed = place(p, w.extent, write);
        }
        if placed.is_some() {
            return placed;
        }
        let g = &mut *p.globals;
        if g.failed {
            // After a failed flush no slot is freed any more.
            self.fail(w.req, IoError::Io);
        } else if p.durability.frees_nothing()
            && p.relocation.active() == 0
            && g.space.map.copied() == 0
        {
            self.fail(w.req, IoError::NoSpace);
        } else {
            g.counters.waited += 1;
            self.list.at(w.req).left += 1;
            g.waiting.starving.push_back(w);
        }
        None
    }

    /// Queues a piece until something changes.
    pub(super) fn wait(&mut self, g: &mut Globals, w: Waiter) {
        g.counters.waited += 1;
        let req = self.list.at(w.req);
        req.left += 1;
        let changes = req.op != RequestOp::Read;
        g.space.map.hold(w.extent, true);
        g.waiting.push(w, changes);
    }

    /// Queues a piece until a record is durable.
    pub(super) fn wait_durable(&mut self, g: &mut Globals, w: Waiter) {
        if g.failed {
            return self.fail(w.req, IoError::Io);
        }
        self.wait(g, w);
    }

    /// Tries the waiting pieces again for which something may have changed, in order of arrival.
    pub(in crate::engine) fn retry_waiting(&mut self, p: &mut Parts<'_>) {
        let trying = p.globals.waiting.take_due();
        p.globals.steps += trying.len() as u64;
        for &(_, w) in &trying {
            let req = self.list.at(w.req);
            if still_waits(p, req, &w) {
                // A piece that was tried before this one may have ended a move, which cleared the mark on the extent.
                p.globals.space.map.hold(w.extent, true);
                p.globals.waiting.push(w, req.op != RequestOp::Read);
                continue;
            }
            p.relocation.release_hold(p.globals, w.extent);
            let req = self.list.at(w.req);
            match req.op {
                RequestOp::Discard | RequestOp::WriteZeroes { keep: false } => {
                    self.discard_alone(p, w);
                }
                RequestOp::Write if req.edges == Edge::Queued => {
                    self.retry_unaligned_write(p, w);
                }
                _ => self.piece_alone(p, w),
            }
            self.piece_done(p, w.req);
        }
        p.globals.waiting.tried(trying);
    }

    /// Tries the pieces again that wait for a slot, in order of arrival, until one must wait again: the others would find none either.
    pub(in crate::engine) fn retry_starving(&mut self, p: &mut Parts<'_>) {
        p.globals.waiting.trying_starving();
        while let Some(w) = p.globals.waiting.starving.pop_front() {
            p.globals.steps += 1;
            let others = p.globals.waiting.starving.len();
            self.piece_alone(p, w);
            self.piece_done(p, w.req);
            if p.globals.waiting.starving.len() > others {
                p.globals.waiting.starving.rotate_right(1);
                break;
            }
        }
    }

    pub(super) fn piece_alone(&mut self, p: &mut Parts<'_>, w: Waiter) {
        let mut runs = Runs::default();
        self.piece(p, w, &mut runs);
        self.emit_all(p.globals, w.req, runs);
    }
}

/// Whether a piece from the queue would only wait again, without any other effect. This is so if the gate still says "wait" and the policy
/// has already seen the access. (Discards and unaligned writes are not shown to the policy before they wait, so they are always tried.)
fn still_waits(p: &mut Parts<'_>, req: &Req, w: &Waiter) -> bool {
    let passes_gate = match req.op {
        RequestOp::Read | RequestOp::Write | RequestOp::WriteZeroes { keep: true } => {
            w.touched && !w.past_copy
        }
        _ => false,
    };
    passes_gate && p.globals.space.map.home(w.extent).is_some() && gate(p, req, w) == Gate::Wait
}

/// Whether the slot must be filled with zeros because the extent's first write is partial and there is no room for a bitmap.
fn wants_fill(g: &Globals, w: &Waiter) -> bool {
    !g.space.map.has_bitmap_room()
        && !g.params.map_on_read
        && w.to - w.from < u64::from(g.space.geo.extent_bytes())
}

/// Lets the policy make room for a first home. The moves that it starts end later, and this extent does not wait for them.
fn make_room(p: &mut Parts<'_>, req: &Req, extent: ExtentId) {
    let access = access(p.globals, req, extent, None, None);
    let (policy, mut view, wanted) = p.relocation.ask(p.globals, p.durability, SCAN_BUDGET);
    policy.make_room(&mut view, &access, wanted);
    if !wanted.is_empty() {
        p.relocation.try_proposals(p.globals, p.durability);
    }
}

/// Gives an extent its first home for a read or a `write`; `None`: no slot is free.
fn place(p: &mut Parts<'_>, e: ExtentId, write: bool) -> Option<Slot> {
    let (policy, mut view, _) = p.relocation.ask(p.globals, p.durability, 0);
    let place = policy.first_touch(&mut view, e);
    let g = &mut *p.globals;
    if let Place::At(position) = place {
        // The policy wants exactly this slot (for example `linear`), and it will become free. So the extent waits for it.
        if p.durability.frees(position.slot()) {
            return None;
        }
    }
    let slot = g.space.take_home(e, place)?;
    let partial = !g.broken(Mutant::ForgetZeroFill) && !g.params.map_on_read;
    g.space.map.map(e, slot, partial);
    // Data that is read before it is written was there, and recorded, before the first request (in the lab).
    if !partial && write {
        p.durability.note(g, e);
    }
    g.counters.first_touches += 1;
    g.counters.placed_fast += u64::from(g.space.geo.tier_of(slot) == TierId(0));
    g.check_place(slot, false);
    let (policy, mut view, _) = p.relocation.ask(g, p.durability, 0);
    policy.on_placed(&mut view, e, slot.into());
    Some(slot)
}

/// Shows an access to the policy, and starts the moves that it proposes before the piece proceeds. So a read that triggers a promotion is
/// served from the move's buffer: one disk access in place of two (GreenDM 6.1.3, "serving directly from RAM").
fn touch(p: &mut Parts<'_>, req: &Req, extent: ExtentId, home: Option<Slot>) {
    let g = &mut *p.globals;
    let access = access(g, req, extent, home, g.space.map.copy(extent));
    let tier = access.served().map(|s| g.space.geo.tier_of(s.slot()));
    let c = &mut g.counters;
    c.accesses += 1;
    if let Some(t) = tier {
        c.tier_hits[usize::from(t.0)] += 1;
    }
    if g.params.learn_classes && req.class != 0 {
        g.learned.set(extent, req.class);
    }
    let class = &mut c.classes[usize::from(access.class) % CLASSES];
    class.accesses += 1;
    class.fast_hits += u64::from(tier == Some(TierId(0)));
    let told = Access {
        copy: access
            .copy
            .filter(|s| g.background.is_known_to_policy(&g.space.geo, s.slot())),
        ..access
    };
    g.policy_due = true;
    let (policy, mut view, wanted) = p.relocation.ask(g, p.durability, SCAN_BUDGET);
    policy.on_access(&mut view, &told, wanted);
    if !wanted.is_empty() {
        // An access that is served at the home wakes its disk, whatever the policy proposes.
        g.set_waking(home.filter(|_| access.copy.is_none()));
        p.relocation.try_proposals(g, p.durability);
        g.set_waking(None);
    }
}

/// The description of a request's access to an extent for the policy.
#[inline]
pub(super) fn access(
    g: &Globals,
    req: &Req,
    extent: ExtentId,
    home: Option<Slot>,
    copy: Option<Slot>,
) -> Access {
    Access {
        now: g.clock,
        extent,
        home: home.map(Slot::into),
        copy: copy.map(Slot::into),
        write: req.is_write(),
        class: g.space.class_of(req.class, extent),
        request_bytes: req.bytes,
        request_offset: req.start,
        first: g.space.geo.extent_at(req.start) == extent,
    }
}

/// Whether a request writes a part of a granule that was lost with flash.
fn cuts_lost(g: &Globals, req: &Req, w: &Waiter) -> bool {
    let ((a, z), shift) = (g.blocks_of(w), g.space.geo.block_shift);
    let all = req.start >> shift..req.end >> shift;
    g.space.lost.cuts((w.extent, a, z), &all) && !g.broken(Mutant::PartOfGranule)
}
