//! The description of a volume, `p/v.toml`: read, checked as a whole, written.

mod budgets;
mod fields;
mod knobs;
mod member;
mod size;
mod store;

use crate::error::{Error, ErrorKind};
pub use fields::{Field, IO, MEMBER, TOP};
use isotherm_core::engine::Params;
use isotherm_core::policy::{BuildError, ParamError, ParamValue, Policy};
use isotherm_core::qos::Spec;
use isotherm_words::policy_spec::PolicySpec;
pub use member::MemberConfig;
use serde::{Deserialize, Serialize};
pub use size::Size;
use std::path::{Path, PathBuf};
pub use store::{DISK, StoreConfig, is_store};

/// Settings of the engine's thread and its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IoConfig {
    /// Memory for requests, locked and registered.
    pub buffers: Size,
    /// Number of extent-sized buffers for moves, and so the largest number of moves in progress, including those that wait for their
    /// record.
    pub move_buffers: u16,
    /// Submission queue entries.
    pub queue_depth: u32,
    /// Longest time to poll for work before sleeping, microseconds; 0 = sleep at once.
    pub spin_us: u32,
    /// Take the block file's requests through io_uring if the kernel offers it and it is switched on.
    pub fuse_ring: bool,
    /// Bypass the page cache if the file system allows it.
    pub direct: bool,
    /// Longest time that records wait for a FLUSH to carry them, seconds.
    pub commit_interval_s: f64,
    /// FLUSHes that must have followed the last write at once before one begins ahead of its FLUSH; 8 if left out, 0: none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_ahead: Option<u16>,
    /// Half of the score that is needed for a FLUSH to wait for writes in progress; 8 if left out, 0: none waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_gather: Option<u16>,
    /// Journal blocks kept in memory until the mirror has them.
    pub stage_blocks: u32,
    /// Pass discards of freed slots to the devices.
    pub pass_discards: bool,
    /// Bandwidth for moves, bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub move_bytes_per_s: Option<Size>,
    /// Limit of the 99th percentile of foreground latency, in seconds; above it, moves are reduced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_limit_s: Option<f64>,
    /// Largest number of concurrent moves, in addition to the policy's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_max: Option<u16>,
    /// Wear budget: bytes that may be written to the fastest tier each day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear_bytes_per_day: Option<Size>,
    /// As an alternative: years that the fastest tier must last, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear_years: Option<f64>,
    /// ... and terabytes (10^12 bytes) that may be written to it in its life. Default: by the data sheets of its paced members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear_tbw: Option<f64>,
    /// Hours for which unused wear budget can be saved up; 24 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear_burst_h: Option<f64>,
    /// Age at which dirty data is written home at the latest, seconds; 0: any. If left out: an hour, or any with `sleep_hold_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_age_s: Option<f64>,
    /// Share of the flash that may be dirty, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_max_percent: Option<f64>,
    /// Longest time that background work waits for a sleeping disk, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_hold_s: Option<f64>,
    /// Amount of dirty data in bytes that ends this wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_hold_bytes: Option<Size>,
    /// Mean power of all members above which no moves begin, watts; `None`: no limit. It needs the data sheets of all members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Starts of each sleeping disk in a day; `None`: as many as its data sheet allows over five years, if it states a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_starts_per_day: Option<f64>,
    /// As an alternative: years for which the start-stop cycles of each sleeping disk must last, by its data sheet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_stop_years: Option<f64>,
    /// Largest share of the requests that may wait for a wake-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_wait_share: Option<f64>,
    /// Longest joined operation of moves; default 1M, 0: none are joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_bytes: Option<Size>,
    /// Longest duration of a joined operation in seconds; default 0.05, 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_s: Option<f64>,
    /// 1: a write that was answered survives a kill of the server; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_writes: Option<u8>,
    /// Sources of classes that are switched off: front-end, ranges, database, files, layout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes_off: Vec<String>,
    /// Sources of classes that are off unless they are named here: guess.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes_on: Vec<String>,
}

impl IoConfig {
    /// The default settings for a volume with extents of that size.
    pub fn for_extents(bytes: u64) -> IoConfig {
        IoConfig {
            move_buffers: Params::buffers_for(u32::try_from(bytes).unwrap_or(u32::MAX)),
            ..IoConfig::default()
        }
    }
}

impl Default for IoConfig {
    fn default() -> IoConfig {
        IoConfig {
            buffers: Size(64 << 20),
            move_buffers: 16,
            queue_depth: 256,
            spin_us: 100,
            fuse_ring: true,
            direct: true,
            commit_interval_s: 5.0,
            flush_ahead: None,
            flush_gather: None,
            stage_blocks: 1024,
            pass_discards: true,
            move_bytes_per_s: None,
            p99_limit_s: None,
            moves_max: None,
            wear_bytes_per_day: None,
            wear_years: None,
            wear_tbw: None,
            wear_burst_h: None,
            dirty_age_s: None,
            dirty_max_percent: None,
            sleep_hold_s: None,
            sleep_hold_bytes: None,
            sleep_starts_per_day: None,
            start_stop_years: None,
            sleep_wait_share: None,
            power_limit_w: None,
            join_bytes: None,
            join_s: None,
            kept_writes: None,
            classes_off: Vec::new(),
            classes_on: Vec::new(),
        }
    }
}

/// A volume's description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Name of the volume: block file and NBD export.
    pub name: String,
    /// Identity, assigned at creation: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Extent size, a power of two from 4K to 4M.
    #[serde(default = "default_extent")]
    pub extent: Size,
    /// `name,key=value…`
    pub policy: String,
    /// Promises to classes, `CLASSES+KEY=VALUE…` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qos: Vec<String>,
    /// See [`IoConfig`].
    #[serde(default)]
    pub io: IoConfig,
    /// Member devices, fastest tier first.
    #[serde(default)]
    pub members: Vec<MemberConfig>,
}

fn default_extent() -> Size {
    Size(64 << 10)
}

/// Largest description that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

impl VolumeConfig {
    /// Reads and checks a description; `file` is named in errors.
    ///
    /// # Errors
    /// Not TOML, an unknown field (with the nearest valid one), a wrong type or an impossible value.
    pub fn parse(text: &str, file: &Path) -> Result<VolumeConfig, Error> {
        let bad = |what: String| {
            Error::new(
                ErrorKind::Config,
                format!("{}: {}", file.display(), what.trim_end()),
            )
        };
        let mut table: toml::Table = toml::from_str(text).map_err(|e| bad(e.to_string()))?;
        let old = fields::renamed(&mut table).map_err(bad)?;
        fields::known(&table).map_err(bad)?;
        // From the text if possible, so that errors of type have a line and a column.
        let mut config: VolumeConfig = if old {
            table.try_into()
        } else {
            toml::from_str(text)
        }
        .map_err(|e: toml::de::Error| bad(e.to_string()))?;
        config.find_sheets(file);
        config.check().map_err(bad)?;
        Ok(config)
    }

    /// Reads `file`.
    ///
    /// # Errors
    /// As [`VolumeConfig::parse`], or the file cannot be read.
    pub fn load(file: &Path) -> Result<VolumeConfig, Error> {
        let text = isotherm_paths::read_text(file, BYTES_MAX)
            .map_err(|e| Error::new(ErrorKind::Config, format!("{}: {e}", file.display())))?;
        VolumeConfig::parse(&text, file)
    }

    /// The description as text.
    ///
    /// # Errors
    /// A path in it is not UTF-8.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::new(ErrorKind::Config, e.to_string()))
    }

    /// Writes `file` whole or not at all.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, file: &Path) -> Result<(), Error> {
        let bad = |e: String| Error::new(ErrorKind::Config, format!("{}: {e}", file.display()));
        let text = self.to_toml().map_err(|e| bad(e.to_string()))?;
        // A description may be a link into the files of a configuration tool.
        isotherm_paths::replace_behind_links(file, 0o644, |f| {
            std::io::Write::write_all(f, text.as_bytes())
        })
        .map_err(|e| bad(e.to_string()))
    }

    /// Checks every value by itself; values that depend on the devices are checked when these are open.
    ///
    /// # Errors
    /// Names the field and its valid values, without the file.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |c: char| c == '/' || c.is_control();
        if self.name.is_empty() || self.name.len() > 100 || self.name.contains(wrong) {
            return Err("name: 1 to 100 bytes, without `/` and control characters".into());
        }
        if self
            .uuid
            .as_deref()
            .is_some_and(|u| parse_uuid(u).is_none())
        {
            return Err("uuid: 32 hexadecimal digits; leave it out, `create` assigns it".into());
        }
        let extent = self.extent.0;
        if !extent.is_power_of_two() || !(4 << 10..=4 << 20).contains(&extent) {
            return Err(format!(
                "extent: {} is not a power of two from 4K to 4M",
                self.extent
            ));
        }
        build_policy(&self.policy)?;
        self.promises()?;
        self.io.check().map_err(|e| format!("[io]: {e}"))?;
        self.check_budgets().map_err(|e| format!("[io]: {e}"))?;
        if self.members.is_empty() || self.members.len() > 16 {
            return Err("members: a volume has 1 to 16".into());
        }
        for (i, m) in self.members.iter().enumerate() {
            m.check().map_err(|e| format!("member {i}: {e}"))?;
        }
        let top = self.members.iter().map(|m| m.tier).max().unwrap_or(0);
        let disk_with = |(_, m): &(usize, &MemberConfig)| m.tier == top && m.spare.is_some();
        if let Some((i, _)) = self.members.iter().enumerate().find(disk_with) {
            return Err(format!(
                "member {i}: spare: only of flash, not of the slowest tier"
            ));
        }
        match (0..=top).find(|t| !self.members.iter().any(|m| m.tier == *t)) {
            Some(t) => Err(format!(
                "members: tier {t} has none; tiers are numbered from 0, the fastest, without gaps"
            )),
            None => Ok(()),
        }
    }

    /// The paths of all devices: those of the members in their order, then those of tails. What was removed may be anything by now.
    pub fn all_paths(&self) -> Vec<PathBuf> {
        let all = || self.members.iter().filter(|m| !m.removed);
        let data = all().map(|m| m.path.clone());
        data.chain(all().filter_map(|m| m.tail.clone())).collect()
    }

    /// The policy, built.
    ///
    /// # Errors
    /// As [`build_policy`].
    pub fn build_policy(&self) -> Result<Box<dyn Policy>, String> {
        build_policy(&self.policy)
    }

    /// The promises to classes.
    ///
    /// # Errors
    /// The row that is wrong.
    pub fn promises(&self) -> Result<Spec, String> {
        let rows = self.qos.iter().map(String::as_str);
        isotherm_words::qos::spec(rows).map_err(|e| format!("qos: {e}"))
    }
}

/// Builds `name,key=value…`.
///
/// # Errors
/// An unknown name (with the nearest), or a parameter that is unknown, not a number or out of range.
pub fn build_policy(text: &str) -> Result<Box<dyn Policy>, String> {
    let spec = PolicySpec::split(text).map_err(|e| format!("policy: {e}"))?;
    let name = &spec.name;
    spec.make().map_err(|e| match e {
        BuildError::UnknownPolicy(n) => format!("policy: no policy `{name}`: did you mean `{n}`?"),
        BuildError::Param(k, ParamError::Unknown(n)) => {
            let hint = if n.is_empty() {
                "it has no parameters".into()
            } else {
                format!("did you mean `{n}`?")
            };
            format!("policy: {name} has no parameter `{k}`: {hint}")
        }
        BuildError::Param(k, ParamError::Range(what)) => match refused_row(&spec, &k) {
            Some(row) => format!("policy: {k}={row}: must be {what}"),
            None => format!("policy: {k}: {what}"),
        },
        BuildError::Param(k, ParamError::Value(what, n)) => {
            format!("policy: {k}: {what}: did you mean `{n}`?")
        }
    })
}

/// The row (`class`, `rule`) that a policy refused: the first one with which it cannot be built. `None` if the parameter has a single value.
fn refused_row<'a>(spec: &'a PolicySpec, key: &str) -> Option<&'a str> {
    if !matches!(key, "class" | "rule") {
        return None;
    }
    let mut tried = spec.clone();
    let refused = (1..=spec.params.len()).find(|n| {
        tried.params = spec.params[..*n].to_vec();
        tried.make().is_err()
    })?;
    match spec.params[refused - 1].1.value() {
        ParamValue::Name(row) => Some(row),
        ParamValue::Number(_) => None,
    }
}

/// 16 bytes from 32 hexadecimal digits.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut uuid = [0; 16];
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (b, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *b = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

/// As 32 hexadecimal digits.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*uuid))
}

#[cfg(test)]
mod tests;
