//! `serve --on-event PROGRAM`: a program of the user's that is told when the volume's health changes, to send a message or to start a unit.
//!
//! It is started with two words, the volume's name and the new state (`well`, `degraded`, `failing`, `failed`), and can read the object `health`
//! of `status --json` from its standard input. Nothing waits for it but a thread of its own: one runs at a time, it is ended after [`PATIENCE`] with all
//! that it has started, and of changes in the meantime it is told the last one.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use isotherm_control::health::Health;
use rustix::fs::MemfdFlags;

use crate::Failure;

/// A program that still runs after this time is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which it is looked at.
const LOOK: Duration = Duration::from_millis(100);
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

/// What the program is to be told: the state, and the object `health` as JSON.
type Event = (&'static str, String);

/// The thread that starts the program. The start of a program waits for the disk on which it is, which may be the one that fails.
pub(super) struct Hook(Sender<Event>);

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
                .and_then(|mut c| wait(&mut c, PATIENCE));
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

/// The status of a program that ends in time. Otherwise it is killed with all that it has started, and this is `None`.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    let group = rustix::process::Pid::from_child(child);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL)?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_a_program_has_started_ends_with_it() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & echo; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("starts");
        let mut out = child.stdout.take().expect("piped");
        out.read_exact(&mut [0]).expect("it has started the other");
        let ended = wait(&mut child, Duration::from_millis(10));
        assert!(ended.expect("waited").is_none());
        // Both had the pipe, which ends with the last of them.
        assert_eq!(out.read(&mut [0]).expect("read"), 0);
    }
}
