//! Polling for work before sleeping.
//!
//! A wake-up costs the woken thread some ten microseconds, and the waking thread an interrupt. So if the next event usually comes sooner,
//! the engine's thread polls instead of sleeping: for at most `spin_us`, about twice as long as recent waits took, and
//! not at all if these took longer than `spin_us`. Between two polls it yields the processor to other threads.
//!
//! If no device is busy, the next event is a client's request. This kind of wait has averages of its own, and polling for it takes at most
//! [`CLIENTS_US`] unless [`Trial`] has found that more requests are served if the thread polls for up to `spin_us`.

use super::UringWorld;
use super::trial::Trial;
use std::time::{Duration, Instant};

/// Maximum time of polling for clients, in microseconds, unless longer polling pays.
const CLIENTS_US: u64 = 5;
/// Divisor of a new sample in the average.
const WEIGHT: u64 = 8;
/// Shortest time of polling, in nanoseconds: a little more than one poll costs.
const MIN_POLL_NS: u64 = 1_000;
/// Number of polls between two yields.
const POLLS_PER_YIELD: u32 = 32;

/// See the module.
pub(super) struct WaitAverage {
    max_ns: u64,
    /// Weighted average of the time until an event came; nanoseconds, at most [`WEIGHT`] times `max_ns`.
    average: u64,
    since: Instant,
}

impl WaitAverage {
    pub(super) fn new(max: Duration) -> WaitAverage {
        WaitAverage {
            max_ns: max.as_nanos() as u64,
            average: 0,
            since: Instant::now(),
        }
    }

    /// Begins a wait. Returns the time for which to poll; zero means to sleep at once.
    fn begin(&mut self, now: Instant) -> Duration {
        self.since = now;
        if self.average > self.max_ns {
            return Duration::ZERO;
        }
        Duration::from_nanos((2 * self.average + MIN_POLL_NS).min(self.max_ns))
    }

    /// Records that an event came after this time.
    fn record(&mut self, after: Duration) {
        let after = (after.as_nanos() as u64).min(WEIGHT * self.max_ns);
        self.average = self.average - self.average / WEIGHT + after / WEIGHT;
    }

    /// A sleep after [`WaitAverage::begin`] has ended.
    pub(super) fn slept(&mut self) {
        self.record(self.since.elapsed());
    }
}

/// The average wait for each reason: a busy device, or only clients.
pub(super) struct Polling {
    device: WaitAverage,
    client: WaitAverage,
    /// For clients while the trial polls for up to `spin_us`.
    client_long: WaitAverage,
    trial: Trial,
    /// Whether the operations that were submitted last before a wait ended at once (memory, page cache).
    at_once: bool,
}

impl Polling {
    /// Creates the state for polling of at most `max`.
    pub(super) fn new(max: Duration) -> Polling {
        Polling {
            device: WaitAverage::new(max),
            client: WaitAverage::new(max.min(Duration::from_micros(CLIENTS_US))),
            client_long: WaitAverage::new(max),
            trial: Trial::new(Instant::now()),
            at_once: false,
        }
    }

    /// The state for waits for clients, as chosen by the trial.
    fn for_clients(&mut self) -> &mut WaitAverage {
        if self.trial.polls() {
            &mut self.client_long
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

    /// The state for the wait that begins or ends now. It stays the same during a wait, because the set of operations in progress does not
    /// change meanwhile.
    pub(super) fn wait_average(&mut self) -> &mut WaitAverage {
        if self.is_device_busy() {
            &mut self.polling.device
        } else {
            self.polling.for_clients()
        }
    }

    /// Polls for work for a limited time. Returns false if there is none; then the thread should sleep.
    pub(super) fn poll_for_work(&mut self) -> bool {
        if self.polling.at_once && !self.ring.is_idle() {
            // Probably these operations end at once, too: then the clock need not be read.
            self.enter(0, None);
            self.polling.at_once = self.is_pending();
            if self.polling.at_once {
                return true;
            }
        }
        let now = Instant::now();
        if !self.is_device_busy() {
            self.polling.trial.wait(now, self.requests.admitted);
        }
        let limit = self.wait_average().begin(now);
        if limit.is_zero() {
            // Sleeping submits the queued entries, too.
            return false;
        }
        if !self.ring.is_idle() {
            self.enter(0, None);
            if self.is_pending() {
                // The operation ended at once (memory, page cache). This says nothing about how long waits take.
                self.polling.at_once = true;
                return true;
            }
        }
        loop {
            for _ in 0..POLLS_PER_YIELD {
                if self.is_pending() || self.ring.taskrun() {
                    self.wait_average().slept();
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.wait_average().since.elapsed() >= limit {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn average(us: u64) -> WaitAverage {
        WaitAverage::new(Duration::from_micros(us))
    }

    #[test]
    fn the_thread_polls_only_if_events_come_soon() {
        let mut l = average(50);
        for _ in 0..100 {
            l.record(Duration::from_micros(20));
        }
        let limit = l.begin(Instant::now()).as_micros();
        assert!((35..=50).contains(&limit), "{limit}");
        // After one long pause the thread does not poll; after a few short ones it does again.
        l.record(Duration::from_secs(1));
        assert!(l.begin(Instant::now()).is_zero());
        for _ in 0..20 {
            l.record(Duration::from_micros(20));
        }
        assert!(!l.begin(Instant::now()).is_zero());
    }

    #[test]
    fn polling_for_clients_alone_is_shorter_than_for_devices() {
        let mut l = Polling::new(Duration::from_micros(100));
        for who in [&mut l.device, &mut l.client] {
            for _ in 0..100 {
                who.record(Duration::from_micros(40));
            }
        }
        assert!(l.device.begin(Instant::now()) >= Duration::from_micros(75));
        assert!(l.client.begin(Instant::now()).is_zero());
        let mut off = Polling::new(Duration::ZERO);
        off.client.record(Duration::from_micros(1));
        for wait in [&mut off.device, &mut off.client, &mut off.client_long] {
            assert!(wait.begin(Instant::now()).is_zero());
        }
    }

    #[test]
    fn there_is_no_polling_if_it_is_turned_off() {
        let mut l = average(0);
        assert!(l.begin(Instant::now()).is_zero());
        l.record(Duration::from_secs(1));
        assert!(l.begin(Instant::now()).is_zero());
    }

    #[test]
    fn no_polling_is_longer_than_the_limit() {
        let mut l = average(5);
        for us in [0, 1, 3, 5, 9, 1000] {
            l.record(Duration::from_micros(us));
            assert!(l.begin(Instant::now()) <= Duration::from_micros(5));
        }
    }
}
