//! The copy that makes room: the one of some clean copies, drawn at random, that is worth least.
//!
//! A draw leads to four places in memory (the dirty bit of the slot, the reverse map, the home behind the copy, the score), and on a large
//! volume each of the last three is a cache miss. So a whole sample is drawn ahead and each place is read for all of it before the next,
//! which lets the misses overlap. Of a slot whose copy is dirty only the bit is read: such copies count only if no clean one may go and the
//! newcomer was used lately ([`Benefit::is_a_dirty_one_worth_less`]), and then the same draws are made once more. The draws are the same as
//! one by one: those that were not needed are given back.

use super::Benefit;
use super::without::Part;
use crate::policy::{Position, View};
use crate::volume::UnitId;

/// Clean copies that a victim is chosen from.
const SAMPLE: usize = 16;
/// Slots looked at to find them, in samples.
const SAMPLES: usize = 3;

/// The draws of one search for a victim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// The seed before them, and how many there were.
    seed: u64,
    draws: usize,
}

/// The seed after a draw.
#[inline]
fn after(mut seed: u64) -> u64 {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    seed
}

/// The number below `below` that a draw gave which left this seed.
#[inline]
fn drawn(seed: u64, below: u32) -> u32 {
    (((seed >> 32) * u64::from(below)) >> 32) as u32
}

impl Benefit {
    /// A number below `below`.
    pub(super) fn draw(&mut self, below: u32) -> u32 {
        self.seed = after(self.seed);
        drawn(self.seed, below)
    }
    /// The clean copy of a sample that is worth least (or the home, if homes may go down), and the draws that found it.
    pub(super) fn victim(&mut self, view: &View<'_>) -> (Option<(u64, UnitId)>, Drawn) {
        let wanted = if self.has(Part::Worth) { SAMPLE } else { 1 };
        let homes = self.may_go_down(view);
        let (mut worst, mut seen, begun) = (None::<(u64, UnitId)>, 0, self.seed);
        for sample in 0..SAMPLES {
            let mut seeds = [0; SAMPLE];
            let (clean, cleans) = self.draw_sample(view, &mut seeds);
            let mut found = [(0, UnitId(0), view.position(0)); SAMPLE];
            let mut n = 0;
            for &i in &clean[..cleans] {
                let seat = view.position(drawn(seeds[usize::from(i)], self.fast));
                if let Some((e, home)) = view.copied_in(seat).or_else(|| at_home(view, seat, homes))
                {
                    found[n] = (i, e, home);
                    n += 1;
                }
            }
            let found = &found[..n];
            let mut scores = [(0, 0); SAMPLE];
            for (score, (_, e, _)) in scores.iter_mut().zip(found) {
                *score = self.scores.entry(*e);
            }
            for (&(i, e, home), score) in found.iter().zip(scores) {
                let seed = seeds[usize::from(i)];
                if !is_free(view, e, view.position(drawn(seed, self.fast)), home) {
                    continue;
                }
                let score = self.scores.worth_of(score);
                let this = (self.settings.order.worth(view, score, e), e);
                worst = Some(worst.map_or(this, |w| w.min(this)));
                seen += 1;
                if seen == wanted {
                    self.seed = seed;
                    let draws = sample * SAMPLE + usize::from(i) + 1;
                    return (worst, Drawn { seed: begun, draws });
                }
            }
        }
        let draws = SAMPLES * SAMPLE;
        (worst, Drawn { seed: begun, draws })
    }
    /// Makes a sample's draws, which leave these seeds. Returns the numbers of those that led to a slot without dirty data, and how many
    /// they are.
    #[inline]
    fn draw_sample(&mut self, view: &View<'_>, seeds: &mut [u64; SAMPLE]) -> ([u8; SAMPLE], usize) {
        let mut clean = [0; SAMPLE];
        let (mut n, mut seed, fast) = (0, self.seed, self.fast);
        for (i, left) in seeds.iter_mut().enumerate() {
            seed = after(seed);
            *left = seed;
            let dirty = view.is_dirty_in(view.position(drawn(seed, fast)));
            // Without a branch, as nothing foretells which it is.
            clean[n % SAMPLE] = i as u8;
            n += usize::from(!dirty);
        }
        self.seed = seed;
        (clean, n)
    }
    /// Whether one of the dirty copies that these draws met is worth less than `bar`, together with `price`.
    pub(super) fn is_a_dirty_one_worth_less(
        &self,
        view: &View<'_>,
        search: Drawn,
        (bar, price): (u64, u64),
    ) -> bool {
        let mut seed = search.seed;
        (0..search.draws).any(|_| {
            seed = after(seed);
            let seat = view.position(drawn(seed, self.fast));
            if !view.is_dirty_in(seat) {
                return false;
            }
            let owner = view.copied_in(seat);
            owner.is_some_and(|(e, home)| {
                is_free(view, e, seat, home) && bar > self.worth(view, e).saturating_add(price)
            })
        })
    }
}

/// Whether nothing is under way with a copy in `seat`, whose home is in `home`.
#[inline]
fn is_free(view: &View<'_>, e: UnitId, seat: Position, home: Position) -> bool {
    !view.is_held(e) && view.in_flight_in(seat) + view.in_flight_in(home) == 0
}

/// The extent whose home is in a seat of the fast tier, and that seat, if `homes` may be victims.
fn at_home(view: &View<'_>, s: Position, homes: bool) -> Option<(UnitId, Position)> {
    let owner = if homes { view.owner(s) } else { None };
    owner.filter(|e| view.home(*e) == Some(s)).map(|e| (e, s))
}
