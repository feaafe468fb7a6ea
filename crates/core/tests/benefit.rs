//! `benefit` on devices with realistic durations: the times at which it cleans, and the work that it leaves to the slow device.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::Params;
use isotherm_core::*;
use rig::Run;

fn dirty() -> Run {
    let mut run = Run::new("benefit", Params::default());
    for e in [3, 1, 0, 2] {
        run.submit(RequestOp::Write, e);
    }
    run.run(Nanos::from_secs(1));
    let c = run.engine.counters();
    assert_eq!((c.fetches.done, c.writebacks.done), (4, 0));
    run
}

#[test]
fn settled_data_goes_home_when_the_slow_device_is_quiet() {
    let mut run = dirty();
    run.run(Nanos::from_millis(4_900));
    assert_eq!(run.engine.counters().writebacks.done, 0, "not settled");
    run.run(Nanos::from_secs(8));
    assert_eq!(run.engine.counters().writebacks.done, 4);
    // No work is left, so the engine does not wake up.
    assert_eq!(run.run(Nanos::from_secs(60)), 0);
}

#[test]
fn it_does_not_go_home_while_requests_need_the_slow_device() {
    let mut run = dirty();
    for i in 0..900u64 {
        run.submit(RequestOp::Read, 8 + i % 80);
        let until = run.now + Nanos::from_millis(10);
        run.run(until);
    }
    let c = run.engine.counters();
    assert!(c.tier_hits[1] > 500, "{:?} hits", c.tier_hits);
    assert_eq!(c.writebacks.done, 0);
    let until = run.now + Nanos::from_secs(2);
    run.run(until);
    assert_eq!(run.engine.counters().writebacks.done, 4);
}

#[test]
fn a_fast_tier_full_of_dirt_keeps_no_request_waiting() {
    let mut run = Run::new("benefit", Params::default());
    for e in 0..40 {
        run.submit(RequestOp::Write, e);
    }
    run.run(Nanos::from_millis(30));
    let c = run.engine.counters();
    assert_eq!(run.replies, 40);
    // There are 16 slots: the other extents went to the slow device at once.
    assert_eq!((c.fetches.done, c.evictions.done), (16, 0));
}
