//! The copy that makes room: the one of some clean copies, drawn at random, that is worth least.
//!
//! A draw leads to three places in memory (the reverse map, the home behind the copy, the score), and on a large volume each of them is
//! a cache miss. So a whole sample is drawn ahead and each place is read for all of it before the next, which lets the misses overlap.
//! The draws are the same as one by one: those that were not needed are given back.

use super::Benefit;
use crate::policy::View;
use crate::volume::UnitId;

/// Clean copies that a victim is chosen from.
const SAMPLE: usize = 16;
/// Slots looked at to find them, in samples.
const SAMPLES: usize = 3;

impl Benefit {
    /// A number below `below`.
    pub(super) fn draw(&mut self, below: u32) -> u32 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (((self.seed >> 32) * u64::from(below)) >> 32) as u32
    }
    /// The clean copy that is worth least of some, and what it is worth.
    pub(super) fn victim(&mut self, view: &View<'_>) -> Option<(u64, UnitId)> {
        let (mut worst, mut seen) = (None::<(u64, UnitId)>, 0);
        for _ in 0..SAMPLES {
            let mut seeds = [0; SAMPLE];
            let seats = seeds.each_mut().map(|after| {
                let seat = view.seat(self.draw(self.fast));
                *after = self.seed;
                seat
            });
            let copies = seats.map(|s| view.copied_in(s));
            let scores = copies.map(|c| c.map_or((0, 0), |(e, _)| self.scores.entry(e)));
            for i in 0..SAMPLE {
                let Some((e, home)) = copies[i] else {
                    continue;
                };
                if view.is_dirty_in(seats[i]) || view.is_held(e) {
                    continue;
                }
                if view.in_flight_in(seats[i]) + view.in_flight_in(home) > 0 {
                    continue;
                }
                let this = (self.scores.worth_of(scores[i]), e);
                worst = Some(worst.map_or(this, |w| w.min(this)));
                seen += 1;
                if seen == SAMPLE {
                    self.seed = seeds[i];
                    return worst;
                }
            }
        }
        worst
    }
}
