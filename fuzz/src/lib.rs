//! Entry functions of the fuzz targets. The crates' tests include the same files and feed them seeded inputs.

pub mod classify;
pub mod events;
pub mod iscsi;
pub mod nbd;
pub mod store;
pub mod words;
