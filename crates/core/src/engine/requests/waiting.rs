//! Pieces of requests that cannot go on just now, and what they wait for.

use super::edges::Edges;
use crate::units::ExtentId;
use alloc::collections::VecDeque;

/// A piece of a request (within one extent) that cannot go on just now.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Waiter {
    pub(super) req: u32,
    pub(in crate::engine) extent: ExtentId,
    pub(in crate::engine) from: u64,
    pub(in crate::engine) to: u64,
    /// The policy has seen this access.
    pub(super) touched: bool,
}

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Waiting {
    pub(super) queue: VecDeque<Waiter>,
    /// The other of the two queues that take turns.
    pub(super) spare: VecDeque<Waiter>,
    /// Pieces that wait for a free slot; tried again only when one was freed.
    pub(super) starving: VecDeque<Waiter>,
    /// Extents locked by odd writes.
    pub(super) edges: Edges,
    /// Something changed that a piece in the queue may have waited for.
    retry: bool,
    /// A slot was freed, or one can be made free.
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
    /// Something changed that a piece may have waited for.
    #[inline]
    pub(in crate::engine) fn try_queue(&mut self) {
        self.retry = true;
    }
    /// A slot was freed, or one can be made free.
    #[inline]
    pub(in crate::engine) fn slot_freed(&mut self) {
        self.freed = true;
    }
    /// Both.
    pub(in crate::engine) fn try_all(&mut self) {
        (self.retry, self.freed) = (true, true);
    }
    /// Does something hold `e` that is no move?
    pub(in crate::engine) fn holds(&self, e: ExtentId) -> bool {
        self.edges.holds(e) || self.queue.iter().any(|w| w.extent == e)
    }
    /// Does anybody wait?
    pub(in crate::engine) fn is_anybody(&self) -> bool {
        !self.queue.is_empty() || !self.starving.is_empty()
    }
    /// Does anybody wait in the queue?
    pub(in crate::engine) fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }
    /// Does a piece wait for a free slot?
    pub(in crate::engine) fn is_starving(&self) -> bool {
        !self.starving.is_empty()
    }
    /// Should the queue be tried?
    #[inline]
    pub(in crate::engine) fn queue_due(&self) -> bool {
        self.retry
    }
    /// Should those that wait for a slot be tried?
    #[inline]
    pub(in crate::engine) fn starving_due(&self) -> bool {
        self.freed && !self.starving.is_empty()
    }
    /// They are tried now.
    pub(super) fn trying_queue(&mut self) {
        self.retry = false;
    }
    pub(super) fn trying_starving(&mut self) {
        self.freed = false;
    }
}
