//! The drive's buffer as a read cache: the data of recent reads and of read-ahead.

use super::geometry::{Geometry, Place};

/// Number of remembered segments. Drives of the last twenty years have 8 to 64.
const SEGMENTS: usize = 16;

/// Read-ahead after a read, which lasts as long as no other command needs the arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// First byte of the segment that is being filled.
    pub start: u64,
    /// Byte `from` passes the head at time `since`.
    pub from: u64,
    pub since: u64,
    /// Place of `from`.
    pub place: Place,
    /// The end of the read-ahead: the segment's share of the buffer.
    pub limit: u64,
    /// The arm stays until the bytes before this one have been read.
    pub least: u64,
}

impl Ahead {
    /// Whether `offset` is in the range that is or will be read.
    #[inline]
    pub fn may_serve(&self, offset: u64) -> bool {
        self.start <= offset && offset <= self.limit.max(self.from)
    }

    /// First byte not yet read at `now`.
    pub fn reached(&self, geometry: &Geometry, now: u64) -> u64 {
        let passed = geometry.bytes_passed(&self.place, now.saturating_sub(self.since));
        (self.from + passed).min(self.limit.max(self.from))
    }

    /// The time at which everything before `end` has been read, if `end` is before the limit. `since` may be in the future (after a pause
    /// the platter must come round), but the data before `from` is already there.
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
        // There is no early exit: mostly no segment matches, and this loop then has no branches.
        let found: u32 = self
            .ranges
            .iter()
            .map(|&(s, e)| u32::from(s <= offset) & u32::from(end <= e))
            .sum();
        found > 0
    }

    /// Whether a range ends at `offset` or goes beyond it.
    pub fn goes_on_at(&self, offset: u64) -> bool {
        self.ranges.iter().any(|&(s, e)| s < offset && offset <= e)
    }

    /// Remembers a range, up to the size of a segment. Returns the range and the one that it replaced.
    pub fn add(&mut self, start: u64, end: u64) -> ((u64, u64), (u64, u64)) {
        let range = (start.max(end.saturating_sub(self.bytes_each)), end);
        if range.0 >= end {
            return ((0, 0), (0, 0));
        }
        let old = core::mem::replace(&mut self.ranges[self.next], range);
        self.next = (self.next + 1) % SEGMENTS;
        (range, old)
    }

    /// A write makes the buffered data of its range stale. Returns whether there was any.
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

/// An approximate set of the drive's parts with dirty runs: a read need not search the runs if none is near.
#[derive(Clone, Debug)]
pub(crate) struct Near {
    runs: [u8; BUCKETS],
}

const BUCKETS: usize = 1024;
/// Parts have 1 MiB, so a run touches a few at most.
const PART_SHIFT: u32 = 20;

impl Near {
    pub fn new() -> Near {
        Near { runs: [0; BUCKETS] }
    }

    fn bucket(part: u64) -> usize {
        part as usize % BUCKETS
    }

    /// A run grew from `end` to `to`; a new one grows from its offset.
    pub fn grow(&mut self, offset: u64, end: u64, to: u64) {
        let counted = Self::parts(offset, end).end.max(offset >> PART_SHIFT);
        for part in counted..Self::parts(offset, to).end {
            self.runs[Self::bucket(part)] += 1;
        }
    }

    /// A run was written back.
    pub fn remove(&mut self, offset: u64, end: u64) {
        for part in Self::parts(offset, end) {
            self.runs[Self::bucket(part)] -= 1;
        }
    }

    /// The parts that a run touches; none for an empty run.
    fn parts(offset: u64, end: u64) -> core::ops::Range<u64> {
        let first = offset >> PART_SHIFT;
        if end > offset {
            first..((end - 1) >> PART_SHIFT) + 1
        } else {
            first..first
        }
    }

    /// Whether a run may hold `offset`.
    pub fn may_hold(&self, offset: u64) -> bool {
        self.runs[Self::bucket(offset >> PART_SHIFT)] > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Near;

    #[test]
    fn what_grows_and_goes_leaves_nothing() {
        let mut near = Near::new();
        let mib = 1 << 20;
        for (offset, steps) in [
            (0, vec![0, 1, mib, mib + 1, 3 * mib]),
            (mib - 1, vec![mib - 1, mib, mib + 1]),
            (5 * mib + 7, vec![9 * mib]),
        ] {
            let mut end = offset;
            for to in steps {
                near.grow(offset, end, to);
                end = to;
                assert!(end == offset || (near.may_hold(offset) && near.may_hold(end - 1)));
            }
            near.remove(offset, end);
        }
        assert!(near.runs.iter().all(|&n| n == 0));
    }
}
