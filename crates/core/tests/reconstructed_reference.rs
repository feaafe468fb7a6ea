//! Compares `hystor`, `raf`, `azor` and `edt` with naive implementations of docs/policy-rules.md section 6.

#[path = "reference/reconstructed.rs"]
mod reconstructed;
mod reference;

use reconstructed::{Azor, Edt, Hystor, Raf};
use reference::{Draw, Naive, Touch, Work, compare, counts, engine, fast_slots, random, touch};

const SECOND: u64 = 1_000_000_000;

fn on_random_work(name: &str, naive: impl Fn(usize, usize) -> Box<dyn Naive>) {
    for seed in 0..40 {
        let mut draw = Draw::new(seed);
        let units = 2 + draw.below(150) as u32;
        let fast = fast_slots(&mut draw, units);
        let work = random(
            &mut draw,
            &Work {
                units,
                requests: 1500,
                writes: [0, 30, 70, 100][seed as usize % 4],
                classes: if seed % 3 == 0 { &[0, 1, 7, 8] } else { &[0] },
                gaps: &[0, 1_000, SECOND, 20 * SECOND],
            },
        );
        let mut ours = engine(name, &[], units, &[fast, units]);
        let what = format!("{name}, seed {seed}, F {fast} of {units}");
        compare(
            &what,
            &mut ours,
            &mut *naive(fast as usize, units as usize),
            &work,
        );
    }
}

#[test]
fn raf_on_random_work() {
    on_random_work("raf", |fast, _| Box::new(Raf::new(fast)));
}

#[test]
fn azor_on_random_work() {
    on_random_work("azor", |fast, _| Box::new(Azor::new(fast)));
}

#[test]
fn hystor_on_random_work() {
    on_random_work("hystor", |fast, _| Box::new(Hystor::new(fast, 60 * SECOND)));
}

#[test]
fn edt_on_random_work() {
    on_random_work("edt", |fast, slow| {
        Box::new(Edt::new(fast, slow, 300 * SECOND))
    });
}

fn io(s: u64, unit: u32, bytes: u32, write: bool, class: u8) -> Touch {
    Touch {
        now: s * SECOND,
        unit,
        write,
        class,
        offset: u64::from(unit) << 12,
        bytes,
        first: true,
    }
}

/// Worked by hand. F = 4: one slot for writes, three for reads.
#[test]
fn raf_golden() {
    let mut e = engine("raf", &[], 64, &[4, 64]);
    let mut at = |unit, bytes, write, hit| {
        assert_eq!(touch(&mut e, &io(0, unit, bytes, write, 0)), hit, "{unit}");
    };
    at(0, 4096, false, false); // first random touch
    at(1, 4096, false, false); // continues the stream that ended at 4096: bypasses, and is no random touch
    at(0, 4096, false, false); // second: copied
    at(0, 4096, false, true);
    // Streams now end at 4096 (twice: those of the second and third request) and at 8192.
    at(1, 4096, false, false); // continues one of them
    at(1, 4096, false, false); // and the other
    at(1, 4096, false, false); // continues none: first random touch
    at(1, 4096, false, false); // second: copied
    at(40, 65_536, true, false); // large: bypasses
    at(20, 4096, true, false); // the write share
    at(30, 4096, true, false); // its only slot: 20 is written home
    at(20, 4096, false, false); // second random touch: copied to the read share
    at(20, 4096, true, true); // dirty there
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (5, 1, 1));
}

/// Worked by hand. F = 4: units 1, 5 and 9 belong in line 1.
#[test]
fn azor_golden() {
    let mut e = engine("azor", &[], 16, &[4, 16]);
    let mut at = |unit, class, hit| {
        assert_eq!(
            touch(&mut e, &io(0, unit, 4096, true, class)),
            hit,
            "{unit}"
        );
    };
    at(1, 0, false); // the line is empty
    at(5, 0, false); // 1 access against 1: not higher
    at(5, 0, false); // 2 against 1: takes it
    at(9, 4, false); // metadata against data: takes it
    at(5, 0, false); // 3 accesses, but data
    at(9, 0, true); // its last access is data: 2
    at(5, 0, false); // 4 against 2: takes it
    at(2, 0, false); // another line
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (5, 3, 0));
}

/// Worked by hand. F = 5: four for remapping, one for writes. Window 60 s.
#[test]
fn hystor_golden() {
    let mut e = engine("hystor", &[], 32, &[5, 32]);
    let mut at = |s, unit, pages: u32, write, class, hit| {
        assert_eq!(
            touch(&mut e, &io(s, unit, pages * 4096, write, class)),
            hit,
            "{unit}"
        );
    };
    at(0, 10, 1, false, 0, false); // 64
    at(1, 20, 4, false, 0, false); // 16
    at(2, 21, 1, false, 0, false); // 64; a quarter of it, 16, is not more than the counter of 20 itself
    at(3, 30, 65, false, 5, false); // 1, metadata
    at(4, 25, 65, false, 0, false); // 1
    at(5, 26, 65, true, 0, false); // 1: write share
    at(6, 26, 65, true, 0, true); // 2
    // 60 s: 30 (metadata), 10 and 21 (64) and 20 (16) get copies; 26 with 2 does not. Then all counters are halved.
    at(60, 30, 65, false, 0, true); // 0 + 1
    at(61, 10, 1, false, 0, true); // 32 + 64
    at(62, 20, 65, false, 0, true); // 8 + 1
    at(63, 25, 1, true, 0, false); // 0 + 64; its write takes the write share: 26 is written home
    at(64, 26, 65, false, 0, false); // 1 + 1; a quarter of 25: 16
    // 120 s: 30, 10 (96), 25 (64) and 21 (32) are chosen; 26 (16) and 20 (9) are not. The copy of 20 is evicted, and the copy of 25 moves
    // to the remap share.
    at(120, 20, 65, false, 0, false);
    at(121, 25, 65, false, 0, true);
    at(122, 21, 65, false, 0, true);
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (6, 2, 1));
}

/// Worked by hand. F = 2, 64 slow slots, interval 300 s. A fast slot costs 20, a slow one 1.
#[test]
fn edt_golden() {
    let mut e = engine("edt", &[], 64, &[2, 64]);
    // n random requests are a rate of n / 300: the share of slow is max(n / 300 / 180, 1/64), times 64. The fast share is
    // max(n / 300 / 20000, 1/2) times 40 = 20. So unit 7 needs n · 64 / 54000 > 20: n > 16 875.
    for n in 0..16_876u64 {
        let t = Touch {
            now: n * 1_000_000,
            ..io(0, 7, 512, false, 0)
        };
        assert!(!touch(&mut e, &t));
    }
    // Unit 9 has one request fewer: n = 16 875 costs 20 on both tiers, so it stays.
    for n in 0..16_875u64 {
        let t = Touch {
            now: (20_000 + n) * 1_000_000,
            ..io(0, 9, 512, false, 0)
        };
        touch(&mut e, &t);
    }
    assert!(touch(&mut e, &io(300, 7, 512, false, 0)));
    assert!(!touch(&mut e, &io(300, 9, 512, false, 0)));
    assert_eq!((counts(&e).promotions, counts(&e).demotions), (1, 0));
    // The next interval has one request for each: both belong on the slow tier.
    assert!(!touch(&mut e, &io(600, 7, 512, false, 0)));
    assert_eq!((counts(&e).promotions, counts(&e).demotions), (1, 1));
}
