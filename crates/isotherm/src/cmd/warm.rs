//! `isotherm warm`: data is copied to flash before anybody reads it.

use std::fs::File;
use std::path::{Path, PathBuf};

use isotherm_classify::files::extents;
use serde_json::{Value, json};

use super::classify::placed;
use super::clean::LOOK_AGAIN;
use crate::Failure;
use crate::args::WarmArgs;
use crate::control::Request;
use crate::control::client::{Client, served};
use crate::control::warm::WarmAsk;
use crate::human::bytes;
use crate::progress::Progress;

/// Most pieces of files in one request, so that they fit into a line of the control socket.
const PIECES_MAX: usize = 1 << 15;

/// The figures that are shown, under their names in `stats`.
const FIGURES: [&str; 6] = [
    "wanted_bytes",
    "copied_bytes",
    "there_bytes",
    "unreadable_bytes",
    "did_not_fit_bytes",
    "in_use_bytes",
];

/// Asks the server of a volume to copy data to flash, and waits for the end.
///
/// # Errors
/// The volume is not served or keeps no copies, a file is not on it, or the copying ended early.
pub fn run(args: &WarmArgs) -> Result<(), Failure> {
    let volume = &args.volume;
    let mut server = served(volume)?;
    let what = if args.stop {
        WarmAsk::Stop
    } else if args.metadata {
        WarmAsk::Metadata
    } else if let Some(classes) = &args.class {
        WarmAsk::Classes(classes.0.clone())
    } else if args.file.is_empty() {
        WarmAsk::All
    } else {
        WarmAsk::Ranges(pieces(&mut server, volume, &args.file)?)
    };
    let begun = server.ask(&Request::Warm { what })?;
    if args.stop {
        let result = shown(volume, &begun);
        return args.json.print(&result, || ended(volume, &begun));
    }
    let warm = wait(&mut server, volume, &begun["asked_ns"])?;
    let result = shown(volume, &warm);
    args.json.print(&result, || words(volume, &warm))
}

/// The pieces of files on the volume.
fn pieces(
    server: &mut Client,
    volume: &Path,
    files: &[PathBuf],
) -> Result<Vec<(u64, u64)>, Failure> {
    let mut all = Vec::new();
    for path in files {
        let place = placed(server, path, volume, None)?;
        let file = File::open(path).map_err(|e| Failure::file(path, "open", &e))?;
        let meta = file
            .metadata()
            .map_err(|e| Failure::file(path, "read", &e))?;
        if !meta.is_file() {
            return Err(Failure::failed(format!(
                "{}: is no regular file: name the files in it (`find DIR -type f`)",
                path.display()
            )));
        }
        // Data that was not written back yet has no place.
        file.sync_all()
            .map_err(|e| Failure::file(path, "write back", &e))?;
        let found = extents(&file).map_err(|e| {
            Failure::failed(format!(
                "{}: its file system does not tell where its data is (FIEMAP): {e}",
                path.display()
            ))
        })?;
        all.extend(found.into_iter().map(|(at, n)| (place.offset + at, n)));
        if all.len() > PIECES_MAX {
            return Err(Failure::failed(format!(
                "{}: with it the files have more than {PIECES_MAX} pieces: name fewer files at a time",
                path.display()
            )));
        }
    }
    Ok(all)
}

/// Waits until the copying that was asked for at this time has ended. Returns its figures.
fn wait(server: &mut Client, volume: &Path, asked: &Value) -> Result<Value, Failure> {
    let progress = Progress::files();
    let warm = loop {
        let stats = server.ask(&Request::Stats)?;
        let warm = &stats["copies"]["warm"];
        if warm["asked_ns"] != *asked || !warm["end"].is_null() {
            break warm.clone();
        }
        let all = warm["wanted_bytes"].as_u64().unwrap_or_default();
        progress.file("on flash or looked at", looked_at(warm), all);
        std::thread::sleep(LOOK_AGAIN);
    };
    progress.finish();
    let v = volume.display();
    let early = |why: &str| {
        Err(Failure::failed(format!(
            "{v}: the copying ended early, with {} copied: {why}",
            bytes(warm["copied_bytes"].as_u64().unwrap_or_default())
        )))
    };
    match warm["end"].as_str().filter(|_| warm["asked_ns"] == *asked) {
        Some("complete") => Ok(warm),
        Some("stopped") => early("`isotherm warm --stop` ended it"),
        Some("policy") => early("the policy or its write mode was changed; repeat this"),
        Some("flash") => early(&format!("flash failed a write: see `isotherm doctor {v}`")),
        Some(_) => early(&format!(
            "the volume is closing or has failed: see `isotherm status {v}`"
        )),
        None => Err(Failure::failed(format!(
            "{v}: the copying ended early, because the volume was opened anew (its members were changed, or a recording began); repeat this"
        ))),
    }
}

/// Bytes of which the outcome is known.
fn looked_at(warm: &Value) -> u64 {
    let n = |k: &&str| warm[*k].as_u64().unwrap_or_default();
    FIGURES[1..].iter().map(n).sum()
}

fn shown(volume: &Path, warm: &Value) -> Value {
    let mut result = json!({"volume": volume.to_string_lossy(), "end": warm["end"]});
    for key in FIGURES {
        result[key] = json!(warm[key].as_u64().unwrap_or_default());
    }
    result
}

fn ended(volume: &Path, warm: &Value) -> String {
    let v = volume.display();
    if warm.is_null() {
        return format!("{v}: nothing was being copied\n");
    }
    let copied = warm["copied_bytes"].as_u64().unwrap_or_default();
    format!("{v}: no more is copied; {} were\n", bytes(copied))
}

fn words(volume: &Path, warm: &Value) -> String {
    let v = volume.display();
    let n = |k: &str| warm[k].as_u64().unwrap_or_default();
    let mut out = format!(
        "{v}: {} copied to flash, {} were there\n",
        bytes(n("copied_bytes")),
        bytes(n("there_bytes"))
    );
    let mut more = |key: &str, why: &str| {
        if n(key) > 0 {
            out.extend(["  ", &bytes(n(key)), " ", why, "\n"]);
        }
    };
    more(
        "did_not_fit_bytes",
        "did not fit: flash is full, and nothing is pushed out for them",
    );
    more(
        "unreadable_bytes",
        &format!("could not be read from the disk: see `isotherm check {v} --data`"),
    );
    more("in_use_bytes", "were in use all the time");
    out
}
