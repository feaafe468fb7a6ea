//! The classes of one row: the service that they received, and whether this meets their guarantees.

use super::rate::Rate;
use super::{Row, Standing};
use crate::units::Nanos;
use alloc::vec;
use alloc::vec::Vec;

/// The value for "no request".
pub(super) const NONE: u32 = u32::MAX;
/// The length of the window in which the service of a row is measured.
pub(super) const WINDOW: Nanos = Nanos::from_millis(500);

/// Requests of a row for the same tier, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub head: u32,
    pub tail: u32,
    pub in_flight: u32,
    /// Virtual finish time of the row's last request on this tier, according to its share.
    pub finish: u64,
}

impl Queue {
    pub const EMPTY: Queue = Queue {
        head: NONE,
        tail: NONE,
        in_flight: 0,
        finish: 0,
    };
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub row: Row,
    pub floor: Option<Rate>,
    pub ceiling: Option<Rate>,
    pub queues: Vec<Queue>,
    pub held: u32,
    pub in_flight: u32,
    /// Whether the row missed its floor or latency in the last window.
    pub behind: bool,
    /// The last time at which the row's own ceiling delayed a request. The latency of requests that arrived before that time does not count
    /// as missed.
    pub capped: Nanos,
    waited: u64,
    waited_time: Nanos,
    bytes: u64,
    busy_since: Nanos,
    window: Window,
    floor_held: Option<bool>,
    latency_held: Option<bool>,
    rate: u64,
    judged: u64,
    missed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    bytes: u64,
    /// Time in which the row had requests, in nanoseconds.
    busy: u64,
    largest: u32,
    ended: u32,
    late: u32,
    /// Number of requests that took more than three quarters of the latency target.
    close: u32,
    /// Tiers on which the row had requests, one bit each.
    lanes: u8,
}

/// Result of a window for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether the row missed a guarantee.
    pub behind: bool,
    /// Whether the row kept its guarantees with a clear margin.
    pub easy: bool,
    /// Tiers on which the row had requests, one bit each.
    pub lanes: u8,
}

impl Group {
    pub fn new(row: Row, lanes: usize) -> Group {
        Group {
            row,
            floor: row.floor.map(Rate::new),
            ceiling: row.ceiling.map(Rate::new),
            queues: vec![Queue::EMPTY; lanes],
            held: 0,
            in_flight: 0,
            behind: false,
            capped: Nanos(0),
            waited: 0,
            waited_time: Nanos(0),
            bytes: 0,
            busy_since: Nanos(0),
            window: Window::default(),
            floor_held: None,
            latency_held: None,
            rate: 0,
            judged: 0,
            missed: 0,
        }
    }

    /// Counts a request that arrives.
    pub fn arrived(&mut self, now: Nanos, lane: usize, bytes: u32) {
        if self.held + self.in_flight == 0 {
            self.busy_since = now;
        }
        self.window.lanes |= 1 << lane;
        self.window.largest = self.window.largest.max(bytes);
    }

    /// Counts a request that begins. `time`: how long it was held, if it was.
    pub fn begins(&mut self, lane: usize, time: Option<Nanos>) {
        self.in_flight += 1;
        self.queues[lane].in_flight += 1;
        if let Some(time) = time {
            self.waited += 1;
            self.waited_time = self.waited_time + time;
        }
    }

    /// Counts a request that has ended.
    pub fn ended(&mut self, now: Nanos, lane: usize, bytes: u32, arrived: Nanos) {
        self.in_flight -= 1;
        self.queues[lane].in_flight -= 1;
        self.bytes += u64::from(bytes);
        let w = &mut self.window;
        w.bytes += u64::from(bytes);
        w.lanes |= 1 << lane;
        if arrived > self.capped || self.capped == Nanos(0) {
            w.ended += 1;
            let limit = self.row.latency.unwrap_or(Nanos::MAX);
            w.late += u32::from(now.since(arrived) > limit);
            w.close += u32::from(now.since(arrived).0 > limit.0 / 4 * 3);
        }
        if self.held + self.in_flight == 0 {
            w.busy += now.since(self.busy_since).0;
        }
    }

    /// Evaluates the window of `length` that ends at `now`.
    pub fn judge(&mut self, now: Nanos, length: Nanos) -> Verdict {
        if self.held + self.in_flight > 0 {
            self.window.busy += now.since(self.busy_since).0;
            self.busy_since = now;
        }
        let w = core::mem::take(&mut self.window);
        let of = |n: u64, time: u64| u128::from(n) * u128::from(time) / 1_000_000_000;
        self.rate = (u128::from(w.bytes) * 1_000_000_000 / u128::from(length.0.max(1))) as u64;
        // The floor applies only while the row has requests. Bytes count when a request ends, so one request of the largest size is added,
        // which may be in progress.
        let asked = w.busy * 2 >= length.0;
        let got = u128::from(w.bytes) + u128::from(w.largest);
        self.floor_held = (self.row.floor.filter(|_| asked)).map(|f| got >= of(f, w.busy));
        let much = |f| got * 4 >= of(f, w.busy) * 5;
        let floor_easy = self.row.floor.is_none_or(|f| !asked || much(f));
        self.latency_held = (self.row.latency)
            .filter(|_| w.ended > 0)
            .map(|_| w.late * 20 <= w.ended);
        let latency_easy = self.row.latency.is_none() || w.close * 20 <= w.ended;
        let all = [self.floor_held, self.latency_held];
        self.behind = all.contains(&Some(false));
        self.judged += u64::from(all.iter().any(Option::is_some));
        self.missed += u64::from(self.behind);
        Verdict {
            behind: self.behind,
            easy: floor_easy && latency_easy,
            lanes: w.lanes,
        }
    }

    pub fn standing(&self) -> Standing {
        Standing {
            row: self.row,
            held: self.held,
            in_flight: self.in_flight,
            waited: self.waited,
            waited_time: self.waited_time,
            bytes: self.bytes,
            bytes_per_s: self.rate,
            floor_held: self.floor_held,
            latency_held: self.latency_held,
            judged: self.judged,
            missed: self.missed,
        }
    }
}
