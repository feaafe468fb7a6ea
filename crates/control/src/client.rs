//! The client side of the control socket.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use isotherm_answers::{Brief, Status};
use isotherm_live::VolumeConfig;
use isotherm_live::device::serving;
use isotherm_live::volume::description;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Answer, Failure, Request, place, read_line, socket_path, with_short_path};

/// A connection to a served volume.
pub struct Client {
    stream: BufReader<UnixStream>,
    /// Whether answers have a time limit.
    is_limited: bool,
}

/// Connects to the control socket if a server listens on it, which means that the volume is served.
///
/// # Errors
/// The socket exists, and this user may not use it.
pub fn connect(volume: &Path) -> Result<Option<Client>, Failure> {
    let path = socket_path(volume);
    match with_short_path(&path, |p| UnixStream::connect(p)) {
        Ok(stream) => Ok(Some(Client::over(stream))),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            // A full disk may have had no room for that socket.
            let spare = place::spare_sockets(volume).into_iter();
            let stream = spare.filter_map(|s| with_short_path(&s, |p| UnixStream::connect(p)).ok());
            Ok(stream.map(Client::over).next())
        }
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(Failure::failed(format!(
            "{}: cannot connect to the control socket: permission denied{}",
            path.display(),
            denied(place::is_root())
        ))),
        Err(e) => Err(Failure::file(&path, "connect to the control socket", &e)),
    }
}

/// What helps against that. In a container root may lack the right, too.
fn denied(is_root: bool) -> &'static str {
    if is_root {
        ", although this is root: see whether it lacks CAP_DAC_OVERRIDE, or a policy denies it (AppArmor, SELinux)"
    } else {
        ": run this command as root, or as the user who serves the volume"
    }
}

/// As [`connect`], for commands that need a served volume.
///
/// # Errors
/// The volume is not served; the message says what to do.
pub fn served(volume: &Path) -> Result<Client, Failure> {
    connect(volume)?.ok_or_else(|| {
        let v = volume.display();
        if volume.extension().is_some_and(|e| e == "toml") && volume.exists() {
            Failure::failed(format!(
                "{v}: is the description of a volume: give the volume, `{}`",
                volume.with_extension("").display()
            ))
        } else if let Some((_, said)) = hidden_server(volume) {
            Failure::failed(format!("{v}: {said}"))
        } else if super::beside(volume, ".toml").exists() {
            Failure::failed(format!(
                "{v}: not served: start it with `isotherm serve {v} --device` (or --nbd, --block-file DIR)"
            ))
        } else if volume.extension().is_some_and(|e| e == "toml") {
            Failure::failed(format!(
                "{v}: no such volume: volumes are named without `.toml`: `{}`",
                volume.with_extension("").display()
            ))
        } else {
            Failure::failed(format!(
                "{v}: no such volume: {v}.toml does not exist, here or in /etc/isotherm (see `isotherm list`, `isotherm create --help`)"
            ))
        }
    })
}

/// The process that serves a volume although no socket leads to it, and what to say of it: the socket was removed, or the volume is served
/// under another name of its description. `None`: nobody serves it, or its description cannot be read.
pub fn hidden_server(volume: &Path) -> Option<(u32, String)> {
    let config = VolumeConfig::load(&description(volume)).ok()?;
    let pid = (config.all_paths().iter()).find_map(|path| serving(path))?;
    let socket = socket_path(volume);
    let said = format!(
        "served by process {pid}, but its control socket {} is gone, or it is served under another name: `kill -TERM {pid}` stops it properly",
        socket.display()
    );
    Some((pid, said))
}

/// The time after which a command says that it waits, and the time after which it says so again.
const WAITS_ALOUD: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
const WAITS_ON: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// Time limit for the answer to a question that changes nothing. A server that needs longer hangs, as on a device that does not answer.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);

/// The failure of a connection.
fn gone(e: &io::Error) -> Failure {
    if e.kind() == io::ErrorKind::WouldBlock {
        return Failure::failed("the serving process does not answer");
    }
    Failure::failed(format!(
        "the serving process went away: {}",
        crate::failure::reason(e)
    ))
}

/// The value of a key without which a command cannot work.
///
/// # Errors
/// The server, of another version, does not say it.
pub fn needed<T>(value: Option<T>, key: &str) -> Result<T, Failure> {
    value.ok_or_else(|| {
        Failure::failed(format!(
            "the server, of another version, does not say `{key}`: stop the volume and serve it again"
        ))
    })
}

impl Client {
    fn over(stream: UnixStream) -> Client {
        Client {
            stream: BufReader::new(stream),
            is_limited: false,
        }
    }

    /// Sets a time limit for each answer, for callers that ask many volumes, so that one that hangs does not delay the others.
    #[must_use]
    pub fn with_limit(mut self, limit: std::time::Duration) -> Client {
        self.is_limited = true;
        // If this fails, answers are awaited without a limit.
        let _ = self.stream.get_ref().set_read_timeout(Some(limit));
        self
    }

    /// Kills the server, as if the power had failed, and returns the number of its process.
    ///
    /// # Errors
    /// Which process it is is not known, or it may not be killed.
    pub fn kill_server(&self) -> io::Result<i32> {
        let unseen = "it runs where this process cannot see it (another container)";
        let server = isotherm_live::peer_process(self.stream.get_ref())?;
        let server = server.ok_or_else(|| io::Error::other(unseen))?;
        rustix::process::kill_process(server, rustix::process::Signal::KILL)?;
        Ok(server.as_raw_nonzero().get())
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// The error that the volume answered, or that it went away.
    pub fn ask(&mut self, request: &Request) -> Result<Value, Failure> {
        let mut line = serde_json::to_vec(request).map_err(|e| Failure::failed(e.to_string()))?;
        line.push(b'\n');
        match self.stream.get_mut().write_all(&line) {
            // A server that takes no more connections has said so at once, and closed.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(gone(&e)),
            _ => self.next_answer(),
        }
    }

    /// Asks and waits for the answer, as its type.
    ///
    /// # Errors
    /// As for [`Client::ask`]; or the server, of another version, answers something else.
    pub fn ask_for<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Failure> {
        isotherm_answers::read(&self.ask(request)?).map_err(Failure::failed)
    }

    /// Asks for the answer of `status`.
    ///
    /// # Errors
    /// As for [`Client::ask_for`].
    pub fn status(&mut self) -> Result<Status, Failure> {
        isotherm_answers::read_status(&self.ask(&Request::Status)?).map_err(Failure::failed)
    }

    /// Asks for what commands need of `status`, whatever version the server has.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub fn brief(&mut self) -> Result<Brief, Failure> {
        self.ask_for(&Request::Status)
    }

    /// Waits for a further answer to a request that has several.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub fn next_answer(&mut self) -> Result<Value, Failure> {
        self.wait_aloud();
        let answer = read_line(&mut self.stream).map_err(|e| gone(&e))?;
        let answer = answer
            .ok_or_else(|| Failure::failed("the serving process went away without an answer"))?;
        match serde_json::from_slice(&answer) {
            Ok(Answer::Ok(value)) => Ok(value),
            Ok(Answer::Error(text)) => Err(Failure::failed(text)),
            Err(e) => Err(Failure::failed(format!(
                "the control socket answers something else than Isotherm does: {e}"
            ))),
        }
    }

    /// Waits for the first byte of an answer that has no time limit, and says so on standard error when it takes long: many changes take
    /// their time, and a server may hang.
    fn wait_aloud(&self) {
        let mut pause = WAITS_ALOUD;
        while !self.is_limited && self.stream.buffer().is_empty() {
            let mut wanted = [PollFd::new(self.stream.get_ref(), PollFlags::IN)];
            match poll(&mut wanted, Some(&pause)) {
                Ok(0) => {}
                Err(rustix::io::Errno::INTR) => continue,
                // Reading tells more of an error.
                Ok(_) | Err(_) => return,
            }
            // Nobody may be there to read it.
            let _ = writeln!(
                io::stderr(),
                "isotherm: waiting for the server, which works on this or hangs: see `isotherm status`"
            );
            pause = WAITS_ON;
        }
    }

    /// Waits until the server has ended, at most `limit`: only then are its devices free.
    pub fn wait_for_end(mut self, limit: std::time::Duration) {
        // If this fails, the wait is still bounded by the life of the server's process.
        let _ = self.stream.get_ref().set_read_timeout(Some(limit));
        let _ = read_line(&mut self.stream);
    }

    /// The stream of data after the answer.
    pub fn into_stream(self) -> BufReader<UnixStream> {
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A server that takes no more connections answers before it is asked, and closes.
    #[test]
    fn an_answer_that_came_before_the_question_is_told() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs
            .write_all(b"{\"error\":\"too many\"}\n")
            .expect("written");
        drop(theirs);
        let mut client = Client::over(ours);
        let why = client.ask(&Request::Why { offset: 1 });
        assert_eq!(why, Err(Failure::failed("too many")));
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(denied(false).contains("as root") && !denied(true).contains("run this"));
    }
}
