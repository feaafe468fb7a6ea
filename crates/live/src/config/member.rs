//! One member in the description of a volume.

use super::Size;
use isotherm_core::load::Cost;
use isotherm_models::{DeviceModel, Options, Sheet, SheetError, Span, sheet};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One member device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberConfig {
    /// File or block device; relative to the description's directory.
    pub path: PathBuf,
    /// A small device that continues this one, if it was adopted whole; relative to the description's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<PathBuf>,
    /// Tier, 0 = fastest.
    pub tier: u8,
    /// Bytes to use; a file that does not exist is created with this size. Default: the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// If set, completions wait until the model of this device preset allows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced: Option<String>,
    /// Data sheet of the device: a name of `isotherm devices`, or a file that ends in `.toml`, relative to the description's directory. A
    /// paced member has that of its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sheet: Option<String>,
    /// The part of the modelled drive that the member is: `full` (spread over the whole drive, the default), or its first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
    /// Seconds without use after which the disk is sent to standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_s: Option<f64>,
    /// It was taken out of the volume (`isotherm cache remove`), and may be something else by now. Its place waits for new flash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// A device that takes the place of this one, which is flash of a cache volume, if it fails ([`crate::volume::spare`]); relative to the
    /// description's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<PathBuf>,
}

impl MemberConfig {
    /// The model that paces a member of `bytes`, if any.
    ///
    /// # Errors
    /// No such preset or an impossible span, without the place.
    pub fn model(&self, bytes: u64) -> Result<Option<Box<dyn DeviceModel>>, String> {
        self.modelled("paced", self.paced.as_ref(), bytes, Sheet::model)
    }

    /// The costs according to its data sheet, if it has one; measuring starts from these values.
    ///
    /// # Errors
    /// As [`MemberConfig::model`], or the sheet cannot be read.
    pub fn cost(&self, bytes: u64) -> Result<Option<Cost>, String> {
        match &self.sheet {
            Some(_) => self.modelled("sheet", self.sheet.as_ref(), bytes, Sheet::cost),
            None => self.modelled("paced", self.paced.as_ref(), bytes, Sheet::cost),
        }
    }

    /// Its data sheet, if it has one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn data_sheet(&self) -> Result<Option<Sheet>, String> {
        let (key, name) = match (&self.sheet, &self.paced) {
            (Some(name), _) => ("sheet", name),
            (None, Some(name)) => ("paced", name),
            (None, None) => return Ok(None),
        };
        sheet(name).map(Some).map_err(|e| format!("{key}: {e}"))
    }

    fn modelled<T>(
        &self,
        key: &str,
        name: Option<&String>,
        bytes: u64,
        make: impl Fn(&Sheet, &Options) -> Result<T, SheetError>,
    ) -> Result<Option<T>, String> {
        let Some(name) = name else {
            return Ok(None);
        };
        let span = match self.span.as_deref() {
            None | Some("full") => Span::Full,
            Some(start) => Span::At {
                start: Size::parse(start)
                    .map_err(|e| format!("span: {e}, or `full`"))?
                    .0,
            },
        };
        let options = Options {
            size: bytes,
            span,
            ..Options::default()
        };
        sheet(name)
            .and_then(|s| make(&s, &options))
            .map(Some)
            .map_err(|e| format!("{key}: {e}"))
    }

    /// Checks every value by itself.
    ///
    /// # Errors
    /// Names the key and its valid values.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.path.as_os_str().is_empty() {
            return Err("path: missing".into());
        }
        if self.tier > 7 {
            return Err("tier: from 0 (fastest) to 7".into());
        }
        if self.size.is_some_and(|s| s.0 < 1 << 20) {
            return Err("size: at least 1M".into());
        }
        if self.sheet.is_some() && self.paced.is_some() {
            return Err("sheet: leave it out, `paced` names the data sheet".into());
        }
        if self.span.is_some() && self.paced.is_none() {
            return Err("span: only together with `paced`".into());
        }
        if !self.standby_s.is_none_or(|s| (1.0..=1e7).contains(&s)) {
            return Err("standby_s: from 1 to 10000000 seconds".into());
        }
        self.model(self.size.map_or(0, |s| s.0)).map(|_| ())
    }
}
