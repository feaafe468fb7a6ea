//! Polling for work before sleeping.
//!
//! A wake-up costs the woken thread some ten microseconds, and the waking thread an interrupt. So if the next event usually comes sooner,
//! the engine's thread polls instead of sleeping: for at most `spin_us`, about twice as long as recent waits took, and
//! not at all if these took longer than `spin_us`. Between two polls it yields the processor to other threads.
//!
//! If no device is busy, the next event is a client's request. If a client on this machine sends to a sleeping thread, that thread
//! runs next on the client's processor; if the thread polls on another processor, each request wakes a processor. So this kind of
//! wait has its own average, and polling for it takes at most [`CLIENTS_US`].

use super::UringWorld;
use std::time::{Duration, Instant};

/// Maximum time of polling for clients, in microseconds.
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

    /// Begins a wait. Returns the time for which to poll; zero means to sleep at once.
    fn begin(&mut self) -> Duration {
        self.since = Instant::now();
        if self.took > self.most {
            return Duration::ZERO;
        }
        Duration::from_nanos((2 * self.took + LEAST).min(self.most))
    }

    /// Records that an event came after this time.
    fn came(&mut self, after: Duration) {
        let after = (after.as_nanos() as u64).min(WEIGHT * self.most);
        self.took = self.took - self.took / WEIGHT + after / WEIGHT;
    }

    /// A sleep after [`Look::begin`] has ended.
    pub(super) fn slept(&mut self) {
        self.came(self.since.elapsed());
    }
}

/// The average wait for each reason: a busy device, or only clients.
pub(super) struct Looks {
    device: Look,
    client: Look,
}

impl Looks {
    /// Creates the state for polling of at most `most`.
    pub(super) fn new(most: Duration) -> Looks {
        Looks {
            device: Look::new(most),
            client: Look::new(most.min(Duration::from_micros(CLIENTS_US))),
        }
    }
}

impl UringWorld {
    /// The state for the wait that begins or ends now. It stays the same during a wait, because the set of operations in progress does not
    /// change meanwhile.
    pub(super) fn looker(&mut self) -> &mut Look {
        if self.flights.len() > self.free.len() {
            &mut self.looks.device
        } else {
            &mut self.looks.client
        }
    }

    /// Polls for work for a limited time. Returns false if there is none; then the thread should sleep.
    pub(super) fn look_around(&mut self) -> bool {
        let limit = self.looker().begin();
        if limit.is_zero() {
            // Sleeping submits the queued entries, too.
            return false;
        }
        if !self.ring.is_idle() {
            self.enter(0, None);
            if self.is_pending() {
                // The operation ended at once (memory, page cache). This says nothing about how long waits take.
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
        let limit = l.begin().as_micros();
        assert!((35..=50).contains(&limit), "{limit}");
        // After one long pause the thread does not poll; after a few short ones it does again.
        l.came(Duration::from_secs(1));
        assert!(l.begin().is_zero());
        for _ in 0..20 {
            l.came(Duration::from_micros(20));
        }
        assert!(!l.begin().is_zero());
    }

    #[test]
    fn clients_alone_are_not_looked_out_for_as_long_as_devices() {
        let mut l = Looks::new(Duration::from_micros(100));
        for who in [&mut l.device, &mut l.client] {
            for _ in 0..100 {
                who.came(Duration::from_micros(40));
            }
        }
        assert!(l.device.begin() >= Duration::from_micros(75));
        assert!(l.client.begin().is_zero());
        let mut off = Looks::new(Duration::ZERO);
        off.client.came(Duration::from_micros(1));
        assert!(off.device.begin().is_zero() && off.client.begin().is_zero());
    }

    #[test]
    fn nobody_looks_out_where_that_is_turned_off() {
        let mut l = look(0);
        assert!(l.begin().is_zero());
        l.came(Duration::from_secs(1));
        assert!(l.begin().is_zero());
    }

    #[test]
    fn no_look_is_longer_than_the_limit() {
        let mut l = look(5);
        for us in [0, 1, 3, 5, 9, 1000] {
            l.came(Duration::from_micros(us));
            assert!(l.begin() <= Duration::from_micros(5));
        }
    }
}
