//! Hot random off-loading (Lin and others): sections II to IV.
//!
//! | file | what it owns |
//! |---|---|
//! | `bench.rs` | the three weeks as workloads; HDD, HOT and HRO under them |
//! | `files.rs` | whole files on the SSD, as the paper places them |
//! | others | one experiment each |

pub(super) mod bandwidth;
mod bench;
pub(super) mod entry;
mod files;
pub(super) mod latency;
pub(super) mod motive;
pub(super) mod seeks;
pub(super) mod uses;

/// Usual scale: 0.25, 1.2 and 0.7 GB of files, one operation of two hundred.
pub(super) const SCALE: f64 = 0.005;
