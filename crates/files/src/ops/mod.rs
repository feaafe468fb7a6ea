//! What users, the kernel and the mover ask for, one function for each: they need all values of a [`crate::store::Store`].

mod attend;
pub mod attributes;
mod copy;
mod create;
pub(crate) mod data;
mod driver;
mod empty;
mod join;
pub mod moves;
mod remove;
mod rename;
mod special;
