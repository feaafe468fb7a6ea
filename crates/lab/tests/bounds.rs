//! No policy is better than the bounds, and for traces whose schedules can all be tried, the bounds agree with the best schedule.

use isotherm_core::Nanos;
use isotherm_core::policy::{PRESETS, Uses, build};
use isotherm_lab::bound::{
    Prices, Sequence, belady, interval_bound, mixed_bound, write_back_bound,
};
use isotherm_lab::sim::{Memory, Setup, hit_only};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};
use proptest::prelude::*;

const PRICES: Prices = Prices {
    fast_s: 1.0,
    slow_s: 10.0,
    promotion_s: 11.0,
    demotion_s: 9.5,
    fetch_s: 1.0,
    writeback_s: 9.5,
};

fn accesses(units: u32, n: usize) -> impl Strategy<Value = Vec<(u32, bool)>> {
    // The lower of two random numbers, so that some units are hotter.
    let one = (0..units, 0..units, any::<bool>()).prop_map(|(a, b, w)| (a.min(b), w));
    prop::collection::vec(one, 1..n)
}

fn trace(of: &[(u32, bool)]) -> Memory {
    let record = |(i, &(u, w)): (usize, &(u32, bool))| {
        let op = if w { Op::Write } else { Op::Read };
        Record::new(Nanos(i as u64 * 1_000_000), op, u64::from(u) * 4096, 4096)
    };
    Memory::new("random", of.iter().enumerate().map(record).collect())
}

/// The most hits of any schedule that fetches only on access; every choice is tried.
fn most_hits(of: &[(u32, bool)], slots: u32) -> u64 {
    let mut best = std::collections::HashMap::from([(0u32, 0u64)]);
    for &(u, _) in of {
        let mut next = std::collections::HashMap::new();
        let mut keep = |set: u32, hits: u64| {
            let h = next.entry(set).or_insert(0);
            *h = hits.max(*h);
        };
        for (&set, &hits) in &best {
            let bit = 1 << u;
            let hits = hits + u64::from(set & bit != 0);
            keep(set, hits);
            if set & bit == 0 {
                if set.count_ones() < slots {
                    keep(set | bit, hits);
                }
                for v in (0..32).filter(|v| set >> v & 1 == 1) {
                    keep(set & !(1 << v) | bit, hits);
                }
            }
        }
        best = next;
    }
    best.into_values().max().unwrap_or(0)
}

/// The least service cost of any tiering schedule: before every access any set of moves may be made, and a first touch may be placed
/// anywhere.
fn least_cost(of: &[(u32, bool)], slots: u32, units: u32) -> f64 {
    let sets = 1usize << units;
    let mut best = vec![f64::INFINITY; sets];
    best[0] = 0.0;
    let mut touched = 0usize;
    for &(u, _) in of {
        let mut moved = vec![f64::INFINITY; sets];
        for (a, cost) in best.iter().enumerate().filter(|x| x.1.is_finite()) {
            for (b, m) in moved.iter_mut().enumerate() {
                if b & !touched == 0 && (b as u32).count_ones() <= slots {
                    let up = f64::from((b & !a).count_ones()) * PRICES.promotion_s;
                    let down = f64::from((a & !b).count_ones()) * PRICES.demotion_s;
                    *m = m.min(cost + up + down);
                }
            }
        }
        let bit = 1usize << u;
        let first = touched & bit == 0;
        touched |= bit;
        let mut next = vec![f64::INFINITY; sets];
        for (a, cost) in moved.iter().enumerate().filter(|x| x.1.is_finite()) {
            let hit = a & bit != 0;
            let c = cost + if hit { PRICES.fast_s } else { PRICES.slow_s };
            next[a] = next[a].min(c);
            if first && (a as u32).count_ones() < slots {
                next[a | bit] = next[a | bit].min(c);
            }
        }
        best = next;
    }
    best.into_iter().fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn belady_is_the_best_of_all_schedules(of in accesses(6, 24), slots in 1u32..5) {
        let s = Sequence::new(6, of.iter().copied());
        prop_assert_eq!(belady(&s, u64::from(slots)), most_hits(&of, slots));
    }

    #[test]
    fn the_interval_bound_is_below_the_best_of_all_schedules(of in accesses(4, 20), slots in 1u32..4) {
        let s = Sequence::new(4, of.iter().copied());
        let (bound, _) = interval_bound(&s, u64::from(slots), &PRICES, false);
        let least = least_cost(&of, slots, 4);
        prop_assert!(bound <= least + 1e-9, "{} > {}", bound, least);
        // With room for all units, only first touches cost anything: then both are equal.
        let (bound, _) = interval_bound(&s, 4, &PRICES, false);
        let least = least_cost(&of, 4, 4);
        prop_assert!((bound - least).abs() < 1e-9, "{} and {}", bound, least);
    }

    #[test]
    fn no_policy_beats_the_bounds(of in accesses(200, 1500), slots in 2u64..40) {
        let memory = trace(&of);
        let s = Sequence::new(200, of.iter().copied());
        let hits = belady(&s, slots);
        let (tiering, _) = interval_bound(&s, slots, &PRICES, false);
        let (caching, _) = interval_bound(&s, slots, &PRICES, true);
        let write_back = write_back_bound(&s, slots, &PRICES, hits);
        for p in PRESETS {
            let setup = Setup::pair(p.name.parse().expect("a preset"), Size::Bytes(slots * 4096)).expect("sheets");
            let r = hit_only(&setup, &memory).expect("runs");
            let own = (r.fast_hit_ratio * r.accesses as f64).round() as u64;
            prop_assert!(own <= hits, "{}: {} hits, bound {}", p.name, own, hits);
            let cost = PRICES.of(&r);
            let bound = match p.uses() {
                Uses::Homes => tiering,
                Uses::Copies => caching,
                Uses::Both => mixed_bound(&s, slots, &PRICES),
            };
            prop_assert!(cost >= bound - 1e-9, "{}: {} < {}", p.name, cost, bound);
            let built = build(p.name, std::iter::empty()).expect("a preset");
            if built.writes_back_on_demand() {
                prop_assert!(cost >= write_back - 1e-9, "{}: {} < {}", p.name, cost, write_back);
            }
        }
    }
}
