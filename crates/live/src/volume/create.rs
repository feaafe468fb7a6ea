//! Creation of a volume: plans slots and areas, formats the members, writes the description.

use super::claim::refuse_live_member;
use super::memory::{self, Needs};
use super::space::reserve_space;
use super::{
    AdoptHow, Adoptable, CreateHow, Created, Volume, config_error, description, device_error,
};
use crate::config::{MemberConfig, VolumeConfig, format_uuid, parse_uuid};
use crate::contents;
use crate::device::{Device, OpenHow, refuse_twins};
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::members::{self, probe};
use crate::random::random;
use isotherm_core::geometry::{Geometry, Kind, SLOTS_MAX};
use isotherm_core::policy::{Policy, Uses};
use isotherm_core::store::superblock::{MemberEntry, Shape};
use isotherm_core::store::{self, MetaArea, Superblock};
use isotherm_core::{MemberId, TierId, engine};
use std::path::{Path, PathBuf};

/// Removes the created files unless it is told to keep them, so that no half-created volume remains.
#[derive(Default)]
pub(crate) struct Undo(Vec<PathBuf>);

impl Undo {
    /// A file was created.
    pub(super) fn add(&mut self, path: PathBuf) {
        self.0.push(path);
    }
    /// The files stay.
    pub(crate) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for path in &self.0 {
            // A file that cannot be removed is sparse and has no superblock. This cannot be reported here.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The block of a volume with `homes` recorded extents on devices with sectors of `align` bytes. In a cache volume it has 4 KiB, whatever
/// the sectors have: writes of a part of it are read-modify-write. In a tiering volume it is a sector; but bitmaps with a bit for each 512
/// bytes would be most of a large volume's metadata: from 1 GiB of them on, a block has 4 KiB, too.
fn block_for(align: u32, caching: bool, homes: u64, extent: u64) -> u32 {
    let bits = homes.saturating_mul(extent / u64::from(align));
    if caching || bits > 1 << 33 {
        align.max((4096).min(extent as u32))
    } else {
        align
    }
}

/// Slots and areas of a new volume.
struct Plan {
    sb: Superblock,
    caching: bool,
    needs: Needs,
}

impl Plan {
    /// `sectors`: bytes of the sectors of all devices, and of those of the slowest tier.
    fn new(
        config: &VolumeConfig,
        sizes: &[u64],
        sectors: (u32, u32),
        file: &Path,
    ) -> Result<Plan, Error> {
        let extent = config.extent.0;
        let bytes: Vec<u64> = sizes
            .iter()
            .zip(&config.members)
            .map(|(d, m)| m.size.map_or(*d, |s| s.0))
            .collect();
        let fast: u64 = bytes
            .iter()
            .zip(&config.members)
            .filter(|(_, m)| m.tier == 0)
            .map(|(b, _)| b)
            .sum();
        let policy = config.build_policy().map_err(|e| config_error(file, e))?;
        let caching = policy.uses() == Uses::Copies;
        let tiers = config.members.iter().map(|m| m.tier);
        let slowest = tiers.max().unwrap_or_default();
        // Metadata takes a small part of the members, so this is an upper bound for the areas. In a cache volume only copies have records.
        let all = bytes.iter().map(|b| b / extent).sum::<u64>();
        let extents_on = |is: &dyn Fn(u8) -> bool| {
            let of = bytes.iter().zip(&config.members);
            of.filter(|(_, m)| is(m.tier))
                .map(|(b, _)| b / extent)
                .sum::<u64>()
        };
        let copies = extents_on(&|t| t < slowest);
        let homes = extents_on(&|t| !caching || t == slowest);
        let bound = if caching { copies } else { homes };
        let block = block_for(sectors.0, caching, homes, extent);
        if all > u64::from(SLOTS_MAX) {
            return Err(config_error(
                file,
                "extent: too small for members of this size: choose a larger one",
            ));
        }
        let blocks_per_extent = (extent / u64::from(block)) as u32;
        // There is room for copies in any case, because the policy may change later.
        let kind = policy.uses().volume();
        let (bound, copies) = (bound as u32, copies as u32);
        let area = MetaArea::of(kind, bound, copies, blocks_per_extent, fast);
        let members = entries(config)?;
        let shape = Shape {
            kind,
            extent_shift: extent.trailing_zeros(),
            block_shift: block.trailing_zeros(),
            extents: 0,
            area,
        };
        let epoch = u64::from_le_bytes(random()?);
        let mut sb = Superblock {
            policy: config.policy.clone(),
            name: config.name.clone(),
            ..Superblock::new(random()?, epoch, shape, members)
        };
        if caching {
            sb.logical_shift = sectors.1.min(block).trailing_zeros();
        }
        plan_layout(&mut sb, &bytes, file)?;
        if caching && slowest == 0 {
            return Err(config_error(
                file,
                "policy: caching needs a faster and a slower tier",
            ));
        }
        sb.extents = Self::extents(&sb, caching).ok_or_else(|| {
            config_error(
                file,
                "members: the slow tier is too small to hold the reserve of 2 slots",
            )
        })?;
        let geo = sb.geometry().map_err(|e| config_error(file, e))?;
        let needs = needs_of(&geo, &*policy, config, file)?;
        Ok(Plan { sb, caching, needs })
    }

    /// Number of extents of the volume.
    fn extents(sb: &Superblock, caching: bool) -> Option<u32> {
        let slowest = sb.members.iter().map(|m| m.tier).max()?;
        let slots = |slow: bool| -> u32 {
            let of = sb.members.iter().filter(|m| (m.tier == slowest) == slow);
            of.map(|m| m.slots).sum()
        };
        store::extents_of((slots(true), slots(false)), caching)
    }
}

/// The memory that the volume needs; an error if the policy may not have what it needs, or this machine does not have it.
fn needs_of(
    geo: &Geometry,
    policy: &dyn Policy,
    config: &VolumeConfig,
    file: &Path,
) -> Result<Needs, Error> {
    engine::fits(geo, true, policy).map_err(|e| config_error(file, format!("policy: {e}")))?;
    let needs = Needs::of(geo, config.io.buffers.0);
    needs.check_fits(memory::installed(), "this machine", file)?;
    Ok(needs)
}

/// A new superblock entry for each member of a description.
fn entries(config: &VolumeConfig) -> Result<Vec<MemberEntry>, Error> {
    let entry = |m: &MemberConfig| {
        Ok(MemberEntry {
            uuid: random()?,
            tier: TierId(m.tier),
            hint: m.path.display().to_string(),
            ..MemberEntry::default()
        })
    };
    config.members.iter().map(entry).collect()
}

/// Plans metadata and slots on members that have `bytes` each.
fn plan_layout(sb: &mut Superblock, bytes: &[u64], file: &Path) -> Result<(), Error> {
    for (i, &has) in bytes.iter().enumerate() {
        let m = MemberId(i as u8);
        let room = sb.room(m, has, SLOTS_MAX);
        if room.slots == 0 {
            let what = format!(
                "member {i}: {} has room for no extent: it needs at least {} bytes",
                sb.members[i].hint,
                sb.least_bytes(m, 1)
            );
            return Err(config_error(file, what));
        }
        room.put(&mut sb.members[i]);
    }
    Ok(())
}

/// Opens the members and creates missing files, which it adds to `undo`.
fn open_or_make(config: &VolumeConfig, undo: &mut Undo) -> Result<Vec<Option<Device>>, Error> {
    let mut devices = Vec::new();
    for m in &config.members {
        let how = OpenHow {
            create: m.size.map(|s| s.0),
            buffered: !config.io.direct,
            read_only: false,
            fresh: true,
        };
        let d = Device::open(&m.path, how)?;
        if d.created {
            undo.add(m.path.clone());
        }
        if let Some(s) = m.size.filter(|s| s.0 > d.bytes) {
            let what = format!("size: {s} asked for, but the device has {} bytes", d.bytes);
            return Err(config_error(&m.path, what));
        }
        devices.push(Some(d));
    }
    Ok(devices)
}

/// Refuses a description that is there and tells of another volume: none of the new members belongs to it.
fn refuse_other_description(file: &Path, paths: &[PathBuf]) -> Result<(), Error> {
    if !file.exists() {
        return Ok(());
    }
    let what = |why: &str| {
        let what = format!("exists already, and {why}: choose another name, or remove it");
        Err(config_error(file, what))
    };
    let Ok(mut old) = VolumeConfig::load(file) else {
        return what("cannot be read");
    };
    let base = file.parent().unwrap_or(Path::new(""));
    let uuid = old.uuid.as_deref().and_then(parse_uuid);
    let is_member = |new: &PathBuf| {
        let own = probe::probe(new, probe::Second::At(&[]));
        let holds = own.is_ok_and(|sb| sb.is_ok_and(|sb| Some(sb.uuid) == uuid));
        holds
            || old.members.iter().any(|m| {
                let there = std::path::absolute(base.join(&m.path));
                there.is_ok_and(|path| refuse_twins(&[path, new.clone()]).is_err())
            })
    };
    if paths.iter().any(is_member) {
        return Ok(());
    }
    let of = std::mem::take(&mut old.uuid).unwrap_or_default();
    what(&format!(
        "describes another volume ({of}), of whose members none is given here"
    ))
}

/// The plan of a volume on these devices, and their sizes. A tail device counts with the bytes that are needed of it.
fn plan_on(
    config: &VolumeConfig,
    devices: &mut [Option<Device>],
    file: &Path,
) -> Result<(Plan, Vec<u64>), Error> {
    let slowest = config.members.iter().map(|m| m.tier).max();
    let sectors_of = |devices: &[Option<Device>], slow: bool| {
        let of = devices.iter().zip(&config.members);
        let of = of.filter(|(_, m)| !slow || Some(m.tier) == slowest);
        of.filter_map(|(d, _)| Some(d.as_ref()?.align))
            .max()
            .unwrap_or(4096)
    };
    let sectors =
        |devices: &[Option<Device>]| (sectors_of(devices, false), sectors_of(devices, true));
    let sizes_of = |devices: &[Option<Device>]| devices.iter().flatten().map(|d| d.bytes).collect();
    let mut sizes: Vec<u64> = sizes_of(devices);
    let mut plan = Plan::new(config, &sizes, sectors(devices), file)?;
    if super::adopt::fit_tail(&plan.sb, devices)? {
        sizes = sizes_of(devices);
        plan = Plan::new(config, &sizes, sectors(devices), file)?;
    }
    Ok((plan, sizes))
}

impl Volume {
    /// Creates volume `p/v`: formats the members and writes the description. With `force`, existing data on them is overwritten.
    ///
    /// Paths of members are taken as they are (relative to the working directory) and written as absolute paths.
    ///
    /// # Errors
    /// A wrong description, or a device that cannot be used, is in use, or holds data (see [`contents`]). Files that this call created are
    /// removed again.
    pub fn create(volume: &Path, config: VolumeConfig, force: bool) -> Result<Created, Error> {
        let how = CreateHow {
            force,
            ..CreateHow::default()
        };
        Volume::create_as(volume, config, how, &mut |_, _| {})
    }

    /// As [`Volume::create`], with all its options. `progress` is told how much of the slow members of a cache volume is cleared, and how much
    /// there is, in bytes.
    ///
    /// # Errors
    /// As [`Volume::create`]; also if there is not enough space to reserve.
    pub fn create_as(
        volume: &Path,
        config: VolumeConfig,
        how: CreateHow,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Created, Error> {
        Volume::create_with(volume, config, (how, None), progress).map(|made| made.0)
    }

    /// As [`Volume::create_as`]. With an [`AdoptHow`], the slow member holds data, which becomes the volume's in place.
    pub(super) fn create_with(
        volume: &Path,
        mut config: VolumeConfig,
        (how, adopt): (CreateHow, Option<AdoptHow>),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Created, Option<Adoptable>), Error> {
        let force = how.force;
        let file = description(volume);
        if file.exists() && !force {
            return Err(config_error(
                &file,
                "exists already: choose another name, or remove it",
            ));
        }
        config.check().map_err(|e| config_error(&file, e))?;
        let paths = in_order(&mut config)?;
        refuse_twins(&config.all_paths())?;
        refuse_other_description(&file, &paths)?;
        let mut undo = Undo::default();
        let mut devices = open_or_make(&config, &mut undo)?;
        if let Some(adopt) = adopt {
            super::adopt::refuse_flash(&config, &devices)?;
            super::adopt::open_tails(&config, &mut devices, adopt)?;
        } else if !force {
            let mut there = devices.iter().flatten().filter(|d| !d.created);
            there.try_for_each(contents::refuse)?;
        }
        if adopt.is_none() && config.members.iter().any(|m| m.tail.is_some()) {
            return Err(config_error(&file, "only `isotherm adopt` makes tails"));
        }
        let plan = plan_on(&config, &mut devices, &file)?;
        let (Plan { sb, caching, needs }, sizes) = plan;
        let mut notes: Vec<String> = devices
            .iter()
            .flatten()
            .filter_map(|d| d.note.clone())
            .collect();
        let found_there = || devices.iter().flatten().filter(|d| !d.created);
        refuse_keep_without_homes(&sb, how.keep, &file)?;
        let adopted = adopt.map(|a| super::adopt::examine(&sb, &devices, a, &file));
        let adopted = adopted.transpose()?;
        notes.extend(needs.note());
        notes.extend(one_tier(&config));
        refuse_bad_models(&config, &sizes, &file)?;
        let made = |notes| Created {
            caching,
            volume_bytes: u64::from(sb.extents) << sb.extent_shift,
            block_bytes: 1 << sb.logical_shift,
            uuid: sb.uuid,
            slots: sb.members.iter().map(|m| m.slots).collect(),
            notes,
        };
        if adopt.is_some_and(|a| a.only_plan) {
            return Ok((made(notes), adopted));
        }
        if force {
            found_there().try_for_each(|d| refuse_live_member(d, None))?;
        }
        // Without enough space, nothing may have been erased or cleared.
        notes.extend(reserve_space(&devices, &sb, how.preallocate)?);
        if force {
            erase(&devices, &sb, how.keep)?;
        }
        config.uuid = Some(format_uuid(&sb.uuid));
        write(&config, &file, (&devices, &sb), how, progress)?;
        undo.keep();
        Ok((made(notes), adopted))
    }
}

/// Writes a new volume and its description.
fn write(
    config: &VolumeConfig,
    file: &Path,
    (devices, sb): (&[Option<Device>], &Superblock),
    how: CreateHow,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let mut media = FileMedia::new(devices);
    let done = if how.keep {
        // If this is interrupted, `isotherm release` gives the disks back, and it finds them by the description.
        config.save(file)?;
        super::adopt::label_tails(sb, devices)?;
        store::format_kept(&mut media, sb)
    } else {
        clear_homes(devices, sb, progress)?;
        // What was cleared gave its space back.
        reserve_space(devices, sb, how.preallocate)?;
        store::format(&mut media, sb)
    };
    let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    done.map_err(|e| device_error(&media, &paths, e))?;
    if how.keep { Ok(()) } else { config.save(file) }
}

/// A message for people if there is nothing to decide.
fn one_tier(config: &VolumeConfig) -> Option<String> {
    let first = config.members.first()?.tier;
    config.members.iter().all(|m| m.tier == first).then(|| {
        String::from("one tier: every extent lies there, and no policy has anything to decide; a faster tier is given with --fast")
    })
}

/// A paced member that the model cannot represent must be refused before anything is written.
fn refuse_bad_models(config: &VolumeConfig, sizes: &[u64], file: &Path) -> Result<(), Error> {
    for (m, bytes) in config.members.iter().zip(sizes) {
        m.model(*bytes).map_err(|e| config_error(file, e))?;
        m.cost(*bytes).map_err(|e| config_error(file, e))?;
    }
    Ok(())
}

/// Sorts the members by tier, with absolute paths that are the same after the next boot. Returns these.
fn in_order(config: &mut VolumeConfig) -> Result<Vec<PathBuf>, Error> {
    config.members.sort_by_key(|m| m.tier);
    for m in &mut config.members {
        for path in [Some(&mut m.path), m.tail.as_mut()].into_iter().flatten() {
            *path = std::path::absolute(&path).map_err(|e| config_error(path, e))?;
            if let Some(name) = members::stable::stable_name(path) {
                *path = name;
            }
        }
    }
    Ok(config.members.iter().map(|m| m.path.clone()).collect())
}

/// Refuses `keep` for a tiering volume: its extents have no homes yet, so it cannot show what the devices hold.
fn refuse_keep_without_homes(sb: &Superblock, keep: bool, file: &Path) -> Result<(), Error> {
    if !keep || sb.kind != Kind::Tiering {
        return Ok(());
    }
    let what = format!(
        "policy: {} makes a tiering volume, which shows zeros where nothing was written, so --keep can show nothing: leave it out, or choose a policy that keeps copies, such as benefit",
        sb.policy
    );
    Err(config_error(file, what))
}

/// Erases what devices that were there already held before; with `keep`, not what disks of a cache volume hold.
fn erase(devices: &[Option<Device>], sb: &Superblock, keep: bool) -> Result<(), Error> {
    let there = devices.iter().enumerate();
    let mut there = there.filter_map(|(i, d)| Some((MemberId(i as u8), d.as_ref()?)));
    there.try_for_each(|(m, d)| {
        if d.created || (keep && sb.is_disk(m)) {
            return Ok(());
        }
        contents::erase(d)
    })
}

/// Clears the disks of a cache volume, which shows what they hold. (A tiering volume shows zeros until something is written.)
fn clear_homes(
    devices: &[Option<Device>],
    sb: &Superblock,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    for m in sb.disks() {
        let i = usize::from(m.0);
        let Some(d) = devices[i].as_ref().filter(|d| !d.created) else {
            continue;
        };
        d.clear(0, sb.members[i].bytes, progress).map_err(|e| {
            let what = format!("{}: cannot be cleared: {e}", d.path.display());
            Error::new(ErrorKind::Device, what)
        })?;
    }
    Ok(())
}
