//! Relocation: moves and copies, from what somebody wants to how it ended.

pub(in crate::engine) mod copies;
pub(in crate::engine) mod join;
pub(in crate::engine) mod move_list;
pub(in crate::engine) mod moves;
pub(in crate::engine) mod transfer;
pub(in crate::engine) mod wear;
