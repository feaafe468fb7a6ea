//! `hro` and `hot`: hot random off-loading (HRO III, Algorithm 1; docs/policy-rules.md section 7).
//!
//! Requests are clipped to the unit. A request extends the last one if it has the same type, comes less than 0.5 s after it, and starts
//! where it ended. Any other request adds 1 to the randomness count R and becomes the last one. Both kinds add 1 to the frequency f. The
//! value is v = (f / s) · R for a unit of size s. Units of the same size are ranked by v / s; the whole number f · R gives the same order.
//! `hot` ranks by f only. On ties, units that are already on the fast tier come first, then lower numbers.
//!
//! In the printed algorithm the `else` belongs to the first test only; its text and examples need all three tests. Counters are
//! kept from one period to the next; the paper does not say.
//!
//! The end and the time of the last request are needed only for half a second. So they are stored only for units that were accessed within
//! that time ([`Recent`]).
//!
//! Memory: 8 bytes and 1 bit per extent, 24 bytes per fast slot, and at most 80 bytes per unit that was accessed within the last half
//! second.

use super::{Coldest, Collector, Last, Raised, Rank, Recent};
use crate::policy::{Access, View};
use crate::units::{Nanos, TierId};
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Requests that are further apart in time are never sequential (Algorithm 1).
const WINDOW: Nanos = Nanos::from_millis(500);
const WRITE: u32 = 1 << 31;

/// Counters of a unit.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    frequency: u32,
    randomness: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Hro {
    by_frequency: bool,
    units: Vec<Unit>,
    /// The last requests. The highest bit of a request's end says that it was a write.
    recent: Recent,
    coldest: Coldest,
    raised: Raised,
}

impl Hro {
    /// Creates `hro`, which ranks by f · R.
    pub fn new() -> Hro {
        Hro::default()
    }
    /// Creates `hot`, which ranks by f.
    pub fn by_frequency() -> Hro {
        Hro {
            by_frequency: true,
            ..Hro::default()
        }
    }
    /// The counters f and R of a unit.
    pub fn counts(&self, e: UnitId) -> (u32, u32) {
        let u = self.units[e.0 as usize];
        (u.frequency, u.randomness)
    }
}

fn worth(u: Unit, by_frequency: bool) -> u64 {
    let r = if by_frequency { 1 } else { u.randomness };
    u64::from(u.frequency) * u64::from(r)
}

fn rank(u: Unit, e: UnitId, by_frequency: bool) -> Rank {
    (worth(u, by_frequency), u64::from(u32::MAX - e.0))
}

impl Collector for Hro {
    fn name(&self) -> &'static str {
        if self.by_frequency { "hot" } else { "hro" }
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let n = view.units();
        self.units = alloc::vec![Unit::default(); n as usize];
        self.coldest = Coldest::new(view);
        self.raised = Raised::new(n);
    }
    fn touch(&mut self, view: &mut View<'_>, access: &Access) {
        let base = view.start(access.extent);
        let size = view.unit_bytes(access.extent);
        let request_end = access.request_offset + u64::from(access.request_bytes);
        let start = access.request_offset.saturating_sub(base) as u32;
        let end = request_end
            .saturating_sub(base)
            .min(size)
            .min(u64::from(WRITE - 1)) as u32;
        let this = Last {
            time: access.now,
            end: end | if access.write { WRITE } else { 0 },
        };
        let same = self
            .recent
            .replace(access.extent, this, WINDOW)
            .is_some_and(|last| {
                (last.end & WRITE != 0) == access.write && start == last.end & !WRITE
            });
        let u = &mut self.units[access.extent.0 as usize];
        if u.frequency == 0 || !same {
            u.randomness = u.randomness.saturating_add(1);
        }
        u.frequency = u.frequency.saturating_add(1);
        self.raised.note(access.extent);
        view.set_last(access.extent, access.now);
    }
    fn placed(&mut self, view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.coldest.enter(view.tier_of(position), position);
    }
    fn left(&mut self, view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.coldest.leave(view.tier_of(position), position);
    }
    fn forget(&mut self, extent: UnitId) {
        self.units[extent.0 as usize] = Unit::default();
    }
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId> {
        let (units, by) = (&self.units, self.by_frequency);
        self.coldest
            .find(view, tier, |e| rank(units[e.0 as usize], e, by))
    }
    fn rank(&self, _view: &View<'_>, extent: UnitId) -> Rank {
        rank(self.units[extent.0 as usize], extent, self.by_frequency)
    }
    fn raised(&mut self, out: &mut Vec<UnitId>) {
        self.raised.take(out);
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let (f, r) = self.counts(extent);
        let bytes = view.unit_bytes(extent) as f64;
        let value = f64::from(f) / bytes * f64::from(r);
        let idle = view.last_words(extent);
        format!(
            "{f} requests, {r} of them random: value (f / s) · R = {value:.6}, score f · R = {}, {idle}",
            u64::from(f) * u64::from(r)
        )
    }
    fn bytes(&self) -> usize {
        self.units.len() * size_of::<Unit>()
            + self.recent.bytes()
            + self.coldest.bytes()
            + self.raised.bytes()
    }
}
