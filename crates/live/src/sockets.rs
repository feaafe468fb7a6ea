//! The common part of NBD and iSCSI as front ends: a server with clients on sockets.

use crate::front_end::{Capabilities, FrontEnd};
use rustix::net::sockopt;
use rustix::process::Pid;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
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
