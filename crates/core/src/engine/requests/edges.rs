//! Unaligned writes: writes that do not start and end at borders of logical blocks.
//!
//! The edge blocks are read into the request's aligned buffer, the payload is overlaid ([`Effect::Patch`]), and whole blocks are written.
//! Between reading and writing, no other request may change those blocks; otherwise that change would be undone. So the request waits for
//! writes in progress on its extents and then locks these extents, and later writers wait for it. It locks all of its extents in one step.
//! If it locked only those of its edges, two overlapping requests could each hold a lock that the other one needs (a deadlock that a test
//! with concurrent writers found).

use super::{Requests, Waiter, drop_edges};
use crate::engine::globals::Parts;
use crate::io::Effect;
use crate::mutants::Mutant;
use crate::units::ExtentId;
use alloc::vec::Vec;

/// Extents that are locked by unaligned writes (and by fills, `fill.rs`), and unaligned writes that wait for a lock. Both lists are short,
/// because unaligned requests are rare.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Edges {
    locked: Vec<(ExtentId, u32)>,
    queued: Vec<(u32, u64)>,
}

impl Edges {
    /// Whether a request other than `r` locks `e`.
    pub(super) fn blocks(&self, e: ExtentId, r: u32) -> bool {
        self.locked.iter().any(|&(x, by)| x == e && by != r)
    }
    /// Whether `r` locks `e`.
    pub(super) fn locked_by(&self, e: ExtentId, r: u32) -> bool {
        self.locked.contains(&(e, r))
    }
    /// Whether `e` is locked.
    pub(super) fn holds(&self, e: ExtentId) -> bool {
        self.locked.iter().any(|&(x, _)| x == e)
    }
    /// Whether `r` waits for its locks.
    pub(super) fn is_queued(&self, r: u32) -> bool {
        self.queued.iter().any(|q| q.0 == r)
    }
    /// Locks `e` for `r`.
    pub(super) fn lock(&mut self, e: ExtentId, r: u32) {
        self.locked.push((e, r));
    }
    /// Unlocks `e`, which `r` has locked.
    pub(super) fn unlock_one(&mut self, e: ExtentId, r: u32) {
        self.locked.retain(|&l| l != (e, r));
    }
    /// Unlocks one extent of `r`, if it has locked any.
    pub(super) fn unlock(&mut self, r: u32) -> Option<ExtentId> {
        let i = self.locked.iter().position(|l| l.1 == r)?;
        Some(self.locked.swap_remove(i).0)
    }
}

impl Requests {
    pub(super) fn start_unaligned_write(&mut self, p: &mut Parts<'_>, r: u32, offset: u64) {
        p.g.counters.edge_writes += 1;
        let req = self.list.at(r);
        req.reading_edges = true;
        let w = Waiter {
            req: r,
            extent: p.g.space.geo.extent_at(req.start),
            from: req.start,
            to: req.end,
            touched: false,
        };
        p.g.waiting.edges.queued.push((r, offset));
        self.retry_unaligned_write(p, w);
        self.piece_done(p, r);
    }

    /// The offsets of the first and the last block, each only if the write covers it in part.
    fn edge_blocks(&mut self, p: &Parts<'_>, r: u32, offset: u64) -> [Option<u64>; 2] {
        let req = *self.list.at(r);
        let b = u64::from(p.g.space.geo.block_bytes());
        let end = offset + u64::from(req.bytes);
        let head = (offset != req.start || end < req.start + b).then_some(req.start);
        // A request within one block reads this block only once.
        let tail = (end != req.end && req.end - b != req.start).then_some(req.end - b);
        [head, tail]
    }

    /// Locks the extents and reads the edge blocks, or waits.
    pub(super) fn retry_unaligned_write(&mut self, p: &mut Parts<'_>, w: Waiter) {
        let r = w.req;
        let edges = &p.g.waiting.edges;
        let Some(i) = edges.queued.iter().position(|q| q.0 == r) else {
            return;
        };
        let offset = edges.queued[i].1;
        let edges = self.edge_blocks(p, r, offset);
        let (start, end) = (self.list.at(r).start, self.list.at(r).end);
        let geo = &p.g.space.geo;
        let extents = geo.extent_at(start).0..=geo.extent_at(end - 1).0;
        for extent in extents.clone().map(ExtentId) {
            if !may_lock(p, extent, r) && !p.g.broken(Mutant::UnserialisedEdges) {
                return self.wait(p.g, Waiter { extent, ..w });
            }
        }
        p.g.waiting.edges.queued.swap_remove(i);
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
            drop_edges(p, r);
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
