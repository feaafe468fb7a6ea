//! Pieces of requests that cannot proceed at the moment, and what they wait for.

use super::edges::Edges;
use crate::engine::by_extent::ByExtent;
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

/// The requests of some pieces, as far as somebody asks: is there one other than mine?
#[derive(Clone, Copy, Debug, Default)]
struct Who {
    first: Option<u32>,
    /// Whether there is a request other than `first`.
    more: bool,
}

impl Who {
    fn add(&mut self, r: u32) {
        self.more |= *self.first.get_or_insert(r) != r;
    }
    fn has_other_than(&self, r: u32) -> bool {
        self.more || self.first.is_some_and(|first| first != r)
    }
}

/// The requests with pieces of one extent in the queue: all of them, and those that will change it.
#[derive(Clone, Copy, Debug, Default)]
struct On {
    all: Who,
    changers: Who,
}

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Waiting {
    queue: VecDeque<Waiter>,
    /// Who waits in the queue, by extent.
    on: ByExtent<On>,
    /// The second one of the two queues, which are used alternately.
    spare: VecDeque<Waiter>,
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
            on: ByExtent::new(256),
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
        self.edges.holds(e) || self.on.get(e).is_some()
    }
    /// Queues a piece, whose request `changes` its extent or only reads it.
    pub(super) fn push(&mut self, w: Waiter, changes: bool) {
        let on = self.on.entry(w.extent);
        on.all.add(w.req);
        if changes {
            on.changers.add(w.req);
        }
        self.queue.push_back(w);
    }
    /// Whether a piece of a request other than `r` waits for `e`.
    pub(super) fn has_other(&self, e: ExtentId, r: u32) -> bool {
        self.on.get(e).is_some_and(|on| on.all.has_other_than(r))
    }
    /// Whether a piece of a request other than `r` waits for `e` that will change it.
    pub(super) fn has_other_changer(&self, e: ExtentId, r: u32) -> bool {
        let on = self.on.get(e);
        on.is_some_and(|on| on.changers.has_other_than(r))
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
    /// The queue is tried now: its pieces, in order of arrival. A piece that waits again goes to a new queue, so that only pieces in that
    /// queue are ahead of others. The list is given back by [`Waiting::tried`].
    pub(super) fn trying_queue(&mut self) -> VecDeque<Waiter> {
        self.retry = false;
        let mut trying = core::mem::take(&mut self.spare);
        core::mem::swap(&mut trying, &mut self.queue);
        for w in &trying {
            self.on.remove(w.extent);
        }
        trying
    }
    /// All of these were tried: the list is empty.
    pub(super) fn tried(&mut self, trying: VecDeque<Waiter>) {
        self.spare = trying;
    }
    pub(super) fn trying_starving(&mut self) {
        self.freed = false;
    }
}
