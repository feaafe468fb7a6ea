//! Which extents belong to the sample, and to which of its groups.
//!
//! Consecutive extents form strata of 2ⁿ. Of each stratum every group has exactly one extent, which a hash of the stratum chooses. So the
//! sample is spatial (SHARDS: Waldspurger, Park, Garthwaite, Ahmad; FAST '15): all accesses to an extent are sampled or none. In addition,
//! no part of the volume is over-represented, and a group numbers its extents by their strata: without gaps, without a table, and in the
//! order of their addresses. A stream that reads the volume in order reads the rows of each group in order, so policies recognise it.

use isotherm_core::Nanos;
use isotherm_core::random::mix;

/// Number of groups without a common extent. Their spread tells the error.
pub const GROUPS: u32 = 8;
/// log2 of the smallest stratum. All extents are in the sample then.
pub const STRATUM_LEAST: u32 = GROUPS.ilog2();
/// log2 of the largest stratum.
pub const STRATUM_MOST: u32 = 24;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    extent_shift: u32,
    stratum_shift: u32,
}

/// An access to a sampled extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Time of the request. The set of shadows never lets it go back.
    pub now: Nanos,
    /// The extent.
    pub extent: u32,
    /// Bytes of the request before the extent.
    pub before: u32,
    /// Offset in the extent at which the request begins; 0 if it begins before.
    pub inside: u32,
    /// Bytes of the whole request.
    pub bytes: u32,
    /// Class of the data.
    pub class: u8,
    /// Whether it is a write.
    pub write: bool,
}

/// What an observer knows of a request that reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// First byte.
    pub offset: u64,
    /// Bytes; at least 1.
    pub bytes: u32,
    /// Class of the data.
    pub class: u8,
    /// Whether it is a write.
    pub write: bool,
}

impl Sampler {
    /// A sample of extents of 2^`extent_shift` bytes with strata of 2^`stratum_shift` extents, limited to [`STRATUM_LEAST`] and
    /// `STRATUM_MOST`.
    pub fn new(extent_shift: u32, stratum_shift: u32) -> Sampler {
        Sampler {
            extent_shift,
            stratum_shift: stratum_shift.clamp(STRATUM_LEAST, STRATUM_MOST),
        }
    }
    /// log2 of the number of extents in a stratum.
    pub fn stratum_shift(self) -> u32 {
        self.stratum_shift
    }
    /// Share of the extents that is in the sample.
    pub fn rate(self) -> f64 {
        f64::from(GROUPS) / f64::from(1u32 << self.stratum_shift)
    }
    /// Rows of each group of a volume with so many extents.
    pub fn rows(self, extents: u32) -> u32 {
        extents.div_ceil(1 << self.stratum_shift)
    }
    /// Group and row of an extent; `None` if it is not sampled.
    #[inline]
    pub fn place(self, extent: u32) -> Option<(u32, u32)> {
        let row = extent >> self.stratum_shift;
        let random = mix(u64::from(row) ^ 0x9e37_79b9_7f4a_7c15);
        // Odd factors permute the numbers below a power of two.
        let mixed = extent
            .wrapping_mul(random as u32 | 1)
            .wrapping_add((random >> 32) as u32);
        let group = mixed & ((1 << self.stratum_shift) - 1);
        (group < GROUPS).then_some((group, row))
    }
    /// The extent of a group in a row.
    pub(crate) fn extent(self, group: u32, row: u32) -> u32 {
        let random = mix(u64::from(row) ^ 0x9e37_79b9_7f4a_7c15);
        let (factor, start) = (random as u32 | 1, (random >> 32) as u32);
        // Newton's method doubles the correct bits of the inverse: 3, 6, 12, 24, 48.
        let inverse = (0..4).fold(factor, |i, _| {
            i.wrapping_mul(2u32.wrapping_sub(factor.wrapping_mul(i)))
        });
        let mixed = group.wrapping_sub(start).wrapping_mul(inverse);
        row << self.stratum_shift | mixed & ((1 << self.stratum_shift) - 1)
    }
    /// The row of a sampled extent if all groups are one: sampled extents in the order of their addresses.
    pub(crate) fn joint_row(self, extent: u32, row: u32) -> u32 {
        let before = (0..GROUPS).filter(|g| self.extent(*g, row) < extent);
        row * GROUPS + before.count() as u32
    }
    /// Number of times that the volume must be halved to have as many extents as the sample.
    pub(crate) fn halvings(self) -> u32 {
        self.stratum_shift - STRATUM_LEAST
    }
    /// Calls `sampled` for each sampled extent of a request, and returns the number of all its extents.
    #[inline]
    pub fn each(self, r: Seen, now: impl Fn() -> Nanos, mut sampled: impl FnMut(Touch)) -> u32 {
        let end = r.offset + u64::from(r.bytes.max(1)) - 1;
        let (from, to) = (
            (r.offset >> self.extent_shift) as u32,
            (end >> self.extent_shift) as u32,
        );
        for extent in from..=to {
            if self.place(extent).is_none() {
                continue;
            }
            let start = u64::from(extent) << self.extent_shift;
            sampled(Touch {
                now: now(),
                extent,
                before: start.saturating_sub(r.offset) as u32,
                inside: r.offset.saturating_sub(start) as u32,
                bytes: r.bytes,
                class: r.class,
                write: r.write,
            });
        }
        to - from + 1
    }
    /// The request of a touch in the address space of its group's rows: first byte and number of bytes.
    pub(crate) fn request(self, touch: &Touch, row: u32) -> (u64, u32) {
        let start = u64::from(row) << self.extent_shift;
        // The space has nothing before its first row, so a request that begins there is cut.
        let before = u64::from(touch.before).min(start);
        let cut = touch.before - before as u32;
        (
            start - before + u64::from(touch.inside),
            touch.bytes.saturating_sub(cut).max(1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stratum_has_one_extent_of_each_group() {
        for shift in [3, 4, 7, 12] {
            let s = Sampler::new(16, shift);
            for stratum in 0..50u32 {
                let all = (stratum << shift)..((stratum + 1) << shift);
                let mut found: Vec<_> = all.filter_map(|e| s.place(e)).collect();
                found.sort_unstable();
                let want: Vec<_> = (0..GROUPS).map(|g| (g, stratum)).collect();
                assert_eq!(found, want, "{shift}");
                assert_eq!(s.place(s.extent(5, stratum)), Some((5, stratum)));
            }
        }
    }

    #[test]
    fn a_request_keeps_its_place_relative_to_the_extent() {
        let s = Sampler::new(12, 3);
        let mut touches = Vec::new();
        // All extents are sampled. The request begins 1 KiB into extent 40 and ends in extent 42.
        let seen = Seen {
            offset: (40 << 12) + 1024,
            bytes: 8192,
            class: 3,
            write: true,
        };
        let n = s.each(seen, || Nanos(7), |t| touches.push(t));
        assert_eq!((n, touches.len()), (3, 3));
        let parts: Vec<_> = touches.iter().map(|t| (t.before, t.inside)).collect();
        assert_eq!(parts, [(0, 1024), (3072, 0), (7168, 0)]);
        assert_eq!(s.request(&touches[0], 5), ((5 << 12) + 1024, 8192));
        assert_eq!(s.request(&touches[2], 5), ((5 << 12) - 7168, 8192));
        // Before the first row there is nothing.
        assert_eq!(s.request(&touches[2], 0), (0, 1024));
    }

    #[test]
    fn joint_rows_are_in_the_order_of_extents() {
        for shift in [3, 4, 9] {
            let s = Sampler::new(16, shift);
            let sampled = (0..40u32 << shift).filter_map(|e| s.place(e).map(|(_, row)| (e, row)));
            let rows: Vec<u32> = sampled.map(|(e, row)| s.joint_row(e, row)).collect();
            assert_eq!(rows, (0..40 * GROUPS).collect::<Vec<_>>());
        }
    }

    /// No worse than chance over a power-of-two pattern, which a plain modulus would sample all or nothing of.
    #[test]
    fn strides_are_sampled_by_their_share() {
        let s = Sampler::new(16, 8);
        for stride in [2u32, 64, 256, 1024] {
            let sampled = (0..40_000).filter(|i| s.place(i * stride).is_some());
            let share = sampled.count() as f64 / 40_000.0;
            assert!((share / s.rate() - 1.0).abs() < 0.25, "{stride}: {share}");
        }
    }
}
