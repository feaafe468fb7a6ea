//! The gate: may a piece of a request go on, though something (a move, a waiting discard) holds its extent?

use crate::engine::{Engine, Mutant, Req, Waiter};
use crate::io::RequestOp;

/// What the gate says to a piece on a held extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Gate {
    Go,
    Wait,
    /// Read it from this move's buffer.
    FromMove(u16),
}

impl Engine {
    /// May this piece touch its extent now? Asked only when the extent is held.
    pub(in crate::engine) fn gate(&mut self, req: &Req, w: &Waiter) -> Gate {
        let write = req.is_write();
        if write && (self.edges.blocks(w.extent, w.req) && !self.broken(Mutant::UnserialisedEdges))
        {
            return Gate::Wait;
        }
        // Writers queue behind a discard (or an odd write) that waits, or it would wait for ever.
        let mine = self.edges.locked_by(w.extent, w.req);
        if write
            && !mine
            && self
                .waiting
                .iter()
                .any(|o| o.extent == w.extent && o.req != w.req && self.is_changer(o.req))
        {
            return Gate::Wait;
        }
        let Some(index) = self.moves.of(w.extent) else {
            return Gate::Go;
        };
        if write {
            self.gate_write(index)
        } else {
            self.gate_read(index)
        }
    }

    pub(in crate::engine) fn is_changer(&self, r: u32) -> bool {
        self.reqs
            .get(r)
            .is_some_and(|q| !matches!(q.op, RequestOp::Read))
    }

    fn gate_read(&self, index: u16) -> Gate {
        let m = self.moves.get(index);
        if m.stale || !m.holds_readers() {
            Gate::Go
        } else if m.has_buffer() {
            Gate::FromMove(index)
        } else if m.is_promotion() {
            // The whole extent is on its way into memory: waiting for it beats a second seek.
            Gate::Wait
        } else {
            Gate::Go
        }
    }

    fn gate_write(&mut self, index: u16) -> Gate {
        let m = self.moves.get(index);
        if m.is_clean() {
            // It is told when the write is issued: what is written anew stays dirty. A volume that gives up its copies
            // comes to an end of it only if writers wait.
            if self.is_draining_copies() && !m.stale {
                Gate::Wait
            } else {
                Gate::Go
            }
        } else if m.writes_in_place() {
            // Even if it is stale: its own writes must not land on this one.
            Gate::Wait
        } else if self.broken(Mutant::ForgetStaleMark) || m.stale {
            Gate::Go
        } else if m.is_promotion() || m.is_committing() {
            // Upwards the writer waits (the copy takes no longer than the slow write would, and the data ends up on fast);
            // while the record is being written it waits in any case, for a flush.
            Gate::Wait
        } else {
            // Downwards the writer wins: the extent is not cold after all. The mark is set before the write is issued.
            self.moves.mark_stale(index);
            Gate::Go
        }
    }
}
