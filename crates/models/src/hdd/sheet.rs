//! The data sheet of a disk, in the units that data sheets use.

use serde::Deserialize;

use crate::check::{Check, SheetError};

/// A disk. Times are in the named units; MB = 10⁶ bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddSheet {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Number of data surfaces.
    pub heads: u32,
    /// Sustained rate at the first bytes, including track changes.
    pub outer_mb_s: f64,
    /// Sustained rate at the last bytes.
    pub inner_mb_s: f64,
    /// Seek to the next cylinder.
    pub track_to_track_ms: f64,
    /// Average seek over random pairs of cylinders.
    pub average_seek_ms: f64,
    /// Seek across all cylinders.
    pub full_stroke_ms: f64,
    /// The additional seek time of a write: write seek minus read seek of the data sheet.
    pub write_settle_ms: f64,
    /// Offset between neighbouring tracks. It is at least the track-to-track seek; otherwise sequential runs miss revolutions.
    pub skew_ms: f64,
    /// Time from the command to the arm's start, including interface processing.
    pub overhead_us: f64,
    /// Interface rate.
    pub interface_mb_s: f64,
    /// Size of the buffer.
    pub cache_mib: u64,
    /// Length of the read-ahead after a read; 0 switches it off.
    pub read_ahead_kib: u64,
    /// Length of the read-ahead, after a read that continues an earlier one, that the arm completes before it leaves for another command;
    /// at most `read_ahead_kib`. Several sequential readers at a time depend on it.
    #[serde(default = "default_min_ahead")]
    pub min_read_ahead_kib: u64,
    /// Number of commands that the drive sees and reorders; 1 is first come, first served.
    pub queue_depth: u32,
    /// Whether writes are answered from the buffer; see the module's head.
    #[serde(default)]
    pub write_cache: bool,
    /// Number of oldest runs from which the drive chooses the nearest when it writes back its buffer; 1 = in the order of arrival.
    #[serde(default = "default_look")]
    pub destage_look: u32,
    /// What *nearest* means there: the shortest positioning time, rotation included, or the shortest arm movement.
    #[serde(default)]
    pub destage_by: DestageBy,
    /// A command that the drive has had for this long goes next, however far away it is.
    #[serde(default = "default_age")]
    pub max_age_ms: f64,
    /// Start-stop cycles for which the drive is specified; 0 = not stated.
    pub start_stop_limit: f64,
    /// Power of each state.
    pub power: HddPower,
}

/// The order in which a disk writes back its buffer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DestageBy {
    /// The run that the head can reach first, so the drive knows the position of its platter.
    #[default]
    Position,
    /// The run with the shortest arm movement; of these, the one that the head can reach first.
    Seek,
}

/// The power of a disk in its states.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddPower {
    /// Reading, writing, or waiting for the sector to come round.
    pub active_w: f64,
    /// Moving the arm.
    pub seek_w: f64,
    /// Spinning with the heads loaded and no work. Also while the platters come to a stop.
    pub idle_w: f64,
    /// Spun down.
    pub standby_w: f64,
    /// Time from standby to ready.
    pub spin_up_s: f64,
    /// Energy of a spin-up.
    pub spin_up_j: f64,
    /// Time from the command to standstill.
    pub spin_down_s: f64,
}

/// All runs that the buffer manages. The two drives with published random write rates at depth 1 show no gain from their buffers; these
/// figures belong to drives whose write cache is off.
fn default_look() -> u32 {
    64
}

/// A typical value; none of the drives' sheets states it.
fn default_min_ahead() -> u64 {
    256
}

/// About fifty times the average access time.
fn default_age() -> f64 {
    500.0
}

impl HddSheet {
    pub(crate) fn check(&self, file: &str) -> Result<(), SheetError> {
        let c = Check { file, table: "hdd" };
        c.at_least("capacity", self.capacity as f64, 1e6)?;
        c.at_least("rpm", self.rpm, 1.0)?;
        c.within("heads", f64::from(self.heads), 1.0, 64.0)?;
        c.at_least("inner_mb_s", self.inner_mb_s, 0.1)?;
        c.at_least("outer_mb_s", self.outer_mb_s, self.inner_mb_s)?;
        c.at_least("track_to_track_ms", self.track_to_track_ms, 0.0)?;
        c.at_least(
            "average_seek_ms",
            self.average_seek_ms,
            self.track_to_track_ms,
        )?;
        c.at_least("full_stroke_ms", self.full_stroke_ms, self.average_seek_ms)?;
        // Outside this range the fitted curve would fall somewhere, because its square-root or its linear term would be negative.
        let rise = (self.average_seek_ms - self.track_to_track_ms)
            / (self.full_stroke_ms - self.track_to_track_ms);
        if self.full_stroke_ms > self.track_to_track_ms && !(1.0 / 3.0..=8.0 / 15.0).contains(&rise)
        {
            let span = self.full_stroke_ms - self.track_to_track_ms;
            return Err(c.bad(
                "average_seek_ms",
                &format!(
                    "{} does not lie on a seek curve; with these end points it must lie in {:.2}..{:.2}",
                    self.average_seek_ms,
                    self.track_to_track_ms + span / 3.0,
                    self.track_to_track_ms + span * 8.0 / 15.0
                ),
            ));
        }
        c.at_least("write_settle_ms", self.write_settle_ms, 0.0)?;
        c.within(
            "skew_ms",
            self.skew_ms,
            self.track_to_track_ms,
            60e3 / self.rpm,
        )?;
        c.at_least("overhead_us", self.overhead_us, 0.0)?;
        // The interface must keep up with a track, which passes faster than the sustained rate.
        c.at_least(
            "interface_mb_s",
            self.interface_mb_s,
            1.25 * self.outer_mb_s,
        )?;
        c.within("cache_mib", self.cache_mib as f64, 0.0, 65_536.0)?;
        c.within(
            "read_ahead_kib",
            self.read_ahead_kib as f64,
            0.0,
            self.cache_mib as f64 * 1024.0,
        )?;
        c.within("queue_depth", f64::from(self.queue_depth), 1.0, 1024.0)?;
        c.within("destage_look", f64::from(self.destage_look), 1.0, 64.0)?;
        c.at_least("max_age_ms", self.max_age_ms, 0.0)?;
        c.at_least("start_stop_limit", self.start_stop_limit, 0.0)?;
        let p = &self.power;
        let c = Check {
            file,
            table: "hdd.power",
        };
        c.at_least("standby_w", p.standby_w, 0.0)?;
        c.at_least("idle_w", p.idle_w, p.standby_w)?;
        // Invariant of energy: a drive never draws less power at work than idle.
        c.at_least("active_w", p.active_w, p.idle_w)?;
        c.at_least("seek_w", p.seek_w, p.idle_w)?;
        c.at_least("spin_up_s", p.spin_up_s, 0.001)?;
        c.at_least("spin_up_j", p.spin_up_j, 0.0)?;
        c.at_least("spin_down_s", p.spin_down_s, 0.0)
    }
}
