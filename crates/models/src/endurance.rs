//! Endurance: how much may be written per day.

use crate::Sheet;

/// Days in a year, averaged over leap years.
const DAYS: f64 = 365.25;

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
    }
}
