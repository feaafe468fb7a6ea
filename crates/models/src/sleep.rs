//! When a standby period saves energy.

use crate::sheet::Sheet;

/// The costs and savings of a standby period, from a data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sleep {
    /// Power when awake without work.
    pub idle_w: f64,
    /// Power in standby.
    pub standby_w: f64,
    /// Seconds from the command to standby.
    pub down_s: f64,
    /// Joules of going to standby.
    pub down_j: f64,
    /// Seconds from an access to ready.
    pub up_s: f64,
    /// Joules of waking up.
    pub up_j: f64,
    /// Life that a cycle uses, in eu; 0 if the sheet states no limit.
    pub cycle_eu: f64,
}

impl Sleep {
    /// Computed from a sheet; `None` for a device without a standby state (a remote store).
    pub fn of_sheet(sheet: &Sheet) -> Option<Sleep> {
        if let Some(h) = &sheet.hdd {
            let p = &h.power;
            let n = sheet.array.as_ref().map_or(1.0, |a| f64::from(a.disks));
            return Some(Sleep {
                idle_w: n * p.idle_w,
                standby_w: n * p.standby_w,
                down_s: p.spin_down_s,
                // The model charges idle power while the platters come to a stop.
                down_j: n * p.idle_w * p.spin_down_s,
                up_s: p.spin_up_s,
                up_j: n * p.spin_up_j,
                cycle_eu: if h.start_stop_limit > 0.0 {
                    1e6 / h.start_stop_limit
                } else {
                    0.0
                },
            });
        }
        let s = &sheet.ssd.as_ref()?.power;
        Some(Sleep {
            idle_w: s.idle_w,
            standby_w: s.standby_w,
            down_s: 0.0,
            down_j: 0.0,
            up_s: s.wake_us / 1e6,
            up_j: s.idle_w * s.wake_us / 1e6,
            cycle_eu: 0.0,
        })
    }

    /// The shortest idle time in seconds for which standby uses less energy than staying awake; `None` if it never does.
    ///
    /// Staying awake for T seconds takes `idle_w × T`; standby takes `down_j + standby_w × (T - down_s) + up_j`. A gap shorter than
    /// `down_s` never saves energy, because the device has to stop before it can start.
    pub fn break_even_s(&self) -> Option<f64> {
        self.break_even_with_j(0.0)
    }

    /// The same with the price of the life that a cycle uses. A cycle costs `cycle_eu` of a drive of `device_usd`, a joule costs
    /// `usd_per_kwh / 3.6e6`. If energy is cheap and the drive is specified for few cycles, wear is the larger cost.
    pub fn break_even_with_wear_s(&self, device_usd: f64, usd_per_kwh: f64) -> Option<f64> {
        if usd_per_kwh <= 0.0 {
            return None;
        }
        self.break_even_with_j(self.cycle_eu / 1e6 * device_usd / usd_per_kwh * 3.6e6)
    }

    fn break_even_with_j(&self, extra_j: f64) -> Option<f64> {
        let saved = self.idle_w - self.standby_w;
        let cost = self.down_j + self.up_j + extra_j - self.standby_w * self.down_s;
        (saved > 0.0).then(|| (cost / saved).max(self.down_s))
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::Nanos;

    use super::*;
    use crate::{ModelOp, Options, preset, presets, sheet};

    #[test]
    fn at_break_even_sleeping_and_waiting_use_the_same() {
        for name in ["wd5000aaks", "st32000641as", "exos-18tb"] {
            let t = Sleep::of_sheet(&sheet(name).unwrap())
                .unwrap()
                .break_even_s()
                .unwrap();
            // The model itself, woken by a read at the end of the gap. Both variants finish that read.
            let energy = |gap: f64, sleep: bool| {
                let mut m = preset(name, &Options::default()).unwrap();
                let mut done = Vec::new();
                if sleep {
                    m.start(Nanos(0), 0, ModelOp::Standby, 0, 0);
                }
                let at = Nanos((gap * 1e9) as u64);
                m.poll(at, &mut done);
                m.start(at, 1, ModelOp::Read, 0, 4096);
                let mut now = at;
                while let Some(e) = m.next_event() {
                    now = e;
                    m.poll(e, &mut done);
                }
                m.counters(now).energy_j()
            };
            assert!(energy(t * 0.9, true) > energy(t * 0.9, false), "{name} {t}");
            assert!(energy(t * 1.1, true) < energy(t * 1.1, false), "{name} {t}");
        }
    }

    #[test]
    fn every_device_says_whether_sleep_pays() {
        for s in presets().unwrap() {
            let sleep = Sleep::of_sheet(&s);
            assert_eq!(sleep.is_none(), s.remote.is_some(), "{}", s.name);
            let Some(sleep) = sleep else { continue };
            assert_eq!(
                sleep.break_even_s().is_some(),
                sleep.idle_w > sleep.standby_w,
                "{}",
                s.name
            );
        }
    }

    #[test]
    fn wear_makes_short_sleeps_dear() {
        let s = Sleep::of_sheet(&sheet("wd5000aaks").unwrap()).unwrap();
        let energy = s.break_even_s().unwrap();
        // (8.40 × 5 + 165 - 0.97 × 5) / (8.40 - 0.97)
        assert!((energy - 202.15 / 7.43).abs() < 1e-9, "{energy}");
        let both = s.break_even_with_wear_s(60.0, 0.09).unwrap();
        assert!((both - energy - 60.0 / 50_000.0 / 0.09 * 3.6e6 / 7.43).abs() < 1e-6);
        assert_eq!(s.break_even_with_wear_s(60.0, 0.0), None);
    }
}
