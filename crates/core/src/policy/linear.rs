//! `linear` and `mylinear`: the home of extent e is always slot e of the concatenated tiers. This is the device-mapper target that GreenDM
//! 6.2.1 takes as a baseline; "Mylinear" is the same with statistics.
//!
//! Parameters: none. When not to use it: if the hot data is not exactly at the lowest addresses. It is a baseline, and the right choice for
//! a volume with one tier.

use super::{Access, Action, ParamError, Place, Policy, View};
use crate::volume::UnitId;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Linear {
    name: &'static str,
}

impl Linear {
    /// Creates the policy under the name `linear` or `mylinear`.
    pub fn new(name: &'static str) -> Linear {
        Linear { name }
    }
}

impl Policy for Linear {
    fn name(&self) -> &'static str {
        self.name
    }
    fn minds_gaps(&self) -> bool {
        false // the place follows from the address, including gaps
    }
    fn attach(&mut self, _view: &mut View<'_>) {}
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place {
        Place::At(view.position(extent.0))
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, _wanted: &mut Vec<Action>) {
        if self.name == "mylinear" {
            view.set_last(access.extent, access.now);
            let n = view.stat(access.extent);
            view.set_stat(access.extent, n.saturating_add(1));
        }
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::from(
            "(linear has no parameters)",
        )))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        format!(
            "extent {extent} stays in slot {extent} ({} accesses counted); nothing moves it",
            view.stat(extent)
        )
    }
}
