//! The answers of `isotherm cost`.

use isotherm_models::cost::Tco;
use serde::Serialize;

/// `isotherm cost --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::lab) struct Answer<'a> {
    /// The tariff's name.
    pub(super) tariff: &'a str,
    /// Time of the run.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) elapsed_s: f64,
    /// Its energy.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) energy_j: f64,
    /// Its mean power.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) mean_power_w: f64,
    /// The cost by time factor.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) costs: Vec<Cost<'a>>,
}

/// The cost under one time factor.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Cost<'a> {
    /// How often the run is repeated.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub(super) time_factor: u64,
    /// Price of the devices.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) purchase_usd: f64,
    /// Energy of one run.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) energy_usd: f64,
    /// Power of one run, where the tariff asks for it.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) power_usd: f64,
    /// Wear of one run.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) wear_usd: f64,
    /// Requests and rent of one run.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) requests_usd: f64,
    /// Service.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) service_usd: f64,
    /// What recurs in all runs, and the devices.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) tco_usd: f64,
    /// All of it.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) total_usd: f64,
    /// By member.
    pub(super) members: Vec<MemberCost<'a>>,
}

/// The cost of a member.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MemberCost<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Its price.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) purchase_usd: f64,
    /// Its wear in one run.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) wear_usd: f64,
    /// Its requests and rent in one run.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) requests_usd: f64,
}

impl Cost<'_> {
    pub(super) fn new(t: &Tco) -> Cost<'_> {
        Cost {
            time_factor: t.time_factor,
            purchase_usd: t.purchase_usd,
            energy_usd: t.energy_usd,
            power_usd: t.power_usd,
            wear_usd: t.wear_usd,
            requests_usd: t.requests_usd,
            service_usd: t.service_usd,
            tco_usd: t.tco_usd(),
            total_usd: t.total_usd(),
            members: (t.members.iter())
                .map(|m| MemberCost {
                    name: &m.name,
                    purchase_usd: m.purchase_usd,
                    wear_usd: m.wear_usd,
                    requests_usd: m.requests_usd,
                })
                .collect(),
        }
    }
}

/// `isotherm cost shelves --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::lab) struct ShelfAnswer {
    /// Shelves of each system.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub(super) shelves: u32,
    /// The share of the power that is to be saved.
    pub(super) saving: f64,
    /// The systems.
    pub(super) systems: Vec<ShelfSystem>,
    /// Their controllers.
    pub(super) controllers: Vec<ShelfController>,
}

/// A controller with shelves.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ShelfSystem {
    /// The controller.
    pub(super) controller: String,
    /// The shelf.
    pub(super) shelf: String,
    /// Power of the idle system.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) idle_w: f64,
    /// Shelves whose disks must stand still; null: all are not enough.
    pub(super) shelves_spun_down: Option<u32>,
    /// Shelves that must be off; null: all are not enough.
    pub(super) shelves_powered_down: Option<u32>,
    /// Share that is saved if all disks stand still.
    pub(super) most_saved_spun_down: f64,
    /// Share that is saved if all shelves are off.
    pub(super) most_saved_powered_down: f64,
}

/// A controller.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ShelfController {
    /// Its name.
    pub(super) name: String,
    /// Its power.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) idle_w: f64,
    /// The most that it can manage.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) max_tb: f64,
    /// Its power for each of them.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) idle_w_per_tb: f64,
}

/// A row of `isotherm cost capacity --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::lab) struct CapacityRow {
    /// All capacity by that of flash.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub(super) ratio: f64,
    /// Cost of what a tiering volume holds.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) tiering_usd_per_tb: f64,
    /// Cost of what a cache volume holds.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) caching_usd_per_tb: f64,
    /// What caching costs more.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub(super) difference_usd_per_tb: f64,
}
