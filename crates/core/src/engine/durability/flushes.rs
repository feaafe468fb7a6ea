//! The devices that a round flushes.

use crate::engine::devices::{Cause, What};
use crate::engine::globals::Globals;
use crate::io::{BufRef, DeviceOp, OpId, OpKind};
use crate::mutants::Mutant;
use crate::units::MemberId;

/// The members that hold the data of moves that wait for a round, as bit sets.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct CopiedOn {
    /// Those to which data was copied.
    pub(in crate::engine) members: u32,
    /// Those to which dirty blocks were written home.
    pub(in crate::engine) homes_of_cleans: u32,
}

/// Flushes a member for the round.
pub(super) fn flush(g: &mut Globals, member: MemberId) {
    let op = DeviceOp {
        id: OpId(0),
        member,
        kind: OpKind::Flush,
        offset: 0,
        len: 0,
        buf: BufRef::None,
        fua: false,
    };
    g.start(Cause::plain(What::Round), op);
}

/// The devices to flush before the records may be written, as a bit set.
pub(super) fn flush_targets(g: &Globals, copied: CopiedOn, all: bool) -> u32 {
    let set = |on: &dyn Fn(usize) -> bool| {
        let members = 0..g.devices.members.len();
        members.filter(|&i| on(i)).fold(0u32, |s, i| s | 1 << i)
    };
    let dirty = set(&|i| g.devices.members[i].unflushed);
    let fast = set(&|i| g.space.geo.members[i].tier.0 == 0);
    let mut targets = if all { dirty } else { dirty & copied.members };
    if g.broken(Mutant::CleanBeforeFlush) {
        targets &= !copied.homes_of_cleans;
    }
    if g.broken(Mutant::ExposeBeforeFlush) && all {
        targets = 0;
    }
    if g.broken(Mutant::FlushForgetsFast) {
        targets &= !fast;
    }
    if g.broken(Mutant::FlushForgetsSlow) {
        targets &= fast;
    }
    targets
}
