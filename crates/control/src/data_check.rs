//! Checks of a volume's data while it is served (`isotherm check --data`): one at a time, for as long as its client waits.
//!
//! ```text
//! client ══ control socket ══ connection's thread: progress, has the client left? ──► State ◄── check's thread: `isotherm_live::scrub`
//! ```
//! The two threads are separate, so that a device that does not answer does not keep the client from leaving. Until the last read of a check
//! has returned, no other check begins.
//!
//! The outcome of the last check that was not interrupted is kept beside the description (`p/v.checked`), so that `status` and alerts know it
//! after a restart. Guarantee: no failure with this file prevents a volume from being served or checked.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use isotherm_answers::{
    CheckResult, CheckSays, CheckedData, Checking, DataCheck, LastCheck, Range, Stalled, WaitsFor,
};
use isotherm_live::Handle;
use isotherm_live::loss::Ranges;
use isotherm_live::scrub::{Found, How, Progress, State, Wait, scrub};
use serde::{Deserialize, Serialize};

use crate::server::{Service, has_left, send};
use crate::{Answer, beside};

/// Interval at which the connection's thread checks whether the client has left.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between two messages about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// A read that takes longer is reported.
const STALLED: Duration = Duration::from_secs(2);
/// A stopped server waits this long for the last word of a check, less than for all its answers. A check on a sleeping disk looks twice a
/// second; a read that takes longer hangs.
const LAST_WORD: Duration = Duration::from_secs(3);
/// Largest file of an outcome that is read, in bytes.
const FILE_MAX: u64 = 64 << 10;

/// The checks of a volume.
#[derive(Debug)]
pub struct DataChecks {
    file: PathBuf,
    uuid: Option<String>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    running: Option<Arc<State>>,
    last: Option<LastCheck>,
}

/// A check in progress. Dropping it stops the check.
#[derive(Debug)]
pub struct Running {
    state: Arc<State>,
    outcome: Receiver<CheckResult>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.stop();
    }
}

impl DataChecks {
    /// The checks of the volume at `volume` (a path without extension). The outcome of an earlier session is read if it is of this volume.
    pub fn load(volume: &Path, uuid: Option<&str>) -> DataChecks {
        let file = beside(volume, ".checked");
        let last = read(&file)
            .filter(|kept| uuid.is_some() && kept.uuid.as_deref() == uuid)
            .map(|kept| kept.last);
        DataChecks {
            file,
            uuid: uuid.map(str::to_owned),
            inner: Mutex::new(Inner {
                running: None,
                last,
            }),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a check.
    ///
    /// # Errors
    /// One is in progress, or the system gives no thread.
    pub fn start(self: &Arc<Self>, handle: &Handle, how: How) -> Result<Running, String> {
        let mut inner = self.locked();
        if inner.running.is_some() {
            return Err(
                "the data of this volume is being checked already: wait for its end, or stop it (Ctrl-C there)"
                    .to_owned(),
            );
        }
        let state = Arc::new(State::default());
        let (tell, outcome) = sync_channel(1);
        let (checks, handle, for_thread) = (Arc::clone(self), handle.clone(), Arc::clone(&state));
        std::thread::Builder::new()
            .name("data-check".into())
            .spawn(move || {
                let found = scrub(&handle, how, &for_thread);
                checks.keep(&found);
                // The client may have left.
                let _ = tell.send(answer(&found));
            })
            .map_err(|e| format!("no thread for the check: {e}"))?;
        inner.running = Some(Arc::clone(&state));
        drop(inner);
        Ok(Running { state, outcome })
    }

    /// Takes the outcome of a check, of the served volume or of a stopped one, and keeps it if the check was not interrupted.
    pub fn keep(&self, found: &Found) {
        let mut inner = self.locked();
        inner.running = None;
        if found.ended.is_some() {
            return;
        }
        let last = outcome(found);
        inner.last = Some(last.clone());
        drop(inner);
        let uuid = self.uuid.clone();
        // If this fails, the next session does not know the outcome.
        let kept = isotherm_answers::json(&Kept { uuid, last }).to_string() + "\n";
        let _ = isotherm_paths::replace(&self.file, 0o600, |f| f.write_all(kept.as_bytes()));
    }

    /// The check in progress and the outcome of the last one.
    pub fn figures(&self) -> DataCheck {
        let inner = self.locked();
        DataCheck {
            running: inner.running.as_ref().map(|s| progress(&s.progress())),
            last: inner.last.clone(),
        }
    }
}

/// The file of an outcome.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The identity of the volume.
    uuid: Option<String>,
    last: LastCheck,
}

/// The outcome as it is kept.
fn outcome(found: &Found) -> LastCheck {
    let bytes = |r: &Ranges| r.iter().map(|(from, to)| to - from).sum::<u64>();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    LastCheck {
        ok: found.is_well(),
        time_unix_s: now.unwrap_or_default().as_secs(),
        read_bytes: found.read,
        lost_bytes: bytes(&found.lost),
        differing_bytes: bytes(&found.differing),
        not_compared_bytes: bytes(&found.not_compared),
        bad_places: found.bad_places.len() as u64,
    }
}

fn read(file: &Path) -> Option<Kept> {
    serde_json::from_slice(&isotherm_paths::read(file, FILE_MAX).ok()?).ok()
}

/// Ranges of the volume as answers have them.
pub fn ranges(ranges: &Ranges) -> Vec<Range> {
    let one = |&(from, to): &(u64, u64)| Range { from, to };
    ranges.iter().map(one).collect()
}

/// The result for the client.
fn answer(found: &Found) -> CheckResult {
    CheckResult {
        bad_places: found.bad_places.clone(),
        ended: found.ended.as_ref().map(ToString::to_string),
        members_found: found.members,
        mapped_extents: found.mapped,
        copied_extents: found.copies.0,
        dirty_extents: found.copies.1,
        data: CheckedData {
            read_bytes: found.read,
            lost: ranges(&found.lost),
            differing: ranges(&found.differing),
            not_compared: ranges(&found.not_compared),
        },
    }
}

fn progress(p: &Progress) -> Checking {
    let now = Instant::now();
    let stalled = p.reading.filter(|r| now - r.2 >= STALLED);
    Checking {
        read_bytes: p.read,
        total_bytes: p.total,
        waits_for: match p.wait {
            Wait::None => None,
            Wait::Turn => Some(WaitsFor::Turn),
            Wait::Sleep => Some(WaitsFor::SleepingDisk),
        },
        stalled: stalled.map(|(member, byte, since)| Stalled {
            member: member as u64,
            byte,
            seconds: (now - since).as_secs(),
        }),
    }
}

impl Running {
    /// Waits for the outcome, at most for `limit`. `Err`: the thread ended without one.
    fn wait(&self, limit: Duration) -> Result<Option<CheckResult>, &'static str> {
        match self.outcome.recv_timeout(limit) {
            Ok(value) => Ok(Some(value)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("the check ended unexpectedly"),
        }
    }
}

/// Answers a request for a check: its progress, then its result. Returns when it ended, the client left, or the server stops.
pub(crate) fn serve(
    stream: &mut UnixStream,
    service: &dyn Service,
    how: How,
    stopping: &AtomicBool,
) -> io::Result<()> {
    let running = match service.check_data(how) {
        Ok(running) => running,
        Err(text) => return send(stream, &Answer::Error(text)),
    };
    let says = |says: &CheckSays| Answer::Ok(isotherm_answers::json(says));
    let mut told: Option<Instant> = None;
    loop {
        let is_stopping = stopping.load(Ordering::SeqCst);
        let limit = [CHECK_INTERVAL, LAST_WORD][usize::from(is_stopping)];
        match running.wait(limit) {
            Ok(Some(result)) => return send(stream, &says(&CheckSays::Result(result))),
            Ok(None) => {}
            Err(why) => return send(stream, &Answer::Error(why.to_owned())),
        }
        if has_left(stream)? {
            return Ok(());
        }
        if is_stopping {
            let why = "the volume was stopped, and a device did not answer";
            return send(stream, &Answer::Error(why.to_owned()));
        }
        if told.is_none_or(|t| t.elapsed() >= PROGRESS_INTERVAL) {
            told = Some(Instant::now());
            let progress = progress(&running.state.progress());
            send(stream, &says(&CheckSays::Progress(progress)))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A volume whose check says its last word `late` after the server was stopped.
    struct Slow {
        late: Duration,
        stopping: Arc<AtomicBool>,
    }

    impl Service for Slow {
        fn answer(&self, _: &crate::Request) -> Result<Value, String> {
            Err("no".into())
        }
        fn record(&self) -> Result<Receiver<crate::entry::Entry>, String> {
            Err("no".into())
        }
        fn events(&self) -> Result<isotherm_live::recorder::Recording, String> {
            Err("no".into())
        }
        fn end_events(&self) {}
        fn check_data(&self, _: How) -> Result<Running, String> {
            let (tell, outcome) = sync_channel(1);
            let (late, stopping) = (self.late, Arc::clone(&self.stopping));
            std::thread::spawn(move || {
                stopping.store(true, Ordering::SeqCst);
                std::thread::sleep(late);
                let _ = tell.send(last_word());
            });
            let state = Arc::default();
            Ok(Running { state, outcome })
        }
    }

    /// What a check has found when it is stopped.
    fn last_word() -> CheckResult {
        CheckResult {
            bad_places: vec!["/dev/b: 4096 bytes at byte 0".to_owned()],
            ended: Some("the volume was stopped".to_owned()),
            members_found: 2,
            mapped_extents: 3,
            ..CheckResult::default()
        }
    }

    /// The last answer to a check whose volume is stopped at once.
    fn stopped(late: Duration) -> Answer {
        let (mut ours, theirs) = UnixStream::pair().expect("sockets");
        let stopping = Arc::new(AtomicBool::new(false));
        let service = Slow {
            late,
            stopping: Arc::clone(&stopping),
        };
        let how = How {
            rate: None,
            wake: false,
        };
        serve(&mut ours, &service, how, &stopping).expect("answered");
        drop(ours);
        let mut lines = io::BufReader::new(theirs);
        let mut last = None;
        while let Some(line) = crate::read_line(&mut lines).expect("read") {
            last = Some(serde_json::from_slice(&line).expect("an answer"));
        }
        last.expect("an answer")
    }

    #[test]
    fn a_stopped_server_waits_for_the_last_word_of_a_check() {
        let said = stopped(CHECK_INTERVAL * 4);
        let result = isotherm_answers::json(&last_word());
        assert_eq!(said, Answer::Ok(json!({ "result": result })));
        let never = stopped(Duration::from_secs(3600));
        assert!(
            matches!(&never, Answer::Error(why) if why.contains("did not answer")),
            "{never:?}"
        );
    }

    fn last(checks: &DataChecks) -> Value {
        isotherm_answers::json(&checks.figures().last)
    }

    #[test]
    fn an_outcome_outlives_the_session_and_belongs_to_its_volume() {
        let dir = tempfile::tempdir().expect("a directory");
        let volume = dir.path().join("v.1");
        let checks = DataChecks::load(&volume, Some("a"));
        assert_eq!(
            isotherm_answers::json(&checks.figures()),
            json!({"running": null, "last": null})
        );
        let found = Found {
            read: 9,
            differing: vec![(0, 4096), (8192, 16384)],
            ..Found::default()
        };
        checks.keep(&found);
        let kept = last(&checks);
        assert_eq!(kept["differing_bytes"], json!(12288));
        assert_eq!(kept["ok"], json!(false));
        // An interrupted check changes nothing.
        let stopped = isotherm_live::scrub::Ended::Stopped;
        checks.keep(&Found {
            ended: Some(stopped),
            ..Found::default()
        });
        assert_eq!(last(&checks), kept);
        assert_eq!(last(&DataChecks::load(&volume, Some("a"))), kept);
        assert_eq!(last(&DataChecks::load(&volume, Some("b"))), Value::Null);
        assert_eq!(last(&DataChecks::load(&volume, None)), Value::Null);
        let file = dir.path().join("v.1.checked");
        for hostile in [
            "",
            "[]",
            "{\"uuid\":\"a\"}",
            "{\"uuid\":\"a\",\"last\":{\"ok\":1}}",
            "\u{0}",
        ] {
            std::fs::write(&file, hostile).expect("written");
            assert_eq!(last(&DataChecks::load(&volume, Some("a"))), Value::Null);
        }
        std::fs::remove_file(&file).expect("removed");
        std::fs::create_dir(&file).expect("made");
        // Neither reading nor keeping it does harm.
        let checks = DataChecks::load(&volume, Some("a"));
        checks.keep(&found);
        assert_eq!(last(&checks)["read_bytes"], json!(9));
    }
}
