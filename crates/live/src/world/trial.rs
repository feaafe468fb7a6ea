//! Finds out by trying whether polling for clients pays.
//!
//! Whether a client and the engine's thread take turns faster if the thread sleeps depends on the scheduler: if both run on one processor,
//! a wake-up is only a switch of threads, and polling delays the client. If each has a processor of its own, a wake-up is an interrupt
//! to a halted processor, which takes longer than the request itself, and polling saves it. Which of the two applies changes with the load
//! of the machine, and no call of the kernel tells. So the thread measures the mean time of a turn (from one wait for a client to the
//! next) in both ways, keeps the faster one, and tries the other again from time to time.

use std::time::{Duration, Instant};

/// Number of turns that one measurement takes.
const TURNS: u32 = 256;
/// Number of measurements in the chosen way between two trials of the other one: 1/32 of the turns are trials.
const TRUST: u32 = 31;
/// A turn that takes longer is a pause of the client. It says nothing about either way, and the measurement begins again.
const PAUSE: Duration = Duration::from_millis(1);
/// Polling occupies a processor, so it must save at least this part of a turn: one eighth.
const GAIN: u32 = 8;

/// See the module.
pub(super) struct Trial {
    /// Whether the thread polls now.
    polls: bool,
    /// Mean time of a turn at the last measurement while sleeping and while polling.
    took: [Option<Duration>; 2],
    /// Number of turns measured since `since`.
    turns: u32,
    since: Instant,
    last: Instant,
    /// Number of measurements until the next trial.
    left: u32,
}

impl Trial {
    pub(super) fn new(now: Instant) -> Trial {
        Trial {
            polls: false,
            took: [None; 2],
            turns: 0,
            since: now,
            last: now,
            left: 0,
        }
    }

    /// Whether the thread should poll for clients at present.
    pub(super) fn polls(&self) -> bool {
        self.polls
    }

    /// A wait for clients begins.
    pub(super) fn turn(&mut self, now: Instant) {
        let since_last = now.saturating_duration_since(self.last);
        self.last = now;
        if since_last > PAUSE {
            (self.turns, self.since) = (0, now);
            return;
        }
        self.turns += 1;
        if self.turns == TURNS {
            let took = now.saturating_duration_since(self.since) / TURNS;
            self.took[usize::from(self.polls)] = Some(took);
            (self.turns, self.since) = (0, now);
            self.choose();
        }
    }

    /// A measurement has ended.
    fn choose(&mut self) {
        let better = match self.took {
            [Some(sleeping), Some(polling)] => polling < sleeping - sleeping / GAIN,
            _ => self.polls,
        };
        if self.left == 0 {
            self.left = TRUST;
            self.polls = !better;
        } else {
            self.left -= 1;
            self.polls = better;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns that take `sleeping` or `polling` microseconds; returns the share of turns in which the thread polled.
    fn run(trial: &mut Trial, now: &mut Instant, turns: u32, sleeping: u64, polling: u64) -> f64 {
        let mut polled = 0;
        for _ in 0..turns {
            polled += u32::from(trial.polls());
            *now += Duration::from_micros(if trial.polls() { polling } else { sleeping });
            trial.turn(*now);
        }
        f64::from(polled) / f64::from(turns)
    }

    #[test]
    fn the_faster_way_is_kept_and_the_other_is_tried_seldom() {
        let mut now = Instant::now();
        let mut trial = Trial::new(now);
        assert!(run(&mut trial, &mut now, 100_000, 60, 30) > 0.9);
        // The load of the machine changes, and with it the faster way.
        run(&mut trial, &mut now, 40 * TURNS, 30, 60);
        assert!(run(&mut trial, &mut now, 100_000, 30, 60) < 0.05);
        run(&mut trial, &mut now, 40 * TURNS, 60, 30);
        assert!(run(&mut trial, &mut now, 100_000, 60, 30) > 0.9);
    }

    #[test]
    fn a_small_gain_is_not_worth_a_processor() {
        let mut now = Instant::now();
        let mut trial = Trial::new(now);
        assert!(run(&mut trial, &mut now, 100_000, 30, 28) < 0.05);
    }

    #[test]
    fn a_client_that_pauses_is_never_polled_for() {
        let mut now = Instant::now();
        let mut trial = Trial::new(now);
        assert_eq!(run(&mut trial, &mut now, 10_000, 1_500, 1_500), 0.0);
    }
}
