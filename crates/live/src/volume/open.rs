//! Opening a volume: finds the members, checks that they belong together, recovers the store.

use super::begin::{begin, missing_members_note};
use super::claim::take_over;
use super::memory::{self, Needs};
use super::sheets::{costs, pacers};
use super::without::{Without, all_removed, described, keep_corrected, may_leave_out};
use super::{OpenMode, Volume, config_error, description};
use crate::config::{VolumeConfig, format_uuid, parse_uuid};
use crate::device::{Device, OpenHow, bytes_of, refuse_twins};
use crate::error::{Error, ErrorKind};
use crate::loss::Listed;
use crate::media::FileMedia;
use crate::members::{self, Found, find_superblocks};
use crate::stamp;
use crate::tail::open_member;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::Uses;
use isotherm_core::store::{self, Opened, Superblock};
use isotherm_core::{MemberId, TierId, engine};
use rustix::io::Errno;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

impl Volume {
    /// Opens volume `p/v` by its description.
    ///
    /// # Errors
    /// A wrong description, a missing or foreign member, damage that cannot be recovered from.
    pub fn open(volume: &Path, mode: OpenMode) -> Result<Volume, Error> {
        let file = description(volume);
        let config = VolumeConfig::load(&file)?;
        let base = file.parent().unwrap_or(Path::new("")).to_owned();
        Volume::open_config(config, &file, &base, mode)
    }

    /// Opens a volume by a description that was read (or made) elsewhere; `file` is named in errors, and relative paths start from `base`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_config(
        config: VolumeConfig,
        file: &Path,
        base: &Path,
        mode: OpenMode,
    ) -> Result<Volume, Error> {
        Volume::open_without(config, file, base, mode, Without::Nothing)
    }

    /// As [`Volume::open_config`], without some members.
    pub(super) fn open_without(
        mut config: VolumeConfig,
        file: &Path,
        base: &Path,
        mode: OpenMode,
        without: Without<'_>,
    ) -> Result<Volume, Error> {
        config.check().map_err(|e| config_error(file, e))?;
        let policy = config.build_policy().map_err(|e| config_error(file, e))?;
        let told = described(&config);
        let mut notes = members::find_near(&mut config, base)?;
        if mode != OpenMode::ReadOnly {
            keep_corrected(&config, told, file, &mut notes);
        }
        let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
        refuse_twins(&config.all_paths())?;
        let read_only = mode == OpenMode::ReadOnly;
        let (devices, absent) = open_members(&config, read_only, without, &mut notes)?;
        // A replacement may be of a device that is there and has lost its contents.
        let tolerant = absent.is_some() || read_only || without != Without::Nothing;
        let media = &mut FileMedia::new(&devices);
        let found = find_superblocks(media, &paths, tolerant, &mut notes)?;
        all_of_this_volume(&config, &paths, &found, file)?;
        let (mut devices, mut found) = in_member_order(&mut config, devices, found)?;
        follow_description(&mut found, &config);
        let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
        members::check_tails(&devices, &found)?;
        no_old_cache(&found, policy.uses(), file)?;
        may_leave_out(without, &config, &found, file)?;
        check_shape(&config, &devices, &found, file)?;
        use_page_cache_for_large_sectors(&mut devices, &found, &mut notes)?;
        if let Some(geo) = found.iter().flatten().find_map(|sb| sb.geometry().ok()) {
            let needs = Needs::of(&geo, config.io.buffers.0);
            needs.check_fits(memory::available(), "the machine", file)?;
        }
        leave_out_blank(&mut devices, &found);
        if !read_only {
            leave_out_stale(&mut devices, &mut found, &paths, &mut notes);
        }
        let (stamp, kept) = take_over(mode, &devices, &found, &paths, &mut notes)?;
        let mut media = FileMedia::new(&devices);
        let (opened, lost) = begin(&mut media, &found, mode, policy.uses())
            .map_err(|e| e.in_words(&media, &paths, file, absent))?;
        kept.is_on_the_devices();
        if let Some((stamp, member)) = &stamp
            && let Some(device) = &devices[*member]
        {
            stamp::confirm(device, stamp)?;
        }
        let is_new = matches!(without, Without::Device(_));
        if !read_only && !is_new && !all_removed(&config, &opened.report.missing) {
            let what = (&lost, mode != OpenMode::AcceptLoss);
            notes.push(missing_members_note(&opened.report, what, &paths));
        }
        notes.extend(loss_notes(&opened));
        let room = opened.superblock.has_room_for_copies();
        if !read_only && let Err(e) = engine::fits(&opened.space.geo, room, &*policy) {
            return Err(config_error(
                file,
                format!("policy: {}: {e}", config.policy),
            ));
        }
        drop_unsupported_standby(&mut config, &devices, &mut notes);
        let pacers = pacers(&config, &opened, file)?;
        let costs = costs(&config, &opened, &mut notes).map_err(|e| config_error(file, e))?;
        Ok(Volume {
            config,
            devices,
            opened,
            policy,
            pacers,
            costs,
            mode,
            notes,
            lost,
            stamp,
            answers_lost: kept.answers_lost,
        })
    }
}

/// The superblocks that the session will write have the present paths and policy.
fn follow_description(found: &mut Found, config: &VolumeConfig) {
    for sb in found.iter_mut().flatten() {
        for (entry, m) in sb.members.iter_mut().zip(&config.members) {
            entry.hint = m.path.display().to_string();
        }
        sb.policy.clone_from(&config.policy);
    }
}

/// Opens all members. For missing members it returns the first error.
fn open_members(
    config: &VolumeConfig,
    read_only: bool,
    without: Without<'_>,
    notes: &mut Vec<String>,
) -> Result<(Vec<Option<Device>>, Option<Error>), Error> {
    let mut devices = Vec::new();
    let mut absent = None;
    let slowest = config.members.iter().map(|m| m.tier).max().unwrap_or(0);
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    for (m, left_out) in config.members.iter().zip(members::left_out(config)) {
        let left_out = left_out.then_some("is not the member that was left out");
        if let Some(why) = without.why(m, slowest).or(left_out) {
            let what = format!("{}: {why}", m.path.display());
            absent.get_or_insert(Error::new(ErrorKind::Device, what));
            devices.push(None);
            continue;
        }
        let how = OpenHow {
            create: None,
            buffered: !config.io.direct,
            read_only,
            fresh: false,
        };
        match open_member(m, uuid, how) {
            Ok(d) => {
                notes.extend(d.note.clone());
                devices.push(Some(d));
            }
            Err(e) if read_only && e.kind == ErrorKind::Device => {
                notes.push(format!("served without this member: {e}"));
                devices.push(None);
            }
            // The device is gone, not only unusable at present.
            Err(e) if e.kind == ErrorKind::Device && is_gone(&m.path) => {
                absent.get_or_insert(e);
                devices.push(None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok((devices, absent))
}

/// Refuses a cache volume of format version 2, which has its homes in the order in which they were first written.
fn no_old_cache(found: &Found, uses: Uses, file: &Path) -> Result<(), Error> {
    let is_old = |sb: &Superblock| {
        let geo = sb.geometry().ok();
        let slow = geo.map_or(0, |g| g.tier_slots(g.slowest()).len());
        sb.kind == Kind::Tiering && sb.members.len() > 1 && sb.extents as usize <= slow
    };
    if uses != Uses::Copies || !found.iter().flatten().any(is_old) {
        return Ok(());
    }
    let what = "it was made as a cache by an older isotherm (format version 2), whose data lies on the disk in no order. Serve it with that program \
        over NBD, create a new volume on other devices, serve that, too, and copy: `nbdcopy nbd+unix:///?socket=old.sock nbd+unix:///?socket=new.sock`";
    Err(config_error(file, what))
}

/// Refuses members of another volume than the description names.
fn all_of_this_volume(
    config: &VolumeConfig,
    paths: &[PathBuf],
    found: &Found,
    file: &Path,
) -> Result<(), Error> {
    let wanted = config.uuid.as_deref().and_then(parse_uuid);
    let foreign = paths
        .iter()
        .zip(found)
        .enumerate()
        .find_map(|(i, (path, sb))| {
            let uuid = sb.as_ref()?.uuid;
            wanted.is_some_and(|w| w != uuid).then_some((i, path, uuid))
        });
    let Some((i, path, uuid)) = foreign else {
        return Ok(());
    };
    let slowest = config.members.iter().map(|m| m.tier).max();
    let is_flash = config.members.get(i).map(|m| m.tier) < slowest;
    let is_cache = |sb: &Superblock| Some(sb.uuid) == wanted && sb.kind == Kind::Cache;
    let or = if is_flash && found.iter().flatten().any(is_cache) {
        "; if the flash of this volume is gone, `isotherm serve --without-flash` goes on with its disks"
    } else {
        ""
    };
    let what = format!(
        "member {}: belongs to volume {}, not to this one: give the device of this volume, or correct `uuid`{or}",
        path.display(),
        format_uuid(&uuid)
    );
    Err(config_error(file, what))
}

/// The messages about data that is lost: listed, accepted as the disks hold it, or without a place in any copy of the metadata.
fn loss_notes(opened: &Opened) -> Vec<String> {
    let (geo, report) = (&opened.space.geo, &opened.report);
    let mut notes: Vec<String> = Listed::of(&opened.space).note().into_iter().collect();
    let accepted = report.accepted << geo.block_shift;
    if accepted > 0 {
        notes.push(format!(
            "{accepted} bytes that were lost with flash have the older data of the disks from now on, as agreed"
        ));
    }
    let byte = |e: isotherm_core::ExtentId| u64::from(e.0) << geo.extent_shift;
    notes.extend(report.lost_extents.iter().map(|(from, to)| {
        format!(
            "bytes {} to {}: lost, as agreed: no copy of the metadata tells where they were; they read as zeros",
            byte(*from),
            byte(*to)
        )
    }));
    notes
}

/// Ignores `standby_s` of members that have no standby state.
fn drop_unsupported_standby(
    config: &mut VolumeConfig,
    devices: &[Option<Device>],
    notes: &mut Vec<String>,
) {
    for (m, d) in config.members.iter_mut().zip(devices) {
        let sleeps = m.standby_s.is_some() && m.paced.is_none();
        let Some(d) = d.as_ref().filter(|_| sleeps) else {
            continue;
        };
        if !Device::has_standby(&d.file) {
            notes.push(format!(
                "{}: has no standby state (not an ATA disk): standby_s is not used",
                m.path.display()
            ));
            m.standby_s = None;
        }
    }
}

/// Whether there is no file at this path, or no device behind it.
fn is_gone(path: &Path) -> bool {
    let gone = [Errno::NOENT, Errno::NXIO, Errno::NODEV, Errno::NOMEDIUM];
    // If the server of a file system hangs, the member behind it may be intact.
    crate::mounts::dead(path).is_none()
        && match std::fs::File::open(path) {
            Err(e) => Errno::from_io_error(&e).is_some_and(|n| gone.contains(&n)),
            // A drive without a medium, or a loop device without a file. A file that was emptied is damage, not absence.
            Ok(f) => {
                f.metadata().is_ok_and(|m| m.file_type().is_block_device())
                    && bytes_of(&f).is_ok_and(|bytes| bytes == 0)
            }
        }
}

/// Devices that were tolerated although they hold no superblock are no members, and nothing is read from them.
fn leave_out_blank(devices: &mut [Option<Device>], found: &Found) {
    let blank = devices.iter_mut().zip(found).filter(|(_, sb)| sb.is_none());
    blank.for_each(|(device, _)| *device = None);
}

/// Members without which a session began lack its writes. They count as missing, and are not written to.
fn leave_out_stale(
    devices: &mut [Option<Device>],
    found: &mut Found,
    paths: &[PathBuf],
    notes: &mut Vec<String>,
) {
    // (What one of them states may be what leaves out another one.)
    let all = || found.iter().flatten();
    let is_stale = |sb: &Superblock| store::is_left_out(all(), sb);
    let stale: Vec<bool> = found
        .iter()
        .map(|sb| sb.as_ref().is_some_and(is_stale))
        .collect();
    for i in (0..found.len()).filter(|&i| stale[i]) {
        notes.push(format!(
            "{}: was away while the volume was written to, and is left out",
            paths[i].display()
        ));
        (devices[i], found[i]) = (None, None);
    }
}

/// Members in the order of the superblocks' list, whatever order the description has.
fn in_member_order(
    config: &mut VolumeConfig,
    devices: Vec<Option<Device>>,
    found: Found,
) -> Result<(Vec<Option<Device>>, Found), Error> {
    let n = devices.len();
    let mut places: Vec<Option<usize>> = vec![None; n];
    let newest = store::newest_superblock(found.iter().flatten());
    for (i, sb) in found.iter().enumerate() {
        let Some(sb) = sb else { continue };
        let at = newest.and_then(|newest| sb.place_in(newest));
        let at = at.unwrap_or(sb.index.into());
        match places.get_mut(at) {
            Some(p @ None) => *p = Some(i),
            Some(Some(_)) => {
                return Err(Error::new(
                    ErrorKind::Volume,
                    store::OpenError::Twice(MemberId(at as u8)).to_string(),
                ));
            }
            None => {
                let what = format!(
                    "{}: is member {at} of a volume of more members: list them all",
                    config.members[i].path.display()
                );
                return Err(Error::new(ErrorKind::Volume, what));
            }
        }
    }
    let mut spare: Vec<usize> = (0..n).filter(|i| found[*i].is_none()).rev().collect();
    let order: Vec<usize> = places
        .into_iter()
        .map(|p| p.or_else(|| spare.pop()).unwrap_or(0))
        .collect();
    let mut devices: Vec<_> = devices.into_iter().map(Some).collect();
    let mut found: Vec<_> = found.into_iter().map(Some).collect();
    config.members = order.iter().map(|&i| config.members[i].clone()).collect();
    let devices = order.iter().map(|&i| devices[i].take().flatten()).collect();
    Ok((
        devices,
        order.iter().map(|&i| found[i].take().flatten()).collect(),
    ))
}

/// Allows members that were copied to a disk whose sectors are larger than the volume's blocks: they are accessed through the page cache,
/// which accepts smaller units.
fn use_page_cache_for_large_sectors(
    devices: &mut [Option<Device>],
    found: &Found,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Some(sb) = found.iter().flatten().next() else {
        return Ok(());
    };
    let block = 1 << sb.block_shift;
    for d in devices.iter_mut().flatten().filter(|d| d.align > block) {
        notes.push(format!(
            "{}: has sectors of {} bytes, the volume's blocks have {block}: I/O goes through the page cache",
            d.path.display(),
            d.align
        ));
        d.use_page_cache()?;
    }
    Ok(())
}

/// Properties that are fixed at creation must be unchanged, because otherwise the engine would look for extents in wrong places.
fn check_shape(
    config: &VolumeConfig,
    devices: &[Option<Device>],
    found: &Found,
    file: &Path,
) -> Result<(), Error> {
    let Some(sb) = store::newest_superblock(found.iter().flatten()) else {
        return Ok(());
    };
    if sb.members.len() != devices.len() {
        let what = format!(
            "members: the volume has {}, {} are listed",
            sb.members.len(),
            devices.len()
        );
        return Err(config_error(file, what));
    }
    if config.extent.0 != 1 << sb.extent_shift {
        let what = format!(
            "extent: the volume was created with {}; that cannot be changed",
            1u64 << sb.extent_shift
        );
        return Err(config_error(file, what));
    }
    for (i, (entry, m)) in sb.members.iter().zip(&config.members).enumerate() {
        if entry.tier != TierId(m.tier) {
            let what = format!(
                "member {i}: tier: {} was tier {} at creation; that cannot be changed",
                m.path.display(),
                entry.tier.0
            );
            return Err(config_error(file, what));
        }
        // What the volume went on without may be anything.
        let is_absent = sb.is_absent(MemberId(i as u8));
        let Some(d) = devices[i].as_ref().filter(|_| !is_absent) else {
            continue;
        };
        if d.bytes < entry.bytes {
            let what = format!(
                "{}: has {} bytes, the volume uses {}: it was cut short{}",
                d.path.display(),
                d.bytes,
                entry.bytes,
                if m.tail.is_none() && sb.is_disk(MemberId(i as u8)) {
                    ", or the description lacks its `tail` (`isotherm find` prints one)"
                } else {
                    ""
                }
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
    }
    Ok(())
}
