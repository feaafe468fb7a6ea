//! What a run adds up: over requests that count, and everything that only grows at one moment.

use isotherm_core::stats::{Counters, Histogram};
use isotherm_models::{Counters as DeviceCounters, Wear};

/// Sums over requests that count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub requests: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Bytes of reads that moves' buffers served.
    pub from_moves: u64,
    /// Bytes of reads of what was discarded.
    pub zeros: u64,
    pub latency: Histogram,
    pub classes: Vec<ClassSum>,
    pub errors: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassSum {
    pub requests: u64,
    pub bytes: u64,
    pub time_ns: u64,
}

/// Everything that only grows, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub now: u64,
    pub counters: Counters,
    pub devices: Vec<DeviceCounters>,
    pub wear: Vec<Wear>,
}
