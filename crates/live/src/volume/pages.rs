//! Huge pages for a large map.
//!
//! A request at a random place of a large map misses the processor's caches for its row, and with pages of 4 KiB it misses the cache
//! of page addresses, too: a second load from memory before the first (`bench/map/run.sh` says what that is). Where the system leaves
//! huge pages to those who ask (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise`), this asks. Memory stays as it is: every
//! page of the map is filled when it is made.

use isotherm_core::volume::ExtentMap;

/// A huge page of x86 and of arm64 with base pages of 4 KiB, bytes. Elsewhere the system refuses, which changes nothing.
const HUGE: usize = 2 << 20;
/// Smaller tables fit the caches.
const LEAST: usize = 8 * HUGE;

/// `MADV_COLLAPSE` of `linux/mman.h` (Linux 6.1), which the `libc` crate lacks for musl.
const COLLAPSE: libc::c_int = 25;

/// Asks for huge pages under the map's tables, and has the system collect them now. Bytes for which it agreed.
pub fn ask_for_huge(map: &ExtentMap) -> usize {
    map.tables()
        .into_iter()
        .filter(|t| t.1 >= LEAST)
        .map(|(at, bytes)| {
            let from = at.next_multiple_of(HUGE);
            let len = (at + bytes).saturating_sub(from) / HUGE * HUGE;
            let advise = |advice| {
                let start = std::ptr::without_provenance_mut(from);
                // SAFETY: the range lies within a table that `map` holds, and neither advice changes what is in it.
                len > 0 && unsafe { libc::madvise(start, len, advice) } == 0
            };
            let agreed = advise(libc::MADV_HUGEPAGE);
            // Linux 6.1. Without it the kernel collects them later, in its own time.
            if agreed && !advise(COLLAPSE) {
                return 0;
            }
            if agreed { len } else { 0 }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::volume::{Geometry, Member};
    use isotherm_core::{ExtentId, Slot, TierId};

    #[test]
    fn the_map_says_the_same_afterwards() {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        let extents = 4_000_000;
        let geo = Geometry::new(12, 12, extents, vec![m(0, 1000), m(1, extents + 8)]);
        let mut map = ExtentMap::new(&geo.unwrap());
        let slot = |e: u32| Slot(1000 + e);
        for e in (0..extents).step_by(7) {
            map.map(ExtentId(e), slot(e), false);
        }
        // Whether the system agrees is its own affair.
        let agreed = ask_for_huge(&map);
        assert!(agreed <= 12 * extents as usize && agreed.is_multiple_of(HUGE));
        for e in 0..extents {
            let want = e.is_multiple_of(7).then(|| slot(e));
            assert_eq!(map.home(ExtentId(e)), want);
        }
    }
}
