//! The health of drives by their own account (SMART): `drives` of a member in `status`.

use serde::{Deserialize, Serialize};

/// A drive under a member, by its own account (SMART). What it does not state is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drive {
    /// Its path.
    pub device: String,
    /// Its model.
    pub model: Option<String>,
    /// Whether it says that it is well; false: it fails, or will soon.
    pub passed: Option<bool>,
    /// Warnings of an NVMe drive, as the bits of its log; 0: none.
    pub critical_warning: Option<u64>,
    /// Share of its write endurance that is used; more than 100 is possible.
    pub used_percent: Option<u64>,
    /// Sectors that were given up and replaced.
    pub reallocated_sectors: Option<u64>,
    /// Sectors that could not be read and wait for a write.
    pub pending_sectors: Option<u64>,
    /// Errors of the medium that were not corrected.
    pub media_errors: Option<u64>,
    /// Its temperature.
    pub temperature_c: Option<i64>,
    /// Whether it slept when it was last asked, and was left asleep.
    pub asleep: bool,
    /// Age of these figures; null if there are none.
    pub age_s: Option<f64>,
    /// Why there is nothing newer.
    pub not_known: Option<String>,
}

/// The warning about the temperature, which comes and goes.
const TOO_WARM: u64 = 2;

impl Drive {
    /// Whether the drive says that it fails.
    pub fn fails(&self) -> bool {
        self.passed == Some(false)
            || self
                .critical_warning
                .is_some_and(|bits| bits & !TOO_WARM != 0)
    }

    /// What the drive says that is bad: that it fails, first.
    pub fn complaints(&self) -> Vec<String> {
        let count = |n: Option<u64>, what: &str| Some(format!("{} {what}", n.filter(|n| *n > 0)?));
        let all = [
            (self.passed == Some(false)).then(|| "says that it fails".to_owned()),
            self.critical_warning
                .filter(|w| *w > 0)
                .map(|w| format!("critical warning {w}")),
            count(self.pending_sectors, "sectors that cannot be read"),
            count(self.reallocated_sectors, "sectors replaced"),
            count(self.media_errors, "errors of the medium"),
        ];
        all.into_iter().flatten().collect()
    }
}
