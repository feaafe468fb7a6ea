//! Paced members: real files whose completions wait until a device model allows them.
//!
//! The real I/O starts at once; it and the model run in parallel, and the completion is reported when both are done. So a paced member is
//! never faster than its model, and slower only if the real file is. Results are always labelled as paced.

use isotherm_core::{DeviceOp, Nanos, OpKind};
use isotherm_models::{Counters, DeviceModel, ModelOp, Wear};

/// The model of one member. Its clock starts with the world.
pub struct Pacer {
    model: Box<dyn DeviceModel>,
    done: Vec<u64>,
}

impl Pacer {
    /// Wraps a model that has not been used yet.
    pub fn new(model: Box<dyn DeviceModel>) -> Pacer {
        Pacer {
            model,
            done: Vec::with_capacity(64),
        }
    }

    /// Operation `id` arrives.
    pub fn start(&mut self, now: Nanos, id: u64, op: &DeviceOp) {
        let kind = match op.kind {
            OpKind::Read => ModelOp::Read,
            OpKind::Write if op.fua => ModelOp::WriteThrough,
            OpKind::Write | OpKind::WriteZeroes => ModelOp::Write,
            OpKind::Flush => ModelOp::Flush,
            OpKind::Discard => ModelOp::Discard,
            OpKind::Standby => ModelOp::Standby,
        };
        self.model.start(now, id, kind, op.offset, op.len);
    }

    /// The time at which the model must be polled again.
    pub fn next_event(&self) -> Option<Nanos> {
        self.model.next_event()
    }

    /// The operations that have finished by `now`.
    pub fn poll(&mut self, now: Nanos) -> impl Iterator<Item = u64> + '_ {
        self.model.poll(now, &mut self.done);
        self.done.drain(..)
    }

    /// See [`DeviceModel::counters`].
    pub fn counters(&self, now: Nanos) -> Counters {
        self.model.counters(now)
    }

    /// See [`DeviceModel::wear`].
    pub fn wear(&self) -> Wear {
        self.model.wear()
    }
}
