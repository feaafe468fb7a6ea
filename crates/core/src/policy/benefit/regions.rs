//! Whether to copy whole extents or only the requested parts.
//!
//! A read that misses needs a part of its extent. If the rest is fetched as well, the slow device reads more bytes and flash writes more.
//! If it is not fetched, and is requested while the copy exists, the slow device must do one more read. How often that happens depends on
//! the application. So two numbers are counted for each region of the volume: partial copies that were made, and reads whose blocks were
//! missing in a copy. Where whole extents pay, a few extents are still fetched in part; otherwise a change could not be noticed.

use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of regions.
const REGIONS: u32 = 1024;
/// Where whole extents pay, one extent in `PROBE_EARLY` is fetched in part, as long as the volume has had fewer than [`EARLY_COPIES`]
/// partial copies.
const PROBE_EARLY: u32 = 3;
/// The same after that.
const PROBE_LATE: u32 = 32;
/// See [`PROBE_EARLY`].
const EARLY_COPIES: u32 = 16;
/// If the gain of whole extents is more than `CLEAR_GAIN` times their cost, one extent in [`PROBE_CLEAR`] is fetched in part instead of one
/// in [`PROBE_LATE`].
const CLEAR_GAIN: u64 = 8;
/// See [`CLEAR_GAIN`].
const PROBE_CLEAR: u32 = 512;
/// The mean of the whole volume counts as much as this number of partial copies in the region itself.
const PRIOR: u64 = 4;
/// When a count of the whole volume exceeds this number, both are halved.
const MAX_TOTAL: u32 = 4096;

/// The counts of a region: partial copies, and reads whose blocks were missing in a copy.
#[derive(Clone, Copy, Debug)]
struct Region {
    parts: u8,
    lacks: u8,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    counts: Vec<Region>,
    /// The same two counts for the whole volume.
    total: (u32, u32),
    /// The region of an extent is its number shifted right by this.
    shift: u32,
}

impl Regions {
    /// For a volume of `extents` extents. At first, the assumption is one read of missing blocks for each partial copy.
    pub fn new(extents: u32) -> Regions {
        let mut shift = 0;
        while extents >> shift >= REGIONS {
            shift += 1;
        }
        let blank = Region { parts: 0, lacks: 0 };
        Regions {
            total: (1, 1),
            counts: vec![blank; (extents >> shift) as usize + 1],
            shift,
        }
    }
    fn count(&mut self, e: UnitId, parts: u8, lacks: u8) {
        self.total.0 += u32::from(parts);
        self.total.1 += u32::from(lacks);
        if self.total.0.max(self.total.1) > MAX_TOTAL {
            self.total = ((self.total.0 / 2).max(1), self.total.1 / 2);
        }
        let Some(r) = self.counts.get_mut((e.0 >> self.shift) as usize) else {
            return;
        };
        if r.parts == u8::MAX || r.lacks == u8::MAX {
            *r = Region {
                parts: r.parts / 2,
                lacks: r.lacks / 2,
            };
        }
        r.parts += parts;
        r.lacks += lacks;
    }
    /// A partial copy of `e` was made.
    pub fn note_partial_copy(&mut self, e: UnitId) {
        self.count(e, 1, 0);
    }
    /// Blocks that a read of `e` requested are missing in its copy.
    pub fn note_missing_blocks(&mut self, e: UnitId) {
        self.count(e, 0, 1);
    }
    /// Whether to fetch the whole of `e`, if this may save a read that costs `saves`, and the rest of the extent costs `more`. It is also
    /// false for the few extents that are fetched in part only to measure whether whole extents still pay.
    pub fn should_fetch_whole(&self, e: UnitId, saves: u64, more: u64) -> bool {
        let Some(r) = self.counts.get((e.0 >> self.shift) as usize) else {
            return true;
        };
        // The region's own ratio, mixed with that of the whole volume (see `PRIOR`).
        let (parts, lacks) = (u64::from(self.total.0), u64::from(self.total.1));
        let lacks = u64::from(r.lacks) * parts + PRIOR * lacks;
        let parts = (u64::from(r.parts) + PRIOR) * parts;
        let pays = lacks.saturating_mul(saves) > parts.saturating_mul(more);
        let clearly = lacks.saturating_mul(saves) / CLEAR_GAIN > parts.saturating_mul(more);
        let every = match clearly {
            _ if self.total.0 < EARLY_COPIES => PROBE_EARLY,
            true => PROBE_CLEAR,
            false => PROBE_LATE,
        };
        pays && !(e.0.wrapping_mul(0x9e37_79b9) >> 16).is_multiple_of(every)
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<Region>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_asked_for_is_not_fetched() {
        let mut r = Regions::new(100_000);
        let whole = |r: &Regions, from: u32| {
            (from..from + 64)
                .filter(|&e| r.should_fetch_whole(UnitId(e), 8_000_000, 300_000))
                .count()
        };
        // At first most extents are fetched whole, and some in part as measurements.
        assert!((40..60).contains(&whole(&r, 0)), "{}", whole(&r, 0));
        for e in 0..60 {
            r.note_partial_copy(UnitId(e));
        }
        assert_eq!(whole(&r, 0), 0);
        // The same holds for other regions, until one of them has reads of missing blocks.
        assert_eq!(whole(&r, 50_000), 0);
        for e in 0..20 {
            r.note_missing_blocks(UnitId(50_000 + e));
        }
        assert!(whole(&r, 50_000) > 56, "{}", whole(&r, 50_000));
        assert_eq!(whole(&r, 0), 0);
        // Large numbers do not overflow, and old counts have less weight.
        for e in 0..100_000u32 {
            r.note_partial_copy(UnitId(e % 64));
        }
        assert_eq!(whole(&r, 0), 0);
        assert!(r.bytes() < 4096);
    }
}
