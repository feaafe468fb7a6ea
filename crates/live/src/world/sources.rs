//! Front ends on the engine's own thread: from a descriptor, or from entries in its ring.

use super::ring::{self, RingSource};
use super::{UringWorld, WATCH};
use crate::buffers::Pool;
use io_uring::{opcode, types};
use rustix::event::PollFlags;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// Result of a call of a [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// All input was taken: call again when the descriptor is readable.
    Empty,
    /// It could not take more now: call again after the next events.
    Busy,
    /// Never call again.
    Ended,
}

/// Takes requests from a descriptor on the engine's own thread and hands them to the port.
pub trait Source: Send {
    /// The descriptor to watch for input.
    fn fd(&self) -> RawFd;
    /// Takes the available input; must not block.
    fn receive(&mut self) -> Watch;
    /// All events that came together have been handled: sends the replies that accumulated meanwhile. Must not block.
    fn settle(&mut self) {}
}

/// Interval at which a source that waits for memory is called again, because no event reports memory that another thread returns.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(1);

impl UringWorld {
    /// Calls `source` on this thread whenever its descriptor is readable.
    pub fn add_source(&mut self, source: Box<dyn Source>) {
        // The place of a source that ended can be reused: it ends during a call, when nothing watches its descriptor.
        match self.sources.iter_mut().find(|s| s.0.is_none()) {
            Some(place) => *place = (Some(source), true),
            None => self.sources.push((Some(source), true)),
        }
        self.woken = true;
    }

    /// Memory, registered with the ring, for the payload of a [`RingSource`]. `None` if this ring accepts no such source.
    pub(crate) fn ring_memory(&self) -> Option<Arc<Pool>> {
        self.arena.ring.clone().filter(|_| self.ring.is_wide())
    }

    /// From now on, puts the entries of `source` into the ring and passes results to it. A source with long entries may be added only if
    /// there is [`UringWorld::ring_memory`].
    pub(crate) fn add_ring_source(&mut self, source: Box<dyn RingSource>) {
        match self.ring_sources.iter_mut().find(|s| s.is_none()) {
            Some(place) => *place = Some(source),
            None => self.ring_sources.push(Some(source)),
        }
        self.woken = true;
    }

    /// Puts the entries of ring sources into the ring.
    pub(super) fn take_from_ring_sources(&mut self) {
        for i in 0..self.ring_sources.len() {
            let Some(mut source) = self.ring_sources[i].take() else {
                continue;
            };
            source.put(&mut |number, entry| {
                let entry = entry.named(ring::name(i, number));
                // SAFETY: what it points to stays until it comes back: see `RingSource`.
                while !unsafe { self.ring.push_any(&entry) } {
                    self.enter(0, None);
                }
            });
            self.ring_sources[i] = (!source.is_over()).then_some(source);
        }
    }

    pub(super) fn call_sources(&mut self) {
        for i in 0..self.sources.len() {
            if !self.sources[i].1 {
                continue;
            }
            let Some(mut source) = self.sources[i].0.take() else {
                continue;
            };
            let how = source.receive();
            if how == Watch::Empty {
                let entry =
                    opcode::PollAdd::new(types::Fd(source.fd()), PollFlags::IN.bits().into())
                        .build();
                self.push(&entry.user_data(WATCH + i as u64));
            }
            self.sources[i].1 = how == Watch::Busy;
            self.sources[i].0 = (how != Watch::Ended).then_some(source);
        }
    }

    /// Lets the sources send the replies that accumulated.
    pub(super) fn settle_sources(&mut self) {
        for (source, _) in &mut self.sources {
            if let Some(source) = source {
                source.settle();
            }
        }
    }

    pub(super) fn has_busy_source(&self) -> bool {
        self.sources.iter().any(|s| s.1)
    }
}
