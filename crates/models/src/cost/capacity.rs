//! The price of a hybrid's capacity: tiering compared with caching (GreenDM 2.2, Figure 2.1).

/// GB per TB as in the figure: 0.10 $/GB gives its 51.2 $/TB only with this factor.
const GB_PER_TB: f64 = 1024.0;

/// Prices of the two devices, per GB.
///
/// The thesis takes them from Freitas (SIGMOD 2009) and does not print them. The disk's price follows from its result: at ratio 2 a tiering
/// hybrid saves half a disk's capacity, 51.2 $/TB, so a disk costs $0.10 per GB, with 1024 GB per TB. The printed "5 %" allows 1.62 to 2.02
/// $/GB for the flash drive; the default is the 1.76 that GreenDM 7.2 uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DevicePrices {
    /// Flash, $/GB.
    pub ssd_usd_per_gb: f64,
    /// Disk, $/GB.
    pub hdd_usd_per_gb: f64,
}

impl Default for DevicePrices {
    fn default() -> DevicePrices {
        DevicePrices {
            ssd_usd_per_gb: 1.76,
            hdd_usd_per_gb: 0.10,
        }
    }
}

/// Price of a TB of capacity that the user can fill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapacityCost {
    /// $/TB if both devices hold data of their own.
    pub tiering_usd_per_tb: f64,
    /// $/TB if the disk holds all data and the flash holds copies.
    pub caching_usd_per_tb: f64,
}

impl CapacityCost {
    /// The price of caching minus that of tiering, $/TB.
    pub fn difference(&self) -> f64 {
        self.caching_usd_per_tb - self.tiering_usd_per_tb
    }
}

/// Price of 1 TB of capacity of which the flash has `1 / ratio`; `ratio` ≥ 1.
pub fn capacity_cost(prices: &DevicePrices, ratio: f64) -> CapacityCost {
    let flash = 1.0 / ratio.max(1.0);
    let ssd = flash * GB_PER_TB * prices.ssd_usd_per_gb;
    let hdd = GB_PER_TB * prices.hdd_usd_per_gb;
    CapacityCost {
        tiering_usd_per_tb: ssd + (1.0 - flash) * hdd,
        caching_usd_per_tb: ssd + hdd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greendm_2_1() {
        let p = DevicePrices::default();
        let two = capacity_cost(&p, 2.0);
        assert!((two.difference() - 51.2).abs() < 1e-9, "{two:?}");
        let share = (two.difference() / two.caching_usd_per_tb * 100.0).round();
        assert!((share - 5.0).abs() < 1e-9, "{share}");
        // The difference shrinks as the ratio grows, and tiering is never more expensive.
        for r in 2..20 {
            let (a, b) = (
                capacity_cost(&p, f64::from(r)),
                capacity_cost(&p, f64::from(r + 1)),
            );
            assert!(a.difference() > b.difference() && b.difference() > 0.0);
        }
    }
}
