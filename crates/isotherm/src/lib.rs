//! The `isotherm` command: its command line and its output.
//!
//! ```text
//!  argv ─► args (clap) ─► cmd::* ─► live · traces · core ─► json / text
//!                           │
//!                           └► isotherm_control: one line of JSON each way, over the socket beside the volume
//! ```
//!
//! Guarantee: a command that fails leaves nothing half-made, gives the reason in one line, and exits with 1, or with 2 after wrong usage.
#![forbid(unsafe_code)]

pub mod answers;
pub mod args;
pub mod cmd;
pub mod demo;
mod events_file;
pub mod frame;
pub mod http;
pub mod human;
pub mod json;
pub mod log;
pub mod member;
pub mod metrics;
pub mod notify;
pub mod overview;
pub mod pages;
mod patience;
pub mod progress;
pub mod reference;
pub mod table;
mod trace_plot;
pub mod view;

pub use isotherm_control as control;
use isotherm_control::{classes, failure, figures, place, tap};

pub use isotherm_control::Failure;
pub use isotherm_lab::{policy_spec, size};
