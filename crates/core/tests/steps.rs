//! The cost of the engine's searches, in slots, copies and waiting pieces that they examine ([`Engine::steps`]). Per request it does not grow
//! with the size of the volume, with the number of copies, or with the number of requests that wait.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::{Drain, Params};
use isotherm_core::policy::build;
use isotherm_core::{Engine, Nanos, Request, RequestOp, Tag};
use rig::{EXTENT, Run, tiering};

const SIZES: [u32; 3] = [500, 2000, 8000];
/// Steps per request that are allowed at every size.
const MOST: f64 = 40.0;
const POLICIES: [&str; 5] = ["dss-lru", "smq", "lru", "bcache-like", "benefit"];

/// A volume of `n` extents with a copy in nearly each of its `n / 2` fast slots, most of them dirty.
fn used(policy: &str, n: u32) -> Run {
    let params = Params {
        move_buffers: 16,
        ..Params::default()
    };
    let mut run = Run::of(tiering(policy, params, n / 2, n));
    for e in 0..u64::from(n) {
        for _ in 0..3 {
            run.submit(RequestOp::Write, e);
        }
        run.run(run.now + Nanos::from_millis(1));
    }
    run.run(run.now + Nanos::from_secs(2));
    run
}

/// Runs until all requests are answered.
fn finish(run: &mut Run) {
    for _ in 0..10_000 {
        if run.replies == run.tag {
            return;
        }
        run.run(run.now + Nanos::from_millis(50));
    }
    panic!(
        "{} of {} answered; {}",
        run.replies,
        run.tag,
        run.engine.under_way()
    );
}

/// The steps per request, or per extent, at each size.
fn do_not_grow(what: &str, each: [f64; 3]) {
    println!("{what}: {each:.2?} steps at {SIZES:?} extents");
    assert!(each.iter().all(|s| *s < MOST), "{what}: {each:?}");
    // A fixed number for few requests is no growth.
    assert!(each[2] < each[0] * 2.0 + 2.0, "{what}: {each:?}");
}

/// The steps per request of what `burst` does with a volume of each size, under each policy. It returns the number of its requests.
fn measure(what: &str, burst: impl Fn(&mut Run, u32) -> u32) {
    for policy in POLICIES {
        let each = SIZES.map(|n| {
            let mut run = used(policy, n);
            let before = run.engine.steps();
            let requests = burst(&mut run, n);
            finish(&mut run);
            (run.engine.steps() - before) as f64 / f64::from(requests)
        });
        do_not_grow(&format!("{what}, {policy}"), each);
    }
}

/// Every extent is discarded and written again, all at once: the slots of the old homes become free only after a round, so that most writes
/// wait for a slot, and copies are given up for homes.
#[test]
fn pieces_that_wait_for_slots() {
    measure("discards and writes", |run, n| {
        for e in 0..u64::from(n) {
            run.submit(RequestOp::Discard, e);
            run.submit(RequestOp::Write, e);
        }
        assert!(run.engine.counters().waited > u64::from(n) / 8);
        2 * n
    });
}

/// Discards wait for the writes in progress on their extents, each for its own.
#[test]
fn pieces_that_wait_for_extents() {
    measure("discards behind writes", |run, n| {
        for e in 0..u64::from(n) {
            run.submit(RequestOp::Write, e);
            run.submit(RequestOp::Discard, e);
        }
        2 * n
    });
}

/// Writes that are not whole blocks lock their extents, two requests each.
#[test]
fn unaligned_writes() {
    measure("unaligned writes", |run, n| {
        for i in 0..2 * u64::from(n) {
            run.tag += 1;
            let req = Request {
                tag: Tag(run.tag),
                op: RequestOp::Write,
                offset: i / 2 * EXTENT + 100,
                len: 1000,
                fua: false,
                class: 0,
            };
            run.engine.submit(run.now, req, &mut run.out);
            run.carry_out();
        }
        2 * n
    });
}

/// Another policy takes over, and the copies that it does not use are removed while requests go on.
#[test]
fn a_change_of_policy() {
    for to in ["linear", "greendm"] {
        let each = SIZES.map(|n| {
            let mut run = used("smq", n);
            let before = run.engine.steps();
            let policy = build(to, core::iter::empty()).unwrap();
            run.engine.set_policy(run.now, policy).unwrap();
            for e in 0..u64::from(n) {
                run.submit(RequestOp::Write, e);
                run.run(run.now + Nanos::from_millis(1));
            }
            finish(&mut run);
            while run.engine.draining() != Drain::None {
                let now = run.now;
                run.run(now + Nanos::from_millis(100));
            }
            assert_eq!(run.engine.copies().0, 0);
            // A slot is looked at when the policy changes, when its removal begins, and when it has ended.
            (run.engine.steps() - before) as f64 / f64::from(n)
        });
        do_not_grow(&format!("to {to}"), each);
    }
}

/// Questions about the volume as a whole cost no search.
#[test]
fn questions() {
    let run = used("smq", SIZES[1]);
    let before = run.engine.steps();
    let asked = |e: &Engine| (e.copies(), e.fast_home_bytes(), e.draining(), e.moving());
    asked(&run.engine);
    assert_eq!(run.engine.steps(), before);
}

/// The start, requests, FLUSHes, checkpoints, the policy's ticks and the close of a cache volume with this many extents on the disk, by the
/// number of steps, records, journal blocks and checkpoints.
fn life(policy: &str, extents: u32) -> (u64, [u64; 4]) {
    let mut run = Run::of(rig::sized(policy, Params::default(), 200, extents));
    for i in 0..2000u64 {
        let e = i * 37 % 450;
        let op = if i % 3 == 0 {
            RequestOp::Write
        } else {
            RequestOp::Read
        };
        run.submit(op, e);
        if i % 100 == 0 {
            run.submit(RequestOp::Flush, 0);
        }
        run.run(run.now + Nanos::from_millis(2));
    }
    run.run(run.now + Nanos::from_secs(120));
    run.engine.close(run.now, &mut run.out);
    run.carry_out();
    run.run(run.now + Nanos::from_secs(120));
    assert!(run.engine.is_closed());
    let c = run.engine.counters();
    let counts = [
        c.journal_records,
        c.journal_blocks,
        c.checkpoints,
        c.fetches.done,
    ];
    (run.engine.steps(), counts)
}

/// Nothing in the life of a cache volume walks the extents of the disk: a disk of 16 TiB in extents of 4 KiB costs the steps and the records
/// that one of 4 GiB costs. (A walk over 4·10^9 extents would also take minutes. On a smaller disk these requests are in more than one region,
/// so that there are other writes of its mark.)
#[test]
fn a_larger_disk_costs_a_cache_volume_nothing() {
    for policy in POLICIES {
        let small = life(policy, 1 << 20);
        assert!(small.1[0] > 100 && small.1[3] > 50, "{policy}: {small:?}");
        assert_eq!(life(policy, 4_000_000_000), small, "{policy}");
    }
}
