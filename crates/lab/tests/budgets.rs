//! Budgets with times, energy and wear: they have the intended effects.

use isotherm_core::Nanos;
use isotherm_lab::sim::{Device, Memory, Report, Setup, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENT: u64 = 64 << 10;
const SECOND: u64 = 1_000_000_000;

/// One minute of work, then ten minutes with a write every 20 s (a log, a mailbox), eight times.
fn lulls() -> Memory {
    let (mut records, mut random) = (Vec::new(), isotherm_core::random::SplitMix64::new(7));
    let mut draw = |below| random.below(below);
    for period in 0..8u64 {
        let begin = period * 660 * SECOND;
        for i in 0..1200u64 {
            let extent = if draw(4) == 0 { draw(2000) } else { draw(80) };
            let op = if draw(3) == 0 { Op::Write } else { Op::Read };
            let time = Nanos(begin + i * SECOND / 20);
            records.push(Record::new(time, op, extent * EXTENT, 8192));
        }
        for i in 0..29u64 {
            let time = Nanos(begin + (65 + i * 20) * SECOND);
            // Six extents that stay in the cache because they are written all the time.
            records.push(Record::new(time, Op::Write, (i % 6) * EXTENT, 8192));
            records.push(Record::new(time, Op::Flush, 0, 0));
        }
    }
    records.push(Record::new(
        Nanos(8 * 660 * SECOND),
        Op::Read,
        1999 * EXTENT,
        8192,
    ));
    Memory::new("lulls", records)
}

fn setup(policy: &str, settings: &[(&str, f64)]) -> Setup {
    let mut s =
        Setup::pair(policy.parse().expect("a preset"), Size::Share(80_000)).expect("sheets");
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    s.tiers[1].devices[0].standby_after_s = Some(20.0);
    // The tests of the time that work waits count starts, so no budget of starts may limit them.
    s.settings = [("sleep_starts_per_day", 1e6)]
        .iter()
        .chain(settings)
        .map(|(k, v)| ((*k).to_owned(), *v))
        .collect();
    s
}

fn slow(r: &Report) -> &isotherm_lab::sim::MemberUsage {
    &r.usage.as_ref().expect("full").members["slow"]
}

fn refused(r: &Report, why: &str) -> u64 {
    let moves = r.moves.as_ref().expect("full").values();
    moves.filter_map(|m| m.refused.get(why)).sum()
}

/// Every byte that requests wrote reached a device (two devices if a policy writes through).
fn nothing_lost(r: &Report) {
    let members = r.usage.as_ref().expect("full").members.values();
    let written: u64 = members
        .map(|m| m.bytes_written - m.move_bytes_written - m.meta_bytes_written)
        .sum();
    assert!(
        written >= r.bytes_written,
        "{written} of {}",
        r.bytes_written
    );
}

#[test]
fn a_disk_whose_work_waits_sleeps_longer_and_uses_less() {
    let trace = lulls();
    let hold = [("sleep_hold_s", 3600.0)];
    for policy in ["smq", "greendm-cache", "lru", "bcache-like"] {
        let without = run(&setup(policy, &[]), &trace).expect("runs");
        let with = run(&setup(policy, &hold), &trace).expect("runs");
        let (a, b) = (slow(&without), slow(&with));
        nothing_lost(&with);
        assert_eq!(without.bytes_written, with.bytes_written);
        // lru rarely writes home by itself, so it can save little, and because the disk sleeps sooner it is stopped more often. An
        // additional stop costs no more than a wake-up (11 s, 165 J) and the idle power (8.4 W) of the 20 s until the disk is sent to sleep
        // and of the 5 s of that.
        let further = b.start_stops.saturating_sub(a.start_stops) as f64;
        assert!(
            b.energy_j < a.energy_j * 1.001 + further * (165.0 + 25.0 * 8.4),
            "{policy}: {} of {} J",
            b.energy_j,
            a.energy_j
        );
        // The number of stops falls if the disk was woken repeatedly. A disk that never slept before is stopped more often now.
        if ["smq", "greendm-cache"].contains(&policy) {
            assert!(
                b.start_stops < a.start_stops,
                "{policy}: {} of {}",
                b.start_stops,
                a.start_stops
            );
        }
        assert!(
            b.standby_s >= a.standby_s * 0.999 - further * (11.0 + 25.0),
            "{policy}: {} of {} s",
            b.standby_s,
            a.standby_s
        );
        assert!(with.sleep_batches > Some(0));
        // The held work was done in the end: work follows seven of eight idle periods, and then the disk sleeps again.
        assert!(with.writebacks > 0, "{policy}");
        // These policies sometimes write home by themselves.
        if policy != "lru" {
            assert!(
                b.energy_j < a.energy_j * 0.9,
                "{policy}: {} of {} J",
                b.energy_j,
                a.energy_j
            );
        }
        if policy == "smq" {
            assert!(
                b.start_stops * 2 < a.start_stops,
                "{} of {}",
                b.start_stops,
                a.start_stops
            );
        }
    }
}

#[test]
fn a_limit_wakes_it() {
    let trace = lulls();
    let long = run(&setup("lru", &[("sleep_hold_s", 3600.0)]), &trace).expect("runs");
    let short = run(&setup("lru", &[("sleep_hold_s", 120.0)]), &trace).expect("runs");
    let few = [
        ("sleep_hold_s", 3600.0),
        ("sleep_hold_bytes", 4.0 * EXTENT as f64),
    ];
    let few = run(&setup("lru", &few), &trace).expect("runs");
    assert_eq!(long.sleep_limits, Some(0));
    // Idle periods of 600 s: in each, the dirty data is written home about four times because of its age.
    assert!(
        (24..=40).contains(&short.sleep_limits.unwrap_or(0)),
        "{:?}",
        short.sleep_limits
    );
    assert!(
        few.sleep_limits > short.sleep_limits,
        "{:?}",
        few.sleep_limits
    );
    for r in [&short, &few] {
        nothing_lost(r);
        assert!(slow(r).start_stops > slow(&long).start_stops);
    }
}

#[test]
fn the_fast_tier_lasts_as_long_as_its_budget_says() {
    let trace = lulls();
    for policy in ["greendm", "lru", "hot-dst-dynamic"] {
        let free = run(&setup(policy, &[]), &trace).expect("runs");
        let fast = |r: &Report| r.usage.as_ref().expect("full").members["fast"].clone();
        // Enough budget for the requests' writes there, and for four of ten moves.
        let (all, moved) = (fast(&free).bytes_written, fast(&free).move_bytes_written);
        let room = (all - moved) as f64 + 0.4 * moved as f64;
        let per_day = room / free.elapsed_s.expect("full") * 86_400.0;
        let settings = [("wear_bytes_per_day", per_day), ("wear_burst_h", 1.0)];
        let kept = run(&setup(policy, &settings), &trace).expect("runs");
        nothing_lost(&kept);
        let allowed = per_day * kept.elapsed_s.expect("full") / 86_400.0;
        let moved = fast(&kept).move_bytes_written as f64;
        assert!(moved <= allowed, "{policy}: {moved} of {allowed}");
        assert!(refused(&kept, "wear_budget") > 0 && refused(&free, "wear_budget") == 0);
        assert!(
            kept.wear_eu.as_ref().expect("full")["fast"]
                < free.wear_eu.as_ref().expect("full")["fast"]
        );
        assert!(
            kept.promotions + kept.fetches > 0,
            "{policy}: tightened, not closed"
        );
        let left = kept.wear_budget_left_bytes.expect("a budget") as f64;
        let all = fast(&kept).bytes_written as f64;
        assert!(
            left <= allowed - all + 1.0,
            "everything written counts: {left}, {allowed} less {all}"
        );
    }
}

#[test]
fn settings_that_are_off_or_generous_change_nothing() {
    let trace = lulls();
    for policy in ["greendm", "lru", "hot-dst-dynamic", "dss-lru"] {
        let plain = run(&setup(policy, &[]), &trace).expect("runs");
        let off = [
            ("sleep_hold_s", 0.0),
            ("wear_bytes_per_day", 0.0),
            ("moves_max", 0.0),
        ];
        let wide = [("moves_max", 1000.0)];
        for settings in [&off[..], &wide[..]] {
            let r = run(&setup(policy, settings), &trace).expect("runs");
            assert_eq!(r.digest, plain.digest, "{policy} {settings:?}");
        }
        // A budget begins empty. It has no effect as soon as its rate exceeds the demand.
        let rich = [("wear_bytes_per_day", 1e12), ("sleep_hold_s", 0.0)];
        let r = run(&setup(policy, &rich), &trace).expect("runs");
        assert!(
            refused(&r, "wear_budget") < 12,
            "{policy}: {}",
            refused(&r, "wear_budget")
        );
    }
}

#[test]
fn wrong_settings_are_named() {
    for (key, value, word) in [
        ("sleep_hold", 1.0, "sleep_hold_s"),
        ("wear_bytes_per_day", -1.0, "bytes per day"),
        ("PT", 2.0, "NAME,PT=VALUE"),
    ] {
        let e = setup("greendm", &[(key, value)]).check().expect_err(key);
        assert!(e.to_string().contains(word), "{key}: {e}");
    }
}

/// A backup that reads in bursts, and a journal, each with its own class.
fn noisy_and_quiet(seed: u64) -> Memory {
    let (mut records, mut random) = (Vec::new(), isotherm_core::random::SplitMix64::new(seed));
    let mut draw = |below| random.below(below);
    for ms in 0..20_000u64 {
        let time = Nanos(ms * SECOND / 1000);
        if ms % 40 == 7 {
            let mut quiet = Record::new(time, Op::Read, draw(4000) * EXTENT, 4096);
            quiet.class = 7;
            records.push(quiet);
        }
        if ms % 1000 < 50 {
            let mut noisy = Record::new(time, Op::Read, (4000 + draw(4000)) * EXTENT, 65_536);
            noisy.class = 18;
            records.push(noisy);
        }
    }
    Memory::new("backup beside a journal", records)
}

fn promised(rows: &[&str]) -> Report {
    promised_with(rows, 3)
}

fn promised_with(rows: &[&str], seed: u64) -> Report {
    let mut s = setup("lru", &[]);
    s.tiers[1].devices[0].standby_after_s = None;
    s.qos = isotherm_lab::qos::spec(rows.iter().copied()).expect("rows");
    run(&s, &noisy_and_quiet(seed)).expect("plays")
}

#[test]
fn promises_to_classes_hold_in_the_lab() {
    let mean = |r: &Report, class: &str| {
        let c = &r.by_class[class];
        c.time_s.expect("timed") / c.requests as f64
    };
    let plain = promised(&[]);
    assert!(mean(&plain, "7") > 0.02, "the quiet one suffers");
    // A promise without effect must change nothing.
    let unneeded = promised(&["0-63+ceiling=100G"]);
    assert_eq!(unneeded.digest, plain.digest);
    // Six sequences of places: one of them may differ from their mean by a tenth.
    let means = |rows: &[&str]| [0, 1, 2, 3, 4, 5].map(|s| mean(&promised_with(rows, s), "7"));
    let (with, without) = (means(&["7+latency=30ms"]), means(&[]));
    let sum = |x: &[f64]| x.iter().sum::<f64>();
    assert!(sum(&with) < 0.7 * sum(&without), "{with:?} and {without:?}");
    let each = with.iter().zip(&without).all(|(w, o)| *w < 0.77 * o);
    assert!(each, "{with:?} and {without:?}");
    let latency = promised(&["7+latency=30ms"]);
    assert_eq!(latency.requests, plain.requests);
    let floor = promised(&["7+floor=1M+share=1000", "18+share=10", "depth=2"]);
    assert!(mean(&floor, "7") < 0.7 * mean(&plain, "7"));
    // 2 MiB a second, of 3.1 that are requested.
    let ceiling = promised(&["18+ceiling=2M"]);
    let bytes = ceiling.by_class["18"].bytes as f64;
    let least = bytes / f64::from(2 << 20) - 0.1;
    let last = ceiling.elapsed_s.expect("timed");
    assert!(last >= least && last < 1.02 * least + 0.2, "{last} {least}");
    assert!(mean(&ceiling, "7") < 0.7 * mean(&plain, "7"));
    assert_eq!(ceiling.qos, ["18+ceiling=2M"]);
}

#[test]
fn what_devices_did_is_somebodys() {
    let mut s = setup("lru", &[]);
    s.tiers[1].devices[0].standby_after_s = None;
    // A device whose data sheet has a price and a limit of writes.
    s.tiers[0].devices = vec![Device::preset("intel-320-300").expect("a preset")];
    let r = run(&s, &noisy_and_quiet(3)).expect("plays");
    let all = r.by_class.values().filter_map(|c| c.used);
    let all: Vec<_> = all.chain(r.own_work).collect();
    assert_eq!(all.len(), 3);
    let sum = |f: fn(&isotherm_lab::sim::Used) -> f64| all.iter().map(f).sum::<f64>();
    let members = &r.usage.as_ref().expect("full").members;
    let (fast, slow) = (&members["fast"], &members["slow"]);
    for (what, got, want) in [
        ("read", sum(|u| u.fast_read_bytes as f64), fast.bytes_read),
        (
            "written",
            sum(|u| u.fast_write_bytes as f64),
            fast.bytes_written,
        ),
        (
            "slow read",
            sum(|u| u.slow_read_bytes as f64),
            slow.bytes_read,
        ),
        (
            "slow written",
            sum(|u| u.slow_write_bytes as f64),
            slow.bytes_written,
        ),
    ] {
        // Operations that end after the last reply are only in the figures of the members.
        let slack = 3.0 * EXTENT as f64;
        assert!(
            (got - want as f64).abs() <= slack,
            "{what}: {got} of {want}"
        );
    }
    // Fetches count for the class that is fetched: those of the noisy class are 16 times as large.
    let (quiet, noisy) = (
        r.by_class["7"].used.unwrap(),
        r.by_class["18"].used.unwrap(),
    );
    assert!(noisy.fast_write_bytes > 0 && quiet.fast_write_bytes > 0);
    assert!(noisy.device_time_s > quiet.device_time_s);
    let energy = sum(|u| u.energy_j.unwrap_or(0.0));
    assert!(energy > 0.0 && energy < fast.energy_j + slow.energy_j);
    let wear = noisy.wear_usd.expect("flash wears");
    assert!(
        (wear / quiet.wear_usd.unwrap()
            - noisy.fast_write_bytes as f64 / quiet.fast_write_bytes as f64)
            .abs()
            < 1e-6
    );
    assert!(noisy.cost_usd.unwrap() > wear);
}
