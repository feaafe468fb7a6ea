//! The lab: worlds that are not real.
//!
//! ```text
//!  trace ─► sim: virtual time over device models ─► Report ─► compare, sweep
//!           hostile: everything that may go wrong does, in seeded order (tests only)
//! ```

pub mod compact;
mod error;
pub mod hit_only;
mod touched;

#[cfg(feature = "hostile")]
pub mod hostile;
pub mod policy_spec;
pub mod reproduce;
pub mod sim;
pub mod size;

pub use error::LabError;
