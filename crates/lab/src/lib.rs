//! Worlds that are not real: the hostile one, in which everything that may go wrong does, in seeded order.

pub mod hit_only;
mod kept;
mod touched;

#[cfg(feature = "hostile")]
pub mod hostile;
