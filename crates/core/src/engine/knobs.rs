//! The knobs of the engine: settings that work with every policy, in addition to the policy's own parameters.

use super::{Engine, Params};
use crate::policy::{ParamError, Policy, nearest};
use crate::units::Nanos;
use alloc::vec::Vec;

/// A knob.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The name of the knob.
    pub name: &'static str,
    /// The meaning of the knob.
    pub what: &'static str,
    /// Unit and range, as text for error messages.
    pub range: &'static str,
    /// Lowest and highest value.
    pub limits: (f64, f64),
    /// Whether zero is valid, too, and removes the limit, even if zero is below the lowest value.
    pub zero: bool,
    read: fn(&Params) -> f64,
    write: fn(&mut Params, f64),
}

/// Seconds of one hour.
const HOUR: f64 = 3600.0;
/// Seconds of one day.
const DAY: f64 = 86_400.0;
/// Shares are kept in millionths, and watts in microwatts.
const PARTS: f64 = 1e6;
/// Millionths in a percent.
const PERCENT: f64 = PARTS / 100.0;
/// The knob that needs data sheets.
const POWER: &str = "power_limit_w";
const NO_SHEETS: &str = "power_limit_w: 0, unless the data sheet of every member is known and states its power (`sheet` of a member)";

fn seconds(t: Option<Nanos>) -> f64 {
    t.map_or(0.0, Nanos::as_secs_f64)
}
fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}
fn unless_zero(v: f64) -> Option<f64> {
    (v > 0.0).then_some(v)
}
/// The number rounded to millionths.
fn rounded(v: f64) -> f64 {
    ((v * PARTS + 0.5) as u64) as f64 / PARTS
}
fn number(n: Option<u64>) -> f64 {
    n.map_or(0.0, |n| n as f64)
}

/// All knobs. Limits, throttles and budgets are off unless set.
pub const KNOBS: [Knob; 18] = [
    Knob {
        name: "move_bytes_per_s",
        what: "bandwidth for moves",
        range: "move_bytes_per_s: bytes per second, 0 (no limit) to 10^12",
        limits: (0.0, 1e12),
        zero: true,
        read: |p| number(p.move_bytes_per_s),
        write: |p, v| p.move_bytes_per_s = unless_zero(v).map(|v| v as u64),
    },
    Knob {
        name: "p99_limit_s",
        what: "99th percentile of the foreground latency above which moves pause",
        range: "p99_limit_s: seconds, 0 (no limit) to 3600",
        limits: (0.0, HOUR),
        zero: true,
        read: |p| seconds(p.p99_limit),
        write: |p, v| p.p99_limit = unless_zero(v).map(nanos),
    },
    Knob {
        name: "commit_interval_s",
        what: "age at which a change of the mapping that no FLUSH has recorded is recorded in an idle moment; at six times this age it is recorded in any case",
        range: "commit_interval_s: seconds, 0.01 to 3600",
        limits: (0.01, HOUR),
        zero: false,
        read: |p| p.commit_interval.as_secs_f64(),
        write: |p, v| p.commit_interval = nanos(v),
    },
    Knob {
        name: "flush_ahead",
        what: "score that is needed for a flush of the devices to begin ahead of its FLUSH; a FLUSH directly after the last write adds 1 to the score, any other change subtracts this number",
        range: "flush_ahead: a whole number of FLUSHes, 0 (none begins ahead) to 1000",
        limits: (0.0, 1000.0),
        zero: true,
        read: |p| f64::from(p.flush_ahead),
        write: |p, v| p.flush_ahead = v as u16,
    },
    Knob {
        name: "flush_gather",
        what: "half of the score that is needed for a FLUSH to wait for writes in progress, so that one flush of the devices serves several writers; a round that gains by this adds 2 to the score, another one subtracts 1",
        range: "flush_gather: a whole number of FLUSHes, 0 (no FLUSH waits) to 1000",
        limits: (0.0, 1000.0),
        zero: true,
        read: |p| f64::from(p.flush_gather),
        write: |p, v| p.flush_gather = v as u16,
    },
    Knob {
        name: "moves_max",
        what: "maximum number of moves that read or write at the same time",
        range: "moves_max: a whole number of moves, 0 (as many as there are buffers) to 65535",
        limits: (0.0, 65_535.0),
        zero: true,
        read: |p| p.moves_max.map_or(0.0, f64::from),
        write: |p, v| p.moves_max = unless_zero(v).map(|v| v as u16),
    },
    Knob {
        name: "wear_bytes_per_day",
        what: "bytes that may be written to the fastest tier in a day",
        range: "wear_bytes_per_day: bytes per day, 0 (no limit) or 1 to 10^16",
        limits: (1.0, 1e16),
        zero: true,
        read: |p| number(p.wear_bytes_per_day),
        write: |p, v| p.wear_bytes_per_day = unless_zero(v).map(|v| v as u64),
    },
    Knob {
        name: "wear_burst_h",
        what: "hours for which unused wear budget can be saved up",
        range: "wear_burst_h: hours, 0.001 to 8760",
        limits: (0.001, 8760.0),
        zero: false,
        read: |p| p.wear_burst.as_secs_f64() / HOUR,
        write: |p, v| p.wear_burst = nanos(v * HOUR),
    },
    Knob {
        name: "dirty_age_s",
        what: "age at which dirty data is written home at the latest, unless a disk sleeps; a served volume has 3600 if this is left out and sleep_hold_s is not set",
        range: "dirty_age_s: seconds, 0 (any age) or 0.01 to 10^7",
        limits: (0.01, 1e7),
        zero: true,
        read: |p| seconds(p.dirty_age),
        write: |p, v| p.dirty_age = unless_zero(v).map(nanos),
    },
    Knob {
        name: "dirty_max_percent",
        what: "share of the flash that may be dirty; near it dirty data is written home, also under load, and writes beyond it go through",
        range: "dirty_max_percent: percent of the flash, 0 (no limit) or 0.01 to 100",
        limits: (0.01, 100.0),
        zero: true,
        read: |p| p.dirty_max.map_or(0.0, |n| f64::from(n) / PERCENT),
        write: |p, v| p.dirty_max = unless_zero(v).map(|v| (v * PERCENT + 0.5) as u32),
    },
    Knob {
        name: "sleep_hold_s",
        what: "longest time that background work waits for a sleeping disk",
        range: "sleep_hold_s: seconds, 0 (does not wait) or 0.001 to 10^7",
        limits: (0.001, 1e7),
        zero: true,
        read: |p| seconds(p.sleep_hold),
        write: |p, v| p.sleep_hold = unless_zero(v).map(nanos),
    },
    Knob {
        name: "sleep_hold_bytes",
        what: "dirty bytes that may wait for a sleeping disk",
        range: "sleep_hold_bytes: bytes, 0 (no limit) to 10^16",
        limits: (0.0, 1e16),
        zero: true,
        read: |p| number(p.sleep_hold_bytes),
        write: |p, v| p.sleep_hold_bytes = unless_zero(v).map(|v| v as u64),
    },
    Knob {
        name: "sleep_starts_per_day",
        what: "starts of each sleeping disk in a day, in place of those that its data sheet allows; in sleep-aware mode",
        range: "sleep_starts_per_day: starts per day, 0 (by the data sheet, if it states a limit) or 0.01 to 10^6",
        limits: (0.01, 1e6),
        zero: true,
        read: |p| {
            let a_day = |t: Nanos| rounded(DAY / t.as_secs_f64());
            p.sleep_start_interval.map_or(0.0, a_day)
        },
        write: |p, v| p.sleep_start_interval = unless_zero(v).map(|v| nanos(DAY / v)),
    },
    Knob {
        name: "sleep_wait_share",
        what: "share of the requests that may wait for a wake-up; beyond it, disks stay awake; in sleep-aware mode",
        range: "sleep_wait_share: a share, 0 (no limit) or 0.0001 to 1",
        limits: (0.0001, 1.0),
        zero: true,
        read: |p| p.sleep_wait_share.map_or(0.0, |n| f64::from(n) / PARTS),
        write: |p, v| p.sleep_wait_share = unless_zero(v).map(|v| (v * PARTS + 0.5) as u32),
    },
    Knob {
        name: POWER,
        what: "mean power of all members, by their data sheets, above which no moves begin",
        range: "power_limit_w: watts, 0 (no limit) or 0.001 to 10^6",
        limits: (0.001, 1e6),
        zero: true,
        read: |p| p.power_limit_uw.map_or(0.0, |n| n as f64 / PARTS),
        write: |p, v| p.power_limit_uw = unless_zero(v).map(|v| (v * PARTS + 0.5) as u64),
    },
    Knob {
        name: "join_bytes",
        what: "maximum size of a joined operation of moves",
        range: "join_bytes: bytes, 0 (moves are not joined) to 10^9",
        limits: (0.0, 1e9),
        zero: true,
        read: |p| p.join_bytes as f64,
        write: |p, v| p.join_bytes = v as u64,
    },
    Knob {
        name: "join_s",
        what: "longest time for which a joined operation may occupy its device",
        range: "join_s: seconds, 0 (no matter how long) or 0.0001 to 3600",
        limits: (0.0001, HOUR),
        zero: true,
        read: |p| p.join_time.as_secs_f64(),
        write: |p, v| p.join_time = nanos(v),
    },
    Knob {
        name: "kept_writes",
        what: "1: acknowledged writes survive a kill of the server (a loss of power can still lose those after the last flush)",
        range: "kept_writes: 0 or 1",
        limits: (1.0, 1.0),
        zero: true,
        read: |p| f64::from(u8::from(p.kept_writes)),
        write: |p, v| p.kept_writes = v > 0.0,
    },
];

impl Knob {
    /// The present value in the knob's unit; 0 if there is no limit.
    pub fn get(&self, params: &Params) -> f64 {
        (self.read)(params)
    }

    /// Sets a value that [`knob`] has found valid; 0 removes a limit.
    pub fn put(&self, params: &mut Params, value: f64) {
        (self.write)(params, value);
    }

    /// Whether `value` is valid for this knob.
    fn takes(&self, value: f64) -> bool {
        (self.zero && value == 0.0) || (self.limits.0..=self.limits.1).contains(&value)
    }
}

/// Whether there is a knob of that name.
pub fn is_knob(name: &str) -> bool {
    KNOBS.iter().any(|k| k.name == name)
}

/// The knob of that name, for which `value` is valid.
///
/// # Errors
/// There is no such knob (the nearest is named), or the value is not valid.
pub fn knob(name: &str, value: f64) -> Result<&'static Knob, ParamError> {
    let Some(k) = KNOBS.iter().find(|k| k.name == name) else {
        return Err(ParamError::Unknown(nearest(
            name,
            KNOBS.iter().map(|k| k.name),
        )));
    };
    if k.takes(value) {
        Ok(k)
    } else {
        Err(ParamError::Range(k.range))
    }
}

impl Engine {
    /// The policy's parameters and the engine's knobs, with their values.
    pub fn knobs(&self) -> Vec<(&'static str, f64)> {
        let own = KNOBS.iter().map(|k| (k.name, k.get(&self.globals.params)));
        self.globals
            .policy
            .params()
            .into_iter()
            .chain(own)
            .collect()
    }

    /// Changes a parameter of the policy or a knob of the engine (`0` removes a limit).
    ///
    /// # Errors
    /// Neither policy nor engine has it, or the value is not valid.
    pub fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        match knob(key, value) {
            Ok(k) => {
                let g = &mut self.globals;
                if k.name == POWER && value > 0.0 && !g.devices.meter.is_complete() {
                    return Err(ParamError::Range(NO_SHEETS));
                }
                k.put(&mut g.params, value);
                let p = &g.params;
                self.relocation.set_rate(p.move_bytes_per_s);
                g.devices.wear.set(p.wear_bytes_per_day, p.wear_burst);
                g.background.set_hold(p.sleep_hold, p.sleep_hold_bytes);
                g.background.set_budgets(p, g.clock);
                let fast = g.space.geo.tier_slots(g.space.geo.slowest()).start;
                g.background.set_age(p.dirty_age, fast as usize, g.clock);
                g.background.set_dirty_max(p.dirty_max, &g.space);
                g.heed_limit(0);
                g.set_power();
            }
            Err(e @ (ParamError::Range(_) | ParamError::Value(..))) => return Err(e),
            Err(ParamError::Unknown(_)) => match self.globals.policy.set(key, value) {
                Err(ParamError::Unknown(_)) => {
                    let params = self.globals.policy.params();
                    let names = params.iter().map(|p| p.0);
                    let names = names.chain(KNOBS.iter().map(|k| k.name));
                    return Err(ParamError::Unknown(nearest(key, names)));
                }
                r => r?,
            },
        }
        self.globals.policy_due = true;
        Ok(())
    }
}
