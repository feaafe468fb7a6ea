//! The cost of storage: purchase, energy, power, wear, requests and rent, service (GreenDM, chapter 7).
//!
//! ```text
//!   Cost = Purchase + TCO                                                            (7.3)
//!   Purchase = Σ price per GB × GB used                                              (7.4, 7.5)
//!   TCO = time factor × (energy + power + wear + requests and rent) + service        (7.6)
//!   energy, power: by tariff                                                         (7.7, 7.8)
//!   wear = Σ price of the whole drive × life used                                    (7.9 - 7.12, as 7.2 does it)
//! ```
//! Requests and rent are additions of this project, for remote stores. Without a remote store they are zero and the formula is the paper's.
//!
//! Invariant: the parts of a [`Tco`] add up to its total.

mod capacity;
mod example;
mod tariff;
mod used;

pub use capacity::{CapacityCost, DevicePrices, capacity_cost};
pub use example::greendm_7_2;
pub use tariff::{Class, Period, Tariff};
pub use used::{TARIFF, Used};

use crate::sheet::Sheet;

/// Joules in a kWh.
const KWH: f64 = 3.6e6;
/// Seconds in an average month, the unit of rents.
const MONTH: f64 = 365.25 / 12.0 * 86_400.0;

/// The resources that a run used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds from begin to end.
    pub elapsed_s: f64,
    /// Energy of the host and of everything else that is not a member.
    pub host_energy_j: f64,
    /// Each member's share, in the order of [`Prices::members`].
    pub members: Vec<MemberUsage>,
}

/// The resources that one member used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemberUsage {
    /// Joules.
    pub energy_j: f64,
    /// Life used, in eu (one eu is 10⁻⁶ of a life).
    pub wear_eu: f64,
    /// Fees for requests and for egress traffic.
    pub requests_usd: f64,
}

impl Usage {
    /// Energy of host and members together.
    pub fn energy_j(&self) -> f64 {
        self.host_energy_j + self.members.iter().map(|m| m.energy_j).sum::<f64>()
    }

    /// Mean power of host and members together; zero if no time passed.
    pub fn mean_power_w(&self) -> f64 {
        if self.elapsed_s > 0.0 {
            self.energy_j() / self.elapsed_s
        } else {
            0.0
        }
    }
}

/// Prices of energy and devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// Prices of energy and power.
    pub tariff: Tariff,
    /// The devices.
    pub members: Vec<MemberPrice>,
    /// Rack space, work and similar costs, paid once.
    pub service_usd: f64,
    /// How intermediate amounts are rounded.
    pub rounding: Rounding,
}

/// Price of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberPrice {
    /// The name that reports show.
    pub name: String,
    /// Price of the whole device.
    pub device_usd: f64,
    /// GB (10⁹ bytes) of the whole device.
    pub device_gb: f64,
    /// GB of the device that the volume uses, and so pays for.
    pub used_gb: f64,
    /// Rent of a GB for a month.
    pub usd_per_gb_month: f64,
}

impl MemberPrice {
    /// The price from a data sheet, if `used_bytes` of the device are bought. `None` if the sheet has neither a price nor a rent.
    pub fn of_sheet(sheet: &Sheet, used_bytes: u64) -> Option<MemberPrice> {
        let rent = sheet.remote.as_ref().map(|r| r.usd_per_gb_month);
        if sheet.price_usd.is_none() && rent.is_none() {
            return None;
        }
        Some(MemberPrice {
            name: sheet.name.clone(),
            device_usd: sheet.price_usd.unwrap_or(0.0),
            device_gb: sheet.capacity() as f64 / 1e9,
            used_gb: used_bytes as f64 / 1e9,
            usd_per_gb_month: rent.unwrap_or(0.0),
        })
    }
}

/// Rounding of intermediate amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// No rounding.
    #[default]
    Exact,
    /// As in GreenDM's worked example (7.2): the price of a GB and the wear of each device are rounded to cents before use ($1.76 for
    /// 529/300, $0.01 for 200 × 10/300,000); energy and power are not rounded.
    Cents,
}

impl Rounding {
    fn apply(self, usd: f64) -> f64 {
        match self {
            Rounding::Exact => usd,
            Rounding::Cents => (usd * 100.0).round() / 100.0,
        }
    }
}

/// Total cost of ownership, part by part, in US dollars. Recurring parts are those of one run, not multiplied by the time factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tco {
    /// How many times the run is repeated.
    pub time_factor: u64,
    /// Price of the devices, paid once.
    pub purchase_usd: f64,
    /// Energy of a run.
    pub energy_usd: f64,
    /// Demand charge of a run.
    pub power_usd: f64,
    /// Wear of a run.
    pub wear_usd: f64,
    /// Requests, egress and rent of a run.
    pub requests_usd: f64,
    /// Service, paid once.
    pub service_usd: f64,
    /// The part of each member, in the order of [`Prices::members`].
    pub members: Vec<MemberCost>,
}

/// The part of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberCost {
    /// The name that reports show.
    pub name: String,
    /// Purchase price, paid once.
    pub purchase_usd: f64,
    /// Wear of a run.
    pub wear_usd: f64,
    /// Requests, egress and rent of a run.
    pub requests_usd: f64,
}

impl Tco {
    /// The cost of one run without purchase and service.
    pub fn recurring_usd(&self) -> f64 {
        self.energy_usd + self.power_usd + self.wear_usd + self.requests_usd
    }

    /// Equation 7.6.
    pub fn tco_usd(&self) -> f64 {
        self.time_factor as f64 * self.recurring_usd() + self.service_usd
    }

    /// Equation 7.3.
    pub fn total_usd(&self) -> f64 {
        self.purchase_usd + self.tco_usd()
    }
}

impl Prices {
    /// The cost of `usage`, repeated `time_factor` times. Members without usage count as unused.
    pub fn tco(&self, usage: &Usage, time_factor: u64) -> Tco {
        let members: Vec<MemberCost> = self
            .members
            .iter()
            .enumerate()
            .map(|(i, p)| {
                let used = usage.members.get(i).copied().unwrap_or_default();
                let per_gb = if p.device_gb > 0.0 {
                    self.rounding.apply(p.device_usd / p.device_gb)
                } else {
                    0.0
                };
                let rent = p.usd_per_gb_month * p.used_gb * usage.elapsed_s / MONTH;
                MemberCost {
                    name: p.name.clone(),
                    purchase_usd: per_gb * p.used_gb,
                    // The price of the whole drive is set against the whole drive's limit, because a worn-out drive is replaced as a whole.
                    wear_usd: self.rounding.apply(p.device_usd * used.wear_eu / 1e6),
                    requests_usd: used.requests_usd + rent,
                }
            })
            .collect();
        let sum = |part: fn(&MemberCost) -> f64| members.iter().map(part).sum();
        let mean_kw = usage.mean_power_w() / 1e3;
        Tco {
            time_factor,
            purchase_usd: sum(|m| m.purchase_usd),
            energy_usd: self.tariff.energy_usd(usage.energy_j() / KWH, mean_kw),
            power_usd: self.tariff.power_usd(mean_kw),
            wear_usd: sum(|m| m.wear_usd),
            requests_usd: sum(|m| m.requests_usd),
            service_usd: self.service_usd,
            members,
        }
    }
}

#[cfg(test)]
mod tests;
