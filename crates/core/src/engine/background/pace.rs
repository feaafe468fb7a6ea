//! How long it takes to write home what is dirty: measured, or by the costs of the slowest tier.
//!
//! Measured is the work that goes on without a pause: what the user asked for, what a policy that leaves
//! nothing dirty finds, and what is more than the limit. What a
//! policy cleans now and then says nothing about the time of all of it.

use super::Background;
use crate::engine::Engine;
use crate::engine::globals::Globals;
use crate::units::Nanos;

/// Older work counts half after this time of work, so that the rate follows the present load.
const MEMORY: Nanos = Nanos::from_secs(60);
/// Least time of work for a rate.
const LEAST: Nanos = Nanos::from_millis(100);
/// Least number of operations after which the costs of a tier are its own, where no data sheet states them.
const KNOWN: u64 = 16;

/// The time that cleaning takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningTime {
    /// The time.
    pub time: Nanos,
    /// Whether it follows from data that was written home in this session. Otherwise it follows from the costs of the slowest tier.
    pub measured: bool,
}

/// What was written home without a pause, and the time that it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    bytes: u64,
    time: Nanos,
    /// The last look, while the work goes on: its time, and all that was written home until then.
    last: Option<(Nanos, u64)>,
}

impl Pace {
    /// The work goes on; `written`: bytes that were written home so far.
    pub(super) fn goes_on(&mut self, now: Nanos, written: u64) {
        if let Some((then, before)) = self.last {
            self.bytes += written.saturating_sub(before);
            self.time = self.time + now.since(then);
        }
        if self.time > MEMORY {
            (self.bytes, self.time) = (self.bytes / 2, Nanos(self.time.0 / 2));
        }
        self.last = Some((now, written));
    }
    /// The work has ended.
    pub(super) fn ends(&mut self) {
        self.last = None;
    }
    /// The time for this number of bytes, if a rate is known.
    fn time_for(&self, bytes: u64) -> Option<Nanos> {
        if self.bytes == 0 || self.time < LEAST {
            return None;
        }
        let time = u128::from(bytes) * u128::from(self.time.0) / u128::from(self.bytes);
        Some(Nanos(u64::try_from(time).unwrap_or(u64::MAX)))
    }
}

impl Background {
    /// A step of the removal begins or, if it is over, has ended.
    pub(super) fn note_pace(&mut self, now: Nanos, written: u64) {
        if self.drain.cleans_all() {
            self.pace.goes_on(now, written);
        } else {
            self.pace.ends();
        }
    }
}

impl Globals {
    /// The time that the slowest tier needs for all dirty data, by its costs, if these are known.
    fn modelled(&self, bytes: u64) -> Option<Nanos> {
        let slowest = self.space.geo.slowest();
        let members = self.space.geo.members.iter().zip(&self.counters.members);
        let own = members.filter(|(m, _)| m.tier == slowest);
        let (disks, ops) = own.fold((0, 0), |(n, ops), (_, c)| (n + 1, ops + c.reads + c.writes));
        if self.params.costs.len() <= usize::from(slowest.0) && ops < KNOWN {
            return None;
        }
        let cost = self.space.loads.cost(slowest);
        let each = cost.write + cost.debt(false);
        let places = u128::from(self.space.map.dirty()) * u128::from(each.0);
        let time = places + u128::from(bytes) * u128::from(cost.write_byte_ps) / 1000;
        Some(Nanos(
            u64::try_from(time / disks.max(1)).unwrap_or(u64::MAX),
        ))
    }
}

impl Engine {
    /// The time that it takes to write home what is dirty now; `None`: nothing is, or nothing is known about the disks yet.
    pub fn cleaning_time(&self) -> Option<CleaningTime> {
        let (_, extents, bytes) = self.copies();
        if extents == 0 {
            return None;
        }
        let g = &self.globals;
        let measured = g.background.pace.time_for(bytes);
        let time = measured.or_else(|| g.modelled(bytes))?;
        Some(CleaningTime {
            time,
            measured: measured.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: 30 MB in 3 s, with a pause that does not count.
    #[test]
    fn a_pause_does_not_count() {
        let mut p = Pace::default();
        assert_eq!(p.time_for(1), None);
        p.goes_on(Nanos::from_secs(10), 5_000_000);
        assert_eq!(p.time_for(1), None);
        p.goes_on(Nanos::from_secs(11), 15_000_000);
        p.ends();
        p.goes_on(Nanos::from_secs(50), 90_000_000);
        p.goes_on(Nanos::from_secs(52), 110_000_000);
        assert_eq!(p.time_for(100_000_000), Some(Nanos::from_secs(10)));
    }

    #[test]
    fn the_rate_follows_the_present_load() {
        let mut p = Pace::default();
        p.goes_on(Nanos(0), 0);
        p.goes_on(Nanos::from_secs(1000), 1_000_000);
        let mut written = 1_000_000;
        for s in 1001..2000 {
            written += 1_000_000;
            p.goes_on(Nanos::from_secs(s), written);
        }
        let time = p.time_for(1_000_000).unwrap_or_default();
        assert!(time < Nanos::from_millis(1100), "{time:?}");
        // Nothing gets home any more: the estimate grows.
        p.goes_on(Nanos::from_secs(2050), written);
        assert!(p.time_for(1_000_000).unwrap_or_default() > time);
    }
}
