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
