//! From what a policy wants to how it ended: one ladder for the engine, whose moves take time, and for the null engine, whose
//! moves take none.
//!
//! ```text
//!  proposed ──► may it be at all? ──► does it make sense? ──► start ──► (time) ──► ended: counted, and the policy is told
//!                     │ closed …           │ pointless          │ busy, full …
//!                     └────────────────────┴────────────────────┴──► refused: counted, and the policy is told
//! ```

use crate::policy::{Action, Outcome, Refusal};
use crate::units::{ExtentId, Slot, TierId};
use crate::volume::Space;
use alloc::vec::Vec;

/// What an action comes to, on the volume as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// Move the home, which is in `from`.
    Move {
        extent: ExtentId,
        from: Slot,
        to: TierId,
        up: bool,
    },
    /// Copy what is at `home` to a faster tier. There may be a copy already.
    Fetch {
        extent: ExtentId,
        home: Slot,
        to: TierId,
    },
    /// Copy `bytes` from byte `from` on of what is at `home`, into the copy that is there or a new one.
    FetchPart {
        extent: ExtentId,
        home: Slot,
        to: TierId,
        from: u32,
        bytes: u32,
    },
    /// An empty copy for a unit without one.
    Allocate { extent: ExtentId, to: TierId },
    /// Write the dirty copy home.
    Clean { extent: ExtentId },
    /// Give up the copy.
    Evict { extent: ExtentId },
}

/// An engine as the ladder sees it.
pub(crate) trait Floor {
    /// Does it count ways up and down apart? If not, it is told `up: false`, and nobody looks.
    const COUNTS_WAYS: bool = true;
    /// The volume.
    fn space(&self) -> &Space;
    /// An action is proposed: count it.
    fn proposed(&mut self, action: Action, up: bool);
    /// Can an action of that kind be started at all now?
    fn may(&self, action: Action) -> Result<(), Refusal>;
    /// Start it; true if it is done already. If not, the engine calls [`Floor::ended`] when it is.
    fn start(&mut self, action: Action, rung: Rung) -> Result<bool, Refusal>;
    /// It ended: count it and tell the policy, which may want more.
    fn ended(&mut self, action: Action, up: bool, how: Outcome);
}

/// Take the wants of a policy up the ladder, in order. `wanted` is empty afterwards, with its memory.
#[inline]
pub(crate) fn climb<F: Floor>(floor: &mut F, wanted: &mut Vec<Action>) {
    for &action in &*wanted {
        let up = F::COUNTS_WAYS && is_up(floor.space(), action);
        floor.proposed(action, up);
        let rung = floor
            .may(action)
            .and_then(|()| examine(floor.space(), action));
        match rung.and_then(|r| floor.start(action, r)) {
            Ok(true) => floor.ended(action, up, Outcome::Done),
            Ok(false) => {}
            Err(why) => floor.ended(action, up, Outcome::Refused(why)),
        }
    }
    wanted.clear();
}

/// Refuse wants without a look at them.
pub(crate) fn refuse(floor: &mut impl Floor, wanted: &mut Vec<Action>, why: Refusal) {
    for action in wanted.drain(..) {
        let up = is_up(floor.space(), action);
        floor.ended(action, up, Outcome::Refused(why));
    }
}

/// Does it bring data to a faster tier?
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

/// What an action comes to.
///
/// # Errors
/// It is pointless: there is no such unit or tier, nothing to move, nothing to clean, or the data is there already.
#[inline(always)] // What it finds and what is done about it are one look at the action then: 2 % of a decision.
#[allow(clippy::inline_always)]
fn examine(space: &Space, action: Action) -> Result<Rung, Refusal> {
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
            Ok(Rung::Move {
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
                return Ok(Rung::Fetch { extent, home, to });
            }
            sense(space.map.copy(extent).is_none())?;
            Ok(Rung::Allocate { extent, to })
        }
        Action::FetchPart {
            to, from, bytes, ..
        } => {
            let home = space.map.home(extent).ok_or(Refusal::Pointless)?;
            sense(to < space.geo.tier_of(home))?;
            let end = u64::from(from) + u64::from(bytes);
            sense(bytes > 0 && end <= space.bytes_of(extent))?;
            Ok(Rung::FetchPart {
                extent,
                home,
                to,
                from,
                bytes,
            })
        }
        Action::Clean { .. } => {
            sense(space.map.is_dirty(extent))?;
            Ok(Rung::Clean { extent })
        }
        Action::Evict { .. } => {
            sense(space.map.copy(extent).is_some())?;
            Ok(Rung::Evict { extent })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{Geometry, Member};
    use alloc::vec;

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_starts() {
        let m = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        let geo = Geometry::new(12, 12, 4, vec![m(0, 2), m(1, 8)]).unwrap();
        let mut s = Space::new(geo);
        let (a, b, gone) = (ExtentId(0), ExtentId(1), ExtentId(9));
        let (fast, slow) = (TierId(0), TierId(1));
        s.map.map(a, Slot(5), false);
        let tried = |s: &Space, action| examine(s, action).is_ok();
        for extent in [b, gone] {
            // No home, no such unit.
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
