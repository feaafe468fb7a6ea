//! Adoption of a device that holds data: the checks before anything is written to it.

use super::{AdoptHow, CreateHow, Created, Volume, config_error, description};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::config::VolumeConfig;
use crate::contents::{self, Adoptable, adoptable};
use crate::device::{Device, OpenHow};
use crate::error::{Error, ErrorKind};
use crate::tail::{LABEL_BYTES, Label};
use isotherm_core::geometry::SLOTS_MAX;
use isotherm_core::store::{BLOCK, Superblock};
use std::path::Path;

impl Volume {
    /// Creates volume `p/v` out of empty flash and a device with data, which stays in place. With [`AdoptHow::only_plan`] nothing is written.
    /// If this is interrupted, [`Volume::release`] gives the device back.
    ///
    /// # Errors
    /// As [`Volume::create_as`]; also if what the device holds cannot be adopted, or leaves no room behind it.
    pub fn adopt(
        volume: &Path,
        config: VolumeConfig,
        how: AdoptHow,
    ) -> Result<(Created, Adoptable), Error> {
        let keep = CreateHow {
            keep: true,
            ..CreateHow::default()
        };
        let file = description(volume);
        let (made, adopted) =
            Volume::create_with(volume, config, (keep, Some(how)), &mut |_, _| {})?;
        let adopted = adopted.ok_or_else(|| config_error(&file, "nothing was adopted"))?;
        Ok((made, adopted))
    }
}

/// Refuses flash that holds anything.
pub(super) fn refuse_flash(config: &VolumeConfig, devices: &[Option<Device>]) -> Result<(), Error> {
    let slowest = config.members.iter().map(|m| m.tier).max();
    let members = config.members.iter().zip(devices);
    let flash = members.filter(|(m, _)| Some(m.tier) != slowest);
    let there = flash.filter_map(|(_, d)| d.as_ref().filter(|d| !d.created));
    there
        .map(contents::refuse)
        .collect::<Result<Vec<()>, _>>()
        .map_err(|e| {
            let words = e.to_string();
            let words = words.replace(
                ", or --force to overwrite it",
                ", or erase it first (`wipefs -a`)",
            );
            Error::new(e.kind, words)
        })
        .map(drop)
}

/// Opens the tail devices that the description names, and puts each behind its disk, with all the room that it has. What a tail holds is refused,
/// or erased later.
pub(super) fn open_tails(
    config: &VolumeConfig,
    devices: &mut [Option<Device>],
    how: AdoptHow,
) -> Result<(), Error> {
    for (m, place) in config.members.iter().zip(devices) {
        let Some(path) = &m.tail else { continue };
        let fresh = OpenHow {
            fresh: true,
            buffered: !config.io.direct,
            ..OpenHow::default()
        };
        let tail = Device::open(path, fresh)?;
        if !how.unknown {
            contents::refuse(&tail)?;
        }
        if let Some(data) = place.take() {
            let label = Label::of_sizes(data.bytes, tail.bytes);
            *place = Some(data.join(tail, label));
        }
    }
    Ok(())
}

/// Limits tails to the bytes that are needed, so that the volume is as large as the data device, rounded to an extent. Whether there is a tail.
pub(super) fn fit_tail(sb: &Superblock, devices: &mut [Option<Device>]) -> Result<bool, Error> {
    let mut any = false;
    for m in sb.disks() {
        let Some(device) = &mut devices[usize::from(m.0)] else {
            continue;
        };
        let path = device.path.display().to_string();
        let Some(joined) = &mut device.joined else {
            continue;
        };
        any = true;
        let data = joined.label.data_bytes;
        let refused = |what| Err(Error::new(ErrorKind::Config, what));
        if data < sb.head_bytes() {
            let least = sb.head_bytes();
            return refused(format!(
                "{path}: has {data} bytes, and a disk needs at least {least}"
            ));
        }
        let extents = data.div_ceil(1 << sb.extent_shift);
        let extents = u32::try_from(extents).unwrap_or(SLOTS_MAX);
        let needed = sb.least_bytes(m, extents) - data + LABEL_BYTES;
        if joined.tail.bytes < needed {
            return refused(format!(
                "{}: has {} bytes; as the tail of {path} it needs at least {needed}: give a larger device",
                joined.tail.path.display(),
                joined.tail.bytes
            ));
        }
        joined.label.tail_bytes = needed;
        device.bytes = joined.label.member_bytes();
    }
    Ok(any)
}

/// Erases what lies on tail devices, makes the part of the volume that lies there read as zeros, and then writes the labels. All is durable
/// before the disk itself changes.
pub(super) fn label_tails(sb: &Superblock, devices: &[Option<Device>]) -> Result<(), Error> {
    for m in sb.disks() {
        let entry = &sb.members[usize::from(m.0)];
        let Some(device) = &devices[usize::from(m.0)] else {
            continue;
        };
        let (Some(tail), Some(at)) = (device.tail(), device.boundary()) else {
            continue;
        };
        let path = tail.path.clone();
        contents::erase(tail)?;
        let zeros = vec![0; ((u64::from(entry.slots) << sb.extent_shift) - at) as usize];
        let mut aligned = Buffer::new(0, zeros.len() as u32, ALIGNMENT as u32);
        aligned[..zeros.len()].copy_from_slice(&zeros);
        let done = device.write_past_cache(&aligned[..zeros.len()], at);
        let done = done.and_then(|()| device.sync_data());
        let done = done.and_then(|()| device.write_label(sb.uuid, entry.uuid));
        done.map_err(|e| {
            let what = format!(
                "{}: cannot be written: {e}: check the device",
                path.display()
            );
            Error::new(ErrorKind::Device, what)
        })?;
    }
    Ok(())
}

/// What is adopted: the only disk must hold a file system that ends before the volume's own part of the disk.
pub(super) fn examine(
    sb: &Superblock,
    devices: &[Option<Device>],
    how: AdoptHow,
    file: &Path,
) -> Result<Adoptable, Error> {
    let disks: Vec<_> = sb.disks().collect();
    let [m] = disks[..] else {
        let what = "only one device can be adopted, behind flash, with a policy that keeps copies";
        return Err(config_error(file, what));
    };
    let Some(device) = devices[usize::from(m.0)].as_ref().filter(|d| !d.created) else {
        return Err(config_error(file, "the device to adopt is not there"));
    };
    let refused = |what: String| Err(Error::new(ErrorKind::InUse, what));
    let path = device.path.display();
    let entry = &sb.members[usize::from(m.0)];
    let tail = sb.tail(entry.slots);
    let room = u64::from(entry.slots) << sb.extent_shift;
    let behind = device.bytes.saturating_sub(room);
    let behind = if device.tail().is_some() { 0 } else { behind };
    let found = adoptable(device, how.unknown, behind)?;
    let block = 1u32 << sb.logical_shift;
    if block > found.sector {
        return refused(format!(
            "{path}: {} uses pieces of {} bytes, and the volume would have blocks of {block}, because the sectors of the disk have",
            found.what, found.sector
        ));
    }
    if found.in_use {
        return refused(format!(
            "{path}: {} was not unmounted: mount it once and unmount it, or check it",
            found.what
        ));
    }
    let whole = device.boundary().unwrap_or(room);
    if found.bytes <= room.min(whole) {
        return Ok(found);
    }
    if device.tail().is_some() {
        return refused(format!(
            "{path}: {} ends at byte {}, and only {whole} bytes of the device, whole blocks of {BLOCK}, can be adopted: shrink it by that",
            found.what, found.bytes
        ));
    }
    let kib = (room / 1024).to_string();
    let advice = found.shrink.map_or_else(
        || format!("make the device larger by {} bytes (`lvextend`, or its partition), or give a small second device with --tail: this file system cannot shrink", found.bytes - room),
        |c| {
            let cut = if device.is_block {
                String::new()
            } else {
                format!(" && truncate -s {} DEVICE", device.bytes)
            };
            let c = format!("{c}{cut}").replace("DEVICE", &path.to_string()).replace("{kib}", &kib);
            format!("shrink it first: {}; or give a small second device with --tail", c.replace("{bytes}", &room.to_string()))
        },
    );
    refused(format!(
        "{path}: {} ends at byte {}, and the volume needs the last {tail} bytes of the device for itself, rounded to extents: {advice}",
        found.what, found.bytes
    ))
}
