//! Pieces of requests that cannot proceed at the moment, and the events that let them try again.

use super::edges::Edges;
use crate::engine::by_extent::ByExtent;
use crate::units::ExtentId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

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

/// A piece of the queue while the queue is being tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub(super) piece: Waiter,
    /// Whether it may have waited for something that has changed. If not, it stays in the queue.
    pub(super) is_due: bool,
}

/// A small summary of a set of requests. It answers whether the set contains a request other than a given one.
#[derive(Clone, Copy, Debug, Default)]
struct RequestSet {
    first: Option<u32>,
    /// Whether there is a request other than `first`.
    more: bool,
}

impl RequestSet {
    fn add(&mut self, r: u32) {
        self.more |= *self.first.get_or_insert(r) != r;
    }
    fn has_other_than(&self, r: u32) -> bool {
        self.more || self.first.is_some_and(|first| first != r)
    }
}

/// The requests that have pieces of one extent in the queue: all of them, and those that will change the extent.
#[derive(Clone, Copy, Debug, Default)]
struct QueuedOn {
    all: RequestSet,
    changers: RequestSet,
    /// Whether something has changed on the extent since these pieces were tried.
    changed: bool,
}

/// See the module.
#[derive(Debug)]
pub(in crate::engine) struct Waiting {
    queue: VecDeque<Waiter>,
    /// The requests whose pieces wait in the queue, by extent.
    on: ByExtent<QueuedOn>,
    /// The pieces that are being tried; empty between two tries.
    trying: Vec<Tried>,
    is_trying: bool,
    /// Pieces that wait for a free slot. They are tried again only when one was freed.
    pub(super) starving: VecDeque<Waiter>,
    /// Extents that are locked by unaligned writes.
    pub(super) edges: Edges,
    /// `retry`: something has changed for which any piece in the queue may have waited. `some_changed`: only pieces on some extents may
    /// have waited for the change.
    retry: bool,
    some_changed: bool,
    /// Whether a slot was freed, or can be freed.
    freed: bool,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            queue: VecDeque::with_capacity(256),
            on: ByExtent::new(256),
            trying: Vec::with_capacity(256),
            is_trying: false,
            starving: VecDeque::new(),
            edges: Edges::default(),
            retry: false,
            some_changed: false,
            freed: false,
        }
    }
}

impl Waiting {
    /// Notes a change for which any piece may have waited.
    #[inline]
    pub(in crate::engine) fn try_queue(&mut self) {
        self.retry = true;
    }
    /// Notes a change of a move of `e`, for which only pieces on `e` may have waited.
    pub(in crate::engine) fn extent_changed(&mut self, e: ExtentId) {
        if self.is_trying {
            // Pieces that are still to be tried are not in the queue at the moment, so all pieces are tried once more.
            self.retry = true;
        } else if self.on.get(e).is_some() {
            self.on.entry(e).changed = true;
            self.some_changed = true;
        }
    }
    /// Notes that a slot was freed, or can be freed.
    #[inline]
    pub(in crate::engine) fn slot_freed(&mut self) {
        self.freed = true;
    }
    /// Whether `e` is in use by something other than a move: a lock or a waiting piece.
    pub(in crate::engine) fn holds(&self, e: ExtentId) -> bool {
        self.edges.holds(e) || self.on.get(e).is_some()
    }
    /// Queues a piece. `changes`: its request changes the extent, and does not only read it.
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
    pub(in crate::engine) fn is_any_waiting(&self) -> bool {
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
        self.retry || self.some_changed
    }
    /// Whether the pieces that wait for a slot should be tried.
    #[inline]
    pub(in crate::engine) fn starving_due(&self) -> bool {
        self.freed && !self.starving.is_empty()
    }
    /// Begins to try the queue: empties it and returns its pieces, in order of arrival. The caller queues a piece again if it still waits,
    /// and finally returns the list to [`Waiting::tried`].
    pub(super) fn take_queue(&mut self) -> Vec<Tried> {
        let all = core::mem::take(&mut self.retry);
        self.some_changed = false;
        self.is_trying = true;
        let mut trying = core::mem::take(&mut self.trying);
        for piece in self.queue.drain(..) {
            let on = self.on.get(piece.extent);
            let is_due = all || on.is_some_and(|on| on.changed);
            trying.push(Tried { piece, is_due });
        }
        for t in &trying {
            self.on.remove(t.piece.extent);
        }
        trying
    }
    /// Ends the try of the queue. The list's memory is kept.
    pub(super) fn tried(&mut self, mut trying: Vec<Tried>) {
        trying.clear();
        self.trying = trying;
        self.is_trying = false;
    }
    pub(super) fn trying_starving(&mut self) {
        self.freed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(req: u32, e: u32) -> Waiter {
        Waiter {
            req,
            extent: ExtentId(e),
            from: 0,
            to: 4096,
            touched: true,
        }
    }

    #[test]
    fn other_requests_on_an_extent_are_recognised() {
        let (mut w, e) = (Waiting::default(), ExtentId(7));
        w.push(piece(1, 7), false);
        w.push(piece(2, 7), true);
        w.push(piece(2, 7), true);
        assert!(w.has_other(e, 1) && w.has_other(e, 2) && w.has_other(e, 3));
        // Only request 2 will change the extent.
        assert!(w.has_other_changer(e, 1) && !w.has_other_changer(e, 2));
        w.push(piece(3, 7), true);
        assert!(w.has_other_changer(e, 2) && w.has_other_changer(e, 3));
        assert!(w.holds(e) && !w.holds(ExtentId(8)) && !w.has_other(ExtentId(8), 1));
    }

    #[test]
    fn only_pieces_on_an_extent_that_changed_are_due() {
        let mut w = Waiting::default();
        (0..3).for_each(|i| w.push(piece(i, i), false));
        w.extent_changed(ExtentId(9));
        assert!(!w.queue_due());
        w.extent_changed(ExtentId(1));
        assert!(w.queue_due());
        let trying = w.take_queue();
        let due: Vec<bool> = trying.iter().map(|t| t.is_due).collect();
        assert_eq!(due, [false, true, false]);
        assert!(!w.queue_due() && !w.holds(ExtentId(0)));
        // A change must not be missed for a piece that is being tried and is therefore not in the queue.
        w.extent_changed(ExtentId(2));
        for t in &trying {
            w.push(t.piece, false);
        }
        w.tried(trying);
        assert!(w.queue_due());
        let trying = w.take_queue();
        assert!(trying.len() == 3 && trying.iter().all(|t| t.is_due));
        w.tried(trying);
        assert!(!w.is_queued() && !w.queue_due());
    }
}
