//! Which copies are kept over a crash, and which streams are copied.
#![allow(clippy::unwrap_used)]

use super::orders::space;
use crate::null::NullEngine;
use crate::policy::benefit::Benefit;
use crate::units::{ExtentId, Nanos};
use crate::volume::UnitId;

const FAST: u32 = 1024;

fn volume() -> NullEngine<Benefit> {
    NullEngine::over(space(FAST, 16 * FAST), Benefit::default())
}

/// Reads 4 KiB at the place `at`, in MiB/256. Returns whether flash had the extent.
fn read(v: &mut NullEngine<Benefit>, ms: u64, at: u64) -> bool {
    let request = (at << 12, 4096);
    let extent = ExtentId((at >> 4) as u32);
    v.access(Nanos::from_millis(20 * ms), extent, false, 0, request)
}

#[test]
fn the_more_valuable_half_of_the_copies_is_kept_over_a_crash() {
    let mut v = volume();
    let mut ms = 0;
    let kept = |v: &NullEngine<Benefit>, extents: core::ops::Range<u32>| {
        let policy = v.policy();
        let copies = extents.filter_map(|e| v.copy(ExtentId(e)).map(|s| (UnitId(e), s.into())));
        let worths = copies.map(|(e, s)| policy.scores.worth(e, Some(s)) >= policy.usual_worth);
        worths.fold((0, 0), |(all, kept), k| (all + 1, kept + u32::from(k)))
    };
    // Before flash is full, all are.
    for e in 0..u64::from(FAST / 2) {
        (ms, _) = (ms + 1, read(&mut v, ms, e << 4));
    }
    assert_eq!(kept(&v, 0..FAST), (FAST / 2, FAST / 2));
    for e in 512..3 * u64::from(FAST) {
        for e in [e, e, e % 256] {
            (ms, _) = (ms + 1, read(&mut v, ms, e << 4));
        }
    }
    let (hot, kept_hot) = kept(&v, 0..256);
    assert!(hot > 250 && kept_hot == hot, "{kept_hot} of {hot}");
    let (all, kept) = kept(&v, 0..16 * FAST);
    let half = FAST * 2 / 5..FAST * 3 / 5;
    assert!(all == FAST && half.contains(&kept), "{kept} of {all}");
}

#[test]
fn short_requests_of_streams_are_copied_but_for_scans() {
    let hits = |streams: u64| {
        let mut v = volume();
        let reads = (0..8192).map(|i| (i, (i % streams) * 65_536 + i / streams));
        reads.filter(|&(i, at)| read(&mut v, i, at)).count()
    };
    // Of a single stream the first 4 MiB are copied, of those that take turns everything; a few extents in part, as a measurement.
    assert!((700..1000).contains(&hits(1)), "{}", hits(1));
    assert!(hits(2) > 6000, "{}", hits(2));
}
