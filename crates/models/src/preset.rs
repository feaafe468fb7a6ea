//! The list of devices, by name.

use std::borrow::Cow;

use crate::array::Array;
use crate::check::SheetError;
use crate::hdd::Hdd;
use crate::model::DeviceModel;
use crate::options::Options;
use crate::remote::Remote;
use crate::sheet::Sheet;
use crate::smr::Smr;
use crate::span::Span;
use crate::ssd::Ssd;

macro_rules! sheets {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../presets/", $name, ".toml")))),+]
    };
}

/// Name and text of each sheet in the tree.
const SHEETS: &[(&str, &str)] = sheets![
    "wd5000aaks",
    "wd7500aaks",
    "maxtor-500",
    "maxtor-250",
    "seagate-250",
    "st32000641as",
    "exos-18tb",
    "smr-8tb",
    "raid1e-5",
    "ocz-vertex3-maxiops",
    "intel-320-300",
    "ocz-agility2-60",
    "ocz-40",
    "intel-x25e-32",
    "sata-enterprise",
    "nvme-tlc",
    "nvme-qlc",
    "pcm",
    "remote",
];

/// The sheets of all presets, in the order of the list.
///
/// # Errors
/// A sheet in the tree is invalid; a test makes sure that none is.
pub fn presets() -> Result<Vec<Sheet>, SheetError> {
    SHEETS
        .iter()
        .map(|(name, text)| Sheet::parse(text, &format!("{name}.toml")))
        .collect()
}

/// The sheet called `name`. A name that ends in `.toml` is a file of the user.
///
/// # Errors
/// As [`sheet_text`]; or the sheet is invalid.
pub fn sheet(name: &str) -> Result<Sheet, SheetError> {
    let text = sheet_text(name)?;
    let file = if is_file(name) {
        name.to_owned()
    } else {
        format!("{name}.toml")
    };
    Sheet::parse(&text, &file)
}

/// Whether a device of this name is a file of the user, and not a preset.
fn is_file(name: &str) -> bool {
    std::path::Path::new(name)
        .extension()
        .is_some_and(|e| e == "toml")
}

/// The text of the sheet called `name`, with its comments; it is not checked. A name that ends in `.toml` is a file of the user.
///
/// # Errors
/// [`SheetError::Unknown`] with the nearest existing name; or the file cannot be read.
pub fn sheet_text(name: &str) -> Result<Cow<'static, str>, SheetError> {
    if is_file(name) {
        if std::fs::metadata(name).is_ok_and(|m| !m.is_file()) {
            // A pipe would be waited for.
            return Err(SheetError::Syntax {
                file: name.to_owned(),
                message: "is no regular file".to_owned(),
            });
        }
        return std::fs::read_to_string(name)
            .map(Cow::Owned)
            .map_err(|e| SheetError::Syntax {
                file: name.to_owned(),
                message: e.to_string(),
            });
    }
    if let Some((_, text)) = SHEETS.iter().find(|(n, _)| *n == name) {
        return Ok(Cow::Borrowed(*text));
    }
    let asked = name.to_lowercase();
    let likeness = |n: &str| (strsim::jaro_winkler(n, &asked) * 1e6) as u64;
    let nearest = SHEETS
        .iter()
        .map(|(n, _)| *n)
        .max_by_key(|n| likeness(n))
        .unwrap_or_default();
    Err(SheetError::Unknown {
        name: name.to_owned(),
        nearest: nearest.to_owned(),
    })
}

/// The model of the device called `name`.
///
/// # Errors
/// There is no such preset, or the device does not have one of the options.
pub fn preset(name: &str, options: &Options) -> Result<Box<dyn DeviceModel>, SheetError> {
    sheet(name)?.model(options)
}

impl Sheet {
    /// Makes a model of this device.
    ///
    /// # Errors
    /// An option is out of range, or needs a table that the sheet does not have.
    pub fn model(&self, options: &Options) -> Result<Box<dyn DeviceModel>, SheetError> {
        let bad = |field: &str, message: String| SheetError::Value {
            file: format!("{}.toml", self.name),
            field: field.to_owned(),
            message,
        };
        if options.size > self.capacity() {
            let message = format!(
                "the member has {} bytes, the drive only {}",
                options.size,
                self.capacity()
            );
            return Err(bad("size", message));
        }
        if let Span::At { start } = options.span
            && start.saturating_add(options.size) > self.capacity()
        {
            let message = format!(
                "start {start} + size {} lies beyond {}",
                options.size,
                self.capacity()
            );
            return Err(bad("span", message));
        }
        if let Some(op) = options
            .over_provisioning
            .filter(|op| !(0.01..=10.0).contains(op))
        {
            return Err(bad(
                "over_provisioning",
                format!("{op} is not within 0.01..10"),
            ));
        }
        if let Some(n) = options.reads_per_write.filter(|n| !(0.0..=1e9).contains(n)) {
            return Err(bad("reads_per_write", format!("{n} is not within 0..1e9")));
        }
        if options.queue_depth.is_some_and(|d| d == 0 || d > 1024) {
            return Err(bad("queue_depth", "must be within 1..1024".to_owned()));
        }
        if let (Some(h), Some(a)) = (&self.hdd, &self.array) {
            return Ok(Box::new(Array::new(h, a, options)));
        }
        if let (Some(h), Some(s)) = (&self.hdd, &self.smr) {
            return Ok(Box::new(Smr::new(h, s, options)));
        }
        match (&self.hdd, &self.ssd, &self.remote) {
            (Some(h), _, _) => Ok(Box::new(Hdd::new(h, options))),
            (_, Some(s), _) => Ok(Box::new(Ssd::new(s, options))),
            (_, _, Some(r)) => Ok(Box::new(Remote::new(r, options))),
            _ => Err(bad(
                "hdd, ssd, remote",
                "exactly one of these tables is needed".to_owned(),
            )),
        }
    }
}
