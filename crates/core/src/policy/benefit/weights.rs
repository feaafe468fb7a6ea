//! The weights of time, energy, wear and money. A goal is a named set of weights.
//!
//! All costs are expressed in nanoseconds of device time. Weights convert the others: energy by the number of seconds that equal one joule,
//! wear and money by the number of seconds that equal one dollar. If all weights but `w_latency` are 0, only time counts.

use crate::load::Cost;
use crate::policy::{ParamError, nearest, param};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The goals of `benefit`.
pub const GOALS: [&str; 4] = ["fast", "quiet", "lasting", "cheap"];
/// The weights of each goal. Those of `lasting` and `cheap` were fitted on the seven tuning traces of `bench/benefit/table.py`.
const SETS: [(&str, Weights); 4] = [
    (GOALS[0], Weights::of(1000, 0, 0, 0)),
    (GOALS[1], Weights::of(1000, 1000, 0, 0)),
    (GOALS[2], Weights::of(1000, 0, 10_000_000, 0)),
    (GOALS[3], Weights::of(1000, 0, 0, 3_000_000)),
];
/// The names of the goals, for error messages.
const RANGE: &str = "fast, quiet, lasting or cheap";
/// Price of a nanojoule, 10⁻¹⁸ dollars. It corresponds to 0.25 dollars per kilowatt-hour.
const NANOJOULE_AUSD: u64 = 69;
/// Price of the wear of each byte written if no data sheet states it, 10⁻¹⁵ dollars. It is that of a drive that costs 100 dollars and has
/// a rated endurance of 600 TB.
const USUAL_WEAR_FUSD: u64 = 167;
/// Power during a small operation if no data sheet states its energy, watts (nanojoules per nanosecond), for flash and disks alike.
const USUAL_W: u64 = 5;

/// The weights. All are integers, so that a replay makes the same decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Weight of device time, thousandths.
    pub latency: u64,
    /// Thousandths of a second that equal one joule.
    pub energy: u64,
    /// Seconds that equal one dollar of wear.
    pub wear: u64,
    /// Seconds that equal one dollar of wear or energy.
    pub money: u64,
}

impl Default for Weights {
    fn default() -> Weights {
        SETS[0].1
    }
}

impl Weights {
    const fn of(latency: u64, energy: u64, wear: u64, money: u64) -> Weights {
        Weights {
            latency,
            energy,
            wear,
            money,
        }
    }
    /// The weights of a goal.
    pub fn named(goal: &str) -> Result<Weights, ParamError> {
        let found = SETS.iter().find(|g| g.0 == goal);
        found
            .map(|g| g.1)
            .ok_or_else(|| ParamError::Value(RANGE, nearest(goal, GOALS.into_iter())))
    }
    /// The goal that has these weights; `own` if none has.
    pub fn name(&self) -> &'static str {
        let found = SETS.iter().find(|g| g.1 == *self);
        found.map_or("own", |g| g.0)
    }
    /// Changes a weight; `None`: there is no weight of this name here.
    pub fn set(&mut self, key: &str, value: f64) -> Option<Result<(), ParamError>> {
        let (mine, scale, most, what) = match key {
            "w_latency" => (&mut self.latency, 1e3, 1e3, "a weight, 0 to 1000"),
            "w_energy" => (&mut self.energy, 1e3, 1e6, "seconds a joule, 0 to 10^6"),
            "w_wear" => (&mut self.wear, 1.0, 1e12, "seconds a dollar, 0 to 10^12"),
            "w_money" => (&mut self.money, 1.0, 1e12, "seconds a dollar, 0 to 10^12"),
            _ => return None,
        };
        Some(param::within(value, 0.0, most, what).map(|v| *mine = (v * scale) as u64))
    }
    /// Names and values.
    pub fn list(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("w_latency", self.latency as f64 / 1e3),
            ("w_energy", self.energy as f64 / 1e3),
            ("w_wear", self.wear as f64),
            ("w_money", self.money as f64),
        ]
    }
    /// The parameter `goal` and its value, in the form of parameters whose values are names.
    pub fn goal(&self) -> (&'static str, String) {
        ("goal", String::from(self.name()))
    }
    /// The weighted cost of `time` nanoseconds and `nj` nanojoules, nanoseconds.
    #[inline]
    fn weigh(&self, time: u64, nj: u64) -> u64 {
        // 128-bit divisions take longer than the whole rest of a decision, and they change nothing if only time counts.
        if self.energy == 0 && self.money == 0 && self.latency == 1000 {
            return time;
        }
        self.weigh_all(time, nj)
    }
    fn weigh_all(&self, time: u64, nj: u64) -> u64 {
        // 10⁻¹⁸ dollars times seconds a dollar are 10⁻⁹ ns.
        let energy = u128::from(nj) * u128::from(self.energy) / 1000
            + u128::from(nj) * u128::from(NANOJOULE_AUSD) * u128::from(self.money) / 1_000_000_000;
        let time = u128::from(time) * u128::from(self.latency) / 1000;
        u64::try_from(time + energy).unwrap_or(u64::MAX)
    }
    /// The weighted cost of `ns` nanoseconds of waiting, nanoseconds.
    pub fn time(&self, ns: u64) -> u64 {
        self.weigh(ns, 0)
    }
    /// The weighted cost of a small read of a tier, nanoseconds.
    pub fn read(&self, tier: &Cost) -> u64 {
        self.weigh(tier.read.0, known(tier.read_nj, tier.read.0 * USUAL_W))
    }
    /// The weighted cost of waking a tier that sleeps, nanoseconds.
    pub fn wake(&self, tier: &Cost) -> u64 {
        self.weigh(tier.wake.0, tier.wake_uj.saturating_mul(1000))
    }
    /// The weighted cost of writing a unit of `bytes` to a tier, nanoseconds: time and energy of one write, and the wear.
    pub fn copy(&self, tier: &Cost, bytes: u64) -> u64 {
        let each = known(tier.write_nj, tier.write.0 * USUAL_W);
        let nj = each.saturating_add(bytes.saturating_mul(tier.byte_pj) / 1000);
        self.weigh(tier.write.0, nj)
            .saturating_add(self.wear(tier, bytes))
    }
    /// The weighted cost of the wear of writing `bytes` to a tier, nanoseconds.
    #[inline]
    fn wear(&self, tier: &Cost, bytes: u64) -> u64 {
        if self.wear == 0 && self.money == 0 {
            return 0;
        }
        let fusd = u128::from(bytes) * u128::from(known(tier.wear_byte_fusd, USUAL_WEAR_FUSD));
        // 10⁻¹⁵ dollars times seconds a dollar are 10⁻⁶ ns.
        let wear = fusd * (u128::from(self.wear) + u128::from(self.money)) / 1_000_000;
        u64::try_from(wear).unwrap_or(u64::MAX)
    }
    /// Whether the sleep of the slow device has a value, so that writes go to flash while it sleeps.
    pub fn values_sleep(&self) -> bool {
        self.energy > 0
    }
}

/// The value of the data sheet, or the usual one if the sheet states none (0).
fn known(told: u64, usual: u64) -> u64 {
    if told > 0 { told } else { usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_have_names_and_weights_change_them() {
        for (goal, weights) in SETS {
            assert_eq!(Weights::named(goal), Ok(weights));
            assert_eq!(weights.name(), goal);
        }
        assert!(matches!(Weights::named("lastin"), Err(ParamError::Value(_, n)) if n == "lasting"));
        let mut w = Weights::default();
        assert_eq!(w.set("w_wear", 7.0), Some(Ok(())));
        assert_eq!((w.name(), w.wear), ("own", 7));
        assert!(matches!(
            w.set("w_energy", -1.0),
            Some(Err(ParamError::Range(_)))
        ));
        assert_eq!(w.set("wear", 1.0), None);
    }

    /// Calculated by hand. A read takes 2 ms and 30 mJ. A write takes 5 µs and 7 µJ, and each of its 4096 bytes 3 nJ and 200 fUSD.
    #[test]
    fn what_counts_in_nanoseconds() {
        let slow = Cost {
            read: crate::Nanos(2_000_000),
            read_nj: 30_000_000,
            ..Cost::SLOW
        };
        let fast = Cost {
            write: crate::Nanos(5_000),
            write_nj: 7_000,
            byte_pj: 3_000,
            wear_byte_fusd: 200,
            ..Cost::FAST
        };
        let w = |l, e, wear, m| Weights::of(l, e, wear, m);
        assert_eq!(w(1000, 0, 0, 0).read(&slow), 2_000_000);
        assert_eq!(w(500, 2000, 0, 0).read(&slow), 1_000_000 + 60_000_000);
        assert_eq!(w(1000, 0, 0, 0).copy(&fast, 4096), 5_000);
        // 819 200 fUSD at 10 000 s a dollar: 8.192 µs.
        assert_eq!(w(1000, 0, 10_000, 0).copy(&fast, 4096), 5_000 + 8_192);
        // 19 288 nJ are 1.33 × 10⁻¹² dollars: 13 ns.
        assert_eq!(w(0, 0, 0, 10_000).copy(&fast, 4096), 8_192 + 13);
        assert_eq!(w(0, 1000, 0, 0).copy(&fast, 4096), 7_000 + 12_288);
        // Without data sheets: 5 W, and 167 fUSD for each byte.
        assert_eq!(w(0, 1000, 0, 0).read(&Cost::FAST), 250_000);
        assert_eq!(w(0, 0, 1_000_000, 0).copy(&Cost::FAST, 4096), 684_032);
    }
}
