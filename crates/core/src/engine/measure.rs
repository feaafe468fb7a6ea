//! Measuring what devices need: what [`crate::load`] is told.

use super::{Engine, Op, What};
use crate::io::{DeviceOp, OpKind};
use crate::load::Sample;
use crate::units::{Nanos, TierId};

impl Engine {
    fn tier_of_member(&self, i: usize) -> TierId {
        self.space.geo.members[i].tier
    }

    /// An operation is about to be issued: does a request wait for it, and does it go on where the device's last one ended?
    pub(super) fn noted(&mut self, what: What, op: &DeviceOp) -> (bool, bool) {
        let i = usize::from(op.member.0);
        let foreground = match what {
            What::Data { .. } => true,
            What::Move { index, .. } => {
                let m = self.moves.list[usize::from(index)];
                m.is_some_and(|m| m.up && !m.own)
            }
            What::Round | What::Trim { .. } | What::Standby => false,
        };
        if foreground {
            let tier = self.tier_of_member(i);
            self.space.loads.begin(tier);
        }
        let moves_bytes = matches!(op.kind, OpKind::Read | OpKind::Write);
        let sequential = moves_bytes && self.space.loads.issue(i, op.offset, op.len);
        (foreground, sequential)
    }

    /// It ended.
    pub(super) fn measure(&mut self, now: Nanos, op: &Op) {
        let member = usize::from(op.op.member.0);
        let data = matches!(op.what, What::Data { .. } | What::Move { .. })
            && matches!(op.op.kind, OpKind::Read | OpKind::Write);
        let sample = Sample {
            member,
            tier: self.tier_of_member(member),
            write: op.op.kind == OpKind::Write,
            len: if data { op.op.len } else { u32::MAX },
            sequential: op.sequential,
            foreground: op.foreground,
            issued: op.issued,
        };
        let took = self.space.loads.end(now, sample);
        self.learn_join(op, took);
    }
}
