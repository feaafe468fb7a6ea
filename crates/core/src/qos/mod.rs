//! Quality of service per class of requests: minimum and maximum bandwidth, latency, and a share (DSS Table 1).
//!
//! | file | what it owns |
//! |---|---|
//! | `mod.rs` | the settings, and the report of how they are kept |
//! | `rate.rs` | a bandwidth as a token bucket |
//! | `group.rs` | the classes of one row: the service that they received, and whether it suffices |
//! | `scheduler.rs` | the choice of the request that begins next |
//!
//! Requests that may not begin yet wait before the engine's first look at them: they hold no extent, no slot and no device, so
//! nothing in progress waits for them, and a FLUSH covers the requests that were answered before it, as always. The rules follow published
//! schedulers that sit between clients and storage devices: start-time fair queueing with a bounded number of requests at the devices
//! (SFQ(D): Jin, Chase, Kaur, SIGMETRICS 2004) for shares; minimum bandwidths that are served before shares, and maximum bandwidths
//! (mClock: Gulati, Merchant, Varman, OSDI 2010); fewer requests of other classes at the devices while a class misses its
//! guarantee (as blk-iolatency of Linux does). No clock, no randomness, no allocation per request.

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
/// The share of a row that names none, and of all classes without a row together. It equals the default of `io.weight` in control groups.
pub const SHARE: u16 = 100;
/// Default of the maximum number of concurrent requests at the devices of one tier.
pub const DEPTH: u16 = 16;

/// The guarantees and limits of the classes of one row together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The classes, one bit each.
    pub classes: u64,
    /// Minimum bandwidth in bytes per second, as long as they have requests and the devices can deliver it.
    pub floor: Option<u64>,
    /// Maximum bandwidth in bytes per second.
    pub ceiling: Option<u64>,
    /// Latency within which 95 % of their requests are answered, as long as the devices can.
    pub latency: Option<Nanos>,
    /// Weight of their part of the devices' time, relative to the weights of other rows that have requests: 1 to 10 000.
    pub share: u16,
}

impl Row {
    /// Creates a row for these classes without guarantees or limits.
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
    /// The rows. No class is in two of them.
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
    /// Says in words why the row is invalid; nothing is changed then.
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

    /// Per class: one more than the number of its row; 0 for classes without a row.
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
    /// The row as it was set. Without classes: all classes that no row names.
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
    /// Bandwidth over the last half second, or over the time since then if no request has come, in bytes per second.
    pub bytes_per_s: u64,
    /// Whether the floor was kept over the last half second. `None`: there is no floor, or requests asked for less.
    pub floor_held: Option<bool>,
    /// Whether the latency was kept. `None`: there is no target, or no request ended.
    pub latency_held: Option<bool>,
    /// Number of half seconds in which the floor or the latency was judged.
    pub judged: u64,
    /// Number of these in which the floor or the latency was missed.
    pub missed: u64,
}
