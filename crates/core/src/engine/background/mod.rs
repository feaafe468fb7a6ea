//! Background work: work that waits while a disk sleeps (`sleep.rs`), when it may sleep (`when.rs`, `lulls.rs`,
//! `starts.rs`, `waits.rs`), how much power moves may take (`power.rs`), data that another policy leaves behind (`drain.rs`), data that is
//! dirty for too long (`age.rs`) or too much (`limit.rs`), how long it takes to clean it (`pace.rs`), and data that the user wants on flash
//! (`warm.rs`).
//!
//! All parts of the engine ask which disks may be woken and which places the policy uses. So this state is part of the shared state. The
//! steps of the work itself use the other parts and get them as arguments.

mod age;
mod drain;
mod limit;
mod lulls;
mod pace;
mod power;
mod sleep;
mod starts;
mod waits;
mod warm;
mod when;

pub use drain::{Drain, PER_UNIT_MOST, SwitchError, fits};
pub use pace::CleaningTime;
pub use power::PowerBudget;
pub use starts::StartBudget;
pub use warm::{WARM_RANGES_MAX, WarmEnd, WarmError, Warmed};
pub use when::{KeptAwake, SleepPays};

use super::Params;
use crate::policy::{Policy, Uses};
use crate::units::{Nanos, Slot, TierId};
use crate::volume::{Geometry, Space};
use alloc::vec;
use alloc::vec::Vec;
use drain::Draining;
use lulls::Lulls;
use pace::Pace;
use power::Power;
use sleep::SleepMode;
use starts::Starts;
use waits::Waits;
use warm::Warming;

/// Number of slots examined at once in the background: about 20 µs.
const SLOTS_PER_STEP: u32 = 2048;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Background {
    drain: Draining,
    pace: Pace,
    sleep: SleepMode,
    /// By member.
    lulls: Vec<Lulls>,
    /// By member: its budget of starts, if it has one.
    starts: Vec<Option<Starts>>,
    waits: Waits,
    power: Power,
    warming: Warming,
}

impl Background {
    pub(super) fn new(p: &Params, policy: &dyn Policy, space: &Space, now: Nanos) -> Background {
        let mut drain = Draining::new(policy, space);
        let fast = space.geo.tier_slots(space.geo.slowest()).start;
        if space.map.dirty() > 0 {
            drain.ages.opened_dirty();
        }
        drain.ages.set(p.dirty_age, fast as usize, now);
        drain.limit.set(p.dirty_max, space);
        if drain.limit.look(space.map.all_dirty_blocks(), 0) {
            drain.begin(now);
        }
        Background {
            drain,
            pace: Pace::default(),
            sleep: SleepMode::new(p.sleep_hold, p.sleep_hold_bytes, now),
            lulls: vec![Lulls::default(); space.geo.members.len()],
            starts: (0..space.geo.members.len())
                .map(|m| Starts::new(p.start_interval(m), now))
                .collect(),
            waits: Waits::new(p.sleep_wait_share, now),
            power: Power::default(),
            warming: Warming::default(),
        }
    }
    /// Another policy took over.
    pub(super) fn serve(&mut self, policy: &dyn Policy, space: &Space) {
        let next = Draining::new(policy, space);
        let before = core::mem::replace(&mut self.drain, next);
        self.drain.go_on_with(before);
        self.end_warming(WarmEnd::Policy);
    }
    /// Whether the policy knows of a copy in `slot`. A tiering policy knows of no copy. The other policies know the copies on the fastest
    /// tier. Any other copy was left by the previous policy.
    #[inline]
    pub(super) fn is_known_to_policy(&self, geo: &Geometry, slot: Slot) -> bool {
        self.drain.uses() != Uses::Homes && geo.tier_of(slot) == TierId(0)
    }
}
