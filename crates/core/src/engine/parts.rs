//! The parts of the engine that requests and background work use.

use super::durability::Durability;
use super::globals::Globals;
use super::relocation::Relocation;

/// See the module.
pub(super) struct Parts<'a> {
    pub(super) globals: &'a mut Globals,
    pub(super) durability: &'a mut Durability,
    pub(super) relocation: &'a mut Relocation,
}
