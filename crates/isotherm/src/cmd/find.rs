//! `isotherm find`: prints descriptions of volumes from the superblocks of their members.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use isotherm_answers::{FoundDescription, FoundMember, FoundVolume};
use isotherm_core::store::superblock::{Superblock, SuperblockError};
use isotherm_live::config::{IoConfig, MemberConfig, Size, VolumeConfig, format_uuid};
use isotherm_live::device::bytes_of;
use isotherm_live::members::probe::{Second, probe};
use isotherm_live::members::{labelled, scan};
use isotherm_live::stack;
use isotherm_live::tail::Label;

use crate::Failure;
use crate::args::FindArgs;

/// Volumes by identity: the newest superblock, and the path of each member.
type Volumes = BTreeMap<[u8; 16], (Superblock, BTreeMap<u8, PathBuf>)>;

/// Examines devices and prints a description of each volume that was found.
///
/// # Errors
/// No device belongs to a volume, or a device cannot be opened.
pub fn run(args: &FindArgs) -> Result<(), Failure> {
    let (mut found, mut nothing) = (Vec::new(), Vec::new());
    let mut tails = labelled(args.devices.clone());
    if args.devices.is_empty() {
        let mut places = scan::block_devices();
        let (files, mut passed_over) = scan::files_in(Path::new("."));
        places.extend(files);
        tails = labelled(places.clone());
        let mut scan = scan::probe_all(places, &[], true);
        nothing.append(&mut scan.notes);
        nothing.append(&mut passed_over);
        found = scan.found;
        if found.is_empty() {
            let mut what = String::from(
                "no block device and no file in this directory carries a volume: name the devices, also to find a second superblock where the first is gone",
            );
            for line in &nothing {
                what += "; ";
                what += line;
            }
            return Err(Failure::failed(what));
        }
    }
    for path in &args.devices {
        match probe(path, Second::Anywhere).map_err(|e| Failure::file(path, "open it", &e))? {
            Ok(sb) => found.push((path.clone(), sb)),
            // Only now: before, the path might be on a device that does not answer.
            Err(_) if path.is_dir() => {
                return Err(Failure::failed(format!(
                    "{}: is a directory: name a device or file",
                    path.display()
                )));
            }
            Err(_) if tails.iter().any(|t| t.0 == *path) => {}
            Err(e) => nothing.push(format!("{}: {}", path.display(), words(e))),
        }
    }
    let volumes = gathered(&found, !args.devices.is_empty(), &mut nothing)?;
    if volumes.is_empty() {
        return Err(Failure::failed(format!(
            "none of these devices carries a volume: {}",
            nothing.join("; ")
        )));
    }
    for line in &nothing {
        crate::log::note(format_args!("isotherm: {line}"));
    }
    look_for_tails(&volumes, &mut tails);
    let found: Vec<(VolumeConfig, Vec<u8>)> = volumes
        .values()
        .map(|(sb, paths)| describe(sb, paths, &tails))
        .collect();
    print(args, &found)
}

/// A description of the volume that this disk belongs to, with guesses for its other members.
///
/// # Errors
/// The device cannot be opened, or carries no volume.
pub(super) fn of_disk(path: &Path) -> Result<VolumeConfig, Failure> {
    let sb = probe(path, Second::Anywhere).map_err(|e| Failure::file(path, "open it", &e))?;
    let sb = sb.map_err(|e| Failure::failed(format!("{}: {}", path.display(), words(e))))?;
    let paths = BTreeMap::from([(sb.index, path.to_owned())]);
    Ok(describe(&sb, &paths, &[]).0)
}

/// Prints the descriptions of volumes, each with the numbers of its members that were not found.
fn print(args: &FindArgs, found: &[(VolumeConfig, Vec<u8>)]) -> Result<(), Failure> {
    // A description is a text, so that it has no place for other paths.
    let bad = |c: &VolumeConfig, e: String| {
        Failure::failed(format!(
            "volume {}: {e}: give the devices other paths",
            c.name
        ))
    };
    let list = found.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    let texts = found.iter().map(|(c, missing)| {
        let toml = toml::to_string(c).map_err(|e| bad(c, e.to_string()))?;
        // The name comes from a device that may be anybody's: it stays within its line.
        let mut text = format!("# volume {}\n", c.name.escape_debug());
        for m in missing {
            text += &[
                "# member ",
                &m.to_string(),
                " was not among the devices; its path is a guess\n",
            ]
            .concat();
        }
        Ok(text + &toml)
    });
    let text = texts.collect::<Result<Vec<_>, Failure>>()?.join("\n");
    args.json.print(&list, || text)
}

/// A volume as `--json` shows it.
///
/// # Errors
/// Its `[io]` has a value that JSON has no form for.
fn shown((c, missing): &(VolumeConfig, Vec<u8>)) -> Result<FoundVolume, Failure> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let member = |m: &MemberConfig| FoundMember {
        path: text(&m.path),
        tail: m.tail.as_deref().map(text),
        tier: m.tier,
    };
    let io = serde_json::to_value(&c.io).and_then(serde_json::from_value);
    let io = io.map_err(|e| Failure::failed(format!("volume {}: [io]: {e}", c.name)))?;
    Ok(FoundVolume {
        description: FoundDescription {
            name: c.name.clone(),
            uuid: c.uuid.clone().unwrap_or_default(),
            extent: c.extent.to_string(),
            policy: c.policy.clone(),
            io,
            members: c.members.iter().map(member).collect(),
        },
        missing_members: missing.clone(),
    })
}

/// The volumes of these members. Members that others have replaced go to `notes`, and of devices that were not `named` so do copies.
fn gathered(
    found: &[(PathBuf, Superblock)],
    named: bool,
    notes: &mut Vec<String>,
) -> Result<Volumes, Failure> {
    let (mut volumes, mut copied) = (Volumes::new(), BTreeSet::new());
    let newest = |uuid| {
        let of_volume = found.iter().map(|f| &f.1).filter(|sb| sb.uuid == uuid);
        of_volume.max_by_key(|sb| sb.generation)
    };
    for (path, sb) in found {
        // A device may have an older table, in which it has another place.
        let place = newest(sb.uuid).and_then(|n| sb.place_in(n));
        let place = place.map_or(sb.index, |i| i as u8);
        if newest(sb.uuid).is_some_and(|n| sb.is_replaced(n)) {
            notes.push(format!(
                "{}: another device is member {} of volume `{}` now, or it was taken out",
                path.display(),
                sb.index,
                sb.name
            ));
        } else if let Err(twins) = add(&mut volumes, (path, place), sb.clone()) {
            // A copy somewhere on the machine hides its own volume, not all others.
            if named {
                return Err(twins);
            }
            notes.push(twins.to_string());
            copied.insert(sb.uuid);
        }
    }
    volumes.retain(|uuid, _| !copied.contains(uuid));
    Ok(volumes)
}

/// Adds the member on `path`. If two paths show the same bytes, only the first one is kept.
fn add(volumes: &mut Volumes, (path, place): (&Path, u8), sb: Superblock) -> Result<(), Failure> {
    let path = std::path::absolute(path).map_err(|e| Failure::file(path, "find its place", &e))?;
    let (newest, places) = volumes
        .entry(sb.uuid)
        .or_insert_with(|| (sb.clone(), BTreeMap::new()));
    match places.get(&place) {
        Some(twin) if !is_same(twin, &path) => {
            return Err(Failure::failed(format!(
                "{} and {} are both member {} of volume `{}`: one is a copy, leave it out",
                twin.display(),
                path.display(),
                place,
                sb.name
            )));
        }
        Some(_) => {}
        None => drop(places.insert(place, path)),
    }
    if sb.generation > newest.generation {
        *newest = sb;
    }
    Ok(())
}

/// Whether both show the same bytes, like a file and its loop device.
fn is_same(a: &Path, b: &Path) -> bool {
    match (stack::layers(a), stack::layers(b)) {
        (Ok(a), Ok(b)) => stack::relation(&a, &b).is_some(),
        _ => false,
    }
}

fn words(e: SuperblockError) -> String {
    match e {
        SuperblockError::Foreign => "carries no volume".to_owned(),
        SuperblockError::Newer(v) => {
            format!("carries a volume of format version {v}: use a newer isotherm")
        }
        SuperblockError::Older(v) => {
            format!(
                "carries a volume of format version {v}, which this program no longer reads: use the isotherm that made it"
            )
        }
        SuperblockError::Damaged => "carries a damaged superblock".to_owned(),
        SuperblockError::Unreadable(error) => format!(
            "cannot be read: {}",
            std::io::Error::from_raw_os_error(error)
        ),
        SuperblockError::Impossible(what) => format!("carries an impossible superblock: {what}"),
    }
}

/// If a disk lacks its tail, looks for it among all devices, and says so if it is not there.
fn look_for_tails(volumes: &Volumes, tails: &mut Vec<(PathBuf, Label)>) {
    if volumes.values().any(|v| lacks_tail(v, tails)) {
        tails.extend(labelled(scan::block_devices()));
    }
    for (sb, paths) in volumes.values().filter(|v| lacks_tail(v, tails)) {
        let disks: Vec<_> = paths.values().map(|p| p.display().to_string()).collect();
        crate::log::note(format_args!(
            "isotherm: volume `{}`: a disk of it ({}) continues on a tail device, which was not found, or was cut short: name the tail, too",
            sb.name,
            disks.join(", ")
        ));
    }
}

/// Whether a disk that was found is shorter than its member, which continues on a tail device, and that is not among `tails`.
fn lacks_tail(
    (sb, paths): &(Superblock, BTreeMap<u8, PathBuf>),
    tails: &[(PathBuf, Label)],
) -> bool {
    paths.iter().any(|(&i, path)| {
        let entry = &sb.members[usize::from(i)];
        let bytes = std::fs::File::open(path).and_then(|f| bytes_of(&f));
        let is_labelled = |t: &(PathBuf, Label)| (t.1.volume, t.1.member) == (sb.uuid, entry.uuid);
        bytes.is_ok_and(|bytes| bytes < entry.bytes) && !tails.iter().any(is_labelled)
    })
}

fn describe(
    sb: &Superblock,
    paths: &BTreeMap<u8, PathBuf>,
    tails: &[(PathBuf, Label)],
) -> (VolumeConfig, Vec<u8>) {
    let mut missing = Vec::new();
    let members = (0u8..)
        .zip(&sb.members)
        .map(|(i, m)| {
            if !paths.contains_key(&i) {
                missing.push(i);
            }
            MemberConfig {
                path: paths
                    .get(&i)
                    .cloned()
                    .unwrap_or_else(|| PathBuf::from(&m.hint)),
                tail: tails
                    .iter()
                    .find(|(_, l)| (l.volume, l.member) == (sb.uuid, m.uuid))
                    .map(|(path, _)| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
                tier: m.tier.0,
                ..MemberConfig::default()
            }
        })
        .collect();
    let config = VolumeConfig {
        name: sb.name.clone(),
        uuid: Some(format_uuid(&sb.uuid)),
        extent: Size(1 << sb.extent_shift),
        policy: sb.policy.clone(),
        qos: Vec::new(),
        io: IoConfig::for_extents(1 << sb.extent_shift),
        members,
    };
    (config, missing)
}
