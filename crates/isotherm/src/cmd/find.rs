//! `isotherm find`: descriptions of volumes from the superblocks of their members.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use isotherm_core::MemberId;
use isotherm_core::store::superblock::{Superblock, SuperblockError};
use isotherm_core::store::{BLOCK, Media, open};
use isotherm_live::config::{IoConfig, MemberConfig, Size, VolumeConfig, format_uuid};
use isotherm_live::device::{Device, OpenHow};
use isotherm_live::media::FileMedia;
use serde_json::json;

use crate::Failure;
use crate::args::FindArgs;

/// Look at devices and print a description for each volume found.
///
/// # Errors
/// No device carries a volume, or one cannot be opened.
pub fn run(args: &FindArgs) -> Result<(), Failure> {
    let mut volumes: BTreeMap<[u8; 16], (Superblock, BTreeMap<u8, PathBuf>)> = BTreeMap::new();
    let mut nothing = Vec::new();
    for path in &args.devices {
        match superblock(path)? {
            Ok(sb) => {
                let path = std::path::absolute(path)
                    .map_err(|e| Failure::file(path, "find its place", &e))?;
                let entry = volumes
                    .entry(sb.uuid)
                    .or_insert_with(|| (sb.clone(), BTreeMap::new()));
                if let Some(twin) = entry.1.insert(sb.index, path.clone()) {
                    return Err(Failure::failed(format!(
                        "{} and {} are both member {} of volume `{}`: one is a copy, leave it out",
                        twin.display(),
                        path.display(),
                        sb.index,
                        sb.name
                    )));
                }
                if sb.generation > entry.0.generation {
                    entry.0 = sb;
                }
            }
            Err(e) => nothing.push(format!("{}: {e}", path.display())),
        }
    }
    if volumes.is_empty() {
        return Err(Failure::failed(format!(
            "none of these devices carries a volume: {}",
            nothing.join("; ")
        )));
    }
    for line in &nothing {
        eprintln!("isotherm: {line}");
    }
    let found: Vec<(VolumeConfig, Vec<u8>)> = volumes
        .values()
        .map(|(sb, paths)| describe(sb, paths))
        .collect();
    let list: Vec<_> = found
        .iter()
        .map(|(c, missing)| json!({"description": c, "missing_members": missing}))
        .collect();
    let texts = found.iter().map(|(c, missing)| {
        let toml = toml::to_string(c).map_err(|e| Failure::failed(e.to_string()))?;
        let mut text = format!("# volume {}\n", c.name);
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

/// The better superblock of a device.
fn superblock(path: &Path) -> Result<Result<Superblock, String>, Failure> {
    // Under a shared lock: the superblocks of a served volume are not to be read half-written.
    let how = OpenHow {
        create: None,
        read_only: true,
        buffered: false,
        fresh: false,
    };
    let device = Device::open(path, how).map_err(|e| Failure::failed(e.to_string()))?;
    let bytes = device.bytes;
    let devices = [Some(device)];
    let mut media = FileMedia::new(&devices);
    let mut read = |at: u64| {
        let mut block = vec![0; BLOCK];
        if at + BLOCK as u64 > bytes {
            return Err(SuperblockError::Foreign);
        }
        media
            .read(MemberId(0), at, &mut block)
            .map_err(|_| SuperblockError::Damaged)?;
        Superblock::decode(&block)
    };
    let first = read(0);
    // With the first gone, the copy lies at the end of the metadata, which only a search finds: it is one block below a
    // multiple of 1 MiB.
    let second = match &first {
        Ok(sb) => read(sb.copy_offset(MemberId(sb.index))),
        Err(_) => (1..=1024u64)
            .map(|mib| read((mib << 20) - BLOCK as u64))
            .find(Result::is_ok)
            .unwrap_or(Err(SuperblockError::Foreign)),
    };
    Ok(open::choose(first, second).map_err(|e| match e {
        SuperblockError::Foreign => "carries no volume".to_owned(),
        SuperblockError::Newer(v) => {
            format!("carries a volume of format version {v}: use a newer isotherm")
        }
        SuperblockError::Older(v) => {
            format!("carries a volume of format version {v}, which this program no longer reads: use the isotherm that made it")
        }
        SuperblockError::Damaged => "carries a damaged superblock".to_owned(),
        SuperblockError::Impossible(what) => format!("carries an impossible superblock: {what}"),
    }))
}

fn describe(sb: &Superblock, paths: &BTreeMap<u8, PathBuf>) -> (VolumeConfig, Vec<u8>) {
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
        io: IoConfig::for_extents(1 << sb.extent_shift),
        members,
    };
    (config, missing)
}
