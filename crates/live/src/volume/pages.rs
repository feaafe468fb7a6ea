//! Huge pages for a large map.
//!
//! A request at a random place of a large map misses the processor's caches for its row. With pages of 4 KiB it also misses the translation
//! lookaside buffer (TLB), so there is a second load from memory before the first (`bench/map/run.sh` measures it). If the system gives
//! huge pages only on request (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise`), this module requests them. The use of memory
//! does not change: every page of the map is filled when it is made.

use isotherm_core::volume::ExtentMap;

/// Size of a huge page of x86 and of arm64 with base pages of 4 KiB, in bytes. On other systems the request is refused, which does no harm.
const HUGE: usize = 2 << 20;
/// Smaller tables fit into the caches.
const LEAST: usize = 8 * HUGE;

/// `MADV_COLLAPSE` of `linux/mman.h` (Linux 6.1). rustix lacks it and takes no other numbers, and libc lacks it for musl, so both requests
/// below are calls of libc with numbers.
const COLLAPSE: libc::c_int = 25;

/// Requests huge pages for the map's tables, and asks the system to collect them now. Returns the number of bytes for which it agreed.
pub fn ask_for_huge(map: &ExtentMap) -> usize {
    map.tables()
        .into_iter()
        .filter(|t| t.1 >= LEAST)
        .map(|(at, bytes)| {
            let from = at.next_multiple_of(HUGE);
            let len = (at + bytes).saturating_sub(from) / HUGE * HUGE;
            let advise = |advice| {
                let start = std::ptr::without_provenance_mut(from);
                // SAFETY: the range lies within a table that `map` holds, and neither request changes its contents.
                len > 0 && unsafe { libc::madvise(start, len, advice) } == 0
            };
            let agreed = advise(libc::MADV_HUGEPAGE);
            // Since Linux 6.1. Without it the kernel collects them later.
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
            stash: isotherm_core::geometry::Stash::default(),
        };
        let extents = 4_000_000;
        let geo = Geometry::new(12, 12, extents, vec![m(0, 1000), m(1, extents + 8)]);
        let mut map = ExtentMap::new(&geo.unwrap());
        let slot = |e: u32| Slot(1000 + e);
        for e in (0..extents).step_by(7) {
            map.map(ExtentId(e), slot(e), false);
        }
        // The system may agree or not.
        let agreed = ask_for_huge(&map);
        assert!(agreed <= 12 * extents as usize && agreed.is_multiple_of(HUGE));
        for e in 0..extents {
            let want = e.is_multiple_of(7).then(|| slot(e));
            assert_eq!(map.home(ExtentId(e)), want);
        }
    }
}
