//! A spare: a device that takes the place of flash of a cache volume that fails ([`MemberConfig::spare`]). Only the description names it, and it
//! is not written to until then. So what has happened to it meanwhile is found out when it is needed: a device on which contents are recognised
//! is not taken.

use super::create::Undo;
use super::flash_change::newest_of;
use super::replace::open_new;
use super::successor::successor;
use super::{NO_CACHE, ReplaceHow, config_error};
use crate::config::{MemberConfig, VolumeConfig};
use crate::error::Error;
use crate::members::stable::stable_name;
use isotherm_core::geometry::Kind;
use std::path::{Path, PathBuf};

/// The place of the member whose spare is that of a volume: the first flash device. None if the volume has one tier.
pub fn place(config: &VolumeConfig) -> Option<usize> {
    let slowest = config.members.iter().map(|m| m.tier).max();
    config.members.iter().position(|m| Some(m.tier) != slowest)
}

/// Looks whether `spare` can take the place of flash of volume `p/v`, which may be served, and returns its lasting name. Nothing is written.
///
/// # Errors
/// It is no cache volume, or the device is not there, is in use, holds data, is too small, or has larger sectors than the volume has blocks.
pub fn check(volume: &Path, place: usize, spare: &Path) -> Result<PathBuf, Error> {
    let spare = std::path::absolute(spare).map_err(|e| config_error(spare, e))?;
    let spare = stable_name(&spare).unwrap_or(spare);
    let (config, sb) = newest_of(volume)?;
    if sb.kind != Kind::Cache {
        return Err(config_error(volume, NO_CACHE));
    }
    let device = open_new(
        &config,
        &spare,
        &ReplaceHow::default(),
        &mut Undo::default(),
    )?;
    if device.align > 1 << sb.block_shift {
        let what = format!(
            "has sectors of {} bytes, and the volume's blocks have {}: give a device whose sectors are not larger",
            device.align,
            1 << sb.block_shift
        );
        return Err(config_error(&spare, what));
    }
    successor(&sb, place, &device, &ReplaceHow::default(), false)?;
    Ok(spare)
}

/// The spares that the description names, as paths: the place of each one's member, its path, and whether it has become that member already.
pub fn all(config: &VolumeConfig, base: &Path) -> Vec<(usize, PathBuf, bool)> {
    let one = |(i, m): (usize, &MemberConfig)| {
        let spare = base.join(m.spare.as_ref()?);
        let same = |p: PathBuf| std::fs::canonicalize(&p).unwrap_or(p);
        let is_member = same(base.join(&m.path)) == same(spare.clone());
        Some((i, spare, is_member))
    };
    config.members.iter().enumerate().filter_map(one).collect()
}
