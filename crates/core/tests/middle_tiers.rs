//! Presets that were published for two tiers, on three tiers. The sequences were worked by hand from docs/policy-rules.md, section 10.

mod reference;

use isotherm_core::ExtentId;
use isotherm_core::null::NullEngine;
use isotherm_core::policy::Policy;
use reference::{Touch, counts, engine, touch};

/// Tier 0 has slots 0 and 1, tier 1 slots 2 to 4, tier 2 the rest.
const TIERS: [u32; 3] = [2, 3, 16];

/// The extents among the first 16 that have a home on tier 0 or 1.
fn upper(e: &NullEngine<Box<dyn Policy>>) -> [Vec<u32>; 2] {
    let on = |from, to| {
        let is = |u: &u32| {
            e.home(ExtentId(*u))
                .is_some_and(|s| (from..to).contains(&s.0))
        };
        (0..16).filter(is).collect()
    };
    [on(0, 2), on(2, 5)]
}

/// A request of `pages` pages.
fn io(ms: u64, unit: u32, write: bool, pages: u32) -> Touch {
    Touch {
        now: ms * 1_000_000,
        unit,
        write,
        class: 0,
        offset: u64::from(unit) << 12,
        bytes: pages * 4096,
        first: true,
    }
}

/// One page adds 64, two 32, four 16. Of the three slots of tier 1, max(1, ⌊3/16⌋) = 1 is kept free.
#[test]
fn hot_dst_dynamic() {
    let mut e = engine("hot-dst-dynamic", &[], 16, &TIERS);
    let mut at = |unit, pages, want: [&[u32]; 2]| {
        touch(&mut e, &io(0, unit, false, pages));
        assert_eq!(upper(&e), want.map(<[u32]>::to_vec), "after {unit}");
    };
    at(0, 1, [&[0], &[]]); // 64 > 0, a slot is free
    at(1, 1, [&[0, 1], &[]]);
    at(2, 1, [&[1, 2], &[0]]); // 64 > 0: 0 (64, oldest) leaves, to the next tier: last of tier 0 = 64
    at(3, 4, [&[1, 2], &[0, 3]]); // 16 ≤ 64, but more than what last left tier 1 (0), where there is room
    // 32 is not enough for tier 0 either. 4 takes the last slot of tier 1; so the coldest there, 3 (16), leaves: last of tier 1 = 16.
    at(4, 2, [&[1, 2], &[0, 4]]);
    at(5, 4, [&[1, 2], &[0, 4]]); // 16 ≤ 16: stays on slow
    at(5, 4, [&[1, 2], &[0, 5]]); // 32 > 16: up; 4 (32, used before 5) leaves: last = 32
    // 0 goes from tier 1 to tier 0: 64 + 64 = 128 > 64. 1 (64, the oldest) leaves for it and takes the place of 0 on tier 1.
    at(0, 1, [&[0, 2], &[1, 5]]);
    at(3, 1, [&[0, 3], &[1, 2]]); // 80 > 64: 2 (64) goes down; that fills tier 1: 5 (32) leaves
    let c = counts(&e);
    // Up: 0 1 2 to tier 0, 3 4 5 to tier 1, 0 and 3 to tier 0. Down: 0, 3, 4, 1, 2, 5.
    assert_eq!((c.promotions, c.demotions), (8, 6));
}

/// Period 5 s, from 0 s. A plan first fills tier 0; the other units are then candidates for tier 1.
#[test]
fn hot_dst_5s() {
    let mut e = engine("hot-dst-5s", &[], 16, &TIERS);
    for (unit, pages) in [(0, 1), (1, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16)] {
        touch(&mut e, &io(0, unit, true, pages));
    }
    // Counters: 1: 128, 0: 64, 2: 32, 3: 16, 4: 8, 5: 4. 5 s: 1 and 0 go to tier 0. 2 (32) is not above 0 (64), so it goes to tier 1, and
    // so does 3. 4 takes the last slot there; because one slot must be free, 4 leaves again (last of tier 1 = 8). 5 (4) is not above that.
    touch(&mut e, &io(5000, 9, true, 65));
    assert_eq!(upper(&e), [vec![0, 1], vec![2, 3]]);
    // Now 2 has 96. 10 s: it takes the place of 0 (64), and 0 takes the place of 2 on tier 1, where one slot is free as before.
    touch(&mut e, &io(6000, 2, true, 1));
    touch(&mut e, &io(10_000, 9, true, 65));
    assert_eq!(upper(&e), [vec![1, 2], vec![0, 3]]);
}

/// New extents go to tier 0, extents that leave it go to tier 1, and so on.
#[test]
fn cold_dst_plain() {
    let mut e = engine("cold-dst-plain", &[], 16, &TIERS);
    for unit in 0..6 {
        touch(&mut e, &io(0, unit, true, 1));
    }
    // 0 left for 2, 1 for 3, and 2 for 4. This filled tier 1, so 0 was demoted to tier 2. 3 left for 5, which filled it again, so 1 was
    // demoted to tier 2.
    assert_eq!(upper(&e), [vec![4, 5], vec![2, 3]]);
    assert_eq!((counts(&e).promotions, counts(&e).demotions), (0, 6));
    touch(&mut e, &io(0, 0, false, 1));
    assert_eq!(upper(&e), [vec![4, 5], vec![2, 3]]); // nothing returns
}

/// Tiers of 1, 2 and 64 slots; 16, 4 and 1 requests/s, so √(16 · 1) = 4 in between, at a price of √16 = 4. Interval 10 s.
#[test]
fn edt() {
    let params = [
        ("interval", 10.0),
        ("fast_iops", 16.0),
        ("slow_iops", 1.0),
        ("price_ratio", 16.0),
    ];
    let mut e = engine("edt", &params, 64, &[1, 2, 64]);
    // A rate r costs max(r/16, 1) · 16 on tier 0, max(r/4, 1/2) · 4 · 2 on tier 1, max(r, 1/64) · 64 on tier 2.
    // Unit 0: 30 requests, 3/s: 16, 6, 192: tier 1 is cheapest. Unit 7: 100, 10/s: 16, 20, 640: tier 0. Unit 20: one, 0.1/s:
    // 16, 4, 6.4: tier 1. Unit 40: 29, 2.9/s: 16, 5.8, 185.6: tier 1. Tier 1 has two slots: 0 saves 186, 40 179.8, 20 2.4.
    for (unit, n) in [(0, 30), (7, 100), (20, 1), (40, 29)] {
        for i in 0..n {
            // Requests of 512 bytes at the same place: none continues another.
            let t = Touch {
                bytes: 512,
                ..io(u64::from(unit) * 10 + i, unit, false, 1)
            };
            touch(&mut e, &t);
        }
    }
    touch(&mut e, &io(10_000, 63, false, 1));
    let tier = |u| {
        e.home(ExtentId(u))
            .map(|s| [1, 3].iter().filter(|end| s.0 >= **end).count())
    };
    assert_eq!(
        [7, 0, 40, 20].map(tier),
        [Some(0), Some(1), Some(1), Some(2)]
    );
}

/// A previous policy left copies on a tier in between. No preset's table has an entry for them, so no preset may look one up.
#[test]
fn copies_on_middle_tiers_are_ignored() {
    use isotherm_core::policy::{PRESETS, build};
    use isotherm_core::volume::{Geometry, Member, Space};
    use isotherm_core::{Nanos, TierId};
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let units = 24;
    let geo = Geometry::new(16, 12, units, vec![m(0, 4), m(1, 6), m(2, units)]).expect("a shape");
    let mut space = Space::new(geo);
    for e in (0..units).map(ExtentId) {
        let home = space.slots.take_lowest(TierId(2)).expect("a slot");
        space.map.map(e, home, false);
    }
    for e in (0..6).map(ExtentId) {
        let slot = space.slots.take_lowest(TierId(1)).expect("a slot");
        space.map.add_copy(e, slot);
        space.map.set_dirty(e, e.0 % 2 == 0);
    }
    for preset in PRESETS {
        let policy = build(preset.name, core::iter::empty()).expect("a preset");
        let mut e = NullEngine::over(space.clone(), policy);
        for i in 0..600u32 {
            let unit = i * 7 % units;
            let (now, offset) = (Nanos(u64::from(i) * 50_000_000), u64::from(unit) << 16);
            let class = [0, 5, 9][i as usize % 3];
            e.access(now, ExtentId(unit), i % 4 == 0, class, (offset, 4096));
            if i % 50 == 49 {
                e.reclassify(now, ExtentId(unit % 6), class);
                e.discard(now, ExtentId(i / 50 % 6));
            }
        }
        assert!(e.counters().accesses == 600, "{}", preset.name);
    }
}
