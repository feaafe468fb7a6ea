//! A volume that is opened without some of its members, although the description names them.

use super::claim::is_unclean;
use super::{OpenMode, Volume, config_error, description};
use crate::config::{MemberConfig, VolumeConfig};
use crate::device::{Device, OpenHow, refuse_twins};
use crate::error::{Error, ErrorKind};
use crate::members::Found;
use crate::stamp;
use isotherm_core::MemberId;
use isotherm_core::geometry::Kind;
use isotherm_core::store;
use std::path::Path;

/// What counts as no member, although the description names it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Without<'a> {
    Nothing,
    /// The new device of a replacement.
    Device(&'a Path),
    /// All members of the faster tiers of a cache volume.
    Flash,
}

impl Without<'_> {
    /// Why member `m` is meant, if it is.
    pub(super) fn why(self, m: &MemberConfig, slowest: u8) -> Option<&'static str> {
        let same = |new: &Path| refuse_twins(&[m.path.clone(), new.to_owned()]).is_err();
        match self {
            Without::Device(new) if same(new) => Some("is the new device"),
            Without::Flash if m.tier < slowest => Some("is left out, as asked"),
            _ if m.removed => Some("was removed from the volume"),
            _ => None,
        }
    }
}

impl Volume {
    /// As [`Volume::open`], and goes on with the disks of a cache volume alone: its flash may be there, and gets a stamp at most. What only flash had
    /// is lost: [`OpenMode::ListLoss`] makes reads of it fail, [`OpenMode::AcceptLoss`] shows what the disks have. Flash that was left out is no part of the volume any more.
    ///
    /// # Errors
    /// As [`Volume::open`]; a tiering volume, whose data is on all members.
    pub fn open_without_flash(volume: &Path, mode: OpenMode) -> Result<Volume, Error> {
        let file = description(volume);
        let config = VolumeConfig::load(&file)?;
        let base = file.parent().unwrap_or(Path::new("")).to_owned();
        Volume::open_without(config, &file, &base, mode, Without::Flash)
    }
}

/// Whether the volume can go on without these members. If flash is left out, no other server may stamp the volume there.
pub(super) fn may_leave_out(
    without: Without<'_>,
    config: &VolumeConfig,
    found: &Found,
    file: &Path,
) -> Result<(), Error> {
    if without != Without::Flash {
        return Ok(());
    }
    if found.iter().flatten().any(|sb| sb.kind != Kind::Cache) {
        let what = "--without-flash: this is no cache volume, so data is on the faster tiers alone: serve it with all of its members";
        return Err(config_error(file, what));
    }
    claim_on_flash(config, found)
}

/// Claims the volume on flash that is to be left out, too, as far as that can be read and written: another server stamps it there.
fn claim_on_flash(config: &VolumeConfig, found: &Found) -> Result<(), Error> {
    let slowest = config.members.iter().map(|m| m.tier).max();
    let Some(newest) = store::newest_superblock(found.iter().flatten()) else {
        return Ok(());
    };
    for m in config.members.iter().filter(|m| Some(m.tier) != slowest) {
        let how = OpenHow {
            buffered: !config.io.direct,
            ..OpenHow::default()
        };
        let claimed = Device::open(&m.path, how)
            .and_then(|d| stamp::claim(&d, newest.uuid, is_unclean(found)));
        // What cannot be opened, read or written says nothing.
        if let Some(e) = claimed.err().filter(|e| e.kind == ErrorKind::InUse) {
            return Err(e);
        }
    }
    Ok(())
}

/// Keeps the description if it was wrong about flash that joins or leaves (`told`: what it said). A description that cannot be kept is
/// corrected again next time.
pub(super) fn keep_corrected(
    config: &VolumeConfig,
    told: (usize, usize),
    file: &Path,
    notes: &mut Vec<String>,
) {
    if described(config) == told || !file.exists() {
        return;
    }
    let what = match config.save(file) {
        Ok(()) => "is corrected".to_owned(),
        Err(e) => format!("cannot be corrected: {e}"),
    };
    notes.push(format!(
        "{}: described other flash than the volume has, and {what}",
        file.display()
    ));
}

/// The number of members that the description has, and of those that it calls removed.
pub(super) fn described(config: &VolumeConfig) -> (usize, usize) {
    let removed = config.members.iter().filter(|m| m.removed);
    (config.members.len(), removed.count())
}

/// Whether each of these members was taken out of the volume, so that nobody need be told.
pub(super) fn all_removed(config: &VolumeConfig, missing: &[MemberId]) -> bool {
    let is_removed = |m: &MemberId| config.members[usize::from(m.0)].removed;
    missing.iter().all(is_removed)
}
