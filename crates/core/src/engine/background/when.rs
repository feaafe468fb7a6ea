//! When a disk may sleep: after its timer, when the lulls of the past say that sleep pays ([`super::lulls`]), and as its budget of starts
//! ([`super::starts`]) and the cap on waits for wake-ups ([`super::waits`]) allow. All but the timer apply in sleep-aware mode only.

use super::Background;
use super::lulls::Timer;
use super::starts::{StartBudget, Starts};
use crate::engine::globals::Globals;
use crate::engine::params::Params;
use crate::load::Cost;
use crate::units::Nanos;

/// Why a disk is still awake, although it has been idle for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAwake {
    /// Its budget of starts is used up.
    Starts,
    /// Too large a share of the requests waited for wake-ups.
    Waits,
}

/// What is known about the energy that sleep saves on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepPays {
    /// The break-even time; `None`: the energy of a wake-up is unknown, or sleep saves nothing.
    pub break_even: Option<Nanos>,
    /// The power that sleep saves, microwatts.
    pub saved_uw: u64,
    /// Whether that power was assumed, because no data sheet states it.
    pub assumed: bool,
}

impl Background {
    /// The budgets of starts and of waits were set. A budget of starts that changes begins anew.
    pub(in crate::engine) fn set_budgets(&mut self, p: &Params, now: Nanos) {
        for (m, starts) in self.starts.iter_mut().enumerate() {
            let interval = p.start_interval(m);
            if starts.as_ref().map(Starts::interval) != interval {
                *starts = Starts::new(interval, now);
            }
        }
        self.waits.set(p.sleep_wait_share, now);
    }
    /// A woken disk is ready.
    pub(in crate::engine) fn woken(&mut self, now: Nanos) {
        self.waits.woken(now);
    }
    /// A request that arrived at `arrived` is answered. Returns whether it waited for a wake-up.
    #[inline]
    pub(in crate::engine) fn answered(&mut self, arrived: Nanos, now: Nanos) -> bool {
        self.waits.answered(arrived, now)
    }
    /// The time from which on the budgets allow that this member sleeps; `None` while requests must be answered first.
    fn allowed_from(&self, member: usize) -> Option<Nanos> {
        let starts = self.starts[member].map_or(Nanos(0), |s| s.ready());
        Some(starts.max(self.waits.allowed_since()?))
    }
}

impl Globals {
    /// The time without use after which the member sleeps, without regard to budgets; `None`: never.
    fn patience(&self, member: usize) -> Option<Nanos> {
        let after = self.params.standby_after.get(member).copied().flatten()?;
        Some(if self.keeps_sleep_budgets(member) {
            self.background.lulls[member].patience(after)
        } else {
            after
        })
    }

    /// Whether sleep-aware mode is on and applies to the member.
    fn keeps_sleep_budgets(&self, member: usize) -> bool {
        self.background.sleep.is_on() && self.may_sleep(member)
    }

    /// The time at which the member is to be sent to sleep, unless it is used before; `None` if it is in use, asleep or missing, or has no
    /// such time, or if the cap on waits does not allow it.
    pub(super) fn standby_time(&self, member: usize) -> Option<Nanos> {
        let m = &self.devices.members[member];
        if m.asleep || m.missing || m.in_flight > 0 {
            return None;
        }
        let idle = m.last_used + self.patience(member)?;
        if !self.keeps_sleep_budgets(member) {
            return Some(idle);
        }
        Some(idle.max(self.background.allowed_from(member)?))
    }

    /// See [`crate::Engine::start_budget`].
    pub(in crate::engine) fn start_budget(&self, member: usize, now: Nanos) -> Option<StartBudget> {
        let starts = self.background.starts[member].filter(|_| self.keeps_sleep_budgets(member));
        starts.map(|s| s.state(now))
    }

    /// See [`crate::Engine::kept_awake`].
    pub(in crate::engine) fn kept_awake(&self, member: usize, now: Nanos) -> Option<KeptAwake> {
        let m = &self.devices.members[member];
        let idle = m.last_used + self.patience(member)?;
        if !self.keeps_sleep_budgets(member) || m.asleep || m.missing || idle > now {
            return None;
        }
        match self.background.allowed_from(member) {
            None => Some(KeptAwake::Waits),
            Some(t) => (t > now).then_some(KeptAwake::Starts),
        }
    }

    /// See [`crate::Engine::sleep_pays`].
    pub(in crate::engine) fn sleep_pays(&self, member: usize) -> SleepPays {
        let cost = self.sleep_cost(member);
        let (saved_uw, assumed) = cost.saved_uw();
        SleepPays {
            break_even: cost.break_even(),
            saved_uw,
            assumed,
        }
    }

    /// The times that the member needs to stop and to wake up according to its data sheet; 0 if they are unknown.
    pub(in crate::engine) fn wake_times(&self, member: usize) -> (Nanos, Nanos) {
        let cost = self.sleep_cost(member);
        (cost.down, cost.wake)
    }

    /// The costs of the member's tier according to its data sheet, if there is one.
    fn sleep_cost(&self, member: usize) -> Cost {
        let tier = usize::from(self.space.geo.members[member].tier.0);
        self.params.costs.get(tier).copied().unwrap_or(Cost::SLOW)
    }

    /// Whether the end of the lull that began at `used` was or is postponed by a budget.
    fn is_postponed(&self, member: usize, used: Nanos) -> bool {
        let idle = self.patience(member).map(|t| used + t);
        idle.filter(|&t| t < self.clock).is_some_and(|t| {
            let from = self.background.allowed_from(member);
            from.is_none_or(|from| from > t)
        })
    }

    /// An operation on this member starts, and the member had none in progress. In this mode, notes the end of a lull: `wakes` says whether
    /// the operation wakes the member, otherwise it is one for which a request waits.
    pub(in crate::engine) fn lull_ends(&mut self, member: usize, wakes: bool) {
        let after = self.params.standby_after.get(member).copied().flatten();
        let Some(after) = after.filter(|_| self.may_sleep(member)) else {
            return;
        };
        let even = self.sleep_cost(member).break_even().unwrap_or(Nanos(0));
        let (now, used) = (self.clock, self.devices.members[member].last_used);
        if !wakes && self.is_postponed(member, used) {
            self.counters.sleep_postponed += 1;
        }
        let b = &mut self.background;
        let (lulls, starts) = (&mut b.lulls[member], b.starts[member].as_ref());
        let length = if wakes {
            lulls.wakes(now)
        } else {
            lulls.length(used, now)
        };
        lulls.ended(now, length, Timer { after, even }, starts);
    }

    /// The member is sent to sleep.
    pub(super) fn begin_sleep(&mut self, member: usize) {
        let (now, used) = (self.clock, self.devices.members[member].last_used);
        if self.keeps_sleep_budgets(member) && self.is_postponed(member, used) {
            self.counters.sleep_postponed += 1;
        }
        let b = &mut self.background;
        b.lulls[member].sleeps(used);
        b.waits.sleeps();
        if let Some(s) = &mut b.starts[member] {
            s.take(now);
        }
    }
}
