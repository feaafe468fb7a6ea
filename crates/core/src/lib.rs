//! The engine as a value: events in, effects out, time as an argument.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod units;
pub mod io;

pub use io::*;
pub use units::*;
