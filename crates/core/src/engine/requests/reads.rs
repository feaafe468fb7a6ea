//! The source of each block of a read: a device, a move's buffer, or none.

use super::runs::Runs;
use super::{Req, Requests, Waiter};
use crate::engine::globals::Globals;
use crate::io::{Effect, IoError};
use crate::mutants::Mutant;
use crate::units::{ExtentId, Slot};

impl Req {
    /// The offset, in the request's aligned buffer, of byte `at` of the volume.
    pub(super) fn buffer_offset(&self, at: u64) -> u32 {
        (at - self.start) as u32
    }
}

impl Requests {
    /// Whether the newest data of `e` may be lost with flash that is absent.
    fn is_suspect(&self, e: ExtentId) -> bool {
        let after = self.suspects.partition_point(|r| r.end <= e.0);
        self.suspects.get(after).is_some_and(|r| r.start <= e.0)
    }

    /// Answers a read of unwritten blocks with zeros. If the map may be incomplete, the read fails instead.
    pub(super) fn read_nothing(
        &mut self,
        g: &mut Globals,
        req: &Req,
        w: &Waiter,
        (from, to): (u64, u64),
    ) {
        if self.incomplete {
            return self.fail(w.req, IoError::Io);
        }
        g.out.push(Effect::Zero {
            tag: req.tag,
            offset: req.buffer_offset(from),
            len: (to - from) as u32,
        });
    }

    /// Calls `f` for each run of a piece whose blocks are all valid (true) or all unwritten (false).
    fn for_each_run(
        &mut self,
        g: &mut Globals,
        w: &Waiter,
        mut f: impl FnMut(&mut Requests, &mut Globals, (u64, u64), bool),
    ) {
        let (mut b, end) = g.blocks_of(w);
        while b < end {
            let (n, valid) = g.space.map.run(w.extent, b, end);
            let bytes = (g.byte_of(w.extent, b), g.byte_of(w.extent, b + n));
            f(self, g, bytes, valid);
            b += n;
        }
    }

    pub(super) fn read_from_move(&mut self, g: &mut Globals, req: &Req, w: &Waiter, index: u16) {
        g.counters.served_from_ram += 1;
        let base = g.byte_of(w.extent, 0);
        self.for_each_run(g, w, |me, g, (from, to), valid| {
            if valid {
                g.out.push(Effect::CopyFromMove {
                    index,
                    from: (from - base) as u32,
                    tag: req.tag,
                    to: req.buffer_offset(from),
                    len: (to - from) as u32,
                });
            } else {
                me.read_nothing(g, req, w, (from, to));
            }
        });
    }

    pub(super) fn read_piece(
        &mut self,
        g: &mut Globals,
        req: &Req,
        w: &Waiter,
        slot: Slot,
        runs: &mut Runs,
    ) {
        if self.is_suspect(w.extent) {
            return self.fail(w.req, IoError::Gone);
        }
        let (a, z) = g.blocks_of(w);
        if g.space.lost.any(w.extent, a, z) && !g.broken(Mutant::ServeLost) {
            return self.fail(w.req, IoError::Io);
        }
        if !g.space.map.is_partial(w.extent) {
            return self.join_run(g, w, slot, (w.from, w.to), false, &mut runs.home);
        }
        self.for_each_run(g, w, |me, g, bytes, valid| {
            if valid {
                me.join_run(g, w, slot, bytes, false, &mut runs.home);
            } else {
                me.read_nothing(g, req, w, bytes);
            }
        });
    }
}
