//! `type-aware` with presets: in its quota of the fast tier, each preset makes the same decisions as on a separate volume.

mod reference;

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{PRESETS, ParamValue, Policy, build_with};
use isotherm_core::{ExtentId, Nanos, TierId};
use reference::{Draw, SHIFT, Touch, Work, random, touch};

type Run = NullEngine<Box<dyn Policy>>;

fn policy(name: &str, rules: &[String]) -> Box<dyn Policy> {
    let params = rules.iter().map(|r| ("rule", ParamValue::Name(r)));
    build_with(name, params).expect("valid rules")
}

fn engine(name: &str, rules: &[String], units: u32, fast: u32) -> Run {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let geo = Geometry::new(SHIFT, 9, units, vec![m(0, fast), m(1, units)]).expect("a shape");
    NullEngine::new(geo, policy(name, rules))
}

fn is_fast(e: &Run, unit: u32) -> bool {
    let position = e.copy(ExtentId(unit)).or(e.home(ExtentId(unit)));
    position.is_some_and(|s| e.space().geo.tier_of(s) == TierId(0))
}

/// The class of a unit: a third each of 1, 8 and 0.
fn class(unit: u32) -> u8 {
    [1, 8, 0][unit as usize % 3]
}

fn on_fast(e: &Run, units: u32, of: u8) -> usize {
    (0..units)
        .filter(|&u| class(u) == of && is_fast(e, u))
        .count()
}

/// Random work in which all touches of a unit have the same class, and each request is of one unit.
fn work(seed: u64, units: u32, requests: usize) -> Vec<Touch> {
    let mut draw = Draw::new(seed);
    let w = Work {
        units,
        requests: requests as _,
        writes: [0, 30, 70][seed as usize % 3],
        classes: &[0],
        gaps: &[0, 1_000, 400_000_000],
    };
    let one = |t: Touch| Touch {
        class: class(t.unit),
        offset: u64::from(t.unit) << SHIFT,
        first: true,
        ..t
    };
    random(&mut draw, &w).into_iter().map(one).collect()
}

#[test]
fn a_preset_whose_quota_is_the_whole_tier_decides_as_alone() {
    for preset in PRESETS.iter().filter(|p| p.name != "type-aware") {
        let rule = format!("all:{}:100", preset.name);
        // One of Loris' policies that share the tier: it also has the whole tier.
        let (units, fast) = (90, 12);
        let mut alone = engine(preset.name, &[], units, fast);
        let mut under = engine("type-aware", &[rule], units, fast);
        for (i, t) in work(3, units, 2500).iter().enumerate() {
            let (a, b) = (touch(&mut alone, t), touch(&mut under, t));
            assert_eq!(a, b, "{}: access {i}", preset.name);
        }
        let (a, b) = (alone.counters(), under.counters());
        assert_eq!(
            (a.fetches, a.evictions, a.promotions, a.demotions),
            (b.fetches, b.evictions, b.promotions, b.demotions),
            "{}",
            preset.name
        );
    }
}

/// Two presets and Loris' group, each for different units. Each must have the same hits as alone on a volume whose fast tier is its quota,
/// and is called only for its own units.
#[test]
fn each_preset_decides_as_on_a_volume_of_its_quota() {
    for (one, other) in [
        ("lru", "s3-fifo"),
        ("sieve", "greendm"),
        ("arc", "opencas-like"),
    ] {
        for seed in 0..6 {
            let (units, fast) = (120, 20);
            let rules = [format!("class/1:{one}:30"), format!("class/8:{other}:40")];
            let mut all = engine("type-aware", &rules, units, fast);
            let mut alone = [(1, one, 6), (8, other, 8)]
                .map(|(class, name, quota)| (class, name, engine(name, &[], units, quota)));
            for (i, t) in work(seed, units, 2000).iter().enumerate() {
                let hit = touch(&mut all, t);
                if let Some((_, name, e)) = alone.iter_mut().find(|a| a.0 == t.class) {
                    assert_eq!(hit, touch(e, t), "seed {seed}: access {i}, under {name}");
                }
            }
        }
    }
}

#[test]
fn quotas_are_never_overrun() {
    for preset in PRESETS.iter().filter(|p| p.name != "type-aware") {
        let (units, fast) = (120, 20);
        let rules = [
            format!("class/1:{}:30", preset.name),
            String::from("class/8:lru:25"),
        ];
        let mut e = engine("type-aware", &rules, units, fast);
        let shares = preset.name.starts_with("hot-dst-d")
            || preset.name.starts_with("cold-dst-")
            || preset.name == "cache-ondemand";
        let mut most = [0; 2];
        for (i, t) in work(1, units, 2500).iter().enumerate() {
            touch(&mut e, t);
            let have = [on_fast(&e, units, 1), on_fast(&e, units, 8)];
            let rest = on_fast(&e, units, 0);
            assert!(have[1] <= 5, "{}: access {i}: {have:?}", preset.name);
            if shares && preset.name != "cold-dst-dynamic-bgclean" {
                // Loris' policies share the slots that are in no quota.
                assert!(have[0] + rest <= 15, "{}: access {i}", preset.name);
            } else {
                assert!(have[0] <= 6, "{}: access {i}: {have:?}", preset.name);
                assert!(rest <= 9, "{}: access {i}: {rest}", preset.name);
            }
            most = [most[0].max(have[0]), most[1].max(have[1])];
        }
        assert_eq!(most[1], 5, "the quota is used");
    }
}

#[test]
fn a_unit_with_a_new_class_changes_its_sub_policy() {
    let rules = ["class/1:lru:50", "class/8:fifo:25"].map(String::from);
    let mut e = engine("type-aware", &rules, 32, 8);
    let mut at = 0;
    let mut read = |e: &mut Run, unit, class| {
        at += 1_000_000;
        let request = (u64::from(unit) << SHIFT, 4096);
        e.access(Nanos(at), ExtentId(unit), false, class, request)
    };
    for unit in 0..4 {
        read(&mut e, unit, 1);
    }
    // 4 of 4 and 1 of 2: the other quota has room, so unit 0 keeps its copy, and lru may have another one.
    read(&mut e, 10, 8);
    e.reclassify(Nanos(10_000_000), ExtentId(0), 8);
    read(&mut e, 4, 1);
    assert!([0, 1, 2, 3, 4, 10].iter().all(|&u| is_fast(&e, u)));
    // There is no room for unit 1: its copy leaves.
    e.reclassify(Nanos(20_000_000), ExtentId(1), 8);
    assert!(!is_fast(&e, 1) && is_fast(&e, 2));
    // The other rule is first in, first out, and 10 came before 0.
    at += 30_000_000;
    let request = (1 << SHIFT, 4096);
    e.access(Nanos(at), ExtentId(1), false, 0, request);
    assert!(is_fast(&e, 1) && is_fast(&e, 0) && !is_fast(&e, 10));
}

#[test]
fn smaller_quotas_drain() {
    let (units, fast) = (60, 20);
    let wide = ["class/1:lru:60", "class/8:s3-fifo:40"].map(String::from);
    let narrow = ["class/1:lru:10", "class/8:s3-fifo:40"].map(String::from);
    let mut before = engine("type-aware", &wide, units, fast);
    let touches = work(2, units, 1500);
    for t in touches.iter().filter(|t| t.class != 0) {
        touch(&mut before, t);
    }
    assert_eq!(on_fast(&before, units, 1), 12);
    let mut space = before.space().clone();
    for u in 0..units {
        space.set_class(ExtentId(u), class(u));
    }
    let mut after = NullEngine::over(space, policy("type-aware", &narrow));
    let end = touches.last().map_or(0, |t| t.now);
    // Accesses to other units are enough: a copy for which there is no room leaves even if it is not accessed.
    for i in 0..4 {
        let now = Nanos(end + (i + 1) * 1_000_000_000);
        after.access(now, ExtentId(2), false, 0, (2 << SHIFT, 4096));
    }
    assert_eq!(on_fast(&after, units, 1), 2);
    assert_eq!(on_fast(&after, units, 8), on_fast(&before, units, 8));
}

/// A rule's preset takes parameters, is named in the form in which it was given, and explains its decisions.
#[test]
fn rules_name_presets_with_parameters() {
    let rules = ["class/1:greendm/PT=2/LT=8:30"].map(String::from);
    let mut e = engine("type-aware", &rules, 32, 8);
    assert_eq!(
        e.policy().names(),
        [("rule", String::from("class/1:greendm/PT=2/LT=8:30"))]
    );
    e.access(Nanos(1), ExtentId(1), false, 1, (1 << SHIFT, 4096));
    let why = e.explain(Nanos(2), ExtentId(1));
    assert!(why.contains("of its 2 fast slots"), "{why}");
}
