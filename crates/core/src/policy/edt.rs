//! `edt` (extent-based dynamic tiering), **reconstructed**: its paper was not available. The rules are those that OODT II–IV and Loris II
//! describe (docs/policy-rules.md section 6).
//!
//! Every `interval` seconds from the first access, the policy evaluates the work of each extent in that interval: random requests as a
//! rate, sequential ones (those that continue one of the last 32 streams) as a bandwidth. The extent's share of a tier is max(rate / the
//! tier's rate, bandwidth / the tier's bandwidth, size / the tier's size). The cost of the extent on a tier is this share multiplied by the
//! price of the tier, and the extent goes to the tier where it costs least. If the fastest tier has no room for all extents that should be
//! there, those that save most get it. On ties, extents that are there already stay, then the lower number comes first. The rates of a tier
//! are those that were measured ([`View::cost`]), or those that are set here; until there are measurements, defaults apply (20 000 and 180
//! requests, 250 and 100 MB per second). The price of a tier in between is interpolated geometrically between the fastest and the slowest
//! (of three tiers: √20 ≈ 4.5). If a tier is full, the next one is considered.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | interval | 0.001…10⁹ | 300 | seconds between plans |
//! | fast_iops, slow_iops | 0, 1…10⁹ | 0 | requests/s of the tier; 0: as measured |
//! | fast_bandwidth, slow_bandwidth | 0, 1…10¹² | 0 | bytes/s of the tier; 0: as measured |
//! | price_ratio | 0.001…10⁶ | 20 | price of a fast slot over that of a slow one |
//!
//! 8 bytes and 1 bit per extent. When not to use it: for bursts shorter than the interval; also where idle extents should stay: an idle
//! extent leaves the fast tier even if its space is not needed.

use super::hold::{FAST, is_fast};
use super::{Access, Action, Outcome, ParamError, Place, Policy, View, matrix, param};
use crate::collector::{Raised, Streams};
use crate::units::{Nanos, TierId};
use crate::volume::UnitId;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of concurrent moves in a live volume.
const AT_ONCE: u32 = 8;

/// Performance of a tier, and the price of one of its slots, in prices of slow slots. In settings, a rate of 0 means that the measured rate is used.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    iops: f64,
    bandwidth: f64,
    price: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Edt {
    interval: Nanos,
    next: Option<Nanos>,
    /// Settings of the fastest and of the slowest tier.
    tiers: [Capacity; 2],
    streams: Streams,
    /// Per extent: random requests and sequential bytes / 512 of this interval.
    units: Vec<(u32, u32)>,
    raised: Raised,
    cells: VecDeque<(UnitId, TierId)>,
    plans: u64,
}

impl Default for Edt {
    fn default() -> Edt {
        let measured = |price| Capacity {
            iops: 0.0,
            bandwidth: 0.0,
            price,
        };
        Edt {
            interval: Nanos::from_secs(300),
            next: None,
            tiers: [measured(20.0), measured(1.0)],
            streams: Streams::default(),
            units: Vec::new(),
            raised: Raised::default(),
            cells: VecDeque::new(),
            plans: 0,
        }
    }
}

impl Edt {
    /// Performance and price of `tier`.
    fn capacity(&self, view: &View<'_>, tier: TierId) -> Capacity {
        let (fast, slow) = (self.tiers[0], self.tiers[1]);
        let steps = view.slowest().0;
        let set = match tier.0 {
            0 => fast,
            t if t == steps => slow,
            t => {
                // If the rate of either end is to be measured (0), so is the rate of a tier in between.
                let on_line = |a: f64, b: f64| {
                    let both = a > 0.0 && b > 0.0;
                    if both { between(a, b, t, steps) } else { 0.0 }
                };
                Capacity {
                    iops: on_line(fast.iops, slow.iops),
                    bandwidth: on_line(fast.bandwidth, slow.bandwidth),
                    price: on_line(fast.price, slow.price),
                }
            }
        };
        let cost = view.cost(tier);
        let or = |set: f64, one: f64, each: u64| {
            if set > 0.0 {
                set
            } else {
                one / each.max(1) as f64
            }
        };
        Capacity {
            iops: or(set.iops, 1e9, cost.read.0),
            bandwidth: or(set.bandwidth, 1e12, cost.read_byte_ps),
            price: set.price,
        }
    }
    /// The saving if the extent is on `tier` and not on a slower tier, in prices of slow slots; negative if `tier` costs more.
    fn saving(
        &self,
        view: &View<'_>,
        e: UnitId,
        tier: TierId,
        can: &Capacity,
        slow: &Capacity,
    ) -> f64 {
        let (random, sectors) = self.units[e.0 as usize];
        let seconds = self.interval.as_secs_f64();
        let (rate, bandwidth) = (
            f64::from(random) / seconds,
            f64::from(sectors) * 512.0 / seconds,
        );
        let cost = |c: &Capacity, t: TierId| {
            let slots = f64::from(view.positions(t).len() as u32);
            let share = (rate / c.iops)
                .max(bandwidth / c.bandwidth)
                .max(f64::from(view.weight(e)) / slots);
            share * (c.price * slots)
        };
        cost(slow, view.slowest()) - cost(can, tier)
    }
    fn begin(&mut self, view: &View<'_>) {
        self.plans += 1;
        let mut touched = Vec::new();
        self.raised.take(&mut touched);
        if view.tiers() > 2 {
            return self.begin_all(view, touched);
        }
        let f = view.positions(FAST).end;
        let mut here: Vec<UnitId> = (0..f)
            .filter_map(|s| view.owner(view.position(s)))
            .collect();
        let (can, slow) = (
            self.capacity(view, FAST),
            self.capacity(view, view.slowest()),
        );
        let mut all: Vec<(f64, bool, UnitId)> = touched
            .iter()
            .filter(|&&e| view.home(e).is_some() && !is_fast(view, e))
            .chain(&here)
            .map(|&e| {
                (
                    self.saving(view, e, FAST, &can, &slow),
                    !is_fast(view, e),
                    e,
                )
            })
            .filter(|x| x.0 > 0.0)
            .collect();
        all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        take_what_fits(view, &mut all, FAST);
        let mut chosen: Vec<UnitId> = all.iter().map(|x| x.2).collect();
        chosen.sort_unstable();
        here.sort_unstable();
        let slowest = view.slowest();
        self.cells.clear();
        let down = here.iter().filter(|e| chosen.binary_search(e).is_err());
        self.cells.extend(down.map(|&e| (e, slowest)));
        let up = chosen.iter().filter(|&&e| !is_fast(view, e));
        self.cells.extend(up.map(|&e| (e, FAST)));
        for e in touched {
            self.units[e.0 as usize] = (0, 0);
        }
    }
}

impl Edt {
    /// Makes a plan over more than two tiers.
    fn begin_all(&mut self, view: &View<'_>, touched: Vec<UnitId>) {
        let slowest = view.slowest();
        let at = |e: UnitId| view.home(e).map(|s| view.tier_of(s));
        let upper = view.positions(slowest).start;
        let mut left: Vec<UnitId> = (0..upper)
            .filter_map(|s| view.owner(view.position(s)))
            .collect();
        left.extend(touched.iter().filter(|&&e| at(e) == Some(slowest)));
        let mut moves = Vec::new();
        let can: Vec<Capacity> = (0..=slowest.0)
            .map(|t| self.capacity(view, TierId(t)))
            .collect();
        let slow = can[usize::from(slowest.0)];
        let saving = |e, t: u8| self.saving(view, e, TierId(t), &can[usize::from(t)], &slow);
        for t in (0..slowest.0).map(TierId) {
            // The extents for which this tier is the cheapest of the remaining tiers.
            let wants = |e: UnitId| {
                let here = saving(e, t.0);
                let cheapest = (t.0 + 1..slowest.0).all(|l| saving(e, l) <= here);
                (here > 0.0 && cheapest).then_some(here)
            };
            let mut all: Vec<(f64, bool, UnitId)> = left
                .iter()
                .filter_map(|&e| wants(e).map(|n| (n, at(e) != Some(t), e)))
                .collect();
            all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
            take_what_fits(view, &mut all, t);
            let mut chosen: Vec<UnitId> = all.iter().map(|x| x.2).collect();
            chosen.sort_unstable();
            left.retain(|e| chosen.binary_search(e).is_err());
            moves.extend(chosen.iter().map(|&e| (e, t)));
        }
        moves.extend(left.iter().map(|&e| (e, slowest)));
        let moves = moves.into_iter().filter_map(|(e, to)| {
            let from = at(e).filter(|&from| from != to)?;
            Some((e, from, to))
        });
        self.cells = matrix::in_order(view, moves);
        for e in touched {
            self.units[e.0 as usize] = (0, 0);
        }
    }
}

/// Keeps the best of these extents, as many as fit the tier together.
fn take_what_fits(view: &View<'_>, all: &mut Vec<(f64, bool, UnitId)>, tier: TierId) {
    let mut room = view.positions(tier).len() as u32;
    all.retain(|x| {
        let grains = view.weight(x.2);
        let fits = grains <= room;
        room -= if fits { grains } else { 0 };
        fits
    });
}

/// The number `i` of `n` steps from `a` to `b` on the geometric line between them, by bisection, because `powf` needs the standard
/// library. The precision is 2^-40 of the line.
fn between(a: f64, b: f64, i: u8, n: u8) -> f64 {
    let (mut lo, mut hi) = ((a, 0.0), (b, 1.0));
    let wanted = f64::from(i) / f64::from(n);
    for _ in 0..40 {
        let mid = (root(lo.0 * hi.0), f64::midpoint(lo.1, hi.1));
        if mid.1 < wanted {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    hi.0
}

/// Square root of a positive number, by Newton's method.
fn root(x: f64) -> f64 {
    let mut r = if x > 1.0 { x } else { 1.0 };
    for _ in 0..100 {
        let next = f64::midpoint(r, x / r);
        if next >= r {
            break;
        }
        r = next;
    }
    r
}

impl Policy for Edt {
    fn name(&self) -> &'static str {
        "edt"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let n = view.units();
        self.units = vec![(0, 0); n as usize];
        self.raised = Raised::new(n);
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, _wanted: &mut Vec<Action>) {
        let e = access.extent;
        view.set_last(e, access.now);
        self.next.get_or_insert(access.now + self.interval);
        let (continues, _) = self.streams.note(access);
        let u = &mut self.units[e.0 as usize];
        if continues {
            let from = view.start(e);
            let to = from + view.unit_bytes(e);
            let end = access.request_offset + u64::from(access.request_bytes);
            let bytes = end.min(to).saturating_sub(access.request_offset.max(from));
            u.1 = u.1.saturating_add((bytes / 512) as u32);
        } else {
            u.0 = u.0.saturating_add(1);
        }
        self.raised.note(e);
    }
    fn on_settled(
        &mut self,
        _view: &mut View<'_>,
        _action: Action,
        _how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if let Some(next) = self.next.filter(|&t| t <= view.now()) {
            self.begin(view);
            self.next = Some(next + self.interval);
        }
        while let Some(&(extent, to)) = self.cells.front() {
            let waits = to < view.slowest() && view.free(to) == 0 && view.moves() > 0;
            if waits || view.moves() + wanted.len() as u32 >= AT_ONCE {
                return;
            }
            self.cells.pop_front();
            wanted.push(Action::Move { extent, to });
        }
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.next
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        let or_measured = |most, what| {
            if value == 0.0 {
                Ok(0.0)
            } else {
                param::within(value, 1.0, most, what)
            }
        };
        let rate = || {
            or_measured(
                1e9,
                "requests per second, 1 to 10^9, or 0 for what is measured",
            )
        };
        let bandwidth = || {
            or_measured(
                1e12,
                "bytes per second, 1 to 10^12, or 0 for what is measured",
            )
        };
        match key {
            "interval" => {
                let s = param::within(value, 0.001, 1e9, "seconds, 0.001 to 10^9")?;
                self.interval = Nanos((s * 1e9) as u64);
            }
            "fast_iops" => self.tiers[0].iops = rate()?,
            "slow_iops" => self.tiers[1].iops = rate()?,
            "fast_bandwidth" => self.tiers[0].bandwidth = bandwidth()?,
            "slow_bandwidth" => self.tiers[1].bandwidth = bandwidth()?,
            "price_ratio" => {
                self.tiers[0].price = param::within(value, 0.001, 1e6, "a ratio, 0.001 to 10^6")?;
            }
            _ => {
                let names = self.params();
                let nearest = super::nearest(key, names.iter().map(|p| p.0));
                return Err(ParamError::Unknown(nearest));
            }
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        let [fast, slow] = self.tiers;
        vec![
            ("interval", self.interval.as_secs_f64()),
            ("fast_iops", fast.iops),
            ("slow_iops", slow.iops),
            ("fast_bandwidth", fast.bandwidth),
            ("slow_bandwidth", slow.bandwidth),
            ("price_ratio", fast.price),
        ]
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let (random, sectors) = self.units[extent.0 as usize];
        let idle = view.last_words(extent);
        let (can, slow) = (
            self.capacity(view, FAST),
            self.capacity(view, view.slowest()),
        );
        format!(
            "this interval: {random} random requests, {} sequential bytes; being on the fastest tier saves {:.2} slow slots' price (over 0 it belongs there); {idle}",
            u64::from(sectors) * 512,
            self.saving(view, extent, FAST, &can, &slow)
        )
    }
    fn warning(&self) -> Option<String> {
        (self.plans == 0).then(|| {
            String::from("edt made no plan: the work ended before its first planning instant; choose a smaller interval")
        })
    }
    fn bytes(&self) -> usize {
        self.units.len() * 8
            + self.raised.bytes()
            + self.streams.bytes()
            + self.cells.capacity() * size_of::<(UnitId, TierId)>()
    }
}
