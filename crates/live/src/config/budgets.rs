//! Budgets and throttles of a description, in the form in which the engine takes them.

use super::VolumeConfig;
use isotherm_core::Nanos;
use isotherm_core::engine::knob;
use isotherm_core::policy::ParamError;
use std::path::Path;

impl VolumeConfig {
    /// The wear budget in bytes a day: `wear_bytes_per_day`, or the rate that follows from `wear_years` and `wear_tbw` (or the data sheets
    /// of the members of the fastest tier). There is no budget if such a sheet cannot be read, because that is no reason not to serve.
    ///
    /// # Errors
    /// Names the field: two that exclude each other, one without the other, or an unknown limit.
    pub fn wear_bytes_per_day(&self) -> Result<Option<u64>, String> {
        let io = &self.io;
        let Some(years) = io.wear_years else {
            if io.wear_tbw.is_some() {
                return Err("wear_tbw: only together with `wear_years`".into());
            }
            return Ok(io.wear_bytes_per_day.map(|b| b.0));
        };
        if io.wear_bytes_per_day.is_some() {
            return Err("wear_years: leave it out, or `wear_bytes_per_day`".into());
        }
        let limit = match io.wear_tbw {
            Some(tb) => tb * 1e12,
            None if self.lacks_fast_sheet() => return Ok(None),
            None => self.limit_of_sheets()?,
        };
        isotherm_models::bytes_per_day(limit, years)
            .map(Some)
            .map_err(|e| format!("wear_years: {e}"))
    }

    /// Bytes that may be written to the fastest tier in its life, if known: from `wear_tbw`, or from the data sheets of its members.
    pub fn wear_limit_bytes(&self) -> Option<f64> {
        (self.io.wear_tbw.map(|tb| tb * 1e12)).or_else(|| self.limit_of_sheets().ok())
    }

    /// Number of start-stop cycles that a member is specified for, if it has a data sheet.
    pub fn start_stop_limit(&self, member: usize) -> Option<f64> {
        let sheet = self.members.get(member)?.data_sheet().ok()??;
        sheet.start_stop_limit()
    }

    /// The time between two starts at which the start-stop cycles of a member last for `start_stop_years` (five years if that is left out),
    /// if it has a data sheet that states their number.
    pub fn start_interval(&self, member: usize) -> Option<Nanos> {
        let sheet = self.members.get(member)?.data_sheet().ok()??;
        match self.io.start_stop_years {
            Some(years) => sheet.start_interval_for(years),
            None => sheet.start_interval(),
        }
    }

    /// Checks `start_stop_years`. A data sheet that cannot be read is no reason not to serve.
    fn check_start_years(&self) -> Result<(), String> {
        let Some(years) = self.io.start_stop_years else {
            return Ok(());
        };
        if self.io.sleep_starts_per_day.is_some() {
            return Err("start_stop_years: leave it out, or `sleep_starts_per_day`".into());
        }
        if !(0.01..=1000.0).contains(&years) {
            return Err("start_stop_years: from 0.01 to 1000 years".into());
        }
        let is_lost = self.members.iter().any(|m| m.data_sheet().is_err());
        let is_known = (0..self.members.len()).any(|m| self.start_stop_limit(m).is_some());
        if is_known || is_lost {
            Ok(())
        } else {
            Err(
                "start_stop_years: needs a member whose data sheet (`sheet`) states `start_stop_limit`"
                    .into(),
            )
        }
    }

    /// Whether a real device of the fastest tier has a data sheet that cannot be read.
    pub(crate) fn lacks_fast_sheet(&self) -> bool {
        let fast = self.members.iter().filter(|m| m.tier == 0);
        fast.filter(|m| m.sheet.is_some())
            .any(|m| m.data_sheet().is_err())
    }

    /// Makes the paths of data sheets independent of the working directory: they are relative to the directory of the description `file`.
    pub(super) fn find_sheets(&mut self, file: &Path) {
        let dir = file.parent().unwrap_or(Path::new(""));
        // Without a working directory the names stay as they are.
        let dir = std::path::absolute(dir.join(".")).unwrap_or_default();
        for m in &mut self.members {
            for name in [&mut m.sheet, &mut m.paced].into_iter().flatten() {
                let path = Path::new(name.as_str());
                if path.extension().is_some_and(|e| e == "toml") && path.is_relative() {
                    // Names come from TOML, so they are UTF-8; the directory may not be, and then the name stays as it is.
                    if let Some(found) = dir.join(path).to_str() {
                        found.clone_into(name);
                    }
                }
            }
        }
    }

    fn limit_of_sheets(&self) -> Result<f64, String> {
        let unknown = "wear_years: needs `wear_tbw`, the terabytes that may be written to the fastest tier in its life";
        let mut sum = 0.0;
        for m in self.members.iter().filter(|m| m.tier == 0) {
            let sheet = m.data_sheet()?.ok_or(unknown)?;
            sum += sheet.write_limit_bytes().ok_or(unknown)?;
        }
        Ok(sum)
    }

    pub(super) fn check_budgets(&self) -> Result<(), String> {
        if self.io.power_limit_w.is_some()
            && let Some(m) = (self.members.iter()).find(|m| m.sheet.is_none() && m.paced.is_none())
        {
            return Err(format!(
                "power_limit_w: needs a data sheet of every member, and {} has none (`sheet`)",
                m.path.display()
            ));
        }
        self.check_start_years()?;
        // With `wear_years`, the valid range is that of the resulting bytes.
        match self.wear_bytes_per_day()? {
            Some(bytes) if self.io.wear_years.is_some() => {
                match knob("wear_bytes_per_day", bytes as f64) {
                    Err(ParamError::Range(what)) => Err(format!("wear_years: {what}")),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::VolumeConfig;
    use std::path::Path;

    fn parse(io: &str, paced: &str) -> Result<VolumeConfig, String> {
        let text = format!(
            "name = \"v\"\npolicy = \"lru\"\n[io]\n{io}\n[[members]]\npath = \"f\"\ntier = 0\n{paced}\n\
             [[members]]\npath = \"s\"\ntier = 1\nstandby_s = 60.0\n"
        );
        VolumeConfig::parse(&text, Path::new("v.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_budget_by_bytes_or_by_years() {
        let rate = |io: &str, paced: &str| {
            parse(io, paced).map(|c| c.wear_bytes_per_day().expect("checked"))
        };
        assert_eq!(rate("", ""), Ok(None));
        assert_eq!(
            rate("wear_bytes_per_day = \"100G\"", ""),
            Ok(Some(100 << 30))
        );
        // 365.25 TB in 1000 days.
        let years = 1000.0 / 365.25;
        let by_tbw = format!("wear_years = {years}\nwear_tbw = 365.25");
        assert!(
            rate(&by_tbw, "").is_ok_and(|r| r.is_some_and(|r| r.abs_diff(365_250_000_000) < 2))
        );
        // 600 TB over five years, from the data sheet.
        let sheet = rate("wear_years = 5.0", "paced = \"nvme-tlc\"");
        assert!(
            sheet.is_ok_and(|r| r.is_some_and(|r| (328_000_000_000..329_000_000_000).contains(&r)))
        );
        let real = rate("wear_years = 5.0", "sheet = \"nvme-tlc\"");
        assert_eq!(real, rate("wear_years = 5.0", "paced = \"nvme-tlc\""));
        for (io, field) in [
            ("power_limit_w = 9.0", "power_limit_w"),
            ("power_limit_w = -1.0", "power_limit_w"),
            ("wear_years = 5.0", "wear_tbw"),
            ("wear_tbw = 5.0", "wear_years"),
            (
                "wear_years = 5.0\nwear_tbw = 1.0\nwear_bytes_per_day = \"1G\"",
                "wear_bytes_per_day",
            ),
            ("wear_years = 0.0\nwear_tbw = 1.0", "wear_years"),
            ("wear_burst_h = 0.0", "wear_burst_h"),
            ("sleep_hold_s = 1e9", "sleep_hold_s"),
            ("sleep_starts_per_day = 0.001", "sleep_starts_per_day"),
            ("start_stop_years = 5.0", "start_stop_limit"),
            ("start_stop_years = 0.0", "start_stop_years"),
            ("start_stop_years = nan", "start_stop_years"),
            (
                "start_stop_years = 5.0\nsleep_starts_per_day = 9.0",
                "sleep_starts_per_day",
            ),
            ("sleep_wait_share = 1.5", "sleep_wait_share"),
            ("join_s = -1.0", "join_s"),
            ("join_bytes = \"2G\"", "join_bytes"),
            ("moves_maxx = 3", "moves_max"),
        ] {
            let e = parse(io, "").expect_err(io);
            assert!(e.contains("v.toml") && e.contains(field), "{io}: {e}");
        }
    }

    #[test]
    fn starts_last_for_the_wanted_years() {
        let interval = |io: &str| {
            let parsed = parse(io, "sheet = \"wd5000aaks\"");
            parsed.map(|c| (c.start_interval(0), c.start_interval(1)))
        };
        // 50 000 starts.
        let years = |n: u64| Some(isotherm_core::Nanos(n * 631_152_000_000));
        assert_eq!(interval(""), Ok((years(5), None)));
        assert_eq!(interval("start_stop_years = 10"), Ok((years(10), None)));
        assert_eq!(interval("start_stop_years = 2.0"), Ok((years(2), None)));
        // The knob replaces the key; without both, it is five years.
        let set = |value| {
            let mut c = parse("start_stop_years = 10.0", "sheet = \"wd5000aaks\"").expect("right");
            assert!(c.io.keep_knob("sleep_starts_per_day", value));
            (c.io.sleep_starts_per_day, c.start_interval(0))
        };
        assert_eq!(set(9.0), (Some(9.0), years(5)));
        assert_eq!(set(0.0), (None, years(5)));
        // A sheet that is gone is no reason not to serve.
        let gone = parse("start_stop_years = 10.0", "sheet = \"gone.toml\"");
        assert_eq!(gone.map(|c| c.start_interval(0)), Ok(None));
    }

    #[test]
    fn sheets_of_real_devices() {
        let member = |text: &str| parse("", text).map(|c| c.members[0].clone());
        let named = member("sheet = \"exos-18tb\"").expect("a name");
        assert!(named.model(1 << 40).expect("not paced").is_none());
        assert!(
            named
                .cost(1 << 40)
                .is_ok_and(|c| c.is_some_and(|c| c.idle_uw > 4_000_000))
        );
        let both = member("sheet = \"exos-18tb\"\npaced = \"exos-18tb\"");
        assert!(both.is_err_and(|e| e.contains("member 0: sheet: leave it out")));
        // The path is relative to the description. A file that is gone does not make the description wrong.
        let dir = tempfile::tempdir().expect("a directory");
        let text = "name = \"v\"\npolicy = \"lru\"\n[io]\nwear_years = 5.0\n[[members]]\npath = \"f\"\ntier = 0\nsheet = \"s.toml\"\n";
        let load = || {
            std::fs::write(dir.path().join("v.toml"), text).expect("written");
            VolumeConfig::load(&dir.path().join("v.toml")).expect("right")
        };
        assert_eq!(load().wear_bytes_per_day(), Ok(None));
        let sheet = include_str!("../../../models/presets/nvme-tlc.toml");
        assert!(
            load().members[0]
                .cost(1 << 40)
                .is_err_and(|e| e.contains("sheet: ") && e.contains("s.toml"))
        );
        std::fs::write(dir.path().join("s.toml"), sheet).expect("written");
        let flash = member("sheet = \"nvme-tlc\"").expect("a name");
        assert_eq!(load().members[0].cost(1 << 40), flash.cost(1 << 40));
        assert!(load().wear_bytes_per_day().is_ok_and(|rate| rate > Some(0)));
    }
}
