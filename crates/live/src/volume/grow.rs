//! Growth of a volume after devices of its slowest tier have become larger, and of a cache after its flash has. The volume is not being served,
//! or its engine is closed meanwhile (`reopen.rs`).

use super::{OpenMode, Volume, begin, config_error, description, in_words};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::config::VolumeConfig;
use crate::device::Device;
use crate::error::Error;
use crate::media::FileMedia;
use crate::random::random;
use crate::volume::memory::{self, Needs};
use isotherm_core::MemberId;
use isotherm_core::geometry::Kind;
use isotherm_core::store::superblock::MemberEntry;
use isotherm_core::store::{self, Growth, MediaError, OpenError, Opened, Superblock, Transfer};
use std::path::Path;

/// Largest number of bytes that are written home at once.
const PIECE: usize = 1 << 20;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grows {
    /// The volume, with the devices of its slowest tier.
    Volume,
    /// The flash of a cache volume.
    Flash,
}

/// The growth of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Size of the volume before, in bytes.
    pub before: u64,
    /// Size of the volume now, in bytes.
    pub volume_bytes: u64,
    /// Slots of each member, before and now.
    pub slots: Vec<(u32, u32)>,
    /// Bytes that the volume uses of each member now.
    pub used_bytes: Vec<u64>,
    /// Bytes that were copied because their place on a faster tier became metadata.
    pub moved_bytes: u64,
    /// Messages for people.
    pub notes: Vec<String>,
}

impl Grown {
    /// A volume whose devices have no other size.
    pub(crate) fn unchanged(sb: &Superblock) -> Grown {
        let volume_bytes = u64::from(sb.extents) << sb.extent_shift;
        Grown {
            before: volume_bytes,
            volume_bytes,
            slots: sb.members.iter().map(|m| (m.slots, m.slots)).collect(),
            used_bytes: sb.members.iter().map(|m| m.bytes).collect(),
            moved_bytes: 0,
            notes: Vec::new(),
        }
    }
    /// Drops the sizes of members that are no longer true from the description, which states those that `create` was given.
    pub fn describe(&self, config: &mut VolumeConfig) {
        for (m, used) in config.members.iter_mut().zip(&self.used_bytes) {
            m.size = m.size.filter(|size| size.0 >= *used);
        }
    }
}

impl Volume {
    /// Lets volume `p/v` grow to the present size of the devices of its slowest tier.
    ///
    /// # Errors
    /// A member is missing, no device has become large enough, the volume is in use or cannot be opened, or a device fails. The volume can
    /// then be opened with its old size or with the new one.
    pub fn grow(volume: &Path) -> Result<Grown, Error> {
        Volume::grow_what(volume, Grows::Volume)
    }

    /// Lets cache volume `p/v` use the present size of its flash devices. What they hold stays.
    ///
    /// # Errors
    /// As for [`Volume::grow`]; also, this is no cache volume.
    pub fn grow_flash(volume: &Path) -> Result<Grown, Error> {
        Volume::grow_what(volume, Grows::Flash)
    }

    fn grow_what(volume: &Path, what: Grows) -> Result<Grown, Error> {
        let file = description(volume);
        let v = Volume::open(volume, OpenMode::ReadWrite)?;
        let growing = Growing {
            what,
            config: &v.config,
            devices: &v.devices,
            file: &file,
            is_served: false,
        };
        let mut grown = growing.grow(v.opened)?;
        grown.notes.splice(0..0, v.notes);
        let mut config = v.config.clone();
        grown.describe(&mut config);
        config.save(&file).map_err(|e| {
            let what =
                format!("the volume has grown, but its description still has the old sizes: {e}");
            config_error(&file, what)
        })?;
        Ok(grown)
    }
}

/// Ends the session that has begun with `opened`, so that nothing has changed.
pub(super) fn end_session(devices: &[Option<Device>], opened: &Opened) {
    // If this fails, the next opening recovers the volume.
    let _ = store::settle(&mut FileMedia::new(devices), opened);
}

/// A volume that is to grow.
#[derive(Clone, Copy)]
pub(crate) struct Growing<'a> {
    pub what: Grows,
    pub config: &'a VolumeConfig,
    /// All members, with their present sizes.
    pub devices: &'a [Option<Device>],
    /// The description, for errors.
    pub file: &'a Path,
    /// Whether this process serves the volume, so that the map of the old size is in memory already.
    pub is_served: bool,
}

impl Growing<'_> {
    /// Lets the volume grow whose store is `opened`, and which no engine has used since. The store is closed then.
    ///
    /// # Errors
    /// As [`Volume::grow`].
    pub(crate) fn grow(&self, mut opened: Opened) -> Result<Grown, Error> {
        let old = opened.superblock.clone();
        if !self.planned(&opened)?.changes(&old) {
            end_session(self.devices, &opened);
            return Ok(Grown::unchanged(&old));
        }
        let mut moved_bytes = 0;
        let sb = loop {
            let growth = self.planned(&opened)?;
            let step = if growth.needs_step(&opened.superblock, &opened.space) {
                Some(self.step(&opened, &growth)?)
            } else {
                None
            };
            let next = step.as_ref().unwrap_or(&growth);
            moved_bytes += self.transfer(&opened, next)?;
            let sb = self.apply(&mut opened, next)?;
            // After a crash between two steps, the rest of an earlier growth came first.
            let next = self.plan(&sb, &self.sizes());
            let more = sb.kind == Kind::Cache && next.is_ok_and(|g| g.changes(&sb));
            if step.is_none() && !more {
                break sb;
            }
            opened = begin::open_again(self.config, self.devices)?;
        };
        let pairs = old.members.iter().zip(&sb.members);
        Ok(Grown {
            before: u64::from(old.extents) << old.extent_shift,
            volume_bytes: u64::from(sb.extents) << sb.extent_shift,
            slots: pairs.map(|(a, b)| (a.slots, b.slots)).collect(),
            used_bytes: sb.members.iter().map(|m| m.bytes).collect(),
            moved_bytes,
            notes: Vec::new(),
        })
    }

    /// The step that comes first: a tiering volume whose slow tier is full gets its new slots, or the tail of a cache volume's disk moves. If
    /// there is none, the session of `opened` ends, and the volume is as it was before.
    fn step(&self, opened: &Opened, growth: &Growth) -> Result<Growth, Error> {
        growth.first_step(&opened.superblock).ok_or_else(|| {
            let what = format!(
                "{} extents of the fast tier have to make room for the metadata of the larger volume, and the slow tier has no free place for them: discard data (`fstrim`) first",
                growth.lacking(&opened.space)
            );
            end_session(self.devices, opened);
            config_error(self.file, what)
        })
    }

    /// The size of each member; 0: it is missing.
    fn sizes(&self) -> Vec<u64> {
        let bytes = |d: &Option<Device>| d.as_ref().map_or(0, |d| d.bytes);
        self.devices.iter().map(bytes).collect()
    }

    /// Plans the growth. If that is refused, the session of `opened` ends, and the volume is as it was before.
    fn planned(&self, opened: &Opened) -> Result<Growth, Error> {
        self.plan(&opened.superblock, &self.sizes())
            .inspect_err(|_| end_session(self.devices, opened))
    }

    /// Plans the growth to devices of these sizes.
    ///
    /// # Errors
    /// A member is missing, no device has become large enough, or the larger map does not fit into memory.
    pub(crate) fn plan(&self, sb: &Superblock, sizes: &[u64]) -> Result<Growth, Error> {
        let is_alone = self.what == Grows::Volume && is_disks_alone(sb, self.devices);
        let missing = self.devices.iter().position(Option::is_none);
        if let Some(at) = missing.filter(|_| !is_alone) {
            let member = &self.config.members[at];
            let path = member.path.display();
            let what = if member.removed {
                let v = self.file.with_extension("");
                format!(
                    "it has no flash: `isotherm cache {} add DEVICE`",
                    v.display()
                )
            } else {
                format!("{path} is missing: attach it, or replace it first")
            };
            return Err(config_error(self.file, what));
        }
        let tail = self.devices.iter().flatten().find(|d| d.tail().is_some());
        if let Some(d) = tail.filter(|_| self.what == Grows::Volume) {
            let what = format!(
                "{}: a disk with a tail cannot grow: release the volume, let the device grow, and adopt it again",
                d.names()
            );
            return Err(config_error(self.file, what));
        }
        let planned = match self.what {
            Grows::Volume => store::plan_growth(sb, sizes),
            Grows::Flash => store::plan_flash_growth(sb, sizes),
        };
        let growth = planned.map_err(|e| config_error(self.file, e))?;
        let larger = Superblock {
            extents: growth.extents,
            members: sb
                .members
                .iter()
                .zip(&growth.slots)
                .map(|(m, &slots)| MemberEntry { slots, ..m.clone() })
                .collect(),
            ..sb.clone()
        };
        let geo = larger.geometry().map_err(|e| config_error(self.file, e))?;
        if self.is_served {
            // The old map stays until the new one takes over, and the buffers are there.
            Needs::of(&geo, 0).check_fits(memory::available(), "the machine", self.file)?;
        } else {
            let needs = Needs::of(&geo, self.config.io.buffers.0);
            needs.check_fits(memory::installed(), "this machine", self.file)?;
        }
        Ok(growth)
    }

    /// Writes the new shape. The volume is closed then.
    fn apply(&self, opened: &mut Opened, growth: &Growth) -> Result<Superblock, Error> {
        let epoch = u64::from_le_bytes(random()?);
        let mut media = FileMedia::new(self.devices);
        let grown = store::grow(&mut media, opened, growth, epoch);
        grown.map_err(|e| in_words(self.config, &media, e))
    }

    /// Copies what must leave its place, durably. Returns the number of bytes.
    fn transfer(&self, opened: &Opened, growth: &Growth) -> Result<u64, Error> {
        let mut media = FileMedia::new(self.devices);
        let done = carry(&mut media, &growth.transfers(&opened.space));
        done.map_err(|e| in_words(self.config, &media, OpenError::Media(e)))
    }
}

/// Whether a cache volume goes on without any flash. Its disks grow all the same: nothing of that concerns flash.
fn is_disks_alone(sb: &Superblock, devices: &[Option<Device>]) -> bool {
    let fits = |(i, d): (u8, &Option<Device>)| d.is_some() == sb.is_disk(MemberId(i));
    sb.kind == Kind::Cache && (0u8..).zip(devices).all(fits)
}

/// Copies ranges in their order, durably. Returns the number of bytes.
pub(super) fn carry(media: &mut FileMedia<'_>, ranges: &[Transfer]) -> Result<u64, MediaError> {
    let mut piece = Buffer::new(0, PIECE as u32, ALIGNMENT as u32);
    store::release::carry(media, ranges, &mut piece[..PIECE])
}
