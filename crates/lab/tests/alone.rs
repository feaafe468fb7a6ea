//! What is recorded: a device alone keeps no map and records nothing, a tiering volume records the first write of an extent, but not a read,
//! and a cache volume neither. And a new cache volume leaves its disk in the order of addresses.

use isotherm_core::Nanos;
use isotherm_lab::compare::compare;
use isotherm_lab::sim::{Memory, Report, Setup, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENT: u64 = 64 << 10;

/// Requests of 4 KiB to 500 extents at random places, one every 50 ms.
fn requests(op: Op) -> Memory {
    let record = |i: u64| {
        let place = i * 2741 % 500 * EXTENT;
        Record::new(Nanos(i * 50_000_000), op, place, 4096)
    };
    Memory::new("requests", (0..500).map(record).collect())
}

fn setup(policy: &str) -> Setup {
    let mut s =
        Setup::pair(policy.parse().expect("a preset"), Size::Share(80_000)).expect("sheets");
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    s
}

/// Bytes of metadata, and flushes of the devices.
fn recorded(r: &Report) -> (u64, u64) {
    let members = r.usage.as_ref().expect("full").members.values();
    members.fold((0, 0), |sum, m| {
        (sum.0 + m.meta_bytes_written, sum.1 + m.flushes)
    })
}

#[test]
fn a_device_alone_records_nothing() {
    for op in [Op::Read, Op::Write] {
        let all = compare(&setup("lru"), &[], &requests(op), false).expect("runs");
        for name in ["hdd-only", "ssd-only"] {
            let row = all.rows.iter().find(|r| r.name == name).expect("a row");
            assert_eq!(recorded(&row.report), (0, 0), "{name} {op:?}");
            assert!(row.report.full);
        }
    }
}

#[test]
fn first_writes_are_recorded_and_first_reads_are_not() {
    // `linear` moves nothing.
    let of = |op| recorded(&run(&setup("linear"), &requests(op)).expect("runs"));
    assert_eq!(of(Op::Read), (0, 0));
    let (bytes, flushes) = of(Op::Write);
    assert!(bytes >= 4096 && flushes >= 1, "{bytes} {flushes}");
}

#[test]
fn a_cache_volume_records_copies_only() {
    // Writes go around the cache.
    let s = setup("lru,write-mode=write-around");
    for op in [Op::Read, Op::Write] {
        let r = run(&s, &requests(op)).expect("runs");
        assert_eq!(recorded(&r), (0, 0), "{op:?}");
        assert_eq!(r.fetches > 0, op == Op::Read);
    }
}

/// Extents are written in random order to a new volume, and then read in sequence at 10 MiB/s: as fast as from the disk alone. `hot` plans
/// once a day and moves nothing here, so it shows where first touches lie.
#[test]
fn what_is_written_at_random_is_read_in_sequence() {
    const EXTENTS: u64 = 2048;
    let mut order: Vec<u64> = (0..EXTENTS).collect();
    let mut random = isotherm_core::random::SplitMix64::new(3);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let write = |(i, e): (u64, &u64)| {
        let time = Nanos(i * 30_000_000);
        Record::new(time, Op::Write, e * EXTENT, EXTENT as u32)
    };
    let mut records: Vec<Record> = (0..).zip(&order).map(write).collect();
    let start = EXTENTS * 30_000_000 + 60_000_000_000;
    let read = |e: u64| {
        let time = Nanos(start + e * 6_250_000);
        Record::new(time, Op::Read, e * EXTENT, EXTENT as u32)
    };
    records.extend((0..EXTENTS).map(read));
    for policy in ["benefit", "hot"] {
        let mut s = setup(policy);
        s.warm_up = EXTENTS;
        s.begin.new_volume = true;
        let volume = run(&s, &Memory::new("scattered", records.clone())).expect("runs");
        let all =
            compare(&s, &[], &Memory::new("scattered", records.clone()), false).expect("runs");
        let disk = all
            .rows
            .iter()
            .find(|r| r.name == "hdd-only")
            .expect("a row");
        let mean = |r: &Report| r.latency_mean_s.expect("timed");
        let (new, alone) = (mean(&volume), mean(&disk.report));
        assert!(
            new <= 1.05 * alone,
            "{policy}: {new} s, and {alone} s for the disk"
        );
    }
}
