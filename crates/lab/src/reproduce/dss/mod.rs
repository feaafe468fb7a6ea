//! Differentiated storage services (Mesnier and others): section 5.
//!
//! | file | what it owns |
//! |---|---|
//! | `bench.rs` | the servers and the utilities as a workload; the three configurations |
//! | `show.rs` | rows and sums that several experiments share |
//! | others | one experiment each |

mod bench;
pub(super) mod contents;
pub(super) mod database;
pub(super) mod email;
pub(super) mod indicators;
pub(super) mod latencies;
mod show;
pub(super) mod tco;
pub(super) mod utilities;

/// Usual scale of the file server: 7 GB instead of 184.
pub(super) const FILE_SCALE: f64 = 0.04;
/// Usual scale of the e-mail server: 4 GB instead of 204.
pub(super) const EMAIL_SCALE: f64 = 0.02;
/// Usual scale of TPC-H: 0.6 GB instead of 29.
pub(super) const TPCH_SCALE: f64 = 0.02;
