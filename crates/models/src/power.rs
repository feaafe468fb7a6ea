//! Energy as an integral over power states.

use crate::model::{Counters, POWER_STATES, PowerState};

/// Sums the time in each state; joules are computed only when asked for.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    watts: [f64; POWER_STATES],
    ns: [u64; POWER_STATES],
    state: PowerState,
    since: u64,
}

impl Meter {
    pub fn new(watts: [f64; POWER_STATES]) -> Meter {
        Meter {
            watts,
            ns: [0; POWER_STATES],
            state: PowerState::Idle,
            since: 0,
        }
    }

    /// The device is in `state` from `at` on. An `at` before the last change counts as the time of that change.
    pub fn set(&mut self, state: PowerState, at: u64) {
        let at = at.max(self.since);
        self.ns[self.state as usize] += at - self.since;
        self.state = state;
        self.since = at;
    }

    /// Writes the times and joules until `now` to `out`.
    pub fn report(&self, now: u64, out: &mut Counters) {
        let mut ns = self.ns;
        ns[self.state as usize] += now.saturating_sub(self.since);
        for (i, &t) in ns.iter().enumerate() {
            out.state_j[i] = t as f64 * 1e-9 * self.watts[i];
        }
        out.state_ns = ns;
    }
}
