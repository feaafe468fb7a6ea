//! The sums of a run: over measured requests, and a snapshot of every counter that only grows.

use isotherm_core::stats::{Counters, Histogram};
use isotherm_models::{Counters as DeviceCounters, Wear};

/// Sums over measured requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub requests: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Bytes of reads that were served from the buffers of moves.
    pub from_moves: u64,
    /// Bytes of reads of discarded data.
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

/// A snapshot of every counter that only grows.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub now: u64,
    pub counters: Counters,
    pub devices: Vec<DeviceCounters>,
    pub wear: Vec<Wear>,
    /// By member: its energy as the engine estimates it by the data sheet, joules.
    pub estimates: Vec<Option<f64>>,
}
