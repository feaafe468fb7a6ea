//! Data that the user wants on flash (`Engine::warm`).
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod rig;

use isotherm_core::engine::{Params, WARM_RANGES_MAX, WarmEnd, WarmError, Warmed};
use isotherm_core::policy::{PRESETS, ParamValue, Uses, build, build_with};
use isotherm_core::*;
use rig::{EXTENT, FAST, Run};

fn warm(run: &mut Run, ranges: &[core::ops::Range<u32>]) {
    run.engine.warm(run.now, ranges.to_vec()).unwrap();
}

/// Lets time pass until the work has ended. Returns its report.
fn finish(run: &mut Run) -> Warmed {
    for _ in 0..10_000 {
        let report = run.engine.warmed().unwrap();
        if report.end.is_some() {
            return report;
        }
        let until = run.now + Nanos::from_millis(10);
        run.run(until);
    }
    panic!("it never ends: {:?}", run.engine.warmed());
}

fn has_copy(run: &Run, e: u32) -> bool {
    run.engine.space().map.copy(ExtentId(e)).is_some()
}

fn ended(report: Warmed) -> (u32, u32, u32, u32, Option<WarmEnd>) {
    let Warmed {
        copied,
        there,
        unreadable,
        full,
        end,
        ..
    } = report;
    (copied, there, unreadable, full, end)
}

/// Lets time pass until there is an operation that `which` names.
fn wait_for(run: &mut Run, which: impl Fn(&DeviceOp) -> bool) -> (Nanos, u32) {
    for _ in 0..100_000 {
        if let Some((key, _)) = run.due.iter().find(|(_, op)| which(op)) {
            return *key;
        }
        let until = run.now + Nanos(10_000);
        run.run(until);
    }
    panic!("there is no such operation");
}

/// Lets the next operation that `which` names fail.
fn fail(run: &mut Run, which: impl Fn(&DeviceOp) -> bool) {
    let key = wait_for(run, which);
    let op = run.due.remove(&key).unwrap();
    run.now = run.now.max(key.0);
    let failed = Err(IoError::Io);
    run.engine.complete(run.now, op.id, failed, &mut run.out);
    run.carry_out();
}

fn mode(run: &mut Run, name: &str) {
    let with = [("write-mode", ParamValue::Name(name))];
    let policy = build_with("lru", with.into_iter()).unwrap();
    run.engine.set_policy(run.now, policy).unwrap();
}

fn is_move(op: &DeviceOp, kind: OpKind, member: u8) -> bool {
    matches!(op.buf, BufRef::Move { .. }) && op.kind == kind && op.member == MemberId(member)
}

#[test]
fn every_caching_policy_takes_what_the_user_wants_on_flash() {
    for preset in PRESETS {
        let policy = build(preset.name, core::iter::empty()).unwrap();
        let mut run = Run::new(preset.name, Params::default());
        let asked = run.engine.warm(run.now, vec![3..5, 8..12]);
        if policy.uses() != Uses::Copies {
            assert_eq!(asked, Err(WarmError::NoCopies), "{}", preset.name);
            continue;
        }
        asked.unwrap();
        let report = finish(&mut run);
        let expected = (6, 0, 0, 0, Some(WarmEnd::Complete));
        assert_eq!(ended(report), expected, "{}", preset.name);
        assert!([3, 4, 8, 9, 10, 11].iter().all(|&e| has_copy(&run, e)));
        // The policy knows them: it can use and replace them.
        run.busy(300, Nanos::from_millis(1), 30);
        let until = run.now + Nanos::from_secs(1);
        run.run(until);
        assert_eq!(run.replies, run.tag, "{}", preset.name);
        run.engine.contracts().unwrap();
    }
}

#[test]
fn it_takes_free_slots_only_and_says_what_did_not_fit() {
    let mut run = Run::new("benefit", Params::default());
    for e in [80, 81] {
        run.submit(RequestOp::Read, e);
    }
    run.run(Nanos::from_secs(1));
    assert!(has_copy(&run, 80) && has_copy(&run, 81));
    warm(&mut run, &[0..40, 80..82]);
    let report = finish(&mut run);
    assert_eq!(ended(report), (14, 2, 0, 26, Some(WarmEnd::Complete)));
    assert_eq!(report.wanted, 42);
    // In the order of addresses, and nothing was pushed out.
    assert!((0..14).all(|e| has_copy(&run, e)) && has_copy(&run, 80));
    assert_eq!(run.engine.counters().evictions.done, 0);
    assert_eq!(run.run(Nanos::from_secs(60)), 0, "nothing is left to do");
}

#[test]
fn it_waits_for_idle_moments_of_the_disk() {
    let mut run = Run::new("benefit", Params::default());
    warm(&mut run, &[0..8]);
    for i in 0..200 {
        run.submit(RequestOp::Read, 20 + i % 70);
        let until = run.now + Nanos::from_millis(10);
        run.run(until);
    }
    assert_eq!(run.engine.warmed().unwrap().copied, 0);
    assert_eq!(finish(&mut run).copied + finish(&mut run).full, 8);
}

#[test]
fn copies_that_the_user_asked_for_are_neither_thrown_out_at_once_nor_kept_for_ever() {
    let mut run = Run::new("benefit", Params::default());
    warm(&mut run, &[0..FAST]);
    assert_eq!(finish(&mut run).copied, FAST);
    // A copy costs something, and data that was used once is worth no more than they are.
    run.submit(RequestOp::Read, 40);
    let until = run.now + Nanos::from_millis(20);
    run.run(until);
    assert!((0..FAST).all(|e| has_copy(&run, e)));
    for i in 0..60 {
        run.submit(RequestOp::Read, 40 + i % 10);
        let until = run.now + Nanos::from_millis(20);
        run.run(until);
    }
    let better = (40..50).filter(|&e| has_copy(&run, e)).count();
    assert!(better >= 8, "{better} of what is used are there");
}

#[test]
fn what_the_disk_cannot_read_is_left_out() {
    let mut run = Run::new("lru", Params::default());
    warm(&mut run, &[2..10]);
    // Joined reads are repeated one by one, so that only one extent is left out.
    fail(&mut run, |op| is_move(op, OpKind::Read, 1));
    if run.due.values().any(|op| is_move(op, OpKind::Read, 1)) {
        fail(&mut run, |op| is_move(op, OpKind::Read, 1));
    }
    let (copied, there, unreadable, full, end) = ended(finish(&mut run));
    assert_eq!((copied + unreadable, there, full), (8, 0, 0));
    assert!((1..=2).contains(&unreadable));
    assert_eq!(end, Some(WarmEnd::Complete));
}

#[test]
fn it_ends_when_flash_fails_a_write() {
    let mut run = Run::new("lru", Params::default());
    warm(&mut run, &[2..10]);
    // A joined write is repeated in parts, so the first part fails, too.
    for _ in 0..2 {
        fail(&mut run, |op| is_move(op, OpKind::Write, 0));
    }
    assert_eq!(finish(&mut run).end, Some(WarmEnd::Flash));
    let until = run.now + Nanos::from_secs(1);
    run.run(until);
    // It may be asked for again.
    warm(&mut run, &[2..10]);
    assert_eq!(finish(&mut run).end, Some(WarmEnd::Complete));
    assert!((2..10).all(|e| has_copy(&run, e)));
}

#[test]
fn a_write_waits_for_the_copy_and_a_discard_makes_another_one_necessary() {
    let mut run = Run::new("lru", Params::default());
    warm(&mut run, &[5..7]);
    let read = |op: &DeviceOp| is_move(op, OpKind::Read, 1);
    wait_for(&mut run, read);
    run.submit(RequestOp::Write, 5);
    run.submit(RequestOp::Discard, 6);
    let report = finish(&mut run);
    assert_eq!(report.end, Some(WarmEnd::Complete));
    assert_eq!(report.copied + report.there, 2);
    assert_eq!(run.engine.counters().fetches.stale, 1);
    let until = run.now + Nanos::from_secs(1);
    run.run(until);
    assert!(run.engine.space().map.is_dirty(ExtentId(5)));
    assert_eq!(run.replies, run.tag);
}

#[test]
fn a_copy_that_lacks_blocks_is_completed_even_if_flash_is_full() {
    let mut run = Run::new("lru", Params::default());
    // A write of a part of an extent gives it a copy of that part.
    for e in 0..FAST {
        let req = Request {
            tag: Tag(1000 + e),
            op: RequestOp::Write,
            offset: u64::from(e) * EXTENT,
            len: 512,
            fua: false,
            class: 0,
        };
        run.engine.submit(run.now, req, &mut run.out);
        run.carry_out();
        let until = run.now + Nanos::from_millis(10);
        run.run(until);
    }
    warm(&mut run, &[0..FAST + 4]);
    let report = finish(&mut run);
    let expected = (FAST, 0, 0, 4, Some(WarmEnd::Complete));
    assert_eq!(ended(report), expected);
    for e in 0..FAST {
        let explained = run.engine.explain(run.now, ExtentId(e));
        assert_eq!(explained.copied_blocks, 8);
    }
}

#[test]
fn it_is_refused_in_words_where_it_makes_no_sense() {
    let mut run = Run::new("lru", Params::default());
    let mut ask = |ranges: Vec<_>| run.engine.warm(run.now, ranges);
    let backwards = core::ops::Range { start: 4, end: 3 };
    for wrong in [
        vec![backwards],
        vec![0..4, 3..5],
        vec![5..6, 0..1],
        vec![0..97],
        (0..=WARM_RANGES_MAX as u32).map(|i| i..i + 1).collect(),
    ] {
        assert_eq!(ask(wrong), Err(WarmError::Ranges));
    }
    // Nothing to end.
    assert_eq!(ask(vec![]), Ok(()));
    assert_eq!(run.engine.warmed(), None);
    warm(&mut run, &[0..4]);
    assert_eq!(run.engine.warm(run.now, vec![0..4]), Err(WarmError::AtWork));
    assert_eq!(run.engine.warm(run.now, vec![]), Ok(()));
    assert_eq!(finish(&mut run).end, Some(WarmEnd::Stopped));
    mode(&mut run, "pass-through");
    let refused = run.engine.warm(run.now, vec![0..4]);
    assert_eq!(refused, Err(WarmError::PassThrough));
    run.engine.close(run.now, &mut run.out);
    let refused = run.engine.warm(run.now, vec![0..4]);
    assert_eq!(refused, Err(WarmError::Closed));
}

#[test]
fn another_policy_ends_it_and_so_does_a_close() {
    let mut run = Run::new("lru", Params::default());
    warm(&mut run, &[0..12]);
    run.run(Nanos(100));
    let policy = build("benefit", core::iter::empty()).unwrap();
    run.engine.set_policy(run.now, policy).unwrap();
    assert_eq!(finish(&mut run).end, Some(WarmEnd::Policy));
    warm(&mut run, &[0..12]);
    run.engine.close(run.now, &mut run.out);
    run.carry_out();
    assert_eq!(finish(&mut run).end, Some(WarmEnd::Closed));
    run.run(Nanos::from_secs(100));
    assert!(run.engine.is_closed());
}

#[test]
fn a_sleeping_disk_is_left_asleep_until_its_held_work_is_done() {
    let params = Params {
        standby_after: vec![None, Some(Nanos::from_secs(10))],
        sleep_hold: Some(Nanos::from_secs(60)),
        ..Params::default()
    };
    let mut run = Run::new("lru", params);
    run.run(Nanos::from_secs(30));
    let sleeps = |run: &Run| run.sleeps.last().is_some_and(|s| s.1.is_none());
    assert!(sleeps(&run));
    warm(&mut run, &[0..FAST]);
    run.run(Nanos::from_secs(60));
    assert!(sleeps(&run) && run.engine.warmed().unwrap().copied == 0);
    run.run(Nanos::from_secs(200));
    assert_eq!(run.engine.warmed().unwrap().copied, FAST);
    // It woke up once for all of it, and sleeps again.
    let wakes = run.sleeps.iter().filter(|s| s.1.is_some()).count();
    assert!(sleeps(&run) && wakes == 1, "{:?}", run.sleeps);
}
