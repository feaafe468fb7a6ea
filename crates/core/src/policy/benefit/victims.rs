//! The copy that makes room: the one of some clean copies, drawn at random, that is worth least.
//!
//! A draw leads to three places in memory (the reverse map, the home behind the copy, the score), and on a large volume each of them is
//! a cache miss. So a whole sample is drawn ahead and each place is read for all of it before the next, which lets the misses overlap.
//! The draws are the same as one by one: those that were not needed are given back.

use super::Benefit;
use super::without::Part;
use crate::policy::{Seat, View};
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
    /// The clean copy of a sample that is worth least (or the home, if homes may go down), and the worth of the least valuable dirty one.
    pub(super) fn victim(&mut self, view: &View<'_>) -> (Option<(u64, UnitId)>, Option<u64>) {
        let wanted = if self.has(Part::Worth) { SAMPLE } else { 1 };
        let homes = self.may_go_down(view);
        let (mut worst, mut dirty, mut seen) = (None::<(u64, UnitId)>, None::<u64>, 0);
        for _ in 0..SAMPLES {
            let mut seeds = [0; SAMPLE];
            let seats = seeds.each_mut().map(|after| {
                let seat = view.seat(self.draw(self.fast));
                *after = self.seed;
                seat
            });
            let owners = seats.map(|s| view.copied_in(s).or_else(|| at_home(view, s, homes)));
            let scores = owners.map(|c| c.map_or((0, 0), |(e, _)| self.scores.entry(e)));
            for i in 0..SAMPLE {
                let Some((e, home)) = owners[i] else {
                    continue;
                };
                if view.is_held(e) || view.in_flight_in(seats[i]) + view.in_flight_in(home) > 0 {
                    continue;
                }
                let score = self.scores.worth_of(scores[i]);
                let worth = self.settings.order.worth(view, score, e);
                if home != seats[i] && view.is_dirty_in(seats[i]) {
                    dirty = Some(dirty.map_or(worth, |d| d.min(worth)));
                    continue;
                }
                let this = (worth, e);
                worst = Some(worst.map_or(this, |w| w.min(this)));
                seen += 1;
                if seen == wanted {
                    self.seed = seeds[i];
                    return (worst, dirty);
                }
            }
        }
        (worst, dirty)
    }
}

/// The extent whose home is in a seat of the fast tier, and that seat, if `homes` may be victims.
fn at_home(view: &View<'_>, s: Seat, homes: bool) -> Option<(UnitId, Seat)> {
    let owner = if homes { view.owner(s) } else { None };
    owner.filter(|e| view.home(*e) == Some(s)).map(|e| (e, s))
}
