//! A device with free FLUSHes, to measure the cost of durable moves.
//!
//! GreenDM's prototype copies an extent, changes the map in memory, and writes the map to disk from time to time (6.1.6), so it may lose
//! data in a power cut. Moves of this engine are durable before the map changes, so each batch of them waits for the platter.

use std::collections::VecDeque;

use isotherm_core::Nanos;
use isotherm_models::{Counters, DeviceModel, ModelOp, Wear};

/// See the module.
pub struct Unflushed {
    inner: Box<dyn DeviceModel>,
    /// Flushes with the time at which they were issued. They also end at that time.
    flushed: VecDeque<(Nanos, u64)>,
}

impl Unflushed {
    /// Wraps `inner` so that its flushes are free.
    pub fn new(inner: Box<dyn DeviceModel>) -> Unflushed {
        Unflushed {
            inner,
            flushed: VecDeque::new(),
        }
    }
}

impl DeviceModel for Unflushed {
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32) {
        if op == ModelOp::Flush {
            self.flushed.push_back((now, id));
        } else {
            self.inner.start(now, id, op, offset, len);
        }
    }
    fn next_event(&self) -> Option<Nanos> {
        let flushed = self.flushed.front().map(|(t, _)| *t);
        match (flushed, self.inner.next_event()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>) {
        self.inner.poll(now, done);
        while self.flushed.front().is_some_and(|(t, _)| *t <= now) {
            done.extend(self.flushed.pop_front().map(|(_, id)| id));
        }
    }
    fn counters(&self, now: Nanos) -> Counters {
        self.inner.counters(now)
    }
    fn wear(&self) -> Wear {
        self.inner.wear()
    }
    fn set_reads_per_write(&mut self, reads: f64) {
        self.inner.set_reads_per_write(reads);
    }
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
}
