//! The choice of the copy to evict: the least valuable of some clean copies that are drawn at random.
//!
//! A draw leads to three places in memory (the dirty bit of the slot, its row in the map, the score; in a tiering volume also the home behind
//! the copy), and on a large volume all but the first are cache misses. So a whole sample is drawn first, and each place is read for all of
//! it before the next place, which lets the cache misses overlap. If the copy in a slot is dirty, only the bit is read. Dirty copies matter only if no clean
//! copy may be evicted and the new extent was used recently ([`Benefit::has_dirty_candidate_below`]); then the same draws are repeated.
//! The results are the same as if the draws were made one by one: if a sample is not used completely, the seed is set back to that after
//! the last used draw.
//!
//! The median of the worth of such a sample decides which copies are kept over a crash ([`Policy::keeps_over_crash`]). Nearly all victims are
//! worth less than it, so a write that takes the slot of one hardly ever waits for a round, also in a burst of writes after hours of rest. Such
//! a round takes a tenth of a millisecond, but there is one round at a time, and one for cleans that is in progress flushes the slow device.
//! (msr-rsrch_1: 0.70 ms with records of all copies, 0.18 ms with those of eleven of 16, 0.13 ms with those of eight, 0.12 ms with none.)
//!
//! [`Policy::keeps_over_crash`]: crate::policy::Policy::keeps_over_crash
//!
//! Each draw depends on the one before it, and this chain takes longer than all other work of a search. But a draw is linear in the bits of
//! the seed, so the seed after a whole sample is the exclusive or of 16 entries of a table ([`SKIP`]). If the first sample was not enough,
//! the second and the third are therefore computed in parallel.

use super::Benefit;
use super::without::Part;
use crate::policy::{Position, View};
use crate::volume::UnitId;
use core::array;

/// Number of clean copies from which the victim is chosen. It is also the number of slots in a sample.
const SAMPLE: usize = 16;
/// At one in this number of misses the median worth of the sample is noted.
const MEDIAN_EVERY: u32 = 4;
/// Maximum number of samples in a search.
const SAMPLES: usize = 3;

/// The draws of one search for a victim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    /// The seed before them, and their number.
    seed: u64,
    draws: usize,
}

/// The state of a search for a victim.
struct Search {
    /// Number of clean copies that are still to be found.
    wanted: usize,
    /// Whether homes may go down.
    homes: bool,
    /// The class of the new copy, and the worth of one access.
    newcomer: Option<u8>,
    one: u64,
    /// The least valuable one so far, with its worth.
    worst: Option<(u64, UnitId)>,
    /// The worth of each.
    worths: [u64; SAMPLE],
    /// The candidates of the present sample: number of the draw, extent, home. The array is here so that it is cleared only once.
    candidates: [(u8, UnitId, Position); SAMPLE],
}

/// The seed after a draw.
#[inline]
pub(super) const fn next_seed(mut seed: u64) -> u64 {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    seed
}

/// For each value of each four bits of a seed: their contribution to the seed after [`SAMPLE`] draws.
const SKIP: [[u64; 16]; 16] = skip();

const fn skip() -> [[u64; 16]; 16] {
    let mut table = [[0; 16]; 16];
    let mut i = 0;
    while i < 256 {
        let mut seed = (i as u64 % 16) << (i / 16 * 4);
        let mut n = 0;
        while n < SAMPLE {
            seed = next_seed(seed);
            n += 1;
        }
        table[i / 16][i % 16] = seed;
        i += 1;
    }
    table
}

/// The seed after [`SAMPLE`] draws.
#[inline]
fn seed_after_sample(seed: u64) -> u64 {
    let each = |(i, part): (usize, &[u64; 16])| part[(seed >> (4 * i)) as usize % 16];
    SKIP.iter().enumerate().map(each).fold(0, |a, b| a ^ b)
}

/// The seeds after each draw of `N` samples: by draw, then by sample.
type Seeds<const N: usize> = [[u64; N]; SAMPLE];

/// Makes the draws of `N` samples, each of which begins with one of these seeds.
#[inline]
fn draw_samples<const N: usize>(mut seeds: [u64; N]) -> Seeds<N> {
    array::from_fn(|_| {
        seeds = seeds.map(next_seed);
        seeds
    })
}

/// The result of the draw that left this seed: a number below `below`.
#[inline]
pub(super) fn draw_result(seed: u64, below: u32) -> u32 {
    (((seed >> 32) * u64::from(below)) >> 32) as u32
}

impl Benefit {
    /// Searches for a victim: the least valuable one of up to [`SAMPLE`] clean copies (or homes on flash, if they may be demoted). Also
    /// returns the draws of the search. `newcomer`: the class of the new copy, if the slot is for one.
    pub(super) fn victim(
        &mut self,
        view: &View<'_>,
        newcomer: Option<u8>,
    ) -> (Option<(u64, UnitId)>, Draws) {
        let mut search = Search {
            wanted: if self.has(Part::Worth) { SAMPLE } else { 1 },
            homes: self.may_demote(view),
            newcomer,
            one: self.one_access(view),
            worst: None,
            worths: [0; SAMPLE],
            candidates: [(0, UnitId(0), view.position(0)); SAMPLE],
        };
        let begun = self.seed;
        let draws = self.search(view, &mut search);
        if search.wanted == 0 && self.scores.clock().is_multiple_of(MEDIAN_EVERY) {
            self.usual_worth = *search.worths.select_nth_unstable(SAMPLE / 2).1;
        }
        (search.worst, Draws { seed: begun, draws })
    }
    /// Looks at samples until there are enough clean copies. Returns the number of draws.
    fn search(&mut self, view: &View<'_>, search: &mut Search) -> usize {
        let first = draw_samples([self.seed]);
        if let Some(n) = self.examine_sample(view, search, (&first, 0)) {
            return n;
        }
        let rest = draw_samples([self.seed, seed_after_sample(self.seed)]);
        for sample in 0..SAMPLES - 1 {
            if let Some(n) = self.examine_sample(view, search, (&rest, sample)) {
                return (sample + 1) * SAMPLE + n;
            }
        }
        SAMPLES * SAMPLE
    }
    /// Looks at one sample, until there are enough clean copies. Returns the number of its draws, if there are enough.
    #[inline]
    fn examine_sample<const N: usize>(
        &mut self,
        view: &View<'_>,
        search: &mut Search,
        (seeds, sample): (&Seeds<N>, usize),
    ) -> Option<usize> {
        self.seed = seeds[SAMPLE - 1][sample];
        let slot = |i: usize| view.position(draw_result(seeds[i][sample], self.fast_slots));
        // There is no branch, because the processor could not predict it.
        let mut clean = (0..SAMPLE).fold(0u32, |set, i| {
            set | u32::from(!view.is_dirty_in(slot(i))) << i
        });
        let mut n = 0;
        while clean != 0 {
            let i = clean.trailing_zeros() as usize % SAMPLE;
            clean &= clean - 1;
            let owner = view.copied_in(slot(i));
            if let Some((e, home)) = owner.or_else(|| at_home(view, slot(i), search.homes)) {
                search.candidates[n % SAMPLE] = (i as u8, e, home);
                n += 1;
            }
        }
        let found = &search.candidates[..n];
        let mut scores = [(0, 0); SAMPLE];
        let places = found.iter().map(|c| (c.1, slot(usize::from(c.0) % SAMPLE)));
        self.scores.entries(places, &mut scores);
        for (&(i, e, home), score) in found.iter().zip(scores) {
            let i = usize::from(i) % SAMPLE;
            if !is_free(view, e, slot(i), home) {
                continue;
            }
            let class = self.class_at(view, e, slot(i), search.homes);
            if !self.classes.may_leave(class, search.newcomer) {
                continue;
            }
            let score = self.scores.worth_of(score);
            let this = (self.worth_in_order(view, score, e, (class, search.one)), e);
            search.worst = Some(search.worst.map_or(this, |w| w.min(this)));
            search.wanted -= 1;
            search.worths[search.wanted % SAMPLE] = this.0;
            if search.wanted == 0 {
                self.seed = seeds[i][sample];
                return Some(i + 1);
            }
        }
        None
    }
    /// Whether one of the dirty copies that these draws met is worth less than `bar`, together with `price`.
    pub(super) fn has_dirty_candidate_below(
        &self,
        view: &View<'_>,
        search: Draws,
        (bar, price): (u64, u64),
    ) -> bool {
        let mut seed = search.seed;
        (0..search.draws).any(|_| {
            seed = next_seed(seed);
            let slot = view.position(draw_result(seed, self.fast_slots));
            if !view.is_dirty_in(slot) {
                return false;
            }
            let owner = view.copied_in(slot);
            owner.is_some_and(|(e, home)| {
                is_free(view, e, slot, home) && bar > self.worth(view, e).saturating_add(price)
            })
        })
    }
}

/// Whether no operation is in progress on a copy in `slot` whose home is in `home`.
#[inline]
fn is_free(view: &View<'_>, e: UnitId, slot: Position, home: Position) -> bool {
    !view.is_held(e) && view.in_flight_in(slot) + view.in_flight_in(home) == 0
}

/// The extent whose home is in this slot of the fast tier, and the slot, if `homes` may be victims.
fn at_home(view: &View<'_>, s: Position, homes: bool) -> Option<(UnitId, Position)> {
    let owner = if homes { view.owner(s) } else { None };
    owner.filter(|e| view.home(*e) == Some(s)).map(|e| (e, s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_side_by_side_are_the_draws_one_by_one() {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..100 {
            let samples = draw_samples([seed, seed_after_sample(seed)]);
            for sample in 0..2 {
                for left in &samples {
                    seed = next_seed(seed);
                    assert_eq!(left[sample], seed);
                }
            }
        }
    }
}
