//! The lab: worlds that are not real.
//!
//! ```text
//!  trace ─► sim: virtual time over device models ─► Report ─► compare, sweep
//!                                                     └► report: pages and pictures
//!           hostile: everything that may go wrong does, in seeded order (tests only)
//! ```

pub mod bound;
pub mod compact;
pub mod compare;
mod error;
pub mod hit_only;
mod kept;
mod touched;

#[cfg(feature = "hostile")]
pub mod hostile;
pub mod parity;
pub mod pool;
pub mod report;
pub mod reproduce;
pub mod sim;
pub mod sweep;

pub use error::LabError;
pub use isotherm_words::{policy_spec, size};
