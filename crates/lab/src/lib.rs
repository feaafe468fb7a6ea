//! The lab: worlds that are not real.
//!
//! ```text
//!  trace ─► sim: virtual time over device models ─► Report ─► compare, sweep
//!                                                     └► report: pages and pictures
//!           hostile: everything that may go wrong does, in seeded order (tests only)
//! ```

pub mod compact;
mod error;
#[cfg(feature = "hostile")]
pub mod hostile;
pub mod policy_spec;
pub mod report;
pub mod sim;
pub mod size;

pub use error::LabError;
