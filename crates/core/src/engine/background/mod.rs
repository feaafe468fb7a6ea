//! Background: what is due by time, what waits while a disk sleeps, what another policy leaves behind.

pub(in crate::engine) mod lull;
pub(in crate::engine) mod switch;
pub(in crate::engine) mod upkeep;
