//! Takes a volume over from its last server: the claim on it, and what that server has kept.

use super::{OpenMode, kept};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::members::{Found, find_superblocks, probe};
use crate::stamp::{self, Claimed, Stamp};
use isotherm_core::MemberId;
use isotherm_core::store::superblock::State;
use isotherm_core::store::{self, Superblock};
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
        refuse_served(devices, found)?;
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

/// Makes sure that no other process serves the volume whose members `devices` are, before they are examined or (with `write`) repaired without
/// opening the volume. `paths` are theirs. Returns messages for people.
///
/// # Errors
/// Another process serves it.
pub fn refuse_if_served(
    devices: &[Option<Device>],
    paths: &[PathBuf],
    write: bool,
) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    let read = find_superblocks(&mut FileMedia::new(devices), paths, true, &mut Vec::new());
    // Superblocks of another format say nothing that could be understood here.
    if let Ok(found) = read {
        if write {
            claim(devices, &found, paths, &mut notes)?;
        } else {
            refuse_served(devices, &found)?;
        }
    }
    Ok(notes)
}

/// The same for a device whose contents are about to be overwritten: every member of a volume has the stamp of the process that opened it last.
/// `own` is the volume that this process has open, with the members that are present.
pub(super) fn refuse_live_member(
    device: &Device,
    own: Option<(&Superblock, &[Option<Device>])>,
) -> Result<(), Error> {
    let Ok(Ok(sb)) = probe::probe(&device.path, probe::Second::At(&[])) else {
        return Ok(());
    };
    match own {
        Some((ours, members)) if ours.uuid == sb.uuid => match member_of(&sb, ours, members) {
            Some(member) => {
                let what = format!(
                    "{}: is {} by another name: give another device",
                    device.path.display(),
                    member.path.display()
                );
                Err(Error::new(ErrorKind::InUse, what))
            }
            // It was a member, and has the stamp of this session.
            None => Ok(()),
        },
        _ if sb.state != State::Clean => stamp::claim(device, sb.uuid, true).map(drop),
        _ => Ok(()),
    }
}

/// The member of `ours` that the device of `sb` is.
fn member_of<'a>(
    sb: &Superblock,
    ours: &Superblock,
    members: &'a [Option<Device>],
) -> Option<&'a Device> {
    members.get(sb.place_in(ours)?)?.as_ref()
}

/// The newest superblock, and the place of the primary among those members that are present.
fn primary<'a>(devices: &[Option<Device>], found: &'a Found) -> Option<(&'a Superblock, usize)> {
    let newest = store::newest_superblock(found.iter().flatten())?;
    let places = (0..found.len()).filter(|&i| found[i].is_none());
    let missing: Vec<MemberId> = places.map(|i| MemberId(i as u8)).collect();
    let place = usize::from(newest.primary_without(&missing)?.0);
    devices.get(place)?.as_ref().map(|_| (newest, place))
}

pub(super) fn is_unclean(found: &Found) -> bool {
    found.iter().flatten().any(|s| s.state != State::Clean)
}

fn refuse_served(devices: &[Option<Device>], found: &Found) -> Result<(), Error> {
    match primary(devices, found) {
        Some((newest, place)) if is_unclean(found) => match &devices[place] {
            Some(device) => stamp::refuse_served(device, newest.uuid),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Claims the volume on its primary, so that no other machine serves it at the same time: see `stamp.rs`.
fn claim(
    devices: &[Option<Device>],
    found: &Found,
    paths: &[PathBuf],
    notes: &mut Vec<String>,
) -> Result<Option<(Claimed, usize)>, Error> {
    let Some((newest, place)) = primary(devices, found) else {
        return Ok(None);
    };
    let Some(device) = &devices[place] else {
        return Ok(None);
    };
    let (uuid, all) = (newest.uuid, devices.iter().zip(found).enumerate());
    let others: Vec<&Device> = all
        .filter(|(i, (_, sb))| *i != place && sb.as_ref().is_some_and(|s| s.uuid == uuid))
        .filter_map(|(_, (d, _))| d.as_ref())
        .collect();
    let stamps = || others.iter().map(|d| stamp::read(d)).collect::<Vec<_>>();
    let before = stamps();
    let claimed = stamp::claim(device, uuid, is_unclean(found))?;
    // The server of a cache volume that cannot write to its flash any more stamps a disk instead.
    for ((other, old), new) in others.iter().zip(before).zip(stamps()) {
        if let (Ok(old), Ok(new)) = (old, new) {
            stamp::refuse_change(other, &old, &new)?;
        }
        claimed.stamp.copy_to(other)?;
    }
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
