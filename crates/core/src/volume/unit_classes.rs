//! The class of each unit, in memory that only ranges with a classified unit need.

use super::UnitId;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Units of a range.
const RANGE: usize = 4096;

/// The class of each unit, 0…63; 0 is none, and what a unit has until a class is set. A range of 4096 units of which one has a class takes
/// 4 KiB. A table of all units would take 1.6 GB for 100 TB in extents of 64 KiB, all of it at the first request that states a class.
#[derive(Clone, Debug, Default)]
pub struct UnitClasses {
    /// Up to the highest range that has classes.
    ranges: Vec<Option<Box<[u8]>>>,
}

impl UnitClasses {
    /// The class of a unit.
    #[inline]
    pub fn get(&self, e: UnitId) -> u8 {
        let at = e.0 as usize;
        match self.ranges.get(at / RANGE) {
            Some(Some(range)) => range[at % RANGE],
            _ => 0,
        }
    }
    /// Sets the class of a unit.
    pub fn set(&mut self, e: UnitId, class: u8) {
        let (range, at) = (e.0 as usize / RANGE, e.0 as usize % RANGE);
        if class == 0 && self.ranges.get(range).is_none_or(Option::is_none) {
            return;
        }
        if range >= self.ranges.len() {
            self.ranges.resize(range + 1, None);
        }
        let range = &mut self.ranges[range];
        range.get_or_insert_with(|| alloc::vec![0; RANGE].into())[at] = class;
    }
    /// The units that have a class, in order, and their classes.
    pub fn iter(&self) -> impl Iterator<Item = (UnitId, u8)> {
        let ranges = self.ranges.iter().enumerate();
        let all = ranges.flat_map(|(r, range)| {
            let classes = range.iter().flat_map(|r| r.iter().copied());
            (r * RANGE..)
                .zip(classes)
                .map(|(e, c)| (UnitId(e as u32), c))
        });
        all.filter(|known| known.1 != 0)
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.ranges.len() * size_of::<Option<Box<[u8]>>>()
            + self.ranges.iter().flatten().count() * RANGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_ranges_with_classes() {
        let mut classes = UnitClasses::default();
        let last = UnitId(u32::MAX);
        classes.set(last, 0);
        assert_eq!((classes.get(last), classes.bytes()), (0, 0));
        let of = [(0, 1), (4095, 2), (4096, 3), (1 << 31, 63), (u32::MAX, 7)];
        for (e, class) in of {
            classes.set(UnitId(e), class);
        }
        let all: Vec<(u32, u8)> = classes.iter().map(|(e, c)| (e.0, c)).collect();
        assert_eq!(all, of);
        assert!(classes.bytes() <= 4 * RANGE + (16 << 20));
        classes.set(UnitId(4095), 0);
        classes.set(UnitId(1), 0);
        assert_eq!(classes.get(UnitId(4095)), 0);
        assert_eq!(classes.iter().count(), 4);
    }

    #[test]
    fn a_disk_of_100_tb_needs_little() {
        let mut classes = UnitClasses::default();
        classes.set(UnitId(1_600_000_000), 9);
        assert!(classes.bytes() < 8 << 20, "{}", classes.bytes());
    }
}
