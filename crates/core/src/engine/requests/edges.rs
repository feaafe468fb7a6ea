//! Unaligned writes: writes that do not start and end at borders of logical blocks.
//!
//! The edge blocks are read into the request's aligned buffer, the payload is overlaid ([`Effect::Patch`]), and whole blocks are written.
//! Between reading and writing, no other request may change those blocks; otherwise that change would be undone. So the request waits for
//! writes in progress on its extents and then locks these extents, and later writers wait for it. It locks all of its extents in one step.
//! If it locked only those of its edges, two overlapping requests could each hold a lock that the other one needs (a deadlock that a test
//! with concurrent writers found).

use super::{Req, Requests};
use crate::engine::parts::Parts;
use crate::engine::waiting::Waiter;
use crate::io::Effect;
use crate::mutants::Mutant;
use crate::units::ExtentId;

/// The state of an unaligned write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Edge {
    /// It is no unaligned write.
    #[default]
    None,
    /// It waits for its locks.
    Queued,
    /// It has locked its extents.
    Locked,
}

impl Requests {
    pub(super) fn start_unaligned_write(&mut self, p: &mut Parts<'_>, r: u32) {
        p.globals.counters.edge_writes += 1;
        let req = self.list.at(r);
        req.reading_edges = true;
        req.edges = Edge::Queued;
        let w = Waiter {
            req: r,
            extent: p.globals.space.geo.extent_at(req.start),
            from: req.start,
            to: req.end,
            touched: false,
            past_copy: false,
            past_home: false,
        };
        self.retry_unaligned_write(p, w);
        self.piece_done(p, r);
    }

    /// The offsets of the first and the last block, each only if the write covers it in part.
    fn edge_blocks(&mut self, p: &Parts<'_>, r: u32) -> [Option<u64>; 2] {
        let req = *self.list.at(r);
        let b = u64::from(p.globals.space.geo.block_bytes());
        let offset = req.offset();
        let end = offset + u64::from(req.bytes);
        let head = (offset != req.start || end < req.start + b).then_some(req.start);
        // A request within one block reads this block only once.
        let tail = (end != req.end && req.end - b != req.start).then_some(req.end - b);
        [head, tail]
    }

    /// Locks the extents and reads the edge blocks, or waits.
    pub(super) fn retry_unaligned_write(&mut self, p: &mut Parts<'_>, w: Waiter) {
        let r = w.req;
        let edges = self.edge_blocks(p, r);
        let (start, end) = (self.list.at(r).start, self.list.at(r).end);
        let geo = &p.globals.space.geo;
        let extents = geo.extent_at(start).0..=geo.extent_at(end - 1).0;
        for extent in extents.clone().map(ExtentId) {
            if !may_lock(p, extent, r) && !p.globals.broken(Mutant::UnserialisedEdges) {
                return self.wait(p.globals, Waiter { extent, ..w });
            }
        }
        self.list.at(r).edges = Edge::Locked;
        let block = u64::from(p.globals.space.geo.block_bytes());
        for e in extents.map(ExtentId) {
            if let Some(index) = p.relocation.of(e) {
                p.relocation.mark_stale(index);
            }
            if !p.globals.waiting.edges.locked_by(e, r) {
                p.globals.waiting.edges.lock(e, r);
                p.globals.space.map.hold(e, true);
            }
        }
        for at in edges.into_iter().flatten() {
            self.hand_out(p, r, at, at + block);
        }
    }

    /// Overlays the payload and writes, because all edge blocks are in the buffer.
    pub(super) fn edges_read(&mut self, p: &mut Parts<'_>, r: u32) {
        let req = self.list.at(r);
        req.reading_edges = false;
        if let Some(e) = req.error {
            let req = *req;
            drop_edges(p, r, &req);
            let latency = self.reply(p.globals, r, Err(e));
            return p.relocation.note_latency(p.globals, latency);
        }
        req.left = 1;
        let (tag, start, end) = (req.tag, req.start, req.end);
        p.globals.out.push(Effect::Patch { tag });
        self.hand_out(p, r, start, end);
        self.piece_done(p, r);
    }
}

fn may_lock(p: &Parts<'_>, e: ExtentId, r: u32) -> bool {
    let waiting = &p.globals.waiting;
    if waiting.edges.blocks(e, r) || waiting.has_other(e, r) {
        return false;
    }
    if let Some(index) = p.relocation.of(e) {
        let m = p.relocation.get(index);
        if m.writes_in_place() || (!m.stale && (m.is_promotion() || m.is_committing())) {
            return false;
        }
    }
    !p.globals.has_writers(e)
}

/// Releases the locks of a request that has ended.
pub(super) fn drop_edges(p: &mut Parts<'_>, r: u32, req: &Req) {
    if req.edges != Edge::Locked {
        return;
    }
    let geo = &p.globals.space.geo;
    let extents = geo.extent_at(req.start).0..=geo.extent_at(req.end - 1).0;
    for e in extents.map(ExtentId) {
        if p.globals.waiting.edges.unlock(e, r) {
            p.relocation.release_hold(p.globals, e);
            p.globals.waiting.extent_changed(e);
        }
    }
}
