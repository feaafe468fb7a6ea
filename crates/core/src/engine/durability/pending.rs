//! Extents whose durable state differs from the map, in the order of these changes, and the requests that wait for their records.

use crate::units::{ExtentId, Nanos};
use crate::volume::UnitSet;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    order: VecDeque<ExtentId>,
    members: UnitSet,
    /// Number of extents that were added since the start, and of those whose record went into a round.
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
            members: UnitSet::new(extents),
            pushed: 0,
            taken: 0,
            committed: 0,
            mirrored: 0,
            due: None,
        }
    }
    /// Notes that a record of `e` is due. If no other record is pending, it is due at `by`.
    pub(super) fn note(&mut self, e: ExtentId, by: Nanos) {
        if self.members.insert(e) {
            self.order.push_back(e);
            self.pushed += 1;
        }
        self.due.get_or_insert(by);
    }
    /// A round is due at `by`, without a record.
    pub(super) fn round_by(&mut self, by: Nanos) {
        self.due.get_or_insert(by);
    }
    /// When this number of records is committed, everything that is noted so far is durable.
    pub(super) fn mark(&self) -> u64 {
        self.pushed
    }
    pub(super) fn contains(&self, e: ExtentId) -> bool {
        self.members.contains(e)
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
    /// Removes the first extent, because its record is part of the round.
    pub(super) fn take_first(&mut self) {
        if let Some(e) = self.order.pop_front() {
            self.members.remove(e);
            self.taken += 1;
        }
    }
    /// Whether the first `mark` records since the start have left this list: they are in blocks of the journal.
    pub(super) fn has_taken(&self, mark: u64) -> bool {
        self.taken >= mark
    }
    /// Called when the round contains as many records as it has space for. Returns the number of records that went into rounds since the
    /// start.
    pub(super) fn taken(&mut self) -> u64 {
        if self.order.is_empty() {
            self.due = None;
        }
        self.taken
    }
    /// Notes that this number of records is durable; with `everywhere`, on the mirror as well.
    pub(super) fn commit(&mut self, taken: u64, everywhere: bool) {
        self.committed = taken;
        if everywhere {
            self.mirrored = taken;
        }
    }
    /// The number of records that are durable on the primary, and the number of those that are durable on every member that must have them.
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

/// Requests that wait for a round, each with the number of records that it needs. Later requests need as many records or more.
#[derive(Clone, Debug)]
pub(super) struct RoundQueue {
    queue: VecDeque<(u32, u64)>,
    /// The requests that the round in progress serves.
    serving: VecDeque<(u32, u64)>,
    /// The requests whose records are kept when the round in progress has ended.
    later: Vec<u32>,
}

impl Default for RoundQueue {
    fn default() -> RoundQueue {
        RoundQueue {
            queue: VecDeque::with_capacity(256),
            serving: VecDeque::with_capacity(256),
            later: Vec::new(),
        }
    }
}

impl RoundQueue {
    pub(super) fn join(&mut self, r: u32, mark: u64) {
        self.queue.push_back((r, mark));
    }
    /// Adds a request that the round in progress serves, too.
    pub(super) fn join_current(&mut self, r: u32, mark: u64) {
        self.serving.push_back((r, mark));
    }
    /// Adds a request whose records are kept when the round in progress has ended.
    pub(super) fn keep_later(&mut self, r: u32) {
        self.later.push(r);
    }
    /// Removes and returns these requests.
    pub(super) fn kept_later(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.later)
    }
    /// Whether no request waits for a round to begin.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
    /// Assigns the waiting requests to the round that begins.
    pub(super) fn start_round(&mut self) {
        core::mem::swap(&mut self.queue, &mut self.serving);
    }
    pub(super) fn serves_any(&self) -> bool {
        !self.serving.is_empty()
    }
    /// Lets the round also serve the requests that came since it began (a mutant).
    pub(super) fn serve_queued(&mut self) {
        let late = self.queue.drain(..).map(|(r, _)| (r, 0));
        self.serving.extend(late);
    }
    /// Called when the round is durable: `committed` records are. Calls `served` for each request that needs no more than these. The others
    /// continue to wait, because there were more changes than one round can write. Returns whether there are others.
    pub(super) fn round_done(&mut self, committed: u64, mut served: impl FnMut(u32)) -> bool {
        while let Some(&(r, _)) = self.serving.front().filter(|s| s.1 <= committed) {
            self.serving.pop_front();
            served(r);
        }
        let more = !self.serving.is_empty();
        if more {
            self.serving.append(&mut self.queue);
            core::mem::swap(&mut self.queue, &mut self.serving);
        }
        more
    }
    /// Removes all requests, because there will be no more rounds, and calls `each` for every one of them.
    pub(super) fn dismiss(&mut self, mut each: impl FnMut(u32)) {
        let mut all = core::mem::take(&mut self.serving);
        all.append(&mut self.queue);
        all.extend(self.later.drain(..).map(|r| (r, 0)));
        all.drain(..).for_each(|(r, _)| each(r));
        self.serving = all;
    }
}
