//! Replacement of a member by another device. The volume is not being served, or its engine is closed meanwhile (`reopen.rs`).
//!
//! A member that is missing is replaced by an empty device; this is possible if it was a cache whose loss the volume survives. A member that
//! is present is copied first, so it can be a disk that begins to fail; while the volume is served, beside the requests (`copying/`). The
//! order of writes is in `core/src/store/replace.rs`.

mod ready;

use super::create::Undo;
use super::grow::end_session;
use super::successor::{Replacing, unused};
use super::without::Without;
use super::{OpenMode, Volume, config_error, description, in_words};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::config::{Size, VolumeConfig, parse_uuid};
use crate::contents;
use crate::copying::Copied;
use crate::copying::transfer::AS_BEFORE;
use crate::device::{Device, OpenHow, refuse_twins};
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::members::{self, find_superblocks, probe};
use crate::random::random;
use isotherm_core::MemberId;
use isotherm_core::store::{self, BLOCK, Opened, Successor, Superblock};
use isotherm_core::volume::Space;
use isotherm_words::printable::printable;
use ready::copy;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
    /// The size of the new device in bytes, if the user has given it.
    pub size: Option<u64>,
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
        let mut replacement = Replacement::over(&config, &file, new.clone(), how, false)?;
        let mode = if how.accept_loss {
            OpenMode::AcceptLoss
        } else {
            OpenMode::ReadWrite
        };
        let base = file.parent().unwrap_or(Path::new("")).to_owned();
        let mut v = Volume::open_without(config, &file, &base, mode, Without::Device(&new))?;
        let mut made = replacement.carry_out(&v.config, &mut v.devices, v.opened, progress)?;
        made.notes.splice(0..0, v.notes);
        made.describe(&mut v.config);
        v.config.save(&file).map_err(|e| made.not_described(&e))?;
        Ok(made)
    }
}

impl Replaced {
    /// Enters the new device into the description.
    pub fn describe(&self, config: &mut VolumeConfig) {
        if let Some(m) = config.members.get_mut(self.place) {
            (m.path, m.size, m.removed) = (self.new.clone(), self.size.map(Size), false);
            m.spare.take_if(|spare| *spare == self.new);
        }
    }

    /// The error of a description that could not be saved.
    pub fn not_described(&self, e: &dyn std::fmt::Display) -> Error {
        let what = format!(
            "the member was replaced, but the description still names {}: {e}; correct it (the members are found as long as they are devices or lie near)",
            self.old.display()
        );
        Error::new(ErrorKind::Config, what)
    }
}

/// A replacement that was prepared: the new device is open, and holds nothing or may be overwritten.
pub(crate) struct Replacement {
    /// The description, for errors.
    pub file: PathBuf,
    /// The path of the new device.
    pub new: PathBuf,
    pub how: ReplaceHow,
    /// The new device, until it is a member.
    pub device: Option<Device>,
    /// Removes a file that was created for it, unless it becomes a member.
    undo: Undo,
    /// Whether this process serves the volume.
    pub is_served: bool,
    /// The copy of the member, if it was begun while the volume is served.
    pub copied: Option<Copied>,
    /// What was on the new device, for people.
    found: Option<String>,
}

impl Replacement {
    /// Opens and locks the new device of a served volume, and refuses one that is in use or holds data.
    pub(crate) fn prepared(
        config: &VolumeConfig,
        file: &Path,
        new: &Path,
        how: &ReplaceHow,
    ) -> Result<Replacement, Error> {
        let new = std::path::absolute(new).map_err(|e| config_error(new, e))?;
        let new = members::stable::stable_name(&new).unwrap_or(new);
        Replacement::over(config, file, new, how, true)
    }

    fn over(
        config: &VolumeConfig,
        file: &Path,
        new: PathBuf,
        how: &ReplaceHow,
        is_served: bool,
    ) -> Result<Replacement, Error> {
        let mut undo = Undo::default();
        let device = open_new(config, &new, how, &mut undo)?;
        let found = contents::unfinished(&device).map(|copy| {
            format!(
                "{}: an unfinished copy of member {} of `{}` was there: the copy begins anew",
                new.display(),
                copy.place.0,
                printable(&copy.name)
            )
        });
        Ok(Replacement {
            file: file.to_owned(),
            new,
            how: how.clone(),
            device: Some(device),
            undo,
            is_served,
            copied: None,
            found,
        })
    }

    /// Whether the member has been copied, so that only the end is left.
    pub(crate) fn is_copied(&self) -> bool {
        self.copied.is_some()
    }

    /// Whether the copy has more left than requests should wait for.
    pub(crate) fn has_too_much_left(&self) -> bool {
        self.copied.as_ref().is_some_and(Copied::has_too_much_left)
    }

    /// The copy that is in progress, and the new device.
    pub(crate) fn copying(&mut self) -> Option<(&mut Copied, &Device)> {
        self.copied.as_mut().zip(self.device.as_ref())
    }

    fn no_device(&self) -> Error {
        config_error(&self.new, "is a member already")
    }

    /// Checks whether this replacement is possible in a volume with these superblocks and this map.
    pub(crate) fn plan(
        &self,
        config: &VolumeConfig,
        devices: &[Option<Device>],
        volume: (&Superblock, &Space),
    ) -> Result<(usize, Successor), Error> {
        let device = self.device.as_ref().ok_or_else(|| self.no_device())?;
        let replacing = Replacing {
            config,
            devices,
            file: &self.file,
            is_served: self.is_served,
        };
        replacing.plan(volume, device, &self.how)
    }

    /// Replaces the member of the volume whose store is `opened`, and which no engine has used since. The store is closed then. `devices`
    /// are always those that belong to the volume afterwards.
    ///
    /// # Errors
    /// As for [`Volume::replace`]. The volume is as it was before.
    pub(crate) fn carry_out(
        &mut self,
        config: &VolumeConfig,
        devices: &mut [Option<Device>],
        mut opened: Opened,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Replaced, Error> {
        let prepared = self.prepare(config, devices, &opened);
        let (place, successor, mut notes, device) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => {
                end_session(devices, &opened);
                return Err(e);
            }
        };
        let given = self.how.size.map_or(device.bytes, |s| s.min(device.bytes));
        let new = (device, &successor, self.copied.take());
        let e = exchange(config, devices, &mut opened, new, progress)?;
        self.undo.keep();
        let sb = &opened.superblock;
        let former = e.former.and_then(|d| retire(&d, sb, place));
        notes.extend(e.trouble.into_iter().chain(former));
        notes.extend(unused(sb, &successor, given));
        let m = &config.members[place];
        notes.extend(m.paced.as_ref().or(m.sheet.as_ref()).map(|sheet| {
            format!(
                "the description says `{sheet}` of this member, as of the former one: correct it if the new device is another model"
            )
        }));
        Ok(Replaced {
            place,
            tier: m.tier,
            old: m.path.clone(),
            new: self.new.clone(),
            slots: (sb.members[place].slots, successor.room.slots),
            size: self.how.size,
            copied_bytes: e.copied,
            already: false,
            notes,
        })
    }

    /// The place of the member and its successor, messages, and the device with space for metadata and without old contents.
    fn prepare(
        &mut self,
        config: &VolumeConfig,
        devices: &[Option<Device>],
        opened: &Opened,
    ) -> Result<(usize, Successor, Vec<String>, Device), Error> {
        let volume = (&opened.superblock, &opened.space);
        let (place, successor) = self.plan(config, devices, volume)?;
        let mut notes = Vec::from_iter(self.found.take());
        match &mut self.copied {
            Some(copied) => {
                let (before, now) = (&copied.successor, &successor);
                if (before.place, &before.room) != (now.place, &now.room) {
                    let what = "the shape of the volume or the size of the new device has changed since the copy began";
                    return Err(config_error(&self.new, format!("{what}; {AS_BEFORE}")));
                }
                notes.append(&mut copied.notes);
            }
            None => notes.extend(self.make_ready(&opened.superblock, devices, &successor)?),
        }
        let device = self.device.take().ok_or_else(|| self.no_device())?;
        Ok((place, successor, notes, device))
    }
}

/// What [`exchange`] has done.
struct Outcome {
    /// Bytes that were copied.
    copied: u64,
    former: Option<Device>,
    /// A failure after which the new device is the member all the same.
    trouble: Option<String>,
}

/// Closes the session that has begun with `opened`, copies the member if its successor holds data, and makes `new` the member.
fn exchange(
    config: &VolumeConfig,
    devices: &mut [Option<Device>],
    opened: &mut Opened,
    (new, successor, begun): (Device, &Successor, Option<Copied>),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, Error> {
    let place = usize::from(successor.place.0);
    let mut media = FileMedia::new(devices);
    let settled = store::settle(&mut media, opened).map_err(|e| in_words(config, &media, e))?;
    let mut copied = 0;
    if let (true, Some(from)) = (successor.holds_data, &devices[place]) {
        let member = (from, &new, successor);
        copied = copy(devices, opened, member, begun, progress)?;
    }
    let epoch = u64::from_le_bytes(random()?);
    // Errors name the new device.
    let mut named = config.clone();
    named.members[place].path.clone_from(&new.path);
    let former = devices[place].replace(new);
    let mut media = FileMedia::new(devices);
    let made = store::replace(&mut media, opened, &settled, successor, epoch)
        .map_err(|e| in_words(&named, &media, e));
    let trouble = match made {
        Ok(_) => None,
        Err(e) if is_adopted(config, devices, opened, place) => {
            Some(format!("{e}; the new device is the member now"))
        }
        Err(e) => {
            devices[place] = former;
            return Err(e);
        }
    };
    Ok(Outcome {
        copied,
        former,
        trouble,
    })
}

/// After a replacement that failed: whether the successor belongs to the volume. It does as soon as another member has the new table
/// (`core/src/store/table.rs`).
fn is_adopted(
    config: &VolumeConfig,
    devices: &[Option<Device>],
    opened: &Opened,
    place: usize,
) -> bool {
    let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    let mut media = FileMedia::new(devices);
    let found = find_superblocks(&mut media, &paths, true, &mut Vec::new());
    let old = opened.superblock.table_version;
    let is_new = |(i, sb): (usize, &Option<Superblock>)| {
        i != place && sb.as_ref().is_some_and(|sb| sb.table_version > old)
    };
    found.is_ok_and(|all| all.iter().enumerate().any(is_new))
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
        size: None,
        copied_bytes: 0,
        already: true,
        notes,
    };
    located.members[place].removed = false;
    located.save(file)?;
    Ok(Some(done))
}

/// Opens the new device, and refuses one that is in use, belongs to the volume, or holds data.
pub(super) fn open_new(
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

/// Erases the superblocks of a device that was replaced, so that it is no longer found as a part of the volume. Returns a message if this
/// fails; the volume does not depend on it.
pub(super) fn retire(device: &Device, sb: &Superblock, place: usize) -> Option<String> {
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
