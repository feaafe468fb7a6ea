//! Extents whose durable state differs from the map, in the order in which they came to, and the requests that wait for records.

use crate::bits::Bits;
use crate::units::{ExtentId, Nanos};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    order: VecDeque<ExtentId>,
    members: Bits,
    /// Extents that ever came, and those that ever went into a round.
    pushed: u64,
    taken: u64,
    /// Records committed, and of these the ones that the mirror has.
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
    /// A record of `e` is due, at `by` at the latest if it is the first.
    pub(super) fn note(&mut self, e: ExtentId, by: Nanos) {
        if self.members.set(e.0 as usize) {
            self.order.push_back(e);
            self.pushed += 1;
        }
        self.due.get_or_insert(by);
    }
    /// Everything noted so far is durable once this many records were committed.
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
    /// When a round should carry them that nobody waits for.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }
    pub(super) fn first(&self) -> Option<ExtentId> {
        self.order.front().copied()
    }
    /// The round has the record of the first.
    pub(super) fn take_first(&mut self) {
        if let Some(e) = self.order.pop_front() {
            self.members.clear(e.0 as usize);
            self.taken += 1;
        }
    }
    /// The round has what it has room for; how many records that makes since the start.
    pub(super) fn taken(&mut self) -> u64 {
        if self.order.is_empty() {
            self.due = None;
        }
        self.taken
    }
    /// So many records are durable, `everywhere` on the mirror as well.
    pub(super) fn commit(&mut self, taken: u64, everywhere: bool) {
        self.committed = taken;
        if everywhere {
            self.mirrored = taken;
        }
    }
    /// Records that are durable, and those that all who must know have.
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

/// Requests that wait for a round, with the number of records that they need.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    queue: Vec<(u32, u64)>,
    /// Those of the round under way.
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
    /// The round under way serves this one too.
    pub(super) fn board_late(&mut self, r: u32, mark: u64) {
        self.serving.push((r, mark));
    }
    /// Does nobody wait for a round to begin?
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
    /// The round that begins is for those who wait.
    pub(super) fn board(&mut self) {
        core::mem::swap(&mut self.queue, &mut self.serving);
    }
    pub(super) fn are_served(&self) -> bool {
        !self.serving.is_empty()
    }
    /// Whoever came since counts as one of those of the round (a mutant).
    pub(super) fn hurry(&mut self) {
        let late = self.queue.drain(..).map(|(r, _)| (r, 0));
        self.serving.extend(late);
    }
    /// So many records are durable: who is served; the others wait on, since there were more changes than one round carries.
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
    /// No round will come for anybody.
    pub(super) fn dismiss(&mut self, mut each: impl FnMut(u32)) {
        let mut all = core::mem::take(&mut self.serving);
        all.append(&mut self.queue);
        all.drain(..).for_each(|(r, _)| each(r));
        self.serving = all;
    }
}
