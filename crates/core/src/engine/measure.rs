//! Measuring what devices need: what [`crate::load`] is told.

use super::{Engine, Op, What};
use crate::io::{DeviceOp, OpKind};
use crate::load::Sample;
use crate::units::Nanos;

impl Engine {
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
        self.space.loads.begin(i, foreground);
        let moves_bytes = matches!(op.kind, OpKind::Read | OpKind::Write);
        let sequential = moves_bytes && self.space.loads.issue(i, op.offset, op.len);
        (foreground, sequential)
    }

    /// It ended.
    pub(super) fn measure(&mut self, now: Nanos, op: &Op) {
        let data = matches!(op.what, What::Data { .. } | What::Move { .. })
            && matches!(op.op.kind, OpKind::Read | OpKind::Write);
        let sample = Sample {
            member: usize::from(op.op.member.0),
            data,
            write: op.op.kind == OpKind::Write,
            len: op.op.len,
            sequential: op.sequential,
            foreground: op.foreground,
            issued: op.issued,
        };
        let took = self.space.loads.end(now, sample);
        self.learn_join(op, took);
    }
}
