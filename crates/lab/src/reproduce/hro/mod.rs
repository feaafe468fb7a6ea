//! Hot random off-loading (Lin and others): sections II to IV.
//!
//! | file | what it owns |
//! |---|---|
//! | `bench.rs` | the three weeks as workloads; HDD, HOT and HRO under them |
//! | others | one experiment each |

pub(super) mod bandwidth;
mod bench;
pub(super) mod entry;
pub(super) mod latency;
pub(super) mod motive;
pub(super) mod seeks;
pub(super) mod uses;

/// Usual scale: 50, 240 and 140 MB of files, one operation of a thousand.
pub(super) const SCALE: f64 = 0.001;
