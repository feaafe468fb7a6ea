//! A member of the virtual world: what its model has under way, and when that ends.

use crate::sim::spread::Spread;
use isotherm_core::Nanos;
use isotherm_models::{DeviceModel, ModelOp};
use std::collections::VecDeque;

/// A member: its model and when that next has something.
pub(crate) struct Device {
    pub model: Box<dyn DeviceModel>,
    pub tier: u8,
    pub(super) next: u64,
    /// It tells finish times at the start (flash, remote), as far as is known.
    pub(super) timed: bool,
    /// What it told: (finish, id), in order of time, then of the start.
    pub(super) finishing: VecDeque<(u64, u32)>,
    /// Where its slots lie.
    spread: Option<Spread>,
    /// By operation: pieces still to finish beside the first. Short, and mostly empty.
    more: Vec<(u32, u32)>,
}

impl Device {
    /// An idle one; its slots lie where `spread` says.
    pub(super) fn new(model: Box<dyn DeviceModel>, tier: u8, spread: Option<Spread>) -> Device {
        Device {
            model,
            tier,
            next: u64::MAX,
            timed: true,
            finishing: VecDeque::with_capacity(64),
            spread,
            more: Vec::new(),
        }
    }

    /// Start an operation.
    #[inline]
    fn start(&mut self, now: u64, id: u32, op: ModelOp, offset: u64, len: u32) {
        if self.timed {
            if let Some(finish) = self.model.start_timed(Nanos(now), op, offset, len) {
                // Mostly the last of all, so a look from the back beats a heap.
                let mut i = self.finishing.len();
                while i > 0 && self.finishing[i - 1].0 > finish.0 {
                    i -= 1;
                }
                self.finishing.insert(i, (finish.0, id));
                return self.look();
            }
            self.timed = false;
        }
        self.model.start(Nanos(now), u64::from(id), op, offset, len);
        self.look();
    }

    /// Start an operation of the engine, which knows slots, where they lie.
    #[inline]
    pub(super) fn start_spread(&mut self, now: u64, id: u32, op: ModelOp, offset: u64, len: u32) {
        let Some(spread) = self.spread.take() else {
            return self.start(now, id, op, offset, len);
        };
        let mut pieces = 0;
        spread.pieces(offset, len, |at, n| {
            pieces += 1;
            self.start(now, id, op, at, n);
        });
        self.spread = Some(spread);
        if pieces > 1 {
            self.more.push((id, pieces - 1));
        }
    }

    /// A piece of `id` ended: was it the last?
    #[inline]
    pub(super) fn whole(&mut self, id: u32) -> bool {
        if self.more.is_empty() {
            return true;
        }
        let Some(i) = self.more.iter().position(|m| m.0 == id) else {
            return true;
        };
        self.more[i].1 -= 1;
        if self.more[i].1 == 0 {
            self.more.swap_remove(i);
        }
        false
    }

    #[inline]
    pub(super) fn look(&mut self) {
        self.next = self.finishing.front().map_or(u64::MAX, |f| f.0);
        if !self.timed {
            let event = self.model.next_event().map_or(u64::MAX, |t| t.0);
            self.next = self.next.min(event);
        }
    }
}
