//! The gate: decides whether a piece of a request may proceed although its extent is in use by a move or a waiting discard.

use super::{Req, Waiter};
use crate::engine::ground::Parts;
use crate::engine::mutants::Mutant;

/// The decision for a piece on an extent in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Go,
    Wait,
    /// Read it from this move's buffer.
    FromMove(u16),
}

/// Decides whether this piece may access its extent now. Only called if the extent is in use. A decision to wait changes nothing.
pub(super) fn gate(p: &mut Parts<'_>, req: &Req, w: &Waiter) -> Gate {
    let write = req.is_write();
    let waiting = &p.g.waiting;
    if write && waiting.edges.blocks(w.extent, w.req) && !p.g.broken(Mutant::UnserialisedEdges) {
        return Gate::Wait;
    }
    // Writers queue behind a waiting discard (or odd write); otherwise it would wait for ever.
    if write
        && waiting.has_other_changer(w.extent, w.req)
        && !waiting.edges.locked_by(w.extent, w.req)
    {
        return Gate::Wait;
    }
    let Some(index) = p.r.of(w.extent) else {
        return Gate::Go;
    };
    if write && p.g.broken(Mutant::GateForgetsMoves) {
        Gate::Go
    } else if write {
        gate_write(p, index)
    } else {
        gate_read(p, w, index)
    }
}

fn gate_read(p: &Parts<'_>, w: &Waiter, index: u16) -> Gate {
    let m = p.r.get(index);
    if m.stale || !p.r.carries(p.g, index, p.g.blocks_of(w)) {
        Gate::Go
    } else if m.has_buffer() {
        Gate::FromMove(index)
    } else if m.is_promotion() {
        // The whole extent is being read into memory: waiting for it is faster than a second seek.
        Gate::Wait
    } else {
        Gate::Go
    }
}

fn gate_write(p: &mut Parts<'_>, index: u16) -> Gate {
    let m = p.r.get(index);
    if m.is_clean() {
        // The move is told when the write is issued, so newly written blocks stay dirty. A volume that gives up its copies can finish only
        // if writers wait.
        if p.g.background.gives_up_copies() && !m.stale {
            Gate::Wait
        } else {
            Gate::Go
        }
    } else if m.writes_in_place() {
        // This holds even for a stale move: its own writes must not overwrite this one.
        Gate::Wait
    } else if p.g.broken(Mutant::ForgetStaleMark) || m.stale {
        Gate::Go
    } else if m.is_promotion() || m.is_committing() {
        // In a promotion the writer waits (the copy takes no longer than the slow write would, and the data ends up on fast). While the
        // record is being written, it waits in any case, for a flush.
        Gate::Wait
    } else {
        // In a demotion the writer has precedence: the extent is not cold after all. The mark is set before the write is issued.
        p.r.mark_stale(index);
        Gate::Go
    }
}
