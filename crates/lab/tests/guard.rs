//! The guards of `benefit`: data that is read only once is soon no longer fetched, data that is read again is fetched, and writes bypass
//! flash if the disk answers sooner.

mod guard_cases;

use guard_cases::{KINDS, Kind, case};
use isotherm_core::Nanos;
use isotherm_lab::sim::{Device, Memory, Report, Setup, Tier, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENT: u64 = 64 << 10;
const MS: u64 = 1_000_000;
/// Number of extents that are read once; some of them are then read repeatedly.
const ONCE: u64 = 4000;
const AGAIN: u64 = 100;

/// Reads 4 KiB of each of 4000 extents, one every 20 ms, at places that form no stream. With `then_again`, 30 rounds over the first hundred
/// extents follow.
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
    // All of the 30 rounds but the first two are hits.
    assert!(
        r.fast_hit_ratio * r.accesses as f64 >= 27.0 * AGAIN as f64,
        "{}",
        r.fast_hit_ratio
    );
}

/// Five times: one minute of reads and writes of 4 KiB in 400 extents, then ten minutes with a write every 20 s.
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
    // This is about the policy, so the starts are not limited; a budget has tests of its own (`sleep_budgets.rs`).
    let knobs = [("sleep_hold_s", 3600.0), ("sleep_starts_per_day", 1e6)];
    let quiet = for_goal("quiet", &knobs);
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
    // Each extent is read once: without the guard, only the price of wear can prevent a copy.
    let fetches = |goal| with(&format!("benefit,guard=0,goal={goal}"), false).fetches;
    let (fast, cheap, lasting) = (fetches("fast"), fetches("cheap"), fetches("lasting"));
    assert!(fast > ONCE - 10, "{fast}");
    assert!(lasting < ONCE / 10 && cheap <= fast, "{lasting}, {cheap}");
}

/// Bursts of 40 writes of 16 KiB at random places, two seconds apart. The disk's write cache has room for a burst, the buffer of the X25-E
/// has not. With the policy `linear` the disk is alone.
fn small_bursts(policy: &str) -> Report {
    let place = |i: u64| i * 2741 % ONCE * EXTENT;
    let record = |i: u64| {
        let at = Nanos(i / 40 * 2000 * MS + i % 40 * 50_000);
        Record::new(at, Op::Write, place(i), 16384)
    };
    let work = Memory::new("bursts", (0..ONCE).map(record).collect());
    let tier = |name, size| Tier::new(Device::preset(name).expect("a sheet"), size);
    let whole = Size::Share(1_000_000);
    let mut s = Setup::pair(policy.parse().expect("a preset"), whole).expect("sheets");
    let flash = tier("intel-x25e-32", Size::Share(100_000));
    s.tiers = vec![flash, tier("wd5000aaks", whole)];
    if policy == "linear" {
        s.tiers.remove(0);
    }
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    run(&s, &work).expect("runs")
}

#[test]
fn writes_pass_a_flash_by_that_is_later_than_the_disk_alone() {
    let guarded = small_bursts("benefit");
    let free = small_bursts("benefit,without=alone");
    let bytes = |r: &Report| r.fast_write_bytes.expect("timed");
    assert!(
        bytes(&guarded) * 2 < bytes(&free),
        "{} and {} bytes to flash",
        bytes(&guarded),
        bytes(&free)
    );
    assert!(guarded.latency_mean_s < free.latency_mean_s);
    // The cost of trials of flash is bounded. The mean latency is 1.62 times that of the disk alone. It was 3.08 times when each trial could
    // cost 16 reads, and is 16.8 times without the guard.
    let alone = small_bursts("linear").latency_mean_s.expect("timed");
    let share = guarded.latency_mean_s.expect("timed") / alone;
    assert!(share < 2.0, "{share} of the disk alone");
}

/// Mean latency divided by that of the disk alone. The devices are those of `bench/benefit/adversary.py`; flash has a tenth of the size.
fn share(kind: Kind, seed: u64, extent: u32) -> f64 {
    let (with, alone) = both(kind, seed, extent);
    with.latency_mean_s.expect("timed") / alone.latency_mean_s.expect("timed")
}

/// A case with `benefit`, and the same case on the disk alone.
fn both(kind: Kind, seed: u64, extent: u32) -> (Report, Report) {
    let device = |name| Device::preset(name).expect("a sheet");
    let whole = Size::Share(1_000_000);
    let disk = Tier::new(device("exos-18tb"), whole);
    let flash = Tier::new(device("sata-enterprise"), Size::Share(100_000));
    let work = case(kind, seed);
    let report = |policy: &str, tiers| {
        let mut s = Setup::pair(policy.parse().expect("a preset"), whole).expect("sheets");
        s.tiers = tiers;
        s.extent_bytes = extent;
        s.time = TimeMode::Trace { acceleration: 1.0 };
        run(&s, &work).expect("runs")
    };
    let policy = std::env::var("ISOTHERM_POLICY").unwrap_or("benefit".to_owned());
    (
        report(&policy, vec![flash, disk.clone()]),
        report("linear", vec![disk]),
    )
}

/// A readable summary of the disk's work.
fn said(r: &Report) -> String {
    let usage = r.usage.as_ref().expect("timed");
    let disk = usage.members.values().last().expect("a disk");
    format!(
        "mean {:.2} ms, 99th percentile {:.0}; disk busy {:.0} % of {:.0} s, {} seeks over {} cylinders, {} reads of {} KiB, \
         {} writes of {} KiB, {} KiB of them metadata, {} flushes; {:.0} % hits, {} fetches, {} written home, {} evicted",
        1e3 * r.latency_mean_s.unwrap_or(0.0),
        1e3 * r.latency_p99_s.unwrap_or(0.0),
        1e2 * disk.busy_s / usage.elapsed_s,
        usage.elapsed_s,
        disk.seeks,
        disk.seek_distance,
        disk.reads,
        disk.bytes_read >> 10,
        disk.writes,
        disk.bytes_written >> 10,
        disk.meta_bytes_written >> 10,
        disk.flushes,
        1e2 * r.fast_hit_ratio,
        r.fetches,
        r.writebacks,
        r.evictions,
    )
}

/// The worst cases that a search found. The limit of each is about 1.5 times its present value. The aim, which is not reached, is 1.02.
///
/// `ISOTHERM_CASES=1000` also runs 1000 other cases, with seeds from `ISOTHERM_SEED_BASE` on. For those over 1.02 it prints the work of the
/// disk, alone and with `benefit` (or another policy in `ISOTHERM_POLICY`, for example `benefit,parts=0`).
#[test]
fn the_worst_cases_found() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    if let Some(cases) = number("ISOTHERM_CASES") {
        let base = number("ISOTHERM_SEED_BASE").unwrap_or(1);
        let of = |i: u64| {
            let kind = KINDS[i as usize % KINDS.len()];
            let extent = if (i / KINDS.len() as u64).is_multiple_of(2) {
                16 << 10
            } else {
                64 << 10
            };
            (share(kind, base + i, extent), kind, base + i, extent)
        };
        let mut all: Vec<_> = (0..cases).map(of).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let over = all.iter().filter(|c| c.0 > 1.02).count();
        let mean = all.iter().map(|c| c.0.ln()).sum::<f64>() / all.len() as f64;
        println!(
            "{over} of {cases} over 1.02; geometric mean {:.3}; the worst:",
            mean.exp()
        );
        for (share, kind, seed, extent) in &all[..over.max(12).min(all.len())] {
            let (with, alone) = both(*kind, *seed, *extent);
            println!(
                "{share:.3} {kind:?} {seed} {extent}\n  alone: {}\n  with:  {}",
                said(&alone),
                said(&with)
            );
        }
    }
    for (kind, seed, extent, most) in WORST {
        let share = share(kind, seed, extent);
        assert!(share <= most, "{kind:?} {seed} {extent}: {share}");
    }
}

/// Kind, seed, size of an extent, and the limit of the mean latency in multiples of that of the disk alone. The first seven values are
/// now 2.44, 1.67, 1.62, 1.44, 1.32, 1.31 and 1.25. The first case is 0.19 ms instead of 0.08 ms: flash is filled with writes that the disk
/// would have answered as soon, and has no room when the disk's write cache is full. In the other six, reads wait for the flushes of commit
/// rounds after cleans. `Once` 182 was 7.99 when the disk's model served a long queue by age, and is 1 now. The last two were among the
/// worst cases of earlier versions.
const WORST: [(Kind, u64, u32, f64); 10] = [
    (Kind::Write, 299, 64 << 10, 3.6),
    (Kind::Once, 260, 64 << 10, 2.5),
    (Kind::Once, 206, 16 << 10, 2.4),
    (Kind::Once, 218, 16 << 10, 2.1),
    (Kind::Burst, 256, 16 << 10, 2.0),
    (Kind::Once, 74, 16 << 10, 2.0),
    (Kind::Thrash, 213, 64 << 10, 1.5),
    (Kind::Once, 182, 16 << 10, 1.5),
    (Kind::Shift, 180, 64 << 10, 3.0),
    (Kind::Thrash, 231, 16 << 10, 1.5),
];

/// Reads 4 KiB of each of 500 extents, twice, at 20 reads per second.
fn small_and_again() -> Memory {
    let place = |i: u64| i * 2741 % 500 * EXTENT + i % 16 * 4096;
    let records = (0..1000u64)
        .map(|i| Record::new(Nanos(i * 50 * MS), Op::Read, place(i % 500), 4096))
        .collect();
    Memory::new("small", records)
}

#[test]
fn of_extents_whose_rest_nobody_wants_a_part_is_copied() {
    let of = |policy: &str| {
        let mut s = Setup::pair(policy.parse().expect("a preset"), Size::Share(1_000_000));
        let s = s.as_mut().expect("sheets");
        s.extent_bytes = EXTENT as u32;
        s.begin.full = true;
        s.time = TimeMode::Trace { acceleration: 1.0 };
        run(s, &small_and_again()).expect("runs")
    };
    let (parts, whole) = (of("benefit,guard=0"), of("benefit,guard=0,parts=0"));
    // In both cases all reads of the second round are hits; copies of parts cause a fraction of the writes.
    for r in [&parts, &whole] {
        assert!(r.full && r.fast_hit_ratio > 0.45, "{}", r.fast_hit_ratio);
    }
    let written = |r: &Report| r.fast_write_bytes.expect("timed");
    assert!(
        written(&parts) * 3 < written(&whole),
        "{} {}",
        written(&parts),
        written(&whole)
    );
}

/// Every 5 s, four writes within 15 ms, in 300 extents.
fn bursts_of_writes() -> Memory {
    let records = (0..6000u64)
        .map(|i| {
            let time = (i / 4 * 5_000 + i % 4 * 5) * MS;
            Record::new(Nanos(time), Op::Write, i * 2741 % 300 * EXTENT, 4096)
        })
        .collect();
    Memory::new("bursts", records)
}

#[test]
fn a_late_flash_leaves_writes_to_the_disk() {
    let tier = |name, share| Tier::new(Device::preset(name).expect("a sheet"), Size::Share(share));
    let flash = tier("intel-x25e-32", 100_000);
    let disk = tier("exos-18tb", 1_000_000);
    let mean = |policy: &str, tiers| {
        let whole = Size::Share(1_000_000);
        let mut s = Setup::pair(policy.parse().expect("a preset"), whole).expect("sheets");
        s.tiers = tiers;
        s.extent_bytes = EXTENT as u32;
        s.time = TimeMode::Trace { acceleration: 1.0 };
        let r = run(&s, &bursts_of_writes()).expect("runs");
        r.latency_mean_s.expect("timed")
    };
    let both = vec![flash, disk.clone()];
    let (guarded, free) = (mean("benefit", both.clone()), mean("benefit,guard=0", both));
    let alone = mean("linear", vec![disk]);
    assert!(guarded < free, "{guarded} {free} {alone}");
}

/// Writes 400 extents, then does 3000 reads of fifty others, in a closed loop, so that the disk is never idle.
#[test]
fn flash_full_of_dirty_data_makes_room_for_what_is_read() {
    let place = |i: u64| i * 2741 % 1000 * EXTENT;
    let writes = (0..400).map(|i| Record::new(Nanos(i), Op::Write, place(i), 4096));
    let reads = (0..3000).map(|i| Record::new(Nanos(400 + i), Op::Read, place(500 + i % 50), 4096));
    let work = Memory::new("full", writes.chain(reads).collect());
    let of = |policy: &str| {
        let mut s = Setup::pair(policy.parse().expect("a preset"), Size::Bytes(100 * EXTENT))
            .expect("sheets");
        s.extent_bytes = EXTENT as u32;
        s.time = TimeMode::Closed { depth: 1 };
        run(&s, &work).expect("runs")
    };
    let (with, waits) = (of("benefit"), of("benefit,without=value"));
    assert_eq!(waits.writebacks, 0);
    assert!(with.writebacks > 0 && with.fast_hit_ratio > 2.0 * waits.fast_hit_ratio);
    assert!(with.latency_mean_s < waits.latency_mean_s);
}

#[test]
fn quiet_spares_a_disk_that_is_awake() {
    // A write of 128 KiB every 15 s for two hours. The disk is awake at first, and long requests bypass the cache.
    let records = (0..480u64).map(|i| {
        let place = i * 7 % 480 * (128 << 10);
        Record::new(Nanos(i * 15_000 * MS), Op::Write, place, 128 << 10)
    });
    let trace = Memory::new("writes", records.collect());
    let asleep = |goal: &str| {
        let policy = format!("benefit,goal={goal}").parse().expect("a goal");
        let mut s = Setup::pair(policy, Size::Share(500_000)).expect("sheets");
        s.extent_bytes = EXTENT as u32;
        s.time = TimeMode::Trace { acceleration: 1.0 };
        s.tiers[1].devices[0].standby_after_s = Some(60.0);
        // As above, the starts are not limited.
        s.settings = vec![
            ("sleep_hold_s".to_owned(), 3600.0),
            ("sleep_starts_per_day".to_owned(), 1e6),
        ];
        let r = run(&s, &trace).expect("runs");
        r.usage.expect("timed").members["slow"].standby_s
    };
    let (fast, quiet) = (asleep("fast"), asleep("quiet"));
    assert!(fast < 600.0, "{fast} s asleep");
    assert!(quiet > 6000.0, "{quiet} s asleep");
}
