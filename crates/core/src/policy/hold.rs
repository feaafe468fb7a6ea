//! Tiering moves the home, caching keeps a copy beside it (Loris III-C). An architecture written against [`Hold`] serves
//! both: Loris' on-demand caching is its dynamic hot-DST with copies, and decides alike.

use super::middle::Middle;
use super::{Access, Action, Uses, View};
use crate::units::TierId;
use crate::volume::UnitId;

/// The tier that everything competes for.
pub const FAST: TierId = TierId(0);

/// What an architecture keeps on the fast tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Homes: a unit is on one tier.
    Home,
    /// Copies: the home stays on the slowest tier.
    Copy,
}

impl Hold {
    /// What a policy with it makes of the faster tiers.
    pub fn uses(self) -> Uses {
        match self {
            Hold::Home => Uses::Homes,
            Hold::Copy => Uses::Copies,
        }
    }
    /// Bring a unit to the fast tier.
    pub fn up(self, extent: UnitId) -> Action {
        match self {
            Hold::Home => Action::Move { extent, to: FAST },
            Hold::Copy => Action::Fetch { extent, to: FAST },
        }
    }
    /// Make a unit leave the tier that it is on, to make room: a home goes to the next slower tier that has room.
    pub fn down(self, view: &View<'_>, extent: UnitId) -> Action {
        let from = view.home(extent).map_or(FAST, |s| view.tier_of(s));
        match self {
            Hold::Home => Action::Move {
                extent,
                to: Middle::below(view, from).unwrap_or(view.slowest()),
            },
            Hold::Copy => Action::Evict { extent },
        }
    }
    /// Make a unit leave because it should not be on any faster tier.
    pub fn out(self, view: &View<'_>, extent: UnitId) -> Action {
        match self {
            Hold::Home => Action::Move {
                extent,
                to: view.slowest(),
            },
            Hold::Copy => Action::Evict { extent },
        }
    }
    /// Does this action bring a unit to the fast tier (or does it make one leave)?
    pub fn is_up(action: Action) -> bool {
        matches!(
            action,
            Action::Move { to: FAST, .. } | Action::Fetch { .. } | Action::Allocate { .. }
        )
    }
}

/// Is the unit served from the fast tier now?
pub fn is_fast(view: &View<'_>, e: UnitId) -> bool {
    view.copy(e)
        .or(view.home(e))
        .is_some_and(|s| view.tier_of(s) == FAST)
}

/// Does the access belong to a file over 1 MiB, where classes tell? (Loris III-E, type-aware sieving; classes 13…18 of
/// policy-specs section 9.)
pub fn is_large_file(access: &Access) -> bool {
    (13..=18).contains(&access.class)
}
