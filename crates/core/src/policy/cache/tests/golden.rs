//! Short sequences worked out by hand.

use super::{Engine, access, engine};
use crate::volume::UnitId;
use alloc::vec::Vec;

/// Plays reads (`w` = write before the number in `writes`); returns the accesses that hit, by position.
fn play(e: &mut Engine, reads: &[u32]) -> Vec<usize> {
    let hits = reads.iter().map(|x| access(e, *x, false));
    let hits: Vec<bool> = hits.collect();
    (0..reads.len()).filter(|i| hits[*i]).collect()
}

fn cached(e: &Engine, extents: u32) -> Vec<u32> {
    (0..extents)
        .filter(|x| e.copy(UnitId(*x)).is_some())
        .collect()
}

/// F = 2. r0 w1 r0 r2 r1: 0 and 1 are fetched, 0 hit (which changes nothing in the queue 0 1), 2 evicts 0 (clean), queue 1 2;
/// 1 is hit: it was fetched by a write, so it is dirty. r0 evicts 1: written home.
#[test]
fn fifo() {
    let mut e = engine("fifo", 2, 8);
    let hits = [
        (0, false),
        (1, true),
        (0, false),
        (2, false),
        (1, false),
        (0, false),
    ]
    .map(|(x, w)| access(&mut e, x, w));
    assert_eq!(hits, [false, false, true, false, true, false]);
    let c = e.counters();
    assert_eq!((c.fetches, c.evictions, c.writebacks), (4, 2, 1));
    assert_eq!(cached(&e, 8), [0, 2]);
}

/// F = 3. 0 0 1 2: counts 0:2 1:1 2:1. 1 again: 1:2. 3 evicts 2, the only one with 1. Then 3:1, and 4 evicts 3. Counts 0:2
/// 1:2 4:1. 4 again: all have 2, last touched in the order 0, 1, 4. 5 evicts 0. A count is forgotten at eviction: 0 comes
/// back with 1 and evicts 5 (1); 6 evicts 0 (1), although 0 was touched four times in all.
#[test]
fn lfu() {
    let mut e = engine("lfu", 3, 8);
    assert_eq!(play(&mut e, &[0, 0, 1, 2, 1, 3, 4, 4]), [1, 4, 7]);
    assert_eq!(cached(&e, 8), [0, 1, 4]);
    assert!(!access(&mut e, 5, false));
    assert_eq!(cached(&e, 8), [1, 4, 5]);
    assert!(!access(&mut e, 0, false));
    assert_eq!(cached(&e, 8), [0, 1, 4]);
    assert!(!access(&mut e, 6, false));
    assert_eq!(cached(&e, 8), [1, 4, 6]);
}

/// c = 2 (figure 4 of the paper by hand; MRU on the right).
///
/// | access | case | p | T1 | B1 | T2 | B2 |
/// |---|---|---|---|---|---|---|
/// | 0 | IV B, not full | 0 | 0 | | | |
/// | 0 | I | 0 | | | 0 | |
/// | 1 | IV B, L1 + L2 = 1 | 0 | 1 | | 0 | |
/// | 2 | IV B, L1 + L2 = 2 = c; |T1| = 1 > p: 1 → B1 | 0 | 2 | 1 | 0 | |
/// | 1 | II: |B1| = 1 ≥ |B2| = 0: p = 1; |T1| = 1 is not > 1 and 1 is not in B2: 0 → B2; 1 → T2 | 1 | 2 | | 1 | 0 |
/// | 0 | III: |B2| = 1 ≥ |B1| = 0: p = 0; |T1| = 1 > 0: 2 → B1; 0 → T2 | 0 | | 2 | 1 0 | |
/// | 3 | IV B, L1 = 1, L1 + L2 = 3 ≥ c: |T1| = 0: 1 → B2; 3 → T1 | 0 | 3 | 2 | 0 | 1 |
/// | 4 | IV A, L1 = 2 = c, |T1| = 1 < c: drop 2 of B1; |T1| = 1 > 0: 3 → B1 | 0 | 4 | 3 | 0 | 1 |
/// | 0 | I | 0 | 4 | 3 | 0 | 1 |
/// | 2 | IV A again (2 is forgotten): drop 3; 4 → B1 | 0 | 2 | 4 | 0 | 1 |
#[test]
fn arc() {
    let mut e = engine("arc", 2, 8);
    assert_eq!(play(&mut e, &[0, 0, 1, 2]), [1]);
    assert_eq!(cached(&e, 8), [0, 2]);
    assert_eq!(play(&mut e, &[1]), []);
    assert_eq!(cached(&e, 8), [1, 2]);
    assert_eq!(play(&mut e, &[0]), []);
    assert_eq!(cached(&e, 8), [0, 1]);
    assert_eq!(play(&mut e, &[3]), []);
    assert_eq!(cached(&e, 8), [0, 3]);
    assert_eq!(play(&mut e, &[4, 0, 2]), [1]);
    assert_eq!(cached(&e, 8), [0, 2]);
}

/// F = 4: small = max(1, 0) = 1, main = 3, ghosts 3.
///
/// 0 fills small; nothing had to go yet, so 1 2 3 enter main. 0 is hit twice, 1 once. 4: main is not over its size, so small
/// gives: 0 has two hits, on to main (1 2 3 0); small is empty, so main gives: 1 has a hit, goes round with none; 2 goes,
/// without a ghost. Small 4, main 3 0 1. 5: small gives 4, ghost 4. 4 is found: small gives 5, ghost 5; 4 enters main: 3 0 1
/// 4, small empty. 6: main has 4 > 3: 3 goes. Small 6, main 0 1 4. 3 left no ghost: 6 goes (ghosts 5 6), 3 enters small. 6 is
/// found: 3 goes (5 3), main 0 1 4 6, small empty. 0 is hit. 7: main is over: 0 goes round with none left, 1 goes.
#[test]
fn s3_fifo() {
    let mut e = engine("s3-fifo", 4, 8);
    assert_eq!(play(&mut e, &[0, 1, 2, 3, 0, 0, 1, 4]), [4, 5, 6]);
    assert_eq!(cached(&e, 8), [0, 1, 3, 4]);
    assert_eq!(play(&mut e, &[5]), []);
    assert_eq!(cached(&e, 8), [0, 1, 3, 5]);
    assert_eq!(play(&mut e, &[4]), []);
    assert_eq!(cached(&e, 8), [0, 1, 3, 4]);
    assert_eq!(play(&mut e, &[6]), []);
    assert_eq!(cached(&e, 8), [0, 1, 4, 6]);
    assert_eq!(play(&mut e, &[3]), []);
    assert_eq!(cached(&e, 8), [0, 1, 3, 4]);
    assert_eq!(play(&mut e, &[6, 0, 7]), [1]);
    assert_eq!(cached(&e, 8), [0, 4, 6, 7]);
}

/// F = 3. 0 1 2, old to young; 0 and 2 are hit. 3: the hand starts at the old end, clears 0, takes 1 and then stands at 2.
/// Queue 0 2 3. 4: 2 is cleared, 3 taken (new and unused); the hand is past the young end. Queue 0 2 4. 5: from the old end:
/// 0 is not set (cleared before): taken, hand at 2. Queue 2 4 5. 2 is hit. 6: 2 is cleared, 4 taken.
#[test]
fn sieve() {
    let mut e = engine("sieve", 3, 8);
    assert_eq!(play(&mut e, &[0, 1, 2, 0, 2, 3]), [3, 4]);
    assert_eq!(cached(&e, 8), [0, 2, 3]);
    assert_eq!(play(&mut e, &[4]), []);
    assert_eq!(cached(&e, 8), [0, 2, 4]);
    assert_eq!(play(&mut e, &[5, 2, 6]), [1]);
    assert_eq!(cached(&e, 8), [2, 5, 6]);
}

/// F = 5: window max(1, 0.05) = 1, main 4, protected ⌊3.2⌋ = 3.
///
/// 0 enters the window; 1 pushes it to probation, and so on: 0 1 2 3 in probation, 4 in the window. 0 is touched twice
/// more: protected. 5: candidate 4 (touched once) against 1, the oldest of probation (once): equal, the resident stays, 4
/// goes. 5 is touched again (in the window). 6: candidate 5 (twice) against 1 (once): 1 goes, 5 moves to probation: 2 3 5.
/// 7: candidate 6 (once) against 2 (once): 6 goes.
#[test]
fn w_tinylfu() {
    let mut e = engine("w-tinylfu", 5, 8);
    assert_eq!(play(&mut e, &[0, 1, 2, 3, 4, 0, 0]), [5, 6]);
    assert_eq!(play(&mut e, &[5]), []);
    assert_eq!(cached(&e, 8), [0, 1, 2, 3, 5]);
    assert_eq!(play(&mut e, &[5, 6]), [0]);
    assert_eq!(cached(&e, 8), [0, 2, 3, 5, 6]);
    assert_eq!(play(&mut e, &[7]), []);
    assert_eq!(cached(&e, 8), [0, 2, 3, 5, 7]);
}

/// F = 2: two levels, a bar of max(1, 2/8) = 1, steps of max(1, 2/8) = 1, two hotspot entries; ⌊0.1 · 2⌋ = 0 slots may be
/// dirty.
///
/// 0 and 1 fill the free slots and stand in the hotspot queue at level 0. 2 is new there: the lowest, 0, is forgotten; level
/// 0 is below the bar: no copy. 2 again: it rises to level 1 and is let in; the lowest clean copy, 0, goes. A write of 1
/// makes it dirty, which is more than 0: it is written home after the access.
#[test]
fn smq() {
    let mut e = engine("smq", 2, 8);
    assert_eq!(play(&mut e, &[0, 1, 2]), []);
    assert_eq!(cached(&e, 8), [0, 1]);
    assert_eq!(play(&mut e, &[2]), []);
    assert_eq!(cached(&e, 8), [1, 2]);
    assert!(access(&mut e, 1, true));
    let c = e.counters();
    assert_eq!((c.fetches, c.evictions, c.writebacks), (3, 1, 0));
    // The write reaches the copy after the policy was asked, so the next access finds it.
    assert!(access(&mut e, 2, false));
    assert_eq!(e.counters().writebacks, 1);
}
