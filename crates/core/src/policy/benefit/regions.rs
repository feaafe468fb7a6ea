//! Whole extents or parts of them: are copies of parts asked for what they lack?
//!
//! A read that misses needs a part of its extent. To fetch the rest as well costs the slow device the time of more bytes, and flash
//! more writes; not to fetch it costs a read of the slow device if the rest is asked for while the copy is there. How often that
//! happens differs by application, so it is counted by region of the volume: copies of parts that were made, and reads that found
//! their copy lacking. Where whole extents pay, a few parts are fetched all the same, or nobody would notice when that changes.

use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// Regions at most.
const REGIONS: u32 = 1024;
/// Where whole extents pay, one extent in so many is fetched in part while fewer than [`FEW`] were, and one in so many after that.
const EARLY: u32 = 3;
const LATE: u32 = 32;
const FEW: u32 = 16;
/// Where they pay so many times over, one in so many.
const CLEARLY: u64 = 8;
const CLEAR: u32 = 512;
/// See [`Regions::pays_whole`].
const PRIOR: u64 = 4;
/// All that is counted of the whole volume counts half when it is so much.
const KEPT: u32 = 4096;

#[derive(Clone, Copy, Debug)]
struct Region {
    parts: u8,
    lacks: u8,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    of: Vec<Region>,
    /// Of all of them: parts, and reads that found a copy lacking.
    all: (u32, u32),
    shift: u32,
}

impl Regions {
    /// For that many extents. At first each copy counts as asked for something that it lacks once.
    pub fn new(extents: u32) -> Regions {
        let mut shift = 0;
        while extents >> shift >= REGIONS {
            shift += 1;
        }
        let blank = Region { parts: 0, lacks: 0 };
        Regions {
            all: (1, 1),
            of: vec![blank; (extents >> shift) as usize + 1],
            shift,
        }
    }
    fn count(&mut self, e: UnitId, parts: u8, lacks: u8) {
        self.all.0 += u32::from(parts);
        self.all.1 += u32::from(lacks);
        if self.all.0.max(self.all.1) > KEPT {
            self.all = ((self.all.0 / 2).max(1), self.all.1 / 2);
        }
        let Some(r) = self.of.get_mut((e.0 >> self.shift) as usize) else {
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
    /// A copy of a part of `e` was made.
    pub fn made(&mut self, e: UnitId) {
        self.count(e, 1, 0);
    }
    /// A read of `e` found that its copy lacks what it asked for.
    pub fn lacked(&mut self, e: UnitId) {
        self.count(e, 0, 1);
    }
    /// Does the whole of `e` pay, if a read of the slow device counts `saves` and the rest of the extent `more`? (And is it not one of
    /// those that tell whether it still does?)
    pub fn pays_whole(&self, e: UnitId, saves: u64, more: u64) -> bool {
        let Some(r) = self.of.get((e.0 >> self.shift) as usize) else {
            return true;
        };
        // What the volume at large does counts as much as so many copies of the region's own.
        let (parts, lacks) = (u64::from(self.all.0), u64::from(self.all.1));
        let lacks = u64::from(r.lacks) * parts + PRIOR * lacks;
        let parts = (u64::from(r.parts) + PRIOR) * parts;
        let pays = lacks.saturating_mul(saves) > parts.saturating_mul(more);
        let clearly = lacks.saturating_mul(saves) / CLEARLY > parts.saturating_mul(more);
        let every = match clearly {
            _ if self.all.0 < FEW => EARLY,
            true => CLEAR,
            false => LATE,
        };
        pays && !(e.0.wrapping_mul(0x9e37_79b9) >> 16).is_multiple_of(every)
    }
    /// Memory, bytes.
    pub fn bytes(&self) -> usize {
        self.of.capacity() * size_of::<Region>()
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
                .filter(|&e| r.pays_whole(UnitId(e), 8_000_000, 300_000))
                .count()
        };
        // At first nearly all, and some to learn from.
        assert!((40..60).contains(&whole(&r, 0)), "{}", whole(&r, 0));
        for e in 0..60 {
            r.made(UnitId(e));
        }
        assert_eq!(whole(&r, 0), 0);
        // Nor elsewhere, until that region shows that it is another matter.
        assert_eq!(whole(&r, 50_000), 0);
        for e in 0..20 {
            r.lacked(UnitId(50_000 + e));
        }
        assert!(whole(&r, 50_000) > 56, "{}", whole(&r, 50_000));
        assert_eq!(whole(&r, 0), 0);
        // However many: no overflow, and what was long ago counts less.
        for e in 0..100_000u32 {
            r.made(UnitId(e % 64));
        }
        assert_eq!(whole(&r, 0), 0);
        assert!(r.bytes() < 4096);
    }
}
