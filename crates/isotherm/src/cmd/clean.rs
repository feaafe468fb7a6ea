//! `isotherm clean`: what only flash has is written to the disks now.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_answers::{CleanBegun, Cleaned, Warm};
use serde::Deserialize;
use serde_json::Value;

use crate::Failure;
use crate::args::CleanArgs;
use crate::control::Request;
use crate::control::client::Client;
use crate::progress::Progress;

/// Interval at which the server is asked how far it is.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Interval at which it is said that the disk takes nothing.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// How far a server is: what commands need of the answer of `stats`, so that nothing else in it can end a command whose work is under way.
#[derive(Deserialize)]
pub(super) struct HowFar {
    #[serde(default)]
    failure: Value,
    pub(super) copies: Copies,
}

/// See [`isotherm_answers::Copies`].
#[derive(Deserialize)]
pub(super) struct Copies {
    #[serde(default)]
    dirty_bytes: u64,
    #[serde(default)]
    cleaning_fails: bool,
    draining: Value,
    #[serde(default)]
    pub(super) warm: Option<Warm>,
}

/// Asks the server of a volume how much is dirty.
#[derive(Default)]
pub(super) struct Watch {
    server: Option<Client>,
    most: u64,
    /// When it was said last that the disk takes nothing.
    said: Option<Instant>,
}

impl Watch {
    pub(super) fn new(volume: &Path) -> Watch {
        Watch {
            server: super::server_of(volume).ok().flatten(),
            ..Watch::default()
        }
    }

    /// Shows how much was cleaned, and says so when the slowest tier takes nothing.
    pub(super) fn show(&mut self, progress: &Progress) {
        let Some(server) = &mut self.server else {
            return;
        };
        if let Ok(HowFar { copies, .. }) = server.ask_for(&Request::Stats) {
            self.look(&copies, progress);
        }
    }

    fn look(&mut self, copies: &Copies, progress: &Progress) {
        self.most = self.most.max(copies.dirty_bytes);
        progress.file("written home", self.most - copies.dirty_bytes, self.most);
        let is_time = self.said.is_none_or(|at| at.elapsed() > SAY_AGAIN);
        if copies.cleaning_fails && is_time {
            self.said = Some(Instant::now());
            crate::log::note(format_args!(
                "isotherm: the slowest tier does not take {} bytes, and they are tried again: see `isotherm status`, the log and the disk (is there space?)",
                copies.dirty_bytes
            ));
        }
    }
}

/// Lets a served volume write home what is dirty, and waits for that.
///
/// # Errors
/// The volume is not served, has failed, or is read-only.
pub fn run(args: &CleanArgs) -> Result<(), Failure> {
    let volume = &args.of.volume;
    let v = volume.display();
    let Some(mut server) = super::server_of(volume)? else {
        return Err(Failure::failed(format!(
            "{v}: is not served, and its server cleans it: `isotherm serve {v}`; or take its flash out (`isotherm cache {v} remove`), which cleans it first"
        )));
    };
    let begun: CleanBegun = server.ask_for(&Request::Clean)?;
    let progress = Progress::files();
    let mut watch = Watch::default();
    let copies = loop {
        let stats: HowFar = server.ask_for(&Request::Stats)?;
        if !stats.failure.is_null() {
            progress.finish();
            return Err(Failure::failed(format!(
                "{v}: the volume has failed: see `isotherm status {v}`"
            )));
        }
        if stats.copies.draining.is_null() {
            break stats.copies;
        }
        watch.look(&stats.copies, &progress);
        std::thread::sleep(LOOK_AGAIN);
    };
    progress.finish();
    let result = Cleaned {
        volume: volume.to_string_lossy().into_owned(),
        dirty_extents_before: begun.dirty_extents,
        dirty_bytes: copies.dirty_bytes,
    };
    args.of.json.print(&result, || {
        let before = result.dirty_extents_before;
        match result.dirty_bytes {
            0 => format!("{v}: {before} extents were dirty and are on the disks now\n"),
            left => format!(
                "{v}: {before} extents were dirty, and are on the disks now; {left} bytes were written meanwhile and are dirty\n"
            ),
        }
    })
}
