//! The access queue (OODT III-B, 3.2.1; docs/policy-rules.md section 4): accesses that the I/O scheduler will probably merge count as
//! one request.
//!
//! The queue contains pending requests (first block, last block, operation, metadata flag). A block access merges with the oldest pending
//! request of its operation and flag that contains it or that it extends at either end by exactly one block. Otherwise it is appended; a
//! full queue first releases its oldest request. A merge does not change the order, and requests that have become adjacent are not joined.

use alloc::collections::VecDeque;

/// A request in the queue; blocks are extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its first block.
    pub start: u32,
    /// Its last block.
    pub end: u32,
    /// Whether it is a write (otherwise a read).
    pub write: bool,
    /// Whether it is an access to metadata.
    pub metadata: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct AccessQueue {
    pending: VecDeque<Pending>,
    size: usize,
}

impl Default for AccessQueue {
    /// Creates a queue of eight pending requests, as published.
    fn default() -> AccessQueue {
        AccessQueue::new(8)
    }
}

impl AccessQueue {
    /// Creates a queue of that many pending requests, at least one.
    pub fn new(size: usize) -> AccessQueue {
        AccessQueue {
            pending: VecDeque::new(),
            size: size.max(1),
        }
    }
    /// Maximum number of pending requests.
    pub fn size(&self) -> usize {
        self.size
    }
    /// Sets the maximum number of pending requests. While there are more, each access that does not merge releases one.
    pub fn resize(&mut self, size: usize) {
        self.size = size.max(1);
    }
    /// Block `b` is accessed. Returns the request that leaves the queue, if any.
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
    /// Removes the oldest request.
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
