//! Classes under `benefit`: the administrator's rows, and the measured worth of each class.
#![allow(clippy::unwrap_used)]

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{ParamValue, Policy, build_with};
use isotherm_core::random::SplitMix64;
use isotherm_core::{ExtentId, Nanos, TierId};

const FAST: u32 = 40;
const UNITS: u32 = 4000;
const JOURNAL: u8 = 7;
const SMALL: u8 = 9;
const FILM: u8 = 14;

type Engine = NullEngine<Box<dyn Policy>>;

/// `benefit` with these rows and other parameters that are names. Extents have 2^`shift` bytes.
fn engine_of(shift: u32, fast: u32, params: &[(&str, &str)]) -> Engine {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let geo = Geometry::new(shift, 12, UNITS, vec![m(0, fast), m(1, UNITS)]).unwrap();
    let params = params.iter().map(|(k, v)| (*k, ParamValue::Name(v)));
    NullEngine::new(geo, build_with("benefit", params).unwrap())
}

fn engine(rows: &[&str]) -> Engine {
    let params: Vec<_> = rows.iter().map(|r| ("class", *r)).collect();
    engine_of(12, FAST, &params)
}

/// A request for one block, at `ms` milliseconds. Returns whether it hit.
fn touch(e: &mut Engine, ms: u64, unit: u32, write: bool, class: u8) -> bool {
    let request = (u64::from(unit) << 12, 4096);
    e.access(
        Nanos::from_millis(ms),
        ExtentId(unit),
        write,
        class,
        request,
    )
}

fn has(e: &Engine, unit: u32) -> bool {
    e.copy(ExtentId(unit)).is_some()
}

/// Which accesses hit, and which extents have copies at the end. `class` returns the class of an extent.
fn decisions(e: &mut Engine, seed: u64, class: impl Fn(u32) -> u8) -> (Vec<bool>, Vec<u32>) {
    let mut random = SplitMix64::new(seed);
    let mut hits = Vec::new();
    for i in 0..20_000 {
        // Low extents are requested more often. Times have gaps, in which dirty copies are cleaned.
        let most = 1 + random.below(400);
        let unit = random.below(most) as u32;
        let write = random.below(4) == 0;
        let at = i * 20 + i / 500 * 20_000;
        hits.push(touch(e, at, unit, write, class(unit)));
    }
    (hits, (0..UNITS).filter(|u| has(e, *u)).collect())
}

#[test]
fn nothing_differs_without_classes_or_with_one() {
    for seed in 0..5 {
        let without = decisions(
            &mut engine_of(12, FAST, &[("without", "classes")]),
            seed,
            |_| 0,
        );
        assert!(without.0.iter().filter(|h| **h).count() > 3000);
        let none = decisions(&mut engine(&[]), seed, |_| 0);
        assert!(none == without, "seed {seed}: without classes");
        let one = decisions(&mut engine(&[]), seed, |_| SMALL);
        assert!(one == without, "seed {seed}: all of one class");
        // Rows that concern no data are no difference either.
        let rows = decisions(&mut engine(&["40+pin", "41+max=10"]), seed, |_| 0);
        assert!(rows == without, "seed {seed}: rows of other classes");
    }
}

#[test]
fn classes_that_say_nothing_cost_next_to_nothing() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..10 {
        // The class depends on the place, and use does not depend on the class.
        let class = |unit: u32| 8 + (unit.wrapping_mul(0x9e37_79b9) >> 29) as u8;
        let count = |d: (Vec<bool>, Vec<u32>)| d.0.iter().filter(|h| **h).count();
        with += count(decisions(&mut engine(&[]), seed, class));
        without += count(decisions(&mut engine(&[]), seed, |_| 0));
    }
    assert!(with * 100 > without * 97, "{with} of {without}");
}

/// Number of hits of 30 journal blocks among reads of films, each of which is read once. `told`: whether requests have classes.
fn journal_hits(told: bool, seed: u64) -> u32 {
    let mut e = engine(&[]);
    let mut random = SplitMix64::new(seed);
    let mut hits = 0;
    let class = |c| if told { c } else { 0 };
    for i in 0..20_000u64 {
        if random.below(5) == 0 {
            let unit = random.below(30) as u32;
            let hit = touch(&mut e, i * 10, unit, false, class(JOURNAL));
            hits += u32::from(hit && i >= 2000);
        } else {
            // Every second block, so that it is no stream.
            let unit = 100 + (i * 2 % u64::from(UNITS - 100)) as u32;
            touch(&mut e, i * 10, unit, false, class(FILM));
        }
    }
    hits
}

#[test]
fn a_class_that_is_not_used_again_does_not_push_out_one_that_is() {
    for seed in 0..5 {
        let (told, untold) = (journal_hits(true, seed), journal_hits(false, seed));
        // There are about 3600 accesses to the journal.
        assert!(told > 1500 && told > untold * 3 / 2, "{told} {untold}");
    }
}

#[test]
fn what_a_class_is_worth_is_measured_anew() {
    // The kinds change places: now films are used again, and the journal is not.
    let mut e = engine(&[]);
    let mut random = SplitMix64::new(1);
    let mut hits = [0, 0];
    for i in 0..60_000u64 {
        let (valued, noise) = if i < 20_000 {
            (JOURNAL, FILM)
        } else {
            (FILM, JOURNAL)
        };
        if random.below(5) == 0 {
            let hit = touch(&mut e, i * 10, random.below(30) as u32, false, valued);
            hits[usize::from(i >= 20_000)] += u32::from(hit && i % 20_000 >= 10_000);
        } else {
            let unit = 100 + (i * 2 % u64::from(UNITS - 100)) as u32;
            touch(&mut e, i * 10, unit, false, noise);
        }
    }
    // The second phase is twice as long.
    assert!(hits[1] > hits[0] * 3 / 2 && hits[0] > 1000, "{hits:?}");
}

/// Reads and writes units of five classes. Returns the number of copies of each class at the end, and the largest number of each.
fn run(rows: &[&str]) -> ([u32; 5], [u32; 5]) {
    let mut e = engine(rows);
    let mut random = SplitMix64::new(1);
    let mut most = [0; 5];
    let class = |unit: u32| [7, 8, 9, 13, 25][unit as usize % 5];
    let held = |e: &Engine| {
        let mut n = [0; 5];
        (0..400).for_each(|u| n[u as usize % 5] += u32::from(has(e, u)));
        n
    };
    for i in 0..12_000u64 {
        let x = random.draw();
        let unit = (x >> 33) as u32 % 400;
        touch(&mut e, i * 20, unit, x >> 61 == 0, class(unit));
        if i % 50 == 0 {
            for (m, n) in most.iter_mut().zip(held(&e)) {
                *m = (*m).max(n);
            }
        }
    }
    (held(&e), most)
}

#[test]
fn excluded_and_limited_classes_keep_their_limits() {
    let (_, free) = run(&[]);
    assert!(free[0] > 4 && free[1] > 4, "{free:?}");
    let (held, most) = run(&["7+admit=never", "8+max=10"]);
    assert_eq!(most[0], 0);
    assert!((1..=4).contains(&most[1]), "{most:?}");
    assert!(held.iter().sum::<u32>() > 36, "{held:?}");
}

#[test]
fn a_minimum_holds() {
    let (held, _) = run(&["25+min=60"]);
    let (without, _) = run(&[]);
    assert!(held[4] >= 24 && without[4] < 16, "{held:?} {without:?}");
}

#[test]
fn pinned_copies_stay_and_long_requests_to_pinned_data_are_copied() {
    let mut e = engine(&["7+pin"]);
    // 16 blocks in one request of 64 KiB, which would bypass the cache without the row.
    for unit in 0..16 {
        let request = (0, 65_536);
        e.access(Nanos(0), ExtentId(unit), false, JOURNAL, request);
    }
    assert!((0..16).all(|u| has(&e, u)));
    for i in 0..5000u64 {
        let unit = 100 + (i * 7919 % 1000) as u32;
        touch(&mut e, 10 + i * 10, unit, i % 3 == 0, SMALL);
    }
    assert!((0..16).all(|u| has(&e, u)));
    let why = e.explain(Nanos::from_secs(60), ExtentId(3));
    assert!(
        why.contains("its class 7") && why.contains("pinned"),
        "{why}"
    );
    // If all of flash is pinned, other requests are served without a copy.
    for unit in 16..60 {
        touch(&mut e, 60_000 + u64::from(unit), unit, false, JOURNAL);
    }
    let pinned = (0..60).filter(|u| has(&e, *u)).count();
    assert!(pinned >= FAST as usize * 9 / 10, "{pinned}");
}

#[test]
fn a_new_class_counts_at_once() {
    let at = Nanos::from_millis(100);
    let mut e = engine(&["7+pin"]);
    for unit in 0..2 {
        touch(
            &mut e,
            1,
            unit,
            false,
            if unit == 0 { JOURNAL } else { SMALL },
        );
    }
    e.reclassify(at, ExtentId(0), FILM);
    e.reclassify(at, ExtentId(1), JOURNAL);
    let pinned = |e: &mut Engine, unit| e.explain(at, ExtentId(unit)).contains("pinned");
    assert!(!pinned(&mut e, 0) && pinned(&mut e, 1));
    for i in 0..3000u64 {
        let unit = 100 + (i * 7919 % 1000) as u32;
        touch(&mut e, 200 + i * 10, unit, false, SMALL);
    }
    assert!(!has(&e, 0) && has(&e, 1));
}

#[test]
fn a_class_that_comes_without_an_access_counts_too() {
    // No request has had a class when the reader of the file system tells that of a copy.
    let mut e = engine(&[]);
    touch(&mut e, 1, 0, false, 0);
    e.reclassify(Nanos::from_millis(2), ExtentId(0), JOURNAL);
    let why = e.explain(Nanos::from_millis(3), ExtentId(0));
    assert!(why.contains("its class is 7"), "{why}");
}

/// Extents of 64 KiB: the journal's block keeps a copy, although the film beside it was read last.
#[test]
fn a_copy_has_the_best_class_that_it_holds() {
    let mut e = engine_of(16, 8, &[("class", "7+pin")]);
    let read = |e: &mut Engine, ms, unit: u32, block: u64, class| {
        let request = ((u64::from(unit) << 16) + (block << 12), 4096);
        e.access(
            Nanos::from_millis(ms),
            ExtentId(unit),
            false,
            class,
            request,
        );
    };
    // The second read takes the blocks that the first may have left out.
    for (ms, block, class) in [(1, 3, JOURNAL), (2, 9, FILM), (3, 10, FILM)] {
        read(&mut e, ms, 0, block, class);
    }
    for i in 0..2000 {
        read(&mut e, 10 + i * 10, 1 + (i % 300) as u32, i % 16, FILM);
    }
    assert!(has(&e, 0));
    // The block is deleted and becomes part of the film.
    e.reclassify(Nanos::from_secs(30), ExtentId(0), FILM);
    for i in 0..2000 {
        read(&mut e, 40_000 + i * 10, 1 + (i % 300) as u32, i % 16, FILM);
    }
    assert!(!has(&e, 0));
}

#[test]
fn classes_take_no_memory_for_each_extent() {
    let fast = UNITS / 4;
    let bytes = |class: u8| {
        let mut e = engine_of(12, fast, &[]);
        for u in 0..UNITS {
            touch(&mut e, u64::from(u), u, false, class);
        }
        e.bytes()
    };
    // One byte for each fast slot, and a table of fixed size.
    let more = bytes(SMALL) - bytes(0);
    assert!(more <= fast as usize + 12_288, "{more}");
}

#[test]
fn impossible_rows_are_refused() {
    for bad in [
        "1-7+min=20",
        "64+pin",
        "8+max=10+min=20",
        "8+admit=sometimes",
    ] {
        let params = [("class", ParamValue::Name(bad))].into_iter();
        assert!(build_with("benefit", params).is_err(), "{bad}");
    }
}
