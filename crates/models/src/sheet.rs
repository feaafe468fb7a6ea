//! Data sheets in TOML: reads and checks them.

use serde::Deserialize;

use crate::array::ArraySheet;
use crate::check::Check;
use crate::check::SheetError;
use crate::hdd::HddSheet;
use crate::options::FlashState;
use crate::remote::RemoteSheet;
use crate::smr::SmrSheet;
use crate::ssd::SsdSheet;

/// The data sheet of one device. Exactly one of `hdd`, `ssd`, `remote` is present; `smr` or `array` may be present beside `hdd`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sheet {
    /// Preset name.
    pub name: String,
    /// A description in one line.
    pub description: String,
    /// Purchase price of the whole device.
    pub price_usd: Option<f64>,
    /// The date of the price, `2024` or `2024-05`. A plan counts no price without date and source.
    pub price_date: Option<String>,
    /// The source of the price.
    pub price_source: Option<String>,
    /// A disk.
    pub hdd: Option<HddSheet>,
    /// The device is an array of several such disks, with two copies of all data (RAID-1E).
    pub array: Option<ArraySheet>,
    /// The disk is shingled.
    pub smr: Option<SmrSheet>,
    /// A flash or phase-change drive.
    pub ssd: Option<SsdSheet>,
    /// A remote store.
    pub remote: Option<RemoteSheet>,
    /// Published figures that the model must meet.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A published figure, and the work with which it is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The metric.
    pub what: Metric,
    /// The figure, in the metric's unit.
    pub value: f64,
    /// Number of operations in flight.
    pub depth: u32,
    /// Whether the write cache was on when the figure was measured; if absent, it is as the drive is shipped.
    #[serde(default)]
    pub write_cache: Option<bool>,
    /// Random work covers this many bytes from the first one on; if absent, it covers the whole device.
    #[serde(default)]
    pub span: Option<u64>,
    /// Bytes of an operation, 512 to 16 MiB; if absent, as the metric says.
    #[serde(default)]
    pub length: Option<u32>,
    /// State of the flash when the figure was measured; if absent, that of the drive's rating.
    #[serde(default)]
    pub flash: Option<FlashState>,
    /// Sequential work runs at this many places, evenly from the first byte to the last, and the figure is their mean, as of a run over the
    /// whole drive; if absent, it runs at the first bytes only. 2 to 64.
    #[serde(default)]
    pub places: Option<u32>,
    /// Whether the figure was used for a parameter of the sheet, or follows from its parameters by arithmetic. Such a figure shows that the
    /// model does what the sheet says, and shows nothing about the device. If the field is absent, it is taken as true.
    #[serde(default = "yes")]
    pub fitted: bool,
    /// The publication of the figure.
    pub source: String,
}

fn yes() -> bool {
    true
}

/// The metrics. Random work is uniform over the whole device in operations of 4 KiB. Sequential rates use 128 KiB requests from the first
/// byte on, sequential latencies 4 KiB.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Operations per second.
    RandomReadIops,
    /// Operations per second.
    RandomWriteIops,
    /// MB/s.
    SequentialReadMbS,
    /// MB/s.
    SequentialWriteMbS,
    /// Mean microseconds.
    RandomReadUs,
    /// Mean microseconds.
    RandomWriteUs,
    /// Mean microseconds.
    SequentialReadUs,
    /// Mean microseconds.
    SequentialWriteUs,
}

impl Metric {
    /// The name that sheets use.
    pub fn name(self) -> &'static str {
        match self {
            Metric::RandomReadIops => "random-read-iops",
            Metric::RandomWriteIops => "random-write-iops",
            Metric::SequentialReadMbS => "sequential-read-mb-s",
            Metric::SequentialWriteMbS => "sequential-write-mb-s",
            Metric::RandomReadUs => "random-read-us",
            Metric::RandomWriteUs => "random-write-us",
            Metric::SequentialReadUs => "sequential-read-us",
            Metric::SequentialWriteUs => "sequential-write-us",
        }
    }
}

impl Sheet {
    /// Reads and checks a sheet. `file` is its name in errors.
    ///
    /// # Errors
    /// [`SheetError::Syntax`] or [`SheetError::Value`] with the name of the field.
    pub fn parse(text: &str, file: &str) -> Result<Sheet, SheetError> {
        let sheet: Sheet = toml::from_str(text).map_err(|e| SheetError::syntax(file, &e))?;
        sheet.check(file)?;
        Ok(sheet)
    }

    fn check(&self, file: &str) -> Result<(), SheetError> {
        let c = Check { file, table: "" };
        let kinds = usize::from(self.hdd.is_some())
            + usize::from(self.ssd.is_some())
            + usize::from(self.remote.is_some());
        if kinds != 1 {
            return Err(c.bad(
                "hdd, ssd, remote",
                &format!("exactly one of these tables is needed, found {kinds}"),
            ));
        }
        if let Some(p) = self.price_usd {
            c.at_least("price_usd", p, 0.0)?;
        }
        for p in &self.published {
            let c = Check {
                file,
                table: "published",
            };
            c.at_least("value", p.value, f64::MIN_POSITIVE)?;
            c.within("depth", f64::from(p.depth), 1.0, 4096.0)?;
            if let Some(length) = p.length {
                c.within("length", f64::from(length), 512.0, f64::from(16 << 20))?;
            }
        }
        if let Some(h) = &self.hdd {
            h.check(file)?;
        }
        if let Some(a) = &self.array {
            if self.hdd.is_none() || self.smr.is_some() {
                return Err(c.bad("array", "needs an `hdd` table beside it, and no `smr`"));
            }
            a.check(file)?;
        }
        if let Some(s) = &self.smr {
            if self.hdd.is_none() {
                return Err(c.bad("smr", "needs an `hdd` table beside it"));
            }
            s.check(file)?;
        }
        if let Some(s) = &self.ssd {
            s.check(file)?;
        }
        if let Some(r) = &self.remote {
            r.check(file)?;
        }
        Ok(())
    }

    /// Capacity of the device in bytes.
    pub fn capacity(&self) -> u64 {
        let array = |disk| self.array.as_ref().map_or(disk, |a| a.capacity(disk));
        let of_hdd = self.hdd.as_ref().map(|h| array(h.capacity));
        let of_ssd = self.ssd.as_ref().map(|s| s.capacity);
        of_hdd
            .or(of_ssd)
            .or(self.remote.as_ref().map(|r| r.capacity))
            .unwrap_or(0)
    }

    /// `"hdd"`, `"smr"`, `"ssd"` or `"remote"`.
    pub fn kind(&self) -> &'static str {
        match (&self.hdd, &self.ssd) {
            (Some(_), _) if self.smr.is_some() => "smr",
            (Some(_), _) => "hdd",
            (_, Some(_)) => "ssd",
            _ => "remote",
        }
    }
}
