//! The drive's buffer as read cache: what recent reads and read-ahead left in it.

use super::geometry::{Geometry, Place};

/// Segments remembered. Drives of the last twenty years have 8 to 64.
const SEGMENTS: usize = 16;

/// Reading on after a read, as long as nothing else wants the arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// First byte of the segment that grows.
    pub start: u64,
    /// The media passes `from` at `since`.
    pub from: u64,
    pub since: u64,
    /// Place of `from`.
    pub place: Place,
    /// Stop here: the segment's share of the buffer.
    pub limit: u64,
}

impl Ahead {
    /// First byte not yet read at `now`.
    pub fn reached(&self, geometry: &Geometry, now: u64) -> u64 {
        let passed = geometry.bytes_passed(&self.place, now.saturating_sub(self.since));
        (self.from + passed).min(self.limit.max(self.from))
    }

    /// When everything before `end` has been read, if it lies before the limit. `since` may lie ahead (a pause ended,
    /// the platter must come round), yet what is before `from` has been there all along.
    pub fn time_of(&self, geometry: &Geometry, end: u64) -> u64 {
        if end <= self.from {
            return 0;
        }
        self.since + geometry.transfer_ns(&self.place, end - self.from)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Segments {
    ranges: [(u64, u64); SEGMENTS],
    next: usize,
    bytes_each: u64,
}

impl Segments {
    pub fn new(cache_bytes: u64) -> Segments {
        Segments {
            ranges: [(0, 0); SEGMENTS],
            next: 0,
            bytes_each: cache_bytes / SEGMENTS as u64,
        }
    }

    pub fn bytes_each(&self) -> u64 {
        self.bytes_each
    }

    pub fn holds(&self, offset: u64, end: u64) -> bool {
        // Without leaving early: mostly none does, and so it needs no branches.
        self.ranges
            .iter()
            .fold(false, |any, &(s, e)| any | ((s <= offset) & (end <= e)))
    }

    /// Remember a range, as far as a segment is large: (what it is, what gave way to it).
    pub fn add(&mut self, start: u64, end: u64) -> ((u64, u64), (u64, u64)) {
        let range = (start.max(end.saturating_sub(self.bytes_each)), end);
        if range.0 >= end {
            return ((0, 0), (0, 0));
        }
        let old = core::mem::replace(&mut self.ranges[self.next], range);
        self.next = (self.next + 1) % SEGMENTS;
        (range, old)
    }

    /// A write makes what the buffer holds of that range stale. Did it hold any?
    pub fn forget(&mut self, offset: u64, end: u64) -> bool {
        let mut any = false;
        for r in &mut self.ranges {
            if r.0 < end && offset < r.1 {
                *r = (0, 0);
                any = true;
            }
        }
        any
    }
}
