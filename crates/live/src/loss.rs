//! What a volume has lost with a cache that is gone.

use crate::volume::Volume;
use isotherm_core::Slot;
use isotherm_core::policy::Uses;

/// Bytes of the volume from the first of each to the second.
pub type Ranges = Vec<(u64, u64)>;

impl Volume {
    /// What is served in spite of missing members, and is not the whole truth: byte ranges of the volume whose newest data was
    /// in a cache that is gone, and whether there may be more of which the survivors know nothing. Empty and false if
    /// nothing of that kind is missing.
    pub fn lost_writes(&self) -> (Ranges, bool) {
        let o = &self.opened;
        let map = &o.space.map;
        let (geo, missing) = (&o.space.geo, &o.report.missing);
        let mut ranges = Ranges::new();
        let fast = geo.tier_slots(geo.slowest()).start;
        let gone = missing.iter().any(|m| {
            let m = &geo.members[usize::from(m.0)];
            m.tier != geo.slowest()
        });
        if !gone {
            return (ranges, false);
        }
        let (blocks, shift) = (geo.blocks_per_extent(), geo.block_shift);
        let mut extents: Vec<_> = (0..fast)
            .map(Slot)
            .filter(|&s| missing.contains(&geo.locate(s).0))
            .filter_map(|s| map.owner(s).filter(|&e| map.copy(e) == Some(s)))
            .collect();
        extents.sort_unstable();
        for e in extents {
            let base = u64::from(e.0) << geo.extent_shift;
            let mut b = 0;
            while b < blocks {
                let (n, dirty) = map.dirty_run(e, b, blocks);
                let (from, to) = (u64::from(b) << shift, u64::from(b + n) << shift);
                match ranges.last_mut().filter(|r| r.1 == base + from) {
                    Some(last) if dirty => last.1 = base + to,
                    _ if dirty => ranges.push((base + from, base + to)),
                    _ => {}
                }
                b += n;
            }
        }
        (
            ranges,
            o.report.incomplete && (self.policy.uses() != Uses::Homes || map.copied() > 0),
        )
    }
}
