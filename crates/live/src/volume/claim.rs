//! Takes a volume over from its last server: the claim on it, and what that server has kept.

use super::{OpenMode, kept};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::members::{Found, find_superblocks};
use crate::stamp::{self, Claimed, Stamp};
use isotherm_core::MemberId;
use isotherm_core::store::Superblock;
use isotherm_core::store::superblock::State;
use std::path::PathBuf;

/// Claims the volume, and restores what a killed server has kept of it, unless nothing is to be written.
pub(super) fn take_over(
    mode: OpenMode,
    devices: &[Option<Device>],
    found: &Found,
    paths: &[PathBuf],
    notes: &mut Vec<String>,
) -> Result<(Option<(Stamp, usize)>, kept::Restored), Error> {
    if mode == OpenMode::ReadOnly {
        return Ok((None, kept::Restored::default()));
    }
    let Some((claimed, member)) = claim(devices, found, paths, notes)? else {
        return Ok((None, kept::Restored::default()));
    };
    let kept = kept::restore(
        devices,
        found,
        paths,
        claimed.same_kernel,
        mode == OpenMode::AcceptLoss,
        notes,
    )?;
    Ok((Some((claimed.stamp, member)), kept))
}

/// Claims the volume on its primary, so that no other machine serves it at the same time: see `stamp.rs`.
fn claim(
    devices: &[Option<Device>],
    found: &Found,
    paths: &[PathBuf],
    notes: &mut Vec<String>,
) -> Result<Option<(Claimed, usize)>, Error> {
    let Some(newest) = found.iter().flatten().max_by_key(|s| s.generation) else {
        return Ok(None);
    };
    let places = (0..found.len()).filter(|&i| found[i].is_none());
    let missing: Vec<MemberId> = places.map(|i| MemberId(i as u8)).collect();
    let primary = newest.layout().without(&missing);
    let place = primary.map_or(0, |l| usize::from(l.primary.0));
    let Some(Some(device)) = devices.get(place) else {
        return Ok(None);
    };
    let unclean = found.iter().flatten().any(|s| s.state != State::Clean);
    let claimed = stamp::claim(device, newest.uuid, unclean)?;
    notes.extend(claimed.waited.clone());
    // A server that began before it could see the claim has recorded its session in the superblocks.
    let again = find_superblocks(&mut FileMedia::new(devices), paths, true, &mut Vec::new())?;
    let session = |s: &Superblock| (s.generation, s.epoch, s.state);
    let same = |a: &Option<Superblock>, b: &Option<Superblock>| {
        a.as_ref().map(session) == b.as_ref().map(session)
    };
    if !found.iter().zip(&again).all(|(a, b)| same(a, b)) {
        let what = format!(
            "{}: another server began to serve the volume just now: stop that first",
            device.path.display()
        );
        return Err(Error::new(ErrorKind::InUse, what));
    }
    Ok(Some((claimed, place)))
}
