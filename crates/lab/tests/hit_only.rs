//! The driver: compiled-in policies decide as dynamic ones do, kept requests give the same as requests that are decoded twice, and both the
//! same as a plain loop.

mod common;

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::{NullCounters, NullEngine};
use isotherm_core::policy::{PRESETS, ParamValue, build};
use isotherm_core::{ExtentId, TierId};
use isotherm_lab::hit_only::{HitOnlyError, KEEP_BYTES, Setup, hit_only};
use isotherm_traces::{Op, Options, SideBySide, open, scan};
use std::collections::BTreeMap;
use std::path::Path;

/// Section 0 of docs/policy-rules.md in its simplest form: everything in memory, a map of touched extents, `dyn Policy`.
fn plainly(path: &Path, policy: &str, percent: u64) -> NullCounters {
    let side = SideBySide::new(&scan(path, &Options::default()).expect("scanned")).expect("fits");
    let mut records: Vec<_> = open(path, &Options::default())
        .expect("opens")
        .map(|r| r.expect("reads"))
        .filter(|r| matches!(r.op, Op::Read | Op::Write))
        .collect();
    for r in &mut records {
        side.map(r);
    }
    let span = |r: &isotherm_traces::Record| r.offset >> 12..=(r.end() - 1) >> 12;
    let mut rows: BTreeMap<u64, u32> = records.iter().flat_map(span).map(|e| (e, 0)).collect();
    let touched = rows.len() as u64;
    let (lowest, highest) = (
        *rows.keys().next().expect("some"),
        *rows.keys().last().expect("some"),
    );
    let by_address = policy.ends_with("linear");
    let built = build(policy, std::iter::empty()).expect("built");
    // Rows are adjacent if and only if their extents are adjacent on the volume, for policies to which this matters.
    let apart = if built.minds_gaps() { 2 } else { 1 };
    let (mut next, mut before) = (0, lowest);
    for (extent, row) in &mut rows {
        let step = extent - before;
        next += if by_address { step } else { step.min(apart) } as u32;
        (*row, before) = (next, *extent);
    }
    let count = if by_address {
        highest - lowest + 1
    } else {
        // (Behind the last one there is a row that no extent of the trace has.)
        u64::from(next) + apart
    };
    let m = |t, slots: u64| Member {
        tier: TierId(t),
        first_slot: 0,
        slots: slots as u32,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let fast = (touched * percent / 100).max(1);
    let geo = Geometry::new(12, 9, count as u32, vec![m(0, fast), m(1, count)])
        .and_then(|g| g.of_kind(built.uses().volume()))
        .expect("geometry");
    let mut e = NullEngine::new(geo, built);
    for r in &records {
        let first = rows[&(r.offset >> 12)];
        let request = ((u64::from(first) << 12) + r.offset % 4096, r.len);
        for x in span(r) {
            e.access(
                r.time,
                ExtentId(rows[&x]),
                r.op == Op::Write,
                r.class,
                request,
            );
        }
    }
    e.counters()
}

#[test]
fn decisions_are_those_of_a_plain_loop() {
    for name in [
        "windows-shared-server.load.zst",
        "financial1-head10k.spc.zst",
        "msr-wdev_1.csv.zst",
    ] {
        let Some(path) = common::trace(name) else {
            println!("skipped: {name} is not in $ISOTHERM_TRACES");
            continue;
        };
        for p in PRESETS {
            let want = plainly(&path, p.name, 10);
            let kept = common::play_share(&path, p.name, 10);
            let twice = common::play(&path, p.name, &|n| n / 10, 0);
            assert_eq!(kept.counters, want, "{name} {}", p.name);
            assert_eq!(twice.counters, want, "{name} {} decoded twice", p.name);
            assert_eq!(kept.by_class, twice.by_class);
            let all =
                (kept.by_class.iter()).fold((0, 0), |a, (_, c)| (a.0 + c.accesses, a.1 + c.hits));
            assert_eq!(all, (want.accesses, want.hits));
        }
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let path = common::trace("windows-shared-server.load.zst").expect("in the tree");
    let run = |policy, params: &[(&str, ParamValue<'_>)], fast: &dyn Fn(u64) -> u64| {
        let setup = Setup {
            policy,
            params,
            extent_shift: 12,
            fast_slots: fast,
            keep_bytes: KEEP_BYTES,
        };
        hit_only(|| open(&path, &Options::default()), &setup)
    };
    assert!(matches!(
        run("lrru", &[], &|_| 1),
        Err(HitOnlyError::Policy(_))
    ));
    assert!(matches!(
        run("lru", &[("x", ParamValue::Number(1.0))], &|_| 1),
        Err(HitOnlyError::Policy(_))
    ));
    // No slots count as one, and more slots than there is data count as the amount of data.
    let none = run("lru", &[], &|_| 0).expect("runs");
    assert_eq!((none.fast_slots, none.counters.fetches > 0), (1, true));
    let all = run("lru", &[], &|n| n).expect("runs").counters;
    let more = run("lru", &[], &|_| u64::MAX >> 12).expect("runs").counters;
    assert_eq!((all, all.evictions), (more, 0));
}
