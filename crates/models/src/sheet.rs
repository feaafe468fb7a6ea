//! Data sheets as TOML: reading and checking them.

use std::fmt;

use serde::Deserialize;

use crate::array::ArraySheet;
use crate::hdd::HddSheet;
use crate::remote::RemoteSheet;
use crate::smr::SmrSheet;
use crate::ssd::SsdSheet;

/// One device's data sheet. Exactly one of `hdd`, `ssd`, `remote` is there, and `smr` or `array` only beside `hdd`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sheet {
    /// Preset name.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Purchase price of the whole device.
    pub price_usd: Option<f64>,
    /// A disk.
    pub hdd: Option<HddSheet>,
    /// It is one of several such disks, with two copies of all data (RAID-1E).
    pub array: Option<ArraySheet>,
    /// That disk is shingled.
    pub smr: Option<SmrSheet>,
    /// A flash or phase-change drive.
    pub ssd: Option<SsdSheet>,
    /// A remote store.
    pub remote: Option<RemoteSheet>,
    /// Figures that the model has to meet.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A published figure, with the work that it is measured by.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What is measured.
    pub what: Metric,
    /// The figure, in the metric's unit.
    pub value: f64,
    /// Operations kept in flight.
    pub depth: u32,
    /// The figure was taken with the write cache on or off; without it, as the drive is shipped.
    #[serde(default)]
    pub write_cache: Option<bool>,
    /// Bytes from the first one on that random work covers; without it, the whole device.
    #[serde(default)]
    pub span: Option<u64>,
    /// The figure was used for a parameter of the sheet, or follows from its parameters by arithmetic. Then it says that the
    /// model does what the sheet says, and nothing about the device. A sheet that is silent is taken to have used it.
    #[serde(default = "yes")]
    pub fitted: bool,
    /// Where the figure stands.
    pub source: String,
}

fn yes() -> bool {
    true
}

/// What can be measured. Random work is uniform over the whole device in 4 KiB; sequential rates use 128 KiB requests
/// from the first byte on; sequential latencies 4 KiB.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Operations a second.
    RandomReadIops,
    /// Operations a second.
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
    /// As sheets write it.
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

/// Why a sheet or preset cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SheetError {
    /// Not TOML, or a field is missing, unknown or of the wrong type.
    Syntax {
        /// Which sheet.
        file: String,
        /// Where and what.
        message: String,
    },
    /// A value out of its range.
    Value {
        /// Which sheet.
        file: String,
        /// `table.field`.
        field: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// No preset of that name.
    Unknown {
        /// What was asked for.
        name: String,
        /// The most similar name there is.
        nearest: String,
    },
}

impl fmt::Display for SheetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SheetError::Syntax { file, message } => write!(f, "device sheet {file}: {message}"),
            SheetError::Value {
                file,
                field,
                message,
            } => write!(f, "device sheet {file}: {field}: {message}"),
            SheetError::Unknown { name, nearest } => {
                write!(
                    f,
                    "no device preset `{name}`; did you mean `{nearest}`? `isotherm devices` lists them all"
                )
            }
        }
    }
}

impl std::error::Error for SheetError {}

impl SheetError {
    pub(crate) fn syntax(file: &str, error: &toml::de::Error) -> SheetError {
        SheetError::Syntax {
            file: file.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        }
    }
}

impl Sheet {
    /// Read and check a sheet. `file` names it in errors.
    ///
    /// # Errors
    /// [`SheetError::Syntax`] or [`SheetError::Value`], naming the field.
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

    /// Bytes of the device.
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

/// Range checks that name the sheet and the field.
#[derive(Clone, Copy)]
pub(crate) struct Check<'a> {
    pub file: &'a str,
    pub table: &'a str,
}

impl Check<'_> {
    pub fn bad(&self, field: &str, message: &str) -> SheetError {
        let dot = if self.table.is_empty() { "" } else { "." };
        SheetError::Value {
            file: self.file.to_owned(),
            field: format!("{}{dot}{field}", self.table),
            message: message.to_owned(),
        }
    }

    pub fn at_least(&self, field: &str, value: f64, min: f64) -> Result<(), SheetError> {
        // Not `value < min`: a NaN must fail too.
        if value >= min && value.is_finite() {
            return Ok(());
        }
        Err(self.bad(
            field,
            &format!("{value} is too small, at least {min} is needed"),
        ))
    }

    pub fn within(&self, field: &str, value: f64, min: f64, max: f64) -> Result<(), SheetError> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(self.bad(field, &format!("{value} is not within {min}..{max}")))
    }
}
