//! Compares `dss-lru` and `dss-lru-s` with a naive implementation of docs/policy-rules.md section 8.

#[path = "reference/dss.rs"]
mod dss;
mod reference;

use dss::Dss;

use reference::{Draw, Touch, Work, compare, counts, engine, fast_slots, random, touch};

#[test]
fn equal_decisions_on_random_work() {
    for (name, selective) in [("dss-lru", false), ("dss-lru-s", true)] {
        for seed in 0..60 {
            let mut draw = Draw::new(seed);
            let units = 2 + draw.below(150) as u32;
            let fast = fast_slots(&mut draw, units);
            let rate = [1, 1, 3][draw.below(3) as usize];
            let work = random(
                &mut draw,
                &Work {
                    units,
                    requests: 1500,
                    writes: [0, 30, 70, 100][seed as usize % 4],
                    classes: [&[0][..], &[0, 1, 7, 8, 12, 13, 18, 25], &[5, 9, 14]]
                        [seed as usize % 3],
                    gaps: &[0, 1_000],
                },
            );
            let params = [("sync_per_access", f64::from(rate))];
            let mut ours = engine(name, &params, units, &[fast, units]);
            let mut naive = Dss::new(selective, fast as usize, rate as usize);
            let what = format!("{name}, seed {seed}, F {fast} of {units}, rate {rate}");
            compare(&what, &mut ours, &mut naive, &work);
        }
    }
}

fn io(unit: u32, write: bool, class: u8) -> Touch {
    Touch {
        now: 0,
        unit,
        write,
        class,
        offset: u64::from(unit) << 12,
        bytes: 4096,
        first: true,
    }
}

/// Worked by hand. F = 3: low = 1, high = 2.
#[test]
fn dss_lru_golden() {
    let mut e = engine("dss-lru", &[], 8, &[3, 8]);
    let mut at = |unit, write, hit| assert_eq!(touch(&mut e, &io(unit, write, 0)), hit, "{unit}");
    at(0, true, false); // dirty: 0
    at(1, true, false); // dirty: 0 1
    at(0, false, true); // dirty: 1 0
    at(2, false, false); // clean: 2
    at(3, true, false); // 2 is reused; dirty: 1 0 3. Free list 0 < 1: awake; 1 is cleaned: free list 1 < 2, still awake
    at(1, false, true); // clean: 1; 0 is cleaned: 2 entries, asleep. clean: 1 0
    at(4, false, false); // 1 is reused: clean: 0 4
    at(1, false, false); // 0 is reused: clean: 4 1
    at(3, false, true); // dirty: 3
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (6, 3, 2));
}

/// Worked by hand. F = 3: low = 1, high = 2. Classes: 7 journal (priority 0), 14 a large file (7), 8 a small one (1).
#[test]
fn dss_lru_s_golden() {
    let mut e = engine("dss-lru-s", &[], 8, &[3, 8]);
    let mut at = |unit, write, class, hit| {
        assert_eq!(touch(&mut e, &io(unit, write, class)), hit, "{unit}");
    };
    at(0, false, 7, false); // clean 0: 0
    at(1, false, 14, false); // clean 7: 1
    at(2, true, 14, false); // dirty 7: 2
    at(3, true, 8, false); // reuses 1, the lowest priority, though 0 is older. dirty 1: 3
    at(4, true, 8, false); // reuses 0. Free list 0: awake; 2 (priority 7) is cleaned; 1 < 2: awake
    at(5, false, 14, false); // bypasses. Then 3 is cleaned (of 3 and 4, priority 1): 2 entries, asleep
    at(5, false, 14, false); // now it is admitted: reuses 2 (priority 7 before 1)
    at(5, false, 7, true); // moves to the list of the journal's class
    at(6, false, 8, false); // reuses 3 (priority 1), not 5
    at(5, false, 7, true);
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (7, 4, 2));
}

/// Worked by hand. F = 3: low = 1, high = 2.
#[test]
fn a_batch_waits_until_enough_entries_are_due() {
    let mut e = engine("dss-lru", &[("sync_batch", 2.0)], 8, &[3, 8]);
    touch(&mut e, &io(0, true, 0));
    touch(&mut e, &io(1, true, 0));
    touch(&mut e, &io(2, true, 0)); // free list 0: awake, one entry is due
    assert_eq!(counts(&e).writebacks, 0);
    touch(&mut e, &io(2, true, 0)); // two are due: 0 and 1 are cleaned, asleep
    assert_eq!(counts(&e).writebacks, 2);
    touch(&mut e, &io(2, true, 0));
    assert_eq!(counts(&e).writebacks, 2);
}
