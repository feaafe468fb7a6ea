//! OODT (Salkhordeh, Asadi, Ebrahimi): figures 2 and 4 to 10, section 5.1.
//!
//! | file | what it owns |
//! |---|---|
//! | `work.rs` | the five workloads, each at its usual scale |
//! | `drives.rs` | the drives, the policies that are compared |
//! | `time.rs` | normalised time against the fast share: figures 4a, 5a, 6a, 7b, 8c |
//! | `cost.rs` | cost functions: figure 2 |
//! | `requests.rs` | sizes, fragments, kinds of requests: figures 4b to 8b, 4c, 8a |
//! | `blocks.rs` | block sizes: figure 9 |
//! | `weights.rs` | weights: figure 10 |
//! | `memory.rs` | section 5.1 |

pub(super) mod blocks;
pub(super) mod cost;
mod drives;
pub(super) mod memory;
pub(super) mod requests;
#[cfg(test)]
mod tests;
pub(super) mod time;
pub(super) mod weights;
mod work;

/// Usual scale of Postmark: 4 000 files instead of 40 000.
pub(super) const POSTMARK_SCALE: f64 = 0.1;
/// Usual scale of TPC-C: 25 000 transactions on one warehouse.
pub(super) const TPCC_SCALE: f64 = 0.025;
/// Usual scale of TPC-H.
pub(super) const TPCH_SCALE: f64 = 0.2;
/// Usual scale of IOzone: a file of 256 MB.
pub(super) const IOZONE_SCALE: f64 = 0.5;
/// Usual scale of the web server: the paper's files.
pub(super) const WEB_SCALE: f64 = 1.0;
