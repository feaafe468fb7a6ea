//! What a volume's hit ratio would be with more or less flash, and under other policies, from a sample of its requests.
//!
//! ```text
//!   requests ─► Sampler: is the extent in the sample? ─► Touch ─► Shadows: null engines, one for each setting and group
//!                                                                    └──► Estimate: hit ratio and error
//! ```
//! A *shadow* is a policy over a map, without devices ([`isotherm_core::null`]). It gets a sample of the extents, and flash that is smaller
//! by the same rate (miniature simulation: Waldspurger, Saemundsson, Ahmad, Park; ATC '17). Nothing here decides about the volume.

mod estimate;
mod sampler;
mod set;
#[cfg(test)]
mod tests;

pub use estimate::{Estimate, Range};
pub use sampler::{GROUPS, STRATUM_LEAST, Sampler, Seen, Touch};
pub use set::{BYTES_MOST, Begin, CANDIDATES, Setting, Shadows, Shape, TOUCHES_LEAST, Unfit};
