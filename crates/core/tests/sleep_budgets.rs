//! Budgets of sleep-aware mode: how often a disk is started, and how many requests wait for wake-ups.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::{KeptAwake, Params};
use isotherm_core::*;
use rig::{EXTENTS, Run};

const DISK: MemberId = MemberId(1);
const DAY: u64 = 86_400;
const S: fn(u64) -> Nanos = Nanos::from_secs;

fn params(interval: Option<Nanos>, share: Option<u32>) -> Params {
    Params {
        standby_after: vec![None, Some(S(5))],
        sleep_hold: Some(S(3600)),
        start_intervals: vec![None, interval],
        sleep_wait_share: share,
        ..Params::default()
    }
}

fn pass(run: &mut Run, t: Nanos) -> u32 {
    let until = run.now + t;
    run.run(until)
}

/// The times at which the disk was sent to sleep.
fn stops(run: &Run) -> Vec<Nanos> {
    let stops = run.sleeps.iter().filter(|s| s.1.is_none());
    stops.map(|s| s.0).collect()
}

/// A read of an extent without a copy, which needs the disk.
fn use_disk(run: &mut Run, nth: u64) {
    run.submit(RequestOp::Read, nth % u64::from(EXTENTS));
    pass(run, S(1));
}

#[test]
fn a_disk_without_starts_left_stays_awake_until_one_is_there() {
    let mut run = Run::new("lru", params(Some(S(1000)), None));
    use_disk(&mut run, 0);
    pass(&mut run, S(20));
    assert_eq!(stops(&run).len(), 1, "the first start is free");
    use_disk(&mut run, 1);
    let used = run.now;
    let ticks = pass(&mut run, S(100));
    assert!(!run.engine.is_asleep(DISK));
    assert_eq!(
        run.engine.kept_awake(DISK, run.now),
        Some(KeptAwake::Starts)
    );
    assert_eq!(run.engine.kept_awake(DISK, used), None, "its timer runs");
    let budget = run.engine.start_budget(DISK, run.now).unwrap();
    assert!((budget.left() - 0.0).abs() < 1e-9 && (budget.per_day() - 86.4).abs() < 1e-9);
    assert!(ticks < 50, "{ticks} calls of the engine while it waits");
    // The free start is repaid after 1000 s; after 2000 s there is one more. Nothing but the time causes the sleep then.
    let ticks = pass(&mut run, S(2000));
    assert_eq!(stops(&run).last(), Some(&S(2000)));
    assert!(run.engine.is_asleep(DISK) && ticks < 50, "{ticks}");
    assert_eq!(run.engine.kept_awake(DISK, run.now), None);
    assert_eq!(run.engine.counters().sleep_postponed, 1);
}

#[test]
fn the_knob_replaces_the_sheet_and_both_need_the_mode() {
    let busy = |run: &mut Run, n: u64| {
        let before = stops(run).len();
        for i in 0..n {
            use_disk(run, i);
            pass(run, S(29));
        }
        stops(run).len() - before
    };
    // 86 400 starts a day: as many as there are lulls, although the sheet allows only one in 1000 s.
    let mut run = Run::new("lru", params(Some(S(1000)), None));
    run.engine.set("sleep_starts_per_day", DAY as f64).unwrap();
    assert_eq!(busy(&mut run, 20), 20);
    // One in 300 s. The budget begins anew: a start at once, which is repaid, then one after 600 s and one after 900 s.
    run.engine
        .set("sleep_starts_per_day", DAY as f64 / 300.0)
        .unwrap();
    assert_eq!(busy(&mut run, 40), 3);
    let mut knobs = run.engine.knobs().into_iter();
    let per_day = knobs.find(|k| k.0 == "sleep_starts_per_day");
    assert_eq!(per_day, Some(("sleep_starts_per_day", 288.0)));
    // A knob that was not touched does not begin it anew.
    run.engine.set("sleep_hold_s", 1800.0).unwrap();
    assert_eq!(busy(&mut run, 10), 1);
    // By the sheet again.
    run.engine.set("sleep_starts_per_day", 0.0).unwrap();
    assert_eq!(busy(&mut run, 60), 1);
    // Without the mode the timer alone decides, as it does without a budget.
    run.engine.set("sleep_hold_s", 0.0).unwrap();
    assert_eq!(busy(&mut run, 20), 20);
    assert_eq!(run.engine.start_budget(DISK, run.now), None);
    let mut free = Run::new("lru", params(None, None));
    assert_eq!(busy(&mut free, 20), 20);
    assert_eq!(free.engine.counters().sleep_postponed, 0);
}

#[test]
fn no_load_gets_more_starts_than_the_budget() {
    for seed in 0..40 {
        let mut random = random::SplitMix64::new(seed);
        let policy = ["lru", "smq", "benefit", "linear", "greendm"][(seed % 5) as usize];
        let interval = S(20 + random.below(2000));
        let mut params = params(Some(interval), None);
        params.sleep_hold = Some(S(1 + random.below(200)));
        let mut run = Run::new(policy, params);
        for _ in 0..200 {
            let ops = [RequestOp::Read, RequestOp::Write, RequestOp::Flush];
            run.submit(ops[random.below(3) as usize], random.below(96));
            pass(&mut run, Nanos::from_millis(random.below(60_000)));
        }
        let stops = stops(&run);
        assert!(!stops.is_empty(), "{policy}, seed {seed}");
        for (i, from) in stops.iter().enumerate() {
            assert!((i as u64) < (from.0 / interval.0).max(1), "seed {seed}");
            for (n, to) in stops[i..].iter().enumerate() {
                let most = (to.since(*from) + S(DAY)).0 / interval.0;
                assert!((n as u64) < most, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_disk_that_refuses_to_sleep_is_not_asked_all_the_time() {
    let mut run = Run::new("lru", params(Some(S(1000)), None));
    run.restless = true;
    use_disk(&mut run, 0);
    let ticks = pass(&mut run, S(10_000));
    // Each attempt takes a start from the budget.
    assert_eq!(stops(&run).len(), 10);
    assert!(ticks < 100, "{ticks}");
    assert!(!run.engine.is_asleep(DISK));
}

/// The number of requests that took longer than half of a wake-up.
fn waited(run: &Run) -> u64 {
    let slow = run.latencies.iter().filter(|t| t.0 * 2 > run.wake.0);
    slow.count() as u64
}

#[test]
fn the_share_of_requests_that_wait_for_wake_ups_is_capped() {
    for seed in 0..30 {
        let mut random = random::SplitMix64::new(seed);
        let share = [1000, 10_000, 50_000, 200_000][(seed % 4) as usize];
        let policy = ["lru", "smq", "benefit"][(seed % 3) as usize];
        let mut run = Run::new(policy, params(None, Some(share)));
        run.wake = S(11);
        let (mut most, mut all) = (0, 0);
        for _ in 0..300 {
            // A burst of up to 8 requests comes together, before the disk is ready.
            let (before, burst) = (waited(&run), 1 + random.below(8));
            let hot = random.below(4) > 0;
            for _ in 0..burst {
                let extent = random.below(if hot { 6 } else { 96 });
                let ops = [RequestOp::Read, RequestOp::Write, RequestOp::Flush];
                run.submit(ops[random.below(3) as usize], extent);
            }
            all += burst;
            pass(&mut run, S(12 + random.below(30)));
            most = most.max(waited(&run) - before);
            let bound = all * u64::from(share) / 1_000_000 + most;
            let waits = waited(&run);
            assert!(
                waits <= bound,
                "seed {seed}, {policy}: {waits} of {all}, share {share}"
            );
        }
        assert!(run.engine.counters().wake_waits >= waited(&run));
        assert_eq!(run.replies, run.tag);
    }
}

#[test]
fn a_disk_stays_awake_while_too_many_requests_waited_for_it() {
    let mut run = Run::new("lru", params(None, Some(100_000)));
    run.wake = S(11);
    let hits = |run: &mut Run, n: u64| {
        for _ in 0..n {
            run.submit(RequestOp::Read, 0);
            pass(run, S(1));
        }
    };
    hits(&mut run, 1);
    assert_eq!(run.engine.kept_awake(DISK, run.now), None);
    hits(&mut run, 8);
    assert_eq!(run.engine.kept_awake(DISK, run.now), Some(KeptAwake::Waits));
    pass(&mut run, S(1000));
    assert!(!run.engine.is_asleep(DISK), "nothing is requested");
    hits(&mut run, 1);
    assert!(run.engine.is_asleep(DISK), "one in ten may wait");
    // Three wait: the debt is repaid by 17 others, and three waits are saved up by 30 more, because three may wait again.
    (1..4).for_each(|e| run.submit(RequestOp::Read, e));
    pass(&mut run, S(20));
    assert_eq!((waited(&run), run.engine.counters().wake_waits), (3, 3));
    hits(&mut run, 45);
    assert!(!run.engine.is_asleep(DISK));
    assert_eq!(run.engine.kept_awake(DISK, run.now), Some(KeptAwake::Waits));
    hits(&mut run, 5);
    assert!(run.engine.is_asleep(DISK));
    assert_eq!(run.engine.counters().sleep_postponed, 2);
    // Without the cap it sleeps by its timer.
    run.engine.set("sleep_wait_share", 0.0).unwrap();
    run.submit(RequestOp::Read, 9);
    pass(&mut run, S(30));
    assert!(run.engine.is_asleep(DISK));
}

#[test]
fn what_the_cache_of_a_disk_answers_is_no_wait() {
    let slow = load::Cost {
        wake: S(11),
        ..load::Cost::SLOW
    };
    let params = Params {
        costs: vec![load::Cost::FAST, slow],
        standby_after: vec![None, Some(S(30))],
        ..params(None, None)
    };
    let mut run = Run::new("lru", params);
    (run.wake, run.cached) = (S(11), true);
    use_disk(&mut run, 0);
    pass(&mut run, S(60));
    assert!(run.engine.is_asleep(DISK));
    // Its cache answers at once. A request that comes just before the disk is ready waits less than half of the time of a wake-up, and when
    // the next one comes, the disk is ready.
    use_disk(&mut run, 1);
    pass(&mut run, S(8));
    use_disk(&mut run, 5);
    pass(&mut run, S(3));
    use_disk(&mut run, 2);
    assert_eq!((waited(&run), run.engine.counters().wake_waits), (0, 0));
    pass(&mut run, S(60));
    // Now a request comes while it wakes up.
    assert!(run.engine.is_asleep(DISK));
    use_disk(&mut run, 3);
    use_disk(&mut run, 4);
    pass(&mut run, S(30));
    assert_eq!((waited(&run), run.engine.counters().wake_waits), (1, 1));
}
