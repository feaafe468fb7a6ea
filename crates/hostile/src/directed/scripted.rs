//! A policy that does what a scene requests.

use isotherm_core::policy::{
    Access, Action, Outcome, ParamError, Place, Policy, Uses, View, WriteTo,
};
use isotherm_core::{ExtentId, Nanos, TierId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The requests of a scene to its policy.
#[derive(Debug)]
pub(super) struct Requested {
    pub(super) wanted: Vec<Action>,
    pub(super) write: WriteTo,
    pub(super) high: BTreeSet<u32>,
    pub(super) uses: Uses,
    pub(super) reads_sooner: bool,
}

/// A policy that does what the scene requests, and nothing else.
#[derive(Clone, Debug)]
pub(super) struct ScriptedPolicy(Arc<Mutex<Requested>>);

impl ScriptedPolicy {
    pub(super) fn new(uses: Uses) -> ScriptedPolicy {
        ScriptedPolicy(Arc::new(Mutex::new(Requested {
            wanted: Vec::new(),
            write: WriteTo::Copy,
            high: BTreeSet::new(),
            uses,
            reads_sooner: false,
        })))
    }
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Requested) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Policy for ScriptedPolicy {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn uses(&self) -> Uses {
        self.with(|w| w.uses)
    }
    /// Scenes count on the lowest free slot.
    fn fixes_places(&self) -> bool {
        true
    }
    fn reads_sooner(&self) -> bool {
        self.with(|w| w.reads_sooner)
    }
    fn attach(&mut self, _view: &mut View<'_>) {}
    fn first_touch(&mut self, view: &mut View<'_>, e: ExtentId) -> Place {
        let high = self.with(|w| w.high.contains(&e.0));
        Place::Tier(if high { TierId(0) } else { view.slowest() })
    }
    fn on_access(&mut self, _view: &mut View<'_>, _a: &Access, _wanted: &mut Vec<Action>) {}
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        self.with(|w| w.write)
    }
    fn on_settled(&mut self, _: &mut View<'_>, _: Action, _: Outcome, _: &mut Vec<Action>) {}
    fn tick(&mut self, _view: &mut View<'_>, wanted: &mut Vec<Action>) {
        self.with(|w| wanted.append(&mut w.wanted));
    }
    fn next_wake(&self) -> Option<Nanos> {
        None
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::new()))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, _view: &View<'_>, _extent: ExtentId) -> String {
        String::from("scripted")
    }
}
