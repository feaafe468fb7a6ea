//! Two bits for each extent, from which the length of a checkpoint follows without a look at the rows: 64 extents per step.
//!
//! Only worlds whose metadata is never read use it ([`crate::engine::Params::unread_metadata`]): they need the number of records, not the
//! records. It does not count as memory of the map ([`ExtentMap::bytes`]), because live volumes have no index.

use super::rows::Rows;
use super::{ExtentMap, UNMAPPED};
use crate::bits::Bits;
use crate::units::ExtentId;

/// Whether an extent has a home, and whether it has a dirty copy. Without memory until [`ExtentMap::index_rows`].
#[derive(Clone, Debug, Default)]
pub(super) struct RowIndex {
    on: bool,
    mapped: Bits,
    dirty: Bits,
}

impl RowIndex {
    /// Notes whether `e` has a home.
    #[inline]
    pub(super) fn set_mapped(&mut self, e: ExtentId, mapped: bool) {
        if self.on {
            self.mapped.put(e.0 as usize, mapped);
        }
    }
    /// Notes whether `e` has a dirty copy.
    #[inline]
    pub(super) fn set_dirty(&mut self, e: ExtentId, dirty: bool) {
        if self.on {
            self.dirty.put(e.0 as usize, dirty);
        }
    }
}

impl ExtentMap {
    /// Keeps an index of the rows from now on, for [`ExtentMap::indexed_rows`]. A cache volume needs none: its checkpoints are about copies.
    pub fn index_rows(&mut self) {
        let Rows::Extents(all) = &self.rows else {
            return;
        };
        let n = all.rows.len();
        let (mut mapped, mut dirty) = (Bits::new(n), Bits::new(n));
        for (i, row) in all.rows.iter().enumerate() {
            mapped.put(i, row.place != UNMAPPED);
            dirty.put(i, self.is_dirty(ExtentId(i as u32)));
        }
        self.index = RowIndex {
            on: true,
            mapped,
            dirty,
        };
    }

    /// As [`ExtentMap::plain_rows`] for clean copies, by the index; `None`: there is no index.
    pub fn indexed_rows(&self, e: ExtentId, stop: u32, free: usize) -> Option<(u32, usize)> {
        if !self.index.on {
            return None;
        }
        let (first, stop) = (e.0 as usize, stop.min(self.extents()) as usize);
        let (mut at, mut units) = (first, 0);
        while at < stop {
            let w = at / 64;
            let end = (w * 64 + 64).min(stop);
            let mapped = self.index.mapped.word(w) & Bits::mask(at % 64, end - at);
            let odd = self.index.dirty.word(w) | self.partial.bits.word(w);
            let odd = odd & mapped;
            // The rows before the first one that is not plain.
            let before = if odd == 0 {
                mapped
            } else {
                mapped & ((1 << odd.trailing_zeros()) - 1)
            };
            let n = before.count_ones() as usize;
            if units + n > free {
                let full = (units..free).fold(before, |left, _| left & (left - 1));
                let row = w * 64 + full.trailing_zeros() as usize;
                return Some(((row - first) as u32, free));
            }
            units += n;
            if odd != 0 {
                let row = w * 64 + odd.trailing_zeros() as usize;
                return Some(((row - first) as u32, units));
            }
            at = end;
        }
        Some(((at.max(first) - first) as u32, units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use crate::units::{Slot, TierId};
    use crate::volume::{Geometry, Member};
    use alloc::vec;

    /// The index and the rows give the same numbers on maps that changed at random, from every row and for every limit.
    #[test]
    fn index_and_rows_agree() {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let geo = Geometry::new(16, 12, 300, vec![m(0, 100), m(1, 300)]).unwrap();
        for seed in 0..8 {
            let mut random = SplitMix64::new(seed);
            let mut map = ExtentMap::new(&geo);
            map.index_rows();
            for _ in 0..3000 {
                let e = ExtentId(random.below(300) as u32);
                let fast = Slot(random.below(100) as u32);
                match random.below(6) {
                    0 | 1 if map.home(e).is_none() => map.map(e, Slot(100 + e.0), false),
                    2 if map.copy(e).is_none() => drop(map.unmap(e)),
                    3 if map.home(e).is_some()
                        && map.copy(e).is_none()
                        && map.owner(fast).is_none() =>
                    {
                        map.add_copy(e, fast);
                    }
                    4 => drop(map.set_dirty(e, random.below(2) == 0)),
                    5 => drop(map.drop_copy(e)),
                    _ => {}
                }
            }
            assert!(map.dirty() > 0 && map.mapped() > 100);
            let fresh = {
                let mut copy = map.clone();
                copy.index_rows();
                copy
            };
            for e in (0..300).map(ExtentId) {
                let (stop, free) = (300 - random.below(9) as u32, random.below(200) as usize);
                if e.0 >= stop {
                    continue;
                }
                let rows = map.plain_rows(e, stop, free, true);
                for m in [&map, &fresh] {
                    assert_eq!(m.indexed_rows(e, stop, free), Some(rows));
                }
            }
        }
    }
}
