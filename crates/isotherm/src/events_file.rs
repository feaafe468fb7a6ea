//! A recording of events that `serve` itself writes.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use isotherm_events::Ending;
use isotherm_live::Handle;
use isotherm_live::recorder::Recorded;

use crate::Failure;

/// A file that a thread of its own writes. The volume is served whatever happens to the file; the outcome is reported on standard error.
pub struct EventsFile {
    path: PathBuf,
    thread: JoinHandle<()>,
}

impl EventsFile {
    /// Begins to record to `path`, which must not exist.
    ///
    /// # Errors
    /// The file cannot be created, or the volume cannot be recorded.
    pub fn start(path: &Path, handle: &Handle, limit: u64) -> Result<EventsFile, Failure> {
        let file =
            isotherm_paths::create(path, 0o600).map_err(|e| Failure::file(path, "create", &e))?;
        let recording = handle
            .record_events()
            .map_err(|e| Failure::failed(e.to_string()))?;
        let name = path.to_owned();
        let thread = std::thread::Builder::new()
            .name("events".into())
            .spawn(move || {
                let written = recording.write_to(BufWriter::with_capacity(1 << 18, file), limit);
                match written {
                    Ok(done) => say(&name, &done),
                    Err(e) => tracing::warn!(
                        "{}: the recording ended: {}; the volume is served on",
                        name.display(),
                        crate::failure::reason(&e)
                    ),
                }
            })
            .map_err(|e| Failure::failed(format!("cannot start a thread to record: {e}")))?;
        Ok(EventsFile {
            path: path.to_owned(),
            thread,
        })
    }

    /// Waits until everything is written. The volume is closed, so the recording ends.
    pub fn finish(self) {
        if self.thread.join().is_err() {
            tracing::warn!("{}: is not whole", self.path.display());
        }
    }
}

fn say(path: &Path, done: &Recorded) {
    let path = path.display();
    let Some(end) = &done.end else {
        return tracing::warn!("{path}: broke off, {} bytes", done.bytes);
    };
    let why = match end.ending {
        Ending::Closed => "",
        Ending::Asked => ", at its limit",
        Ending::FellBehind => ", because the writer fell behind the engine",
        Ending::Untold => ", because the engine was changed behind its back",
    };
    tracing::info!(
        "{path}: {} events, {} requests, {} bytes{why}",
        end.events,
        end.requests,
        done.bytes
    );
}
