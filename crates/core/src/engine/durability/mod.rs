//! Durability: rounds, checkpoints, and slots between "given up" and "free".

pub(in crate::engine) mod commit;
pub(in crate::engine) mod follow;
pub(in crate::engine) mod free;
pub(in crate::engine) mod round;
