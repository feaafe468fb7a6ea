//! `inverse-bitmap`: small requests have more weight (Loris III-D, after Hystor; docs/policy-rules.md section 5).
//!
//! Every access adds b(N) = 2^(6 − ⌊log2 N⌋) to the unit's 32-bit counter, 1 for N > 64, where N is the whole request in
//! 4 KiB pages, rounded up. The worth is the counter; on ties the least recently used unit is coldest and the most recently
//! used hottest, in the order of accesses, not of time stamps. Counters saturate.
//!
//! Cost: O(1) per hit, O(log fast slots) per victim. Memory: 8 bytes per extent (counter, number of the last access), 24 per fast slot, and
//! 1 bit per extent for policies that plan.
//!
//! Parameters: none. When not to use it: if the hot data changes. Counters never age, so a unit that was hot for a long time stays.

use super::{Coldest, Collector, Raised, Rank};
use crate::policy::{Access, View};
use crate::units::TierId;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The amount that an access adds to the counter, for a request of `request_bytes` bytes.
pub fn weight(request_bytes: u32) -> u32 {
    match request_bytes.div_ceil(4096) {
        n @ 1..=64 => 64 >> n.ilog2(),
        0 => 64,
        _ => 1,
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct InverseBitmap {
    /// (counter, number of the last access).
    units: Vec<(u32, u32)>,
    clock: u32,
    coldest: Coldest,
    raised: Option<Raised>,
    plans: bool,
}

impl InverseBitmap {
    /// Creates the collector with a list of the units whose counter grew, for a planner.
    pub fn for_plans() -> InverseBitmap {
        InverseBitmap {
            plans: true,
            ..InverseBitmap::default()
        }
    }
    /// Numbers the last accesses of all units anew, in the same order. This is done once in 2^32 accesses, when the number of accesses
    /// would overflow.
    fn renumber(&mut self) {
        let mut order: Vec<u32> = (0..self.units.len() as u32)
            .filter(|&e| self.units[e as usize].1 != 0)
            .collect();
        order.sort_unstable_by_key(|&e| self.units[e as usize].1);
        for (e, n) in order.iter().zip(1..) {
            self.units[*e as usize].1 = n;
        }
        self.clock = order.len() as u32;
        self.coldest.again();
    }
}

impl Collector for InverseBitmap {
    fn name(&self) -> &'static str {
        "inverse-bitmap"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let n = view.units();
        self.units = vec![(0, 0); n as usize];
        self.coldest = Coldest::new(view);
        self.raised = self.plans.then(|| Raised::new(n));
    }
    fn touch(&mut self, view: &mut View<'_>, access: &Access) {
        if self.clock == u32::MAX {
            self.renumber();
        }
        self.clock += 1;
        let u = &mut self.units[access.extent.0 as usize];
        *u = (u.0.saturating_add(weight(access.request_bytes)), self.clock);
        if let Some(r) = &mut self.raised {
            r.note(access.extent);
        }
        view.set_last(access.extent, access.now);
    }
    fn placed(&mut self, view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.coldest.enter(view.tier_of(position), position);
    }
    fn left(&mut self, view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.coldest.leave(view.tier_of(position), position);
    }
    fn forget(&mut self, extent: UnitId) {
        self.units[extent.0 as usize] = (0, 0);
    }
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId> {
        let units = &self.units;
        self.coldest.find(view, tier, |e| {
            let u = units[e.0 as usize];
            (u64::from(u.0), u64::from(u.1))
        })
    }
    fn rank(&self, _view: &View<'_>, extent: UnitId) -> Rank {
        let u = self.units[extent.0 as usize];
        (u64::from(u.0), u64::from(u.1))
    }
    fn raised(&mut self, out: &mut Vec<UnitId>) {
        if let Some(r) = &mut self.raised {
            r.take(out);
        }
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        match self.units[extent.0 as usize].0 {
            0 => String::from("never accessed"),
            n => format!("counter {n} (64 for a request of 4 KiB, half for each doubling), {idle}"),
        }
    }
    fn bytes(&self) -> usize {
        self.units.len() * 8 + self.coldest.bytes() + self.raised.as_ref().map_or(0, Raised::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loris III-D: 2^(6 − ⌊log2 N⌋).
    #[test]
    fn weights() {
        for (bytes, b) in [
            (512, 64),
            (4096, 64),
            (4097, 32),
            (12_288, 32),
            (16_384, 16),
            (65_536, 4),
            (131_072, 2),
            (258_048, 2),
            (262_144, 1),
            (262_145, 1),
            (1 << 20, 1),
        ] {
            assert_eq!(weight(bytes), b, "{bytes}");
        }
    }

    #[test]
    fn renumbering_keeps_the_order() {
        let mut c = InverseBitmap {
            units: vec![(7, u32::MAX - 1), (7, 0), (7, 12), (9, u32::MAX)],
            clock: u32::MAX,
            ..InverseBitmap::default()
        };
        c.renumber();
        assert_eq!(c.units, [(7, 2), (7, 0), (7, 1), (9, 3)]);
        assert_eq!(c.clock, 3);
    }
}
