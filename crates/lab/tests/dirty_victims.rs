//! A plain cache that has time writes a dirty victim home and then admits the newcomer, so that its hits are those of a run without devices.

mod common;

use common::PLAIN;
use isotherm_core::Nanos;
use isotherm_core::random::SplitMix64;
use isotherm_lab::bound::{Sequence, belady};
use isotherm_lab::sim::{Memory, Report, Setup, TimeMode, hit_only, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENT: u32 = 1 << 16;

fn setup(policy: &str, slots: u64) -> Setup {
    let size = Size::Bytes(slots * u64::from(EXTENT));
    let pair = Setup::pair(policy.parse().expect("a preset"), size).expect("sheets");
    Setup {
        extent_bytes: EXTENT,
        time: TimeMode::Trace { acceleration: 1.0 },
        ..pair
    }
}

/// An access every 10 s: to the extent, `true` for a write.
fn trace(of: &[(u64, bool)]) -> Memory {
    every(10_000, of)
}

/// An access every so many milliseconds.
fn every(ms: u64, of: &[(u64, bool)]) -> Memory {
    let record = |(i, &(extent, write)): (usize, &(u64, bool))| {
        let op = if write { Op::Write } else { Op::Read };
        let at = Nanos::from_millis(ms * i as u64);
        Record::new(at, op, extent * u64::from(EXTENT), EXTENT)
    };
    Memory::new("slow", of.iter().enumerate().map(record).collect())
}

/// `n` accesses, of which half are writes.
fn random(rng: &mut SplitMix64, extents: u64, n: u64) -> Vec<(u64, bool)> {
    let mut one = |_| {
        let extent = rng.below(extents).min(rng.below(extents));
        (extent, rng.below(2) == 0)
    };
    (0..n).map(&mut one).collect()
}

fn hits(r: &Report) -> u64 {
    (r.fast_hit_ratio * r.accesses as f64).round() as u64
}

#[test]
fn a_dirty_victim_makes_room_for_its_newcomer() {
    let writes = [0, 1, 2, 2, 3, 3, 4, 4, 5, 5].map(|e| (e, true));
    for policy in PLAIN {
        let setup = setup(policy, 2);
        let without = hits(&hit_only(&setup, &trace(&writes)).expect("runs"));
        let with = hits(&run(&setup, &trace(&writes)).expect("runs"));
        // `smq` admits what it has seen more often only.
        let expected = if policy == "smq" { 0 } else { 4 };
        assert_eq!((without, with), (expected, expected), "{policy}");
    }
}

/// Reads and writes in all orders. A copy that came late is clean, which `smq` alone takes into account.
#[test]
fn with_time_the_hits_are_those_without_devices() {
    let of = random(&mut SplitMix64::new(5), 14, 400);
    for policy in PLAIN.into_iter().filter(|p| *p != "smq") {
        let setup = setup(policy, 4);
        let without = hit_only(&setup, &trace(&of)).expect("runs");
        let with = run(&setup, &trace(&of)).expect("runs");
        assert_eq!(hits(&with), hits(&without), "{policy}");
        assert!(with.writebacks > 0, "{policy} cleans");
    }
}

/// Writes without reuse, faster than the disk cleans one and admits the next. Only while the cache learns that it must clean ahead, a
/// newcomer is read back from the disk.
#[test]
fn victims_are_written_home_ahead() {
    let writes: Vec<_> = (0..4000).map(|e| (e, true)).collect();
    let r = run(&setup("lru", 1024), &every(40, &writes)).expect("runs");
    assert!(r.fetches >= 3990, "{} of 4000", r.fetches);
    let usage = r.usage.expect("timed");
    let read_back = usage.members["slow"].reads;
    // At most one for each slot that is kept free.
    assert!(read_back <= 1024 / 8, "{read_back} reads of the disk");
}

/// Whatever waits for whatever, no more units are kept than there are slots.
#[test]
fn no_plain_cache_has_more_hits_than_the_best() {
    let mut rng = SplitMix64::new(9);
    let mut waited = 0;
    for case in 0..24 {
        let slots = 2 + case % 5;
        let of = random(&mut rng, 40, 600);
        let sequence = Sequence::new(40, of.iter().map(|&(e, w)| (e as u32, w)));
        let most = belady(&sequence, slots);
        for policy in PLAIN {
            let source = every([1, 8, 20, 60][case as usize % 4], &of);
            let r = run(&setup(policy, slots), &source).expect("runs");
            assert!(
                hits(&r) <= most,
                "{policy}, case {case}: {} > {most}",
                hits(&r)
            );
            let refused = &r.moves.as_ref().expect("timed")["fetches"].refused;
            waited += refused.get("full").copied().unwrap_or(0);
        }
    }
    assert!(waited > 1000, "{waited} newcomers found no slot");
}
