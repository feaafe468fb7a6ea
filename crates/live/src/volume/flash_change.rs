//! One more flash device for a cache volume that has flash, or one of several less. The volume is not being served, or its engine is closed
//! meanwhile (`reopen.rs`). The order of writes is in `core/src/store/members.rs`.
//!
//! The description names a new device before the table of members does, and one that leaves until the table does not: so all members are named at
//! any moment. What it names beyond them is left out at the next opening (`members/mod.rs`).

use super::claim::refuse_live_member;
use super::create::Undo;
use super::grow::end_session;
use super::memory::{self, Needs};
use super::replace::{open_new, retire};
use super::space::reserve_space;
use super::spare;
use super::{OpenMode, ReplaceHow, Volume, config_error, description, in_words};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::config::{MemberConfig, Size, VolumeConfig};
use crate::contents;
use crate::device::{Device, OpenHow};
use crate::error::Error;
use crate::media::FileMedia;
use crate::members::probe::{Second, probe};
use crate::members::{self, find_superblocks};
use crate::random::random;
use isotherm_core::MemberId;
use isotherm_core::store::{self, FlashChange, NewFlash, OpenError, Opened, Superblock};
use std::path::{Path, PathBuf};

/// Most bytes that are copied at a time.
const PIECE: usize = 4 << 20;

/// A device that is to become flash: it is open, and holds nothing or may be overwritten.
pub struct Newcomer {
    path: PathBuf,
    size: Option<u64>,
    force: bool,
    device: Option<Device>,
    /// Removes a file that was created for it, unless it becomes a member.
    undo: Undo,
}

/// The change that is wanted.
pub enum FlashAsk {
    /// A device joins.
    Join(Box<Newcomer>),
    /// The member in this place leaves.
    Leave(usize),
}

/// The change that was made.
#[derive(Debug)]
pub struct FlashChanged {
    /// The path of the device.
    pub path: PathBuf,
    /// The device that was taken out, still locked, if it was there.
    pub former: Option<Device>,
    /// Slots of all flash, before and now.
    pub slots: (u64, u64),
    /// Bytes that were written home first.
    pub written_home: u64,
    /// Messages for people.
    pub notes: Vec<String>,
}

/// A change that was not made, or whose volume could not be opened again.
#[derive(Debug)]
pub struct NotChanged {
    /// The error.
    pub error: Error,
    /// Whether the table of members has changed.
    pub made: bool,
}

impl From<Error> for NotChanged {
    fn from(error: Error) -> NotChanged {
        let made = false;
        NotChanged { error, made }
    }
}

impl Newcomer {
    /// Opens and locks the device at `new`, and refuses one that is in use or holds data. `size`: of a file that does not exist yet, or the part
    /// of the device to use. `force`: overwrite what it holds.
    ///
    /// # Errors
    /// The device cannot be used.
    pub fn open(
        config: &VolumeConfig,
        new: &Path,
        size: Option<u64>,
        force: bool,
    ) -> Result<Newcomer, Error> {
        let new = std::path::absolute(new).map_err(|e| config_error(new, e))?;
        let path = members::stable::stable_name(&new).unwrap_or(new);
        let how = ReplaceHow {
            size,
            force,
            ..ReplaceHow::default()
        };
        let mut undo = Undo::default();
        let device = Some(open_new(config, &path, &how, &mut undo)?);
        Ok(Newcomer {
            path,
            size,
            force,
            device,
            undo,
        })
    }

    /// The line of the description for it: behind the others of the fastest tier.
    fn line(&self, config: &VolumeConfig) -> (usize, MemberConfig) {
        let fastest = config.members.iter().map(|m| m.tier).min().unwrap_or(0);
        let place = (config.members.iter()).filter(|m| m.tier == fastest);
        let line = MemberConfig {
            path: self.path.clone(),
            tier: fastest,
            size: self.size.map(Size),
            ..MemberConfig::default()
        };
        (place.count(), line)
    }

    /// Makes the device ready, which is to have the place in `table` that `planned` states. Returns messages for people.
    fn make_ready(
        &mut self,
        planned: &FlashChange,
        (sb, devices): (&Superblock, &[Option<Device>]),
    ) -> Result<Vec<String>, Error> {
        let (table, place) = (planned.table(), usize::from(planned.place.0));
        let gone = || config_error(&self.path, "is a member already");
        let device = self.device.take().ok_or_else(gone)?;
        let mut notes = Vec::from_iter(device.note.clone());
        let (align, created) = (device.align, device.created);
        let mut new: Vec<Option<Device>> = table.members.iter().map(|_| None).collect();
        new[place] = Some(device);
        let room = reserve_space(&new, table, false);
        self.device = new[place].take();
        notes.extend(room?);
        if align > 1 << sb.block_shift {
            let what = format!(
                "has sectors of {align} bytes, and the volume's blocks have {}: give a device whose sectors are not larger",
                1 << sb.block_shift
            );
            return Err(config_error(&self.path, what));
        }
        if let Some(device) = self.device.as_ref().filter(|_| self.force && !created) {
            refuse_live_member(device, Some((sb, devices)))?;
            contents::erase(device)?;
        }
        Ok(notes)
    }
}

impl FlashAsk {
    /// Enters the change into the description: a device that joins before the change is made, one that leaves afterwards.
    pub fn describe(&self, config: &mut VolumeConfig) {
        match self {
            FlashAsk::Join(new) => {
                let (place, line) = new.line(config);
                config.members.insert(place, line);
            }
            FlashAsk::Leave(place) => {
                let gone = config.members.remove(*place);
                if let Some(first) = spare::place(config) {
                    let other = &mut config.members[first].spare;
                    *other = other.take().or(gone.spare);
                }
            }
        }
    }

    /// Plans the change of a volume with this superblock.
    ///
    /// # Errors
    /// It is impossible, or the larger map does not fit into memory.
    pub(crate) fn plan(
        &self,
        config: &VolumeConfig,
        devices: &[Option<Device>],
        sb: &Superblock,
    ) -> Result<FlashChange, Error> {
        let leaves = |i| matches!(self, FlashAsk::Leave(place) if *place == i);
        let gone = (0..devices.len()).find(|&i| devices[i].is_none() && !leaves(i));
        if let Some(i) = gone {
            let what = "is missing: attach it, or replace it first";
            return Err(config_error(&config.members[i].path, what));
        }
        let (path, planned) = match self {
            FlashAsk::Leave(place) => {
                let path = config.members.get(*place).map(|m| m.path.clone());
                let place = MemberId(*place as u8);
                (path.unwrap_or_default(), store::plan_leave(sb, place))
            }
            FlashAsk::Join(new) => {
                let device = new.device.as_ref().map_or(0, |d| d.bytes);
                let flash = NewFlash {
                    uuid: random()?,
                    bytes: new.size.map_or(device, |s| s.min(device)),
                    hint: new.path.display().to_string(),
                };
                (new.path.clone(), store::plan_join(sb, &flash))
            }
        };
        let planned = planned.map_err(|e| config_error(&path, e))?;
        let geo = planned.table().geometry();
        let needs = Needs::of(&geo.map_err(|e| config_error(&path, e))?, 0);
        needs.check_fits(memory::available(), "the machine", &path)?;
        Ok(planned)
    }

    /// Makes the change in the volume whose store is `opened`, and which no engine has used since. The store is closed then. `config` and
    /// `devices` are always those of the volume afterwards.
    ///
    /// # Errors
    /// It is impossible, or a device fails. The volume is as it was before.
    pub(crate) fn carry_out(
        &mut self,
        config: &mut VolumeConfig,
        devices: &mut Vec<Option<Device>>,
        mut opened: Opened,
    ) -> Result<FlashChanged, Error> {
        let sb = opened.superblock.clone();
        let ready = self.plan(config, devices, &sb).and_then(|planned| {
            let notes = match self {
                FlashAsk::Join(new) => new.make_ready(&planned, (&sb, devices))?,
                FlashAsk::Leave(_) => Vec::new(),
            };
            Ok((planned, notes))
        });
        let (planned, mut notes) = match ready {
            Ok(ready) => ready,
            Err(e) => {
                end_session(devices, &opened);
                return Err(e);
            }
        };
        let mut piece = Buffer::new(0, PIECE as u32, ALIGNMENT as u32);
        let mut media = FileMedia::new(devices);
        let prepared = planned.prepare(&mut media, &mut opened, &mut piece[..PIECE]);
        let prepared = prepared.map_err(|e| in_words(config, &media, e));
        let (settled, written_home) = prepared.inspect_err(|_| end_session(devices, &opened))?;
        let place = usize::from(planned.place.0);
        let mut later = config.clone();
        self.describe(&mut later);
        let former = match self {
            FlashAsk::Join(new) => {
                devices.insert(place, new.device.take());
                None
            }
            FlashAsk::Leave(_) => devices.remove(place),
        };
        let epoch = u64::from_le_bytes(random()?);
        let mut media = FileMedia::new(devices);
        let made = planned.carry_out(&mut media, &opened, &settled, epoch);
        if let Err(e) = made.map_err(|e: OpenError| in_words(&later, &media, e)) {
            if !is_made(&later, devices, &sb, planned.joins.then_some(place)) {
                self.undo(devices, former, &planned);
                return Err(e);
            }
            notes.push(format!("{e}; the flash of the volume has changed"));
        }
        let path = match self {
            FlashAsk::Join(new) => {
                new.undo.keep();
                new.path.clone()
            }
            FlashAsk::Leave(place) => config.members[*place].path.clone(),
        };
        *config = later;
        Ok(FlashChanged {
            path,
            former,
            slots: (flash_slots(&sb), flash_slots(planned.table())),
            written_home,
            notes,
        })
    }

    /// The devices are those of before.
    fn undo(
        &mut self,
        devices: &mut Vec<Option<Device>>,
        former: Option<Device>,
        planned: &FlashChange,
    ) {
        let place = usize::from(planned.place.0);
        match self {
            FlashAsk::Leave(_) => devices.insert(place, former),
            FlashAsk::Join(new) => {
                new.device = devices.remove(place);
                if let Some(device) = &new.device {
                    // The volume does not depend on it.
                    let _ = retire(device, planned.table(), place);
                }
            }
        }
    }
}

fn flash_slots(sb: &Superblock) -> u64 {
    let all = (0u8..).zip(&sb.members);
    let flash = all.filter(|(i, _)| sb.is_flash(MemberId(*i)));
    flash.map(|(_, m)| u64::from(m.slots)).sum()
}

/// The description of volume `p/v`, and the newest superblock of its members.
pub(super) fn newest_of(volume: &Path) -> Result<(VolumeConfig, Superblock), Error> {
    let file = description(volume);
    let mut config = VolumeConfig::load(&file)?;
    members::find(&mut config, &file)?;
    let of = |m: &MemberConfig| probe(&m.path, Second::At(&[])).ok()?.ok();
    let all: Vec<Superblock> = config.members.iter().filter_map(of).collect();
    let newest = store::newest_superblock(all.iter()).cloned();
    let none = || config_error(&file, "no member of it can be read");
    Ok((config, newest.ok_or_else(none)?))
}

/// After a change that failed: whether it was made all the same. It was as soon as a member other than the one that joins has the new table.
fn is_made(
    config: &VolumeConfig,
    devices: &[Option<Device>],
    old: &Superblock,
    new: Option<usize>,
) -> bool {
    let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    let mut media = FileMedia::new(devices);
    let found = find_superblocks(&mut media, &paths, true, &mut Vec::new());
    let is_new = |(i, sb): (usize, &Option<Superblock>)| {
        Some(i) != new && (sb.as_ref()).is_some_and(|sb| sb.table_version > old.table_version)
    };
    found.is_ok_and(|all| all.iter().enumerate().any(is_new))
}

impl FlashChanged {
    /// Erases what tells that the device that was taken out belonged to a volume, and lets it go. Adds a message if that fails: it is no part
    /// of the volume all the same.
    pub fn erase(&mut self) {
        let former = self.former.take();
        self.notes
            .extend(former.and_then(|d| Some(contents::erase(&d).err()?.to_string())));
    }
}

impl Volume {
    /// Gives cache volume `p/v`, which is not served, one more flash device.
    ///
    /// # Errors
    /// The volume cannot be opened, the change is impossible, or a device fails. It can be opened as before, or with the device.
    pub fn add_flash(
        volume: &Path,
        new: &Path,
        size: Option<u64>,
        force: bool,
    ) -> Result<FlashChanged, Error> {
        let config = VolumeConfig::load(&description(volume))?;
        let new = Newcomer::open(&config, new, size, force)?;
        Volume::change_flash(volume, FlashAsk::Join(Box::new(new)))
    }

    /// Takes the flash device in this place, one of several, out of cache volume `p/v`, which is not served, and erases it.
    ///
    /// # Errors
    /// As [`Volume::add_flash`].
    pub fn remove_one_flash(volume: &Path, place: usize) -> Result<FlashChanged, Error> {
        let mut changed = Volume::change_flash(volume, FlashAsk::Leave(place))?;
        changed.erase();
        Ok(changed)
    }

    /// Slots of all flash of volume `p/v`, which may be served.
    ///
    /// # Errors
    /// The description cannot be read, or no member can.
    pub fn slots_of_flash(volume: &Path) -> Result<u64, Error> {
        Ok(flash_slots(&newest_of(volume)?.1))
    }

    /// Erases a device that was taken out of volume `p/v` by a command that was killed before it could do this. Returns false if `device` is no
    /// such device.
    ///
    /// # Errors
    /// The description cannot be read, or the device fails or is in use.
    pub fn erase_former(volume: &Path, device: &Path) -> Result<bool, Error> {
        let (config, newest) = newest_of(volume)?;
        let own = probe(device, Second::At(&[])).ok().and_then(Result::ok);
        if own.is_none_or(|own| own.uuid != newest.uuid || !own.is_replaced(&newest)) {
            return Ok(false);
        }
        let how = OpenHow {
            buffered: !config.io.direct,
            fresh: true,
            ..OpenHow::default()
        };
        contents::erase(&Device::open(device, how)?)?;
        Ok(true)
    }

    fn change_flash(volume: &Path, mut ask: FlashAsk) -> Result<FlashChanged, Error> {
        let mut v = Volume::open(volume, OpenMode::ReadWrite)?;
        let (file, before) = (description(volume), v.config.clone());
        let joins = matches!(ask, FlashAsk::Join(_));
        let begun = ask
            .plan(&v.config, &v.devices, &v.opened.superblock)
            .map(drop);
        let begun = begun.and_then(|()| {
            let mut later = before.clone();
            ask.describe(&mut later);
            if joins { later.save(&file) } else { Ok(()) }
        });
        if let Err(e) = begun {
            end_session(&v.devices, &v.opened);
            return Err(e);
        }
        let changed = ask.carry_out(&mut v.config, &mut v.devices, v.opened);
        let kept = v.config.save(&file);
        let mut changed = changed?;
        if let Err(e) = kept {
            changed.notes.push(format!(
                "{}: still names {}, and will be corrected when the volume is opened: {e}",
                file.display(),
                changed.path.display()
            ));
        }
        changed.notes.splice(0..0, v.notes);
        Ok(changed)
    }
}
