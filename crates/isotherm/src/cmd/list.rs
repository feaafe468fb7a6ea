//! `isotherm list`: lists all volumes of the machine, from any directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_live::VolumeConfig;
use isotherm_live::config::format_uuid;
use isotherm_live::device::serving;
use isotherm_live::members::scan;
use isotherm_live::volume::description;
use serde_json::{Value, json};

use crate::args::VolumesArgs;
use crate::control::Request;
use crate::control::client::{Client, connect};
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
    let mut all: BTreeMap<PathBuf, Value> = BTreeMap::new();
    for path in paths {
        let path = std::path::absolute(&path).unwrap_or(path);
        all.entry(path).or_insert_with_key(|path| describe(path));
    }
    let mut list: Vec<Value> = all.into_values().collect();
    if args.all {
        list.extend(undescribed(&list));
    }
    args.json.print(&list, || text(&list))
}

/// Describes one volume. It never fails, so that a broken volume does not hide the others.
pub fn describe(volume: &Path) -> Value {
    described(volume, |client| client.ask(&Request::Status))
}

/// The same for callers that ask repeatedly: without figures that need a walk over the fastest tier.
pub fn summary(volume: &Path) -> Value {
    described(volume, |client| {
        let mut both = client.ask(&Request::Look)?;
        Ok(both["status"].take())
    })
}

fn described(volume: &Path, ask: fn(&mut Client) -> Result<Value, Failure>) -> Value {
    let file = description(volume);
    let config = VolumeConfig::load(&file);
    let name = volume.file_name().unwrap_or_default().to_string_lossy();
    let mut one = json!({
        "name": name, "volume": volume.to_string_lossy(), "description": file.to_string_lossy(), "uuid": null,
        "state": "stopped", "degraded": null, "health": null,
        "volume_bytes": null, "policy": null, "device": null, "front_ends": [], "pid": null, "note": null,
    });
    match &config {
        Ok(c) => {
            one["uuid"] = json!(c.uuid);
            one["policy"] = json!(c.policy);
        }
        Err(e) => {
            one["state"] = json!("unusable");
            one["note"] = json!(e.to_string());
        }
    }
    let asked = connect(volume).and_then(|client| match client {
        None => Ok(None),
        Some(client) => ask(&mut client.with_limit(TIMEOUT)).map(Some),
    });
    match asked {
        Ok(None) => {
            let members = config.as_ref().map_or(&[][..], |c| &c.members[..]);
            if let Some(pid) = members.iter().find_map(|m| serving(&m.path)) {
                one["state"] = json!("unreachable");
                one["pid"] = json!(pid);
                one["note"] = json!(format!(
                    "served by process {pid}, but its control socket {} is gone: `kill -TERM {pid}` stops it properly",
                    place::socket_path(volume).display()
                ));
            }
        }
        Ok(Some(status)) => {
            for key in [
                "state",
                "degraded",
                "volume_bytes",
                "policy",
                "device",
                "pid",
            ] {
                one[key] = status[key].clone();
            }
            one["front_ends"] = status["front_ends"].clone();
            let health = &status["health"];
            one["health"] = health["state"].clone();
            one["note"] = if health["state"].as_str().is_none_or(|s| s == "well") {
                status["failure"]["reason"].clone()
            } else {
                health["sentence"].clone()
            };
        }
        Err(e) => {
            one["state"] = json!("unreachable");
            one["note"] = json!(e.to_string());
        }
    }
    one
}

/// Volumes on attached devices that have no description here.
fn undescribed(known: &[Value]) -> Vec<Value> {
    let found = scan::probe_all(scan::block_devices(), &[], false).found;
    let mut others: BTreeMap<String, (String, String, Vec<PathBuf>)> = BTreeMap::new();
    for (path, sb) in found {
        let uuid = format_uuid(&sb.uuid);
        if known.iter().all(|k| k["uuid"] != json!(uuid)) {
            let of = others
                .entry(uuid)
                .or_insert((sb.name.clone(), sb.policy.clone(), Vec::new()));
            of.2.push(path);
        }
    }
    let one = |(uuid, (name, policy, on)): (String, (String, String, Vec<PathBuf>))| {
        let on: Vec<String> = on.iter().map(|p| p.display().to_string()).collect();
        json!({
            "name": name, "volume": null, "description": null, "uuid": uuid, "state": "undescribed", "degraded": null, "health": null,
            "volume_bytes": null, "policy": policy, "device": null, "front_ends": [], "pid": null,
            "note": format!("on {}: `isotherm find {}` prints a description", on.join(", "), on.join(" ")),
        })
    };
    others.into_iter().map(one).collect()
}

fn text(list: &[Value]) -> String {
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
    let word = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let rows: Vec<Vec<String>> = list
        .iter()
        .map(|v| {
            let state = match v["health"].as_str() {
                Some(health @ ("degraded" | "failing")) => {
                    format!("{}, {health}", word(&v["state"]))
                }
                _ => word(&v["state"]),
            };
            let size = v["volume_bytes"].as_u64();
            vec![
                word(&v["name"]),
                state,
                size.map_or_else(|| "-".to_owned(), human::bytes),
                word(&v["policy"]),
                word(&v["device"]["link"]),
                v["note"]
                    .as_str()
                    .or(v["volume"].as_str())
                    .unwrap_or("-")
                    .to_owned(),
            ]
        })
        .collect();
    table(
        &["name", "state", "size", "policy", "device", "where"],
        &rows,
    )
}
