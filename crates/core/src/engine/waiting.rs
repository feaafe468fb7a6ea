//! Pieces of requests that cannot proceed at the moment, and the events that let them try again; extents that are locked.

use super::slab::Slab;
use crate::by_number::ByNumber;
use crate::units::ExtentId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A piece of a request (within one extent) that cannot proceed at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) req: u32,
    pub(super) extent: ExtentId,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Whether the policy has seen this access.
    pub(super) touched: bool,
    /// Whether it is a write that the copy's device has failed to take, so that the home does.
    pub(super) past_copy: bool,
    /// Whether it is a read that the home's device has failed, so that the copy serves it.
    pub(super) past_home: bool,
}

/// The holders of the lock of an extent.
#[derive(Clone, Copy, Debug, Default)]
struct Lock {
    by: Option<u32>,
    filling: bool,
}

/// Extents that are locked by unaligned writes (`requests/edges.rs`) and by fills (`requests/fill.rs`).
#[derive(Clone, Debug)]
pub(super) struct Edges {
    locked: ByNumber<Lock>,
}

impl Default for Edges {
    fn default() -> Edges {
        Edges {
            locked: ByNumber::new(16),
        }
    }
}

impl Edges {
    /// Whether a request other than `r`, or a fill, locks `e`.
    pub(super) fn blocks(&self, e: ExtentId, r: u32) -> bool {
        let lock = self.locked.get(e.0);
        lock.is_some_and(|l| l.filling || l.by.is_some_and(|by| by != r))
    }
    /// Whether `r` locks `e`.
    pub(super) fn locked_by(&self, e: ExtentId, r: u32) -> bool {
        self.locked.get(e.0).is_some_and(|l| l.by == Some(r))
    }
    /// Whether `e` is locked.
    pub(super) fn holds(&self, e: ExtentId) -> bool {
        self.locked.get(e.0).is_some()
    }
    /// Locks `e` for `r`.
    pub(super) fn lock(&mut self, e: ExtentId, r: u32) {
        self.locked.entry(e.0).by = Some(r);
    }
    /// Unlocks `e`; returns false if `r` had not locked it.
    pub(super) fn unlock(&mut self, e: ExtentId, r: u32) -> bool {
        let was = self.locked_by(e, r);
        if was {
            self.locked.entry(e.0).by = None;
            self.tidy(e);
        }
        was
    }
    /// Locks `e` until [`Edges::filled`], for a fill.
    pub(super) fn fill(&mut self, e: ExtentId) {
        self.locked.entry(e.0).filling = true;
    }
    /// The fill of `e` has ended.
    pub(super) fn filled(&mut self, e: ExtentId) {
        if self.holds(e) {
            self.locked.entry(e.0).filling = false;
            self.tidy(e);
        }
    }
    fn tidy(&mut self, e: ExtentId) {
        let unused = |l: &Lock| l.by.is_none() && !l.filling;
        if self.locked.get(e.0).as_ref().is_some_and(unused) {
            self.locked.remove(e.0);
        }
    }
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

/// A piece in the queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    piece: Waiter,
    /// Its place in the order of arrival.
    order: u64,
    /// The next piece of the same extent.
    next: Option<u32>,
}

/// The pieces of one extent in the queue, as a list, and their requests: all of them, and those that will change the extent.
#[derive(Clone, Copy, Debug, Default)]
struct QueuedOn {
    first: Option<u32>,
    last: u32,
    all: RequestSet,
    changers: RequestSet,
    /// Whether something has changed on the extent since these pieces were tried.
    changed: bool,
}

/// See the module. A piece in the queue waits for its extent, and is tried again only when something has changed there. So an event costs
/// no more if many pieces wait for other extents.
#[derive(Debug)]
pub(super) struct Waiting {
    queue: Slab<Queued>,
    /// Number of pieces that were queued so far.
    queued: u64,
    /// By extent: its pieces.
    on: ByNumber<QueuedOn>,
    /// The extents on which something has changed since their pieces were tried.
    changed: Vec<ExtentId>,
    /// The pieces that are being tried, with their order; empty between two tries.
    trying: Vec<(u64, Waiter)>,
    is_trying: bool,
    /// Pieces that wait for a free slot. They are tried again only when one was freed.
    pub(super) starving: VecDeque<Waiter>,
    /// Extents that are locked by unaligned writes.
    pub(super) edges: Edges,
    /// Whether all pieces must be tried.
    retry: bool,
    /// Whether a slot was freed, or can be freed.
    freed: bool,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            queue: Slab::new(256),
            queued: 0,
            on: ByNumber::new(256),
            changed: Vec::with_capacity(256),
            trying: Vec::with_capacity(256),
            is_trying: false,
            starving: VecDeque::new(),
            edges: Edges::default(),
            retry: false,
            freed: false,
        }
    }
}

impl Waiting {
    /// Notes a change for which any piece may have waited: nothing more can become durable.
    pub(super) fn try_all(&mut self) {
        self.retry = true;
    }
    /// Notes a change on `e` (of a move, a lock, a write in progress), for which pieces on `e` may have waited.
    #[inline]
    pub(super) fn extent_changed(&mut self, e: ExtentId) {
        match self.on.get(e.0) {
            Some(on) if on.changed => {}
            Some(_) => {
                self.on.entry(e.0).changed = true;
                self.changed.push(e);
            }
            // A piece of the extent may be the one that is being tried, which is not in the queue at the moment.
            None if self.is_trying => self.changed.push(e),
            None => {}
        }
    }
    /// Notes that a slot was freed, or can be freed.
    #[inline]
    pub(super) fn slot_freed(&mut self) {
        self.freed = true;
    }
    /// Whether `e` is in use by something other than a move: a lock or a waiting piece.
    pub(super) fn holds(&self, e: ExtentId) -> bool {
        self.edges.holds(e) || self.on.get(e.0).is_some()
    }
    /// Queues a piece. `changes`: its request changes the extent, and does not only read it.
    pub(super) fn push(&mut self, w: Waiter, changes: bool) {
        self.queued += 1;
        let new = self.queue.insert(Queued {
            piece: w,
            order: self.queued,
            next: None,
        });
        let on = self.on.entry(w.extent.0);
        on.all.add(w.req);
        if changes {
            on.changers.add(w.req);
        }
        let last = core::mem::replace(&mut on.last, new);
        if on.first.is_some() {
            self.queue.at(last).next = Some(new);
        } else {
            on.first = Some(new);
        }
    }
    /// Whether a piece of a request other than `r` waits for `e`.
    pub(super) fn has_other(&self, e: ExtentId, r: u32) -> bool {
        self.on.get(e.0).is_some_and(|on| on.all.has_other_than(r))
    }
    /// Whether a piece of a request other than `r` waits for `e` that will change it.
    pub(super) fn has_other_changer(&self, e: ExtentId, r: u32) -> bool {
        let on = self.on.get(e.0);
        on.is_some_and(|on| on.changers.has_other_than(r))
    }
    /// Whether any piece waits.
    pub(super) fn is_any_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.starving.is_empty()
    }
    /// Whether a piece waits for a free slot.
    pub(super) fn is_starving(&self) -> bool {
        !self.starving.is_empty()
    }
    /// Whether the queue should be tried.
    #[inline]
    pub(super) fn queue_due(&self) -> bool {
        self.retry || !self.changed.is_empty()
    }
    /// Whether the pieces that wait for a slot should be tried.
    #[inline]
    pub(super) fn starving_due(&self) -> bool {
        self.freed && !self.starving.is_empty()
    }
    /// Begins to try the pieces that may have waited for something that has changed: removes them from the queue and returns them, in order
    /// of arrival. The caller queues a piece again if it still waits, and finally returns the list to [`Waiting::tried`].
    pub(super) fn take_due(&mut self) -> Vec<(u64, Waiter)> {
        self.is_trying = true;
        let mut trying = core::mem::take(&mut self.trying);
        if core::mem::take(&mut self.retry) {
            self.changed.clear();
            self.on.clear();
            self.queue.drain(|q| trying.push((q.order, q.piece)));
        }
        for e in self.changed.drain(..) {
            let mut next = self.on.remove(e.0).and_then(|on| on.first);
            while let Some(i) = next {
                let q = self.queue.remove(i);
                trying.push((q.order, q.piece));
                next = q.next;
            }
        }
        trying.sort_unstable_by_key(|t| t.0);
        trying
    }
    /// Ends the try of the queue. The list's memory is kept.
    pub(super) fn tried(&mut self, mut trying: Vec<(u64, Waiter)>) {
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
            past_copy: false,
            past_home: false,
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
        w.push(piece(3, 1), true);
        w.extent_changed(ExtentId(9));
        assert!(!w.queue_due());
        w.extent_changed(ExtentId(1));
        w.extent_changed(ExtentId(1));
        assert!(w.queue_due());
        let trying = w.take_due();
        let due: Vec<u32> = trying.iter().map(|t| t.1.req).collect();
        assert_eq!(due, [1, 3]);
        assert!(!w.queue_due() && w.holds(ExtentId(0)) && !w.holds(ExtentId(1)));
        // A change must not be missed for a piece that is being tried and is therefore not in the queue.
        w.extent_changed(ExtentId(1));
        for t in &trying {
            w.push(t.1, false);
        }
        w.tried(trying);
        assert!(w.queue_due());
        let trying = w.take_due();
        assert_eq!(trying.len(), 2);
        w.tried(trying);
        assert!(!w.queue_due() && !w.holds(ExtentId(1)));
        w.try_all();
        let trying = w.take_due();
        let due: Vec<u32> = trying.iter().map(|t| t.1.req).collect();
        assert_eq!(due, [0, 2]);
        w.tried(trying);
        assert!(!w.queue_due() && !w.holds(ExtentId(0)) && !w.is_any_waiting());
    }
}
