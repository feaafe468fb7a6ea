//! What is recorded: a device alone keeps no map and records nothing, and a volume records the first write of an extent, but not a read.

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
