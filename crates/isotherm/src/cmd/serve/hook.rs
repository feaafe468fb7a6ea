//! `serve --on-event PROGRAM`: a program of the user's that is told when the volume's health changes, to send a message or to start a unit.
//!
//! It is started with two words, the volume's name and the new state (`well`, `degraded`, `failing`, `failed`), and can read the object `health`
//! of `status --json` from its standard input. Nothing here waits for it: one runs at a time, it is ended after [`PATIENCE`], and of changes
//! in the meantime it is told the last one.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_control::health::Health;
use rustix::fs::MemfdFlags;

use crate::Failure;

/// A program that still runs after this time is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Permission to run a file, for anybody.
const MAY_RUN: u32 = 0o111;
/// Permission to change it, for others than its owner.
const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Whether somebody else than root and this process' user may change a file, or what a directory has under a name.
fn others_may_change(m: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    // In a sticky directory, everybody has names of their own.
    let may_write = m.mode() & OTHERS_MAY_WRITE != 0 && !(m.is_dir() && m.mode() & STICKY != 0);
    may_write || (m.uid() != own && m.uid() != 0)
}

/// The program, and what it is to be told.
pub(super) struct Hook {
    program: PathBuf,
    volume: String,
    running: Option<(Child, Instant)>,
    due: Option<(&'static str, String)>,
}

impl Hook {
    /// # Errors
    /// There is no such program, or others could put theirs in its place.
    pub(super) fn new(program: &Path, volume: &str) -> Result<Hook, Failure> {
        let failed = |e: &std::io::Error| Failure::file(program, "use it for --on-event", e);
        let program = std::fs::canonicalize(program).map_err(|e| failed(&e))?;
        let m = std::fs::metadata(&program).map_err(|e| failed(&e))?;
        let shown = program.display();
        let refused = |what: &str| Failure::usage(format!("--on-event {shown}: {what}"));
        if !m.is_file() || m.mode() & MAY_RUN == 0 {
            return Err(refused("is no program: give a file that may be run"));
        }
        for on_the_way in program.ancestors() {
            let m = std::fs::metadata(on_the_way).map_err(|e| failed(&e))?;
            if others_may_change(&m) {
                return Err(refused(&format!(
                    "others could change what the server runs: {} must belong to root or to the user of the server, who alone may write to it (`chmod go-w`)",
                    on_the_way.display()
                )));
            }
        }
        Ok(Hook {
            program,
            volume: volume.to_owned(),
            running: None,
            due: None,
        })
    }

    /// The volume's health has changed.
    pub(super) fn changed(&mut self, health: &Health) {
        let answer = health.answer();
        let text = isotherm_answers::json(&answer).to_string();
        self.due = Some((answer.state.word(), text));
    }

    /// Starts the program if it is due, and looks after one that runs. Call it again and again.
    pub(super) fn look(&mut self) {
        if let Some((child, since)) = &mut self.running {
            let said = match child.try_wait() {
                Ok(None) if since.elapsed() < PATIENCE => return,
                Ok(None) => {
                    *since = Instant::now();
                    // It may have ended at this moment. Its end is seen later, because the kernel can hold it.
                    let _ = child.kill();
                    return self.warn("did not end within a minute and is killed");
                }
                Ok(Some(status)) => (!status.success()).then(|| format!("failed: {status}")),
                Err(e) => Some(format!("is lost sight of: {e}")),
            };
            self.running = None;
            if let Some(said) = said {
                self.warn(&said);
            }
        }
        if let Some((state, text)) = self.due.take() {
            match self.start(state, &text) {
                Ok(child) => self.running = Some((child, Instant::now())),
                Err(e) => self.warn(&format!("cannot be started: {e}")),
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
            .spawn()
    }

    fn warn(&self, what: &str) {
        tracing::warn!("--on-event {}: {what}", self.program.display());
    }
}
