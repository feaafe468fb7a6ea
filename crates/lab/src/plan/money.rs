//! Dollars and years of a row of the plan.
//!
//! Whole drives are bought, as many as the data at the end of the period needs. They draw the power of the run, and the idle power of the
//! sheet for each drive beyond the first. All flash drives of a row share the wear. Flash that is worn before the end is bought again.

use isotherm_models::Sleep;
use serde::Serialize;

use super::{Kind, Plan, Question};
use crate::LabError;
use crate::sim::{MemberUsage, Report};

/// Seconds of a year.
const YEAR_S: f64 = 365.25 * 86_400.0;
/// Joules of a kilowatt hour.
const KWH: f64 = 3.6e6;

/// What a row costs, in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Money {
    /// Disk and flash.
    pub purchase_usd: f64,
    /// Electricity of all years.
    pub energy_usd: f64,
    /// Flash in the place of worn flash.
    pub replacement_usd: f64,
    /// All of it.
    pub total_usd: f64,
}

/// What is bought for a row.
pub(super) struct Bought {
    /// Flash drives and disks.
    pub drives: [u32; 2],
    pub power_w: f64,
    pub flash_life_years: Option<f64>,
}

impl Bought {
    pub fn of(
        question: &Question,
        plan: &Plan,
        kind: Kind,
        flash_bytes: u64,
        report: &Report,
    ) -> Result<Bought, LabError> {
        let larger = (1.0 + plan.growth).powf(plan.years);
        let disk = if kind == Kind::FlashAlone {
            0
        } else {
            plan.data_bytes
        };
        let devices = [&plan.fast, &plan.slow];
        let needed = |bytes: u64, i: usize| {
            let most = devices[i].capacity_bytes.max(1) as f64;
            (bytes as f64 * larger / most).ceil() as u32
        };
        let drives = [needed(flash_bytes, 0), needed(disk, 1)];
        let mut power_w = report.mean_power_w.unwrap_or(0.0);
        for (i, n) in drives.iter().enumerate().filter(|(_, n)| **n > 1) {
            let sheet = question.devices[i].sheet_for(devices[i].capacity_bytes)?;
            let idle_w = Sleep::of_sheet(sheet).map_or(0.0, |s| s.idle_w);
            power_w += f64::from(n - 1) * idle_w;
        }
        let members = report.usage.iter().flat_map(|u| u.members.values());
        let flash = members.filter(|m| kind != Kind::DiskAlone && m.tier == 0);
        // Lives of one drive that a year of today's work uses.
        let a_year = flash.map(worn).sum::<f64>() / plan.trace_s * YEAR_S;
        let first = f64::from(drives[0]) / a_year;
        Ok(Bought {
            drives,
            power_w,
            flash_life_years: (a_year > 0.0).then(|| life(first, plan.growth)),
        })
    }

    /// The dollars, if all that is bought has a price.
    pub fn money(&self, question: &Question, plan: &Plan) -> Option<Money> {
        let price = |i: usize| {
            let n = self.drives[i];
            let usd = [&plan.fast, &plan.slow][i].price_usd;
            if n == 0 {
                Some(0.0)
            } else {
                Some(usd? * f64::from(n))
            }
        };
        let (flash, disk) = (price(0)?, price(1)?);
        let years = question.years;
        let again = self
            .flash_life_years
            .map_or(0.0, |l| (years / l).ceil() - 1.0);
        let energy_usd = self.power_w * years * YEAR_S / KWH * question.electricity_usd;
        let replacement_usd = flash * again.max(0.0);
        Some(Money {
            purchase_usd: flash + disk,
            energy_usd,
            replacement_usd,
            total_usd: flash + disk + energy_usd + replacement_usd,
        })
    }
}

/// The part of a whole drive's life that a member used: by the bytes that the maker allows or by erases, whichever is more.
fn worn(m: &MemberUsage) -> f64 {
    m.wear_eu.max(m.flash_wear_eu.unwrap_or(0.0)) * 1e-6
}

/// Years in which work that grows by `growth` a year does `first` times the work of the first year at today's rate.
fn life(first: f64, growth: f64) -> f64 {
    let rate = growth.ln_1p();
    if rate.abs() < 1e-9 {
        return first;
    }
    let inside = 1.0 + first * rate;
    // Work that shrinks may never wear it.
    if inside <= 0.0 {
        f64::INFINITY
    } else {
        inside.ln() / rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_under_growing_work() {
        assert!((life(5.0, 0.0) - 5.0).abs() < 1e-12);
        // The work of t years at rate r is (e^(rt) - 1) / r.
        for (growth, years) in [(0.2, 5.0), (1.0, 3.0), (-0.1, 4.0)] {
            let r = f64::ln_1p(growth);
            let work = ((r * years).exp() - 1.0) / r;
            assert!((life(work, growth) - years).abs() < 1e-9, "{growth}");
        }
        assert!(life(1e9, -0.5).is_infinite());
    }
}
