use super::*;
use crate::policy::build;
use alloc::boxed::Box;

fn engine(name: &str, params: &[(&str, f64)], fast: u32, slow: u32) -> NullEngine<Box<dyn Policy>> {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: crate::geometry::Stash::default(),
    };
    // The slow tier has more slots than needed, so some stay free.
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

/// Computed by hand. F = 4, LT = max(1, 4/16) = 1, HT = min(4, max(2, 4/8)) = 2, PT = 1, TW = 60 s.
#[test]
fn greendm_golden() {
    let mut e = engine("greendm", &[], 4, 12);
    // First touches fill slots 0, 1, 2. One slot stays free, and this is not less than LT = 1.
    for (t, x) in [(0.0, 10), (1.0, 11), (2.0, 12)] {
        assert!(!touch(&mut e, t, x));
    }
    assert_eq!(e.counters().demotions, 0);
    // The fourth first touch leaves 0 < LT slots free, so extents are demoted until HT = 2 are free. All extents are marked, so the first
    // round over the slots only clears the marks. Then the oldest, 10 and 11, go to the lowest slow slots, 4 and 5.
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
    // 12 is a hit. Then 10 is a miss, the first one = PT, so it is promoted to the lowest free fast slot, 0. One slot stays free.
    assert!(touch(&mut e, 4.0, 12));
    assert!(!touch(&mut e, 5.0, 10));
    assert_eq!(e.home(ExtentId(10)), Some(Slot(0)));
    assert_eq!((e.counters().promotions, e.counters().demotions), (1, 2));
    // 11 fills slot 1. No slot is free, so two extents are demoted. The clock hand is at slot 0. Marked are 10 and 11 (newly filled) and 12
    // (touched at 4 s); the mark of 13 was cleared by the first round. Last uses: 13 at 3 s, 12 at 4 s, 10 at 5 s, 11 at 6 s. None is older
    // than TW, so the round finds no victim, and the two oldest, 13 and 12, are demoted.
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
    // F = 2, LT = 1, HT = 2. Two first touches fill the fast tier, and both extents are demoted again.
    let mut e = engine("greendm", &[("PT", 2.0), ("TW", 10.0)], 2, 12);
    touch(&mut e, 0.0, 0);
    touch(&mut e, 0.5, 1);
    assert_eq!(e.counters().demotions, 2);
    touch(&mut e, 5.0, 0); // 5 s after its first touch: miss 1
    assert_eq!(e.counters().promotions, 0);
    touch(&mut e, 16.0, 0); // 11 s later: the count starts again, miss 1
    assert_eq!(e.counters().promotions, 0);
    touch(&mut e, 26.0, 0); // exactly TW later: miss 2 = PT
    assert_eq!(e.counters().promotions, 1);
    assert_eq!(e.home(ExtentId(0)), Some(Slot(0)));
}

#[test]
fn greendm_prefers_extents_outside_the_window() {
    let mut e = engine("greendm", &[("TW", 10.0), ("LT", 1.0), ("HT", 1.0)], 4, 12);
    touch(&mut e, 0.0, 0);
    touch(&mut e, 20.0, 1);
    touch(&mut e, 21.0, 2);
    // The fast tier is full. The round from slot 0 clears all marks, and the oldest (extent 0) is demoted.
    touch(&mut e, 22.0, 3);
    assert_eq!(e.home(ExtentId(0)), Some(Slot(4)));
    // Extent 4 fills slot 0 at 40 s, and the clock hand is at slot 0. Extent 4 is newly marked, so its mark is cleared and the hand goes
    // on. Extent 1 in slot 1 is not marked, and its last use, 20 s ago, is outside of the window. So it is demoted at once, without a
    // comparison with the others.
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
fn hot_dst_demotes_the_coldest_and_promotes_the_read_extent() {
    for name in ["hot-dst-recency", "hot-dst-frequency", "hot-dst-wsclock"] {
        let mut e = engine(name, &[], 2, 12);
        for (t, x) in [(0, 0), (1, 1), (2, 2)] {
            // The first touches are writes, which promote nothing, so the homes are on the slow tier.
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
        touch(&mut e, 6.0, 2); // the fast tier is full: 0, read least often and longest ago, is demoted
        assert_eq!(e.home(ExtentId(0)).map(|s| s.0 >= 2), Some(true), "{name}");
        assert_eq!(e.home(ExtentId(2)), Some(Slot(0)), "{name}");
        assert_eq!(
            (e.counters().promotions, e.counters().demotions),
            (3, 1),
            "{name}"
        );
    }
}

/// Computed by hand. F = 2. Accesses r0 w1 r0 r2 r1: 0 and 1 get copies, 0 is hit, 2 evicts 1 (which is dirty and is written home), 1
/// evicts 0.
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
