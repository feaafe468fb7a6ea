//! No cache answers sooner on average than the bound: all schedules and placements of small traces, and all presets in the lab's world.

use std::collections::HashSet;

use isotherm_core::Nanos;
use isotherm_core::policy::{PRESETS, Uses};
use isotherm_core::random::SplitMix64;
use isotherm_lab::compare::{Comparison, compare};
use isotherm_lab::latency::{Bound, Job, Service, least_sum};
use isotherm_lab::policy_spec::PolicySpec;
use isotherm_lab::sim::{Device, Memory, Setup, Tier, TimeMode, TraceFile};
use isotherm_lab::size::Size;
use isotherm_models::{FlashState, Least, ModelOp, Options as ModelOptions, presets};
use isotherm_traces::{Op, Options, Record};

const EXTENT: u64 = 4096;

/// The devices of a small case, times in nanoseconds. A unit is 512 bytes.
#[derive(Clone, Copy, Debug)]
struct World {
    /// Before the transfer of an operation of a slow device, which takes a nanosecond a unit.
    latency: u64,
    /// Whether the device works on another operation during that time.
    pipelined: bool,
    slow: u64,
    fast: u64,
    /// Added to writes to flash.
    flush: u64,
    slots: u32,
}

/// A request on one extent.
#[derive(Clone, Copy, Debug)]
struct Ask {
    at: u64,
    extent: u64,
    units: u64,
    write: bool,
}

impl World {
    fn draw(rng: &mut SplitMix64) -> World {
        World {
            latency: rng.below(6),
            pipelined: rng.below(2) == 0,
            slow: 1 + rng.below(2),
            fast: rng.below(3),
            flush: rng.below(4),
            slots: 1 + rng.below(3) as u32,
        }
    }
    fn least(&self, units: u64) -> Least {
        let whole = self.latency + units;
        Least {
            whole: Nanos(whole),
            alone: Nanos(if self.pipelined { units } else { whole }),
        }
    }
    fn write_to_flash(&self, units: u64) -> u64 {
        self.fast + units + self.flush
    }
    /// The bound on the mean latency, rounded down.
    fn bound(&self, asks: &[Ask], open: bool) -> u64 {
        let slow_read = |bytes: u32| self.least(u64::from(bytes) / 512);
        // The bound does not know what a flush costs.
        let write = |bytes: u32| {
            let units = u64::from(bytes) / 512;
            Nanos((self.fast + units).min(self.least(units).whole.0))
        };
        let service = Service {
            slow_read: &slow_read,
            write: &write,
            devices: self.slow as u32,
            acceleration: open.then_some(1.0),
        };
        let mut bound = Bound::new(service, EXTENT.trailing_zeros());
        for a in asks {
            let op = if a.write { Op::Write } else { Op::Read };
            let len = (a.units * 512) as u32;
            bound.note(&Record::new(Nanos(a.at), op, a.extent * EXTENT, len));
        }
        bound.mean().map_or(0, |n| n.0)
    }
    /// The sets of requests that may go to the slow devices, as bits, of any cache that copies what it has just served; with the cost of the
    /// others.
    fn placements(&self, asks: &[Ask]) -> HashSet<(u32, u64)> {
        let mut states = HashSet::from([(0u32, 0u32, 0u64)]);
        for (i, a) in asks.iter().enumerate() {
            let bit = 1u32 << a.extent;
            let mut next = HashSet::new();
            for &(held, slow, cost) in &states {
                // Whether the extent has, or gets, a copy; then which one leaves. Dirty copies are cleaned for nothing at the end.
                let mut rooms = vec![held, held & !bit];
                let victims = (0..32).filter(|v| held >> v & 1 == 1 && 1 << v != bit);
                rooms.extend(victims.map(|v| held & !(1 << v) | bit));
                rooms.push(held | bit);
                for to in rooms.into_iter().filter(|r| r.count_ones() <= self.slots) {
                    let hit = held & bit != 0;
                    let copied = to & bit != 0;
                    if a.write {
                        next.insert((to, slow | 1 << i, cost));
                        if copied || hit {
                            next.insert((to, slow, cost + self.write_to_flash(a.units)));
                        }
                    } else if hit {
                        // It may be in the memory of a move.
                        next.insert((to, slow, cost));
                    } else {
                        next.insert((to, slow | 1 << i, cost));
                    }
                }
            }
            states = next;
        }
        states
            .into_iter()
            .map(|(_, slow, cost)| (slow, cost))
            .collect()
    }
    /// The least sum of latencies of one slow device that serves these, over all orders.
    fn best_order(&self, left: &mut Vec<Ask>, free: u64) -> u64 {
        if left.is_empty() {
            return 0;
        }
        let mut best = u64::MAX;
        for i in 0..left.len() {
            let a = left.swap_remove(i);
            let (least, begin) = (self.least(a.units), free.max(a.at));
            let own = begin + least.whole.0 - a.at;
            let rest = self.best_order(left, begin + least.alone.0);
            best = best.min(own + rest);
            left.push(a);
            let last = left.len() - 1;
            left.swap(i, last);
        }
        best
    }
    /// The least sum of latencies over all placements and schedules.
    fn best(&self, asks: &[Ask], open: bool) -> u64 {
        let each = |(slow, others): (u32, u64)| {
            let on = |device| {
                let mine = asks.iter().enumerate();
                let mine =
                    mine.filter(|(i, a)| slow >> i & 1 == 1 && a.extent % self.slow == device);
                let mut mine: Vec<Ask> = mine.map(|(_, a)| *a).collect();
                if open {
                    self.best_order(&mut mine, 0)
                } else {
                    mine.iter().map(|a| self.least(a.units).whole.0).sum()
                }
            };
            others + (0..self.slow).map(on).sum::<u64>()
        };
        self.placements(asks)
            .into_iter()
            .map(each)
            .min()
            .unwrap_or(0)
    }
}

fn asks(rng: &mut SplitMix64) -> Vec<Ask> {
    let mut at = 0;
    let n = 1 + rng.below(6);
    let one = |_| {
        at += rng.below(8);
        Ask {
            at,
            extent: rng.below(4).min(rng.below(4)),
            units: 1 + rng.below(8),
            write: rng.below(3) == 0,
        }
    };
    (0..n).map(one).collect()
}

/// What the bound was once: first reads queue at a disk whose operations take as long as those of the disk alone on average.
fn mean_of_the_disk_alone(w: &World, asks: &[Ask]) -> f64 {
    let n = asks.len() as f64;
    let mean = asks
        .iter()
        .map(|a| w.least(a.units).whole.0 as f64)
        .sum::<f64>()
        / n;
    let mut seen = HashSet::new();
    let first = asks.iter().filter(|a| seen.insert(a.extent) && !a.write);
    first.count() as f64 * mean / n
}

#[test]
fn no_schedule_and_no_placement_is_better() {
    let mut rng = SplitMix64::new(7);
    let (mut tight, mut old_fails) = (0, 0);
    let cases = 3000;
    for case in 0..cases {
        let (w, asks) = (World::draw(&mut rng), asks(&mut rng));
        for open in [true, false] {
            let (bound, best) = (w.bound(&asks, open), w.best(&asks, open));
            let mean = best / asks.len() as u64;
            assert!(
                bound <= mean,
                "case {case}, open {open}: {bound} > {mean}: {w:?} {asks:?}"
            );
            tight += u32::from(bound == mean);
        }
        let best = w.best(&asks, true) as f64 / asks.len() as f64;
        old_fails += u32::from(mean_of_the_disk_alone(&w, &asks) > best + 1e-9);
    }
    // The comparison can fail: a mean over operations of different lengths is no bound.
    assert!(old_fails > cases / 40, "{old_fails} of {cases}");
    assert!(tight > cases / 4, "{tight} of {}", 2 * cases);
}

/// Reads of 3, 1 and 1 units that come at 0, 1 and 2, with interruption: the short ones first. 5 + 1 + 1, and not 3 + 3 + 3.
#[test]
fn the_shortest_goes_first() {
    let job = |at, n| Job {
        at: Nanos(at),
        whole: Nanos(n),
        alone: Nanos(n),
    };
    let jobs = [job(0, 3), job(1, 1), job(2, 1)];
    assert_eq!(least_sum(&mut jobs.clone(), 1), 5 + 1 + 1);
    // Two devices are one of twice the speed, but no read takes less than its own time.
    assert_eq!(least_sum(&mut jobs.clone(), 2), 3 + 1 + 1);
    // A second busy period is counted on its own.
    let apart = [job(0, 3), job(0, 3), job(100, 3), job(100, 3)];
    assert_eq!(least_sum(&mut apart.clone(), 1), 2 * (3 + 6));
}

/// Random operations on every preset that states least times.
#[test]
fn devices_keep_their_least_times() {
    let mut stated = Vec::new();
    for preset in presets().expect("valid sheets") {
        let name = preset.name.clone();
        let mut model = preset.model(&ModelOptions::default()).expect("fits");
        if model.least(ModelOp::Read, 4096).is_none() {
            continue;
        }
        for op in [ModelOp::Read, ModelOp::Write] {
            let mut rng = SplitMix64::new(3);
            // After what came before.
            let begin = 1_000_000_000_000 * (1 + op as u64);
            let (mut now, mut end, mut alone) = (begin, 0, 0);
            for _ in 0..2000 {
                now += rng.below(3) * rng.below(200_000);
                let (place, len) = (rng.below(4096) << 12, 512 << rng.below(10));
                let least = model.least(op, len).expect("as for other lengths");
                let done = model
                    .start_timed(Nanos(now), op, place, len)
                    .expect("no arm")
                    .0;
                assert!(done - now >= least.whole.0, "{name}: {op:?} of {len}");
                (end, alone) = (end.max(done), alone + least.alone.0);
            }
            assert!(end - begin >= alone, "{name}: {op:?}");
        }
        stated.push(name);
    }
    let all = ["remote", "nvme-tlc", "sata-enterprise"];
    assert!(
        all.iter().all(|n| stated.iter().any(|s| s == n)),
        "{stated:?}"
    );
}

fn spec(name: &str) -> PolicySpec {
    name.parse().expect("a preset")
}

/// All presets that use nothing but copies.
fn caches() -> Vec<PolicySpec> {
    let presets = PRESETS.iter().filter(|p| p.uses() == Uses::Copies);
    presets.map(|p| spec(p.name)).collect()
}

fn setup(fast: &str, slow: &str, size: Size, extent: u32) -> Setup {
    let device = |name| Device::preset(name).expect("a preset");
    let mut setup = Setup {
        tiers: vec![
            Tier::new(device(fast), size),
            Tier::new(device(slow), Size::Share(1_000_000)),
        ],
        extent_bytes: extent,
        ..Setup::pair(spec("lru"), size).expect("sheets")
    };
    setup.set_flash(Some(FlashState::Ideal), None);
    setup
}

/// Checks all rows against all bounds that belong to them; returns whether there is one on latency.
fn check(c: &Comparison) -> bool {
    for r in &c.rows {
        assert_eq!(r.bound.is_some(), !r.is_alone(), "{}", r.name);
        let (name, own) = (&r.name, r.report.latency_mean_s);
        if r.latency_regret.is_some() {
            assert!(
                own >= c.bounds.latency_mean_s,
                "{name}: {own:?}, {:?}",
                c.bounds
            );
        }
        assert!(
            r.cost_regret.is_none_or(|x| x >= -1e-9),
            "{name}: {:?}",
            r.cost_regret
        );
    }
    c.bounds.latency_mean_s.is_some()
}

#[test]
fn no_preset_is_better_on_random_traces() {
    let mut rng = SplitMix64::new(11);
    let policies: Vec<PolicySpec> = PRESETS.iter().map(|p| spec(p.name)).collect();
    let mut near = f64::INFINITY;
    for case in 0..36 {
        let slow = ["remote", "sata-enterprise", "nvme-qlc"][case % 3];
        let mut now = 0;
        let pace = [100_000, 3_000_000, 40_000_000][case / 3 % 3];
        // Half of the traces read almost everything for the first time.
        let places = [60, 1_000_000][case / 9 % 2];
        let record = |_| {
            now += rng.below(pace);
            let op = match rng.below(20) {
                0 => Op::Discard,
                1..=8 => Op::Write,
                _ => Op::Read,
            };
            let place = rng.below(places).min(rng.below(places)) * 4096;
            Record::new(Nanos(now), op, place, 512 << rng.below(8))
        };
        let records: Vec<Record> = (0..60).map(record).collect();
        let source = Memory::new("random", records);
        let mut base = setup("nvme-tlc", slow, Size::Bytes(8 << 14), 1 << 14);
        if case % 2 == 0 {
            base.time = TimeMode::Trace { acceleration: 1.0 };
        } else {
            base.time = TimeMode::Closed {
                depth: 1 + case as u32 % 5,
            };
        }
        let c = compare(&base, &policies, &source, false).expect("runs");
        assert!(check(&c), "no bound over {slow}");
        let regrets = c.rows.iter().filter_map(|r| r.latency_regret);
        near = regrets.fold(near, f64::min);
    }
    // It says something: one run comes near.
    assert!(near < 0.5, "{near}");
}

/// Each kind of policy is measured by its own bound.
#[test]
fn a_row_names_the_bound_that_belongs_to_it() {
    let mut rng = SplitMix64::new(2);
    // Many writes, so that the bound of write-back caches is above that of all caches.
    let record = |i| {
        let op = if rng.below(4) == 0 {
            Op::Read
        } else {
            Op::Write
        };
        Record::new(Nanos(i), op, rng.below(200) << 14, 4096)
    };
    let source = Memory::new("writes", (0..3000).map(record).collect());
    let base = setup("nvme-tlc", "exos-18tb", Size::Bytes(8 << 14), 1 << 14);
    let names = [
        "greendm",
        "lru",
        "lru,write-mode=write-around",
        "bcache-like",
        "type-aware",
    ];
    let policies: Vec<PolicySpec> = names.map(spec).to_vec();
    let c = compare(&base, &policies, &source, true).expect("runs");
    let b = &c.bounds;
    assert!(b.write_back_cost_s > b.caching_cost_s, "{b:?}");
    let tiering = Some(("tiering", b.tiering_cost_s));
    let caching = Some(("caching", b.caching_cost_s));
    let write_back = Some(("write-back", b.write_back_cost_s));
    let mixed = b.mixed_cost_s.map(|s| ("mixed", s));
    let expected = [
        tiering, write_back, caching, caching, mixed, tiering, None, None,
    ];
    assert_eq!(c.rows.len(), expected.len());
    for (r, want) in c.rows.iter().zip(expected) {
        assert_eq!(r.bound, want.map(|w| w.0), "{}", r.name);
        let regret = want.map(|w| r.cost_s / w.1 - 1.0);
        assert_eq!(r.cost_regret, regret, "{}", r.name);
    }
}

/// Extracts of the traces of the published pages, on flash over flash, a remote store and disks.
#[test]
fn no_published_row_is_better() {
    for (trace, limit) in [
        ("linux-mysql.load.zst", 2000),
        ("dss-email.parquet", 1500),
        ("tpch.parquet", 600),
    ] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/").to_owned() + trace;
        let source = TraceFile::new(path, Options::default());
        for (slow, bound) in [
            ("remote", true),
            ("sata-enterprise", true),
            ("exos-18tb", false),
        ] {
            let mut base = setup("nvme-tlc", slow, Size::Share(100_000), 1 << 16);
            base.limit = Some(limit);
            base.time = TimeMode::Trace { acceleration: 1.0 };
            let c = compare(&base, &caches(), &source, false).expect("runs");
            assert_eq!(check(&c), bound, "{trace} over {slow}");
        }
    }
}
