//! The steps from a policy's proposal to its outcome. They are the same for the engine, whose moves take time, and for the null engine,
//! whose moves take none.
//!
//! ```text
//!  proposed ──► may it start? ──► is it meaningful? ──► start ──► (time) ──► ended: counted, and the policy is informed
//!                   │ closed …          │ pointless         │ busy, full …
//!                   └───────────────────┴───────────────────┴──► refused: counted, and the policy is informed
//! ```

use crate::policy::{Action, Outcome, Refusal};
use crate::units::{ExtentId, Slot, TierId};
use crate::volume::Space;
use alloc::vec::Vec;

/// A valid action, with the places that it concerns on the volume in its present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// Moves the home, which is in `from`.
    Move {
        extent: ExtentId,
        from: Slot,
        to: TierId,
        up: bool,
    },
    /// Copies the data at `home` to a faster tier. The unit may have a copy already.
    Fetch {
        extent: ExtentId,
        home: Slot,
        to: TierId,
    },
    /// Copies `bytes` bytes of the data at `home`, from byte `from` on, to the existing copy or to a new one.
    FetchPart {
        extent: ExtentId,
        home: Slot,
        to: TierId,
        from: u32,
        bytes: u32,
    },
    /// Makes an empty copy for a unit without one.
    Allocate { extent: ExtentId, to: TierId },
    /// Writes the dirty copy home.
    Clean { extent: ExtentId },
    /// Drops the copy.
    Evict { extent: ExtentId },
}

/// The interface of an engine that carries out proposals.
pub(crate) trait Executor {
    /// Whether it counts promotions and demotions separately. If not, `up` is not computed and is always false.
    const COUNTS_DIRECTIONS: bool = true;
    /// The volume.
    fn space(&self) -> &Space;
    /// Counts an action that was proposed.
    fn proposed(&mut self, action: Action, up: bool);
    /// Whether an action of that kind can be started now.
    fn may(&self, action: Action) -> Result<(), Refusal>;
    /// Starts the action; returns true if it is done already. If not, the engine calls [`Executor::ended`] later.
    fn start(&mut self, action: Action, checked: Checked) -> Result<bool, Refusal>;
    /// An action ended: counts it and informs the policy, which may make more proposals.
    fn ended(&mut self, action: Action, up: bool, how: Outcome);
}

/// Carries out or refuses the proposals of a policy, in order. Afterwards `wanted` is empty and keeps its memory.
#[inline]
pub(crate) fn carry_out<F: Executor>(executor: &mut F, wanted: &mut Vec<Action>) {
    for &action in &*wanted {
        let up = F::COUNTS_DIRECTIONS && is_up(executor.space(), action);
        executor.proposed(action, up);
        let checked = executor
            .may(action)
            .and_then(|()| examine(executor.space(), action));
        match checked.and_then(|r| executor.start(action, r)) {
            Ok(true) => executor.ended(action, up, Outcome::Done),
            Ok(false) => {}
            Err(why) => executor.ended(action, up, Outcome::Refused(why)),
        }
    }
    wanted.clear();
}

/// Refuses proposals without examining them.
pub(crate) fn refuse_all(executor: &mut impl Executor, wanted: &mut Vec<Action>, why: Refusal) {
    for action in wanted.drain(..) {
        let up = is_up(executor.space(), action);
        executor.ended(action, up, Outcome::Refused(why));
    }
}

/// Whether an action brings data to a faster tier.
#[inline]
pub(crate) fn is_up(space: &Space, action: Action) -> bool {
    let Action::Move { extent, to } = action else {
        return matches!(action, Action::Fetch { .. } | Action::FetchPart { .. });
    };
    extent.0 < space.geo.extents
        && space
            .map
            .home(extent)
            .is_some_and(|s| to < space.geo.tier_of(s))
}

/// Checks an action and finds the places that it concerns.
///
/// # Errors
/// The action is pointless: there is no such unit or tier, there is nothing to move or to clean, or the data is there already.
#[inline(always)] // The check and its consequence then examine the action only once: 2 % of a decision.
#[allow(clippy::inline_always)]
fn examine(space: &Space, action: Action) -> Result<Checked, Refusal> {
    let extent = action.extent();
    if extent.0 >= space.geo.extents {
        return Err(Refusal::Pointless);
    }
    let sense = |ok: bool| if ok { Ok(()) } else { Err(Refusal::Pointless) };
    match action {
        Action::Move { to, .. } => {
            sense(to.0 < space.geo.tiers() && space.map.copy(extent).is_none())?;
            let from = space.map.home(extent).ok_or(Refusal::Pointless)?;
            let at = space.geo.tier_of(from);
            sense(at != to)?;
            let up = to < at;
            Ok(Checked::Move {
                extent,
                from,
                to,
                up,
            })
        }
        Action::Fetch { to, .. } | Action::Allocate { to, .. } => {
            let home = space.map.home(extent).ok_or(Refusal::Pointless)?;
            sense(to < space.geo.tier_of(home))?;
            if matches!(action, Action::Fetch { .. }) {
                return Ok(Checked::Fetch { extent, home, to });
            }
            sense(space.map.copy(extent).is_none())?;
            Ok(Checked::Allocate { extent, to })
        }
        Action::FetchPart {
            to, from, bytes, ..
        } => {
            let home = space.map.home(extent).ok_or(Refusal::Pointless)?;
            sense(to < space.geo.tier_of(home))?;
            let end = u64::from(from) + u64::from(bytes);
            sense(bytes > 0 && end <= space.bytes_of(extent))?;
            Ok(Checked::FetchPart {
                extent,
                home,
                to,
                from,
                bytes,
            })
        }
        Action::Clean { .. } => {
            sense(space.map.is_dirty(extent))?;
            Ok(Checked::Clean { extent })
        }
        Action::Evict { .. } => {
            sense(space.map.copy(extent).is_some())?;
            Ok(Checked::Evict { extent })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{Geometry, Member};
    use alloc::vec;

    #[test]
    fn pointless_actions_are_refused_before_anything_starts() {
        let m = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let geo = Geometry::new(12, 12, 4, vec![m(0, 2), m(1, 8)]).unwrap();
        let mut s = Space::new(geo);
        let (a, b, gone) = (ExtentId(0), ExtentId(1), ExtentId(9));
        let (fast, slow) = (TierId(0), TierId(1));
        s.map.map(a, Slot(5), false);
        let tried = |s: &Space, action| examine(s, action).is_ok();
        for extent in [b, gone] {
            // A unit without a home does not exist.
            assert!(!tried(&s, Action::Move { extent, to: fast }));
            assert!(!tried(&s, Action::Fetch { extent, to: fast }));
            assert!(!tried(&s, Action::Evict { extent }));
            assert!(!tried(&s, Action::Clean { extent }));
        }
        assert!(tried(
            &s,
            Action::Move {
                extent: a,
                to: fast
            }
        ));
        for to in [slow, TierId(2)] {
            assert!(!tried(&s, Action::Move { extent: a, to }));
            assert!(!tried(&s, Action::Fetch { extent: a, to }));
        }
        s.map.add_copy(a, Slot(0));
        assert!(!tried(
            &s,
            Action::Move {
                extent: a,
                to: fast
            }
        ));
        assert!(!tried(
            &s,
            Action::Allocate {
                extent: a,
                to: fast
            }
        ));
        assert!(tried(
            &s,
            Action::Fetch {
                extent: a,
                to: fast
            }
        ));
        assert!(tried(&s, Action::Evict { extent: a }) && !tried(&s, Action::Clean { extent: a }));
        s.map.set_dirty(a, true);
        assert!(tried(&s, Action::Clean { extent: a }));
    }
}
