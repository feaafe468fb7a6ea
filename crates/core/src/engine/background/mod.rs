//! Background work: what waits while a disk sleeps (`lull.rs`), what another policy leaves behind (`drain.rs`).
//!
//! What may be disturbed, and what the policy has a use for, is asked by all parts and lies on the ground. The steps of the work itself
//! are on top: they are handed the parts that they set to work.

mod drain;
mod lull;

pub use drain::{Drain, SwitchError, fits};

use super::Params;
use crate::policy::{Policy, Uses};
use crate::units::{Nanos, Slot, TierId};
use crate::volume::{Geometry, Space};
use drain::Draining;
use lull::Lull;

/// Slots looked at in one go in the background: about 20 µs.
const LOOKS: u32 = 2048;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Background {
    drain: Draining,
    lull: Lull,
}

impl Background {
    pub(super) fn new(p: &Params, policy: &dyn Policy, space: &Space, now: Nanos) -> Background {
        Background {
            drain: Draining::new(policy, space),
            lull: Lull::new(p.sleep_hold, p.sleep_hold_bytes, now),
        }
    }
    /// Another policy took over.
    pub(super) fn serve(&mut self, policy: &dyn Policy, space: &Space) {
        self.drain = Draining::new(policy, space);
    }
    /// May the mirror lag? Under policies that move homes; and while a disk is to sleep in spite of writes, since telling it of
    /// the first dirty copy would wake it.
    pub(super) fn lets_mirror_lag(&self) -> bool {
        self.drain.uses() != Uses::Copies || self.lull.is_on()
    }
    /// Does the policy know of a copy in `slot`? A tiering policy knows of none, others of those on the fastest tier: what else
    /// there is was left by the policy before.
    #[inline]
    pub(super) fn is_the_policys(&self, geo: &Geometry, slot: Slot) -> bool {
        self.drain.uses() != Uses::Homes && geo.tier_of(slot) == TierId(0)
    }
}
