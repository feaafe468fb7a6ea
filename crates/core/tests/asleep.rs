//! Work that waits for a sleeping disk.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::Params;
use isotherm_core::policy::Refusal;
use isotherm_core::*;
use rig::{EXTENT, Run};

fn params(hold: Option<Nanos>, bytes: Option<u64>) -> Params {
    Params {
        standby_after: vec![None, Some(Nanos::from_secs(5))],
        sleep_hold: hold,
        sleep_hold_bytes: bytes,
        ..Params::default()
    }
}

fn pass(run: &mut Run, t: Nanos) -> u32 {
    let until = run.now + t;
    run.run(until)
}

/// The operations that woke the slow member since it first slept.
fn wakes(run: &Run) -> Vec<OpKind> {
    run.sleeps.iter().filter_map(|n| n.1).collect()
}

/// A volume whose cache is filled and clean, and whose disk sleeps.
fn asleep(policy: &str, params: Params) -> Run {
    let mut run = Run::new(policy, params);
    for op in [RequestOp::Write, RequestOp::Read] {
        for e in 0..8 {
            run.submit(op, e);
            pass(&mut run, Nanos::from_millis(20));
        }
    }
    pass(&mut run, Nanos::from_secs(30));
    assert!(run.engine.is_asleep(MemberId(1)));
    run
}

#[test]
fn dirty_copies_wait_for_the_disk_and_none_is_left_when_it_sleeps_again() {
    let mut run = asleep("lru", params(Some(Nanos::from_secs(3600)), None));
    let sleeps = run.sleeps.len();
    for i in 0..200u64 {
        run.submit(RequestOp::Write, i % 8);
        if i % 10 == 0 {
            run.submit(RequestOp::Flush, 0);
        }
        pass(&mut run, Nanos::from_secs(1));
    }
    assert_eq!(
        run.sleeps.len(),
        sleeps,
        "nothing woke it: {:?}",
        wakes(&run)
    );
    assert_eq!(run.engine.copies().1, 8);
    // A read that is not in the cache wakes the disk. It is not used for anything else until it goes to sleep again.
    run.submit(RequestOp::Read, 20);
    pass(&mut run, Nanos::from_secs(2));
    assert!(!run.engine.is_asleep(MemberId(1)));
    assert_eq!(run.engine.copies().1, 8);
    let began = run.now;
    pass(&mut run, Nanos::from_secs(20));
    assert_eq!(run.engine.copies().1, 0, "all written home");
    assert_eq!(
        run.engine.counters().sleep_batches,
        2,
        "one before the first sleep, for what had to be flushed"
    );
    assert!(run.engine.is_asleep(MemberId(1)));
    let slept = run.sleeps.last().unwrap().0;
    assert!(
        slept.since(began) < Nanos::from_secs(4),
        "the batch itself keeps it awake no longer than it takes"
    );
    // So a FLUSH now finds nothing that must be written to the disk, and does not wake it.
    run.submit(RequestOp::Flush, 0);
    pass(&mut run, Nanos::from_secs(100));
    assert!(run.engine.is_asleep(MemberId(1)) && run.sleeps.last().unwrap().0 == slept);
    assert_eq!(run.replies, run.tag);
}

#[test]
fn age_and_size_limits_wake_the_disk() {
    let hold = Nanos::from_secs(60);
    let mut run = asleep("lru", params(Some(hold), None));
    run.submit(RequestOp::Write, 1);
    let (written, sleeps) = (run.now, run.sleeps.len());
    pass(&mut run, Nanos::from_secs(59));
    assert_eq!(run.sleeps.len(), sleeps);
    pass(&mut run, Nanos::from_secs(3));
    let woke = run.sleeps[sleeps].0;
    assert!(woke >= written + hold && woke < written + hold + Nanos::from_secs(1));
    assert_eq!(
        (run.engine.copies().1, run.engine.counters().sleep_limits),
        (0, 1)
    );
    assert!(
        run.engine.is_asleep(MemberId(1)),
        "nobody else needs it: it sleeps at once"
    );

    let mut run = asleep(
        "lru",
        params(Some(Nanos::from_secs(1_000_000)), Some(3 * EXTENT)),
    );
    for e in 0..2 {
        run.submit(RequestOp::Write, e);
        pass(&mut run, Nanos::from_secs(5));
    }
    assert_eq!(
        (run.engine.copies().1, run.engine.counters().sleep_limits),
        (2, 0)
    );
    run.submit(RequestOp::Write, 2);
    pass(&mut run, Nanos::from_secs(5));
    assert_eq!(
        (run.engine.copies().1, run.engine.counters().sleep_limits),
        (0, 1)
    );
    assert!(run.engine.is_asleep(MemberId(1)));
}

#[test]
fn proposals_are_held_and_made_again() {
    // Under tiering, new data goes to the fast tier and the clock proposes demotions. Caching policies that write back propose cleans.
    for name in [
        "greendm",
        "cold-dst-dynamic-bgclean",
        "dss-lru",
        "bcache-like",
        "opencas-like",
        "smq",
        "greendm-cache",
    ] {
        let busy = |hold| {
            let mut run = Run::new(name, params(hold, None));
            for e in 0..12 {
                run.submit(RequestOp::Write, e);
                pass(&mut run, Nanos::from_millis(20));
            }
            pass(&mut run, Nanos::from_secs(40));
            let first = run.sleeps.len();
            let mut ticks = 0;
            for round in 0..120u64 {
                run.submit(RequestOp::Write, round % 12);
                run.submit(RequestOp::Read, (round + 5) % 12);
                ticks += pass(&mut run, Nanos::from_secs(10));
            }
            assert_eq!(run.replies, run.tag, "{name}");
            (run.sleeps.len() - first, ticks, run)
        };
        let (without, _, _) = busy(None);
        let (with, ticks, mut run) = busy(Some(Nanos::from_secs(600)));
        // Work is held for at most 600 s, so the disk is woken twice in 1200 s, even under a policy that never cleans.
        assert!(
            with <= without.max(4),
            "{name}: {with} wakes and sleeps, {without} without"
        );
        assert!(
            without < 50 || with * 4 < without,
            "{name}: {with} of {without}"
        );
        // 1200 s with 240 requests and at most one attempt a second.
        assert!(ticks < 6000, "{name}: {ticks} wake-ups of the engine");
        pass(&mut run, Nanos::from_secs(700));
        assert_eq!(
            run.engine.copies().1,
            0,
            "{name}: held no longer than the limit"
        );
    }
}

#[test]
fn a_demotion_is_held_and_done_in_the_batch() {
    let mut run = Run::new("greendm", params(Some(Nanos::from_secs(100)), None));
    // One slot of the fast tier is free. When none is free, the clock demotes until two are.
    for e in 0..15 {
        run.submit(RequestOp::Write, e);
    }
    pass(&mut run, Nanos::from_secs(50));
    assert!(run.engine.is_asleep(MemberId(1)));
    let (done, sleeps) = (run.engine.counters().demotions.done, run.sleeps.len());
    run.submit(RequestOp::Write, 40);
    pass(&mut run, Nanos::from_secs(3));
    let refused = run.refused(Refusal::Asleep);
    assert!(
        refused > 0 && run.engine.counters().demotions.done == done && run.sleeps.len() == sleeps
    );
    pass(&mut run, Nanos::from_secs(20));
    assert!(
        run.refused(Refusal::Asleep) < refused + 60,
        "about a try a second"
    );
    pass(&mut run, Nanos::from_secs(100));
    assert!(run.engine.counters().demotions.done > done, "the limit");
    assert_eq!(run.engine.counters().sleep_limits, 1);
    assert!(run.engine.is_asleep(MemberId(1)));
}

#[test]
fn nothing_is_held_if_the_mode_is_off() {
    let mut run = asleep("dss-lru", params(None, None));
    let mut set = asleep("dss-lru", params(Some(Nanos::from_secs(3600)), None));
    set.engine.set("sleep_hold_s", 0.0).unwrap();
    for r in [&mut run, &mut set] {
        for i in 0..100 {
            r.submit(RequestOp::Write, i % 8);
            pass(r, Nanos::from_millis(500));
        }
        assert_eq!(
            (r.refused(Refusal::Asleep), r.engine.counters().sleep_limits),
            (0, 0)
        );
        assert_eq!(r.replies, r.tag);
    }
}

#[test]
fn closing_loses_nothing_and_does_not_wait() {
    let mut run = asleep("lru", params(Some(Nanos::from_secs(3600)), None));
    run.submit(RequestOp::Write, 3);
    pass(&mut run, Nanos::from_secs(1));
    let mut out = Vec::new();
    run.engine.close(run.now, &mut out);
    run.out = out;
    run.carry_out();
    pass(&mut run, Nanos::from_secs(10));
    assert!(run.engine.is_closed());
    // The copy is still dirty and is recorded as dirty, so the next session finds it.
    assert_eq!(run.engine.copies().1, 1);
}

#[test]
fn a_timer_runs_from_the_last_use_and_not_from_the_round_that_records_it() {
    // First touches leave records, which are written one commit interval (5 s) later, also to the mirror on the disk.
    let mut run = Run::new("lru", params(None, None));
    for e in 0..8 {
        run.submit(RequestOp::Write, e);
        pass(&mut run, Nanos::from_millis(20));
    }
    let used = run.now;
    pass(&mut run, Nanos::from_secs(30));
    assert!(run.engine.is_asleep(MemberId(1)));
    let slept = run.sleeps.last().unwrap().0.since(used);
    assert!(
        slept < Nanos::from_secs(6),
        "a timer of 5 s ran for {} s",
        slept.as_secs_f64()
    );
}

/// The time for which the disk stayed awake after a lull of 8 s ended `times` times, and then nothing came.
fn awake_after_lulls(hold: Option<Nanos>, times: u64) -> (Nanos, usize) {
    // A wake-up takes 40 J: as much as 10 s awake.
    let slow = load::Cost {
        wake_uj: 40_000_000,
        ..load::Cost::SLOW
    };
    let costs = vec![load::Cost::FAST, slow];
    let params = Params {
        costs,
        ..params(hold, None)
    };
    let mut run = Run::new("lru", params);
    for e in 0..times {
        // Each read is of an extent that has no copy, so it needs the disk.
        run.submit(RequestOp::Read, e);
        pass(&mut run, Nanos::from_secs(8));
    }
    run.submit(RequestOp::Read, times);
    let used = run.now;
    pass(&mut run, Nanos::from_secs(60));
    assert!(run.engine.is_asleep(MemberId(1)));
    let stops = run.sleeps.iter().filter(|s| s.1.is_none()).count();
    (run.sleeps.last().unwrap().0.since(used), stops)
}

#[test]
fn a_disk_that_is_always_woken_soon_stays_awake_for_a_while() {
    let hold = Some(Nanos::from_secs(3600));
    let about = |t: Nanos, s: u64| {
        t.since(Nanos::from_secs(s)).0 + Nanos::from_secs(s).since(t).0 < 500_000_000
    };
    let (awake, stops) = awake_after_lulls(hold, 3);
    assert!(
        about(awake, 5) && stops == 4,
        "too few lulls are known: {awake:?}, {stops}"
    );
    let (awake, stops) = awake_after_lulls(hold, 10);
    assert!(
        about(awake, 8) && stops == 5,
        "4 lulls, then the last: {awake:?}, {stops}"
    );
    let (awake, stops) = awake_after_lulls(None, 10);
    assert!(
        about(awake, 5) && stops == 11,
        "only in this mode: {awake:?}, {stops}"
    );
}
