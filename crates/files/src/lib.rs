//! Whole files in the right place: one namespace over a fast and a slow directory (and more), and files that move between them unseen.
//!
//! ```text
//!  kernel ─► fuse ─► store ─► catalogue (names and attributes, in memory)
//!                      │ ├──► live (files in use, their descriptors) ─► tiers: plain directories
//!                      │ └──► accesses ─► placement: the core's policies, pins, rules, watermarks
//!                      │                      │ moves
//!                      └── lock, swap ◄── mover (a value) ─► tree (calls on the tiers)
//! ```
//!
//! Never false: a file is whole at one place; what a sync covered is there after a crash; tiers hold plain files, readable
//! without this program.
#![forbid(unsafe_code)]

pub mod brain;
pub mod catalogue;
pub mod chaos;
pub mod check;
pub mod control;
pub mod data;
pub mod disk;
pub mod fuse;
mod health;
mod identity;
pub mod intent;
pub mod live;
mod look;
pub mod mount;
pub mod mover;
pub mod moves;
pub mod mutants;
pub mod names;
pub mod placement;
mod remember;
pub mod rules;
mod saved;
mod scan;
pub mod store;
pub mod tiers;
pub mod tree;
