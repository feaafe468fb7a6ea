//! The engine as a value: events in, effects out, time as an argument.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod bits;
pub mod collector;
pub mod crc32c;
pub mod engine;
pub mod geometry;
pub mod io;
pub mod map;
pub mod null;
pub mod pins;
pub mod policy;
pub mod slots;
pub mod stats;
pub mod store;
pub mod units;

pub use engine::{Engine, Params};
pub use io::*;
pub use units::*;
