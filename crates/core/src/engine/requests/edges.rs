//! Unaligned writes: writes that do not start and end at borders of logical blocks.
//!
//! The edge blocks are read into the request's aligned buffer, the payload is overlaid ([`Effect::Patch`]), and whole blocks are written.
//! Between reading and writing, no other request may change those blocks; otherwise that change would be undone. So the request waits for
//! writes in progress on its extents and then locks these extents, and later writers wait for it. It locks all of its extents in one step.
//! If it locked only those of its edges, two overlapping requests could each hold a lock that the other one needs (a deadlock that a test
//! with concurrent writers found).

use super::{Req, Requests, Waiter};
use crate::by_number::ByNumber;
use crate::engine::globals::Parts;
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

/// The holders of the lock of an extent.
#[derive(Clone, Copy, Debug, Default)]
struct Lock {
    by: Option<u32>,
    filling: bool,
}

/// Extents that are locked by unaligned writes and by fills (`fill.rs`).
#[derive(Clone, Debug)]
pub(in crate::engine) struct Edges {
    locked: ByNumber<Lock>,
}

impl Default for Edges {
    fn default() -> Edges {
        Edges {
            locked: ByNumber::new(16),
        }
    }
}

impl Edges {
    /// Whether a request other than `r`, or a fill, locks `e`.
    pub(super) fn blocks(&self, e: ExtentId, r: u32) -> bool {
        let lock = self.locked.get(e.0);
        lock.is_some_and(|l| l.filling || l.by.is_some_and(|by| by != r))
    }
    /// Whether `r` locks `e`.
    pub(super) fn locked_by(&self, e: ExtentId, r: u32) -> bool {
        self.locked.get(e.0).is_some_and(|l| l.by == Some(r))
    }
    /// Whether `e` is locked.
    pub(super) fn holds(&self, e: ExtentId) -> bool {
        self.locked.get(e.0).is_some()
    }
    /// Locks `e` for `r`.
    fn lock(&mut self, e: ExtentId, r: u32) {
        self.locked.entry(e.0).by = Some(r);
    }
    /// Unlocks `e`; returns false if `r` had not locked it.
    fn unlock(&mut self, e: ExtentId, r: u32) -> bool {
        let was = self.locked_by(e, r);
        if was {
            self.locked.entry(e.0).by = None;
            self.tidy(e);
        }
        was
    }
    /// Locks `e` until [`Edges::filled`], for a fill.
    pub(super) fn fill(&mut self, e: ExtentId) {
        self.locked.entry(e.0).filling = true;
    }
    /// The fill of `e` has ended.
    pub(super) fn filled(&mut self, e: ExtentId) {
        if self.holds(e) {
            self.locked.entry(e.0).filling = false;
            self.tidy(e);
        }
    }
    fn tidy(&mut self, e: ExtentId) {
        let unused = |l: &Lock| l.by.is_none() && !l.filling;
        if self.locked.get(e.0).as_ref().is_some_and(unused) {
            self.locked.remove(e.0);
        }
    }
}

impl Requests {
    pub(super) fn start_unaligned_write(&mut self, p: &mut Parts<'_>, r: u32) {
        p.g.counters.edge_writes += 1;
        let req = self.list.at(r);
        req.reading_edges = true;
        req.edges = Edge::Queued;
        let w = Waiter {
            req: r,
            extent: p.g.space.geo.extent_at(req.start),
            from: req.start,
            to: req.end,
            touched: false,
            past_copy: false,
        };
        self.retry_unaligned_write(p, w);
        self.piece_done(p, r);
    }

    /// The offsets of the first and the last block, each only if the write covers it in part.
    fn edge_blocks(&mut self, p: &Parts<'_>, r: u32) -> [Option<u64>; 2] {
        let req = *self.list.at(r);
        let b = u64::from(p.g.space.geo.block_bytes());
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
        let geo = &p.g.space.geo;
        let extents = geo.extent_at(start).0..=geo.extent_at(end - 1).0;
        for extent in extents.clone().map(ExtentId) {
            if !may_lock(p, extent, r) && !p.g.broken(Mutant::UnserialisedEdges) {
                return self.wait(p.g, Waiter { extent, ..w });
            }
        }
        self.list.at(r).edges = Edge::Locked;
        let block = u64::from(p.g.space.geo.block_bytes());
        for e in extents.map(ExtentId) {
            if let Some(index) = p.r.of(e) {
                p.r.mark_stale(index);
            }
            if !p.g.waiting.edges.locked_by(e, r) {
                p.g.waiting.edges.lock(e, r);
                p.g.space.map.hold(e, true);
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
            let latency = self.reply(p.g, r, Err(e));
            return p.r.note_latency(p.g, latency);
        }
        req.left = 1;
        let (tag, start, end) = (req.tag, req.start, req.end);
        p.g.out.push(Effect::Patch { tag });
        self.hand_out(p, r, start, end);
        self.piece_done(p, r);
    }
}

fn may_lock(p: &Parts<'_>, e: ExtentId, r: u32) -> bool {
    let waiting = &p.g.waiting;
    if waiting.edges.blocks(e, r) || waiting.has_other(e, r) {
        return false;
    }
    if let Some(index) = p.r.of(e) {
        let m = p.r.get(index);
        if m.writes_in_place() || (!m.stale && (m.is_promotion() || m.is_committing())) {
            return false;
        }
    }
    !p.g.has_writers(e)
}

/// Releases the locks of a request that has ended.
pub(super) fn drop_edges(p: &mut Parts<'_>, r: u32, req: &Req) {
    if req.edges != Edge::Locked {
        return;
    }
    let geo = &p.g.space.geo;
    let extents = geo.extent_at(req.start).0..=geo.extent_at(req.end - 1).0;
    for e in extents.map(ExtentId) {
        if p.g.waiting.edges.unlock(e, r) {
            p.r.release_hold(p.g, e);
            p.g.waiting.extent_changed(e);
        }
    }
}
