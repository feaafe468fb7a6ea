//! The real world below and above the engine: devices, buffers, front ends.
//!
//! ```text
//!  nbd · block file · ublk          front ends: know their protocol, never the extent map
//!        │ Port: op, offset, len, buffer, completion
//!        ▼
//!  engine thread (core + io_uring)
//! ```
//!
//! Never false: a front end reaches the volume only through [`port::Port`].

pub mod block_file;
pub mod nbd;
pub mod port;
