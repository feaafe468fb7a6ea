//! Finds out by trying whether polling for clients pays.
//!
//! Whether clients are served faster if the engine's thread sleeps between their requests depends on the scheduler: if both run on one
//! processor, a wake-up is only a switch of threads, and polling delays the client. If each has a processor of its own, a wake-up is an
//! interrupt to a halted processor, which takes longer than the request itself, and polling saves it. Which of the two applies changes with
//! the load of the machine, and no call of the kernel tells. So the thread measures the mean time per request in both ways, keeps the
//! faster one, and tries the other again from time to time. (The time per wait would mislead: a thread that polls finds fewer requests
//! each time, and serves them one by one.)

use std::time::{Duration, Instant};

/// Number of requests that one measurement takes, at least.
const REQUESTS: u64 = 256;
/// Number of measurements in the chosen way between two trials of the other one: the number doubles from the first value to the second while
/// trials confirm the choice.
const TRUST: [u32; 2] = [31, 255];
/// If clients send nothing for longer, that says nothing about either way, and the measurement begins again.
const PAUSE: Duration = Duration::from_millis(1);
/// Polling occupies a processor, so it must save at least this part of the time: one eighth.
const GAIN: u64 = 8;

/// See the module.
pub(super) struct Trial {
    /// Whether the thread polls now.
    polls: bool,
    /// Mean time per request at the last measurement while sleeping and while polling, nanoseconds.
    took: [Option<u64>; 2],
    /// The time and the number of requests at which this measurement began.
    since: Instant,
    before: u64,
    /// The time of the last call.
    last: Instant,
    /// Number of measurements until the next trial, and after the next trial.
    left: u32,
    trust: u32,
    /// What was chosen last.
    choice: bool,
}

impl Trial {
    pub(super) fn new(now: Instant) -> Trial {
        Trial {
            polls: false,
            took: [None; 2],
            since: now,
            before: 0,
            last: now,
            left: 0,
            trust: TRUST[0],
            choice: false,
        }
    }

    /// Whether the thread should poll for clients at present.
    pub(super) fn polls(&self) -> bool {
        self.polls
    }

    /// A wait for clients begins; they have sent `requests` since the volume was opened.
    pub(super) fn wait(&mut self, now: Instant, requests: u64) {
        let since_last = now.saturating_duration_since(self.last);
        self.last = now;
        let n = requests - self.before;
        if since_last > PAUSE {
            (self.before, self.since) = (requests, now);
        } else if n >= REQUESTS {
            let took = now.saturating_duration_since(self.since).as_nanos() as u64 / n;
            self.took[usize::from(self.polls)] = Some(took);
            (self.before, self.since) = (requests, now);
            self.choose();
        }
    }

    /// A measurement has ended.
    fn choose(&mut self) {
        let better = match self.took {
            [Some(sleeping), Some(polling)] => polling < sleeping - sleeping / GAIN,
            _ => self.polls,
        };
        if better != self.choice {
            (self.choice, self.trust) = (better, TRUST[0]);
            self.left = self.left.min(self.trust);
        }
        if self.left == 0 {
            self.left = self.trust;
            self.trust = (2 * self.trust).min(TRUST[1]);
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

    /// Clients that send one request, or several while the thread sleeps, for each wait.
    struct Clients {
        trial: Trial,
        now: Instant,
        requests: u64,
    }

    impl Clients {
        fn new() -> Clients {
            let now = Instant::now();
            Clients {
                trial: Trial::new(now),
                now,
                requests: 0,
            }
        }

        /// Simulates waits that take these numbers of microseconds and find these numbers of requests, asleep and polling. Returns the
        /// share of waits with polling.
        fn run(&mut self, waits: u32, asleep: (u64, u64), polling: (u64, u64)) -> f64 {
            let mut polled = 0;
            for _ in 0..waits {
                polled += u32::from(self.trial.polls());
                let (us, requests) = if self.trial.polls() { polling } else { asleep };
                self.now += Duration::from_micros(us);
                self.requests += requests;
                self.trial.wait(self.now, self.requests);
            }
            f64::from(polled) / f64::from(waits)
        }
    }

    #[test]
    fn the_faster_way_is_kept_and_the_other_is_tried_seldom() {
        let mut clients = Clients::new();
        assert!(clients.run(100_000, (60, 1), (30, 1)) > 0.9);
        // The load of the machine changes, and with it the faster way.
        clients.run(70_000, (30, 1), (60, 1));
        assert!(clients.run(100_000, (30, 1), (60, 1)) < 0.05);
        clients.run(70_000, (60, 1), (30, 1));
        assert!(clients.run(100_000, (60, 1), (30, 1)) > 0.9);
    }

    #[test]
    fn requests_count_and_not_waits() {
        let mut clients = Clients::new();
        // A wait is shorter with polling, but finds one request of eight: one trial takes 256 waits, and 31 times 32 are between trials.
        assert!(clients.run(100_000, (60, 8), (17, 1)) < 0.3);
        let mut served = [clients.requests, 0];
        clients.run(100_000, (60, 8), (17, 1));
        served[1] = clients.requests - served[0];
        assert!(served[1] > 500_000, "{served:?}");
    }

    #[test]
    fn a_small_gain_is_not_worth_a_processor() {
        assert!(Clients::new().run(100_000, (30, 1), (28, 1)) < 0.05);
    }

    #[test]
    fn clients_that_pause_are_never_polled_for() {
        assert!(Clients::new().run(10_000, (1_500, 1), (1_500, 1)) <= 0.0);
    }
}
