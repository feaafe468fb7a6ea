//! Looking for work before sleeping.
//!
//! To be woken costs a thread some ten microseconds, and its waker an interrupt. So where what comes next usually comes sooner than that,
//! the engine's thread looks out for it instead of sleeping: at most `spin_us`, about twice as long as it took lately, and
//! not at all where it took longer than `spin_us`. Between two looks it yields, so that whoever else wants the processor has it.
//!
//! Where no device is at work, the next thing to come is a client's. A client on this machine that sends to a thread that sleeps is
//! followed by that thread on its own processor, at once; looking out for it on another makes each of its requests wake a processor. So
//! that wait has its own average, and is looked out for [`CLIENTS_US`] at most.

use super::UringWorld;
use std::time::{Duration, Instant};

/// What clients are looked out for at most, microseconds.
const CLIENTS_US: u64 = 5;
/// Part of a new sample in the average.
const WEIGHT: u64 = 8;
/// What the shortest look is, nanoseconds: a little more than a look costs.
const LEAST: u64 = 1_000;
/// Looks between two yields.
const LOOKS: u32 = 32;

/// See the module.
pub(super) struct Look {
    most: u64,
    /// How long it took until something came, on average; nanoseconds, at most [`WEIGHT`] times `most`.
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

    /// There is nothing to do. How long to look out; zero: sleep at once.
    fn begin(&mut self) -> Duration {
        self.since = Instant::now();
        if self.took > self.most {
            return Duration::ZERO;
        }
        Duration::from_nanos((2 * self.took + LEAST).min(self.most))
    }

    /// Something came.
    fn came(&mut self, after: Duration) {
        let after = (after.as_nanos() as u64).min(WEIGHT * self.most);
        self.took = self.took - self.took / WEIGHT + after / WEIGHT;
    }

    /// A sleep after [`Look::begin`] has ended.
    pub(super) fn slept(&mut self) {
        self.came(self.since.elapsed());
    }
}

/// Who is waited for: a device that is at work, or only clients.
pub(super) struct Looks {
    device: Look,
    client: Look,
}

impl Looks {
    /// At most `most` long.
    pub(super) fn new(most: Duration) -> Looks {
        Looks {
            device: Look::new(most),
            client: Look::new(most.min(Duration::from_micros(CLIENTS_US))),
        }
    }
}

impl UringWorld {
    /// The wait that begins or ends now: which operations are under way does not change while this thread waits.
    pub(super) fn looker(&mut self) -> &mut Look {
        if self.flights.len() > self.free.len() {
            &mut self.looks.device
        } else {
            &mut self.looks.client
        }
    }

    /// Looks for work for a moment; false: there is none, so sleep.
    pub(super) fn look_around(&mut self) -> bool {
        let limit = self.looker().begin();
        if limit.is_zero() {
            // Sleeping submits, too.
            return false;
        }
        if !self.ring.is_idle() {
            self.enter(0, None);
            if self.is_pending() {
                // It ended at once (memory, page cache): that says nothing about looking around.
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
        // One long pause, and nobody looks out; a few short ones, and somebody does again.
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
