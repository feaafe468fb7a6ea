//! The common part of NBD, iSCSI and vhost-user as front ends: a server with clients on sockets.

use crate::front_end::{Capabilities, FrontEnd};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt;
use rustix::process::Pid;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A connection that is silent for this long is probed, at this interval, and ends after so many probes without an answer: a machine that
/// lost its power says nothing. (If answers were on their way to it, the kernel's retransmissions end it after a quarter of an hour.)
const SILENT: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// Prepares the socket of a peer that was accepted.
pub(crate) fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    // Answers are sent whole; a delay to merge them with later ones would only add latency.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

/// A server that has clients.
pub(crate) trait Clients: Send {
    /// The operations that clients can request.
    const CAPABILITIES: Capabilities;
    /// The words for one client and for several, as they follow their number in a sentence.
    const WORDS: (&'static str, &'static str);
    /// See [`FrontEnd::outlives`].
    const OUTLIVES: bool;
    /// Number of clients that use the volume now.
    fn clients(&self) -> usize;
    /// Numbers of connections that were accepted, refused, ended for a breach of the protocol, ended for stalling, and not authenticated.
    fn counts(&self) -> [u64; 5];
    /// The volume has grown. Returns the words about clients, as in `NBD clients see …`.
    fn resized(&self) -> &'static str;
    /// Stops listening.
    fn refuse_new(&mut self);
    /// Completes the work in progress and ends.
    fn stop(self);
}

/// Such a server as a front end.
pub(crate) struct Listening<S> {
    pub names: Vec<String>,
    pub server: S,
}

impl<S: Clients> FrontEnd for Listening<S> {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn capabilities(&self) -> Capabilities {
        S::CAPABILITIES
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let names = ["accepted", "refused", "violations", "stalled", "unknown"];
        let clients = ("clients", self.server.clients() as u64);
        let counts = names.into_iter().zip(self.server.counts());
        std::iter::once(clients).chain(counts).collect()
    }

    fn outlives(&self) -> bool {
        S::OUTLIVES
    }

    fn refuse_new(&mut self) {
        self.server.refuse_new();
    }

    fn users(&mut self) -> Option<String> {
        match self.server.clients() {
            0 => None,
            1 => Some(format!("1 {}", S::WORDS.0)),
            n => Some(format!("{n} {}", S::WORDS.1)),
        }
    }

    fn resized(&mut self) -> String {
        format!("{}: {}", self.names.join(", "), self.server.resized())
    }

    fn stop(self: Box<Self>) {
        self.server.stop();
    }
}

/// A listening unix socket. Its file is removed with it.
pub(crate) struct UnixSocket {
    pub listener: UnixListener,
    pub path: PathBuf,
    identity: SocketIdentity,
}

/// Device, inode and time of creation of a socket's file. A file system may give the inode number of a removed socket to the next one.
type SocketIdentity = (u64, u64, i64, i64);

fn identity_of(path: &Path) -> io::Result<SocketIdentity> {
    let m = std::fs::symlink_metadata(path)?;
    Ok((m.dev(), m.ino(), m.mtime(), m.mtime_nsec()))
}

impl UnixSocket {
    /// Binds, after removing a socket file that a dead server left. `what` names the protocol in errors. If `private`, only the user of this
    /// process can ever connect, whatever the umask is.
    ///
    /// The check, the removal and the bind happen under a lock of the directory. Otherwise, of two servers that start together, one could
    /// take the other's new socket for a dead one.
    ///
    /// # Errors
    /// The path is taken by a server or by something that is no socket, or its directory cannot be written.
    pub(crate) fn bind(what: &str, path: &Path, private: bool) -> io::Result<UnixSocket> {
        let at = |e: &io::Error| {
            io::Error::new(e.kind(), format!("{what} socket {}: {e}", path.display()))
        };
        let taken = |kind: io::ErrorKind, why: &str| at(&io::Error::new(kind, why));
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let directory = std::fs::File::open(parent).map_err(|e| at(&e))?;
        flock(&directory, FlockOperation::LockExclusive).map_err(|e| at(&e.into()))?;
        if let Ok(metadata) = std::fs::symlink_metadata(path) {
            if !metadata.file_type().is_socket() {
                let why = "the path exists and is not a socket; choose another path";
                return Err(taken(io::ErrorKind::AlreadyExists, why));
            }
            match UnixStream::connect(path) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(|e| at(&e))?;
                }
                Ok(_) => {
                    let why = "another server listens there; stop it or choose another path";
                    return Err(taken(io::ErrorKind::AddrInUse, why));
                }
                Err(e) => return Err(at(&e)),
            }
        }
        let listener = if private {
            isotherm_paths::bind(path, 0o600)
        } else {
            UnixListener::bind(path)
        };
        let listener = listener.map_err(|e| at(&e))?;
        let identity = identity_of(path).map_err(|e| at(&e))?;
        Ok(UnixSocket {
            listener,
            path: path.to_owned(),
            identity,
        })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Another server may have taken the path since.
        if identity_of(&self.path).is_ok_and(|now| now == self.identity) {
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// The process that listens at the other end of a Unix socket; `None` if it cannot be seen from here.
///
/// # Errors
/// The system does not tell.
pub fn peer_process(socket: &UnixStream) -> io::Result<Option<Pid>> {
    // SAFETY: all-zero is a valid `ucred`.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a valid descriptor, and room for what this option gives.
    let told = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    if told != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Pid::from_raw(peer.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// No test can take a machine's power; these are the kernel's own words about what it will do then.
    #[test]
    fn a_machine_that_vanished_is_noticed_in_about_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let at = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(at).expect("connected");
        prepare_tcp(&stream).expect("prepared");
        assert!(sockopt::socket_keepalive(&stream).expect("told"));
        let wait = sockopt::tcp_keepidle(&stream).expect("told")
            + sockopt::tcp_keepintvl(&stream).expect("told")
                * sockopt::tcp_keepcnt(&stream).expect("told");
        assert_eq!(wait, Duration::from_secs(60));
    }
}
