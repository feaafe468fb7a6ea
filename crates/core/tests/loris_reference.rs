//! Compares the Loris policies with a naive implementation of docs/policy-rules.md section 5.

#[path = "reference/loris.rs"]
mod loris;
mod reference;

use loris::{Kind, Loris};
use reference::{Draw, Naive, Work, compare, engine, fast_slots, random};

// The naive implementation uses the same harness.
use reference::{Counts, Touch};

const SECOND: u64 = 1_000_000_000;

fn presets() -> [(&'static str, Kind, bool); 8] {
    [
        ("hot-dst-dynamic", Kind::OnDemand, false),
        ("hot-dst-5s", Kind::Interval(5 * SECOND), false),
        ("hot-dst-80s", Kind::Interval(80 * SECOND), false),
        ("cold-dst-plain", Kind::ColdPlain, false),
        ("cold-dst-dynamic", Kind::ColdDynamic, false),
        ("cold-dst-dynamic-bgclean", Kind::ColdClean, false),
        ("cache-ondemand", Kind::OnDemand, true),
        ("cache-interval", Kind::Interval(5 * SECOND), true),
    ]
}

#[test]
fn equal_decisions_on_random_work() {
    for (name, kind, copies) in presets() {
        for seed in 0..40 {
            let mut draw = Draw::new(seed);
            let units = 2 + draw.below(if seed % 4 == 0 { 900 } else { 120 }) as u32;
            let fast = fast_slots(&mut draw, units);
            let work = random(
                &mut draw,
                &Work {
                    units,
                    requests: 1500,
                    writes: [0, 30, 70, 100][seed as usize % 4],
                    classes: if seed % 3 == 0 { &[0, 3, 9, 14] } else { &[0] },
                    gaps: &[0, 1_000, 40_000_000, 900_000_000, 30 * SECOND],
                },
            );
            let mut naive = Loris::new(kind, copies, fast);
            let mut ours = engine(name, &[], units, &[fast, units]);
            let what = format!("{name}, seed {seed}, F {fast} of {units}");
            compare(&what, &mut ours, &mut naive, &work);
        }
    }
}

/// Caching and tiering make the same decisions, so their hits must be equal.
#[test]
fn caching_hits_as_tiering_does() {
    for (cache, tiering) in [
        ("cache-ondemand", "hot-dst-dynamic"),
        ("cache-interval", "hot-dst-5s"),
    ] {
        for seed in 0..20 {
            let mut draw = Draw::new(1000 + seed);
            let units = 50 + draw.below(300) as u32;
            let fast = fast_slots(&mut draw, units);
            let work = random(
                &mut draw,
                &Work {
                    units,
                    requests: 2000,
                    writes: 40,
                    classes: &[0],
                    gaps: &[0, 900_000_000],
                },
            );
            let mut a = engine(cache, &[], units, &[fast, units]);
            let mut b = engine(tiering, &[], units, &[fast, units]);
            for t in &work {
                assert_eq!(
                    reference::touch(&mut a, t),
                    reference::touch(&mut b, t),
                    "{cache}, seed {seed}, {t:?}"
                );
            }
            let (a, b) = (a.counters(), b.counters());
            assert_eq!((a.fetches, a.evictions), (b.promotions, b.demotions));
            assert_eq!(a.writebacks, 0, "writes go to both");
        }
    }
}

/// Worked by hand. F = 2; requests have 4 KiB (b = 64) unless stated.
#[test]
fn hot_dst_dynamic_golden() {
    let mut e = engine("hot-dst-dynamic", &[], 8, &[2, 8]);
    let mut at = |unit: u32, write, pages: u32| {
        let t = Touch {
            now: 0,
            unit,
            write,
            class: 0,
            offset: u64::from(unit) << 12,
            bytes: pages * 4096,
            first: true,
        };
        (reference::touch(&mut e, &t), {
            let c = reference::counts(&e);
            (c.promotions, c.demotions)
        })
    };
    assert_eq!(at(0, false, 1), (false, (1, 0))); // counter 64 > last = 0, a slot is free
    assert_eq!(at(1, true, 1), (false, (1, 0))); // a write promotes nothing; counter 64
    assert_eq!(at(1, false, 1), (false, (2, 0))); // 128; fast = {0: 64, 1: 128}
    assert_eq!(at(0, false, 4), (true, (2, 0))); // b(4) = 16: 0 has 80
    assert_eq!(at(2, false, 1), (false, (3, 1))); // 64 > 0: the coldest, 0 with 80, leaves: last = 80
    assert_eq!(at(3, false, 1), (false, (3, 1))); // 64 ≤ 80: stays
    assert_eq!(at(3, false, 2), (false, (4, 2))); // 64 + 32 = 96 > 80: 2 with 64 leaves, last = 64
    assert_eq!(at(0, false, 65), (false, (5, 3))); // b = 1: 81 > 64: 3 with 96 leaves (1 has 128), last = 96
    assert_eq!(at(3, false, 65), (false, (6, 4))); // 97 > 96: 0 with 81 leaves, last = 81
    assert_eq!(at(2, false, 8), (false, (6, 4))); // b(8) = 8: 72 ≤ 81
}

/// Worked by hand, F = 1, period 5 s, t0 = 0; every request 4 KiB.
#[test]
fn hot_dst_5s_golden() {
    let mut e = engine("hot-dst-5s", &[], 8, &[1, 8]);
    let mut at = |s: u64, unit: u32| {
        let t = Touch {
            now: s * SECOND,
            unit,
            write: true,
            class: 0,
            offset: u64::from(unit) << 12,
            bytes: 4096,
            first: true,
        };
        reference::touch(&mut e, &t)
    };
    assert!(!at(0, 0)); // 64
    assert!(!at(1, 1)); // 64
    assert!(!at(4, 0)); // 128
    // 5 s: 0 with 128 is the hottest and is promoted. 1 with 64 qualifies (> last = 0), but the coldest has 128 ≥ 64: the plan ends.
    assert!(!at(5, 1)); // 128
    assert!(at(6, 0)); // 192
    // 10 s: 1 has 128, the coldest 192: 1 stays. Then 1 gets 192; at 15 s this is equal, so it stays. Then it gets 256 and is promoted at
    // 20 s.
    assert!(!at(11, 1));
    assert!(!at(16, 1));
    assert!(at(20, 1));
    // last = 192, the counter of 0. One more access to 0 makes 256 > 192, but the coldest (1) has 320.
    assert!(!at(21, 0));
    assert!(!at(26, 0));
    let c = reference::counts(&e);
    assert_eq!((c.promotions, c.demotions), (2, 1));
}

/// Worked by hand, F = 2; every request 4 KiB. Also shows the difference between plain and dynamic.
#[test]
fn cold_dst_golden() {
    for (name, returns) in [("cold-dst-plain", false), ("cold-dst-dynamic", true)] {
        let mut e = engine(name, &[], 8, &[2, 8]);
        let mut at = |unit: u32| {
            let t = Touch {
                now: 0,
                unit,
                write: false,
                class: 0,
                offset: u64::from(unit) << 12,
                bytes: 4096,
                first: true,
            };
            reference::touch(&mut e, &t)
        };
        assert!(!at(0)); // to fast
        assert!(!at(1)); // to fast, which is full
        assert!(at(0)); // 0: 128, 1: 64
        assert!(!at(2)); // 1 is coldest and leaves: last = 64
        assert!(!at(1)); // 1: 128 > 64; dynamic: 2 with 64 leaves
        assert_eq!(at(1), returns);
        assert_eq!(at(2), !returns);
        let c = reference::counts(&e);
        // Dynamic: finally 2 has 128 > 64 and is promoted again. 0 leaves, because its counter of 128 is lower than that of 1, which is
        // 192.
        let want = if returns { (2, 3) } else { (0, 1) };
        assert_eq!((c.promotions, c.demotions), want, "{name}");
    }
}

/// When a file grows beyond 1 MiB, its extents must leave the fast tier.
#[test]
fn large_files_leave() {
    let mut naive = Loris::new(Kind::OnDemand, false, 4);
    let mut e = engine("hot-dst-dynamic", &[], 8, &[4, 8]);
    for (class, hit) in [
        (12, false),
        (12, true),
        (13, true),
        (13, false),
        (12, false),
        (12, true),
    ] {
        let t = Touch {
            now: 0,
            unit: 5,
            write: false,
            class,
            offset: 5 << 12,
            bytes: 4096,
            first: true,
        };
        assert_eq!(
            (reference::touch(&mut e, &t), naive.access(&t)),
            (hit, hit),
            "class {class}"
        );
    }
    let want = Counts {
        promotions: 2,
        demotions: 1,
        ..Counts::default()
    };
    assert_eq!((reference::counts(&e), naive.counts()), (want, want));
}
