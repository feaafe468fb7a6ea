//! Placement of whole files: one namespace over a fast and a slow directory (and more), and files that move between them transparently.
//!
//! ```text
//!  kernel ─► fuse ─► store ─► catalogue (names and attributes, in memory)
//!                      │ ├──► live (files in use, their descriptors) ─► tiers: plain directories
//!                      │ └──► accesses ─► placement: the core's policies, pins, rules, watermarks
//!                      │                      │ moves
//!                      └── lock, swap ◄── mover (a value) ─► tree (calls on the tiers)
//! ```
//!
//! Guarantees: each file is complete in one place; data that a sync covered is there after a crash; tiers hold plain files that are
//! readable without this program.
// The only exception is `fuse/questions.rs`: fanotify.
#![deny(unsafe_code)]

pub mod attributes;
pub mod catalogue;
pub mod chaos;
pub mod check;
mod claims;
pub mod control;
pub mod copies;
mod copy_only;
mod counts;
pub mod data;
mod dead_mount;
mod dir_readers;
pub mod disk;
pub mod fetch;
pub mod fuse;
pub mod heads;
mod identity;
pub mod intent;
mod kept;
mod known;
mod lasting;
pub mod layout;
pub mod live;
pub mod mount;
pub mod mover;
pub mod moves;
pub mod mutants;
pub mod names;
pub mod path_key;
pub mod placement;
pub mod policy_state;
mod ranges;
pub mod recording;
mod remember;
pub mod rules;
mod saved;
mod scan;
mod settings;
pub mod store;
mod sync;
pub mod tiers;
pub mod tree;
mod wire;
