//! `isotherm warm`: data is copied to flash before anybody reads it.

use std::fs::File;
use std::path::{Path, PathBuf};

use isotherm_answers::{Warm, WarmEnd, Warmed};
use isotherm_classify::files::extents;

use super::classify::placed;
use super::clean::{HowFar, LOOK_AGAIN};
use crate::Failure;
use crate::args::WarmArgs;
use crate::control::Request;
use crate::control::client::{Client, served};
use crate::control::warm::WarmAsk;
use crate::human::bytes;
use crate::progress::Progress;

/// Most pieces of files in one request, so that they fit into a line of the control socket.
const PIECES_MAX: usize = 1 << 15;

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
    let begun: Option<Warm> = server.ask_for(&Request::Warm { what })?;
    let name = volume.to_string_lossy().into_owned();
    if args.stop {
        let result = Warmed::new(name, begun.as_ref());
        return args.json.print(&result, || ended(volume, begun.as_ref()));
    }
    let warm = wait(&mut server, volume, begun.map(|w| w.asked_ns))?;
    let result = Warmed::new(name, Some(&warm));
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
fn wait(server: &mut Client, volume: &Path, asked: Option<u64>) -> Result<Warm, Failure> {
    let progress = Progress::files();
    let last = loop {
        let stats: HowFar = server.ask_for(&Request::Stats)?;
        let warm = stats.copies.warm.filter(|w| Some(w.asked_ns) == asked);
        match &warm {
            Some(w) if w.end.is_none() => {
                progress.file("on flash or looked at", looked_at(w), w.wanted_bytes);
            }
            _ => break warm,
        }
        std::thread::sleep(LOOK_AGAIN);
    };
    progress.finish();
    let v = volume.display();
    let Some((warm, end)) = last.and_then(|w| w.end.map(|end| (w, end))) else {
        return Err(Failure::failed(format!(
            "{v}: the copying ended early, because the volume was opened anew (its members were changed, or a recording began); repeat this"
        )));
    };
    let why = match end {
        WarmEnd::Complete => return Ok(warm),
        WarmEnd::Stopped => "`isotherm warm --stop` ended it".to_owned(),
        WarmEnd::Policy => "the policy or its write mode was changed; repeat this".to_owned(),
        WarmEnd::Flash => format!("flash failed a write: see `isotherm doctor {v}`"),
        WarmEnd::Closed => {
            format!("the volume is closing or has failed: see `isotherm status {v}`")
        }
    };
    Err(Failure::failed(format!(
        "{v}: the copying ended early, with {} copied: {why}",
        bytes(warm.copied_bytes)
    )))
}

/// Bytes of which the outcome is known.
fn looked_at(w: &Warm) -> u64 {
    w.copied_bytes + w.there_bytes + w.unreadable_bytes + w.did_not_fit_bytes + w.in_use_bytes
}

fn ended(volume: &Path, warm: Option<&Warm>) -> String {
    let v = volume.display();
    match warm {
        None => format!("{v}: nothing was being copied\n"),
        Some(w) => format!("{v}: no more is copied; {} were\n", bytes(w.copied_bytes)),
    }
}

fn words(volume: &Path, warm: &Warm) -> String {
    let v = volume.display();
    let mut out = format!(
        "{v}: {} copied to flash, {} were there\n",
        bytes(warm.copied_bytes),
        bytes(warm.there_bytes)
    );
    let unread = format!("could not be read from the disk: see `isotherm check {v} --data`");
    for (n, why) in [
        (
            warm.did_not_fit_bytes,
            "did not fit: flash is full, and nothing is pushed out for them",
        ),
        (warm.unreadable_bytes, &unread),
        (warm.in_use_bytes, "were in use all the time"),
    ] {
        if n > 0 {
            out.extend(["  ", &bytes(n), " ", why, "\n"]);
        }
    }
    out
}
