//! Stream sockets of both families, and the addresses of servers.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::sockets::{UnixSocket, prepare_tcp};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

/// Longest path that fits into a socket's address with the terminating zero.
const SUN_PATH_MAX: usize = 107;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket at this path.
    Unix(PathBuf),
    /// `HOST:PORT`; port 0 lets the system choose.
    Tcp(String),
}

impl FromStr for Address {
    type Err = io::Error;
    /// `unix:PATH` or `HOST:PORT`.
    fn from_str(text: &str) -> io::Result<Address> {
        match text.strip_prefix("unix:") {
            Some("") => Err(invalid(
                "NBD address `unix:` lacks the path of the socket: write unix:PATH",
            )),
            Some(path) if path.len() > SUN_PATH_MAX => Err(invalid(&format!(
                "NBD socket {path}: the path has {} bytes, a socket's may have {SUN_PATH_MAX}: give a shorter one, such as \
                 one relative to the working directory",
                path.len()
            ))),
            Some(path) => Ok(Address::Unix(path.into())),
            None if text
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) =>
            {
                Ok(Address::Tcp(text.to_owned()))
            }
            None => Err(invalid(&format!(
                "NBD address `{text}` is neither unix:PATH nor HOST:PORT"
            ))),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host) => f.write_str(host),
        }
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn at(place: &dyn fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("NBD socket {place}: {error}"))
}

/// A listening socket. The file of a unix socket is removed with it.
pub(super) enum Listener {
    Unix(UnixSocket),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on everything to which `address` refers: one socket, or one for each address of a host name.
    pub(super) fn bind(address: &Address, allow_remote: bool) -> io::Result<Vec<Listener>> {
        match address {
            Address::Unix(path) => {
                UnixSocket::bind("NBD", path, false).map(|s| vec![Listener::Unix(s)])
            }
            Address::Tcp(host) => {
                let resolved: Vec<SocketAddr> = host
                    .to_socket_addrs()
                    .map_err(|e| at(address, &e))?
                    .collect();
                if let Some(remote) = resolved.iter().find(|a| !a.ip().is_loopback())
                    && !allow_remote
                {
                    return Err(invalid(&format!(
                        "NBD address {host} ({remote}) is reachable from other machines, which could then read and \
                         write the volume without a password: use 127.0.0.1 or a unix socket, or give \
                         --nbd-allow-remote with TLS certificates (--nbd-tls-cert, --nbd-tls-key, --nbd-tls-clients)"
                    )));
                }
                if resolved.is_empty() {
                    return Err(invalid(&format!(
                        "NBD address {host} names no network address"
                    )));
                }
                resolved
                    .iter()
                    .map(|a| {
                        TcpListener::bind(a)
                            .map(Listener::Tcp)
                            .map_err(|e| at(a, &e))
                    })
                    .collect()
            }
        }
    }

    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Listener::Unix(socket) => socket.listener.accept().map(|(s, _)| OwnedFd::from(s)),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                prepare_tcp(&stream)?;
                Ok(OwnedFd::from(stream))
            }
        }
    }

    /// Whether clients come over a network, or could.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Listener::Tcp(_))
    }

    /// The real address, in the form in which `Address` is printed.
    pub(super) fn address(&self) -> Address {
        match self {
            Listener::Unix(socket) => Address::Unix(socket.path.clone()),
            Listener::Tcp(listener) => Address::Tcp(
                listener
                    .local_addr()
                    .map_or_else(|e| e.to_string(), |a| a.to_string()),
            ),
        }
    }

    /// Makes `accept` return an error, now and later.
    pub(super) fn stop(&self) {
        let fd = match self {
            Listener::Unix(socket) => socket.listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        };
        // This fails only for a socket that is already shut down.
        rustix::net::shutdown(fd, Shutdown::Both).ok();
    }
}

/// Receives into the parts in order; 0 is the end of the stream. Without `wait`, it returns `WouldBlock` if there are no bytes.
pub(super) fn receive(
    socket: &OwnedFd,
    parts: &mut [IoSliceMut<'_>],
    wait: bool,
) -> io::Result<usize> {
    loop {
        let received = if wait {
            rustix::io::readv(socket, parts)
        } else {
            let mut nothing = RecvAncillaryBuffer::default();
            rustix::net::recvmsg(socket, parts, &mut nothing, RecvFlags::DONTWAIT).map(|r| r.bytes)
        };
        match received {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Sends as much as fits; without `wait`, it returns `WouldBlock` if nothing fits.
pub(super) fn send(socket: &OwnedFd, parts: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
    let flags = if wait {
        SendFlags::NOSIGNAL
    } else {
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT
    };
    loop {
        let sent = match parts {
            // The common case of one reply without data needs no vector.
            [one] => rustix::net::send(socket, one, flags),
            many => rustix::net::sendmsg(socket, many, &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Sends all bytes, and waits as long as necessary.
pub(super) fn send_all(socket: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = send(socket, &[IoSlice::new(bytes)], true)?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// Ends one or both directions, and wakes threads that wait there.
pub(super) fn shut(socket: &OwnedFd, how: Shutdown) {
    // This fails only if the peer ended it first.
    rustix::net::shutdown(socket, how).ok();
}

/// Sets the time limit of a receive, at least a millisecond.
pub(super) fn set_receive_timeout(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let timeout = Some(timeout.max(Duration::from_millis(1)));
    Ok(set_socket_timeout(socket, Timeout::Recv, timeout)?)
}

/// Sets the time limit of a send that waits for room, at least a millisecond.
pub(super) fn set_send_timeout(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let timeout = Some(timeout.max(Duration::from_millis(1)));
    Ok(set_socket_timeout(socket, Timeout::Send, timeout)?)
}
