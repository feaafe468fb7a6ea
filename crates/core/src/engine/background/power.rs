//! The budget of power: the mean power of the members, above which no move of the policy begins.
//!
//! The budget is a bucket of energy. It fills at the limit, and all energy that the members take, as their data sheets state it
//! (`meter.rs`), is subtracted: also that of requests, and that of members that only wait. While the level is above 0, moves are admitted;
//! otherwise they are refused. Requests are never refused and never wait, so they alone can take more than the limit.
//!
//! The level lies between plus and minus the energy that the limit allows in a minute. So at most one minute's worth is saved up, and what
//! requests took beyond the limit counts up to one minute's worth. The bucket starts empty.
//!
//! Guarantee: if only moves take energy, the members take at most the limit times the length of any time, plus one minute's worth, plus the
//! energy of the moves that have begun. Whatever requests and idle members take comes in addition once it exceeds the limit.

use crate::engine::globals::Globals;
use crate::policy::Refusal;
use crate::units::Nanos;

/// The time whose energy can be saved up.
const SAVED: Nanos = Nanos::from_secs(60);

/// The state of the budget of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerBudget {
    /// The limit, microwatts.
    pub limit_uw: u64,
    /// Energy that may be taken at once, microjoules; negative if the members took more than the limit.
    pub left_uj: i64,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Power {
    /// 0: there is no limit.
    limit_uw: u64,
    /// Femtojoules, so that nothing is lost by rounding.
    level: i128,
    /// The time up to which the bucket was filled, and the energy that the members had taken then, microjoules.
    at: Nanos,
    taken: u64,
}

impl Power {
    fn set(&mut self, limit_uw: u64, now: Nanos, taken: u64) {
        if self.limit_uw == 0 {
            (self.level, self.at, self.taken) = (0, now, taken);
        }
        self.limit_uw = limit_uw;
        self.level = self.level.clamp(-self.most(), self.most());
    }
    fn most(&self) -> i128 {
        i128::from(self.limit_uw) * i128::from(SAVED.0)
    }
    fn fill(&mut self, now: Nanos, taken: u64) {
        let due = i128::from(self.limit_uw) * i128::from(now.since(self.at).0);
        let less = i128::from(taken.saturating_sub(self.taken)) * 1_000_000_000;
        self.level = (self.level + due - less).clamp(-self.most(), self.most());
        (self.at, self.taken) = (now, taken);
    }
}

impl Globals {
    /// The limit was set. It has no effect unless the data sheets of all members are known.
    pub(in crate::engine) fn set_power(&mut self) {
        let limit = self.params.power_limit_uw.unwrap_or(0);
        let known = self.devices.meter.is_complete();
        let taken = self.all_energy(self.clock);
        let limit = if known { limit } else { 0 };
        self.background.power.set(limit, self.clock, taken);
    }
    /// Brings the budget up to the present time. An operation is charged when it ends.
    #[inline]
    pub(in crate::engine) fn fill_power(&mut self) {
        if self.background.power.limit_uw > 0 {
            let taken = self.all_energy(self.clock);
            self.background.power.fill(self.clock, taken);
        }
    }
    /// Whether the budget admits a move now.
    pub(in crate::engine) fn may_take_power(&mut self) -> Result<(), Refusal> {
        self.fill_power();
        let p = &self.background.power;
        if p.limit_uw > 0 && p.level <= 0 {
            return Err(Refusal::PowerBudget);
        }
        Ok(())
    }
    /// The budget at `now`, if there is one.
    pub(in crate::engine) fn power_budget(&self, now: Nanos) -> Option<PowerBudget> {
        let mut p = self.background.power;
        if p.limit_uw == 0 {
            return None;
        }
        p.fill(now, self.all_energy(now));
        Some(PowerBudget {
            limit_uw: p.limit_uw,
            left_uj: i64::try_from(p.level / 1_000_000_000).unwrap_or(i64::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_minute_is_saved_up_or_owed() {
        let at = Nanos::from_secs;
        let mut p = Power::default();
        // 2 W, with 7 J taken before.
        p.set(2_000_000, at(100), 7_000_000);
        assert_eq!(p.level, 0);
        p.fill(at(101), 8_000_000);
        assert_eq!(p.level, 1_000_000_000_000_000, "2 J came, 1 J went");
        p.fill(at(1000), 8_000_000);
        assert_eq!(p.level, 120 * 1_000_000_000_000_000, "a minute's worth");
        p.fill(at(1001), 8_000_000_000);
        assert_eq!(p.level, -p.most());
        // It takes a minute to pay what is owed.
        p.fill(at(1061), 8_000_000_000);
        assert_eq!(p.level, 0);
        // A lower limit takes away what it would not have saved; setting it again changes nothing else.
        p.fill(at(1091), 8_000_000_000);
        p.set(500_000, at(1091), 8_000_000_000);
        assert_eq!(p.level, p.most());
        p.set(0, at(1092), 8_000_000_000);
        p.set(500_000, at(1093), 8_000_000_000);
        assert_eq!(p.level, 0, "begun anew");
    }

    #[test]
    fn nothing_is_lost_by_rounding() {
        let mut p = Power::default();
        p.set(3, Nanos(0), 0);
        (1..=1_000_000).for_each(|t| p.fill(Nanos(t * 1000), 0));
        assert_eq!(p.level, 3 * 1_000_000_000);
    }

    #[test]
    fn moves_alone_take_no_more_than_the_limit_and_a_minute() {
        const LIMIT_UW: u64 = 3_000_000;
        const MOVE_UJ: u64 = 60_000_000;
        let mut random = crate::random::SplitMix64::new(5);
        let mut p = Power::default();
        p.set(LIMIT_UW, Nanos(0), 0);
        let (mut now, mut taken, mut moves) = (Nanos(0), 0, alloc::vec::Vec::new());
        for _ in 0..3000 {
            let most_ms = if random.below(20) == 0 { 100_000 } else { 4000 };
            now = now + Nanos::from_millis(random.below(most_ms));
            p.fill(now, taken);
            if p.level > 0 {
                let energy = 1 + random.below(MOVE_UJ);
                taken += energy;
                moves.push((now, energy));
            }
        }
        assert!(moves.len() > 500 && moves.len() < 2500, "{}", moves.len());
        for begin in 0..moves.len() {
            let mut sum = 0;
            for &(at, energy) in &moves[begin..] {
                sum += energy;
                let time = at.since(moves[begin].0).0 + SAVED.0;
                let most = u128::from(LIMIT_UW) * u128::from(time) / 1_000_000_000;
                assert!(u128::from(sum) <= most + u128::from(MOVE_UJ));
            }
        }
    }
}
