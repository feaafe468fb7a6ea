//! A member of the virtual world: the operations that its model is serving, and their ends.

use crate::sim::spread::Spread;
use isotherm_core::Nanos;
use isotherm_models::{DeviceModel, ModelOp};
use std::collections::VecDeque;

/// A member: its model, and the time of its next event.
pub(crate) struct Device {
    pub model: Box<dyn DeviceModel>,
    pub tier: u8,
    pub(super) next: u64,
    /// Whether the model reports finish times at the start (flash, remote), as far as is known so far.
    pub(super) timed: bool,
    /// The reported finish times: (finish, id), ordered by time, then by start.
    pub(super) finishing: VecDeque<(u64, u32)>,
    /// The places of its slots.
    spread: Option<Spread>,
    /// By operation: how many further pieces must finish besides the first. The list is short, and usually empty.
    more: Vec<(u32, u32)>,
}

impl Device {
    /// An idle member. `spread` has the places of its slots.
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

    /// Starts an operation.
    #[inline]
    fn start(&mut self, now: u64, id: u32, op: ModelOp, offset: u64, len: u32) {
        if self.timed {
            if let Some(finish) = self.model.start_timed(Nanos(now), op, offset, len) {
                // The new one usually finishes last, so a search from the back beats a heap.
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

    /// Starts an operation of the engine, whose addresses are slots, at the places of these slots.
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

    /// Records that a piece of `id` ended. Returns whether it was the last.
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
