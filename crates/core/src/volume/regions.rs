//! The dirty regions of a cache volume: which parts of it may have dirty copies.
//!
//! The disks of a cache volume have no records of copies. If all flash is lost, a bitmap on each disk tells which parts of the volume may
//! have lost data ([`crate::store::mark`]). A part, a *region*, is a power of two of extents, so that there are at most [`REGIONS`].

use crate::units::ExtentId;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Largest number of regions of a volume.
pub const REGIONS: usize = 4096;
const WORDS: usize = REGIONS / 64;

/// A set of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions(pub [u64; WORDS]);

impl Default for Regions {
    fn default() -> Regions {
        Regions([0; WORDS])
    }
}

impl Regions {
    /// log2 of the number of extents of a region in a volume of `extents` extents of 2^`extent_shift` bytes. A region has 64 MiB at least, but a
    /// small volume has up to 64 regions. So a load that touches all of it needs few marks.
    pub fn shift(extents: u32, extent_shift: u32) -> u32 {
        let bytes = u64::from(extents) << extent_shift;
        let most = ((bytes >> 26) as usize).clamp(64, REGIONS);
        let mut shift = 0;
        while (extents.saturating_sub(1) >> shift) as usize >= most {
            shift += 1;
        }
        shift
    }
    /// All regions.
    pub fn all() -> Regions {
        Regions([u64::MAX; WORDS])
    }
    /// Whether region `r` is in the set.
    pub fn has(&self, r: u32) -> bool {
        self.0[r as usize / 64] >> (r % 64) & 1 == 1
    }
    /// Adds region `r`.
    pub fn add(&mut self, r: u32) {
        self.0[r as usize / 64] |= 1 << (r % 64);
    }
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }
    /// The regions of both sets.
    #[must_use]
    pub fn and(&self, o: &Regions) -> Regions {
        Regions(core::array::from_fn(|i| self.0[i] & o.0[i]))
    }
    /// The regions of either set.
    #[must_use]
    pub fn or(&self, o: &Regions) -> Regions {
        Regions(core::array::from_fn(|i| self.0[i] | o.0[i]))
    }
    /// The regions of this set that are not in the other.
    #[must_use]
    pub fn without(&self, o: &Regions) -> Regions {
        Regions(core::array::from_fn(|i| self.0[i] & !o.0[i]))
    }
    /// The set with all regions of aligned groups of 2^`shift` (at most 64) regions of which one is in it.
    #[must_use]
    pub fn widened(&self, shift: u32) -> Regions {
        let size = 1u32 << shift.min(6);
        let group = if size == 64 {
            u64::MAX
        } else {
            (1 << size) - 1
        };
        Regions(core::array::from_fn(|i| {
            let starts = (0..64).step_by(size as usize);
            let hit = starts.filter(|&s| self.0[i] >> s & group != 0);
            hit.fold(0, |w, s| w | group << s)
        }))
    }
    /// The extents of the regions, which have 2^`shift` extents each, in a volume of `extents` extents, as ranges, ascending.
    pub fn ranges(&self, shift: u32, extents: u32) -> Vec<Range<u32>> {
        let mut out: Vec<Range<u32>> = Vec::new();
        for r in (0..REGIONS as u32).filter(|&r| self.has(r)) {
            let from = (u64::from(r) << shift).min(extents.into()) as u32;
            let to = (u64::from(r + 1) << shift).min(extents.into()) as u32;
            match out.last_mut().filter(|last| last.end == from) {
                Some(last) => last.end = to,
                None if from < to => out.push(from..to),
                None => {}
            }
        }
        out
    }
}

/// The number of dirty copies of each region, and the regions that are *covered*: every disk that needs it has a durable mark for them.
#[derive(Clone, Debug, Default)]
pub struct DirtyRegions {
    shift: u32,
    counts: Vec<u32>,
    covered: Regions,
    /// Number of regions with dirty copies that are not covered.
    bare: u32,
}

impl DirtyRegions {
    /// For a volume of `extents` extents of 2^`extent_shift` bytes without dirty copies.
    pub(super) fn new(extents: u32, extent_shift: u32) -> DirtyRegions {
        DirtyRegions {
            shift: Regions::shift(extents, extent_shift),
            counts: vec![0; REGIONS],
            ..DirtyRegions::default()
        }
    }
    /// A copy of `e` became dirty, or clean.
    pub(super) fn changed(&mut self, e: ExtentId, dirty: bool) {
        let r = e.0 >> self.shift;
        let Some(n) = self.counts.get_mut(r as usize) else {
            return;
        };
        let first = u32::from(!dirty);
        if *n == first && !self.covered.has(r) {
            self.bare = if dirty { self.bare + 1 } else { self.bare - 1 };
        }
        *n = if dirty { *n + 1 } else { *n - 1 };
    }
    /// Whether a region with dirty copies is not covered.
    #[inline]
    pub fn any_bare(&self) -> bool {
        self.bare > 0
    }
    /// Whether `e` may be lost without a trace: its region is not covered.
    #[inline]
    pub fn is_bare(&self, e: ExtentId) -> bool {
        self.bare > 0 && !self.covered.has(e.0 >> self.shift)
    }
    /// Whether the region of `e` has dirty copies and is not covered.
    #[inline]
    pub fn lacks_mark(&self, e: ExtentId) -> bool {
        let r = e.0 >> self.shift;
        let dirty = self.counts.get(r as usize).is_some_and(|n| *n > 0);
        self.bare > 0 && dirty && !self.covered.has(r)
    }
    /// The regions with dirty copies.
    pub fn dirty(&self) -> Regions {
        let mut set = Regions::default();
        for (w, counts) in set.0.iter_mut().zip(self.counts.chunks(64)) {
            for (i, &n) in counts.iter().enumerate() {
                *w |= u64::from(n > 0) << i;
            }
        }
        set
    }
    /// The covered regions.
    pub fn covered(&self) -> &Regions {
        &self.covered
    }
    /// From now on exactly these regions are covered.
    pub fn cover(&mut self, set: Regions) {
        self.covered = set;
        let bare = self.dirty().without(&set);
        self.bare = bare.0.iter().map(|w| w.count_ones()).sum();
    }
    /// log2 of the number of extents of a region.
    pub fn extents_shift(&self) -> u32 {
        self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_powers_of_two_and_few() {
        let cases = [
            (1, 0),
            (64, 0),
            (65, 1),
            (1 << 14, 8),
            (1 << 20, 10),
            (1 << 24, 12),
        ];
        for (extents, shift) in cases.into_iter().chain([(u32::MAX, 20)]) {
            assert_eq!(Regions::shift(extents, 16), shift, "{extents}");
        }
    }

    #[test]
    fn sets_give_ranges_and_groups() {
        let mut s = Regions::default();
        assert!(s.is_empty() && s.ranges(3, 1000).is_empty());
        for r in [0, 1, 5, 4095] {
            s.add(r);
        }
        assert_eq!(s.ranges(1, 8191), [0..4, 10..12, 8190..8191]);
        assert_eq!(s.ranges(1, 11), [0..4, 10..11]);
        let wide = s.widened(2);
        assert_eq!(wide.ranges(0, 4096), [0..8, 4092..4096]);
        assert_eq!(s.widened(0), s);
        assert_eq!(s.widened(6).ranges(0, 4096), [0..64, 4032..4096]);
        assert_eq!(wide.without(&s).or(&s), wide);
        assert_eq!(wide.and(&s), s);
        let all = Regions::all().ranges(0, 4096);
        assert!(all.len() == 1 && all[0] == (0..4096));
    }

    #[test]
    fn a_region_is_bare_until_it_is_covered() {
        let mut d = DirtyRegions {
            shift: 1,
            ..DirtyRegions::new(8192, 16)
        };
        let (a, b) = (ExtentId(0), ExtentId(1));
        d.changed(a, true);
        d.changed(b, true);
        d.changed(ExtentId(4000), true);
        assert!(d.any_bare() && d.is_bare(a) && d.bare == 2);
        let dirty = d.dirty();
        assert_eq!(dirty.ranges(1, 8192), [0..2, 4000..4002]);
        d.cover(dirty);
        assert!(!d.any_bare() && !d.is_bare(a));
        d.changed(a, false);
        d.changed(b, false);
        d.changed(ExtentId(8000), true);
        assert!(d.is_bare(ExtentId(8001)) && !d.is_bare(a));
        assert_eq!(d.dirty().ranges(1, 8192), [4000..4002, 8000..8002]);
        d.changed(ExtentId(8000), false);
        assert!(!d.any_bare());
    }

    #[test]
    fn a_tiering_volume_has_none() {
        let mut d = DirtyRegions::default();
        d.changed(ExtentId(7), true);
        assert!(!d.any_bare() && d.dirty().is_empty());
    }
}
