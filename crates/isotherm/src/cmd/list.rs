//! `isotherm list`: lists all volumes of the machine, from any directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_answers::{Brief, Level, ListedState, ListedVolume, State};
use isotherm_live::VolumeConfig;
use isotherm_live::config::format_uuid;
use isotherm_live::members::scan;
use isotherm_live::volume::description;

use crate::args::VolumesArgs;
use crate::control::Request;
use crate::control::client::{Client, connect, hidden_server};
use crate::table::table;
use crate::{Failure, human, place};

/// A server that does not answer within this time is listed as not answering.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Lists them.
///
/// # Errors
/// Standard output cannot be written. Problems of a volume are shown in its line.
pub fn run(args: &VolumesArgs) -> Result<(), Failure> {
    let mut paths = place::described_volumes();
    paths.extend(place::served_volumes());
    let mut all: BTreeMap<PathBuf, ListedVolume> = BTreeMap::new();
    for path in paths {
        let path = std::path::absolute(&path).unwrap_or(path);
        all.entry(path).or_insert_with_key(|path| describe(path));
    }
    let mut list: Vec<ListedVolume> = all.into_values().collect();
    if args.all {
        list.extend(undescribed(&list));
    }
    args.json.print(&list, || text(&list))
}

/// Describes one volume. It never fails, so that a broken volume does not hide the others.
pub fn describe(volume: &Path) -> ListedVolume {
    described(volume, Client::brief)
}

/// The same for callers that ask repeatedly: without figures that need a walk over the fastest tier.
pub fn summary(volume: &Path) -> ListedVolume {
    described(volume, |client| {
        let both = client.ask(&Request::Look)?;
        isotherm_answers::read(&both["status"]).map_err(Failure::failed)
    })
}

fn described(volume: &Path, ask: fn(&mut Client) -> Result<Brief, Failure>) -> ListedVolume {
    let file = description(volume);
    let config = VolumeConfig::load(&file);
    let name = volume.file_name().unwrap_or_default().to_string_lossy();
    let mut one = ListedVolume {
        name: name.into_owned(),
        volume: Some(volume.to_string_lossy().into_owned()),
        description: Some(file.to_string_lossy().into_owned()),
        uuid: None,
        state: ListedState::Stopped,
        degraded: None,
        health: None,
        volume_bytes: None,
        policy: None,
        device: None,
        front_ends: Vec::new(),
        pid: None,
        note: None,
    };
    match &config {
        Ok(c) => {
            one.uuid.clone_from(&c.uuid);
            one.policy = Some(c.policy.clone());
        }
        Err(e) => {
            one.state = ListedState::Unusable;
            one.note = Some(e.to_string());
        }
    }
    let asked = connect(volume).and_then(|client| match client {
        None => Ok(None),
        Some(client) => ask(&mut client.with_limit(TIMEOUT)).map(Some),
    });
    match asked {
        Ok(None) => {
            if let Some((pid, said)) = hidden_server(volume) {
                one.state = ListedState::Unreachable;
                one.note = Some(said);
                one.pid = Some(pid);
            }
        }
        Ok(Some(status)) => answered(&mut one, status),
        Err(e) => {
            one.state = ListedState::Unreachable;
            one.note = Some(e.to_string());
        }
    }
    one
}

/// Enters what a server says of its volume.
fn answered(one: &mut ListedVolume, status: Brief) {
    one.state = status.state.unwrap_or(State::Serving).into();
    one.degraded = status.degraded;
    one.volume_bytes = status.volume_bytes;
    one.policy = status.policy.or(one.policy.take());
    one.note = status.failure.map(|f| f.reason);
    one.device = status.device;
    one.pid = status.pid;
    one.front_ends = status.front_ends.unwrap_or_default();
    one.health = status.health.as_ref().map(|h| h.state);
    if let Some(health) = status.health.filter(|h| h.state != Level::Well) {
        one.note = Some(health.sentence);
    }
}

/// Volumes on attached devices that have no description here.
fn undescribed(known: &[ListedVolume]) -> Vec<ListedVolume> {
    let found = scan::probe_all(scan::block_devices(), &[], false).found;
    let mut others: BTreeMap<String, (String, String, Vec<PathBuf>)> = BTreeMap::new();
    for (path, sb) in found {
        let uuid = format_uuid(&sb.uuid);
        if known.iter().all(|k| k.uuid.as_ref() != Some(&uuid)) {
            let of = others
                .entry(uuid)
                .or_insert((sb.name.clone(), sb.policy.clone(), Vec::new()));
            of.2.push(path);
        }
    }
    let one = |(uuid, (name, policy, on)): (String, (String, String, Vec<PathBuf>))| {
        let on: Vec<String> = on.iter().map(|p| p.display().to_string()).collect();
        ListedVolume {
            name,
            volume: None,
            description: None,
            uuid: Some(uuid),
            state: ListedState::Undescribed,
            degraded: None,
            health: None,
            volume_bytes: None,
            policy: Some(policy),
            device: None,
            front_ends: Vec::new(),
            pid: None,
            note: Some(format!(
                "on {}: `isotherm find {}` prints a description",
                on.join(", "),
                on.join(" ")
            )),
        }
    };
    others.into_iter().map(one).collect()
}

fn text(list: &[ListedVolume]) -> String {
    if list.is_empty() {
        return format!(
            "no volumes: none is served, and there is no description in {} (volumes that are described elsewhere are listed while they are served)\n",
            place::config_dirs()
                .iter()
                .map(|d| d.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let word = |v: Option<&String>| v.map_or("-", String::as_str).to_owned();
    let row = |v: &ListedVolume| {
        let state = isotherm_answers::word(v.state);
        let state = match v.health {
            Some(health @ (Level::Degraded | Level::Failing)) => {
                format!("{state}, {}", health.word())
            }
            _ => state,
        };
        vec![
            v.name.clone(),
            state,
            v.volume_bytes.map_or_else(|| "-".to_owned(), human::bytes),
            word(v.policy.as_ref()),
            word(v.device.as_ref().map(|d| &d.link)),
            word(v.note.as_ref().or(v.volume.as_ref())),
        ]
    };
    let rows: Vec<Vec<String>> = list.iter().map(row).collect();
    table(
        &["name", "state", "size", "policy", "device", "where"],
        &rows,
    )
}
