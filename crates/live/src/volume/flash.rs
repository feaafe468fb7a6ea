//! The flash of a cache volume is taken out of it: the disks alone are the volume then, until `replace` gives it flash again.
//!
//! ```text
//! (served: dirty data is cleaned ─► the engine is closed) ─► what is still dirty goes home ─► marks empty
//!    ─► the description says *removed* ─► a session without flash begins ─► what lies on flash is erased
//! ```
//! Until the session begins the volume is what it was, and an opening corrects the description. From then on this flash is no part of it.

use super::begin::open_degraded;
use super::grow::end_session;
use super::release::leave_no_flash;
use super::{OpenMode, Volume, config_error, description, in_words};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::config::VolumeConfig;
use crate::contents;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use isotherm_core::MemberId;
use isotherm_core::geometry::Kind;
use isotherm_core::store::salvage::Salvaged;
use isotherm_core::store::{self, OpenError, Superblock};
use std::path::{Path, PathBuf};

/// Most bytes that are copied at a time.
const PIECE: usize = 4 << 20;

/// Flash that is no part of its volume any more.
#[derive(Debug)]
pub struct FormerFlash {
    /// Its places in the list of members.
    pub(crate) places: Vec<usize>,
    /// The devices that were there, still locked.
    pub(crate) devices: Vec<Device>,
    /// Bytes that were written home at last.
    pub written_home: u64,
}

impl FormerFlash {
    /// Enters into the description that the volume has no flash.
    pub fn describe(&self, config: &mut VolumeConfig) {
        for &i in &self.places {
            if let Some(m) = config.members.get_mut(i) {
                m.removed = true;
            }
        }
    }

    /// The paths of the devices.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.devices.iter().map(|d| d.path.clone()).collect()
    }

    /// Erases what tells that the devices belonged to a volume, and lets them go: those that were open, and those that the description `file`
    /// names and an earlier attempt has left. Returns a message for each with which that failed: it is no part of the volume all the same.
    pub fn erase(self, config: &VolumeConfig, file: &Path) -> Vec<String> {
        let one = |d: &Device| contents::erase(d).err().map(|e| e.to_string());
        let mut notes: Vec<String> = self.devices.iter().filter_map(one).collect();
        if self.devices.is_empty() {
            notes.extend(leave_no_flash(config, file));
        }
        notes
    }
}

/// Why a tiering volume cannot go on without its faster devices.
pub const NO_CACHE: &str = "it is a tiering volume, whose data lies on all its devices: only a cache volume can go on without the faster ones";

/// The flash of a cache volume; none of another volume.
pub(crate) fn flash(sb: &Superblock) -> Vec<MemberId> {
    let members = (0..sb.members.len() as u8).map(MemberId);
    let is_flash = |m: &MemberId| sb.kind == Kind::Cache && !sb.is_disk(*m);
    members.filter(is_flash).collect()
}

/// Checks whether a volume can go on with its disks alone.
///
/// # Errors
/// It has no flash of its own, or a disk is missing.
pub(crate) fn may_leave(
    config: &VolumeConfig,
    devices: &[Option<Device>],
    sb: &Superblock,
    file: &Path,
) -> Result<(), Error> {
    let flash = flash(sb);
    let is_there = |m: &MemberId| devices.get(usize::from(m.0)).is_some_and(Option::is_some);
    if flash.is_empty() {
        return Err(config_error(file, NO_CACHE));
    }
    let removed = |m: &MemberId| config.members[usize::from(m.0)].removed;
    if flash.iter().all(removed) {
        return Err(config_error(file, "it has no flash"));
    }
    match sb.disks().find(|m| !is_there(m)) {
        None => Ok(()),
        Some(m) => {
            let path = config.members[usize::from(m.0)].path.display();
            Err(config_error(
                file,
                format!(
                    "{path} is missing, and the data of its flash belongs there: attach it first"
                ),
            ))
        }
    }
}

/// Writes home what only flash has. If not `trusted`, a flush of flash has failed.
pub(crate) fn salvage(
    media: &mut FileMedia<'_>,
    (sb, space): (&Superblock, &isotherm_core::volume::Space),
    trusted: bool,
) -> Result<Salvaged, OpenError> {
    let mut piece = Buffer::new(0, PIECE as u32, ALIGNMENT as u32);
    let done = store::salvage::salvage(media, sb, space, trusted, &mut piece[..PIECE]);
    Ok(done?)
}

/// The number of bytes that were written home, if these are all.
pub(crate) fn all_home(done: &Salvaged) -> Result<u64, Error> {
    match done.lost.first() {
        None => Ok(done.bytes),
        Some(part) => {
            let what = format!(
                "extent {} has dirty data that flash does not give back: the flash stays; `isotherm check --data` names all such places",
                part.0.0
            );
            Err(Error::new(ErrorKind::Device, what))
        }
    }
}

impl Volume {
    /// Takes the flash out of cache volume `p/v`, which is not served. Flash that is missing already, without data of its own, is given up.
    ///
    /// # Errors
    /// The volume cannot be opened, it has no flash, a disk is missing, or a device fails. It can be opened as before, or without flash.
    pub fn remove_flash(volume: &Path) -> Result<(FormerFlash, Vec<String>), Error> {
        let mut v = Volume::open(volume, OpenMode::ReadWrite)?;
        let file = description(volume);
        let sb = v.opened.superblock.clone();
        if let Err(e) = may_leave(&v.config, &v.devices, &sb, &file) {
            end_session(&v.devices, &v.opened);
            return Err(e);
        }
        let mut media = FileMedia::new(&v.devices);
        let done = salvage(&mut media, (&sb, &v.opened.space), true)
            .map_err(|e| in_words(&v.config, &media, e))?;
        let written_home = all_home(&done)?;
        let places: Vec<usize> = flash(&sb).iter().map(|m| usize::from(m.0)).collect();
        let devices = places.iter().filter_map(|&i| v.devices[i].take());
        let former = FormerFlash {
            devices: devices.collect(),
            places,
            written_home,
        };
        // The description says so first: if this ends early, the next opening finds that the flash is there.
        let before = v.config.clone();
        former.describe(&mut v.config);
        v.config.save(&file)?;
        let opened = open_degraded(&before, &v.devices).inspect_err(|_| {
            // If this fails, the next opening corrects it.
            let _ = before.save(&file);
        })?;
        end_session(&v.devices, &opened);
        Ok((former, v.notes))
    }
}
