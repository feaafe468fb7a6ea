//! Polling for work before sleeping.
//!
//! A wake-up costs the woken thread some ten microseconds, and the waking thread an interrupt. So if the next event usually comes sooner,
//! the engine's thread polls instead of sleeping: for at most `spin_us`, about twice as long as recent waits took, and
//! not at all if these took longer than `spin_us`. Between two polls it yields the processor to other threads.
//!
//! If no device is busy, the next event is a client's request. This kind of wait has averages of its own, and polling for it takes at most
//! [`CLIENTS_US`] unless [`Trial`] has found that more requests are served if it polls for up to `spin_us`.

use super::UringWorld;
use super::trial::Trial;
use std::time::{Duration, Instant};

/// Maximum time of polling for clients, in microseconds, unless longer polling pays.
const CLIENTS_US: u64 = 5;
/// Divisor of a new sample in the average.
const WEIGHT: u64 = 8;
/// Shortest time of polling, in nanoseconds: a little more than one poll costs.
const LEAST: u64 = 1_000;
/// Number of polls between two yields.
const LOOKS: u32 = 32;

/// See the module.
pub(super) struct Look {
    most: u64,
    /// Weighted average of the time until an event came; nanoseconds, at most [`WEIGHT`] times `most`.
    took: u64,
    since: Instant,
}

impl Look {
    pub(super) fn new(most: Duration) -> Look {
        Look {
            most: most.as_nanos() as u64,
            took: 0,
            since: Instant::now(),
        }
    }

    /// There is nothing to do since `now`. Returns the time for which to poll; zero means to sleep at once.
    fn begin(&mut self, now: Instant) -> Duration {
        self.since = now;
        if self.took > self.most {
            return Duration::ZERO;
        }
        Duration::from_nanos((2 * self.took + LEAST).min(self.most))
    }

    /// An event came.
    fn came(&mut self, after: Duration) {
        let after = (after.as_nanos() as u64).min(WEIGHT * self.most);
        self.took = self.took - self.took / WEIGHT + after / WEIGHT;
    }

    /// A sleep after [`Look::begin`] has ended.
    pub(super) fn slept(&mut self) {
        self.came(self.since.elapsed());
    }
}

/// The reason why the thread waits: a busy device, or only clients.
pub(super) struct Looks {
    device: Look,
    client: Look,
    /// For clients while `trial` polls.
    eager: Look,
    trial: Trial,
}

impl Looks {
    /// Creates the state for polling of at most `most`.
    pub(super) fn new(most: Duration) -> Looks {
        Looks {
            device: Look::new(most),
            client: Look::new(most.min(Duration::from_micros(CLIENTS_US))),
            eager: Look::new(most),
            trial: Trial::new(Instant::now()),
        }
    }

    /// Polling for clients, as the trial has it.
    fn for_clients(&mut self) -> &mut Look {
        if self.trial.polls() {
            &mut self.eager
        } else {
            &mut self.client
        }
    }
}

impl UringWorld {
    /// Whether an operation on a device is in progress.
    fn is_device_busy(&self) -> bool {
        self.flights.len() > self.free.len()
    }

    /// The kind of the wait that begins or ends now. The set of operations in progress does not change while this thread waits.
    pub(super) fn looker(&mut self) -> &mut Look {
        if self.is_device_busy() {
            &mut self.looks.device
        } else {
            self.looks.for_clients()
        }
    }

    /// Polls for work for a moment; false: there is none, so sleep.
    pub(super) fn look_around(&mut self) -> bool {
        let now = Instant::now();
        if !self.is_device_busy() {
            self.looks.trial.wait(now, self.requests.admitted);
        }
        let limit = self.looker().begin(now);
        if limit.is_zero() {
            // Sleeping submits the queued entries, too.
            return false;
        }
        if !self.ring.is_idle() {
            self.enter(0, None);
            if self.is_pending() {
                // The operation ended at once (memory, page cache), which is no information about polling.
                return true;
            }
        }
        loop {
            for _ in 0..LOOKS {
                if self.is_pending() || self.ring.taskrun() {
                    self.looker().slept();
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.looker().since.elapsed() >= limit {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(us: u64) -> Look {
        Look::new(Duration::from_micros(us))
    }

    #[test]
    fn who_comes_soon_is_looked_out_for_and_who_does_not_is_not() {
        let mut l = look(50);
        for _ in 0..100 {
            l.came(Duration::from_micros(20));
        }
        let limit = l.begin(Instant::now()).as_micros();
        assert!((35..=50).contains(&limit), "{limit}");
        // After one long pause the thread does not poll; after a few short ones it does again.
        l.came(Duration::from_secs(1));
        assert!(l.begin(Instant::now()).is_zero());
        for _ in 0..20 {
            l.came(Duration::from_micros(20));
        }
        assert!(!l.begin(Instant::now()).is_zero());
    }

    #[test]
    fn clients_alone_are_not_looked_out_for_as_long_as_devices() {
        let mut l = Looks::new(Duration::from_micros(100));
        for who in [&mut l.device, &mut l.client] {
            for _ in 0..100 {
                who.came(Duration::from_micros(40));
            }
        }
        assert!(l.device.begin(Instant::now()) >= Duration::from_micros(75));
        assert!(l.client.begin(Instant::now()).is_zero());
        let mut off = Looks::new(Duration::ZERO);
        off.client.came(Duration::from_micros(1));
        assert!(
            off.device.begin(Instant::now()).is_zero()
                && off.client.begin(Instant::now()).is_zero()
        );
    }

    #[test]
    fn nobody_looks_out_where_that_is_turned_off() {
        let mut l = look(0);
        assert!(l.begin(Instant::now()).is_zero());
        l.came(Duration::from_secs(1));
        assert!(l.begin(Instant::now()).is_zero());
    }

    #[test]
    fn no_look_is_longer_than_the_limit() {
        let mut l = look(5);
        for us in [0, 1, 3, 5, 9, 1000] {
            l.came(Duration::from_micros(us));
            assert!(l.begin(Instant::now()) <= Duration::from_micros(5));
        }
    }
}
