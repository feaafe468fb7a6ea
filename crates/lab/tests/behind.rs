//! Two devices of comparable speed, as an NVMe drive over SATA drives: the faster one is used while many requests are in progress, and while
//! it is behind, the other one serves reads of clean copies. Each case prints its speeds (`-- --nocapture`).

use isotherm_core::Nanos;
use isotherm_lab::sim::{Device, Memory, Setup, Tier, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 500;
const REQUESTS: u64 = 50_000;

/// Requests of 4 KiB at random places, of which this share are writes, percent. All of it fits on flash.
fn work(writes: u64) -> Memory {
    let mut random = isotherm_core::random::SplitMix64::new(5);
    let mut one = |i: u64| {
        if i < EXTENTS {
            return Record::new(Nanos(i), Op::Read, i * EXTENT, EXTENT as u32);
        }
        let at = random.below(EXTENTS) * EXTENT + random.below(16) * 4096;
        let op = if random.below(100) < writes {
            Op::Write
        } else {
            Op::Read
        };
        Record::new(Nanos(i), op, at, 4096)
    };
    let all = (0..REQUESTS).map(&mut one).collect();
    Memory::new("all of it fits on flash", all)
}

/// Requests a second.
fn speed(policy: &str, (fast, slow): (&str, &str), depth: u32, work: &Memory) -> f64 {
    let spec = policy.parse().expect("a preset");
    let mut s = Setup::pair(spec, Size::Share(1_000_000)).expect("sheets");
    let tier = |d: &str| Tier::new(Device::preset(d).expect("a sheet"), Size::Share(1_000_000));
    s.tiers = vec![tier(fast), tier(slow)];
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Closed { depth };
    s.warm_up = REQUESTS / 2;
    let r = run(&s, work).unwrap_or_else(|e| panic!("{policy} on {fast} and {slow}: {e}"));
    let speed = r.requests as f64 / r.elapsed_s.expect("a measured part");
    println!("{fast} + {slow}, depth {depth}: {policy} {speed:.0}/s");
    speed
}

/// A drive with many channels ends a request every few microseconds while each waits long, so its device time alone would hide that it is
/// the slower one.
#[test]
fn the_faster_drive_is_used_at_every_depth() {
    let (pair, work) = (("nvme-tlc", "sata-enterprise"), work(0));
    for depth in [1, 4, 32, 128] {
        let (benefit, lru) = (
            speed("benefit", pair, depth, &work),
            speed("lru", pair, depth, &work),
        );
        assert!(benefit > 0.9 * lru, "depth {depth}: {benefit} {lru}");
    }
}

#[test]
fn the_slower_drive_serves_reads_while_the_faster_one_is_behind() {
    let (pair, work) = (("sata-enterprise", "intel-320-300"), work(0));
    for depth in [96, 128] {
        let with = speed("benefit", pair, depth, &work);
        let without = speed("benefit,without=sooner", pair, depth, &work);
        assert!(with > 1.3 * without, "depth {depth}: {with} {without}");
    }
}

#[test]
fn the_other_place_costs_nothing_elsewhere() {
    let pairs = [
        ("nvme-tlc", "sata-enterprise"),
        ("sata-enterprise", "intel-320-300"),
        ("sata-enterprise", "exos-18tb"),
    ];
    for writes in [0, 30] {
        let work = work(writes);
        for pair in pairs {
            for depth in [4, 32, 128] {
                let with = speed("benefit", pair, depth, &work);
                let without = speed("benefit,without=sooner", pair, depth, &work);
                // Runs as short as these differ by 3 % in what is copied when; with 100 000 requests the least is 0.987.
                assert!(
                    with > 0.95 * without,
                    "{pair:?}, {writes} % writes, depth {depth}: {with} {without}"
                );
            }
        }
    }
}
