//! `isotherm assemble`: finds the volumes that are complete, and starts their services.
//!
//! A volume is assembled only if a description in the configuration directories names its identity. So a disk that somebody attaches cannot
//! get itself served.

mod from_store;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_answers::{AssembledState, AssembledVolume};
use isotherm_core::store::superblock::SuperblockError;
use isotherm_live::VolumeConfig;
use isotherm_live::config::{format_uuid, parse_uuid};
use isotherm_live::members::{self, probe::Second, probe::probe};
use isotherm_live::tail::Label;
use isotherm_live::volume::description;

use crate::args::AssembleArgs;
use crate::control::client::connect;
use crate::table::table;
use crate::{Failure, place};

/// Runs the command.
///
/// # Errors
/// A named device cannot be read, or a service cannot be started.
pub fn run(args: &AssembleArgs) -> Result<(), Failure> {
    if let (Some(url), Some(volume)) = (&args.from_store, &args.volume) {
        return from_store::run(args, url, volume);
    }
    let mut wanted = BTreeSet::new();
    for device in &args.devices {
        let seen = probe(device, Second::Anywhere);
        match seen.map_err(|e| Failure::file(device, "open it", &e))? {
            Ok(sb) => drop(wanted.insert(format_uuid(&sb.uuid))),
            Err(_) => match Label::read(device) {
                Ok(Some(label)) => drop(wanted.insert(format_uuid(&label.volume))),
                _ => crate::log::note(format_args!(
                    "isotherm: {}: carries no volume",
                    device.display()
                )),
            },
        }
    }
    let mut list = Vec::new();
    let mut failures = Vec::new();
    for volume in place::described_volumes() {
        let config = match VolumeConfig::load(&description(&volume)) {
            Ok(config) => config,
            Err(e) => {
                failures.push(e.to_string());
                continue;
            }
        };
        let named = config.uuid.as_ref().is_some_and(|u| wanted.contains(u));
        if args.devices.is_empty() || named {
            let mut one = judge(&volume, &config);
            if args.start && one.state == AssembledState::Complete {
                match start(&volume) {
                    Ok(()) => one.state = AssembledState::Started,
                    Err(e) => failures.push(e.to_string()),
                }
            }
            wanted.remove(config.uuid.as_deref().unwrap_or_default());
            list.push(one);
        }
    }
    for uuid in wanted {
        crate::log::note(format_args!(
            "isotherm: volume {uuid}: no description of it in {}: `isotherm find` prints one",
            place::SYSTEM_CONFIG
        ));
    }
    args.json.print(&list, || text(&list))?;
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Failure::failed(failures.join("; ")))
    }
}

fn judge(volume: &Path, config: &VolumeConfig) -> AssembledVolume {
    let mut one = AssembledVolume {
        name: config.name.clone(),
        volume: volume.to_string_lossy().into_owned(),
        uuid: config.uuid.clone(),
        state: AssembledState::Served,
        members: config.members.len(),
        missing: Vec::new(),
        note: None,
    };
    if matches!(connect(volume), Ok(Some(_))) {
        return one;
    }
    match absent(config.clone(), volume) {
        Ok(list) => {
            one.state = if list.is_empty() {
                AssembledState::Complete
            } else {
                AssembledState::Incomplete
            };
            let paths = list.iter().map(|p| p.to_string_lossy().into_owned());
            one.missing = paths.collect();
        }
        Err(e) => {
            one.state = AssembledState::Refused;
            one.note = Some(e.to_string());
        }
    }
    one
}

/// Paths of absent members of `volume`, which are searched for by identity.
///
/// # Errors
/// The description cannot be read.
pub fn missing_members(volume: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |e: isotherm_live::Error| Failure::failed(e.to_string());
    let config = VolumeConfig::load(&description(volume)).map_err(failed)?;
    absent(config, volume).map_err(failed)
}

fn absent(mut config: VolumeConfig, volume: &Path) -> Result<Vec<PathBuf>, isotherm_live::Error> {
    members::find(&mut config, &description(volume))?;
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    let is_there = |path: &Path| match probe(path, Second::At(&[])) {
        Ok(Ok(sb)) => uuid.is_none_or(|u| u == sb.uuid),
        // It is a member of a volume with a damaged superblock; opening the volume reports that.
        Ok(Err(SuperblockError::Foreign)) | Err(_) => false,
        Ok(Err(_)) => true,
    };
    let is_tail = |path: &Path| {
        let label = Label::read(path).ok().flatten();
        label.is_some_and(|l| uuid.is_none_or(|u| u == l.volume))
    };
    let mut missing = Vec::new();
    for m in config.members.into_iter().filter(|m| !m.removed) {
        let tail = m.tail.filter(|t| !is_tail(t));
        let data = Some(m.path).filter(|p| !is_there(p));
        missing.extend(data.into_iter().chain(tail));
    }
    Ok(missing)
}

/// The name of a volume's systemd unit, if the volume's name can be part of one.
///
/// # Errors
/// The volume's name has a character that unit names cannot have.
pub fn unit(volume: &Path) -> Result<String, Failure> {
    let name = volume
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return Err(Failure::failed(format!(
            "`{name}`: the name of a service can have letters, digits and - _ . : only: make the volume under such a name"
        )));
    }
    Ok(format!("isotherm@{name}.service"))
}

fn start(volume: &Path) -> Result<(), Failure> {
    let unit = unit(volume)?;
    let ran = Command::new("systemctl")
        .args(["start", "--no-block", &unit])
        .output();
    match ran {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(Failure::failed(format!(
            "{unit}: not started: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        ))),
        Err(e) => Err(Failure::failed(format!(
            "{unit}: not started: systemctl: {}: without systemd run `isotherm serve {} --device`",
            crate::failure::reason(&e),
            volume.display()
        ))),
    }
}

fn text(list: &[AssembledVolume]) -> String {
    if list.is_empty() {
        return "no volumes: the directories of descriptions have none, or none of theirs has these devices\n".into();
    }
    let row = |v: &AssembledVolume| {
        let (all, missing) = (v.members, &v.missing);
        vec![
            v.name.clone(),
            isotherm_answers::word(v.state),
            format!("{} of {all}", all - missing.len().min(all)),
            v.note.clone().unwrap_or_else(|| missing.join(", ")),
        ]
    };
    let rows: Vec<Vec<String>> = list.iter().map(row).collect();
    table(&["name", "state", "members", "missing"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_made_of_names_that_fit() {
        let of = |p: &str| unit(Path::new(p)).ok();
        assert_eq!(
            of("/etc/isotherm/my-vol.1").as_deref(),
            Some("isotherm@my-vol.1.service")
        );
        assert_eq!(of("a b"), None);
        assert_eq!(of("/"), None);
    }
}
