//! How serving ends. A stop command is refused while the volume is in use; a signal waits for the users to finish; a second signal does not
//! wait.
//!
//! ```text
//! signal ─► no new clients ─► flush ─► users gone? ─ yes ─► checkpoint, clean mark, exit
//! signal ─► no new clients ─► flush ─► users gone? ─ yes ─► checkpoint, clean mark, exit
//!                                         │ no: check again, until --stop-timeout or a second signal: disconnect them ─┘

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use isotherm_live::Server;
use isotherm_live::port::{Completion, IoRequest};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use isotherm_control::live::{End, Live, StopReply};

use super::health::Told;
use crate::patience::each_time;
use crate::{Failure, notify};

/// Interval at which the main thread checks that the engine's thread is running.
const WATCH: Duration = Duration::from_millis(500);
/// Interval at which it checks whether the users have finished.
const USERS: Duration = Duration::from_millis(100);

/// SIGHUP is watched only if it was not ignored when this program was started, as `nohup` does.
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

fn died(server: &Server) -> Result<(), Failure> {
    if server.has_died() {
        return Err(Failure::failed(
            "the engine's thread ended unexpectedly: serve again, recovery follows",
        ));
    }
    Ok(())
}

/// Waits for a reason to end. Returns the clients that wait for the outcome. A stop command is refused while the block file is in use; a
/// signal is obeyed, after at most `patience_s` seconds.
pub(super) fn wait(
    ended: &Receiver<End>,
    server: &Server,
    service: &Arc<Live>,
    patience_s: u64,
    mut told: Told,
) -> Result<Vec<StopReply>, Failure> {
    let patience = Duration::from_secs(patience_s);
    let front = &service.fronts;
    loop {
        told.look(service);
        service.use_spare_if_due();
        if server.handle().failure().is_some_and(|f| f.overtaken) {
            // The contents of memory can no longer be trusted, and nothing may be written.
            return Ok(Vec::new());
        }
        match ended.recv_timeout(WATCH) {
            Err(RecvTimeoutError::Timeout) => died(server)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            Ok(End::Signal(name)) => {
                return drain(name, (ended, server, service), patience, &mut told);
            }
            Ok(End::Asked(asker)) => match front.lock().leave() {
                Ok(()) => return Ok(vec![asker]),
                Err(e) => {
                    // An error means that the client no longer waits.
                    let _ = asker.send(Err(e));
                }
            },
        }
    }
}

/// Tells the outcome also to clients that asked while the volume was being stopped, until the control socket is closed.
pub(super) fn answer_late(ended: Receiver<End>, outcome: &Result<(), String>) {
    let outcome = outcome.clone();
    let tell = move || {
        for end in ended {
            if let End::Asked(asker) = end {
                // The client may have gone.
                let _ = asker.send(outcome.clone());
            }
        }
    };
    // Without this thread they see the server go, and look at the members.
    let _ = std::thread::Builder::new().name("late".into()).spawn(tell);
}

/// Tells everybody that the volume is closed from here on. If that takes long, the log and the service's status line say what it waits for, until the result is
/// dropped.
pub(super) fn begin(service: &Arc<Live>) -> Option<Sender<()>> {
    notify::tell("STOPPING=1\nSTATUS=writing everything down");
    service.begin_closing();
    let service = Arc::clone(service);
    each_time(move || {
        let words = service.closing_words();
        tracing::warn!("{words}");
        notify::tell(&format!("STATUS={words}"));
    })
}

/// After a signal: flushes, and waits for the users to finish.
fn drain(
    signal: &str,
    (ended, server, service): (&Receiver<End>, &Server, &Live),
    patience: Duration,
    health: &mut Told,
) -> Result<Vec<StopReply>, Failure> {
    let deadline = Instant::now() + patience;
    let front = &service.fronts;
    let mut askers = Vec::new();
    front.lock().refuse_new();
    let flushed = flush(server);
    let mut told = false;
    loop {
        health.look(service);
        let users = front.lock().users();
        if users.is_empty() {
            return Ok(askers);
        }
        let users = users.join(", ");
        if !told {
            let seconds = patience.as_secs();
            tracing::info!(
                signal,
                "{signal}: no new clients; waiting up to {seconds} s for the users to go ({users}); a second signal ends at once"
            );
        }
        told = true;
        let left = deadline.saturating_duration_since(Instant::now());
        match ended.recv_timeout(left.min(USERS)) {
            Ok(End::Signal(name)) => {
                tracing::warn!(
                    "{name}: ending at once ({users}): its users get errors from now on"
                );
                // Unless the devices hang, everything that was written before the signal is already durable.
                drop(flushed);
                return Ok(askers);
            }
            Ok(End::Asked(asker)) => askers.push(asker),
            Err(_) if left.is_zero() => {
                tracing::warn!(
                    "{users} after the time to stop; ending all the same: its users get errors from now on"
                );
                return Ok(askers);
            }
            Err(_) => {}
        }
        if let Ok(Err(_)) = flushed.try_recv() {
            tracing::error!(
                signal,
                "{signal}: the flush failed: what was written since the last good flush may be lost"
            );
        }
        died(server)?;
    }
}

/// Makes everything durable that was written so far. The receiver gets the outcome.
fn flush(server: &Server) -> Receiver<Result<(), isotherm_core::IoError>> {
    let (tell, told) = channel();
    let done = Completion::new(move |result, _| {
        // An error means that the receiver has been dropped.
        let _ = tell.send(result);
    });
    server.port().submit(IoRequest::flush(), done);
    told
}
