//! What a class of requests is promised of the volume's time: bandwidth at least and at most, latency, a share (DSS Table 1).
//!
//! | file | what it owns |
//! |---|---|
//! | `mod.rs` | what is asked for, and how it is kept, for people |
//! | `rate.rs` | a bandwidth as a value: a token bucket |
//! | `group.rs` | the classes of one row: what they have of it, whether they are behind |
//! | `scheduler.rs` | which request begins next |
//!
//! Requests that may not begin yet wait before the engine's first look at them: they hold no extent, no slot and no device, so
//! nothing that is under way waits for them, and a FLUSH covers what was answered before it as ever. What decides follows published
//! schedulers for storage between clients and devices: start-time fair queueing with a bounded number of requests at the devices
//! (SFQ(D): Jin, Chase, Kaur, SIGMETRICS 2004) for shares; bandwidths at least that are served before shares, and bandwidths at most
//! (mClock: Gulati, Merchant, Varman, OSDI 2010); fewer requests of the others at the devices while somebody misses what was
//! promised (as blk-iolatency of Linux). No clock, no randomness, no allocation per request.

mod group;
mod rate;
mod scheduler;

pub use rate::Rate;
pub use scheduler::{Arrival, Scheduler};

use crate::stats::CLASSES;
use crate::units::Nanos;
use alloc::vec::Vec;

/// Rows at most.
pub const ROWS_MAX: usize = 32;
/// The share of a row that names none, and of all classes without a row together; that of `io.weight` in control groups.
pub const SHARE: u16 = 100;
/// Requests at the devices of one tier at once, unless said otherwise.
pub const DEPTH: u16 = 16;

/// What the classes of one row are promised, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which classes, a bit each.
    pub classes: u64,
    /// Bytes a second that they have as long as they ask for them and the devices can.
    pub floor: Option<u64>,
    /// Bytes a second that they never have more than.
    pub ceiling: Option<u64>,
    /// 95 of 100 of their requests are answered within that, as long as the devices can.
    pub latency: Option<Nanos>,
    /// Their part of the devices' time, beside the shares of the others that want some: 1 to 10 000.
    pub share: u16,
}

impl Row {
    /// Of these classes, nothing promised.
    pub fn of(classes: u64) -> Row {
        Row {
            classes,
            floor: None,
            ceiling: None,
            latency: None,
            share: SHARE,
        }
    }

    /// Does keeping it take a bound on what is at the devices?
    fn bounds(&self) -> bool {
        self.floor.is_some() || self.latency.is_some() || self.share != SHARE
    }
}

/// Everything that is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// No class is in two of them.
    pub rows: Vec<Row>,
    /// Requests at the devices of one tier at once, at least 1: more use the devices better, fewer keep shares closer.
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
    /// Takes a row in. Classes that an earlier row names leave it; a row without classes goes.
    ///
    /// # Errors
    /// What is wrong with it, in words; nothing is changed then.
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

    /// Is nothing promised?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// By class: 0 for the rest, else one more than the row's number.
    fn groups(&self) -> [u8; CLASSES] {
        core::array::from_fn(|c| {
            let row = self.rows.iter().position(|r| r.classes >> c & 1 != 0);
            row.map_or(0, |i| i as u8 + 1)
        })
    }
}

/// How a row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What was asked for; no classes: everything that no row names.
    pub row: Row,
    /// Requests that wait to begin.
    pub held: u32,
    /// Requests at work.
    pub in_flight: u32,
    /// Requests that waited before they began, so far.
    pub waited: u64,
    /// How long they did, all together.
    pub waited_time: Nanos,
    /// Bytes of requests that ended, so far.
    pub bytes: u64,
    /// Bytes a second over the last half second, or what was left of it when nothing came after.
    pub bytes_per_s: u64,
    /// Was the floor kept over the last half second? `None`: there is none, or less was asked for.
    pub floor_held: Option<bool>,
    /// Was the latency? `None`: there is none, or nothing ended.
    pub latency_held: Option<bool>,
    /// Half seconds in which floor or latency was at stake, and those in which one was missed.
    pub judged: u64,
    /// See there.
    pub missed: u64,
}
