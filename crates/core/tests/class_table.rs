//! `dss-lru-s` with a class table: pinned classes stay, limited classes do not exceed their limits, and excluded classes get no copies.

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{ParamValue, Policy, build_with};
use isotherm_core::{ExtentId, Nanos, TierId};

const FAST: u32 = 40;
const UNITS: u32 = 400;

fn engine(rows: &[&str]) -> NullEngine<Box<dyn Policy>> {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let geo = Geometry::new(12, 12, UNITS, vec![m(0, FAST), m(1, UNITS)]).expect("a shape");
    let params = rows.iter().map(|r| ("class", ParamValue::Name(r)));
    NullEngine::new(geo, build_with("dss-lru-s", params).expect("rows"))
}

/// The class of a unit: 7, 8, 9, 13 and 25 in turn.
fn class(unit: u32) -> u8 {
    [7, 8, 9, 13, 25][unit as usize % 5]
}

/// Reads and writes all units. Returns the number of entries of each class at the end, and the largest number that each class ever had.
fn run(rows: &[&str]) -> ([u32; 5], [u32; 5]) {
    let mut e = engine(rows);
    let mut random = isotherm_core::random::SplitMix64::new(1);
    let mut most = [0; 5];
    let held = |e: &NullEngine<Box<dyn Policy>>| {
        let mut n = [0; 5];
        for u in 0..UNITS {
            n[u as usize % 5] += u32::from(e.copy(ExtentId(u)).is_some());
        }
        n
    };
    for i in 0..6000u64 {
        let x = random.draw();
        let unit = (x >> 33) as u32 % UNITS;
        let at = (u64::from(unit) << 12, 4096);
        let now = Nanos::from_millis(i);
        e.access(now, ExtentId(unit), x >> 62 == 0, class(unit), at);
        if i % 50 == 0 {
            for (m, n) in most.iter_mut().zip(held(&e)) {
                *m = (*m).max(n);
            }
        }
    }
    (held(&e), most)
}

#[test]
fn without_rows_the_highest_priority_fills_the_cache() {
    let (held, _) = run(&[]);
    assert!(
        held[0] > FAST / 2 && held[3] + held[4] <= FAST / 5,
        "{held:?}"
    );
    // A row that states the default changes nothing.
    assert_eq!(run(&["7+priority=0", "8+priority=1"]).0, held);
}

#[test]
fn priorities_can_be_reversed() {
    let (held, _) = run(&[
        "7+priority=12",
        "25+priority=0",
        "13+priority=11+admit=always",
    ]);
    assert!(held[4] > FAST / 2 && held[0] <= FAST / 5, "{held:?}");
}

#[test]
fn excluded_and_limited_classes_keep_their_limits() {
    let (_, most) = run(&["7+admit=never", "8+max=25"]);
    assert_eq!(most[0], 0);
    assert!((5..=FAST / 4).contains(&most[1]), "{most:?}");
}

#[test]
fn a_minimum_holds_against_higher_priorities() {
    let (held, _) = run(&["25+min=20+admit=always"]);
    let (without, _) = run(&["25+admit=always"]);
    assert!(
        held[4] >= FAST / 5 && without[4] < FAST / 5,
        "{held:?} {without:?}"
    );
}

#[test]
fn pinned_classes_are_never_evicted() {
    let mut e = engine(&["9+pin"]);
    let pinned: Vec<u32> = (0..10).map(|i| i * 5 + 2).collect();
    let touch = |e: &mut NullEngine<Box<dyn Policy>>, i: u64, unit: u32| {
        e.access(
            Nanos::from_millis(i),
            ExtentId(unit),
            false,
            class(unit),
            (u64::from(unit) << 12, 4096),
        );
    };
    for (i, u) in pinned.iter().enumerate() {
        touch(&mut e, i as u64, *u);
    }
    for i in 100..3000u64 {
        let unit = (i * 7919 % u64::from(UNITS)) as u32;
        if class(unit) != 9 {
            touch(&mut e, i, unit);
        }
    }
    assert!(pinned.iter().all(|u| e.copy(ExtentId(*u)).is_some()));
}

#[test]
fn impossible_rows_are_refused() {
    for bad in ["1-7+min=20", "64+pin", "8+max=10+min=20"] {
        let params = [("class", ParamValue::Name(bad))].into_iter();
        assert!(build_with("dss-lru-s", params).is_err(), "{bad}");
    }
    // Plain LRU has no parameter for classes.
    let params = [("class", ParamValue::Name("8+pin"))].into_iter();
    assert!(build_with("dss-lru", params).is_err());
}
