//! `serve --on-event PROGRAM`: a program of the user's that is told when the volume's health changes, to send a message or to start a unit.
//!
//! It is started with two words, the volume's name and the new state (`well`, `degraded`, `failing`, `failed`), and can read the object `health`
//! of `status --json` from its standard input. Nothing waits for it but a thread of its own: one runs at a time, it is ended after [`PATIENCE`] with all
//! that it has started, and of changes in the meantime it is told the last one.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use isotherm_control::health::Health;
use rustix::fs::MemfdFlags;

use crate::Failure;
use crate::programs;

/// A program that still runs after this time is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the program is to be told: the state, and the object `health` as JSON.
type Event = (&'static str, String);

/// The thread that starts the program. The start of a program waits for the disk on which it is, which may be the one that fails.
pub(super) struct Hook(Sender<Event>);

impl Hook {
    /// # Errors
    /// There is no such program, or others could put theirs in its place.
    pub(super) fn new(program: &Path, volume: &str) -> Result<Hook, Failure> {
        let program = programs::checked(program, "--on-event")?;
        let (tell, events) = channel();
        let runner = Runner {
            program,
            volume: volume.to_owned(),
        };
        let thread = std::thread::Builder::new().name("on-event".into());
        (thread.spawn(move || runner.run(&events)))
            .map_err(|e| Failure::failed(format!("no thread for --on-event: {e}")))?;
        Ok(Hook(tell))
    }

    /// The volume's health has changed.
    pub(super) fn changed(&self, health: &Health) {
        let answer = health.answer();
        let text = isotherm_answers::json(&answer).to_string();
        // The thread lives as long as this.
        let _ = self.0.send((answer.state.word(), text));
    }
}

struct Runner {
    program: PathBuf,
    volume: String,
}

impl Runner {
    fn run(&self, events: &Receiver<Event>) {
        while let Ok(first) = events.recv() {
            let (state, text) = events.try_iter().last().unwrap_or(first);
            let outcome = self
                .start(state, &text)
                .and_then(|mut c| programs::wait(&mut c, PATIENCE));
            let shown = self.program.display();
            match outcome {
                Ok(Some(status)) if status.success() => {}
                Ok(Some(status)) => tracing::warn!("--on-event {shown}: failed: {status}"),
                Ok(None) => tracing::warn!(
                    "--on-event {shown}: did not end within a minute and was killed, with what it had started"
                ),
                Err(e) => tracing::warn!("--on-event {shown}: cannot be started: {e}"),
            }
        }
    }

    fn start(&self, state: &str, text: &str) -> std::io::Result<Child> {
        // A pipe could be full before the program reads.
        let mut input = File::from(rustix::fs::memfd_create("health", MemfdFlags::CLOEXEC)?);
        input.write_all(text.as_bytes())?;
        input.seek(SeekFrom::Start(0))?;
        Command::new(&self.program)
            .args([&self.volume, state])
            // The service manager would take its words for the server's.
            .env_remove("NOTIFY_SOCKET")
            .stdin(input)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
    }
}
