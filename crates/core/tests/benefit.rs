//! `benefit` on devices with realistic durations: the times at which it cleans, and the work that it leaves to the slow device.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::Params;
use isotherm_core::load::Cost;
use isotherm_core::policy::{
    Access, Action, Benefit, MoveRules, Outcome, ParamError, Place, Policy, Uses, View,
};
use isotherm_core::*;
use rig::Run;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Three of 16 slots are dirty: less than a fifth, so they must settle.
fn dirty() -> Run {
    let mut run = Run::new("benefit", Params::default());
    for e in [3, 1, 0] {
        run.submit(RequestOp::Write, e);
    }
    run.run(Nanos::from_millis(800));
    let c = run.engine.counters();
    assert_eq!((c.fetches.done, c.writebacks.done), (3, 0));
    run
}

#[test]
fn settled_data_goes_home_when_the_slow_device_is_quiet() {
    let mut run = dirty();
    run.run(Nanos::from_millis(980));
    assert_eq!(run.engine.counters().writebacks.done, 0, "not settled");
    run.run(Nanos::from_secs(31));
    assert_eq!(run.engine.counters().writebacks.done, 3);
    // No work is left, so the engine does not wake up.
    assert_eq!(run.run(Nanos::from_secs(60)), 0);
}

#[test]
fn data_that_has_not_settled_goes_home_if_more_than_a_fifth_of_flash_is_dirty() {
    let mut run = dirty();
    run.submit(RequestOp::Write, 2);
    run.run(Nanos::from_millis(980));
    assert_eq!(run.engine.counters().writebacks.done, 4);
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
    assert_eq!(run.engine.counters().writebacks.done, 3);
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
    // There are 16 slots, so the writes of the other extents went to the slow device at once.
    assert_eq!((c.fetches.done, c.evictions.done), (16, 0));
}

/// Whether the slow member has writes of moves in progress, and whether it has a flush in progress.
fn at_work(run: &Run) -> (bool, bool) {
    let slow = run.due.values().filter(|o| o.member == MemberId(1));
    slow.fold((false, false), |(writes, flushes), o| {
        let moves = o.kind == OpKind::Write && matches!(o.buf, BufRef::Move { .. });
        (writes | moves, flushes || o.kind == OpKind::Flush)
    })
}

#[test]
fn a_round_of_cleans_begins_while_the_slow_device_is_still_quiet() {
    let mut run = dirty();
    run.submit(RequestOp::Write, 2);
    // The engine measures how long a round takes. After the next cleans it could wait for twice as long.
    run.run(Nanos::from_secs(8));
    for e in [3, 1, 0, 2] {
        run.submit(RequestOp::Write, e);
    }
    let (mut copied, mut flushed) = (Nanos(0), None);
    while run.engine.counters().writebacks.done < 8 {
        let until = run.now + Nanos(50_000);
        assert!(until < Nanos::from_secs(20), "they are not cleaned");
        run.run(until);
        match at_work(&run) {
            (true, _) => (copied, flushed) = (run.now, None),
            (_, true) if copied.0 > 0 => flushed = flushed.or(Some(run.now)),
            _ => {}
        }
    }
    let waited = flushed.map(|t| t.since(copied));
    assert!(
        waited.is_some_and(|w| w <= Nanos(200_000)),
        "the flush came after {waited:?}"
    );
}

/// Fetches each extent that is read, and stores the fast tier's response time of writes at the end of a fetch.
#[derive(Debug)]
struct Fetches(Arc<AtomicU64>);

impl Policy for Fetches {
    fn name(&self) -> &'static str {
        "fetches"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn attach(&mut self, _view: &mut View<'_>) {}
    fn first_touch(&mut self, view: &mut View<'_>, _extent: ExtentId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_access(&mut self, _view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let (extent, to) = (access.extent, TierId(0));
        if !access.write && access.copy.is_none() {
            wanted.push(Action::Fetch { extent, to });
        }
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        _how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
        if matches!(action, Action::Fetch { .. }) {
            let seen = view.latencies(TierId(0)).write.0;
            self.0.store(seen, Ordering::Relaxed);
        }
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::new()))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, _view: &View<'_>, _extent: ExtentId) -> String {
        String::new()
    }
}

#[test]
fn no_request_waits_for_the_copy_that_a_fetch_writes() {
    let seen = Arc::new(AtomicU64::new(0));
    let mut run = Run::new("lru", Params::default());
    let policy = Box::new(Fetches(Arc::clone(&seen)));
    run.engine.set_policy(run.now, policy).unwrap();
    for e in 20..30 {
        run.submit(RequestOp::Write, e);
    }
    run.run(Nanos::from_secs(1));
    for e in 20..30 {
        run.submit(RequestOp::Read, e);
    }
    run.run(Nanos::from_secs(2));
    assert_eq!(run.engine.counters().fetches.done, 10);
    // The response time has its initial value, because no request wrote to the fast tier.
    let unknown = Cost::FAST.write.0;
    assert_eq!(seen.load(Ordering::Relaxed), unknown);
}

/// Cleans four copies while pairs of reads of cold extents keep the slow member busy for 20 ms: the second read of a pair waits for the
/// fetch of the first. Returns whether the slow member got a flush in this time, and the number of copies that are clean a second later.
fn flush_ahead_of_reads(without: &str) -> (bool, u64) {
    let mut run = Run::new("lru", Params::default());
    let mut policy = Box::new(Benefit::default());
    policy.set_name("without", without).unwrap();
    run.engine.set_policy(run.now, policy).unwrap();
    // The first round lets the engine measure how long a round takes.
    for seconds in [8, 16] {
        for e in [3, 1, 0, 2] {
            run.submit(RequestOp::Write, e);
        }
        while seconds == 16 && !at_work(&run).0 {
            let until = run.now + Nanos(50_000);
            assert!(until < Nanos::from_secs(20), "they are not cleaned");
            run.run(until);
        }
        if seconds == 8 {
            run.run(Nanos::from_secs(seconds));
        }
    }
    let (end, mut cold, mut flushed) = (run.now + Nanos::from_millis(20), 8, false);
    while run.now < end {
        while run.tag - run.replies < 6 {
            run.submit(RequestOp::Read, cold);
            run.submit(RequestOp::Read, cold);
            cold = 8 + (cold - 7) % 80;
        }
        let until = run.now + Nanos(10_000);
        run.run(until);
        flushed |= at_work(&run).1;
    }
    let until = run.now + Nanos::from_secs(1);
    run.run(until);
    (flushed, run.engine.counters().writebacks.done)
}

#[test]
fn reads_that_wait_for_a_fetch_do_not_hurry_the_flush_of_cleans() {
    assert_eq!(flush_ahead_of_reads("none"), (false, 8));
    assert_eq!(flush_ahead_of_reads("yielding"), (true, 8));
}

/// Extents whose reads are commands for [`OnCommand`].
const CLEAN_ONE: u64 = 89;
const CLEAN: u64 = 90;
const EVICT: u64 = 91;

/// Extents from this one on get no copies.
const COLD: u64 = 40;
/// The extent whose copy is cleaned alone.
const ONE: u64 = 20;

/// Copies written extents, and cleans or evicts the copies of the first `copies` extents when it is told to. Its rounds keep away from
/// requests.
#[derive(Debug)]
struct OnCommand {
    copies: u32,
}

impl Policy for OnCommand {
    fn name(&self) -> &'static str {
        "on-command"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn attach(&mut self, _view: &mut View<'_>) {}
    fn first_touch(&mut self, view: &mut View<'_>, _extent: ExtentId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_access(&mut self, _view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let all = (0..self.copies).map(ExtentId);
        let (extent, to) = (access.extent, TierId(0));
        match (u64::from(extent.0), access.write) {
            (CLEAN_ONE, false) => wanted.push(Action::Clean {
                extent: ExtentId(ONE as u32),
            }),
            (CLEAN, false) => wanted.extend(all.map(|extent| Action::Clean { extent })),
            (EVICT, false) => wanted.extend(all.map(|extent| Action::Evict { extent })),
            (..COLD, true) => wanted.push(Action::Allocate { extent, to }),
            _ => {}
        }
    }
    fn move_rules(&self) -> MoveRules {
        MoveRules {
            rounds_yield: true,
            ..MoveRules::default()
        }
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::new()))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, _view: &View<'_>, _extent: ExtentId) -> String {
        String::new()
    }
}

/// Keeps the slow member busy with three reads at a time until `end`. Returns whether the mirror was written meanwhile.
fn busy_until(run: &mut Run, end: Nanos) -> bool {
    let mut written = false;
    while run.now < end {
        while run.tag - run.replies < 3 {
            run.submit(RequestOp::Read, COLD + u64::from(run.tag) % 40);
        }
        written |= idle_until(run, (run.now + Nanos(20_000)).min(end));
    }
    written
}

/// Lets time pass until `end` without requests, at most 20 µs if the answer matters. Returns whether the mirror is being written at the end.
fn idle_until(run: &mut Run, end: Nanos) -> bool {
    run.run(end);
    let mirror = rig::area(geometry::Kind::Cache, (rig::FAST, rig::EXTENTS), 12).ring_at(1);
    let mut meta = run.due.values().filter(|o| matches!(o.buf, BufRef::Meta));
    meta.any(|o| o.member == MemberId(0) && o.offset >= mirror)
}

/// What the slow member does while copies are cleaned, before some of them are evicted.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Idle,
    /// Reads keep it busy, so the round finds requests that wait.
    Busy,
    /// The same, and then one more copy is cleaned in an idle moment.
    BusyThenIdle,
}

/// Whether the mirror was written while reads kept the slow member busy for ten seconds, after this number of copies was
/// cleaned and evicted; and whether it was written in the second after that.
fn mirrored_under_load(copies: u32, before: Before) -> (bool, bool) {
    let mut run = Run::new("lru", Params::default());
    let policy = Box::new(OnCommand { copies });
    run.engine.set_policy(run.now, policy).unwrap();
    // After this no read changes the map.
    for e in (0..u64::from(copies)).chain([ONE]).chain(COLD..=EVICT) {
        run.submit(RequestOp::Write, e);
    }
    run.run(Nanos::from_secs(100));
    // This round brings the mirror up to date; the next one is too soon after it, so the mirror lags.
    run.submit(RequestOp::Read, CLEAN_ONE);
    run.run(Nanos::from_millis(100_200));
    run.submit(RequestOp::Write, ONE);
    run.submit(RequestOp::Read, CLEAN);
    match before {
        Before::Idle => run.run(Nanos::from_millis(100_600)),
        _ => u32::from(busy_until(&mut run, Nanos::from_millis(100_800))),
    };
    assert_eq!(run.engine.counters().writebacks.done, u64::from(copies) + 1);
    if before == Before::BusyThenIdle {
        run.submit(RequestOp::Read, CLEAN_ONE);
        run.run(Nanos::from_millis(101_000));
        assert_eq!(run.engine.counters().writebacks.done, u64::from(copies) + 2);
    }
    run.submit(RequestOp::Read, EVICT);
    let loaded = busy_until(&mut run, Nanos::from_secs(110));
    let mut after = false;
    while run.now < Nanos::from_secs(111) {
        let until = run.now + Nanos(20_000);
        after |= idle_until(&mut run, until);
    }
    assert_eq!(run.engine.counters().evictions.done, u64::from(copies));
    (loaded, after)
}

#[test]
fn slots_that_wait_hurry_the_mirror_only_if_many_wait() {
    // The fast tier has 16 slots.
    assert_eq!(mirrored_under_load(3, Before::Idle), (false, true));
    assert!(mirrored_under_load(4, Before::Idle).0);
}

#[test]
fn rounds_wait_for_no_idle_moment_after_one_that_found_none() {
    assert!(mirrored_under_load(3, Before::Busy).0);
    assert_eq!(mirrored_under_load(3, Before::BusyThenIdle), (false, true));
}
