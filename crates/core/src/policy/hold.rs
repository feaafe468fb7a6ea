//! Tiering moves the home, caching keeps a copy beside it (Loris III-C). An architecture written against [`Hold`] serves
//! both: Loris' on-demand caching is its dynamic hot-DST with copies, and decides alike.

use super::middle::Middle;
use super::{Access, Action, Uses, View};
use crate::units::TierId;
use crate::volume::UnitId;
use alloc::vec::Vec;

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
            Action::Move { to: FAST, .. }
                | Action::Fetch { .. }
                | Action::FetchPart { .. }
                | Action::Allocate { .. }
        )
    }
}

/// Ask copies to leave the fast tier until `unit` fits there; `next` names one after the other, knowing which leave already. False,
/// and nothing is asked, if there are not enough. Where units are extents, that is one or none.
#[inline]
pub fn make_room(
    view: &View<'_>,
    unit: UnitId,
    wanted: &mut Vec<Action>,
    next: impl FnMut(&[Action]) -> Option<UnitId>,
) -> bool {
    let lacks = view.lacks(FAST, unit);
    lacks == 0 || (view.could_fit(FAST, unit) && clear(view, lacks, wanted, next))
}

/// The same for a number of grains.
#[inline]
pub fn clear(
    view: &View<'_>,
    mut lacks: u32,
    wanted: &mut Vec<Action>,
    mut next: impl FnMut(&[Action]) -> Option<UnitId>,
) -> bool {
    let first = wanted.len();
    while lacks > 0 {
        let Some(extent) = next(&wanted[first..]) else {
            wanted.truncate(first);
            return false;
        };
        lacks = lacks.saturating_sub(view.weight(extent));
        wanted.push(Action::Evict { extent });
    }
    true
}

/// Is the unit asked to leave by one of these?
#[inline]
pub fn leaves(leaving: &[Action], e: UnitId) -> bool {
    leaving.iter().any(|a| a.extent() == e)
}

/// Is the unit served from the fast tier now?
pub fn is_fast(view: &View<'_>, e: UnitId) -> bool {
    view.copy(e)
        .or(view.home(e))
        .is_some_and(|s| view.tier_of(s) == FAST)
}

/// Does the access belong to a file over 1 MiB, where classes tell? (Loris III-E, type-aware sieving; classes 13…18 of
/// docs/policy-rules.md section 9.)
pub fn is_large_file(access: &Access) -> bool {
    is_large(access.class)
}

/// The same of a class.
pub fn is_large(class: u8) -> bool {
    (13..=18).contains(&class)
}
