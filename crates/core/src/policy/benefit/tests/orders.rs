//! With suitable weights, `benefit` orders extents as older policies do. In each test both policies count the same accesses, and the test
//! compares their orders of the extents.
#![allow(clippy::unwrap_used)]

use crate::collector::{Collector, Hro, Oodt};
use crate::null::NullEngine;
use crate::policy::benefit::Benefit;
use crate::policy::{Access, Dss, Outcome, Policy, Refusal, View};
use crate::random::SplitMix64;
use crate::units::{ExtentId, Nanos, TierId};
use crate::volume::{Geometry, Member, Space, UnitId};
use alloc::vec::Vec;

const UNITS: u32 = 60;
const UNIT: u64 = 64 << 10;

/// An empty volume of two tiers, in which each unit has a slot on the slower one.
pub(super) fn space(fast: u32, units: u32) -> Space {
    let member = |tier, slots| Member {
        tier: TierId(tier),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: crate::geometry::Stash::default(),
    };
    let members = alloc::vec![member(0, fast), member(1, units + 8)];
    Space::new(Geometry::new(16, 12, units, members).unwrap())
}

/// The accesses of a request to units without copies.
fn accesses(at_ms: u64, write: bool, class: u8, (offset, bytes): (u64, u32)) -> Vec<Access> {
    let units = offset / UNIT..=(offset + u64::from(bytes) - 1) / UNIT;
    let first = offset / UNIT;
    let of = |unit| Access {
        now: Nanos::from_millis(at_ms),
        extent: UnitId(unit as u32),
        home: None,
        copy: None,
        write,
        class,
        request_bytes: bytes,
        request_offset: offset,
        first: unit == first,
    };
    units.map(of).collect()
}

/// The worth of each unit after `benefit` with these weights has counted all accesses. No copies are made.
fn worths(weights: &[(&str, f64)], work: &[Access]) -> Vec<u64> {
    worths_with(&[], weights, work)
}

/// The same with rows for classes.
fn worths_with(rows: &[&str], weights: &[(&str, f64)], work: &[Access]) -> Vec<u64> {
    let mut space = space(16, UNITS);
    let mut policy = Benefit::default();
    for row in rows {
        policy.set_name("class", row).unwrap();
    }
    for (key, value) in weights {
        policy.set(key, *value).unwrap();
    }
    policy.attach(&mut View::new(&mut space, Nanos(0), 0, false, u32::MAX));
    for access in work {
        let mut view = View::new(&mut space, access.now, 0, false, u32::MAX);
        let mut wanted = Vec::new();
        policy.on_access(&mut view, access, &mut wanted);
        let refused = Outcome::Refused(Refusal::Limit);
        for action in wanted {
            policy.on_settled(&mut view, action, refused, &mut Vec::new());
        }
    }
    let view = View::new(&mut space, Nanos(0), 0, false, 0);
    let of = |e| policy.worth(&view, UnitId(e));
    (0..UNITS).map(of).collect()
}

/// Number of pairs whose worth has the right order, and number of pairs of which the first must come before the second.
fn agreeing(worths: &[u64], before: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let n = worths.len();
    let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
    let pairs: Vec<_> = pairs.filter(|&(a, b)| before(a, b)).collect();
    let agree = pairs.iter().filter(|&&(a, b)| worths[a] > worths[b]);
    (agree.count(), pairs.len())
}

/// The collector after it has counted all accesses.
fn counted<C: Collector>(mut collector: C, work: &[Access]) -> C {
    let mut space = space(16, UNITS);
    let mut view = View::new(&mut space, Nanos(0), 0, false, u32::MAX);
    collector.attach(&mut view);
    for access in work {
        collector.touch(&mut view, access);
    }
    collector.settle(&mut view);
    collector
}

#[test]
fn the_weights_of_oodt() {
    let mut draw = SplitMix64::new(1);
    let mut work = Vec::new();
    let mut last = (u64::MAX, 0);
    for i in 0..4000 {
        let blocks = 1 + draw.below(4);
        let most = draw_most(&mut draw, blocks);
        let start = draw.below(most);
        // A request that OODT would merge with the request before it is skipped. (Its queue holds one request here.)
        if (last.0.saturating_sub(1)..=last.1 + 1).contains(&start) {
            continue;
        }
        last = (start, start + blocks);
        let bytes = (blocks * UNIT) as u32;
        let class = if start.is_multiple_of(5) { 3 } else { 9 };
        work.extend(accesses(
            i,
            draw.below(3) == 0,
            class,
            (start * UNIT, bytes),
        ));
    }
    let mut oodt = Oodt::default();
    for (key, value) in [("queue", 1.0), ("w_read", 0.3), ("w_metadata", 0.7)] {
        oodt.set(key, value).unwrap().unwrap();
    }
    let oodt = counted(oodt, &work);
    let before = |a: usize, b: usize| {
        let of = |e: usize| oodt.priorities(UnitId(e as u32)).0;
        // Worth is rounded to about a microsecond, so nearly equal priorities are not compared.
        of(a) > of(b) * 1.001
    };
    let same = [
        ("half_life", 0.0),
        ("by_request", 1.0),
        ("w_read", 0.3),
        ("w_metadata", 0.7),
    ];
    let (agree, all) = agreeing(&worths(&same, &work), before);
    assert!(
        all > 1500 && agree == all,
        "{agree} of {all} pairs in the order of oodt"
    );
    // With other weights the order is different.
    let (agree, all) = agreeing(&worths(&[("half_life", 0.0)], &work), before);
    assert!(agree < all, "{agree} of {all}");
}

/// A bound for a random place. Because the bound is random itself, low places are requested more often than high ones.
fn draw_most(draw: &mut SplitMix64, blocks: u64) -> u64 {
    let most = u64::from(UNITS) - blocks;
    1 + draw.below(most)
}

#[test]
fn the_value_of_hro() {
    let mut draw = SplitMix64::new(2);
    let mut work = Vec::new();
    let mut at = 0;
    for _ in 0..2000 {
        let most = draw_most(&mut draw, 1);
        let unit = draw.below(most);
        let write = draw.below(4) == 0;
        // Requests of 512 bytes at multiples of 2 KiB, each followed by up to two that continue it.
        let start = unit * UNIT + draw.below(UNIT / 2048) * 2048;
        for more in 0..=draw.below(1 + unit % 3) {
            at += 10;
            work.extend(accesses(at, write, 0, (start + more * 512, 512)));
        }
    }
    let hro = counted(Hro::new(), &work);
    let value = |e: usize| {
        let (f, r) = hro.counts(UnitId(e as u32));
        u64::from(f) * u64::from(r)
    };
    let before = |a, b| value(a) > value(b);
    let same = [("half_life", 0.0), ("w_random", 1.0)];
    let (agree, all) = agreeing(&worths(&same, &work), before);
    assert!(
        all > 1500 && agree == all,
        "{agree} of {all} pairs in the order of hro"
    );
    // Frequency alone is the order of `hot`, which is different.
    let (agree, all) = agreeing(&worths(&[("half_life", 0.0)], &work), before);
    assert!(agree < all, "{agree} of {all}");
}

#[test]
fn the_priorities_of_dss() {
    let usual = dss_order(&[]);
    // Also with other priorities than those of DSS.
    let turned = [
        "3+priority=12",
        "9-10+priority=3",
        "18+priority=0",
        "0+priority=2",
    ];
    assert_ne!(dss_order(&turned), usual);
}

/// The order in which `dss-lru-s` with these rows evicts units, which is that of the weights of `benefit`.
fn dss_order(rows: &[&str]) -> Vec<u32> {
    // Twelve units: journal, small, medium and large files, and unclassified data. The order of their use is not that of their classes.
    let classes = [0, 14, 3, 9, 8, 12, 0, 18, 10, 9, 3, 14];
    let order = [4, 0, 7, 2, 9, 11, 1, 5, 10, 3, 8, 6];
    let work: Vec<Access> = order
        .iter()
        .enumerate()
        .flat_map(|(i, &unit)| {
            let class = classes[unit as usize];
            accesses(10 * i as u64, false, class, (unit * UNIT, 4096))
        })
        .collect();
    // The order in which dss-lru-s evicts them when journal blocks arrive, one after the other.
    let mut dss = Dss::new(true);
    for row in rows {
        dss.set_name("class", row).unwrap();
    }
    let mut dss = NullEngine::over(space(12, UNITS), dss);
    let come = |dss: &mut NullEngine<Dss>, a: &Access| {
        let request = (a.request_offset, a.request_bytes);
        dss.access(a.now, ExtentId(a.extent.0), false, a.class, request);
    };
    for a in &work {
        come(&mut dss, a);
    }
    let held = |dss: &NullEngine<Dss>| -> Vec<u32> {
        let has = |e: &u32| dss.copy(ExtentId(*e)).is_some();
        (0..12).filter(has).collect()
    };
    assert_eq!(held(&dss).len(), 12);
    let mut gone = Vec::new();
    for i in 0..10 {
        let before = held(&dss);
        let new = accesses(1000 + i, false, 7, ((20 + i) * UNIT, 4096));
        for a in &new {
            come(&mut dss, a);
        }
        let after = held(&dss);
        gone.extend(before.into_iter().filter(|e| !after.contains(e)));
    }
    assert_eq!(gone.len(), 10);
    let same = [("half_life", 0.001), ("w_class", 1e6), ("w_latency", 100.0)];
    let by_worth = |weights: &[(&str, f64)]| {
        let worth = worths_with(rows, weights, &work);
        let mut units: Vec<u32> = (0..12).collect();
        units.sort_by_key(|&e| worth[e as usize]);
        units.truncate(10);
        units
    };
    assert_eq!(by_worth(&same), gone);
    assert_ne!(by_worth(&same[..1]), gone);
    gone
}
