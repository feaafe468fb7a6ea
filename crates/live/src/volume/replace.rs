//! Replacement of a member by another device, in a volume that is not being served.
//!
//! A member that is missing is replaced by an empty device; this is possible if it was a cache whose loss the volume survives. A member that
//! is present is copied first, so it can be a disk that begins to fail. The order of writes is in `core/src/store/replace.rs`.

use super::create::{Undo, reserve_space};
use super::open::Without;
use super::{OpenMode, Volume, config_error, description};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::config::{VolumeConfig, parse_uuid};
use crate::contents;
use crate::device::{Device, OpenHow, refuse_twins};
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::members::{self, probe};
use crate::random::random;
use isotherm_core::geometry::SLOTS_MAX;
use isotherm_core::store::superblock::MemberEntry;
use isotherm_core::store::{self, BLOCK, Layout, MetaArea, Successor, Superblock};
use isotherm_core::{MemberId, TierId};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Largest number of bytes that are copied at once.
const PIECE: usize = 4 << 20;

/// What to replace, and how.
#[derive(Clone, Debug, Default)]
pub struct ReplaceHow {
    /// The place of the member in the list of members, or its path. `None`: the one that is missing.
    pub member: Option<String>,
    /// Size of a file that does not exist yet, or the part of the device to use.
    pub size: Option<u64>,
    /// Begin with an empty device although the member is present. It must hold nothing that the volume needs.
    pub empty: bool,
    /// Overwrite data on the new device.
    pub force: bool,
    /// Continue although writes that only the missing member held are lost.
    pub accept_loss: bool,
}

/// The replacement that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Place of the member in the list of members.
    pub place: usize,
    /// Its tier.
    pub tier: u8,
    /// The former path.
    pub old: PathBuf,
    /// The path of the new device.
    pub new: PathBuf,
    /// Slots of the former member and of the new one.
    pub slots: (u32, u32),
    /// Bytes that were copied from the former member.
    pub copied_bytes: u64,
    /// Nothing was left to do: the device is a member already.
    pub already: bool,
    /// Messages for people.
    pub notes: Vec<String>,
}

impl Volume {
    /// Replaces a member of volume `p/v` by `new`. `progress` is told the number of bytes that are copied, and their total.
    ///
    /// # Errors
    /// No member or an unclear one is meant, the volume is in use or cannot be opened, the new device is in use, too small or holds data, or
    /// a device fails. The volume can then be opened as before, or with the new member.
    pub fn replace(
        volume: &Path,
        new: &Path,
        how: &ReplaceHow,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Replaced, Error> {
        let file = description(volume);
        let config = VolumeConfig::load(&file)?;
        let new = std::path::absolute(new).map_err(|e| config_error(new, e))?;
        let new = members::stable::stable_name(&new).unwrap_or(new);
        if let Some(done) = already(&config, &file, &new, how.member.as_deref())? {
            return Ok(done);
        }
        let mut undo = Undo::default();
        let device = open_new(&config, &new, how, &mut undo)?;
        let mode = if how.accept_loss {
            OpenMode::AcceptLoss
        } else {
            OpenMode::ReadWrite
        };
        let base = file.parent().unwrap_or(Path::new("")).to_owned();
        let mut v = Volume::open_without(config, &file, &base, mode, Without(Some(&new)))?;
        let plan = v.plan(&device, how, &file);
        let (place, successor) = match plan {
            Ok(plan) => plan,
            Err(e) => {
                v.end_session();
                return Err(e);
            }
        };
        let mut notes = std::mem::take(&mut v.notes);
        notes.extend(device.note.clone());
        let shape = Superblock {
            members: vec![MemberEntry {
                data_offset: successor.data_offset,
                bytes: successor.bytes,
                ..MemberEntry::default()
            }],
            ..v.opened.superblock.clone()
        };
        let devices = [Some(device)];
        notes.extend(reserve_space(&devices, &shape, false)?);
        let device = devices.into_iter().flatten().next();
        if how.force
            && let Some(d) = device.as_ref().filter(|d| !d.created)
        {
            contents::erase(d)?;
        }
        let (copied_bytes, former) = v.exchange(place, device, &successor, progress)?;
        undo.keep();
        let old = std::mem::replace(&mut v.config.members[place].path, new.clone());
        v.config.members[place].size = None;
        v.config.save(&file).map_err(|e| {
            let what = format!(
                "the member was replaced, but the description still names {}: {e}; correct it (the members are found as long as they are devices or lie near)",
                old.display()
            );
            Error::new(ErrorKind::Config, what)
        })?;
        notes.extend(former.and_then(|d| retire(&d, &v.opened.superblock, place)));
        let m = &v.config.members[place];
        notes.extend(m.paced.as_ref().or(m.sheet.as_ref()).map(|sheet| {
            format!(
                "the description says `{sheet}` of this member, as of the former one: correct it if the new device is another model"
            )
        }));
        Ok(Replaced {
            place,
            tier: m.tier,
            old,
            new,
            slots: (v.opened.superblock.members[place].slots, successor.slots),
            copied_bytes,
            already: false,
            notes,
        })
    }

    /// The member that is meant, and `device` in its place.
    fn plan(
        &self,
        device: &Device,
        how: &ReplaceHow,
        file: &Path,
    ) -> Result<(usize, Successor), Error> {
        let place = self.place(how.member.as_deref(), file)?;
        let holds_data = self.devices[place].is_some() && !how.empty;
        let (homes, writes) = store::held_by(&self.opened.space, MemberId(place as u8));
        if !holds_data && homes + writes > 0 {
            let path = self.config.members[place].path.display();
            let what = format!(
                "{path}: it holds data that is nowhere else ({homes} homes and {writes} unwritten copies of extents): leave out --empty, then it is copied"
            );
            return Err(Error::new(ErrorKind::Volume, what));
        }
        Ok((place, self.successor(place, device, how, holds_data)?))
    }

    /// The place of the member that is meant.
    fn place(&self, member: Option<&str>, file: &Path) -> Result<usize, Error> {
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
            let missing = &self.opened.report.missing;
            return match missing.as_slice() {
                [m] => Ok(usize::from(m.0)),
                [] => Err(config_error(
                    file,
                    format!(
                        "no member is missing: name the one to replace with --member ({})",
                        list()
                    ),
                )),
                _ => Err(config_error(
                    file,
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
                file,
                format!("`{member}` is no member: there are {}", list()),
            )
        })
    }

    /// The place, identity and size of `device` as a member.
    fn successor(
        &self,
        place: usize,
        device: &Device,
        how: &ReplaceHow,
        holds_data: bool,
    ) -> Result<Successor, Error> {
        let sb = &self.opened.superblock;
        let (layout, m) = (sb.layout(), MemberId(place as u8));
        let has_metadata = m == layout.primary || Some(m) == layout.mirror;
        let extent = 1u64 << sb.extent_shift;
        let data_offset = Layout::data_offset(&sb.area, has_metadata, extent);
        let old = &sb.members[place];
        let bytes = how.size.unwrap_or(device.bytes).min(device.bytes);
        let room = u32::try_from(bytes.saturating_sub(data_offset) / extent).unwrap_or(SLOTS_MAX);
        let slots = room.min(most_slots(sb, place));
        let least = if holds_data { old.slots } else { 1 };
        if slots < least {
            let needed = data_offset + u64::from(least) * extent;
            let what = format!(
                "{}: has {bytes} bytes; this member needs at least {needed}",
                device.path.display()
            );
            return Err(Error::new(ErrorKind::Config, what));
        }
        Ok(Successor {
            place: m,
            uuid: random()?,
            slots,
            data_offset,
            bytes: data_offset + u64::from(slots) * extent,
            hint: device.path.display().to_string(),
            holds_data,
        })
    }

    /// Closes the session that has begun, copies the member if `successor` holds data, and makes `new` the member. Returns the number of
    /// bytes copied, and the former device.
    fn exchange(
        &mut self,
        place: usize,
        new: Option<Device>,
        successor: &Successor,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(u64, Option<Device>), Error> {
        let mut media = FileMedia::new(&self.devices);
        let settled =
            store::settle(&mut media, &self.opened).map_err(|e| self.in_words(&media, e))?;
        let mut copied = 0;
        if let (true, Some(from), Some(to)) = (successor.holds_data, &self.devices[place], &new) {
            let used = store::slots_in_use(&self.opened.space, successor.place);
            let shift = self.opened.superblock.extent_shift;
            let starts = (
                self.opened.superblock.members[place].data_offset,
                successor.data_offset,
            );
            copied = copy(from, to, &used, shift, starts, progress)?;
        }
        let former = std::mem::replace(&mut self.devices[place], new);
        let mut media = FileMedia::new(&self.devices);
        let epoch = u64::from_le_bytes(random()?);
        store::replace(&mut media, &mut self.opened, &settled, successor, epoch)
            .map_err(|e| self.in_words(&media, e))?;
        Ok((copied, former))
    }
}

/// The most slots that a device in this place may have. The size of the volume is fixed, so a device of the slowest tier needs no more slots
/// than before. On the faster tiers the metadata areas, which were made at creation, limit the number of copies.
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
        MetaArea::region_for(sb.extents, fast.saturating_add(slots), blocks)
            <= sb.area.region_blocks
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

/// If `new` is an up-to-date member of the volume already, as after a replacement that was interrupted at its end: lets the description name
/// it.
fn already(
    config: &VolumeConfig,
    file: &Path,
    new: &Path,
    member: Option<&str>,
) -> Result<Option<Replaced>, Error> {
    let Ok(Ok(own)) = probe::probe(new, probe::Second::At(&[])) else {
        return Ok(None);
    };
    if config.uuid.as_deref().and_then(parse_uuid) != Some(own.uuid) {
        return Ok(None);
    }
    let mut located = config.clone();
    let notes = members::find(&mut located, file)?;
    let place = usize::from(own.index);
    // A device that was away while the volume went on is no member, whatever it says.
    let others = located
        .members
        .iter()
        .filter_map(|m| probe::probe(&m.path, probe::Second::At(&[])).ok()?.ok());
    if others
        .filter(|sb| sb.uuid == own.uuid)
        .any(|sb| sb.generation > own.generation)
    {
        return Ok(None);
    }
    let Some(m) = located.members.get(place) else {
        return Ok(None);
    };
    if refuse_twins(&[m.path.clone(), new.to_owned()]).is_ok() {
        return Ok(None);
    }
    let old = config
        .members
        .get(place)
        .map_or_else(PathBuf::new, |m| m.path.clone());
    let meant = |m: &str| {
        let path = std::path::absolute(m).unwrap_or_else(|_| m.into());
        m.parse() == Ok(place) || path == old || path == new
    };
    if !member.is_none_or(meant) {
        let what = format!("is member {place} of this volume: give another device");
        return Err(config_error(new, what));
    }
    let slots = own.members[place].slots;
    let done = Replaced {
        place,
        tier: m.tier,
        old,
        new: new.to_owned(),
        slots: (slots, slots),
        copied_bytes: 0,
        already: true,
        notes,
    };
    located.save(file)?;
    Ok(Some(done))
}

/// Opens the new device, and refuses one that is in use, belongs to the volume, or holds data.
fn open_new(
    config: &VolumeConfig,
    new: &Path,
    how: &ReplaceHow,
    undo: &mut Undo,
) -> Result<Device, Error> {
    let open = OpenHow {
        create: how.size,
        buffered: !config.io.direct,
        read_only: false,
        fresh: true,
    };
    let device = Device::open(new, open)?;
    if device.created {
        undo.add(new.to_owned());
    } else if !how.force {
        contents::refuse(&device)?;
    }
    if let Some(size) = how.size.filter(|&s| s > device.bytes) {
        let what = format!(
            "size: {size} asked for, but the device has {} bytes",
            device.bytes
        );
        return Err(config_error(new, what));
    }
    Ok(device)
}

/// Copies the slots `used` (ascending indices) durably. `starts` are the first bytes of the slots on both devices.
fn copy(
    from: &Device,
    to: &Device,
    used: &[u32],
    shift: u32,
    starts: (u64, u64),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, Error> {
    let extent = 1usize << shift;
    let most = (PIECE / extent).max(1);
    let mut piece = Buffer::new(0, (most * extent) as u32, ALIGNMENT as u32);
    let total = (used.len() as u64) << shift;
    let failed = |d: &Device, at: u64, what: &str, e: &std::io::Error| {
        let path = d.path.display();
        let what = format!(
            "{path}: cannot be {what} at byte {at}: {e}; nothing was replaced, and the volume is as it was before"
        );
        Error::new(ErrorKind::Device, what)
    };
    let mut done = 0;
    let mut rest = used;
    while let Some(&first) = rest.first() {
        let run = (0..most.min(rest.len()))
            .take_while(|&i| rest[i] == first + i as u32)
            .count();
        let buf = &mut piece[..run * extent];
        let at = |start: u64| start + (u64::from(first) << shift);
        from.file
            .read_exact_at(buf, at(starts.0))
            .map_err(|e| failed(from, at(starts.0), "read", &e))?;
        to.file
            .write_all_at(buf, at(starts.1))
            .map_err(|e| failed(to, at(starts.1), "written", &e))?;
        rest = &rest[run..];
        done += buf.len() as u64;
        progress(done, total);
    }
    to.file
        .sync_data()
        .map_err(|e| failed(to, 0, "flushed", &e))?;
    Ok(done)
}

/// Erases the superblocks of a device that was replaced, so that it is no longer found as a part of the volume. Returns a message if this
/// fails; the volume does not depend on it.
fn retire(device: &Device, sb: &Superblock, place: usize) -> Option<String> {
    let mut zeros = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
    let zeros = &mut zeros[..BLOCK];
    zeros.fill(0);
    let erase = || {
        for at in [0, sb.copy_offset(MemberId(place as u8))] {
            device.file.write_all_at(zeros, at)?;
        }
        device.file.sync_data()
    };
    erase().err().map(|e| {
        format!(
            "{}: its superblocks could not be erased ({e}); it is no part of the volume any more",
            device.path.display()
        )
    })
}

#[cfg(test)]
mod tests;
