//! Compares `oodt`, `hro` and `hot` with naive implementations of docs/policy-rules.md sections 4 and 7.

#[path = "reference/planned.rs"]
mod planned;
mod reference;

use isotherm_core::policy::{ParamValue, build_with};
use planned::{Hro, Oodt, OodtParams};
use reference::{
    Draw, Naive, Touch, Work, compare, counts, engine, engine_of, fast_slots, random, touch,
};

const SECOND: u64 = 1_000_000_000;

fn read(s: f64, unit: u32, offset: u32, bytes: u32) -> Touch {
    Touch {
        now: (s * 1e9) as u64,
        unit,
        write: false,
        class: 0,
        offset: (u64::from(unit) << 12) + u64::from(offset),
        bytes,
        first: true,
    }
}

#[test]
fn hro_on_random_work() {
    for (name, hot) in [("hro", false), ("hot", true)] {
        for seed in 0..40 {
            let mut draw = Draw::new(seed);
            let units = 2 + draw.below(120) as u32;
            let fast = fast_slots(&mut draw, units);
            let period = [40, 600, 86_400][draw.below(3) as usize];
            let work = random(
                &mut draw,
                &Work {
                    units,
                    requests: 1500,
                    writes: [0, 30, 70, 100][seed as usize % 4],
                    classes: &[0],
                    gaps: &[
                        0,
                        1_000,
                        499_999_999,
                        500_000_000,
                        30 * SECOND,
                        400 * SECOND,
                    ],
                },
            );
            let mut naive = Hro::new(hot, fast, period * SECOND);
            let params = [("period", period as f64)];
            let mut ours = engine(name, &params, units, &[fast, units]);
            let what = format!("{name}, seed {seed}, F {fast} of {units}, period {period}");
            compare(&what, &mut ours, &mut naive, &work);
        }
    }
}

/// Worked by hand. F = 1, period 10 s, t0 = 0.
#[test]
fn hro_golden() {
    for (name, first) in [("hro", 1), ("hot", 0)] {
        let mut e = engine(name, &[("period", 10.0)], 4, &[1, 4]);
        // Unit 0: 512 B after 512 B within 0.5 s: f = 4, R = 1, f · R = 4.
        for i in 0..4u32 {
            touch(&mut e, &read(f64::from(i) * 0.1, 0, i * 512, 512));
        }
        // Unit 1: the same place three times. No request starts where the last one ended: f = 3, R = 3, f · R = 9.
        for i in 0..3u32 {
            touch(&mut e, &read(1.0 + f64::from(i) * 0.1, 1, 0, 512));
        }
        // 10 s: `hro` promotes 1 (9 > 4), `hot` promotes 0 (4 > 3).
        assert!(touch(&mut e, &read(10.0, first, 2048, 512)), "{name}");
        assert!(!touch(&mut e, &read(10.1, 1 - first, 0, 512)), "{name}");
        assert_eq!(counts(&e).promotions, 1);
        // These requests came 9.8 s after the last ones, so they are random even if they continue them. hro: 0 has f = 5, R = 2, so 10; 1
        // has f = 4, R = 4, so 16. hot: both were accessed once more, so 5 and 4. Nothing moves at 20 s.
        touch(&mut e, &read(20.0, 3, 0, 512));
        assert_eq!(counts(&e).promotions, 1);
        assert_eq!(counts(&e).demotions, 0);
    }
}

#[test]
fn oodt_on_random_work() {
    for seed in 0..40 {
        let mut draw = Draw::new(seed);
        let units = 2 + draw.below(150) as u32;
        let fast = fast_slots(&mut draw, units);
        let pick = |d: &mut Draw, of: &[f64]| of[d.below(of.len() as u64) as usize];
        let p = OodtParams {
            queue: pick(&mut draw, &[1.0, 2.0, 8.0]) as usize,
            w_read: pick(&mut draw, &[0.0, 0.1, 0.7]),
            w_metadata: pick(&mut draw, &[0.0, 0.1, 2.0]),
            migrate_every: pick(&mut draw, &[3.0, 17.0, 100.0, 750.0]) as u64,
            decay: pick(&mut draw, &[1.0, 1.0, 0.5]),
        };
        let work = random(
            &mut draw,
            &Work {
                units,
                requests: 1500,
                writes: [0, 30, 70, 100][seed as usize % 4],
                classes: if seed % 3 == 0 { &[0, 1, 7, 8] } else { &[0] },
                gaps: &[0, SECOND],
            },
        );
        let params = [
            ("queue", p.queue as f64),
            ("w_read", p.w_read),
            ("w_metadata", p.w_metadata),
            ("migrate_every", p.migrate_every as f64),
            ("decay", p.decay),
        ];
        let mut ours = engine("oodt", &params, units, &[fast, units]);
        let what = format!("oodt, seed {seed}, F {fast} of {units}, {params:?}");
        let mut naive = Oodt::new(p, &[fast, units]);
        compare(&what, &mut ours, &mut naive, &work);
    }
}

/// Worked by hand. F = 1, migration every 2 requests, queue 1, weights 0.1.
#[test]
fn oodt_golden() {
    let params = [("migrate_every", 2.0), ("queue", 1.0)];
    let mut e = engine("oodt", &params, 8, &[1, 8]);
    // Request 1: blocks 0 and 1, which become one pending request. Request 2: block 4; the pending request leaves the queue, and 0 and 1
    // get (1/2) · 1.1 = 0.55 each.
    for unit in [0, 1] {
        let t = Touch {
            first: unit == 0,
            offset: 0,
            bytes: 8192,
            ..read(0.0, unit, 0, 0)
        };
        assert!(!touch(&mut e, &t));
    }
    assert!(!touch(&mut e, &read(0.0, 4, 0, 4096)));
    // Before request 3: the queue is emptied; 4 gets 1.1 and is promoted.
    assert!(touch(&mut e, &read(0.0, 4, 0, 4096))); // pending: 4
    let w = Touch {
        write: true,
        ..read(0.0, 0, 0, 4096)
    };
    assert!(!touch(&mut e, &w)); // 4 leaves: 2.2; pending: a write of 0
    // Before request 5: 0 has 0.55 + 1.0 = 1.55 < 2.2: nothing moves.
    assert!(touch(&mut e, &read(0.0, 4, 0, 4096)));
    assert!(!touch(&mut e, &w)); // 4: 3.3
    assert!(!touch(&mut e, &w)); // before request 7: 0 has 2.55. It lies inside nothing: the queue was flushed
    assert!(!touch(&mut e, &w)); // inside the pending request: one request of one block, so 1.0 once
    // Before request 9: 0 has 3.55 > 3.3: they change places.
    assert!(touch(&mut e, &w));
    assert_eq!((counts(&e).promotions, counts(&e).demotions), (2, 1));
}

/// Three tiers: the place of every unit after each migration, and the hits.
#[test]
fn oodt_on_three_tiers() {
    for seed in 0..30 {
        let mut draw = Draw::new(500 + seed);
        let units = 10 + draw.below(100) as u32;
        let tiers = [1 + draw.below(8) as u32, 1 + draw.below(20) as u32, units];
        let every = [1, 13, 60][draw.below(3) as usize];
        let work = random(
            &mut draw,
            &Work {
                units,
                requests: 900,
                writes: 40,
                classes: &[0, 4],
                gaps: &[0],
            },
        );
        let mut ours = engine("oodt", &[("migrate_every", every as f64)], units, &tiers);
        let p = OodtParams {
            queue: 8,
            w_read: 0.1,
            w_metadata: 0.1,
            migrate_every: every,
            decay: 1.0,
        };
        let mut naive = Oodt::new(p, &tiers);
        for (i, t) in work.iter().enumerate() {
            let what = format!("seed {seed}, access {i}, tiers {tiers:?}, {t:?}");
            assert_eq!(touch(&mut ours, t), naive.access(t), "{what}");
            for u in 0..units {
                let home = ours.home(isotherm_core::ExtentId(u)).map(|s| {
                    tiers
                        .iter()
                        .scan(0, |sum, n| {
                            *sum += n;
                            Some(*sum)
                        })
                        .position(|end| s.0 < end)
                        .unwrap()
                });
                assert_eq!(home, naive.tier(u), "{what}: unit {u}");
            }
        }
    }
}

/// OODT figure 2: the block that each way of counting prefers. F = 1, writes only, worked by hand.
#[test]
fn oodt_cost_functions() {
    // Three requests of two blocks (1, 2), four of sixteen blocks (4 to 19) and two of one block (30), in turn; then the migration.
    let request = |unit: u32, blocks: u32| {
        (0..blocks).map(move |i| Touch {
            write: true,
            unit: unit + i,
            offset: u64::from(unit) << 12,
            bytes: blocks << 12,
            first: i == 0,
            ..read(0.0, 0, 0, 0)
        })
    };
    let turns = [4, 1, 30, 4, 1, 30, 4, 1, 4];
    let work = turns.map(|unit| {
        let blocks = [(1, 2), (4, 16), (30, 1)];
        let blocks = blocks.iter().find(|b| b.0 == unit).map_or(1, |b| b.1);
        request(unit, blocks).collect::<Vec<_>>()
    });
    for (cost, first) in [
        ("frequency", 4),       // 4 times; 1: 3, 30: 2
        ("sequence", 1),        // 3 times; 64 KiB counts nothing
        ("inverse-bitmap", 30), // 2; 1: 3/2, 4: 4/16
        ("queue", 30),
    ] {
        let params = [
            ("cost", ParamValue::Name(cost)),
            ("migrate_every", ParamValue::Number(9.0)),
            ("queue", ParamValue::Number(1.0)),
        ];
        let mut e = engine_of(
            build_with("oodt", params.into_iter()).expect("valid"),
            32,
            &[1, 32],
        );
        for t in work.iter().flatten() {
            touch(&mut e, t);
        }
        touch(&mut e, &read(0.0, 25, 0, 4096));
        let up = (0..32).find(|&u| e.home(isotherm_core::ExtentId(u)).is_some_and(|s| s.0 == 0));
        assert_eq!(up, Some(first), "{cost}");
    }
}

/// Logical neighbours are placed next to each other on the slow tier if there is room: in the first free slot after the predecessor's, else
/// in the lowest free slot.
#[test]
fn oodt_keeps_neighbours_together() {
    let mut e = engine("oodt", &[("migrate_every", 3.0)], 16, &[1, 16]);
    let home =
        |e: &isotherm_core::null::NullEngine<_>, u| e.home(isotherm_core::ExtentId(u)).map(|s| s.0);
    for unit in [5, 9, 6] {
        touch(&mut e, &read(0.0, unit, 0, 4096));
    }
    // Slow slots are 1 to 16. 5 takes the lowest. 9 has no predecessor and takes the lowest free one. 6 takes the first free one after slot
    // 1.
    assert_eq!([5, 9, 6].map(|u| home(&e, u)), [Some(1), Some(2), Some(3)]);
    // Before request 4 one block is promoted. 5 and 6 were neighbours in the queue, so they are one request of two blocks with 0.55 each. 9
    // is a separate request with 1.1, so it is promoted and leaves slot 2.
    touch(&mut e, &read(0.0, 6, 0, 4096));
    assert_eq!(home(&e, 9), Some(0));
    // 7 follows 6 (slot 3), so it takes slot 4, although slot 2 is free. 1 has no predecessor and takes slot 2.
    touch(&mut e, &read(0.0, 7, 0, 4096));
    touch(&mut e, &read(0.0, 1, 0, 4096));
    assert_eq!([7, 1].map(|u| home(&e, u)), [Some(4), Some(2)]);
}
