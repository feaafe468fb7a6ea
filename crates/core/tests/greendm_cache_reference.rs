//! Compares `greendm-cache` with a naive implementation of docs/policy-rules.md section 3, last paragraph.

#[path = "reference/greendm_cache.rs"]
mod greendm_cache;
mod reference;

use greendm_cache::Cache;

use reference::{Draw, Naive, Touch, Work, counts, engine, fast_slots, random, touch};

#[test]
fn equal_decisions_on_random_work() {
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        let units = 2 + draw.below(if seed % 10 == 0 { 1500 } else { 200 }) as u32;
        let fast = fast_slots(&mut draw, units);
        let (pt, tw) = (
            1 + draw.below(3) as u32,
            [1, 10, 60][draw.below(3) as usize],
        );
        let work = random(
            &mut draw,
            &Work {
                units,
                requests: 1500,
                writes: [0, 30, 70, 100][seed as usize % 4],
                classes: &[0],
                gaps: &[0, 1_000, 40_000_000, 900_000_000, 11_000_000_000],
            },
        );
        let params = [("PT", f64::from(pt)), ("TW", tw as f64)];
        let mut ours = engine("greendm-cache", &params, units, &[fast, units]);
        let mut naive = Cache::new(fast as usize, pt, tw * 1_000_000_000);
        // If the fast tier is full, copies are correctly refused, so refusals are not compared here.
        for (i, t) in work.iter().enumerate() {
            let what = format!("seed {seed}, access {i}, {t:?}, F {fast} of {units}, {params:?}");
            assert_eq!(touch(&mut ours, t), naive.access(t), "{what}");
            assert_eq!(counts(&ours), naive.counts(), "{what}");
        }
    }
}

/// Worked by hand. F = 4: LT = 1, HT = 2, write-back queue max(1, 4/8) = 1; PT = 1.
#[test]
fn golden() {
    let mut e = engine("greendm-cache", &[], 12, &[4, 12]);
    let mut at = |s: u64, unit: u32, write| {
        let t = Touch {
            now: s * 1_000_000_000,
            unit,
            write,
            class: 0,
            offset: u64::from(unit) << 12,
            bytes: 4096,
            first: true,
        };
        touch(&mut e, &t)
    };
    assert!(!at(0, 0, true)); // a write miss goes to the home; 1 = PT: copied, clean
    assert!(!at(1, 1, false));
    assert!(at(2, 0, true)); // to the copy: the queue is [0]
    assert!(at(3, 1, true)); // the queue [0, 1] has more than 1 entry: 0 is written home
    assert!(at(4, 1, true)); // an extent has only one entry
    assert!(!at(5, 2, false)); // one slot is free, which is not below LT
    // No slot is free: a turn finds no victim, then the oldest leave: 0 (2 s) and 1 (4 s, written home).
    assert!(!at(6, 3, false));
    assert!(at(7, 2, false));
    assert!(!at(8, 1, false));
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (5, 2, 2));
}
