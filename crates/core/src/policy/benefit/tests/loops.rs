//! Sets that are larger than flash and are read repeatedly, and what could deceive the choice between the two orders (`duel.rs`).
#![allow(clippy::unwrap_used)]

use super::orders::space;
use crate::null::NullEngine;
use crate::policy::Policy;
use crate::policy::benefit::Benefit;
use crate::policy::benefit::duel::Duel;
use crate::random::SplitMix64;
use crate::units::{ExtentId, Nanos};
use crate::volume::{Space, UnitId};
use alloc::vec::Vec;

const FAST: u32 = 1024;
const UNITS: u32 = 16 * FAST;

/// A volume with an access every 20 ms.
struct Volume {
    engine: NullEngine<Benefit>,
    now: u64,
}

impl Volume {
    fn new(fast: u32, without: &str) -> Volume {
        Volume::over(space(fast, UNITS), without)
    }
    fn over(space: Space, without: &str) -> Volume {
        let mut policy = Benefit::default();
        policy.set_name("without", without).unwrap();
        let engine = NullEngine::over(space, policy);
        Volume { engine, now: 0 }
    }
    /// Reads the first block of an extent. Returns whether flash had it.
    fn read(&mut self, e: u32) -> bool {
        self.now += 1;
        let request = (u64::from(e) << 16, 4096);
        let at = Nanos::from_millis(20 * self.now);
        self.engine.access(at, ExtentId(e), false, 0, request)
    }
    /// Reads all of these extents. Returns the hits.
    fn round(&mut self, extents: &[u32]) -> u32 {
        extents.iter().map(|e| u32::from(self.read(*e))).sum()
    }
    fn stays(&mut self) -> bool {
        let at = Nanos::from_millis(20 * self.now);
        let text = self.engine.explain(at, ExtentId(0));
        text.contains("even before its latest access")
    }
}

/// `len` extents from `first` on, in order or at random.
fn set(first: u32, len: u32, in_order: bool) -> Vec<u32> {
    let mut all: Vec<u32> = (first..first + len).collect();
    let mut random = SplitMix64::new(7);
    for i in (1..all.len()).rev().filter(|_| !in_order) {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
    all
}

/// A set of `percent` of the fast slots.
fn of_flash(first: u32, percent: u32) -> Vec<u32> {
    set(first, FAST * percent / 100, false)
}

#[test]
fn loops_have_nearly_the_hits_of_the_best_choice() {
    for in_order in [true, false] {
        for (percent, share) in [(110, 90), (125, 90), (150, 90), (200, 90), (300, 85)] {
            let extents = set(0, FAST * percent / 100, in_order);
            let hits = |without| {
                let mut v = Volume::new(FAST, without);
                (0..8).map(|_| v.round(&extents)).sum::<u32>()
            };
            // In each round but the first the best choice has a hit for each slot but one.
            let best = 7 * (FAST - 1);
            let (mine, usual) = (hits("none"), hits("duel"));
            let what = (in_order, percent, mine, usual, best);
            assert!(mine * 100 >= best * share, "{what:?}");
            assert!(in_order || usual * 2 < best, "{what:?}");
        }
    }
}

#[test]
fn a_loop_that_ends_leaves_flash_to_a_set_that_fits() {
    for percent in [20, 60, 95] {
        let mut v = Volume::new(FAST, "none");
        let (before, after) = (of_flash(0, 150), of_flash(4 * FAST, percent));
        for _ in 0..6 {
            v.round(&before);
        }
        assert!(v.stays());
        let rounds: Vec<u32> = (0..4).map(|_| v.round(&after)).collect();
        let all = after.len() as u32;
        assert!(rounds[2] * 10 >= all * 7, "{percent}: {rounds:?}");
        assert!(rounds[3] * 100 >= all * 98, "{percent}: {rounds:?}");
    }
}

#[test]
fn what_is_hot_beside_a_loop_stays_hot() {
    let hits = |without| {
        let (mut v, mut random) = (Volume::new(FAST, without), SplitMix64::new(3));
        let (mut hot, mut cold) = (0, 0);
        for _ in 0..8 {
            for e in of_flash(0, 150) {
                cold += u32::from(v.read(e));
                hot += u32::from(v.read(8 * FAST + random.below(200) as u32));
            }
        }
        (hot, cold)
    };
    let (mine, usual) = (hits("none"), hits("duel"));
    let reads = 8 * FAST * 3 / 2;
    assert!(
        mine.0 * 100 >= reads * 96 && mine.1 > 2 * usual.1,
        "{mine:?} {usual:?}"
    );
    // 824 slots for the loop.
    assert!(mine.1 * 100 >= 7 * 824 * 85, "{mine:?}");
}

#[test]
fn a_loop_that_fits_is_as_before() {
    let hits = |without| {
        let mut v = Volume::new(FAST, without);
        let extents = of_flash(0, 95);
        (0..5).map(|_| v.round(&extents)).collect::<Vec<_>>()
    };
    let all = FAST * 95 / 100;
    assert_eq!(hits("none"), hits("duel"));
    assert_eq!(hits("none")[2..], [all; 3]);
}

#[test]
fn phases_that_alternate_cost_a_part_of_flash_each() {
    // A loop teaches that copies should stay; then sets that fit are used for a few rounds each, for which that is wrong.
    for (rounds, sets, times) in [(1, 3, 2), (2, 1, 3), (3, 2, 4), (4, 8, 3)] {
        let run = |without| {
            let (mut v, mut hits) = (Volume::new(FAST, without), 0);
            for _ in 0..6 {
                for _ in 0..rounds {
                    hits += v.round(&of_flash(0, 200));
                }
                for s in 0..sets {
                    let extents = of_flash((2 + s) * FAST, 80);
                    for _ in 0..times {
                        hits += v.round(&extents);
                    }
                }
            }
            hits
        };
        let (mine, usual) = (run("none"), run("duel"));
        let phases = 6;
        assert!(
            mine + phases * FAST / 2 >= usual,
            "{rounds} {sets} {times}: {mine} {usual}"
        );
    }
}

#[test]
fn without_accesses_to_the_sample_the_usual_order_returns() {
    let duel = Duel::new(FAST);
    let mut v = Volume::new(FAST, "none");
    for _ in 0..3 {
        v.round(&of_flash(0, 150));
    }
    assert!(v.stays());
    let unseen = (4 * FAST..UNITS).filter(|e| !duel.samples(UnitId(*e)));
    let unseen: Vec<u32> = unseen.take(FAST as usize / 2).collect();
    v.round(&unseen);
    assert!(!v.stays());
    // The second half of the first round was copied, and the rest in the second.
    assert_eq!(v.round(&unseen) + v.round(&unseen), FAST / 4 + FAST / 2);
}

#[test]
fn on_a_small_flash_nothing_changes() {
    for fast in [1, 2, 16, 64, 255] {
        let run = |without| {
            let (mut v, mut random) = (Volume::new(fast, without), SplitMix64::new(9));
            let extents = set(0, fast * 2, false);
            for _ in 0..20 {
                v.round(&extents);
                for _ in 0..fast {
                    v.read(random.below(fast.into()) as u32);
                }
            }
            (0..UNITS)
                .map(|e| v.engine.copy(ExtentId(e)))
                .collect::<Vec<_>>()
        };
        assert_eq!(run("none"), run("duel"), "{fast} slots");
    }
}

#[test]
fn after_a_restart_a_loop_goes_on() {
    let mut v = Volume::new(FAST, "none");
    let extents = of_flash(0, 150);
    for _ in 0..4 {
        v.round(&extents);
    }
    let mut again = Volume::over(v.engine.space().clone(), "none");
    let rounds: Vec<u32> = (0..3).map(|_| again.round(&extents)).collect();
    // One round shows again that copies should stay.
    assert!(rounds[1] * 100 >= FAST * 95, "{rounds:?}");
    assert!(again.stays());
}

#[test]
fn the_same_accesses_give_the_same_copies() {
    let run = || {
        let mut v = Volume::new(FAST, "none");
        let mut random = SplitMix64::new(5);
        for _ in 0..4 {
            v.round(&of_flash(0, 150));
            for _ in 0..FAST {
                v.read(random.below(UNITS.into()) as u32);
            }
        }
        let copies = (0..UNITS).map(|e| v.engine.copy(ExtentId(e)));
        (copies.collect::<Vec<_>>(), v.engine.bytes())
    };
    assert_eq!(run(), run());
}
