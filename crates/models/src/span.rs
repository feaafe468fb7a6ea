//! The location of a member on the modelled drive.

/// The part of the drive that a member of a given size uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The member is a contiguous part of the drive from `start` on.
    At {
        /// First byte on the drive.
        start: u64,
    },
    /// The member is spread over the whole drive in chunks. A chunk is contiguous, so that sequential runs stay sequential. Between chunks
    /// the arm travels as far as on a full drive.
    Full,
}

impl Default for Span {
    /// The drive's first bytes.
    fn default() -> Span {
        Span::At { start: 0 }
    }
}

/// Maps a member offset to a drive offset with a shift, a mask and a multiplication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanMap {
    shift: u32,
    stride: u64,
    start: u64,
    last: u64,
}

impl SpanMap {
    /// `size` is the size of the member; 0 means the whole drive.
    pub fn new(span: Span, size: u64, capacity: u64) -> SpanMap {
        let last = capacity.saturating_sub(1);
        match span {
            Span::At { start } => SpanMap {
                shift: 63,
                stride: 0,
                start,
                last,
            },
            Span::Full if size == 0 || size >= capacity => SpanMap {
                shift: 63,
                stride: 0,
                start: 0,
                last,
            },
            Span::Full => {
                // With 128 chunks, random work behaves as on the full drive within a percent. A chunk of less than 1 MiB would split
                // sequential runs, and one of more than 64 MiB has no benefit.
                let shift = (size / 128).clamp(1 << 20, 64 << 20).ilog2();
                let chunks = size.div_ceil(1 << shift);
                SpanMap {
                    shift,
                    stride: capacity / chunks / 4096 * 4096,
                    start: 0,
                    last,
                }
            }
        }
    }

    #[inline]
    pub fn map(&self, offset: u64) -> u64 {
        let chunk = offset >> self.shift;
        let within = offset & ((1 << self.shift) - 1);
        (self
            .start
            .saturating_add(within)
            .saturating_add(chunk.saturating_mul(self.stride)))
        .min(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_drive_is_shifted() {
        let m = SpanMap::new(Span::At { start: 1 << 30 }, 2 << 30, 500 << 30);
        assert_eq!(m.map(4096), (1 << 30) + 4096);
    }

    #[test]
    fn a_full_span_keeps_runs_and_reaches_the_far_end() {
        let capacity = 500_000_000_000;
        let size = 2 << 30;
        let m = SpanMap::new(Span::Full, size, capacity);
        assert_eq!(m.map(8192) - m.map(4096), 4096);
        assert!(m.map(size - 4096) > capacity / 100 * 98);
        assert!(m.map(size - 1) < capacity);
    }

    #[test]
    fn beyond_the_end_is_the_end() {
        let m = SpanMap::new(Span::At { start: 0 }, 0, 1000);
        assert_eq!(m.map(u64::MAX), 999);
    }
}
