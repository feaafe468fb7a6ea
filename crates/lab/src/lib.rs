//! The lab: policies over modelled devices, in virtual time.
//!
//! ```text
//!  trace ─► sim: virtual time over device models ─► Report ─► compare, sweep, plan
//! ```

pub mod bound;
pub mod compact;
pub mod compare;
pub mod energy;
mod error;
pub mod hit_only;
mod kept;
pub mod latency;
mod touched;

pub mod parity;
pub mod plan;
pub mod pool;
pub mod sample;
pub mod sim;
pub mod sweep;

pub use error::LabError;
pub use isotherm_words::{policy_spec, qos, size};
