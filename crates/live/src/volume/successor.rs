//! The device that takes the place of a member: which member, and what is possible.

use super::memory::{self, Needs};
use super::{ReplaceHow, config_error};
use crate::config::VolumeConfig;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::random::random;
use isotherm_core::geometry::SLOTS_MAX;
use isotherm_core::store::{self, MetaArea, Successor, Superblock};
use isotherm_core::volume::Space;
use isotherm_core::{MemberId, TierId};
use std::path::Path;

/// A volume whose member is to be replaced.
#[derive(Clone, Copy)]
pub(crate) struct Replacing<'a> {
    pub config: &'a VolumeConfig,
    /// The members that are present.
    pub devices: &'a [Option<Device>],
    /// The description, for errors.
    pub file: &'a Path,
    /// Whether this process serves the volume.
    pub is_served: bool,
}

impl Replacing<'_> {
    /// The member that is meant, and `device` in its place.
    ///
    /// # Errors
    /// No member or an unclear one is meant, it holds data that an empty device would lose, or the device is too small.
    pub(crate) fn plan(
        &self,
        (sb, space): (&Superblock, &Space),
        device: &Device,
        how: &ReplaceHow,
    ) -> Result<(usize, Successor), Error> {
        let place = self.place(how.member.as_deref())?;
        let path = self.config.members[place].path.display();
        if let Some(tail) = &self.config.members[place].tail {
            let what = format!(
                "{path} with its tail {}: a disk with a tail cannot be replaced: release the volume, copy the device to the new one, and adopt that",
                tail.display()
            );
            return Err(Error::new(ErrorKind::Volume, what));
        }
        let holds_data = self.devices[place].is_some() && !how.empty;
        let (homes, writes) = store::held_by(space, MemberId(place as u8));
        if !holds_data && homes + writes > 0 {
            let fix = if self.is_served {
                let v = self.file.with_extension("");
                format!(
                    "let it be written home first (`isotherm set {} write-mode=write-through-all`, then `isotherm clean`), or leave out --empty, then it is copied",
                    v.display()
                )
            } else {
                "leave out --empty, then it is copied".to_owned()
            };
            let what = format!(
                "{path}: it holds data that is nowhere else ({homes} homes and {writes} unwritten copies of extents): {fix}"
            );
            return Err(Error::new(ErrorKind::Volume, what));
        }
        let successor = successor(sb, place, device, how, holds_data)?;
        self.fits_memory(sb, &successor)?;
        Ok((place, successor))
    }

    /// Refuses flash for whose map this machine has no memory.
    fn fits_memory(&self, sb: &Superblock, successor: &Successor) -> Result<(), Error> {
        let mut later = sb.clone();
        successor
            .room
            .put(&mut later.members[usize::from(successor.place.0)]);
        let geo = later.geometry().map_err(|e| config_error(self.file, e))?;
        let needs = Needs::of(&geo, self.config.io.buffers.0);
        needs.check_fits(memory::available(), "the machine", self.file)
    }

    /// The place of the member that is meant.
    fn place(&self, member: Option<&str>) -> Result<usize, Error> {
        let all = &self.config.members;
        let list = || {
            let named = (0..).zip(all).map(|(i, m): (usize, _)| {
                let gone = if self.devices[i].is_none() {
                    " (missing)"
                } else {
                    ""
                };
                format!("{i}: {}{gone}", m.path.display())
            });
            named.collect::<Vec<_>>().join(", ")
        };
        let Some(member) = member else {
            let places = 0..self.devices.len();
            let missing: Vec<usize> = places.filter(|i| self.devices[*i].is_none()).collect();
            return match missing.as_slice() {
                [place] => Ok(*place),
                [] => Err(config_error(
                    self.file,
                    format!(
                        "no member is missing: name the one to replace with --member ({})",
                        list()
                    ),
                )),
                _ => Err(config_error(
                    self.file,
                    format!(
                        "several members are missing: name the one to replace with --member ({})",
                        list()
                    ),
                )),
            };
        };
        let by_number = member.parse::<usize>().ok().filter(|&i| i < all.len());
        let path = std::path::absolute(member).unwrap_or_else(|_| member.into());
        let same = |p: &Path| {
            p == path
                || std::fs::canonicalize(p)
                    .is_ok_and(|p| std::fs::canonicalize(&path).is_ok_and(|q| p == q))
        };
        let by_path = || all.iter().position(|m| same(&m.path));
        by_number.or_else(by_path).ok_or_else(|| {
            config_error(
                self.file,
                format!("`{member}` is no member: there are {}", list()),
            )
        })
    }
}

/// The place, identity and size of `device` as a member.
pub(super) fn successor(
    sb: &Superblock,
    place: usize,
    device: &Device,
    how: &ReplaceHow,
    holds_data: bool,
) -> Result<Successor, Error> {
    let m = MemberId(place as u8);
    let old = &sb.members[place];
    let bytes = how.size.unwrap_or(device.bytes).min(device.bytes);
    let area = (!holds_data && sb.is_only_flash(m)).then(|| area_for(sb, bytes));
    let room = match area {
        // More copies than extents there cannot be.
        Some(area) => Superblock { area, ..sb.clone() }.room(m, bytes, sb.extents),
        None => sb.room(m, bytes, most_slots(sb, place)),
    };
    let least = if holds_data { old.slots } else { 1 };
    if room.slots < least {
        let needed = sb.least_bytes(m, least);
        let fix = if device.is_block {
            "give a larger device"
        } else {
            "give a larger file, or an empty one with its size (PATH:SIZE)"
        };
        let what = format!(
            "{}: has {bytes} bytes; this member needs at least {needed}: {fix}",
            device.path.display()
        );
        return Err(Error::new(ErrorKind::Config, what));
    }
    Ok(Successor {
        place: m,
        uuid: random()?,
        room,
        hint: device.path.display().to_string(),
        holds_data,
        area,
    })
}

/// The metadata areas of a cache volume whose flash is one device of `bytes` bytes, as a volume that is created with it has them.
fn area_for(sb: &Superblock, bytes: u64) -> MetaArea {
    let copies = u32::try_from(bytes >> sb.extent_shift).map_or(sb.extents, |n| n.min(sb.extents));
    let blocks = 1 << (sb.extent_shift - sb.block_shift);
    MetaArea::of(sb.kind, copies, copies, blocks, bytes)
}

/// A message about the part of a new device that no slot covers: the volume has its size, and other devices or a copy of the former one fix the
/// metadata areas, which have room for a number of copies.
pub(super) fn unused(sb: &Superblock, new: &Successor, given: u64) -> Option<String> {
    let unused = given.saturating_sub(new.room.bytes);
    // What is less than an extent, or a hundredth, is no device of the wrong size.
    (unused >= 1 << sb.extent_shift && unused > given / 100).then(|| {
        let why = if new.room.slots >= sb.extents {
            "the volume has no more extents"
        } else {
            "the metadata areas have room for no more extents; flash of a cache volume is used in full after `isotherm cache VOLUME resize`"
        };
        let (unused, given) = (unused >> 20, given >> 20);
        format!("{}: {unused} MiB of {given} MiB are not used: {why}", new.hint)
    })
}

/// The most slots that a device in this place may have. The size of the volume is fixed, so a device of the slowest tier needs no more slots
/// than before. On the faster tiers the metadata areas limit the number of copies, where another device has them, too.
fn most_slots(sb: &Superblock, place: usize) -> u32 {
    let slowest = sb.members.iter().map(|m| m.tier).max().unwrap_or(TierId(0));
    let old = sb.members[place].slots;
    if sb.members[place].tier == slowest {
        return old;
    }
    let others = (0..sb.members.len()).filter(|&i| i != place);
    let sum = |fast: bool| -> u32 {
        others
            .clone()
            .filter(|&i| (sb.members[i].tier < slowest) == fast)
            .map(|i| sb.members[i].slots)
            .sum()
    };
    let (fast, slow) = (sum(true), sum(false));
    let blocks = 1 << (sb.extent_shift - sb.block_shift);
    let fits = |slots: u32| {
        let copies = fast.saturating_add(slots);
        MetaArea::region_of(sb.kind, sb.recorded(copies), copies, blocks) <= sb.area.region_blocks
    };
    let limit = SLOTS_MAX - slow - fast;
    if !fits(old) {
        return old;
    }
    // More copies need more room, so the largest number that fits is found by halving.
    let (mut low, mut high) = (old, limit);
    while low < high {
        let mid = low + (high - low).div_ceil(2);
        if fits(mid) {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    low
}
