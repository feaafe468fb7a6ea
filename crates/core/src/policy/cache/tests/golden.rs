//! Short sequences, computed by hand.

use super::{Engine, access, engine};
use crate::volume::UnitId;
use alloc::vec::Vec;

/// Reads these extents in order. Returns the positions of the accesses that hit.
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

/// F = 2. Accesses r0 w1 r0 r2 r1 r0. 0 and 1 get copies. 0 is hit, which does not change the queue 0 1. 2 evicts 0, which is clean; the
/// queue is 1 2. 1 is hit; it is dirty, because its copy was made by a write. r0 evicts 1, which is written home.
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

/// F = 3. After 0 0 1 2 the counts are 0:2 1:1 2:1. Another access to 1 gives 1:2. 3 evicts 2, the only one with count 1. Then 3 has 1, and
/// 4 evicts it: 0:2 1:2 4:1. After another access to 4, all have 2, and their last accesses were in the order 0, 1, 4. So 5 evicts 0. A
/// count is forgotten at eviction: 0 returns with count 1 and evicts 5 (count 1). 6 evicts 0 (count 1), although 0 was accessed four times
/// in total.
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

/// c = 2 (figure 4 of the paper, computed by hand; the most recently used is on the right).
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

/// F = 4: the small queue has max(1, 0) = 1 place, main has 3, and there are 3 ghosts.
///
/// 0 fills the small queue. There was no eviction yet, so 1 2 3 enter main. 0 is hit twice, 1 once. Access to 4: main is not over its size,
/// so the small queue must give a victim. But 0 has two hits and moves to main (1 2 3 0), and the small queue is empty. So main gives the
/// victim: 1 has one hit and is inserted again with none; 2 is evicted without a ghost. Now small is 4, main is 3 0 1. 5: the victim is 4
/// from small, which leaves a ghost. 4 is found among the ghosts: the victim is 5 from small, which leaves a ghost, and 4 enters main: 3 0
/// 1 4, small is empty. 6: main has 4 > 3 units, so 3 is evicted: small is 6, main is 0 1 4. 3 has no ghost: 6 is evicted (ghosts 5 6), and
/// 3 enters small. 6 is found: 3 is evicted (ghosts 5 3), main is 0 1 4 6, small is empty. 0 is hit. 7: main is over its size: 0 is
/// inserted again with no hits left, and 1 is evicted.
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

/// F = 3. The queue is 0 1 2, from old to young; 0 and 2 are hit. 3: the hand starts at the old end, clears the bit of 0, evicts 1 and is
/// then at 2; the queue is 0 2 3. 4: the bit of 2 is cleared, and 3 is evicted (new and not used); the hand is after the young end; the
/// queue is 0 2 4. 5: the hand continues at the old end; the bit of 0 is not set any more, so 0 is evicted, and the hand is at 2; the queue
/// is 2 4 5. 2 is hit. 6: the bit of 2 is cleared, and 4 is evicted.
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

/// F = 5: the window has max(1, 0.05) = 1 place, main has 4, and protected has ⌊3.2⌋ = 3 of these.
///
/// 0 enters the window; 1 moves it to probation, and so on: 0 1 2 3 are in probation, 4 is in the window. 0 is accessed twice more and
/// moves to protected. 5: the candidate 4 (accessed once) is compared with 1, the oldest of probation (once). They are equal, so the
/// resident stays, and 4 is evicted. 5 is accessed again (in the window). 6: the candidate 5 (twice) is compared with 1 (once): 1 is
/// evicted, and 5 moves to probation: 2 3 5. 7: the candidate 6 (once) is compared with 2 (once): 6 is evicted.
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

/// F = 2: there are two levels; a miss is admitted from level max(1, 2/8) = 1 on; a hit moves an entry up by max(1, 2/8) = 1 level; there
/// are two hotspot entries; ⌊0.1 · 2⌋ = 0 slots may be dirty.
///
/// 0 and 1 fill the free slots and are in the hotspot queue at level 0. 2 is new there: the lowest entry, 0, is removed; level 0 is too
/// low, so 2 gets no copy. 2 again: it moves to level 1 and is admitted; the lowest clean copy, 0, is evicted. A write makes 1 dirty, which
/// is more than 0 dirty slots: it is written home after the access.
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

/// F = 3. 0 is hit. 3: the hand finds the bit of 0, clears it and moves on, and 1 leaves: 2 0 3. 4 evicts 2: 0 3 4. 0 is hit. 5: 0 gets its
/// second round, 3 leaves: 4 0 5. 6 evicts 4, and 7 evicts 0.
#[test]
fn clock() {
    let mut e = engine("clock", 3, 8);
    assert_eq!(play(&mut e, &[0, 1, 2, 0, 3]), [3]);
    assert_eq!(cached(&e, 8), [0, 2, 3]);
    assert_eq!(play(&mut e, &[4, 0, 5]), [1]);
    assert_eq!(cached(&e, 8), [0, 4, 5]);
    assert_eq!(play(&mut e, &[6, 7]), []);
    assert_eq!(cached(&e, 8), [5, 6, 7]);
}

/// F = 4: Kin is 1, Kout is 2.
///
/// | access | A1in | A1out | Am |
/// |---|---|---|---|
/// | 0 1 2 3 4 | 1 2 3 4 | 0 | |
/// | 0 (known) | 2 3 4 | 1 | 0 |
/// | 2 (a hit, which changes nothing), 5 | 3 4 5 | 1 2 | 0 |
/// | 6 | 4 5 6 | 2 3 | 0 |
/// | 1 (forgotten) | 5 6 1 | 3 4 | 0 |
/// | 3, 4 (known) | 1 | 5 6 | 0 3 4 |
/// | 0 (a hit), 7: A1in is not over Kin, so Am gives 3 | 1 7 | 5 6 | 4 0 |
#[test]
fn two_q() {
    let mut e = engine("two-q", 4, 8);
    assert_eq!(play(&mut e, &[0, 1, 2, 3, 4, 0, 2, 5]), [6]);
    assert_eq!(cached(&e, 8), [0, 3, 4, 5]);
    assert_eq!(play(&mut e, &[6, 1]), []);
    assert_eq!(cached(&e, 8), [0, 1, 5, 6]);
    assert_eq!(play(&mut e, &[3, 4]), []);
    assert_eq!(cached(&e, 8), [0, 1, 3, 4]);
    assert_eq!(play(&mut e, &[0, 7]), [0]);
    assert_eq!(cached(&e, 8), [0, 1, 4, 7]);
}

/// F = 2; the pairs are (last access but one, last access). 0 (1, 2), 1 (-, 3). At 4, 2 evicts 1, which is remembered with 3. At 5, 1
/// returns as (3, 5) and evicts 2. At 6, 3 evicts 0 (1, 2). At 7, 0 returns as (2, 7) and evicts 3. At 8, 1 is hit (5, 8). At 9, 4 evicts 0,
/// and 2 is forgotten, as only two are remembered: at 10 it is new, and evicts 4 (-, 9). At 11, 4 returns as (9, 11) and evicts 2 (-, 10).
#[test]
fn lru_2() {
    let mut e = engine("lru-2", 2, 8);
    assert_eq!(play(&mut e, &[0, 0, 1, 2]), [1]);
    assert_eq!(cached(&e, 8), [0, 2]);
    assert_eq!(play(&mut e, &[1, 3]), []);
    assert_eq!(cached(&e, 8), [1, 3]);
    assert_eq!(play(&mut e, &[0, 1, 4]), [1]);
    assert_eq!(cached(&e, 8), [1, 4]);
    assert_eq!(play(&mut e, &[2]), []);
    assert_eq!(cached(&e, 8), [1, 2]);
    assert_eq!(play(&mut e, &[4]), []);
    assert_eq!(cached(&e, 8), [1, 4]);
}

/// F = 3: two slots are for LIR units. S from its bottom; a ghost has a prime.
///
/// | access | S | LIR | Q |
/// |---|---|---|---|
/// | 0 1 2 | 0 1 2 | 0 1 | 2 |
/// | 0: from the bottom to the top | 1 2 0 | 0 1 | 2 |
/// | 3: 2 leaves | 1 2' 0 3 | 0 1 | 3 |
/// | 2: 3 leaves; 2 was in S, so it is LIR and 1 goes to Q | 0 3' 2 | 0 2 | 1 |
/// | 1: not in S | 0 3' 2 1 | 0 2 | 1 |
/// | 1: in S, so it is LIR, 0 goes to Q, and 3' is below the lowest LIR unit | 2 1 | 2 1 | 0 |
/// | 4: 0 leaves without a ghost | 2 1 4 | 2 1 | 4 |
/// | 3: forgotten; 4 leaves | 2 1 4' 3 | 2 1 | 3 |
#[test]
fn lirs() {
    let mut e = engine("lirs", 3, 8);
    assert_eq!(play(&mut e, &[0, 1, 2, 0, 3]), [3]);
    assert_eq!(cached(&e, 8), [0, 1, 3]);
    assert_eq!(play(&mut e, &[2]), []);
    assert_eq!(cached(&e, 8), [0, 1, 2]);
    assert_eq!(play(&mut e, &[1, 1, 4]), [0, 1]);
    assert_eq!(cached(&e, 8), [1, 2, 4]);
    assert_eq!(play(&mut e, &[3]), []);
    assert_eq!(cached(&e, 8), [1, 2, 3]);
}
