//! Endurance: how much may be written per day, and how often a disk may be stopped.

use crate::Sheet;
use isotherm_core::Nanos;

/// Days in a year, averaged over leap years.
const DAYS: f64 = 365.25;
/// The years over which the start-stop cycles of a disk's life are spread, unless its user states a number of starts per day. Disks are
/// sold with a warranty of two to five years.
pub const START_STOP_YEARS: f64 = 5.0;

impl Sheet {
    /// The bytes that may be written to the drive in its life, from its sheet (its TBW). `None` if the sheet has no limit.
    pub fn write_limit_bytes(&self) -> Option<f64> {
        let gb = self.ssd.as_ref().map(|s| s.write_limit_gb)?;
        (gb > 0.0).then_some(gb * 1e9)
    }
    /// The number of start-stop cycles in the disk's life, from its sheet. `None` if the sheet does not state it.
    pub fn start_stop_limit(&self) -> Option<f64> {
        let n = self.hdd.as_ref().map(|h| h.start_stop_limit)?;
        (n > 0.0).then_some(n)
    }
    /// The time between two starts at which the start-stop cycles of the disk's life last for [`START_STOP_YEARS`]. `None` if the sheet does
    /// not state their number.
    pub fn start_interval(&self) -> Option<Nanos> {
        self.start_interval_for(START_STOP_YEARS)
    }
    /// The same for another number of years, more than 0.
    pub fn start_interval_for(&self, years: f64) -> Option<Nanos> {
        let limit = self.start_stop_limit()?;
        Some(Nanos((years * DAYS * 86_400e9 / limit).ceil() as u64))
    }
}

/// Bytes per day at which `limit` bytes last for `years`, rounded down.
///
/// # Errors
/// The message says what is out of range: 0.01 to 1000 years, at least 1 and at most 10^16 bytes per day.
pub fn bytes_per_day(limit: f64, years: f64) -> Result<u64, String> {
    if !(0.01..=1000.0).contains(&years) {
        return Err("years: from 0.01 to 1000".into());
    }
    let rate = limit / (years * DAYS);
    if (1.0..=1e16).contains(&rate) {
        Ok(rate as u64)
    } else {
        Err(format!(
            "{limit} bytes in {years} years are {rate} a day: must be from 1 to 10^16"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_in_days() {
        assert_eq!(bytes_per_day(36_525.0, 1.0), Ok(100));
        assert!(bytes_per_day(36_525.0, 0.0).is_err() && bytes_per_day(0.0, 1.0).is_err());
        assert!(bytes_per_day(f64::NAN, 1.0).is_err() && bytes_per_day(1e30, 1.0).is_err());
        let limit = |name| crate::sheet(name).ok().and_then(|s| s.write_limit_bytes());
        assert_eq!(limit("nvme-tlc"), Some(6e14));
        assert_eq!(limit("wd5000aaks"), None);
        // 50 000 starts in five years: 27.4 a day.
        let interval = |name| crate::sheet(name).unwrap().start_interval();
        assert_eq!(interval("wd5000aaks"), Some(Nanos(3_155_760_000_000)));
        assert_eq!(interval("nvme-tlc"), None);
        let ten = crate::sheet("wd5000aaks").unwrap().start_interval_for(10.0);
        assert_eq!(ten, Some(Nanos(6_311_520_000_000)));
    }
}
