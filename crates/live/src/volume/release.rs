//! Release of a cache volume: its disks become plain disks with what the volume showed.

use super::grow::{carry, end_session};
use super::{OpenMode, Volume, config_error, description, in_words};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::config::{MemberConfig, VolumeConfig, parse_uuid};
use crate::contents;
use crate::device::{Device, OpenHow};
use crate::error::{Error, ErrorKind};
use crate::loss::Listed;
use crate::media::FileMedia;
use crate::members::probe::{Second, probe};
use crate::tail::open_member;
use isotherm_core::MemberId;
use isotherm_core::geometry::MEMBERS_MAX;
use isotherm_core::store::mark;
use isotherm_core::store::superblock::SuperblockError;
use isotherm_core::store::{self, BLOCK, Media, MediaError, Superblock, release};
use std::io;
use std::path::{Path, PathBuf};

/// A disk that was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedDisk {
    /// Its path.
    pub path: PathBuf,
    /// The bytes of the volume that it holds, from its first byte on: start and end.
    pub bytes: (u64, u64),
}

/// What a release has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// The disks, in the order of the volume.
    pub disks: Vec<ReleasedDisk>,
    /// Bytes that were written home.
    pub written_home: u64,
    /// Whether an earlier release went on.
    pub went_on: bool,
    /// Messages for people.
    pub notes: Vec<String>,
}

impl Volume {
    /// Releases cache volume `p/v`, which is not served: writes dirty data home, takes the flash out, and gives the disks their first bytes
    /// back. The description is removed. If an earlier release was interrupted, it goes on.
    ///
    /// # Errors
    /// The volume is no cache volume, is in use or cannot be opened, or a device fails. The volume can be opened, or the release be repeated.
    pub fn release(volume: &Path) -> Result<Released, Error> {
        Volume::release_with(volume, false)
    }

    /// As [`Volume::release`]. With `accept_loss`, what was lost with flash is what the disks hold.
    ///
    /// # Errors
    /// As [`Volume::release`].
    pub fn release_with(volume: &Path, accept_loss: bool) -> Result<Released, Error> {
        let file = description(volume);
        let config = VolumeConfig::load(&file)?;
        let begun = releasing(&config, &file)?;
        let went_on = !begun.is_empty();
        let (mut notes, mut written_home) = (Vec::new(), 0);
        let found = if went_on {
            begun
        } else {
            let mode = if accept_loss {
                OpenMode::AcceptLoss
            } else {
                OpenMode::ReadWrite
            };
            let v = Volume::open(volume, mode)
                .or_else(|e| without_blank_flash(volume, &config, &file).map_err(|_| e))
                .map_err(|e| ended_before(e, &config, &file))?;
            let sb = v.opened.superblock.clone();
            if sb.disks().next().is_none() {
                end_session(&v.devices, &v.opened);
                let what = "it is a tiering volume, whose data lies on all its devices: only a cache volume can be released; copy the data out instead";
                return Err(config_error(&file, what));
            }
            if !v.opened.space.lost.is_empty() {
                end_session(&v.devices, &v.opened);
                let listed = Listed::of(&v.opened.space);
                let what = format!(
                    "{} bytes were lost with flash ({}), and a plain disk would show older data there: restore the files there from a backup, or accept the older data with --accept-loss",
                    listed.bytes,
                    listed.words()
                );
                return Err(Error::new(ErrorKind::Volume, what));
            }
            written_home = begin(&v)?;
            notes.clone_from(&v.notes);
            let all = v.devices.into_iter().enumerate();
            all.filter_map(|(i, d)| Some((sb_of(&sb, i)?, d?)))
                .collect()
        };
        let disks = found
            .into_iter()
            .map(|(sb, device)| give_back(&sb, device))
            .collect::<Result<Vec<_>, _>>()?;
        notes.extend(leave_no_flash(&config, &file));
        if let Err(e) = std::fs::remove_file(&file) {
            notes.push(format!(
                "the description {} cannot be removed: {e}: remove it",
                file.display()
            ));
        }
        Ok(Released {
            disks,
            written_home,
            went_on,
            notes,
        })
    }
}

/// The volume without its flash, if a release was interrupted when some flash was erased already, and the disks did not know of it yet.
fn without_blank_flash(volume: &Path, config: &VolumeConfig, file: &Path) -> Result<Volume, Error> {
    if !has_blank_flash(config, file) {
        return Err(config_error(file, "its flash is there"));
    }
    // If flash has what the disks have not, this is refused.
    Volume::open_without_flash(volume, OpenMode::ReadWrite)
}

/// Whether some flash can be read and carries no superblock.
fn has_blank_flash(config: &VolumeConfig, file: &Path) -> bool {
    let base = file.parent().unwrap_or(Path::new(""));
    let slowest = config.members.iter().map(|m| m.tier).max();
    let mut flash = config.members.iter().filter(|m| Some(m.tier) != slowest);
    flash.any(|m| {
        let own = probe(&base.join(&m.path), Second::At(&[]));
        matches!(own, Ok(Err(SuperblockError::Foreign)))
    })
}

/// Erases flash that still carries the volume's superblock: the release of an adoption that was interrupted has not opened it.
pub(super) fn leave_no_flash(config: &VolumeConfig, file: &Path) -> Vec<String> {
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    let base = file.parent().unwrap_or(Path::new(""));
    let slowest = config.members.iter().map(|m| m.tier).max();
    let flash = config.members.iter().filter(|m| Some(m.tier) != slowest);
    let erase = |path: PathBuf| {
        let own =
            probe(&path, Second::At(&[])).is_ok_and(|sb| sb.is_ok_and(|s| Some(s.uuid) == uuid));
        let how = OpenHow {
            create: None,
            buffered: false,
            read_only: false,
            fresh: false,
        };
        let erased = own.then(|| Device::open(&path, how).and_then(|d| contents::erase(&d)));
        let e = erased?.err()?;
        Some(format!(
            "{}: still carries the superblock of the volume: {e}",
            path.display()
        ))
    };
    flash.filter_map(|m| erase(base.join(&m.path))).collect()
}

/// The error of a volume that cannot be opened, with the reason if an earlier release was killed after its last write to a device.
fn ended_before(e: Error, config: &VolumeConfig, file: &Path) -> Error {
    let base = file.parent().unwrap_or(Path::new(""));
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    let is_member = |m: &MemberConfig| {
        match probe(&base.join(&m.path), Second::At(&[])) {
            Ok(Ok(sb)) => Some(sb.uuid) == uuid,
            // What cannot be read may be a member.
            Ok(Err(e)) => e != SuperblockError::Foreign,
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        }
    };
    if config.members.iter().any(is_member) {
        return e;
    }
    let with_tails = config.members.iter().filter(|m| m.tail.is_some());
    let tails: Vec<Device> = with_tails
        .filter_map(|m| open_member(&based(m, base), uuid, OpenHow::default()).ok())
        .collect();
    if !tails.iter().all(is_plain) {
        return e;
    }
    let erased = tails.iter().filter(|d| d.erase_label().is_ok());
    let erased: String = erased
        .filter_map(|d| {
            Some(format!(
                "; {} is no tail any more",
                d.tail()?.path.display()
            ))
        })
        .collect();
    let what = format!(
        "none of its devices carries its superblock: if a release was interrupted at its end, or an adoption at its beginning, the disks are plain disks; then remove {}{erased}",
        file.display()
    );
    Error::new(e.kind, format!("{e}; {what}"))
}

/// Whether a device has no superblock, neither a damaged nor an unreadable one.
fn is_plain(device: &Device) -> bool {
    let mut read = |at, to: &mut [u8]| {
        let mut block = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
        let done = device.read_past_cache(&mut block, at);
        to.copy_from_slice(&block);
        match done {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(SuperblockError::Foreign),
            Err(e) => Err(crate::media::because(&e)),
            Ok(()) => Ok(()),
        }
    };
    let first = store::superblock_at(&mut read, 0);
    let second = store::second_superblock(&mut read, &first, (&[], Some(device.bytes)), true);
    first == Err(SuperblockError::Foreign) && second == Err(SuperblockError::Foreign)
}

/// The superblock of the disk in place `i`; `None`: that is no disk.
fn sb_of(sb: &Superblock, i: usize) -> Option<Superblock> {
    let m = MemberId(i as u8);
    sb.is_disk(m).then(|| Superblock {
        index: m.0,
        ..sb.clone()
    })
}

/// The disks of a volume whose release was interrupted, each with its second superblock. (The first one may be gone, and other disks may be
/// plain ones already.) If the power failed before all of them stated it, the others do now: when none states it, a disk that is left can
/// neither be opened nor released.
fn releasing(config: &VolumeConfig, file: &Path) -> Result<Vec<(Superblock, Device)>, Error> {
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    let base = file.parent().unwrap_or(Path::new(""));
    let (mut all, mut others) = (Vec::<(Superblock, Device)>::new(), Vec::new());
    let slowest = config.members.iter().map(|m| m.tier).max();
    for m in config.members.iter().filter(|m| Some(m.tier) == slowest) {
        let how = OpenHow {
            create: None,
            buffered: false,
            read_only: false,
            fresh: false,
        };
        let m = based(m, base);
        let path = m.path.clone();
        let device = match open_member(&m, uuid, how) {
            Ok(device) => device,
            // If no release has begun, the opening of the volume reports this.
            Err(e) => {
                others.push((path, Err(e)));
                continue;
            }
        };
        let end = device.bytes / BLOCK as u64 * BLOCK as u64;
        let mut one = alone(0, device);
        let mut block = vec![0; BLOCK];
        let read =
            FileMedia::new(&one).read(MemberId(0), end.saturating_sub(BLOCK as u64), &mut block);
        let sb = read.ok().and_then(|()| Superblock::decode(&block).ok());
        let sb = sb.filter(|s| Some(s.uuid) == uuid && s.is_disk(MemberId(s.index)));
        let begun = sb.filter(|sb| {
            one.swap(0, usize::from(sb.index));
            let mark = mark::read(&mut FileMedia::new(&one), sb, MemberId(sb.index)).newest;
            mark.is_some_and(|k| k.cover.is_releasing())
        });
        for device in one.into_iter().flatten() {
            match &begun {
                Some(sb) => all.push((sb.clone(), device)),
                None => others.push((path.clone(), Ok(device))),
            }
        }
    }
    let Some(epoch) = all.first().map(|(sb, _)| sb.epoch) else {
        return Ok(all);
    };
    for (path, device) in others {
        match probe(&path, Second::At(&[])) {
            Ok(Ok(sb))
                if Some(sb.uuid) == uuid && sb.epoch == epoch && sb.is_disk(MemberId(sb.index)) =>
            {
                let mut one = alone(sb.index, device?);
                let begun = release::begin(&mut FileMedia::new(&one), &sb, MemberId(sb.index));
                begun.map_err(|e| not_complete(&path, e.into()))?;
                all.extend(one.drain(..).flatten().map(|d| (sb.clone(), d)));
            }
            // A plain disk already, which may be in use.
            Ok(_) => {}
            Err(e) => {
                let what = format!(
                    "{}: {e}: a release has begun, and this disk may not know of it: attach it and repeat the command; if it is released already, take it out of {}",
                    path.display(),
                    file.display()
                );
                return Err(Error::new(ErrorKind::Device, what));
            }
        }
    }
    all.sort_by_key(|(sb, _)| sb.index);
    Ok(all)
}

/// The error of a disk on which a release could not go on.
fn not_complete(path: &Path, e: store::OpenError) -> Error {
    match e {
        store::OpenError::Media(e) => {
            let what = format!(
                "{}: failed at byte {}: the release is not complete; when the device works again, repeat the command",
                path.display(),
                e.offset
            );
            Error::new(ErrorKind::Device, what)
        }
        e => Error::new(ErrorKind::Volume, format!("{}: {e}", path.display())),
    }
}

/// A device in its place among the members, without the others.
fn alone(place: u8, device: Device) -> Vec<Option<Device>> {
    let mut all: Vec<Option<Device>> = (0..MEMBERS_MAX).map(|_| None).collect();
    all[usize::from(place)] = Some(device);
    all
}

/// Writes dirty data home and takes the flash out. Returns the number of bytes that were written home.
fn begin(v: &Volume) -> Result<u64, Error> {
    let mut media = FileMedia::new(&v.devices);
    let ranges = release::dirty_home(&v.opened.space);
    let done =
        carry(&mut media, &ranges).and_then(|bytes| Ok((bytes, behind_data(&mut media, v)?)));
    let (bytes, behind) =
        done.map_err(|e| in_words(&v.config, &media, store::OpenError::Media(e)))?;
    if let Some(what) = behind {
        end_session(&v.devices, &v.opened);
        return Err(Error::new(ErrorKind::Volume, what));
    }
    let done = Ok(bytes).and_then(|bytes| {
        release::leave_flash(&mut media, &v.opened)?;
        Ok(bytes)
    });
    done.map_err(|e| in_words(&v.config, &media, store::OpenError::Media(e)))
}

/// Why a disk with a tail cannot be given back, if so: the last extent of the volume reaches past the end of the data device, and something was
/// written there, as by a file system that has grown.
fn behind_data(media: &mut FileMedia<'_>, v: &Volume) -> Result<Option<String>, MediaError> {
    let sb = &v.opened.superblock;
    for m in sb.disks() {
        let i = usize::from(m.0);
        let Some((device, from)) = v.devices[i].as_ref().and_then(|d| Some((d, d.boundary()?)))
        else {
            continue;
        };
        let to = u64::from(sb.members[i].slots) << sb.extent_shift;
        let mut bytes = vec![0; (to - from) as usize];
        media.read(m, from, &mut bytes)?;
        if bytes.iter().any(|&b| b != 0) {
            return Ok(Some(format!(
                "{}: the volume holds data from byte {from} on, behind the end of the data device: nothing was released; shrink the file system to {from} bytes and discard the rest (`blkdiscard --zeroout --offset {from}`)",
                device.names()
            )));
        }
    }
    Ok(None)
}

/// A member with absolute paths.
fn based(m: &MemberConfig, base: &Path) -> MemberConfig {
    MemberConfig {
        path: base.join(&m.path),
        tail: m.tail.as_ref().map(|t| base.join(t)),
        ..m.clone()
    }
}

/// Gives one disk back.
fn give_back(sb: &Superblock, device: Device) -> Result<ReleasedDisk, Error> {
    let path = device.path.clone();
    let m = MemberId(sb.index);
    let one = alone(sb.index, device);
    let done = release::uncover(&mut FileMedia::new(&one), sb, m);
    done.map_err(|e| not_complete(&path, e))?;
    // The disk is whole again, so the label is the last thing that is needed no more.
    let erased = one.iter().flatten().try_for_each(Device::erase_label);
    erased.map_err(|e| {
        let what = format!(
            "{}: the label of its tail cannot be erased: {e}: repeat the command",
            path.display()
        );
        Error::new(ErrorKind::Device, what)
    })?;
    let shift = sb.extent_shift;
    let before = sb.disks().filter(|d| d.0 < m.0);
    let from: u64 = before
        .map(|d| u64::from(sb.members[usize::from(d.0)].slots) << shift)
        .sum();
    let bytes = u64::from(sb.members[usize::from(m.0)].slots) << shift;
    Ok(ReleasedDisk {
        path,
        bytes: (from, from + bytes),
    })
}
