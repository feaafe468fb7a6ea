//! Operations that flash fails and the home can do.
//!
//! A copy is one of two places. If its device fails a read of clean blocks, they are read from the home; if the home's device fails a read
//! that it had got because flash was behind, they are read from the copy. If flash fails a write, the blocks are
//! written to the home, and are no part of the copy any more. So flash that fails makes a volume slower, and no request fails as long as the
//! disk works. But dirty blocks that flash cannot read are nowhere else, so that is an error.

use super::{Requests, Waiter};
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::mutants::Mutant;
use crate::units::{ExtentId, Slot};

/// Whether the home of `e` can take the place of its copy.
pub(super) fn can_use_home(g: &Globals, e: ExtentId) -> bool {
    let missing = |s| g.devices.members[usize::from(g.space.geo.locate(s).0.0)].missing;
    !g.failed && g.space.map.home(e).is_some_and(|s| !missing(s))
}

impl Requests {
    /// A read of `w` in slot `s` failed. Its blocks are read from the other place from now on; false: that has not all of them.
    pub(super) fn rescue_read(p: &mut Parts<'_>, w: &mut Waiter, s: Slot) -> bool {
        let (e, (from, to)) = (w.extent, p.globals.blocks_of(w));
        let map = &p.globals.space.map;
        if map.home(e) == Some(s) {
            w.past_home = true;
            return map.copy(e).is_some() && map.copy_run(e, from, to) == (to - from, true);
        }
        if !can_use_home(p.globals, e) {
            return false;
        }
        if map.copy(e).is_some() && map.any_dirty(e, from, to) {
            if !p.globals.broken(Mutant::RescueDirty) {
                return false;
            }
            let _ = p.globals.space.map.copy_forget(e, from, to);
        }
        let map = &mut p.globals.space.map;
        let due = map.copy(e).is_some() && map.copy_invalidate_clean(e, from, to);
        if due && !p.globals.params.read_only {
            p.durability.note(p.globals, e);
        }
        true
    }

    /// Whether a write in slot `s` of `e`, from block `from` on, which failed, is or will be done by the home.
    pub(super) fn rescues_write(&self, g: &Globals, e: ExtentId, s: Slot, from: u32) -> bool {
        let at_home = g.space.map.home(e) == Some(s);
        !at_home && can_use_home(g, e) && self.replicas.may_reach_home(e, from)
    }
}
