//! The cost of a run by GreenDM's model (chapter 7), from the resources that its members used.

use isotherm_models::cost::{self, MemberPrice, Prices, Rounding, TARIFF, Tariff};
use serde::Serialize;

use super::report::Usage;

/// The numbers of repetitions that are shown, as in GreenDM's figures 7.1 to 7.3.
const FACTORS: [u64; 6] = [1, 10, 100, 1000, 10_000, 100_000];

/// Costs in US dollars. Recurring parts are those of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// Preset of the tariff.
    pub tariff: &'static str,
    /// The volume's share of the devices' prices, paid once.
    pub purchase_usd: f64,
    /// Energy of a run.
    pub energy_usd: f64,
    /// Demand charge of a run.
    pub power_usd: f64,
    /// Wear of a run.
    pub wear_usd: f64,
    /// Requests, egress and rent of a run.
    pub requests_usd: f64,
    /// Rack space, work and similar costs, paid once.
    pub service_usd: f64,
    /// Energy, power, wear and requests of a run.
    pub recurring_usd: f64,
    /// Total cost for one run.
    pub total_usd: f64,
    /// Total cost by number of repetitions of the run (the time factor).
    pub by_time_factor: Vec<(u64, f64)>,
    /// Members whose data sheet has no price. They count as free of charge.
    pub unpriced: Vec<String>,
}

/// The cost of `usage`; `None` if the tariff in the tree is invalid, which a test excludes.
pub(super) fn of(usage: &Usage) -> Option<Cost> {
    let mut prices = Prices {
        tariff: Tariff::preset(TARIFF).ok()?,
        members: Vec::new(),
        service_usd: 0.0,
        rounding: Rounding::Exact,
    };
    let mut used = cost::Usage {
        elapsed_s: usage.elapsed_s,
        host_energy_j: usage.host_j,
        members: Vec::new(),
    };
    let mut unpriced = Vec::new();
    for (name, m) in &usage.members {
        let sheet = isotherm_models::sheet(&m.preset).ok();
        let price = sheet.and_then(|s| MemberPrice::of_sheet(&s, m.bytes));
        prices.members.push(price.unwrap_or_else(|| {
            unpriced.push(name.clone());
            MemberPrice {
                name: name.clone(),
                device_usd: 0.0,
                device_gb: 1.0,
                used_gb: 0.0,
                usd_per_gb_month: 0.0,
            }
        }));
        used.members.push(cost::MemberUsage {
            energy_j: m.energy_j,
            wear_eu: m.wear_eu,
            requests_usd: 0.0,
        });
    }
    let one = prices.tco(&used, 1);
    Some(Cost {
        tariff: TARIFF,
        purchase_usd: one.purchase_usd,
        energy_usd: one.energy_usd,
        power_usd: one.power_usd,
        wear_usd: one.wear_usd,
        requests_usd: one.requests_usd,
        service_usd: one.service_usd,
        recurring_usd: one.recurring_usd(),
        total_usd: one.total_usd(),
        by_time_factor: FACTORS
            .map(|f| (f, prices.tco(&used, f).total_usd()))
            .to_vec(),
        unpriced,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::MemberUsage;

    #[test]
    fn a_run_repeated_costs_its_recurring_part_again() {
        let mut usage = Usage {
            elapsed_s: 3600.0,
            host_j: 36e5,
            ..Usage::default()
        };
        let member = MemberUsage {
            preset: "wd5000aaks".to_owned(),
            bytes: 100 << 30,
            energy_j: 30_000.0,
            wear_eu: 5.0,
            ..MemberUsage::default()
        };
        usage.members.insert("slow".to_owned(), member);
        let c = of(&usage).expect("priced");
        assert!(c.energy_usd > 0.0);
        let at = |f: u64| c.by_time_factor.iter().find(|x| x.0 == f).map(|x| x.1);
        let want = c.purchase_usd + c.service_usd + 100.0 * c.recurring_usd;
        assert!((at(100).expect("shown") - want).abs() < 1e-9 * want);
        assert!((c.total_usd - at(1).expect("shown")).abs() < 1e-12);
    }
}
