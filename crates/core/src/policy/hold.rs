//! Tiering moves the home of a unit; caching makes a copy in addition to the home (Loris III-C). An architecture that uses [`Hold`] can do
//! either: on-demand caching in Loris is dynamic hot-DST with copies, and makes the same decisions.

use super::middle::Middle;
use super::{Access, Action, Uses, View};
use crate::units::TierId;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// The tier for which all units compete.
pub const FAST: TierId = TierId(0);

/// Whether an architecture keeps homes or copies on the fast tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Homes: each unit is on exactly one tier.
    Home,
    /// Copies: the home stays on the slowest tier.
    Copy,
}

impl Hold {
    /// How a policy with this kind uses the faster tiers.
    pub fn uses(self) -> Uses {
        match self {
            Hold::Home => Uses::Homes,
            Hold::Copy => Uses::Copies,
        }
    }
    /// The action that brings a unit to the fast tier.
    pub fn up(self, extent: UnitId) -> Action {
        match self {
            Hold::Home => Action::Move { extent, to: FAST },
            Hold::Copy => Action::Fetch { extent, to: FAST },
        }
    }
    /// The action that makes room on the unit's tier: a home goes to the next slower tier that has room.
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
    /// The action for a unit that should not be on any faster tier.
    pub fn out(self, view: &View<'_>, extent: UnitId) -> Action {
        match self {
            Hold::Home => Action::Move {
                extent,
                to: view.slowest(),
            },
            Hold::Copy => Action::Evict { extent },
        }
    }
    /// Whether this action brings a unit to the fast tier.
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

/// Proposes evictions from the fast tier until `unit` fits there. `next` names the victims one after the other; it is told which
/// units leave already. If there are not enough victims, it proposes nothing and returns false. If units are extents, one is enough.
#[inline]
pub fn make_room(
    view: &View<'_>,
    unit: UnitId,
    wanted: &mut Vec<Action>,
    next: impl FnMut(&[Action]) -> Option<UnitId>,
) -> bool {
    let lacks = view.missing_grains(FAST, unit);
    lacks == 0 || (view.could_fit(FAST, unit) && clear(view, lacks, wanted, next))
}

/// Like [`make_room`], for a number of grains.
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

/// Whether one of these actions makes the unit leave.
#[inline]
pub fn leaves(leaving: &[Action], e: UnitId) -> bool {
    leaving.iter().any(|a| a.extent() == e)
}

/// The units in use that one search for a victim passes over. A request that waits holds its unit, so in a burst there may be as many of
/// them as requests; the search ends without a victim after [`Passed::MOST`] of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed(u32);

impl Passed {
    /// Largest number of units in use that a search passes over.
    pub const MOST: u32 = 256;
    /// Whether the search passes over `e`, because it is in use. After the limit, no more units are passed over.
    #[inline]
    pub fn over(&mut self, view: &View<'_>, e: UnitId) -> bool {
        let held = !self.is_limit() && view.is_held(e);
        self.0 += u32::from(held);
        held
    }
    /// Whether the limit was reached: what the search has found then is no victim.
    #[inline]
    pub fn is_limit(self) -> bool {
        self.0 >= Passed::MOST
    }
}

/// Whether the unit is served from the fast tier now.
pub fn is_fast(view: &View<'_>, e: UnitId) -> bool {
    view.copy(e)
        .or(view.home(e))
        .is_some_and(|s| view.tier_of(s) == FAST)
}

/// Whether the class of the access says that it belongs to a file over 1 MiB (Loris III-E, type-aware sieving; classes 13…18 of
/// docs/policy-rules.md section 9).
pub fn is_large_file(access: &Access) -> bool {
    is_large(access.class)
}

/// Whether the class is that of a file over 1 MiB.
pub fn is_large(class: u8) -> bool {
    (13..=18).contains(&class)
}
