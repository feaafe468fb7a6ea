//! The copy that makes room: the one of some clean copies, drawn at random, that is worth least.
//!
//! A draw leads to three places in memory (the reverse map, the home behind the copy, the score), and on a large volume each of them is
//! a cache miss. So a whole sample is drawn ahead and each place is read for all of it before the next, which lets the misses overlap.
//! The draws are the same as one by one: those that were not needed are given back.

use super::Benefit;
use super::without::Part;
use crate::policy::View;
use crate::volume::{Seat, UnitId};

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
    /// Of some copies, the clean one that is worth least with what it is worth (or the home, where homes may go down), and what the dirty
    /// one is worth that is worth least.
    pub(super) fn victim(&mut self, view: &View<'_>) -> (Option<(u64, UnitId)>, Option<u64>) {
        let sample = if self.has(Part::Worth) { SAMPLE } else { 1 };
        let (mut worst, mut dirty, mut seen) = (None::<(u64, UnitId)>, None::<u64>, 0);
        for _ in 0..SAMPLES {
            let mut seeds = [0; SAMPLE];
            let seats = seeds.each_mut().map(|after| {
                let seat = view.seat(self.draw(self.fast));
                *after = self.seed;
                seat
            });
            let copies = seats.map(|s| view.copied_in(s).or_else(|| self.home_in(view, s)));
            let scores = copies.map(|c| c.map_or((0, 0), |(e, _)| self.scores.entry(e)));
            for i in 0..SAMPLE {
                let Some((e, home)) = copies[i] else {
                    continue;
                };
                if view.is_held(e) || view.in_flight_in(seats[i]) + view.in_flight_in(home) > 0 {
                    continue;
                }
                let order = &self.settings.order;
                let worth = order.worth(view, self.scores.worth_of(scores[i]), e);
                if home != seats[i] && view.is_dirty_in(seats[i]) {
                    dirty = Some(dirty.map_or(worth, |d| d.min(worth)));
                    continue;
                }
                let this = (worth, e);
                worst = Some(worst.map_or(this, |w| w.min(this)));
                seen += 1;
                if seen == sample {
                    self.seed = seeds[i];
                    return (worst, dirty);
                }
            }
        }
        (worst, dirty)
    }
    /// The extent whose home is in that seat of flash, if homes may go down.
    fn home_in(&self, view: &View<'_>, seat: Seat) -> Option<(UnitId, Seat)> {
        if !self.may_go_down(view) {
            return None;
        }
        let e = view.owner(seat).filter(|&e| view.home(e) == Some(seat))?;
        Some((e, seat))
    }
}
