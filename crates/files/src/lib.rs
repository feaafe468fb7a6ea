//! Placement of whole files: one namespace over a fast and a slow directory (and more), and files that move between them transparently.
//!
//! ```text
//!  kernel ─► fuse ─► ops: one function for each call, on the store's four values (`store.rs` has the order of their locks)
//!                     │      names ─► files in use ─► copies ─► tiers ─► disk: calls on plain directories
//!                     └─► accesses ─► placement: the core's policies, pins, rules, watermarks
//!                            │ moves
//!                            └─► mover, fetch (values that say the next step) ─► ops/driver.rs, ops/copy.rs
//! ```
//!
//! Guarantees: each file is complete in one place; data that a sync covered is there after a crash; tiers hold plain files that are
//! readable without this program.
// The only exception is `fuse/questions.rs`: fanotify.
#![deny(unsafe_code)]

mod access;
pub mod catalogue;
pub mod chaos;
pub mod check;
pub mod control;
pub mod copies;
mod counts;
mod dead_mount;
mod dir_readers;
pub mod disk;
pub mod fetch;
mod figures;
pub mod fuse;
mod identity;
pub mod intent;
mod lasting;
pub mod layout;
pub mod live;
pub mod mount;
pub mod mover;
pub mod mutants;
pub mod names;
mod ops;
pub mod path_key;
pub mod placement;
pub mod policy_state;
pub mod recording;
pub mod rules;
mod scan;
mod settings;
pub mod store;
mod sync;
pub mod tiers;
pub mod tree;
mod wire;

pub use copies::{heads, ranges};
pub use ops::{attributes, moves};
