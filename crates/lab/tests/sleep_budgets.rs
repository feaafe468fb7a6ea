//! Budgets of sleep-aware mode with device models: starts and waits stay below their bounds on random traces.

use isotherm_core::Nanos;
use isotherm_lab::sim::{Device, Memory, Reply, Report, Run, Setup, TimeMode};
use isotherm_lab::size::Size;
use isotherm_models::Sleep;
use isotherm_traces::{Op, Record};
use proptest::prelude::*;

const EXTENT: u64 = 64 << 10;
/// `wd5000aaks`: 50 000 starts in five years of 365.25 days.
const INTERVAL_S: f64 = 5.0 * 365.25 * 86_400.0 / 50_000.0;

/// Requests in bursts: the seconds before each burst (more often minutes than an hour), its length, and the extents that it takes from.
fn bursts() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let gap = prop_oneof![3 => 1u64..30, 3 => 60u64..400, 1 => 400u64..4000];
    let extents = prop_oneof![2 => Just(6u64), 1 => Just(400u64)];
    prop::collection::vec((gap, 1u64..20, extents), 5..60)
}

fn trace(bursts: &[(u64, u64, u64)], seed: u64) -> Memory {
    let (mut records, mut now) = (Vec::new(), 0);
    let mut random = isotherm_core::random::SplitMix64::new(seed);
    for &(gap, n, extents) in bursts {
        now += gap * 1000;
        for i in 0..n {
            let op = if random.below(3) == 0 {
                Op::Write
            } else {
                Op::Read
            };
            let at = random.below(extents) * EXTENT;
            records.push(Record::new(Nanos::from_millis(now + i * 200), op, at, 8192));
        }
        now += n * 200;
    }
    Memory::new("bursts", records)
}

fn played(trace: &Memory, disk: &str, settings: &[(&str, f64)]) -> Report {
    let quiet = "benefit,goal=quiet".parse().expect("a policy");
    let mut s = Setup::pair(quiet, Size::Share(200_000)).expect("sheets");
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    s.tiers[1].devices[0] = Device::preset(disk).expect("a preset");
    s.tiers[1].devices[0].standby_after_s = Some(20.0);
    s.settings = (settings.iter())
        .map(|(k, v)| ((*k).to_owned(), *v))
        .collect();
    Run::new(&s, trace).phases(&[0]).full().expect("runs")
}

fn sleep_of(disk: &str) -> Sleep {
    Sleep::of_sheet(&isotherm_models::sheet(disk).expect("a preset")).expect("it sleeps")
}

/// The number of requests that took at least half of the time that the disk needs to wake up, and the most that began within the time that
/// it needs to stop and to wake up.
fn waits(replies: &[Reply], sleep: &Sleep) -> (u64, u64) {
    let ns = |s: f64| (s * 1e9) as u64;
    let long = |r: &&Reply| r.answered - r.begun >= ns(sleep.up_s / 2.0);
    let span = ns(sleep.down_s + sleep.up_s);
    let most = replies.iter().enumerate().map(|(i, r)| {
        let together = replies[i..]
            .iter()
            .take_while(|o| o.begun <= r.begun + span);
        together.count() as u64
    });
    (
        replies.iter().filter(long).count() as u64,
        most.max().unwrap_or(0),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Without a cap more requests wait on most of these traces, see the test below.
    #[test]
    fn no_more_requests_wait_than_the_cap_allows(of in bursts(), seed: u64, share in 0usize..3) {
        let share = [0.01, 0.05, 0.2][share];
        let settings = [("sleep_hold_s", 3600.0), ("sleep_wait_share", share)];
        let r = played(&trace(&of, seed), "exos-18tb", &settings);
        let (waits, most) = waits(&r.replies, &sleep_of("exos-18tb"));
        let bound = share * r.requests as f64 + most as f64;
        prop_assert!(waits as f64 <= bound, "{waits} of {}, cap {share}, at most {most} at once", r.requests);
        prop_assert!(r.wake_waits >= Some(waits), "{:?} counted, {waits} waited", r.wake_waits);
    }

    #[test]
    fn no_more_starts_than_the_sheet_allows(of in bursts(), seed: u64) {
        let r = played(&trace(&of, seed), "wd5000aaks", &[("sleep_hold_s", 600.0)]);
        let seconds = r.elapsed_s.expect("full");
        let stops = r.spin_downs.expect("full") as f64;
        prop_assert!(stops <= (seconds / INTERVAL_S).max(1.0), "{stops} in {seconds} s");
        let left = r.starts_left["slow"];
        prop_assert!(left >= 0.0 && left <= (86_400.0 / INTERVAL_S).max(1.0), "{left}");
    }
}

/// 200 bursts, a third of which need the disk.
fn many() -> Memory {
    let bursts: Vec<_> = (0..200)
        .map(|i| (90, 8, if i % 3 == 0 { 400 } else { 6 }))
        .collect();
    trace(&bursts, 5)
}

#[test]
fn a_cap_costs_sleep_and_without_one_more_requests_wait() {
    let hold = ("sleep_hold_s", 3600.0);
    let free = played(&many(), "exos-18tb", &[hold]);
    let capped = played(&many(), "exos-18tb", &[hold, ("sleep_wait_share", 0.01)]);
    let long = |r: &Report| waits(&r.replies, &sleep_of("exos-18tb")).0 as f64 / r.requests as f64;
    assert!(long(&free) > 0.03, "{}", long(&free));
    assert!(long(&capped) < 0.015, "{}", long(&capped));
    assert!(capped.latency_p50_s < Some(1.0) && capped.energy_j > free.energy_j);
    assert!(capped.sleep_postponed > Some(0));
    let standby = |r: &Report| r.usage.as_ref().expect("full").members["slow"].standby_s;
    assert!(standby(&capped) < standby(&free) && standby(&capped) > 0.0);
}

#[test]
fn the_budget_is_that_of_the_sheet_unless_the_knob_says_otherwise_and_needs_the_mode() {
    let stops = |disk: &str, settings: &[(&str, f64)]| {
        let r = played(&many(), disk, settings);
        (r.spin_downs.expect("full"), r.starts_left)
    };
    let hold = ("sleep_hold_s", 3600.0);
    let (few, left) = stops("wd5000aaks", &[hold]);
    assert!((1..=5).contains(&few), "{few} in five hours");
    assert!(left["slow"] < 1.5, "{left:?}");
    let (more, _) = stops("wd5000aaks", &[hold, ("sleep_starts_per_day", 1e6)]);
    assert!(more > 20, "{more}");
    let (fewer, _) = stops("wd5000aaks", &[hold, ("sleep_starts_per_day", 1.0)]);
    assert_eq!(fewer, 1);
    // The plain timer has no budget.
    let (timer, left) = stops("wd5000aaks", &[]);
    assert!(timer > 5 && left.is_empty(), "{timer}");
}
