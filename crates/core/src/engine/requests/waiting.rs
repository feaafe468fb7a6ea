//! Pieces of requests that cannot proceed at the moment, and what they wait for.

use super::edges::Edges;
use crate::units::ExtentId;
use alloc::collections::VecDeque;

/// A piece of a request (within one extent) that cannot proceed at the moment.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Waiter {
    pub(super) req: u32,
    pub(in crate::engine) extent: ExtentId,
    pub(in crate::engine) from: u64,
    pub(in crate::engine) to: u64,
    /// Whether the policy has seen this access.
    pub(super) touched: bool,
}

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Waiting {
    pub(super) queue: VecDeque<Waiter>,
    /// The second one of the two queues, which are used alternately.
    pub(super) spare: VecDeque<Waiter>,
    /// Pieces that wait for a free slot. They are tried again only when one was freed.
    pub(super) starving: VecDeque<Waiter>,
    /// Extents locked by odd writes.
    pub(super) edges: Edges,
    /// Whether something has changed for which a piece in the queue may have waited.
    retry: bool,
    /// Whether a slot was freed, or can be freed.
    freed: bool,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            queue: VecDeque::with_capacity(256),
            spare: VecDeque::with_capacity(256),
            starving: VecDeque::new(),
            edges: Edges::default(),
            retry: false,
            freed: false,
        }
    }
}

impl Waiting {
    /// Something has changed for which a piece may have waited.
    #[inline]
    pub(in crate::engine) fn try_queue(&mut self) {
        self.retry = true;
    }
    /// A slot was freed, or can be freed.
    #[inline]
    pub(in crate::engine) fn slot_freed(&mut self) {
        self.freed = true;
    }
    /// Both of these.
    pub(in crate::engine) fn try_all(&mut self) {
        (self.retry, self.freed) = (true, true);
    }
    /// Whether `e` is held by something other than a move.
    pub(in crate::engine) fn holds(&self, e: ExtentId) -> bool {
        self.edges.holds(e) || self.queue.iter().any(|w| w.extent == e)
    }
    /// Whether any piece waits.
    pub(in crate::engine) fn is_anybody(&self) -> bool {
        !self.queue.is_empty() || !self.starving.is_empty()
    }
    /// Whether a piece waits in the queue.
    pub(in crate::engine) fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }
    /// Whether a piece waits for a free slot.
    pub(in crate::engine) fn is_starving(&self) -> bool {
        !self.starving.is_empty()
    }
    /// Whether the queue should be tried.
    #[inline]
    pub(in crate::engine) fn queue_due(&self) -> bool {
        self.retry
    }
    /// Whether the pieces that wait for a slot should be tried.
    #[inline]
    pub(in crate::engine) fn starving_due(&self) -> bool {
        self.freed && !self.starving.is_empty()
    }
    /// The queue is tried now.
    pub(super) fn trying_queue(&mut self) {
        self.retry = false;
    }
    pub(super) fn trying_starving(&mut self) {
        self.freed = false;
    }
}
