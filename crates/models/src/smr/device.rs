//! Implements the device trait for [`Smr`].

use isotherm_core::Nanos;

use super::Smr;
use super::log::BLOCK;
use crate::model::{Counters, DeviceModel, ModelOp, Wear};

impl DeviceModel for Smr {
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32) {
        self.advance(now.0);
        self.totals.note(op, offset, len);
        let offset = self.span.map(offset);
        let bytes = u64::from(len).min(self.capacity - offset);
        self.idle_at = None;
        self.asleep = op == ModelOp::Standby;
        match op {
            ModelOp::Read => self.read(id, offset, bytes),
            ModelOp::Write | ModelOp::WriteThrough => {
                if self.room.is_empty() && self.log.fits(bytes.div_ceil(BLOCK) + 1) {
                    self.write(id, op, offset, bytes);
                } else {
                    self.in_flight += 1;
                    self.room.push_back((id, op, offset, bytes));
                    if self.cleaning.as_ref().is_none_or(|c| !c.under_way) {
                        self.clean();
                    }
                }
            }
            ModelOp::Flush | ModelOp::Standby => {
                let slot = self.slot(id, 0);
                self.part(slot, op, 0, 0);
            }
            ModelOp::Discard => {
                self.discard(offset, bytes);
                let slot = self.slot(id, 0);
                self.part(slot, op, self.cache_bytes + offset, 0);
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        if let Some(f) = self.finished.front() {
            return Some(Nanos(f.0));
        }
        let t = self.next_inside();
        (t < u64::MAX).then_some(Nanos(t))
    }

    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>) {
        self.advance(now.0);
        done.extend(self.finished.drain(..).map(|f| f.1));
    }

    fn counters(&self, now: Nanos) -> Counters {
        let disk = self.disk.counters(now);
        let host = self.totals;
        Counters {
            reads: host.reads,
            writes: host.writes,
            flushes: host.flushes,
            discards: host.discards,
            bytes_read: host.bytes_read,
            bytes_written: host.bytes_written,
            bytes_discarded: host.bytes_discarded,
            pages_read: host.pages_read,
            pages_written: host.pages_written,
            medium_bytes_read: disk.bytes_read,
            medium_bytes_written: disk.bytes_written,
            ..disk
        }
    }

    fn wear(&self) -> Wear {
        self.disk.wear()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}
