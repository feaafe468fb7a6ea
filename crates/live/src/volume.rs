//! A volume: created on its members, opened with recovery.

use crate::config::{VolumeConfig, format_uuid, parse_uuid};
use crate::contents;
use crate::device::{Device, OpenHow, refuse_twins};
use crate::error::{Error, ErrorKind};
use crate::loss::Lost;
use crate::media::FileMedia;
use crate::paced::Pacer;
use isotherm_core::load::Cost;
use isotherm_core::policy::{Policy, Uses};
use isotherm_core::store::superblock::{Follow, MemberEntry, State, SuperblockError};
use isotherm_core::store::{self, BLOCK, Layout, Media, MetaArea, Opened, Superblock};
use isotherm_core::{MemberId, Nanos, TierId, engine};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How to open a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// All members must be there, or those that are not must not be missed: a cache that held nothing of its own.
    ReadWrite,
    /// As [`OpenMode::ReadWrite`]; and go on although writes that only a missing cache held are lost. What the slow tier has
    /// of them counts from then on.
    AcceptLoss,
    /// Nothing is written; what survives is served.
    ReadOnly,
}

/// How to create a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateHow {
    /// Erase what lies on the members, and overwrite a description.
    pub force: bool,
    /// Set room aside for all data of members that are files, not only for their metadata.
    pub preallocate: bool,
}

/// What `create` made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Logical block.
    pub block_bytes: u32,
    /// Identity.
    pub uuid: [u8; 16],
    /// Slots of each member.
    pub slots: Vec<u32>,
    /// The policy keeps copies on the faster tiers, which add no capacity.
    pub caching: bool,
    /// Words for people.
    pub notes: Vec<String>,
}

/// An open volume, before it is served.
pub struct Volume {
    pub(crate) config: VolumeConfig,
    pub(crate) devices: Vec<Option<Device>>,
    pub(crate) opened: Opened,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) pacers: Vec<Option<Pacer>>,
    /// What tiers cost by their sheets, as far as there are any: the tiers before the first without one.
    pub(crate) costs: Vec<Cost>,
    pub(crate) mode: OpenMode,
    notes: Vec<String>,
    pub(crate) lost: Lost,
}

fn costs(config: &VolumeConfig, opened: &Opened) -> Result<Vec<Cost>, String> {
    let mut costs = Vec::new();
    for (i, (m, entry)) in config
        .members
        .iter()
        .zip(&opened.superblock.members)
        .enumerate()
    {
        if usize::from(m.tier) == costs.len()
            && let Some(cost) = m
                .cost(entry.bytes)
                .map_err(|e| format!("member {i}: {e}"))?
        {
            costs.push(cost);
        }
    }
    Ok(costs)
}

/// The description of volume `p/v`: `p/v.toml`.
pub fn description(volume: &Path) -> PathBuf {
    let mut name: OsString = volume.as_os_str().to_owned();
    name.push(".toml");
    name.into()
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut b = [0; N];
    // SAFETY: writes N bytes at most. Requests of up to 256 bytes are never cut short once the pool is seeded.
    let n = unsafe { libc::getrandom(b.as_mut_ptr().cast(), N, 0) };
    if n != N as isize {
        return Err(Error::new(
            ErrorKind::System,
            "getrandom gave no random numbers: the system is not up yet",
        ));
    }
    Ok(b)
}

fn config_error(file: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format!("{}: {what}", file.display()))
}

fn absolute(base: &Path, path: &Path) -> PathBuf {
    base.join(path)
}

/// Removes what it made unless told to keep it: nothing is created half-way.
struct Undo(Vec<PathBuf>);

impl Drop for Undo {
    fn drop(&mut self) {
        for path in &self.0 {
            // What cannot be removed is a sparse file without a superblock; there is nobody to tell.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Slots and areas of a new volume.
struct Plan {
    sb: Superblock,
    caching: bool,
}

impl Plan {
    fn new(config: &VolumeConfig, sizes: &[u64], align: u32, file: &Path) -> Result<Plan, Error> {
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
        // Metadata takes a little from the members, so this is a bound from above on what the areas must hold.
        let bound = bytes.iter().map(|b| b / extent).sum::<u64>();
        if bound > u64::from(isotherm_core::geometry::SLOTS_MAX) {
            return Err(config_error(
                file,
                "extent: too small for members of this size: choose a larger one",
            ));
        }
        let blocks_per_extent = (extent / u64::from(align)) as u32;
        let tiers = config.members.iter().map(|m| m.tier);
        let slowest = tiers.max().unwrap_or_default();
        let faster = bytes.iter().zip(&config.members);
        let copies = faster
            .filter(|(_, m)| m.tier < slowest)
            .map(|(b, _)| b / extent);
        // Room for copies in any case: the policy may change later.
        let area = MetaArea::for_volume(bound as u32, blocks_per_extent, fast).with_copies(
            bound as u32,
            copies.sum::<u64>() as u32,
            blocks_per_extent,
        );
        let mut sb = Superblock {
            uuid: random()?,
            copies: false,
            generation: 1,
            epoch: u64::from_le_bytes(random()?),
            prev_generation: 0,
            prev_epoch: 0,
            first_seq: 1,
            prev_first_seq: 1,
            follow: Follow::Unknown,
            prev_follow: Follow::Unknown,
            absent: 0,
            state: State::Clean,
            extent_shift: extent.trailing_zeros(),
            block_shift: align.trailing_zeros(),
            extents: 0,
            area,
            index: 0,
            members: Vec::new(),
            time_base: Nanos(0),
            policy: config.policy.clone(),
            name: config.name.clone(),
        };
        for m in &config.members {
            let hint = m.path.display().to_string();
            sb.members.push(MemberEntry {
                uuid: random()?,
                tier: TierId(m.tier),
                slots: 0,
                data_offset: 0,
                bytes: 0,
                hint,
            });
        }
        let layout = sb.layout();
        for (i, entry) in sb.members.iter_mut().enumerate() {
            let m = MemberId(i as u8);
            let has_metadata = m == layout.primary || Some(m) == layout.mirror;
            entry.data_offset = Layout::data_offset(&area, has_metadata, extent);
            entry.slots = (bytes[i].saturating_sub(entry.data_offset) / extent) as u32;
            entry.bytes = entry.data_offset + u64::from(entry.slots) * extent;
            if entry.slots == 0 {
                let least = entry.data_offset + extent;
                let what = format!(
                    "member {i}: {} has room for no extent: it needs at least {least} bytes",
                    entry.hint
                );
                return Err(config_error(file, what));
            }
        }
        let policy = config.build_policy().map_err(|e| config_error(file, e))?;
        let caching = policy.uses() == Uses::Copies;
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
        sb.geometry().map_err(|e| config_error(file, e))?;
        Ok(Plan { sb, caching })
    }

    /// All slots less the reserve: without free slow slots nothing could be exchanged between full tiers. With caching those
    /// of the slowest tier: copies add no capacity.
    fn extents(sb: &Superblock, caching: bool) -> Option<u32> {
        let slowest = sb.members.iter().map(|m| m.tier).max()?;
        let slots = |t: Option<TierId>| -> u32 {
            sb.members
                .iter()
                .filter(|m| t.is_none_or(|t| m.tier == t))
                .map(|m| m.slots)
                .sum()
        };
        let slow = slots(Some(slowest));
        if caching {
            return Some(slow).filter(|&n| n > 0);
        }
        let reserve = if slowest == TierId(0) {
            0
        } else {
            (slow / 16).clamp(2, 64)
        };
        slots(None)
            .checked_sub(reserve)
            .filter(|&n| n > 0 && reserve <= slow)
    }
}

impl Volume {
    /// Creates volume `p/v`: formats the members and writes the description. `force` overwrites whatever lies on them.
    ///
    /// Paths of members are taken as they are (relative to the working directory) and written absolute.
    ///
    /// # Errors
    /// A wrong description, a device that cannot be used, is in use, or carries something (see [`contents`]). Files that this
    /// call made are removed again.
    pub fn create(volume: &Path, config: VolumeConfig, force: bool) -> Result<Created, Error> {
        let how = CreateHow {
            force,
            ..CreateHow::default()
        };
        Volume::create_as(volume, config, how)
    }

    /// As [`Volume::create`], with all its options.
    ///
    /// # Errors
    /// As [`Volume::create`]; also if there is no room for what is to be set aside.
    pub fn create_as(
        volume: &Path,
        mut config: VolumeConfig,
        how: CreateHow,
    ) -> Result<Created, Error> {
        let force = how.force;
        let file = description(volume);
        if file.exists() && !force {
            return Err(config_error(
                &file,
                "exists already: choose another name, or remove it",
            ));
        }
        config.check().map_err(|e| config_error(&file, e))?;
        config.members.sort_by_key(|m| m.tier);
        for m in &mut config.members {
            m.path = std::path::absolute(&m.path).map_err(|e| config_error(&m.path, e))?;
        }
        let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
        refuse_twins(&paths)?;
        let mut undo = Undo(Vec::new());
        let mut devices = Vec::new();
        for m in &config.members {
            let open = OpenHow {
                create: m.size.map(|s| s.0),
                buffered: !config.io.direct,
                read_only: false,
                fresh: true,
            };
            let d = Device::open(&m.path, open)?;
            if d.created {
                undo.0.push(m.path.clone());
            }
            if let Some(s) = m.size.filter(|s| s.0 > d.bytes) {
                let what = format!("size: {s} asked for, but the device has {} bytes", d.bytes);
                return Err(config_error(&m.path, what));
            }
            devices.push(Some(d));
        }
        let mut notes: Vec<String> = devices
            .iter()
            .flatten()
            .filter_map(|d| d.note.clone())
            .collect();
        let mut media = FileMedia::new(&devices);
        let found_there = || devices.iter().flatten().filter(|d| !d.created);
        if !force {
            found_there().try_for_each(contents::refuse)?;
        }
        let align = devices
            .iter()
            .flatten()
            .map(|d| d.align)
            .max()
            .unwrap_or(4096);
        let sizes: Vec<u64> = devices.iter().flatten().map(|d| d.bytes).collect();
        let Plan { sb, caching } = Plan::new(&config, &sizes, align, &file)?;
        if config
            .members
            .iter()
            .all(|m| m.tier == config.members[0].tier)
        {
            notes.push(
                "one tier: every extent lies there, and no policy has anything to decide; a faster tier is given with --fast".into(),
            );
        }
        for (m, bytes) in config.members.iter().zip(&sizes) {
            // A paced member that its model cannot stand for must be refused before anything is written.
            m.model(*bytes).map_err(|e| config_error(&file, e))?;
        }
        if force {
            found_there().try_for_each(contents::erase)?;
        }
        notes.extend(make_room(&devices, &sb, how.preallocate)?);
        store::format(&mut media, &sb).map_err(|e| device_error(&media, &paths, e))?;
        config.uuid = Some(format_uuid(&sb.uuid));
        config.save(&file)?;
        undo.0.clear();
        Ok(Created {
            caching,
            volume_bytes: u64::from(sb.extents) << sb.extent_shift,
            block_bytes: 1 << sb.block_shift,
            uuid: sb.uuid,
            slots: sb.members.iter().map(|m| m.slots).collect(),
            notes,
        })
    }

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

    /// Opens a volume by a description that was read (or made) elsewhere; `file` is named in errors, `base` is what relative
    /// paths start from.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_config(
        mut config: VolumeConfig,
        file: &Path,
        base: &Path,
        mode: OpenMode,
    ) -> Result<Volume, Error> {
        config.check().map_err(|e| config_error(file, e))?;
        let policy = config.build_policy().map_err(|e| config_error(file, e))?;
        config.members.sort_by_key(|m| m.tier);
        for m in &mut config.members {
            m.path = absolute(base, &m.path);
        }
        let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
        refuse_twins(&paths)?;
        let read_only = mode == OpenMode::ReadOnly;
        let mut notes = Vec::new();
        let mut devices = Vec::new();
        let mut absent: Option<Error> = None;
        for m in &config.members {
            match Device::open(
                &m.path,
                OpenHow {
                    create: None,
                    buffered: !config.io.direct,
                    read_only,
                    fresh: false,
                },
            ) {
                Ok(d) => {
                    notes.extend(d.note.clone());
                    devices.push(Some(d));
                }
                Err(e) if read_only && e.kind == ErrorKind::Device => {
                    notes.push(format!("served without this member: {e}"));
                    devices.push(None);
                }
                // Not there, which is more than not to be opened just now.
                Err(e) if e.kind == ErrorKind::Device && is_gone(&m.path) => {
                    absent.get_or_insert(e);
                    devices.push(None);
                }
                Err(e) => return Err(e),
            }
        }
        let found = find_superblocks(
            &mut FileMedia::new(&devices),
            &paths,
            absent.is_some() || read_only,
            &mut notes,
        )?;
        let (mut devices, mut found) = in_place(&mut config, devices, found)?;
        for sb in found.iter_mut().flatten() {
            // The description says what policy it is now; the superblocks follow when the session begins.
            sb.policy.clone_from(&config.policy);
        }
        let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
        let wanted = config.uuid.as_deref().and_then(parse_uuid);
        let foreign = paths.iter().zip(&found).find_map(|(path, sb)| {
            let uuid = sb.as_ref()?.uuid;
            wanted.is_some_and(|w| w != uuid).then_some((path, uuid))
        });
        if let Some((path, uuid)) = foreign {
            let what = format!(
                "member {}: belongs to volume {}, not to this one: give the device of this volume, or correct `uuid`",
                path.display(),
                format_uuid(&uuid)
            );
            return Err(config_error(file, what));
        }
        check_shape(&config, &devices, &found, file)?;
        if !read_only {
            leave_out_stale(&mut devices, &mut found, &paths, &mut notes);
        }
        let mut media = FileMedia::new(&devices);
        let (opened, lost) = begin(&mut media, &found, mode, policy.uses()).map_err(|e| match e {
            Refused::Store(store::OpenError::Media(e)) => device_error(&media, &paths, e),
            Refused::Store(e) => {
                let path = e.member().and_then(|m| paths.get(usize::from(m.0)));
                let path = path.map_or(file, |p| p.as_path());
                let why = absent.map(|a| format!("{a}; ")).unwrap_or_default();
                Error::new(ErrorKind::Volume, format!("{why}{}: {e}", path.display()))
            }
            Refused::Lost(lost) => Error::new(
                ErrorKind::Volume,
                format!(
                    "{}\nattach the member; or go on without these writes with --accept-loss: what the slow tier has of these ranges counts from then on, and zeros where it has nothing",
                    lost.words()
                ),
            ),
            Refused::System(e) => e,
        })?;
        if !read_only && !opened.report.missing.is_empty() {
            notes.push(going_on(&opened.report, &lost, &paths));
        }
        let room = opened.superblock.has_room_for_copies();
        if !read_only && let Err(e) = engine::fits(&opened.space.geo, room, policy.uses()) {
            return Err(config_error(
                file,
                format!("policy: {}: {e}", config.policy),
            ));
        }
        for (m, d) in config.members.iter_mut().zip(&devices) {
            let Some(d) = d
                .as_ref()
                .filter(|_| m.standby_s.is_some() && m.paced.is_none())
            else {
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
        let mut pacers = Vec::new();
        for (i, m) in config.members.iter().enumerate() {
            let bytes = opened.superblock.members[i].bytes;
            pacers.push(
                m.model(bytes)
                    .map_err(|e| config_error(file, format!("member {i}: {e}")))?
                    .map(Pacer::new),
            );
        }
        let costs = costs(&config, &opened).map_err(|e| config_error(file, e))?;
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
        })
    }

    /// Its description.
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// What opening found and did.
    pub fn report(&self) -> &store::Report {
        &self.opened.report
    }

    /// Words for people: members missing, page cache in use.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Size in bytes.
    pub fn volume_bytes(&self) -> u64 {
        self.opened.space.geo.volume_bytes()
    }
}

/// Is there nothing at this path, or no device behind it?
fn is_gone(path: &Path) -> bool {
    let gone = [libc::ENOENT, libc::ENXIO, libc::ENODEV, libc::ENOMEDIUM];
    std::fs::File::open(path).is_err_and(|e| e.raw_os_error().is_some_and(|n| gone.contains(&n)))
}

/// Members that the newest session went without missed what it wrote: as good as missing, and not written to.
fn leave_out_stale(
    devices: &mut [Option<Device>],
    found: &mut Found,
    paths: &[PathBuf],
    notes: &mut Vec<String>,
) {
    let newest = found.iter().flatten().max_by_key(|s| s.generation).cloned();
    let Some(newest) = newest.filter(|s| s.state != State::Preparing) else {
        return;
    };
    for i in 0..found.len().min(newest.members.len()) {
        let stale = found[i]
            .as_ref()
            .is_some_and(|s| s.generation < newest.generation);
        if stale && newest.is_absent(MemberId(i as u8)) {
            notes.push(format!(
                "{}: was away while the volume was written to, and is left out",
                paths[i].display()
            ));
            (devices[i], found[i]) = (None, None);
        }
    }
}

/// Why a session cannot begin.
enum Refused {
    Store(store::OpenError),
    Lost(Lost),
    System(Error),
}

/// Opens the store: with all members, or without those that are not missed.
fn begin(
    media: &mut FileMedia<'_>,
    found: &Found,
    mode: OpenMode,
    uses: Uses,
) -> Result<(Opened, Lost), Refused> {
    use store::open::Mode;
    let mut open = |how| store::open(media, found, how).map_err(Refused::Store);
    let epoch = || random().map(u64::from_le_bytes).map_err(Refused::System);
    let missing = found.iter().any(Option::is_none);
    if mode == OpenMode::ReadOnly {
        let opened = open(Mode::ReadOnly)?;
        let lost = Lost::of(&opened, uses);
        return Ok((opened, lost));
    }
    if !missing {
        let opened = open(Mode::ReadWrite { epoch: epoch()? })?;
        return Ok((opened, Lost::default()));
    }
    // What is lost is known before anything is written.
    let lost = Lost::of(&open(Mode::ReadOnly)?, uses);
    let how = Mode::Degraded {
        epoch: epoch()?,
        accept_loss: mode == OpenMode::AcceptLoss,
    };
    match open(how) {
        Ok(opened) => Ok((opened, lost)),
        Err(Refused::Store(store::OpenError::LostWrites { .. })) => Err(Refused::Lost(lost)),
        Err(e) => Err(e),
    }
}

/// One line for people.
fn going_on(report: &store::Report, lost: &Lost, paths: &[PathBuf]) -> String {
    let names: Vec<_> = report
        .missing
        .iter()
        .filter_map(|m| paths.get(usize::from(m.0)))
        .map(|p| p.display().to_string())
        .collect();
    let names = names.join(", ");
    if lost.is_nothing() {
        format!(
            "{names}: this cache is gone; it held nothing of its own, the volume goes on without it (degraded)"
        )
    } else {
        format!(
            "{names}: this cache is gone, with writes that it alone held; the volume goes on without them (degraded)"
        )
    }
}

fn device_error(media: &FileMedia<'_>, paths: &[PathBuf], e: store::MediaError) -> Error {
    let path = paths
        .get(usize::from(e.member.0))
        .map(|p| p.display().to_string())
        .unwrap_or_default();
    let why = media
        .last_error()
        .map(|e| format!(" ({e})"))
        .unwrap_or_default();
    Error::new(
        ErrorKind::Device,
        format!(
            "{path}: metadata I/O failed at byte {}{why}: check the device",
            e.offset
        ),
    )
}

/// Room for the metadata of every member, and with `all` for its data: metadata must never meet a full file system. Words for
/// people where that cannot be promised.
fn make_room(
    devices: &[Option<Device>],
    sb: &Superblock,
    all: bool,
) -> Result<Option<String>, Error> {
    let mut unable = None;
    for (d, m) in devices.iter().flatten().zip(&sb.members) {
        let (bytes, what) = if all {
            (m.bytes, "the member")
        } else {
            (m.data_offset, "its metadata")
        };
        let allocated = d.allocate(bytes).map_err(|e| {
            let place = d.path.display();
            let what = format!("{place}: no room for {what} ({bytes} bytes): {e}");
            Error::new(ErrorKind::Device, what)
        })?;
        if !allocated {
            unable = Some(format!(
                "{}: its file system cannot set room aside: keep some free, a full one fails the volume",
                d.path.display()
            ));
        }
    }
    Ok(unable)
}

pub(crate) type Found = Vec<Option<Superblock>>;

/// The better superblock of each device. Where the first cannot be read, the others' member list says where the second is.
pub(crate) fn find_superblocks(
    media: &mut FileMedia<'_>,
    paths: &[PathBuf],
    tolerant: bool,
    notes: &mut Vec<String>,
) -> Result<Found, Error> {
    let there: Vec<bool> = (0..paths.len())
        .map(|i| media.is_there(MemberId(i as u8)))
        .collect();
    let mut read = |i: usize, at: u64| {
        let mut block = [0; BLOCK];
        match media.read(MemberId(i as u8), at, &mut block) {
            Ok(()) => Superblock::decode(&block),
            Err(_) => Err(SuperblockError::Damaged),
        }
    };
    let first: Vec<_> = (0..paths.len()).map(|i| read(i, 0)).collect();
    let good = first.iter().find_map(|s| s.as_ref().ok()).cloned();
    let mut found = Vec::new();
    for (i, one) in first.into_iter().enumerate() {
        let guide = one
            .as_ref()
            .ok()
            .map(|s| (s.clone(), s.index))
            .or_else(|| Some((good.clone()?, i as u8)));
        let second = match guide {
            Some((sb, index)) if usize::from(index) < sb.members.len() => {
                read(i, sb.copy_offset(MemberId(index)))
            }
            _ => Err(SuperblockError::Foreign),
        };
        match store::open::choose(one, second) {
            Ok(sb) => found.push(Some(sb)),
            // That it is not there was said already, or will be.
            Err(_) if tolerant && !there[i] => found.push(None),
            Err(e) if tolerant => {
                notes.push(format!(
                    "{}: served without it: {}",
                    paths[i].display(),
                    store::OpenError::Superblock(MemberId(i as u8), e)
                ));
                found.push(None);
            }
            Err(e) => {
                let e = store::OpenError::Superblock(MemberId(i as u8), e);
                return Err(Error::new(
                    ErrorKind::Volume,
                    format!("{}: {e}", paths[i].display()),
                ));
            }
        }
    }
    Ok(found)
}

/// Members in the order of the superblocks' list, whatever order the description has.
fn in_place(
    config: &mut VolumeConfig,
    devices: Vec<Option<Device>>,
    found: Found,
) -> Result<(Vec<Option<Device>>, Found), Error> {
    let n = devices.len();
    let mut places: Vec<Option<usize>> = vec![None; n];
    for (i, sb) in found.iter().enumerate() {
        let Some(sb) = sb else { continue };
        let at = usize::from(sb.index);
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

/// What is fixed at creation must still be so, or the engine would look for extents in wrong places.
fn check_shape(
    config: &VolumeConfig,
    devices: &[Option<Device>],
    found: &Found,
    file: &Path,
) -> Result<(), Error> {
    let Some(sb) = found.iter().flatten().max_by_key(|s| s.generation) else {
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
        let Some(d) = &devices[i] else { continue };
        if d.bytes < entry.bytes {
            let what = format!(
                "{}: has {} bytes, the volume uses {}: it was cut short",
                d.path.display(),
                d.bytes,
                entry.bytes
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
        if d.align > 1 << sb.block_shift {
            let what = format!(
                "{}: wants I/O in units of {} bytes, the volume's block is {}",
                d.path.display(),
                d.align,
                1u32 << sb.block_shift
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
    }
    Ok(())
}
