//! A policy that makes random proposals.

use super::Rng;
use isotherm_core::policy::{
    Access, Action, MoveRules, Outcome, ParamError, Place, Policy, Uses, View, WriteTo,
};
use isotherm_core::{ExtentId, Nanos, TierId};

/// See the module.
pub struct Chaos {
    rng: Rng,
    /// Largest number of proposals in one call.
    proposals_max: u64,
    /// Of four proposals, this number concerns copies.
    copies: u64,
    /// If set, the answer to most writes to an extent with a copy.
    write: Option<WriteTo>,
    /// If set, the policy keeps only copies and declares this. If `true`, its copies are never dirty.
    cache: Option<bool>,
    /// Each extent that is written gets a copy if there is room, and the write goes only to the copy, so homes hardly change.
    copies_writes: bool,
    /// Whether the policy declares that no copy may stay dirty, so that the engine writes dirty copies home in the background.
    cleans: bool,
    /// Whether clean copies may be read from the home while flash is behind.
    reads_sooner: bool,
    /// Whether its rounds keep away from requests.
    rounds_yield: bool,
}

impl Chaos {
    /// A policy whose proposals follow from `seed`.
    pub fn new(seed: u64) -> Chaos {
        let mut rng = Rng::new(seed);
        let proposals_max = 1 + rng.below(3);
        // A quarter of all volumes moves only homes, a quarter keeps only copies.
        let copies = [0, 2, 3, 4][rng.below(4) as usize];
        let write = match rng.below(4) {
            0 => Some(WriteTo::Copy),
            1 => Some(WriteTo::Both),
            2 => Some(WriteTo::Home),
            _ => None,
        };
        Chaos {
            rng,
            proposals_max,
            copies,
            write,
            cache: None,
            copies_writes: false,
            cleans: seed.count_ones().is_multiple_of(4),
            reads_sooner: seed.is_multiple_of(3),
            rounds_yield: seed.is_multiple_of(2),
        }
    }
    /// A policy that proposes only actions on copies.
    pub fn copies(seed: u64) -> Chaos {
        Chaos {
            proposals_max: 3,
            copies: 4,
            write: None,
            ..Chaos::new(seed)
        }
    }
    /// A caching policy. With `through`, its copies are never dirty.
    pub fn cache(seed: u64, through: bool) -> Chaos {
        let mut chaos = Chaos::copies(seed);
        let copies_writes = !through && chaos.rng.one_in(2);
        Chaos {
            cache: Some(through),
            copies_writes,
            proposals_max: if copies_writes {
                0
            } else {
                chaos.proposals_max
            },
            ..chaos
        }
    }
    fn random_action(&mut self, extent: ExtentId, to: TierId) -> Action {
        if self.rng.below(4) >= self.copies {
            return Action::Move { extent, to };
        }
        match self.rng.below(8) {
            0 => Action::Clean { extent },
            1 => Action::Evict { extent },
            2 | 3 => Action::Allocate { extent, to },
            4 | 5 => Action::FetchPart {
                extent,
                to,
                // Sometimes the range ends beyond the extent, and sometimes it is empty.
                from: self.rng.below(9) as u32 * 512,
                bytes: self.rng.below(9) as u32 * 512,
            },
            _ => Action::Fetch { extent, to },
        }
    }
    fn propose(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        for _ in 0..self.rng.below(self.proposals_max + 1) {
            // Sometimes the number is one too high. The engine must refuse this without a panic.
            let extent = ExtentId(self.rng.below(u64::from(view.units()) + 1) as u32);
            let to = TierId(self.rng.below(u64::from(view.tiers()) + 1) as u8);
            let first = self.random_action(extent, to);
            wanted.push(first);
            // Adjacent extents, whose moves the engine may join.
            if self.rng.one_in(3) {
                for i in 1..2 + self.rng.below(5) as u32 {
                    wanted.push(beside(first, i));
                }
            }
        }
    }
}

/// The same action on the extent that is `i` extents further on.
fn beside(action: Action, i: u32) -> Action {
    let on = |e: ExtentId| ExtentId(e.0 + i);
    match action {
        Action::Move { extent, to } => Action::Move {
            extent: on(extent),
            to,
        },
        Action::Fetch { extent, to } => Action::Fetch {
            extent: on(extent),
            to,
        },
        Action::FetchPart {
            extent,
            to,
            from,
            bytes,
        } => Action::FetchPart {
            extent: on(extent),
            to,
            from,
            bytes,
        },
        Action::Allocate { extent, to } => Action::Allocate {
            extent: on(extent),
            to,
        },
        Action::Clean { extent } => Action::Clean { extent: on(extent) },
        Action::Evict { extent } => Action::Evict { extent: on(extent) },
    }
}

impl Policy for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }
    fn uses(&self) -> Uses {
        match self.cache {
            Some(_) => Uses::Copies,
            None => Uses::Both,
        }
    }
    fn keeps_dirty(&self) -> bool {
        !self.cleans
    }
    fn reads_sooner(&self) -> bool {
        self.reads_sooner
    }
    fn attach(&mut self, _view: &mut View<'_>) {}
    fn first_touch(&mut self, view: &mut View<'_>, _extent: ExtentId) -> Place {
        if self.rng.below(4) < self.copies {
            return Place::Tier(view.slowest());
        }
        match self.rng.below(3) {
            0 => Place::Tier(TierId(self.rng.below(u64::from(view.tiers())) as u8)),
            1 => {
                let positions = view.positions(view.slowest()).end;
                Place::At(view.position(self.rng.below(u64::from(positions)) as u32))
            }
            _ => Place::Tier(TierId(0)),
        }
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        if self.copies_writes && access.write && access.copy.is_none() {
            let to = TierId(0);
            wanted.push(Action::Allocate { extent, to });
        } else if self.rng.one_in(3) {
            let to = TierId(self.rng.below(2) as u8);
            wanted.push(self.random_action(access.extent, to));
        }
        self.propose(view, wanted);
    }
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        let any = [WriteTo::Copy, WriteTo::Both, WriteTo::Home][self.rng.below(3) as usize];
        match self.write {
            _ if self.copies_writes => WriteTo::Copy,
            _ if self.cache == Some(true) && any == WriteTo::Copy => WriteTo::Both,
            Some(w) if !self.rng.one_in(4) => w,
            _ => any,
        }
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        _action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        // There is no new proposal after a refusal, because this could continue for ever.
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
        MoveRules {
            rounds_yield: self.rounds_yield,
            ..MoveRules::default()
        }
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
