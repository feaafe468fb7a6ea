//! The gate: decides whether a piece of a request may proceed although its extent is in use by a move or a waiting discard.

use super::{Req, Waiter};
use crate::engine::parts::Parts;
use crate::mutants::Mutant;

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
    let waiting = &p.globals.waiting;
    if write
        && waiting.edges.blocks(w.extent, w.req)
        && !p.globals.broken(Mutant::UnserialisedEdges)
    {
        return Gate::Wait;
    }
    // Writers wait behind a waiting discard (or unaligned write); otherwise that request could wait for ever.
    if write
        && waiting.has_other_changer(w.extent, w.req)
        && !waiting.edges.locked_by(w.extent, w.req)
    {
        return Gate::Wait;
    }
    let Some(index) = p.relocation.of(w.extent) else {
        return Gate::Go;
    };
    if write && p.globals.broken(Mutant::GateForgetsMoves) {
        Gate::Go
    } else if write {
        gate_write(p, index)
    } else {
        gate_read(p, w, index)
    }
}

fn gate_read(p: &Parts<'_>, w: &Waiter, index: u16) -> Gate {
    let m = p.relocation.get(index);
    if m.stale
        || !p
            .relocation
            .contains_home_data(p.globals, index, p.globals.blocks_of(w))
    {
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
    let m = p.relocation.get(index);
    if m.is_clean() {
        // The clean is informed when the write is issued, so that newly written blocks stay dirty. If the volume is evicting all of its
        // copies, writers wait; otherwise this might never end.
        if p.globals.background.evicts_all_copies() && !m.stale {
            Gate::Wait
        } else {
            Gate::Go
        }
    } else if m.writes_in_place() {
        // This holds even for a stale move, whose writes must not overwrite this one.
        Gate::Wait
    } else if p.globals.broken(Mutant::ForgetStaleMark) || m.stale {
        Gate::Go
    } else if m.is_promotion() || m.is_committing() {
        // During a promotion the write waits (the promotion takes no longer than a write to the slow tier would, and the data is then on
        // the fast tier). While a move's record is being written, the write waits in any case.
        Gate::Wait
    } else {
        // During a demotion the write has precedence, because the extent is not cold after all. The move is marked stale before the write
        // is issued.
        p.relocation.mark_stale(index);
        Gate::Go
    }
}
