//! Odd writes: those that do not start and end on a logical block.
//!
//! The edge blocks are read into the request's aligned buffer, the payload is laid over them ([`Effect::Patch`]), and whole
//! blocks are written. Between reading and writing nobody else may change those blocks, or that change would be undone: the
//! request locks its extents, waits for writers in flight there, and later writers wait for it. It locks all of them, in one
//! step: with the edges' alone two overlapping requests could each hold what the other needs (found by racing writers).

use crate::engine::{Engine, Mutant, Waiter};
use crate::io::Effect;
use crate::units::{ExtentId, Nanos};
use alloc::vec::Vec;

/// Extents locked by odd writes, and odd writes that wait for a lock. Both are short: odd requests are rare.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Edges {
    locked: Vec<(ExtentId, u32)>,
    queued: Vec<(u32, u64)>,
}

impl Edges {
    /// Is `e` locked by another request than `r`?
    pub(in crate::engine) fn blocks(&self, e: ExtentId, r: u32) -> bool {
        self.locked.iter().any(|&(x, by)| x == e && by != r)
    }
    /// Is `e` locked by `r`?
    pub(in crate::engine) fn locked_by(&self, e: ExtentId, r: u32) -> bool {
        self.locked.contains(&(e, r))
    }
    /// Is `e` locked?
    pub(in crate::engine) fn holds(&self, e: ExtentId) -> bool {
        self.locked.iter().any(|&(x, _)| x == e)
    }
    /// Does `r` wait for its locks?
    pub(in crate::engine) fn is_queued(&self, r: u32) -> bool {
        self.queued.iter().any(|q| q.0 == r)
    }
}

impl Engine {
    pub(in crate::engine) fn start_odd_write(
        &mut self,
        now: Nanos,
        r: u32,
        offset: u64,
        out: &mut Vec<Effect>,
    ) {
        self.counters.edge_writes += 1;
        let req = self.reqs.at(r);
        req.reading_edges = true;
        let w = Waiter {
            req: r,
            extent: self.space.geo.extent_at(req.start),
            from: req.start,
            to: req.end,
            touched: false,
        };
        self.edges.queued.push((r, offset));
        self.retry_odd_write(now, w, out);
        self.piece_done(now, r, out);
    }

    /// The blocks that an odd write covers in part: (first byte of block) of head and tail.
    fn edge_blocks(&mut self, r: u32, offset: u64) -> [Option<u64>; 2] {
        let req = *self.reqs.at(r);
        let b = u64::from(self.space.geo.block_bytes());
        let end = offset + u64::from(req.bytes);
        let head = (offset != req.start || end < req.start + b).then_some(req.start);
        // Not the head block again: a request within one block reads it once.
        let tail = (end != req.end && req.end - b != req.start).then_some(req.end - b);
        [head, tail]
    }

    fn extents_of(&mut self, r: u32) -> core::ops::RangeInclusive<u32> {
        let (start, end) = (self.reqs.at(r).start, self.reqs.at(r).end);
        self.space.geo.extent_at(start).0..=self.space.geo.extent_at(end - 1).0
    }

    /// Lock the extents and read the edge blocks, or wait.
    pub(in crate::engine) fn retry_odd_write(
        &mut self,
        now: Nanos,
        w: Waiter,
        out: &mut Vec<Effect>,
    ) {
        let r = w.req;
        let Some(i) = self.edges.queued.iter().position(|q| q.0 == r) else {
            return;
        };
        let offset = self.edges.queued[i].1;
        let edges = self.edge_blocks(r, offset);
        let extents = self.extents_of(r);
        for e in extents.clone().map(ExtentId) {
            if !self.may_lock(e, r) && !self.broken(Mutant::UnserialisedEdges) {
                return self.wait(Waiter { extent: e, ..w });
            }
        }
        self.edges.queued.swap_remove(i);
        let block = u64::from(self.space.geo.block_bytes());
        for e in extents.map(ExtentId) {
            if let Some(index) = self.moves.of(e) {
                self.moves.mark_stale(index);
            }
            if !self.edges.locked_by(e, r) {
                self.edges.locked.push((e, r));
                self.space.map.hold(e, true);
            }
        }
        for at in edges.into_iter().flatten() {
            self.hand_out(now, r, at, at + block, out);
        }
    }

    fn may_lock(&self, e: ExtentId, r: u32) -> bool {
        if self.edges.blocks(e, r) || self.waiting.iter().any(|o| o.extent == e && o.req != r) {
            return false;
        }
        if let Some(index) = self.moves.of(e) {
            let m = self.moves.get(index);
            if m.writes_in_place() || (!m.stale && (m.is_promotion() || m.is_committing())) {
                return false;
            }
        }
        !self.has_writers(e)
    }

    /// All edge blocks are in the buffer: patch and write.
    pub(in crate::engine) fn edges_read(&mut self, now: Nanos, r: u32, out: &mut Vec<Effect>) {
        let req = self.reqs.at(r);
        req.reading_edges = false;
        if let Some(e) = req.error {
            self.drop_edges(r);
            return self.reply(now, r, Err(e), out);
        }
        req.left = 1;
        let (tag, start, end) = (req.tag, req.start, req.end);
        out.push(Effect::Patch { tag });
        self.hand_out(now, r, start, end, out);
        self.piece_done(now, r, out);
    }

    /// The request ended: give up its locks.
    pub(in crate::engine) fn drop_edges(&mut self, r: u32) {
        while let Some(i) = self.edges.locked.iter().position(|l| l.1 == r) {
            let (e, _) = self.edges.locked.swap_remove(i);
            self.release_hold(e);
            self.retry = true;
        }
    }
}
