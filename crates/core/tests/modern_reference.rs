//! Compares `bcache-like` and `opencas-like` with naive implementations of the comments at the head of their source files.

#[path = "reference/modern.rs"]
mod modern;
mod reference;

use modern::{Bcache, OpenCas};
use reference::{Draw, Touch, Work, compare, counts, engine, fast_slots, random, touch};

const SECOND: u64 = 1_000_000_000;

fn work(draw: &mut Draw, seed: u64, units: u32) -> Vec<Touch> {
    let w = Work {
        units,
        requests: 1500,
        writes: [0, 30, 70, 100][seed as usize % 4],
        classes: &[0],
        gaps: &[0, 1_000, 3_000_000, SECOND, 50 * SECOND],
    };
    let mut all = random(draw, &w);
    // Streams: every third request begins where the previous one ended.
    let mut end = 0;
    for i in 0..all.len() {
        let single = all[i].first && all.get(i + 1).is_none_or(|n| n.first);
        if single && i % 3 == 0 && end >> reference::SHIFT < u64::from(units) {
            all[i].offset = end & !4095;
            all[i].unit = (end >> reference::SHIFT) as u32;
            all[i].bytes = 4096;
        }
        end = all[i].offset + u64::from(all[i].bytes);
    }
    all
}

#[test]
fn bcache_on_random_work() {
    for seed in 0..40 {
        let mut draw = Draw::new(seed);
        let units = 2 + draw.below(200) as u32;
        let fast = fast_slots(&mut draw, units);
        let (cutoff, percent) = (
            [8192, 1 << 16, 4 << 20][draw.below(3) as usize],
            [0, 10, 30][draw.below(3) as usize],
        );
        let params = [
            ("sequential_cutoff", cutoff as f64),
            ("writeback_percent", percent as f64),
        ];
        let mut ours = engine("bcache-like", &params, units, &[fast, units]);
        let mut naive = Bcache::new(fast as usize, cutoff, percent);
        let what = format!("seed {seed}, F {fast} of {units}, {params:?}");
        let work = work(&mut draw, seed, units);
        compare(&what, &mut ours, &mut naive, &work);
    }
}

#[test]
fn opencas_on_random_work() {
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        // Sometimes more than one chunk of 100 MiB.
        let units = 2 + draw.below(if seed % 5 == 0 { 60_000 } else { 200 }) as u32;
        let fast = fast_slots(&mut draw, units.min(300));
        let cutoff = [8192, 1 << 20][draw.below(2) as usize];
        let acp = draw.below(2) == 1;
        let flush = [1, 100][draw.below(2) as usize];
        let params = [
            ("seq_cutoff", cutoff as f64),
            ("acp", f64::from(u8::from(acp))),
            ("flush_max", f64::from(flush)),
        ];
        let mut ours = engine("opencas-like", &params, units, &[fast, units]);
        let mut naive = OpenCas::new(fast as usize, acp, cutoff, flush as usize);
        let what = format!("seed {seed}, F {fast} of {units}, {params:?}");
        let work = work(&mut draw, seed, units);
        compare(&what, &mut ours, &mut naive, &work);
    }
}

fn io(s: u64, unit: u32, bytes: u32, write: bool) -> Touch {
    Touch {
        now: s * SECOND,
        unit,
        write,
        class: 0,
        offset: u64::from(unit) << 12,
        bytes,
        first: true,
    }
}

/// Worked by hand. F = 10 of 4 KiB = 80 sectors; a stream of 8 KiB bypasses; no more than 4 dirty copies are made (40 %).
#[test]
fn bcache_golden() {
    let params = [("sequential_cutoff", 8192.0)];
    let mut e = engine("bcache-like", &params, 64, &[10, 64]);
    assert!(!touch(&mut e, &io(0, 0, 4096, false))); // copied
    assert!(!touch(&mut e, &io(0, 1, 4096, false))); // the stream has 8 KiB: bypasses
    assert!(!touch(&mut e, &io(0, 1, 4096, false))); // no stream ends there: copied
    for unit in [10, 20, 30, 40, 50, 60] {
        touch(&mut e, &io(1, unit, 4096, true)); // five become dirty (4 of 10 is not over 40 %), 60 goes to both
    }
    assert_eq!(counts(&e).writebacks, 0);
    // 5 s: 40 sectors dirty, target 8: error 32, growth 40: (32 · 5 + 40 · 30) / 6000 = 0: the rate stays 8, so 40 sectors in
    // 5 s: all five are cleaned.
    assert!(touch(&mut e, &io(5, 60, 4096, true)));
    assert_eq!(counts(&e).writebacks, 5);
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions), (8, 0));
}

/// Worked by hand. F = 5: 80 % are four.
#[test]
fn opencas_golden() {
    let mut e = engine("opencas-like", &[], 64, &[5, 64]);
    for unit in [0, 10, 20, 30] {
        assert!(!touch(&mut e, &io(0, unit, 4096, true))); // at once, while under 80 %
    }
    for hit in [false, false, false, true] {
        assert_eq!(touch(&mut e, &io(1, 40, 4096, false)), hit); // at its third access
    }
    assert_eq!(counts(&e).fetches, 5);
    assert!(touch(&mut e, &io(2, 0, 4096, false)));
    // Rounds at 20 s, 40 s …: the dirty copies were last used at 0 s (10, 20, 30) and 2 s (0): stale at the rounds of
    // 120 s and of 140 s.
    touch(&mut e, &io(119, 40, 4096, false));
    assert_eq!(counts(&e).writebacks, 0);
    touch(&mut e, &io(125, 40, 4096, false)); // at 120 s the last access was 1 s ago: not idle
    assert_eq!(counts(&e).writebacks, 0);
    touch(&mut e, &io(145, 40, 4096, false)); // at 140 s it was 15 s ago, and all four are stale
    assert_eq!(counts(&e).writebacks, 4);
}
