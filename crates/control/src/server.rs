//! The server side of the control socket: one thread accepts, and each connection has a thread.

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use isotherm_live::recorder::Recording;
use isotherm_live::scrub::How;
use serde_json::Value;

use crate::data_check::{self, Running};
use crate::entry::Entry;
use crate::{Answer, Failure, Request, begins, read_line, with_short_path};

/// Most connections at a time.
pub(crate) const CONNECTIONS_MAX: usize = 32;
/// A peer that does not read for this time is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which an idle recording checks whether its client has left.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// When the server ends, it waits this long for answers in progress.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers the requests of the control socket.
pub trait Service: Send + Sync {
    /// Answers one request; may block.
    ///
    /// # Errors
    /// One line for the client.
    fn answer(&self, request: &Request) -> Result<Value, String>;

    /// Begins to record. Requests come out of the receiver, which ends with the recording.
    ///
    /// # Errors
    /// One line for the client.
    fn record(&self) -> Result<Receiver<Entry>, String>;

    /// Begins to record events.
    ///
    /// # Errors
    /// One line for the client.
    fn events(&self) -> Result<Recording, String>;

    /// Ends the recording of events.
    fn end_events(&self);

    /// Begins to read all data.
    ///
    /// # Errors
    /// One line for the client.
    fn check_data(&self, how: How) -> Result<Running, String>;
}

struct Shared {
    service: Arc<dyn Service>,
    stopping: AtomicBool,
    /// The number of connections, and the number of answers in progress.
    counts: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, (usize, usize)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listening control socket. Dropping it removes the socket.
pub struct Control {
    path: PathBuf,
    inode: (u64, u64),
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path`, with mode 0600 from the first moment. A socket without a listener is replaced. If there is no room for a socket, it
    /// listens at `spare`.
    ///
    /// # Errors
    /// Another process listens there, the path exists and is not a socket, or the directory cannot be written.
    pub fn start(
        path: &Path,
        spare: Option<&Path>,
        service: Arc<dyn Service>,
    ) -> Result<Control, Failure> {
        let failed = |e: &io::Error| Failure::file(path, "listen on the control socket", e);
        match fs::symlink_metadata(path) {
            Ok(m) if !m.file_type().is_socket() => {
                return Err(Failure::failed(format!(
                    "{}: exists and is no socket: move it away, the control socket goes there",
                    path.display()
                )));
            }
            Ok(_) => match with_short_path(path, |p| UnixStream::connect(p)) {
                Ok(_) => {
                    return Err(Failure::failed(format!(
                        "{}: this volume is served already",
                        path.display()
                    )));
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(e) => return Err(failed(&e)),
            },
            Err(_) => {}
        }
        let (path, listener) = match (isotherm_paths::bind(path, 0o600), spare) {
            (Err(e), Some(spare)) if takes_no_file(&e) => {
                tracing::warn!(
                    "no room for the control socket {}: it is {}",
                    path.display(),
                    spare.display()
                );
                (
                    spare,
                    isotherm_paths::bind(spare, 0o600).map_err(|e| failed(&e))?,
                )
            }
            (bound, _) => (path, bound.map_err(|e| failed(&e))?),
        };
        let meta = fs::symlink_metadata(path).map_err(|e| failed(&e))?;
        let shared = Arc::new(Shared {
            service,
            stopping: AtomicBool::new(false),
            counts: Mutex::default(),
            changed: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        let accepting = thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &for_thread))
            .map_err(|e| failed(&e))?;
        Ok(Control {
            path: path.to_owned(),
            inode: (meta.dev(), meta.ino()),
            shared,
            accepting: Some(accepting),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // This wakes the accepting thread. If it fails, the thread has already ended.
        let woken = with_short_path(&self.path, |p| UnixStream::connect(p));
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.inode);
        if ours {
            // If this fails, the next server replaces the socket.
            let _ = fs::remove_file(&self.path);
        }
        if let (Ok(_), Some(thread)) = (woken, self.accepting.take()) {
            // A panic in the thread was already reported.
            let _ = thread.join();
        }
        let counts = self.shared.counts();
        let _ = self
            .shared
            .changed
            .wait_timeout_while(counts, ANSWERS_TIMEOUT, |c| c.1 > 0);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    while !shared.stopping.load(Ordering::SeqCst) {
        let Ok((stream, _)) = listener.accept() else {
            // The process has no free descriptors. Some will be closed; the pause avoids a busy loop.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let mut counts = shared.counts();
        if counts.0 >= CONNECTIONS_MAX {
            drop(counts);
            refuse(stream);
            continue;
        }
        counts.0 += 1;
        drop(counts);
        let for_thread = Arc::clone(shared);
        let started = thread::Builder::new()
            .name("control-peer".into())
            .spawn(move || {
                // A peer that disconnects or breaks the protocol ends its own connection only.
                let _ = serve_connection(stream, &for_thread);
                for_thread.counts().0 -= 1;
            });
        if started.is_err() {
            shared.counts().0 -= 1;
        }
    }
}

fn refuse(mut stream: UnixStream) {
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let _ = send(
        &mut stream,
        &Answer::Error("too many control connections: close some".into()),
    );
}

pub(crate) fn send(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn serve_connection(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut lines = BufReader::new(stream);
    loop {
        let line = match read_line(&mut lines) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(e) => {
                if e.kind() == io::ErrorKind::InvalidData {
                    send(lines.get_mut(), &Answer::Error("line too long".into()))?;
                }
                return Err(e);
            }
        };
        let request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(e) => {
                send(
                    lines.get_mut(),
                    &Answer::Error(format!("not a request: {e}")),
                )?;
                continue;
            }
        };
        if request == Request::Record {
            return record(lines.get_mut(), shared);
        }
        if let Request::Check { rate, wake } = request {
            shared.counts().1 += 1;
            let (service, stopping) = (&*shared.service, &shared.stopping);
            let done = data_check::serve(lines.get_mut(), service, How { rate, wake }, stopping);
            shared.counts().1 -= 1;
            shared.changed.notify_all();
            done?;
            continue;
        }
        if let Request::Events { limit } = request {
            // The end of a recording counts as an answer in progress, so the server does not end before it.
            shared.counts().1 += 1;
            let done = events(lines.get_mut(), shared, limit);
            shared.counts().1 -= 1;
            shared.changed.notify_all();
            return done;
        }
        shared.counts().1 += 1;
        let answer = match shared.service.answer(&request) {
            Ok(value) => Answer::Ok(value),
            Err(text) => Answer::Error(text),
        };
        let sent = send(lines.get_mut(), &answer);
        shared.counts().1 -= 1;
        shared.changed.notify_all();
        sent?;
    }
}

fn record(stream: &mut UnixStream, shared: &Shared) -> io::Result<()> {
    let entries = match shared.service.record() {
        Ok(entries) => entries,
        Err(text) => return send(stream, &Answer::Error(text)),
    };
    send(stream, &begins("entries", Some(super::entry::ENTRY_BYTES)))?;
    let mut batch = Vec::new();
    // Every way out drops the receiver, which ends the recording.
    loop {
        let first = match entries.recv_timeout(CHECK_INTERVAL) {
            Ok(first) => first,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            // Without requests nothing is written, so a failed write does not reveal that the client has left.
            Err(RecvTimeoutError::Timeout) if has_left(stream)? => return Ok(()),
            Err(RecvTimeoutError::Timeout) => continue,
        };
        batch.clear();
        batch.extend_from_slice(&first.encode());
        for entry in entries.try_iter().take(4096) {
            batch.extend_from_slice(&entry.encode());
        }
        stream.write_all(&batch)?;
    }
}

/// Whether the client has closed its side. It sends nothing after its request.
pub(crate) fn has_left(stream: &mut UnixStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let read = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false)?;
    match read {
        Ok(n) => Ok(n == 0),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

fn events(stream: &mut UnixStream, shared: &Shared, limit: u64) -> io::Result<()> {
    let recording = match shared.service.events() {
        Ok(recording) => recording,
        Err(text) => return send(stream, &Answer::Error(text)),
    };
    send(stream, &begins("events", None))?;
    let mut asker = stream.try_clone()?;
    let service = Arc::clone(&shared.service);
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let watching = thread::Builder::new()
        .name("control-peer".into())
        .spawn(move || {
            // The client sends nothing more before its end. An error counts as the end, too.
            let _ = asker.read(&mut [0]);
            // If the recording ended by itself, a recording that is in progress now belongs to another client.
            if !is_over.load(Ordering::SeqCst) {
                service.end_events();
            }
        })?;
    let written = recording.write_to(io::BufWriter::with_capacity(1 << 18, &mut *stream), limit);
    over.store(true, Ordering::SeqCst);
    // This wakes the watching thread. If it fails, the client has gone, which wakes it as well.
    let _ = stream.shutdown(std::net::Shutdown::Both);
    let _ = watching.join();
    written.map(|_| ())
}

/// Whether a file system has no room for one more file, or takes none.
fn takes_no_file(e: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let known = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS];
    Errno::from_io_error(e).is_some_and(|e| known.contains(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{connect, served};
    use crate::entry::EntryOp;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc;

    struct Echo;

    impl Service for Echo {
        fn answer(&self, request: &Request) -> Result<Value, String> {
            match request {
                Request::Why { offset } => Ok(json!(offset + 1)),
                _ => Err("no".into()),
            }
        }
        fn record(&self) -> Result<Receiver<Entry>, String> {
            let (_, receiver) = mpsc::sync_channel(1);
            Ok(receiver)
        }
        fn events(&self) -> Result<Recording, String> {
            Err("no".into())
        }
        fn end_events(&self) {}
        fn check_data(&self, _: How) -> Result<Running, String> {
            Err("no".into())
        }
    }

    #[test]
    fn asks_are_answered_and_hostile_lines_are_survived() {
        let dir = tempfile::tempdir().expect("a directory");
        let volume = dir.path().join("v");
        let path = super::super::socket_path(&volume);
        assert!(connect(&volume).expect("no socket is no error").is_none());
        let control = Control::start(&path, None, Arc::new(Echo)).expect("listens");
        assert_eq!(
            fs::metadata(&path).expect("there").permissions().mode() & 0o777,
            0o600
        );
        let mut raw = UnixStream::connect(&path).expect("connects");
        raw.write_all(b"nonsense\n\xff\xfe\n{\"cmd\":\"why\",\"offset\":41}\n")
            .expect("written");
        let mut lines = BufReader::new(raw);
        let mut next = || {
            String::from_utf8(read_line(&mut lines).expect("reads").expect("a line")).expect("text")
        };
        assert!(next().starts_with(r#"{"error":"not a request"#));
        assert!(next().starts_with(r#"{"error":"not a request"#));
        assert_eq!(next(), r#"{"ok":42}"#);
        // A connection that is cut within a line ends without affecting others.
        UnixStream::connect(&path)
            .expect("connects")
            .write_all(b"{\"cmd\"")
            .expect("written");
        let mut client = served(&volume).expect("served");
        assert_eq!(client.ask(&Request::Why { offset: 1 }), Ok(json!(2)));
        assert_eq!(client.ask(&Request::Stats), Err(Failure::failed("no")));
        assert!(
            Control::start(&path, None, Arc::new(Echo))
                .is_err_and(|e| e.to_string().contains("served already"))
        );
        drop(control);
        assert!(!path.exists());
    }

    /// A volume without requests, which allows one recording at a time.
    struct Idle(Mutex<Option<mpsc::SyncSender<Entry>>>);

    impl Service for Idle {
        fn answer(&self, _: &Request) -> Result<Value, String> {
            Err("no".into())
        }
        fn record(&self) -> Result<Receiver<Entry>, String> {
            let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let probe = Entry {
                time_ns: 0,
                latency_ns: 0,
                offset: 0,
                len: 0,
                op: EntryOp::Read,
                class: 0,
                fua: false,
            };
            let is_used = |s: &mpsc::SyncSender<Entry>| {
                !matches!(s.try_send(probe), Err(mpsc::TrySendError::Disconnected(_)))
            };
            if held.as_ref().is_some_and(is_used) {
                return Err("recorded already".into());
            }
            let (sender, receiver) = mpsc::sync_channel(1);
            *held = Some(sender);
            Ok(receiver)
        }
        fn events(&self) -> Result<Recording, String> {
            Err("no".into())
        }
        fn end_events(&self) {}
        fn check_data(&self, _: How) -> Result<Running, String> {
            Err("no".into())
        }
    }

    /// A client that ends its recording closes its side and waits for the end. Then the next client can record, although the volume got no
    /// request in the meantime.
    #[test]
    fn a_recorder_of_an_idle_volume_makes_room_for_the_next_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let volume = dir.path().join("v");
        let path = super::super::socket_path(&volume);
        let _control =
            Control::start(&path, None, Arc::new(Idle(Mutex::new(None)))).expect("listens");
        for _ in 0..3 {
            let mut client = served(&volume).expect("served");
            client.ask(&Request::Record).expect("recorded");
            let mut stream = client.into_stream();
            let left = stream.get_ref().shutdown(std::net::Shutdown::Write);
            left.expect("closed");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("the end");
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("v.sock");
        fs::write(&path, "precious").expect("written");
        assert!(
            Control::start(&path, None, Arc::new(Echo))
                .is_err_and(|e| e.to_string().contains("is no socket"))
        );
        assert_eq!(fs::read(&path).expect("still there"), b"precious");
        fs::remove_file(&path).expect("removed");
        drop(UnixListener::bind(&path).expect("binds")); // the file of the socket stays, as after kill -9
        let control = Control::start(&path, None, Arc::new(Echo)).expect("replaces it");
        drop(control);
    }

    #[test]
    fn paths_longer_than_a_socket_address_work() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).expect("made");
        let volume = deep.join("v");
        let _control = Control::start(&super::super::socket_path(&volume), None, Arc::new(Echo))
            .expect("listens");
        assert!(connect(&volume).expect("connects").is_some());
    }
}
