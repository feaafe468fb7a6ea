use super::*;
use crate::policy::build;
use alloc::boxed::Box;

fn engine(name: &str, params: &[(&str, f64)], fast: u32, slow: u32) -> NullEngine<Box<dyn Policy>> {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
    };
    // One reserved slow slot more than extents.
    let geo = Geometry::new(12, 12, fast + slow, vec![m(0, fast), m(1, slow + 4)]).unwrap();
    NullEngine::new(geo, build(name, params.iter().copied()).unwrap())
}

fn touch(e: &mut NullEngine<Box<dyn Policy>>, seconds: f64, extent: u32) -> bool {
    e.access(
        Nanos((seconds * 1e9) as u64),
        ExtentId(extent),
        false,
        0,
        (u64::from(extent) << 12, 4096),
    )
}

/// Worked by hand. F = 4, LT = max(1, 4/16) = 1, HT = min(4, max(2, 4/8)) = 2, PT = 1, TW = 60 s.
#[test]
fn greendm_golden() {
    let mut e = engine("greendm", &[], 4, 12);
    // First touches fill slots 0, 1, 2: one slot stays free, which is not under LT = 1.
    for (t, x) in [(0.0, 10), (1.0, 11), (2.0, 12)] {
        assert!(!touch(&mut e, t, x));
    }
    assert_eq!(e.counters().demotions, 0);
    // The fourth leaves 0 < LT free: demote to HT = 2. All are marked; a fruitless turn clears the marks; the oldest,
    // 10 then 11, go to the lowest slow slots 4 and 5.
    touch(&mut e, 3.0, 13);
    assert_eq!(e.counters().demotions, 2);
    assert_eq!(
        (e.home(ExtentId(10)), e.home(ExtentId(11))),
        (Some(Slot(4)), Some(Slot(5)))
    );
    assert_eq!(
        (e.home(ExtentId(12)), e.home(ExtentId(13))),
        (Some(Slot(2)), Some(Slot(3)))
    );
    // 12 is hit; then 10 is a miss, 1 = PT: promoted into the lowest free fast slot, 0. One slot stays free.
    assert!(touch(&mut e, 4.0, 12));
    assert!(!touch(&mut e, 5.0, 10));
    assert_eq!(e.home(ExtentId(10)), Some(Slot(0)));
    assert_eq!((e.counters().promotions, e.counters().demotions), (1, 2));
    // 11 fills slot 1: nothing is free, demote two. The hand stands at 0. Marks: 10 and 11 (newly filled), 12
    // (touched at 4 s); 13 was unmarked by the first turn. Last: 13 = 3 s, 12 = 4 s, 10 = 5 s, 11 = 6 s; none is
    // older than TW, so the turn is fruitless and 13, then 12 go.
    touch(&mut e, 6.0, 11);
    assert_eq!(
        (e.home(ExtentId(13)), e.home(ExtentId(12))),
        (Some(Slot(4)), Some(Slot(5)))
    );
    assert_eq!((e.counters().promotions, e.counters().demotions), (2, 4));
    assert_eq!(e.counters().hits, 1);
}

#[test]
fn greendm_counts_misses_within_the_window_only() {
    // F = 2: LT = 1, HT = 2. Touching two extents fills fast; both are demoted again.
    let mut e = engine("greendm", &[("PT", 2.0), ("TW", 10.0)], 2, 12);
    touch(&mut e, 0.0, 0);
    touch(&mut e, 0.5, 1);
    assert_eq!(e.counters().demotions, 2);
    touch(&mut e, 5.0, 0); // 5 s after its first touch: miss 1
    assert_eq!(e.counters().promotions, 0);
    touch(&mut e, 16.0, 0); // 11 s: starts over, miss 1
    assert_eq!(e.counters().promotions, 0);
    touch(&mut e, 26.0, 0); // exactly TW: miss 2 = PT
    assert_eq!(e.counters().promotions, 1);
    assert_eq!(e.home(ExtentId(0)), Some(Slot(0)));
}

#[test]
fn greendm_prefers_what_is_out_of_the_window() {
    let mut e = engine("greendm", &[("TW", 10.0), ("LT", 1.0), ("HT", 1.0)], 4, 12);
    touch(&mut e, 0.0, 0);
    touch(&mut e, 20.0, 1);
    touch(&mut e, 21.0, 2);
    // Fast is full; the turn from slot 0: all marked, cleared; oldest (extent 0) goes.
    touch(&mut e, 22.0, 3);
    assert_eq!(e.home(ExtentId(0)), Some(Slot(4)));
    // Slot 0 is filled by extent 4 at 40 s, the hand at 0: 4 is newly marked, cleared and passed; slot 1 (extent 1,
    // unmarked, 20 s ago) is out of the window and goes, although nothing else was compared.
    touch(&mut e, 40.0, 4);
    assert_eq!(e.home(ExtentId(1)), Some(Slot(5)));
    assert_eq!(e.home(ExtentId(2)), Some(Slot(2)));
}

#[test]
fn one_slot_is_not_demoted_by_watermark() {
    let mut e = engine("greendm", &[], 1, 8);
    for i in 0..5 {
        touch(&mut e, f64::from(i), i as u32);
    }
    assert_eq!(e.counters().demotions, 0);
    assert_eq!(e.home(ExtentId(0)), Some(Slot(0)));
    assert_eq!(e.home(ExtentId(1)), Some(Slot(1)));
}

#[test]
fn linear_hits_where_the_address_says() {
    let mut e = engine("mylinear", &[], 4, 12);
    for x in [0, 3, 4, 9, 0, 4] {
        touch(&mut e, 0.0, x);
    }
    assert_eq!(e.home(ExtentId(9)), Some(Slot(9)));
    assert_eq!((e.counters().hits, e.counters().accesses), (1, 6));
}

#[test]
fn hot_dst_demotes_the_least_recent_and_promotes_the_read() {
    for name in ["hot-dst-recency", "hot-dst-frequency", "hot-dst-wsclock"] {
        let mut e = engine(name, &[], 2, 12);
        for (t, x) in [(0, 0), (1, 1), (2, 2)] {
            // First touches by writes, which promote nothing: homes on slow.
            let at = u64::from(x) << 12;
            e.access(Nanos::from_secs(t), ExtentId(x), true, 0, (at, 4096));
        }
        for (t, x) in [(3.0, 0), (4.0, 1), (5.0, 1)] {
            touch(&mut e, t, x); // 0 and 1 are promoted, 1 is hit
        }
        assert_eq!(
            (e.counters().promotions, e.counters().hits),
            (2, 1),
            "{name}"
        );
        touch(&mut e, 6.0, 2); // fast is full: 0, read least and longest ago, makes room
        assert_eq!(e.home(ExtentId(0)).map(|s| s.0 >= 2), Some(true), "{name}");
        assert_eq!(e.home(ExtentId(2)), Some(Slot(0)), "{name}");
        assert_eq!(
            (e.counters().promotions, e.counters().demotions),
            (3, 1),
            "{name}"
        );
    }
}

/// Worked by hand. F = 2. Accesses r0 w1 r0 r2 r1: 0 and 1 are fetched, 0 hit, 2 evicts 1 (dirty: written home), 1 evicts 0.
#[test]
fn lru_golden() {
    let mut e = engine("lru", &[], 2, 12);
    for (x, write, hit) in [
        (0, false, false),
        (1, true, false),
        (0, false, true),
        (2, false, false),
        (1, false, false),
    ] {
        let at = u64::from(x) << 12;
        assert_eq!(
            e.access(Nanos(1), ExtentId(x), write, 0, (at, 4096)),
            hit,
            "{x}"
        );
    }
    let c = e.counters();
    assert_eq!((c.hits, c.fetches, c.evictions, c.writebacks), (1, 4, 2, 1));
    assert_eq!((c.promotions, c.demotions), (0, 0));
    assert_eq!(e.copy(ExtentId(0)), None);
    assert!(e.copy(ExtentId(1)).is_some() && e.copy(ExtentId(2)).is_some());
}
