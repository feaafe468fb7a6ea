//! The access queue (OODT III-B, 3.2.1; docs/policy-rules.md section 4): what the I/O scheduler will probably merge counts as one request.
//!
//! It holds pending requests (first block, last block, operation, metadata flag). A block access merges with the oldest pending
//! request of its operation and flag that it lies in or extends at either end by exactly one block; else it is appended, and
//! a full queue lets its oldest go first. A merge does not change the order, and neighbours grown together do not join.

use alloc::collections::VecDeque;

/// A request on its way through the queue; blocks are extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its first block.
    pub start: u32,
    /// Its last block.
    pub end: u32,
    /// Write, or read.
    pub write: bool,
    /// Of metadata.
    pub metadata: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct AccessQueue {
    pending: VecDeque<Pending>,
    size: usize,
}

impl Default for AccessQueue {
    /// Eight pending requests, as published.
    fn default() -> AccessQueue {
        AccessQueue::new(8)
    }
}

impl AccessQueue {
    /// Of that many pending requests, at least one.
    pub fn new(size: usize) -> AccessQueue {
        AccessQueue {
            pending: VecDeque::new(),
            size: size.max(1),
        }
    }
    /// Pending requests at most.
    pub fn size(&self) -> usize {
        self.size
    }
    /// Pending requests at most, from the next access on. Above that, one leaves with every access that does not merge.
    pub fn resize(&mut self, size: usize) {
        self.size = size.max(1);
    }
    /// Block `b` is accessed; the request that leaves, if one does.
    pub fn access(&mut self, b: u32, write: bool, metadata: bool) -> Option<Pending> {
        for r in &mut self.pending {
            if (r.write, r.metadata) == (write, metadata)
                && b.saturating_add(1) >= r.start
                && b <= r.end.saturating_add(1)
            {
                r.start = r.start.min(b);
                r.end = r.end.max(b);
                return None;
            }
        }
        let oldest = (self.pending.len() >= self.size)
            .then(|| self.pending.pop_front())
            .flatten();
        self.pending.push_back(Pending {
            start: b,
            end: b,
            write,
            metadata,
        });
        oldest
    }
    /// The oldest leaves.
    pub fn pop(&mut self) -> Option<Pending> {
        self.pending.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_kind_merge_at_either_end() {
        let mut q = AccessQueue::new(2);
        for (b, write) in [(5, false), (6, false), (4, false), (5, false), (7, true)] {
            assert_eq!(q.access(b, write, false), None);
        }
        let read = Pending {
            start: 4,
            end: 6,
            write: false,
            metadata: false,
        };
        assert_eq!(q.access(9, false, false), Some(read), "two are pending");
        assert_eq!(
            q.pop().map(|r| (r.start, r.end, r.write)),
            Some((7, 7, true))
        );
        assert_eq!(q.pop().map(|r| (r.start, r.end)), Some((9, 9)));
        assert_eq!(q.pop(), None);
    }
}
