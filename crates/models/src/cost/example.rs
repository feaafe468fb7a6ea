//! GreenDM's worked example, section 7.2.

use super::{MemberPrice, MemberUsage, Prices, Rounding, Tariff, Usage};
use crate::check::SheetError;

/// The example: a hybrid of 8 GB of a 300 GB flash drive ($529) and 24 GB of a 2 TB disk ($200), $100 of service, and a run that uses 8 kWh
/// at 100 W, writes 365 GB to the flash drive and starts and stops the disk ten times.
///
/// By the formulas of the paper it costs $122.5082 at time factor 1 and $719.30 at 100. The paper prints $122.4219 and $710.67 because of
/// its sum for energy: it adds $0.6419, the price of 2 kWh at peak and of 5 other kWh, where its own split gives 6 other kWh (3 off peak
/// and 3 between). It also divides the disk's ten cycles by 200,000 and not by the 300,000 of its Table 7.2. Both quotients are $0.01 after
/// rounding to cents, as the paper rounds.
///
/// # Errors
/// The tariff in the tree is invalid; a test makes sure that it is not.
pub fn greendm_7_2() -> Result<(Prices, Usage), SheetError> {
    let member = |name: &str, device_usd, device_gb, used_gb| MemberPrice {
        name: name.to_owned(),
        device_usd,
        device_gb,
        used_gb,
        usd_per_gb_month: 0.0,
    };
    let prices = Prices {
        tariff: Tariff::preset("lipa-2013")?,
        members: vec![
            member("ssd", 529.0, 300.0, 8.0),
            member("hdd", 200.0, 2000.0, 24.0),
        ],
        service_usd: 100.0,
        rounding: Rounding::Cents,
    };
    let worn = |eu| MemberUsage {
        wear_eu: eu,
        ..MemberUsage::default()
    };
    let usage = Usage {
        // The time in which 100 W use 8 kWh.
        elapsed_s: 80.0 * 3600.0,
        host_energy_j: 8.0 * 3.6e6,
        members: vec![worn(1e6 * 365.0 / 36_500.0), worn(1e6 * 10.0 / 300_000.0)],
    };
    Ok((prices, usage))
}
