//! The engine's knobs in a description. Each has one name and one unit, those of `isotherm set`.

use super::fields::IO;
use super::{IoConfig, Size};
use isotherm_core::engine::{KNOBS, knob};
use isotherm_core::policy::ParamError;

/// The age of dirty data in a volume that says nothing of it, in seconds.
const DIRTY_AGE_S: f64 = 3600.0;

impl IoConfig {
    /// The value of a knob of the engine in the description, in the knob's unit; `None` if the description does not set it, or if there is
    /// no such knob.
    pub fn knob(&self, name: &str) -> Option<f64> {
        let bytes = |b: Option<Size>| b.map(|b| b.0 as f64);
        match name {
            "move_bytes_per_s" => bytes(self.move_bytes_per_s),
            "p99_limit_s" => self.p99_limit_s,
            "commit_interval_s" => Some(self.commit_interval_s),
            "flush_ahead" => self.flush_ahead.map(f64::from),
            "flush_gather" => self.flush_gather.map(f64::from),
            "moves_max" => self.moves_max.map(f64::from),
            "wear_bytes_per_day" => bytes(self.wear_bytes_per_day),
            "wear_burst_h" => self.wear_burst_h,
            "dirty_age_s" => {
                let hour = self.sleep_hold_s.is_none().then_some(DIRTY_AGE_S);
                self.dirty_age_s.or(hour)
            }
            "dirty_max_percent" => self.dirty_max_percent,
            "sleep_hold_s" => self.sleep_hold_s,
            "sleep_hold_bytes" => bytes(self.sleep_hold_bytes),
            "sleep_starts_per_day" => self.sleep_starts_per_day,
            "sleep_wait_share" => self.sleep_wait_share,
            "power_limit_w" => self.power_limit_w,
            "join_bytes" => bytes(self.join_bytes),
            "join_s" => self.join_s,
            "kept_writes" => self.kept_writes.map(f64::from),
            _ => None,
        }
    }

    /// Stores a knob of the engine, so that it holds after the next start. A `value` of 0, which lifts a limit, removes the key. Returns
    /// false if there is no such knob. `value` must be valid for the engine.
    pub fn keep_knob(&mut self, name: &str, value: f64) -> bool {
        let limit = (value > 0.0).then_some(value);
        let bytes = |v: f64| Size(v as u64);
        match name {
            "move_bytes_per_s" => self.move_bytes_per_s = limit.map(bytes),
            "p99_limit_s" => self.p99_limit_s = limit,
            "commit_interval_s" => self.commit_interval_s = value,
            "flush_ahead" => self.flush_ahead = Some(value as u16),
            "flush_gather" => self.flush_gather = Some(value as u16),
            "moves_max" => self.moves_max = limit.map(|v| v as u16),
            "wear_bytes_per_day" => {
                (self.wear_years, self.wear_tbw) = (None, None);
                self.wear_bytes_per_day = limit.map(bytes);
            }
            "wear_burst_h" => self.wear_burst_h = Some(value),
            "dirty_age_s" => self.dirty_age_s = Some(value),
            "dirty_max_percent" => self.dirty_max_percent = limit,
            "sleep_hold_s" => self.sleep_hold_s = limit,
            "sleep_hold_bytes" => self.sleep_hold_bytes = limit.map(bytes),
            "sleep_starts_per_day" => {
                self.start_stop_years = None;
                self.sleep_starts_per_day = limit;
            }
            "sleep_wait_share" => self.sleep_wait_share = limit,
            "power_limit_w" => self.power_limit_w = limit,
            "join_bytes" => self.join_bytes = Some(bytes(value)),
            "join_s" => self.join_s = Some(value),
            "kept_writes" => self.kept_writes = limit.map(|v| v as u8),
            _ => return false,
        }
        true
    }

    /// Checks every number by itself.
    ///
    /// # Errors
    /// Names the key and its range.
    pub(super) fn check(&self) -> Result<(), String> {
        for f in IO {
            if let (Some((low, high)), Some(value)) = (f.limits, self.own(f.name))
                && !(low..=high).contains(&value)
            {
                return Err(format!("{}: {}", f.name, f.range));
            }
        }
        for k in &KNOBS {
            if let Some(value) = self.knob(k.name)
                && let Err(ParamError::Range(what)) = knob(k.name, value)
            {
                return Err(what.into());
            }
        }
        Ok(())
    }

    /// The value of a key of [`IO`], if it is a number.
    fn own(&self, name: &str) -> Option<f64> {
        match name {
            "buffers" => Some(self.buffers.0 as f64),
            "move_buffers" => Some(f64::from(self.move_buffers)),
            "queue_depth" => Some(f64::from(self.queue_depth)),
            "spin_us" => Some(f64::from(self.spin_us)),
            "stage_blocks" => Some(f64::from(self.stage_blocks)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_has_its_key_and_is_read_back() {
        for k in &KNOBS {
            let value = k.limits.1.min(60_000.0);
            let mut io = IoConfig::default();
            assert!(io.keep_knob(k.name, value), "{}", k.name);
            assert_eq!(io.knob(k.name), Some(value), "{}", k.name);
            let text = toml::to_string(&io).unwrap();
            assert!(text.contains(&format!("{} = ", k.name)), "{text}");
            assert_eq!(toml::from_str::<IoConfig>(&text), Ok(io));
        }
        assert!(!IoConfig::default().keep_knob("moves_min", 1.0));
    }

    #[test]
    fn every_number_has_its_limits() {
        for f in IO.iter().filter(|f| f.limits.is_some()) {
            assert!(IoConfig::default().own(f.name).is_some(), "{}", f.name);
        }
        for (io, want) in [
            ("p99_limit_s = -1.0", "p99_limit_s: seconds, 0 (no limit)"),
            ("p99_limit_s = nan", "p99_limit_s: "),
            (
                "commit_interval_s = 0.0",
                "commit_interval_s: seconds, 0.01",
            ),
            ("spin_us = 1001", "spin_us: from 0 to 1000"),
            ("join_bytes = \"2G\"", "join_bytes: bytes"),
        ] {
            let error = toml::from_str::<IoConfig>(io).unwrap().check().unwrap_err();
            assert!(error.starts_with(want), "{io}: {error}");
        }
    }
}
