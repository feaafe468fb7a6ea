//! A policy that proposes anything.

use super::Rng;
use isotherm_core::policy::{Access, Action, MoveRules, Outcome, ParamError, Place, Policy, View};
use isotherm_core::{ExtentId, Nanos, Slot, TierId};

/// See the module.
pub struct Chaos {
    rng: Rng,
    /// Proposals a call, at most.
    eager: u64,
}

impl Chaos {
    /// Seeded.
    pub fn new(seed: u64) -> Chaos {
        let mut rng = Rng::new(seed);
        let eager = 1 + rng.below(3);
        Chaos { rng, eager }
    }
    fn propose(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        for _ in 0..self.rng.below(self.eager + 1) {
            // One beyond both ends now and then: the engine must refuse, not trip.
            let extent = ExtentId(self.rng.below(u64::from(view.geo().extents) + 1) as u32);
            let to = TierId(self.rng.below(u64::from(view.geo().tiers()) + 1) as u8);
            wanted.push(Action::Move { extent, to });
        }
    }
}

impl Policy for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }
    fn attach(&mut self, _view: &mut View<'_>) {}
    fn first_touch(&mut self, view: &mut View<'_>, _extent: ExtentId) -> Place {
        match self.rng.below(3) {
            0 => Place::Tier(TierId(self.rng.below(u64::from(view.geo().tiers())) as u8)),
            1 => Place::Exact(Slot(self.rng.below(u64::from(view.geo().slots())) as u32)),
            _ => Place::Tier(TierId(0)),
        }
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        if self.rng.one_in(3) {
            wanted.push(Action::Move {
                extent: access.extent,
                to: TierId(self.rng.below(2) as u8),
            });
        }
        self.propose(view, wanted);
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        _action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        // Not after refusals: two of them would feed each other for ever.
        if how == Outcome::Done {
            self.propose(view, wanted);
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if self.rng.one_in(8) {
            self.propose(view, wanted);
        }
    }
    fn next_wake(&self) -> Option<Nanos> {
        None
    }
    fn move_rules(&self) -> MoveRules {
        MoveRules::default()
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::new()))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, _view: &View<'_>, _extent: ExtentId) -> String {
        String::from("at random")
    }
}
