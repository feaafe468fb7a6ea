//! How serving ends: a stop that is asked for is refused while the volume is in use, a signal waits for the users, a second
//! one does not.
//!
//! ```text
//! signal ─► no new clients ─► flush ─► users gone? ─ yes ─► checkpoint, clean mark, exit
//!                                        │ no: look again, until --stop-timeout or a second signal: cut them off ─┘
//! ```

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use isotherm_core::RequestOp;
use isotherm_live::nbd::server::Server as NbdServer;
use isotherm_live::{Server, block_file};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::device::Shown;
use crate::Failure;

/// How often the main thread looks whether the engine's thread is still there.
const WATCH: Duration = Duration::from_millis(500);
/// How often it looks whether users have gone.
const USERS: Duration = Duration::from_millis(100);

/// Who waits for the outcome of a stop.
pub(super) type Asker = Sender<Result<(), String>>;

/// Why serving ends.
pub(super) enum End {
    /// The name of the signal.
    Signal(&'static str),
    /// Somebody waits for the outcome.
    Asked(Asker),
}

/// What shows the volume to clients.
#[derive(Default)]
pub(super) struct FrontEnds {
    /// The loop device over the block file; goes before it.
    pub device: Option<Shown>,
    pub mount: Option<block_file::Mount>,
    /// The directory of the block file, if it is ours.
    pub own_dir: Option<PathBuf>,
    pub nbd: Option<NbdServer>,
}

impl FrontEnds {
    /// Shows the block file as a loop device; what `status` says of it.
    pub(super) fn show(&mut self, name: &str, server: &Server) -> Result<Value, Failure> {
        let Some(mount) = &self.mount else {
            return Ok(Value::Null);
        };
        let port = server.port();
        let shown = Shown::start(mount.file(), name, port.read_only(), port.block_bytes())?;
        let words = shown.describe();
        self.device = Some(shown);
        Ok(words)
    }

    fn refuse_new(&mut self) {
        if let Some(mount) = &self.mount {
            mount.refuse_new();
        }
        if let Some(nbd) = &mut self.nbd {
            nbd.refuse_new();
        }
    }

    /// Takes the device and the block file away if nobody has them open; else who does.
    fn unmount(&mut self) -> Result<(), String> {
        if let Some(device) = &mut self.device {
            if !device.detach() {
                return Err(format!(
                    "{} is in use: unmount what is on it first",
                    device.link().display()
                ));
            }
            self.device = None;
        }
        let Some(mount) = &mut self.mount else {
            return Ok(());
        };
        mount.unmount().map_err(|e| e.to_string())
    }

    /// Who still uses the volume, in words; empty when nobody does.
    fn users(&mut self) -> Vec<String> {
        let mut users = Vec::new();
        if let (Err(_), Some(device)) = (self.unmount(), &self.device) {
            users.push(format!("{} is in use", device.link().display()));
        } else if self.mount.as_mut().is_some_and(|m| m.unmount().is_err()) {
            let file = self.mount.as_ref().map(|m| m.file().display().to_string());
            users.push(format!("{} is open", file.unwrap_or_default()));
        }
        match self.nbd.as_ref().map_or(0, NbdServer::clients) {
            0 => {}
            1 => users.push("1 NBD client is connected".into()),
            n => users.push(format!("{n} NBD clients are connected")),
        }
        users
    }

    /// No request comes after this. Who is still there gets errors.
    pub(super) fn end(self) {
        if let Some(device) = self.device {
            device.abandon();
        }
        drop(self.mount);
        if let Some(dir) = self.own_dir {
            // Empty again, unless somebody put something there.
            let _ = std::fs::remove_dir(dir);
        }
        if let Some(nbd) = self.nbd {
            nbd.stop();
        }
    }
}

/// SIGHUP only if whoever started us did not have it ignored, as `nohup` does.
pub(super) fn watch_signals(ends: Sender<End>) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("cannot watch for signals: {e}"));
    let mut wanted = vec![SIGTERM, SIGINT];
    if !isotherm_live::server::is_ignored(SIGHUP) {
        wanted.push(SIGHUP);
    }
    let mut signals = signal_hook::iterator::Signals::new(wanted).map_err(failed)?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let name = match signal {
                    SIGTERM => "SIGTERM",
                    SIGHUP => "SIGHUP",
                    _ => "SIGINT",
                };
                if ends.send(End::Signal(name)).is_err() {
                    return;
                }
            }
        })
        .map_err(failed)?;
    Ok(())
}

/// Says once, as soon as it is seen, that the volume has failed.
fn say_failure(server: &Server, said: &mut bool) {
    let handle = server.handle();
    let Some(failure) = handle.failure().filter(|_| !*said) else {
        return;
    };
    *said = true;
    crate::notify::tell(&format!("STATUS=FAILED: {failure}: writes are refused"));
    let at = failure.at.duration_since(std::time::UNIX_EPOCH);
    eprintln!(
        "isotherm: volume failed: {failure} (at {} s since 1970): writes and flushes are refused from now on, reads go on; stop it, check the devices, serve again",
        at.unwrap_or_default().as_secs()
    );
}

fn died(server: &Server) -> Result<(), Failure> {
    if server.has_died() {
        return Err(Failure::failed(
            "the engine's thread ended unexpectedly: serve again, recovery follows",
        ));
    }
    Ok(())
}

/// Wait for a reason to end; returns who wants to know how it went. A stop that was asked for is refused while the block file
/// is in use; a signal is obeyed, after at most `patience`.
pub(super) fn wait(
    ended: &Receiver<End>,
    server: &Server,
    front: &mut FrontEnds,
    patience: Duration,
) -> Result<Vec<Asker>, Failure> {
    let mut said = false;
    loop {
        say_failure(server, &mut said);
        if server.handle().failure().is_some_and(|f| f.overtaken) {
            // Nothing that is here can be trusted any more, and nothing may be written.
            return Ok(Vec::new());
        }
        match ended.recv_timeout(WATCH) {
            Err(RecvTimeoutError::Timeout) => died(server)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            Ok(End::Signal(name)) => {
                say_failure(server, &mut said);
                return drain(name, ended, server, front, patience);
            }
            Ok(End::Asked(asker)) => match front.unmount() {
                Ok(()) => return Ok(vec![asker]),
                Err(e) => {
                    // Nobody listens any more: then it was not important.
                    let _ = asker.send(Err(e));
                }
            },
        }
    }
}

/// After a signal: flush, and wait for the users to go.
fn drain(
    signal: &str,
    ended: &Receiver<End>,
    server: &Server,
    front: &mut FrontEnds,
    patience: Duration,
) -> Result<Vec<Asker>, Failure> {
    let deadline = Instant::now() + patience;
    let mut askers = Vec::new();
    front.refuse_new();
    let flushed = flush(server);
    let mut told = false;
    loop {
        let users = front.users();
        if users.is_empty() {
            return Ok(askers);
        }
        let users = users.join(", ");
        if !told {
            let seconds = patience.as_secs();
            eprintln!(
                "isotherm: {signal}: no new clients; waiting up to {seconds} s for the users to go ({users}); a second signal ends at once"
            );
        }
        told = true;
        let left = deadline.saturating_duration_since(Instant::now());
        match ended.recv_timeout(left.min(USERS)) {
            Ok(End::Signal(name)) => {
                eprintln!(
                    "isotherm: {name}: ending at once ({users}): its users get errors from now on"
                );
                // Unless the devices hang, what was written before the signal is durable already.
                drop(flushed);
                return Ok(askers);
            }
            Ok(End::Asked(asker)) => askers.push(asker),
            Err(_) if left.is_zero() => {
                eprintln!(
                    "isotherm: {users} after the time to stop; ending all the same: its users get errors from now on"
                );
                return Ok(askers);
            }
            Err(_) => {}
        }
        if let Ok(Err(e)) = flushed.try_recv() {
            eprintln!(
                "isotherm: {signal}: the flush failed ({e:?}): what was written since the last good flush may be lost"
            );
        }
        died(server)?;
    }
}

/// Asks for everything that was written so far to be made durable; how it went comes out of the receiver.
fn flush(server: &Server) -> Receiver<Result<(), isotherm_core::IoError>> {
    let (tell, told) = channel();
    let done = isotherm_live::port::Completion::new(move |result, _| {
        // Whoever asked may have ended.
        let _ = tell.send(result);
    });
    server
        .port()
        .submit(RequestOp::Flush, 0, 0, false, 0, None, done);
    told
}
