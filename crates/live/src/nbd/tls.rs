//! TLS for clients of other machines: NBD's STARTTLS, which is mandatory. A client that comes over the network must prove with a
//! certificate that it may connect, before any information about the volume is given or any operation is done.
//!
//! ```text
//!  TCP ─► greeting, options (all but STARTTLS refused) ─► TLS handshake ─┬─ decrypted ─► socket pair ─► session
//!                                                                        └─ encrypted ◄─ socket pair ◄─ session
//! ```
//! Each connection has a thread of its own here, and one end of a socket pair in `server.rs`, which treats it like any local client:
//! `session.rs` applies its shares of memory, its time limits and its rules for the end. Until the handshake is complete, a peer costs only
//! that thread and does not count as a client; if too many handshakes are in progress, the oldest one is ended.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::proto::starttls::{self, Next};
use super::relay;
use super::time_limits::TimeLimits;

/// Largest number of handshakes in progress; one more ends the oldest.
const HANDSHAKES_MAX: usize = 32;
/// Largest file of certificates that is read, in bytes.
const PEM_MAX: u64 = 4 << 20;
/// Options that a client may try before STARTTLS.
const OPTIONS_MAX: usize = 32;

/// The server's identity, and the clients that may connect.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

fn bad(file: &Path, what: impl fmt::Display) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidInput,
        format!("{}: {what}", file.display()),
    )
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = isotherm_paths::read(file, PEM_MAX).map_err(|e| bad(file, e))?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|e| bad(file, format!("no certificates in PEM: {e}")))?;
    if all.is_empty() {
        return Err(bad(
            file,
            "no certificate in it: give a PEM file with BEGIN CERTIFICATE",
        ));
    }
    Ok(all)
}

impl Tls {
    /// From PEM files: the server's certificate (followed by those between it and its root), its private key, and the certificates of the
    /// authorities that sign clients' certificates.
    ///
    /// # Errors
    /// A file that cannot be read or has the wrong contents; a key that does not belong to the certificate.
    pub fn load(certificate: &Path, key: &Path, clients: &Path) -> io::Result<Tls> {
        let chain = certificates(certificate)?;
        let text = isotherm_paths::read_secret(key, PEM_MAX).map_err(|e| bad(key, e))?;
        let private = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| {
            bad(
                key,
                format!("no private key in PEM (without a password): {e}"),
            )
        })?;
        let mut roots = RootCertStore::empty();
        for root in certificates(clients)? {
            roots
                .add(root)
                .map_err(|e| bad(clients, format!("cannot sign clients: {e}")))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|e| bad(clients, e))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, private)
            .map_err(|e| {
                bad(
                    certificate,
                    format!("does not go with the key {}: {e}", key.display()),
                )
            })?;
        Ok(Tls(Arc::new(config)))
    }
}

/// A TCP stream with one deadline for all reads and writes.
struct DeadlineStream<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl DeadlineStream<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.read(buf)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The part of the protocol before TLS. Returns the client's flags. It reads nothing beyond STARTTLS, so that unencrypted bytes are never
/// taken for encrypted ones.
fn negotiate_starttls(stream: &mut (impl Read + Write)) -> io::Result<[u8; 4]> {
    let broken = || io::Error::from(ErrorKind::InvalidData);
    stream.write_all(&starttls::greeting())?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; starttls::OPTION_BYTES];
        stream.read_exact(&mut head)?;
        let data = starttls::data_bytes(&head).ok_or_else(broken)?;
        let thrown_away = io::copy(
            &mut Read::by_ref(stream).take(u64::from(data)),
            &mut io::sink(),
        )?;
        if thrown_away < u64::from(data) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (reply, next) = starttls::answer(&head);
        stream.write_all(&reply)?;
        match next {
            Next::Options => {}
            Next::Tls => return Ok(flags),
            Next::Close => return Err(ErrorKind::ConnectionAborted.into()),
        }
    }
    Err(broken())
}

struct Peer {
    stream: Arc<TcpStream>,
    /// Whether the peer has proved its identity.
    known: bool,
}

#[derive(Default)]
struct Table {
    peers: BTreeMap<u64, Peer>,
    next: u64,
    failed: u64,
}

/// All connections that speak TLS, from their acceptance to their end.
#[derive(Default)]
pub(super) struct Peers {
    table: Mutex<Table>,
    left: Condvar,
}

/// Removes a peer from the table, whatever the reason for the end of its thread.
struct PeerGuard<'a>(&'a Peers, u64);

impl Drop for PeerGuard<'_> {
    fn drop(&mut self) {
        self.0.table().peers.remove(&self.1);
        self.0.left.notify_all();
    }
}

impl Peers {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a peer on a thread of its own; `welcome` gets the session's end of the pair once the peer's identity is proved. It may
    /// refuse.
    pub(super) fn accept(
        self: &Arc<Self>,
        socket: OwnedFd,
        tls: &Tls,
        time_limits: TimeLimits,
        welcome: impl FnOnce(OwnedFd) + Send + 'static,
    ) -> io::Result<()> {
        let stream = Arc::new(TcpStream::from(socket));
        let id = {
            let mut table = self.table();
            let dallying = table.peers.values().filter(|p| !p.known);
            if dallying.clone().count() >= HANDSHAKES_MAX
                && let Some(oldest) = dallying.map(|p| &p.stream).next()
            {
                // Its thread removes it from the table. If the peer is gone already, nothing is to be done.
                let _ = oldest.shutdown(Shutdown::Both);
            }
            let id = table.next;
            table.next += 1;
            let peer = Peer {
                stream: Arc::clone(&stream),
                known: false,
            };
            table.peers.insert(id, peer);
            id
        };
        let (peers, config) = (Arc::clone(self), Arc::clone(&tls.0));
        let started = thread::Builder::new()
            .name("nbd-tls".into())
            .spawn(move || {
                let _leave = PeerGuard(&peers, id);
                match handshake(&stream, config, time_limits) {
                    Ok((connection, inner, outer)) => {
                        if let Some(peer) = peers.table().peers.get_mut(&id) {
                            peer.known = true;
                        }
                        welcome(inner);
                        relay::run(connection, &stream, &outer);
                    }
                    Err(_) => peers.table().failed += 1,
                }
                // The peer may have gone first.
                let _ = stream.shutdown(Shutdown::Both);
            });
        if let Err(e) = started {
            self.table().peers.remove(&id);
            return Err(e);
        }
        Ok(())
    }

    /// Number of connections that ended before the peer's identity was proved.
    pub(super) fn failed(&self) -> u64 {
        self.table().failed
    }

    /// Ends the handshakes in progress.
    pub(super) fn refuse_new(&self) {
        for peer in self.table().peers.values().filter(|p| !p.known) {
            // As above.
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until the last bytes of all peers were sent, at most `timeout`, then disconnects them. Sessions must have ended before.
    pub(super) fn end(&self, timeout: Duration) {
        self.refuse_new();
        let until = Instant::now() + timeout;
        let mut table = self.table();
        while !table.peers.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                for peer in table.peers.values() {
                    let _ = peer.stream.shutdown(Shutdown::Both);
                }
            }
            let wait = left.max(Duration::from_millis(10));
            table = match self.left.wait_timeout(table, wait) {
                Ok((table, _)) => table,
                Err(e) => e.into_inner().0,
            };
        }
    }
}

/// Carries out all steps until the session takes over. Returns the session's end of a socket pair, our end, and the keys.
fn handshake(
    stream: &TcpStream,
    config: Arc<ServerConfig>,
    time_limits: TimeLimits,
) -> io::Result<(ServerConnection, OwnedFd, UnixStream)> {
    let mut slow = DeadlineStream {
        stream,
        until: Instant::now() + time_limits.handshake,
    };
    let flags = negotiate_starttls(&mut slow)?;
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        if let Err(e) = connection.complete_io(&mut slow) {
            // The alert tells the peer the reason, if it can still be sent.
            let _ = connection.write_tls(&mut slow);
            return Err(e);
        }
    }
    let (inner, outer) = UnixStream::pair()?;
    // The session sends its greeting as to every client; the peer has received one before, and its flags are passed on again.
    (&outer).write_all(&flags)?;
    Ok((connection, inner.into(), outer))
}
