//! The engine as a value: events and the time are its input, effects are its output.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod ago;
pub mod bits;
mod by_number;
pub mod collector;
pub mod crc32c;
pub mod divide;
pub mod engine;
pub mod io;
pub mod load;
mod mutants;
mod node_index;
pub mod null;
pub mod policy;
mod proposals;
pub mod qos;
pub mod random;
pub mod run;
pub mod stats;
pub mod store;
pub mod units;
pub mod volume;

pub use engine::{Engine, Params};
pub use io::*;
pub use units::*;
pub use volume::{Position, UnitId, geometry, map, pins, regions, slots};
