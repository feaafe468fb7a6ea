//! Worlds that are not real: the hostile one, in which everything that may go wrong does, in seeded order.

#[cfg(feature = "hostile")]
pub mod hostile;
