//! The guard of `benefit`: data that is read once is not fetched for long, and data that is read again is.

use isotherm_core::Nanos;
use isotherm_lab::sim::{Memory, Report, Setup, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENT: u64 = 64 << 10;
const MS: u64 = 1_000_000;
/// Extents read once, and then those read over and over.
const ONCE: u64 = 4000;
const AGAIN: u64 = 100;

/// 4 KiB of each of 4000 extents, one every 20 ms, at places that are no stream; then, if so, 30 rounds over the first hundred.
fn once(then_again: bool) -> Memory {
    let place = |i: u64| i * 2741 % ONCE * EXTENT;
    let mut records: Vec<Record> = (0..ONCE)
        .map(|i| Record::new(Nanos(i * 20 * MS), Op::Read, place(i), 4096))
        .collect();
    if then_again {
        let more = (0..30 * AGAIN).map(|i| {
            let time = Nanos((ONCE + i) * 20 * MS);
            Record::new(time, Op::Read, place(i % AGAIN), 4096)
        });
        records.extend(more);
    }
    Memory::new("once", records)
}

fn with(policy: &str, then_again: bool) -> Report {
    let mut s =
        Setup::pair(policy.parse().expect("a preset"), Size::Share(50_000)).expect("sheets");
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    run(&s, &once(then_again)).expect("runs")
}

#[test]
fn what_is_read_once_is_soon_not_fetched() {
    let (guarded, free) = (with("benefit", false), with("benefit,guard=0", false));
    assert!(free.fetches > ONCE - 10, "{}", free.fetches);
    assert!(guarded.fetches < ONCE / 4, "{}", guarded.fetches);
    assert!(guarded.latency_mean_s <= free.latency_mean_s);
}

#[test]
fn what_is_read_again_is_fetched_again() {
    let r = with("benefit", true);
    // Of 30 rounds all but the first two are hits.
    assert!(
        r.fast_hit_ratio * r.accesses as f64 >= 27.0 * AGAIN as f64,
        "{}",
        r.fast_hit_ratio
    );
}

/// A minute of reads and writes of 4 KiB in 400 extents, ten minutes of a write every 20 s, five times over.
fn work_and_lulls() -> Memory {
    let mut records = Vec::new();
    for turn in 0..5u64 {
        let start = turn * 660_000;
        for i in 0..3000u64 {
            let place = (i * 2741 + turn * 37) % 400 * EXTENT;
            let op = if i % 3 == 0 { Op::Write } else { Op::Read };
            records.push(Record::new(Nanos((start + i * 20) * MS), op, place, 4096));
        }
        for i in 1..30u64 {
            let place = (400 + turn * 30 + i) * EXTENT;
            let at = Nanos((start + 60_000 + i * 20_000) * MS);
            records.push(Record::new(at, Op::Write, place, 4096));
        }
    }
    Memory::new("lulls", records)
}

fn for_goal(goal: &str, knobs: &[(&str, f64)]) -> Report {
    let policy = format!("benefit,goal={goal}").parse().expect("a goal");
    let mut s = Setup::pair(policy, Size::Share(500_000)).expect("sheets");
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    s.tiers[1].devices[0].standby_after_s = Some(60.0);
    s.settings = knobs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    run(&s, &work_and_lulls()).expect("runs")
}

#[test]
fn quiet_lets_the_disk_sleep() {
    let fast = for_goal("fast", &[]);
    let quiet = for_goal("quiet", &[("sleep_hold_s", 3600.0)]);
    assert!(
        quiet.energy_j < fast.energy_j,
        "{:?} J, {:?} J",
        quiet.energy_j,
        fast.energy_j
    );
    // A write every 20 s keeps the disk awake unless flash takes it.
    assert!(quiet.spin_downs >= Some(4), "{:?}", quiet.spin_downs);
    assert_eq!(fast.spin_downs, Some(0));
}

#[test]
fn lasting_writes_less_to_flash() {
    // Each extent is read once: without the guard, only the price of wear speaks against a copy.
    let fetches = |goal| with(&format!("benefit,guard=0,goal={goal}"), false).fetches;
    let (fast, cheap, lasting) = (fetches("fast"), fetches("cheap"), fetches("lasting"));
    assert!(fast > ONCE - 10, "{fast}");
    assert!(lasting < ONCE / 10 && cheap <= fast, "{lasting}, {cheap}");
}
