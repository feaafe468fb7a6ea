//! Adoption of a device that holds data: the checks before anything is written to it.

use super::{AdoptHow, CreateHow, Created, Volume, config_error, description};
use crate::config::VolumeConfig;
use crate::contents::{self, Adoptable, adoptable};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use isotherm_core::store::Superblock;
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
    let found = adoptable(device, how.unknown, device.bytes.saturating_sub(room))?;
    let block = 1u32 << sb.block_shift;
    if block > found.sector {
        return refused(format!(
            "{path}: {} uses pieces of {} bytes, and the volume would have blocks of {block}, because its devices have: use devices with smaller sectors",
            found.what, found.sector
        ));
    }
    if found.in_use {
        return refused(format!(
            "{path}: {} was not unmounted: mount it once and unmount it, or check it",
            found.what
        ));
    }
    if found.bytes <= room {
        return Ok(found);
    }
    let kib = (room / 1024).to_string();
    let advice = found.shrink.map_or_else(
        || format!("make the device larger by {} bytes (`lvextend`, or its partition): this file system cannot shrink", found.bytes - room),
        |c| {
            let cut = if device.is_block {
                String::new()
            } else {
                format!(" && truncate -s {} DEVICE", device.bytes)
            };
            let c = format!("{c}{cut}").replace("DEVICE", &path.to_string()).replace("{kib}", &kib);
            format!("shrink it first: {}", c.replace("{bytes}", &room.to_string()))
        },
    );
    refused(format!(
        "{path}: {} ends at byte {}, and the volume needs the last {tail} bytes of the device for itself, rounded to extents: {advice}",
        found.what, found.bytes
    ))
}
