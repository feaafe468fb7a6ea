//! Extents whose durable state differs from the map, in the order in which that became so, and the requests that wait for records.

use crate::bits::Bits;
use crate::units::{ExtentId, Nanos};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    order: VecDeque<ExtentId>,
    members: Bits,
    /// Number of extents that were ever added, and of those that ever went into a round.
    pushed: u64,
    taken: u64,
    /// Number of records that are committed, and of those that the mirror has.
    committed: u64,
    mirrored: u64,
    due: Option<Nanos>,
}

impl Pending {
    pub(super) fn new(extents: u32) -> Pending {
        Pending {
            order: VecDeque::with_capacity(4096),
            members: Bits::new(extents as usize),
            pushed: 0,
            taken: 0,
            committed: 0,
            mirrored: 0,
            due: None,
        }
    }
    /// A record of `e` is due. If it is the first one, it is due by `by` at the latest.
    pub(super) fn note(&mut self, e: ExtentId, by: Nanos) {
        if self.members.set(e.0 as usize) {
            self.order.push_back(e);
            self.pushed += 1;
        }
        self.due.get_or_insert(by);
    }
    /// The number of committed records after which everything that is noted so far is durable.
    pub(super) fn mark(&self) -> u64 {
        self.pushed
    }
    pub(super) fn contains(&self, e: ExtentId) -> bool {
        self.members.get(e.0 as usize)
    }
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
    /// The time at which a round should write them even if no request waits.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }
    pub(super) fn first(&self) -> Option<ExtentId> {
        self.order.front().copied()
    }
    /// The round has the record of the first extent.
    pub(super) fn take_first(&mut self) {
        if let Some(e) = self.order.pop_front() {
            self.members.clear(e.0 as usize);
            self.taken += 1;
        }
    }
    /// The round has as many records as it has space for. Returns their number since the start.
    pub(super) fn taken(&mut self) -> u64 {
        if self.order.is_empty() {
            self.due = None;
        }
        self.taken
    }
    /// This number of records is durable; with `everywhere`, on the mirror as well.
    pub(super) fn commit(&mut self, taken: u64, everywhere: bool) {
        self.committed = taken;
        if everywhere {
            self.mirrored = taken;
        }
    }
    /// The number of records that are durable, and of those that are on every member that must have them.
    pub(super) fn committed(&self, has_mirror: bool) -> (u64, u64) {
        let everywhere = if has_mirror {
            self.mirrored
        } else {
            self.committed
        };
        (self.committed, everywhere)
    }
    pub(super) fn bytes(&self) -> usize {
        self.members.bytes() + self.order.capacity() * 4
    }
}

/// Requests that wait for a round, each with the number of records that it needs.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    queue: Vec<(u32, u64)>,
    /// The requests that the round in progress serves.
    serving: Vec<(u32, u64)>,
}

impl Default for Callers {
    fn default() -> Callers {
        Callers {
            queue: Vec::with_capacity(256),
            serving: Vec::with_capacity(256),
        }
    }
}

impl Callers {
    pub(super) fn join(&mut self, r: u32, mark: u64) {
        self.queue.push((r, mark));
    }
    /// The round in progress serves this request, too.
    pub(super) fn board_late(&mut self, r: u32, mark: u64) {
        self.serving.push((r, mark));
    }
    /// Whether no request waits for a round to begin.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
    /// The round that begins serves the waiting requests.
    pub(super) fn board(&mut self) {
        core::mem::swap(&mut self.queue, &mut self.serving);
    }
    pub(super) fn are_served(&self) -> bool {
        !self.serving.is_empty()
    }
    /// Requests that came since count as served by the round (a mutant).
    pub(super) fn hurry(&mut self) {
        let late = self.queue.drain(..).map(|(r, _)| (r, 0));
        self.serving.extend(late);
    }
    /// This number of records is durable. Calls `served` for the requests that need no more; the others continue to wait, because there
    /// were more changes than one round can write.
    pub(super) fn land(&mut self, committed: u64, mut served: impl FnMut(u32)) {
        let mut serving = core::mem::take(&mut self.serving);
        for (r, mark) in serving.drain(..) {
            if committed >= mark {
                served(r);
            } else {
                self.queue.push((r, mark));
            }
        }
        self.serving = serving;
    }
    /// No round will come any more: calls `each` for every request.
    pub(super) fn dismiss(&mut self, mut each: impl FnMut(u32)) {
        let mut all = core::mem::take(&mut self.serving);
        all.append(&mut self.queue);
        all.drain(..).for_each(|(r, _)| each(r));
        self.serving = all;
    }
}
