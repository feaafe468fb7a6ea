//! The `isotherm` command: what it understands and what it prints.
//!
//! ```text
//!  argv ─► args (clap) ─► cmd::* ─► live · traces · core ─► json / text
//!                           │
//!                           └► control: one line of JSON each way, over the socket beside the volume
//! ```
//!
//! Never false: a command that failed leaves nothing half-made, says why in one line, and exits with 1, or with 2 if it was
//! called wrongly.
#![forbid(unsafe_code)]

pub mod args;
pub mod cmd;
pub mod control;
pub mod demo;
pub mod failure;
pub mod figures;
pub mod json;
pub mod member;
pub mod policy_spec;
pub mod size;
pub mod table;
pub mod tap;

pub use failure::Failure;
