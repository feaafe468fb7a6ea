//! OODT (Salkhordeh, Asadi, Ebrahimi): figures 2 and 4 to 10, section 5.1.
//!
//! | file | content |
//! |---|---|
//! | `work.rs` | the five workloads, each at its default scale |
//! | `drives.rs` | the drives, the policies that are compared |
//! | `time.rs` | normalised time as a function of the fast share: figures 4a, 5a, 6a, 7b, 8c |
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

/// Default scale of Postmark: 4 000 files in place of 40 000.
pub(super) const POSTMARK_SCALE: f64 = 0.1;
/// Default scale of TPC-C: 25 000 transactions on one warehouse.
pub(super) const TPCC_SCALE: f64 = 0.025;
/// Default scale of TPC-H.
pub(super) const TPCH_SCALE: f64 = 0.2;
/// Default scale of IOzone: a file of 256 MB.
pub(super) const IOZONE_SCALE: f64 = 0.5;
/// Default scale of the web server: the paper's number of files.
pub(super) const WEB_SCALE: f64 = 1.0;
