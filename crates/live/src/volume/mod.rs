//! A volume: created on its members, opened with recovery.

mod adopt;
pub(crate) mod begin;
mod claim;
pub(crate) mod create;
pub(crate) mod flash;
pub(crate) mod flash_change;
pub(crate) mod grow;
mod kept;
mod memory;
pub(crate) mod open;
mod pages;
mod release;
pub(crate) mod replace;
pub(crate) mod sheets;
mod space;
pub mod spare;
mod successor;
mod without;

use crate::config::VolumeConfig;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::loss::Lost;
use crate::media::FileMedia;
use crate::paced::Pacer;
use crate::stamp::Stamp;
use isotherm_core::load::Cost;
use isotherm_core::policy::Policy;
use isotherm_core::store::{self, Opened};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use crate::contents::Adoptable;
pub use claim::refuse_if_served;
pub use flash::{FormerFlash, NO_CACHE};
pub use flash_change::{FlashAsk, FlashChanged, Newcomer, NotChanged};
pub use grow::Grown;
pub use pages::ask_for_huge;
pub use release::{Released, ReleasedDisk};
pub use replace::{ReplaceHow, Replaced};

/// How to open a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// All members must be present, except members that are not needed, such as a cache that held no dirty data.
    ReadWrite,
    /// As [`OpenMode::ReadWrite`], and it continues although writes that only a missing cache held are lost. From then on the data of the
    /// slow tier counts, also of what was lost and listed earlier.
    AcceptLoss,
    /// As [`OpenMode::ReadWrite`], and a cache volume continues although writes that only missing flash held are lost. Reading them is an error
    /// until they are written again.
    ListLoss,
    /// Nothing is written; the surviving data is served.
    ReadOnly,
}

/// How to create a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateHow {
    /// Overwrite data on the members, and an existing description.
    pub force: bool,
    /// Reserve space for all data of members that are files, not only for their metadata.
    pub preallocate: bool,
    /// Show what the slow members of a cache volume hold, instead of zeros: their data is not cleared.
    pub keep: bool,
}

/// How to adopt a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdoptHow {
    /// Adopt data of an unknown kind, and overwrite what a tail device holds.
    pub unknown: bool,
    /// Write nothing; only say what would be done.
    pub only_plan: bool,
}

/// The volume that `create` has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Logical block.
    pub block_bytes: u32,
    /// Identity.
    pub uuid: [u8; 16],
    /// Slots of each member.
    pub slots: Vec<u32>,
    /// The policy keeps copies on the faster tiers, which add no capacity.
    pub caching: bool,
    /// Messages for people.
    pub notes: Vec<String>,
}

/// An open volume, before it is served.
pub struct Volume {
    pub(crate) config: VolumeConfig,
    pub(crate) devices: Vec<Option<Device>>,
    pub(crate) opened: Opened,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) pacers: Vec<Option<Pacer>>,
    /// The costs of tiers according to their data sheets, up to the last tier that has one.
    pub(crate) costs: Vec<Cost>,
    pub(crate) mode: OpenMode,
    notes: Vec<String>,
    pub(crate) lost: Lost,
    /// The stamp that was claimed on the primary, unless the volume is read only.
    pub(crate) stamp: Option<(Stamp, usize)>,
    /// Whether writes that the killed server answered may be lost although the machine continued to run: see [`Volume::answers_lost`].
    pub(crate) answers_lost: bool,
}

/// The description of volume `p/v`: `p/v.toml`.
pub fn description(volume: &Path) -> PathBuf {
    let mut name: OsString = volume.as_os_str().to_owned();
    name.push(".toml");
    name.into()
}

fn config_error(file: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format!("{}: {what}", file.display()))
}

impl Volume {
    /// Its description.
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// The report of opening and recovery.
    pub fn report(&self) -> &store::Report {
        &self.opened.report
    }

    /// Messages for people: missing members, use of the page cache.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether the last server was killed, and the memory is gone in which it kept the records of its last answered writes (`keeper.rs`). If
    /// users of a device waited for this server, they must not continue, because writes that they have seen answered may be missing. False
    /// with [`OpenMode::AcceptLoss`].
    pub fn answers_lost(&self) -> bool {
        self.answers_lost
    }

    /// Sizes of the members' devices in bytes; `None` for one that is missing.
    pub fn member_bytes(&self) -> Vec<Option<u64>> {
        (self.devices.iter().map(|d| Some(d.as_ref()?.bytes))).collect()
    }

    /// Size in bytes.
    pub fn volume_bytes(&self) -> u64 {
        self.opened.space.geo.volume_bytes()
    }
}

/// The text of an error of the store.
pub(crate) fn in_words(config: &VolumeConfig, media: &FileMedia<'_>, e: store::OpenError) -> Error {
    let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    match e {
        store::OpenError::Media(e) => device_error(media, &paths, e),
        e => Error::new(ErrorKind::Volume, e.to_string()),
    }
}

fn device_error(media: &FileMedia<'_>, paths: &[PathBuf], e: store::MediaError) -> Error {
    let path = paths
        .get(usize::from(e.member.0))
        .map(|p| p.display().to_string())
        .unwrap_or_default();
    let why = media
        .last_error()
        .map(|e| format!(" ({e})"))
        .unwrap_or_default();
    Error::new(
        ErrorKind::Device,
        format!(
            "{path}: metadata I/O failed at byte {}{why}: check the device",
            e.offset
        ),
    )
}
