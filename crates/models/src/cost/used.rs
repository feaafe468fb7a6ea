//! The work of devices for a class of data, in seconds, joules and dollars.

use super::Tariff;
use isotherm_core::stats::{TierWork, Work};
use serde::Serialize;
use std::sync::LazyLock;

/// The tariff at which runs are priced (GreenDM, table 7.1).
pub const TARIFF: &str = "lipa-2013";
/// A mean power below this has the price of a small customer.
const SMALL_KW: f64 = 1.0;

/// Dollars per kilowatt hour; `None` if the tariff in the tree is invalid, which a test excludes.
static KWH_USD: LazyLock<Option<f64>> = LazyLock::new(|| {
    let tariff = Tariff::preset(TARIFF).ok()?;
    Some(tariff.energy_usd(1.0, SMALL_KW))
});

/// See the module. Moves are included. Only the volume's own metadata is not assigned to a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Used {
    /// Time that devices worked for the class.
    pub device_time_s: f64,
    /// Bytes read from tier 0.
    pub fast_read_bytes: u64,
    /// Bytes written to tier 0, which wear it.
    pub fast_write_bytes: u64,
    /// Bytes read from the other tiers.
    pub slow_read_bytes: u64,
    /// Bytes written to the other tiers.
    pub slow_write_bytes: u64,
    /// Joules above the idle energy, from the data sheets; `None` if they do not state the power.
    pub energy_j: Option<f64>,
    /// Price of the device life that its writes used, from the data sheets; `None` if they do not state the limit.
    pub wear_usd: Option<f64>,
    /// The price of that energy by the tariff `lipa-2013`, plus the wear; `None` without the energy.
    pub cost_usd: Option<f64>,
}

impl Used {
    /// From the counters of the engine, by tier.
    pub fn of(work: &TierWork) -> Used {
        let mut slow = Work::default();
        work.iter().skip(1).for_each(|w| slow.add(w));
        let mut all = slow;
        all.add(&work[0]);
        let known = |n: u64, unit: f64| (n > 0).then_some(n as f64 * unit);
        let energy_j = known(all.energy_nj, 1e-9);
        let wear_usd = known(all.wear_fusd, 1e-15);
        let paid = energy_j.zip(*KWH_USD).map(|(j, usd)| j / super::KWH * usd);
        Used {
            device_time_s: all.busy.as_secs_f64(),
            fast_read_bytes: work[0].bytes_read,
            fast_write_bytes: work[0].bytes_written,
            slow_read_bytes: slow.bytes_read,
            slow_write_bytes: slow.bytes_written,
            energy_j,
            wear_usd,
            cost_usd: paid.map(|p| p + wear_usd.unwrap_or(0.0)),
        }
    }

    /// The difference between two readings of the counters.
    pub fn between(now: Option<&TierWork>, before: Option<&TierWork>) -> Used {
        let none = TierWork::default();
        let (now, before) = (now.unwrap_or(&none), before.unwrap_or(&none));
        let mut work = none;
        for (w, (a, b)) in work.iter_mut().zip(now.iter().zip(before)) {
            *w = a.since(b);
        }
        Used::of(&work)
    }
}
