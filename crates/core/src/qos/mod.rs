//! Quality of service per class of requests: minimum and maximum bandwidth, latency, and a share (DSS Table 1).
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | the settings, and the report whether they are kept |
//! | `rate.rs` | a bandwidth as a token bucket |
//! | `group.rs` | the classes of one row: the service that they received, and whether this meets their guarantees |
//! | `scheduler.rs` | the choice of the request that begins next |
//!
//! A request that may not begin yet waits before the engine processes it. It holds no extent, no slot and no device, so nothing in progress
//! waits for it. A FLUSH is not affected, because it covers only requests that were answered before it. The rules follow published
//! schedulers between clients and storage devices: start-time fair queueing with a bounded number of requests at the devices (SFQ(D): Jin,
//! Chase, Kaur, SIGMETRICS 2004) for shares; minimum bandwidths that are served before shares, and maximum bandwidths (mClock: Gulati,
//! Merchant, Varman, OSDI 2010); fewer requests of other classes at the devices while a class misses its guarantee (as blk-iolatency of
//! Linux does). No clock, no randomness, no allocation per request.

mod group;
mod rate;
mod scheduler;

pub use rate::Rate;
pub use scheduler::{Arrival, Scheduler};

use crate::stats::CLASSES;
use crate::units::Nanos;
use alloc::vec::Vec;

/// Maximum number of rows.
pub const ROWS_MAX: usize = 32;
/// The share of a row for which none is set, and the common share of all classes without a row. It equals the default of `io.weight` in
/// control groups.
pub const SHARE: u16 = 100;
/// Default of the maximum number of concurrent requests at the devices of one tier.
pub const DEPTH: u16 = 16;

/// A row of settings: guarantees and limits for a set of classes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The classes, one bit each.
    pub classes: u64,
    /// Minimum bandwidth in bytes per second, as long as the classes have requests and the devices can deliver it.
    pub floor: Option<u64>,
    /// Maximum bandwidth in bytes per second.
    pub ceiling: Option<u64>,
    /// Latency within which 95 % of the requests are answered, as long as the devices are fast enough.
    pub latency: Option<Nanos>,
    /// Weight of the row's share of the devices' time, relative to the weights of other rows that have requests: 1 to 10 000.
    pub share: u16,
}

impl Row {
    /// A row for these classes (one bit each), without guarantees or limits.
    pub fn of(classes: u64) -> Row {
        Row {
            classes,
            floor: None,
            ceiling: None,
            latency: None,
            share: SHARE,
        }
    }

    /// Whether the row requires a limit on the number of requests at the devices.
    fn bounds(&self) -> bool {
        self.floor.is_some() || self.latency.is_some() || self.share != SHARE
    }
}

/// All rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The rows. No class is in more than one row.
    pub rows: Vec<Row>,
    /// Maximum number of concurrent requests at the devices of one tier, at least 1. More use the devices better; fewer keep shares more
    /// exactly.
    pub depth: u16,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            rows: Vec::new(),
            depth: DEPTH,
        }
    }
}

impl Spec {
    /// Adds a row. Its classes are removed from earlier rows; a row that has no classes left is removed.
    ///
    /// # Errors
    /// The reason why the row is invalid, as text. Then nothing is changed.
    pub fn add(&mut self, row: Row) -> Result<(), &'static str> {
        let rate = |r: Option<u64>| r.is_none_or(|r| (4096..=1_000_000_000_000).contains(&r));
        if row.classes == 0 {
            return Err("it names no class");
        }
        if !rate(row.floor) || !rate(row.ceiling) {
            return Err("floor and ceiling: bytes per second, 4096 to 10^12");
        }
        if matches!((row.floor, row.ceiling), (Some(a), Some(b)) if a > b) {
            return Err("the floor lies above the ceiling");
        }
        let fits = |t: Nanos| (Nanos::from_micros(100)..=Nanos::from_secs(60)).contains(&t);
        if row.latency.is_some_and(|t| !fits(t)) {
            return Err("latency: 100us to 60s");
        }
        if !(1..=10_000).contains(&row.share) {
            return Err("share: 1 to 10000, where what is not named has 100");
        }
        let left = self.rows.iter().filter(|r| r.classes & !row.classes != 0);
        if left.count() >= ROWS_MAX {
            return Err("there are 32 rows already");
        }
        for r in &mut self.rows {
            r.classes &= !row.classes;
        }
        self.rows.retain(|r| r.classes != 0);
        self.rows.push(row);
        Ok(())
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// For each class: the index of its row plus 1, or 0 if it has no row.
    fn groups(&self) -> [u8; CLASSES] {
        core::array::from_fn(|c| {
            let row = self.rows.iter().position(|r| r.classes >> c & 1 != 0);
            row.map_or(0, |i| i as u8 + 1)
        })
    }
}

/// State and statistics of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The row as it was set. If it has no classes, it stands for all classes that are in no row.
    pub row: Row,
    /// Number of requests that wait to begin.
    pub held: u32,
    /// Number of requests in progress.
    pub in_flight: u32,
    /// Number of requests that have waited before they began.
    pub waited: u64,
    /// Total time that they waited.
    pub waited_time: Nanos,
    /// Total bytes of the requests that have ended.
    pub bytes: u64,
    /// Bandwidth in the last window of half a second, in bytes per second. If no request has come since that window, the bandwidth since
    /// its end.
    pub bytes_per_s: u64,
    /// Whether the floor was kept in the last window. `None`: there is no floor, or there were requests in less than half of the window.
    pub floor_held: Option<bool>,
    /// Whether the latency was kept in the last window. `None`: there is no target, or no request ended.
    pub latency_held: Option<bool>,
    /// Number of windows in which the floor or the latency could be checked.
    pub judged: u64,
    /// Number of windows in which the floor or the latency was missed.
    pub missed: u64,
}
