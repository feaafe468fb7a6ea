//! The asking side.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::{Answer, Failure, Request, read_line, socket_path, with_short_path};

/// A connection to a served volume.
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// Whether the volume is served: somebody listens on its control socket.
///
/// # Errors
/// The socket is there and may not be used by us.
pub fn connect(volume: &Path) -> Result<Option<Client>, Failure> {
    let path = socket_path(volume);
    match with_short_path(&path, |p| UnixStream::connect(p)) {
        Ok(stream) => Ok(Some(Client {
            stream: BufReader::new(stream),
        })),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(Failure::file(&path, "connect to the control socket", &e)),
    }
}

/// As [`connect`], for commands that need a served volume.
///
/// # Errors
/// Nobody serves it, with what to do then.
pub fn served(volume: &Path) -> Result<Client, Failure> {
    connect(volume)?.ok_or_else(|| {
        let v = volume.display();
        if volume.extension().is_some_and(|e| e == "toml") && volume.exists() {
            Failure::failed(format!(
                "{v}: is the description of a volume: give the volume, `{}`",
                volume.with_extension("").display()
            ))
        } else if super::beside(volume, ".toml").exists() {
            Failure::failed(format!(
                "{v}: not served: start it with `isotherm serve {v} --loop` (or --block-file DIR, --nbd)"
            ))
        } else {
            Failure::failed(format!(
                "{v}: no such volume: {v}.toml does not exist, here or in /etc/isotherm (see `isotherm list`, `isotherm create --help`)"
            ))
        }
    })
}

impl Client {
    /// From now on an answer must come within `limit`: for whoever asks many, so that one that hangs does not hold up the rest.
    #[must_use]
    pub fn with_limit(self, limit: std::time::Duration) -> Client {
        // Without it the answer is waited for, as by others.
        let _ = self.stream.get_ref().set_read_timeout(Some(limit));
        self
    }

    /// Ask, and wait for the answer.
    ///
    /// # Errors
    /// What the volume answered, or that it went away.
    pub fn ask(&mut self, request: &Request) -> Result<Value, Failure> {
        let gone = |e: &io::Error| {
            if e.kind() == io::ErrorKind::WouldBlock {
                return Failure::failed("the serving process does not answer");
            }
            Failure::failed(format!(
                "the serving process went away: {}",
                crate::failure::reason(e)
            ))
        };
        let mut line = serde_json::to_vec(request).map_err(|e| Failure::failed(e.to_string()))?;
        line.push(b'\n');
        self.stream
            .get_mut()
            .write_all(&line)
            .map_err(|e| gone(&e))?;
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

    /// Wait until the other side is gone, at most `limit`: only then its devices are free.
    pub fn wait_for_end(mut self, limit: std::time::Duration) {
        // Without the limit the wait is still bounded by the life of the other process.
        let _ = self.stream.get_ref().set_read_timeout(Some(limit));
        let _ = read_line(&mut self.stream);
    }

    /// What comes after the answer.
    pub fn into_stream(self) -> BufReader<UnixStream> {
        self.stream
    }
}
