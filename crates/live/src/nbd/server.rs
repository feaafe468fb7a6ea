//! Listening sockets, and the threads of their connections.
//!
//! A connection has two threads: a reader, and a writer that sleeps unless replies accumulate or the socket is full (see `outbox.rs`). They
//! reach the volume only through [`Port`].

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;

use super::outbox::Outbox;
use super::proto::{Close, Export, Limits};
use super::session::{self, End};
pub use super::socket::Address;
use super::socket::{self, Listener};
pub use super::time_limits::TimeLimits;
use super::tls::{Peers, Tls};
use crate::newcomers::{Newcomer, Newcomers};
use crate::port::Port;
use crate::server::Handle;

/// Longest export name and description, in bytes (the specification's limit for strings).
const MAX_STRING: usize = 4096;
/// Time that a stopping server gives all its clients together to take their replies.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Export name; clients may also leave it empty. At most 4096 bytes, no NUL.
    pub name: String,
    /// For people; at most 4096 bytes, no NUL.
    pub description: String,
    /// Listen on addresses that other machines can reach; only with `tls`.
    pub allow_remote: bool,
    /// If set, every TCP connection must use TLS, and clients must prove their identity with a certificate; unix sockets do not change.
    pub tls: Option<Tls>,
    /// Largest number of clients; further ones are closed when they choose the export.
    pub max_clients: usize,
    /// Open requests of each connection.
    pub limits: Limits,
    /// Time limits for peers that stop in the middle of a message.
    pub time_limits: TimeLimits,
}

impl Config {
    /// A configuration for local clients only, with at most 64.
    pub fn new(name: &str) -> Config {
        Config {
            name: name.to_owned(),
            description: String::new(),
            allow_remote: false,
            tls: None,
            max_clients: 64,
            limits: Limits::default(),
            time_limits: TimeLimits::default(),
        }
    }

    fn check(&self) -> io::Result<()> {
        for (field, text) in [("name", &self.name), ("description", &self.description)] {
            if text.len() > MAX_STRING || text.contains('\0') {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("NBD export {field}: must have at most {MAX_STRING} bytes and no NUL"),
                ));
            }
        }
        if self.allow_remote && self.tls.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "NBD for other machines without TLS: whoever can reach the address could read and write the volume",
            ));
        }
        Ok(())
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that were closed at once because there were too many, or no thread could be started.
    pub refused: u64,
    /// Connections ended because the peer broke the protocol.
    pub violations: u64,
    /// Connections ended because the peer did not choose an export, or stopped in the middle of a write.
    pub stalled: u64,
    /// TLS connections that ended before the peer had proved its identity.
    pub unknown: u64,
}

#[derive(Default)]
struct Table {
    open: Vec<Arc<Outbox>>,
    counts: Counts,
}

struct Shared {
    port: Arc<dyn Port>,
    config: Config,
    /// If set, lone clients are served on the engine's thread.
    engine: Option<Handle>,
    stopping: Arc<AtomicBool>,
    /// Whether new connections are refused.
    full: AtomicBool,
    table: Mutex<Table>,
    left: Condvar,
    /// Connections over the network.
    peers: Arc<Peers>,
    /// Connections that have not chosen the export.
    newcomers: Arc<Newcomers>,
}

/// A running server; dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<(Arc<Listener>, JoinHandle<()>)>,
}

impl Server {
    /// Listens on all of `addresses`, or on none; then the error gives the reason.
    ///
    /// # Errors
    /// An address that is malformed, in use, or not local (without [`Config::allow_remote`]); an invalid name in `config`; a thread could
    /// not be started.
    pub fn start(port: Arc<dyn Port>, addresses: &[Address], config: Config) -> io::Result<Server> {
        Server::begin(port, None, addresses, config)
    }

    /// As [`Server::start`]; clients that send one request after another are served on the engine's own thread. `port` leads to the volume
    /// of `engine`, possibly through a recorder.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on_engine(
        engine: Handle,
        port: Arc<dyn Port>,
        addresses: &[Address],
        config: Config,
    ) -> io::Result<Server> {
        Server::begin(port, Some(engine), addresses, config)
    }

    fn begin(
        port: Arc<dyn Port>,
        engine: Option<Handle>,
        addresses: &[Address],
        config: Config,
    ) -> io::Result<Server> {
        config.check()?;
        let mut bound = Vec::new();
        for address in addresses {
            bound.extend(Listener::bind(address, config.allow_remote)?);
        }
        let shared = Arc::new(Shared {
            port,
            config,
            engine,
            stopping: Arc::default(),
            full: AtomicBool::new(false),
            table: Mutex::default(),
            left: Condvar::new(),
            peers: Arc::default(),
            newcomers: Arc::default(),
        });
        let mut server = Server {
            shared,
            listeners: Vec::new(),
        };
        for listener in bound {
            let listener = Arc::new(listener);
            let (for_thread, shared) = (Arc::clone(&listener), Arc::clone(&server.shared));
            let thread = thread::Builder::new()
                .name("nbd-accept".into())
                .spawn(move || accept(&for_thread, &shared))?;
            server.listeners.push((listener, thread));
        }
        Ok(server)
    }

    /// The addresses at which it listens, with the real port numbers.
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().map(|(l, _)| l.address()).collect()
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        Counts {
            unknown: self.shared.peers.failed(),
            ..self.shared.table().counts
        }
    }

    /// Number of present connections.
    pub fn connections(&self) -> usize {
        self.shared.table().open.len()
    }

    /// Number of clients that have chosen the export.
    pub fn clients(&self) -> usize {
        let table = self.shared.table();
        table.open.iter().filter(|o| o.is_client()).count()
    }

    /// Stops listening, and closes connections that have not chosen an export yet. Clients continue.
    pub fn refuse_new(&mut self) {
        self.shared.full.store(true, Ordering::SeqCst);
        for (listener, thread) in self.listeners.drain(..) {
            listener.stop();
            // A panic in the thread was reported already.
            thread.join().ok();
        }
        self.shared.peers.refuse_new();
        self.shared.newcomers.refuse_new();
    }

    /// Accepts no more connections, answers `ESHUTDOWN` to requests that were received but not started, completes the started ones, closes.
    /// Returns when all threads of the server have ended. A client that does not read its replies is disconnected.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.refuse_new();
        let mut table = self.shared.table();
        for outbox in &table.open {
            // The reader sees the end of the stream after the bytes that it received already.
            socket::shut(outbox.socket(), Shutdown::Read);
        }
        // One limit for all: a peer that leaves does not give the others more time.
        let is_used = |t: &mut Table| !t.open.is_empty();
        let waited = (self.shared.left).wait_timeout_while(table, STOP_TIMEOUT, is_used);
        table = waited.unwrap_or_else(PoisonError::into_inner).0;
        for outbox in &table.open {
            outbox.give_up();
        }
        // The volume still has to answer.
        let waited = self.shared.left.wait_while(table, is_used);
        drop(waited);
        self.shared.peers.end(STOP_TIMEOUT);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer has chosen the export: it is a client from now on. Returns false if there are too many.
    fn admit(&self, peer: &Outbox) -> bool {
        let mut table = self.table();
        let clients = table.open.iter().filter(|o| o.is_client()).count();
        let has_room = clients < self.config.max_clients;
        if has_room {
            peer.become_client();
        } else {
            table.counts.refused += 1;
        }
        has_room
    }

    /// The volume as a new connection sees it. The connection keeps this size even if the volume grows, because the protocol has no message
    /// about that.
    fn export(&self) -> Export {
        Export {
            name: self.config.name.clone(),
            description: self.config.description.clone(),
            bytes: self.port.volume_bytes(),
            read_only: self.port.read_only(),
        }
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    while !shared.full.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok(socket) => match &shared.config.tls {
                Some(tls) if listener.is_tcp() => {
                    let for_peer = Arc::clone(shared);
                    let time_limits = shared.config.time_limits;
                    let known = move |session| start_connection(session, &for_peer);
                    if shared
                        .peers
                        .accept(socket, tls, time_limits, known)
                        .is_err()
                    {
                        shared.table().counts.refused += 1;
                    }
                }
                _ => start_connection(socket, shared),
            },
            Err(_) if shared.full.load(Ordering::SeqCst) => return,
            // There are no descriptors, or the peer left before it was accepted. Neither ends the server; the pause avoids a busy loop in
            // the first case.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn start_connection(socket: std::os::fd::OwnedFd, shared: &Arc<Shared>) {
    let outbox = Arc::new(Outbox::new(socket));
    let to_end = Arc::clone(&outbox);
    let newcomer = shared.newcomers.arrive(move || to_end.give_up());
    let Some(newcomer) = newcomer else {
        shared.table().counts.refused += 1;
        return;
    };
    {
        let mut table = shared.table();
        table.counts.accepted += 1;
        table.open.push(Arc::clone(&outbox));
    }
    let (for_thread, shared_for_thread) = (Arc::clone(&outbox), Arc::clone(shared));
    let thread = thread::Builder::new()
        .name("nbd-read".into())
        .spawn(move || {
            let _leave = ConnectionGuard {
                outbox: &for_thread,
                shared: &shared_for_thread,
            };
            serve_connection(&for_thread, &shared_for_thread, newcomer);
        });
    if thread.is_err() {
        let mut table = shared.table();
        table.open.retain(|o| !Arc::ptr_eq(o, &outbox));
        table.counts.refused += 1;
    }
}

/// Removes the connection from the table, whatever the reason for the end of its thread.
struct ConnectionGuard<'a> {
    outbox: &'a Arc<Outbox>,
    shared: &'a Shared,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.outbox.give_up();
        let mut table = self.shared.table();
        table.open.retain(|o| !Arc::ptr_eq(o, self.outbox));
        self.shared.left.notify_all();
    }
}

fn serve_connection(outbox: &Arc<Outbox>, shared: &Arc<Shared>, newcomer: Newcomer) {
    let writer = {
        let outbox = Arc::clone(outbox);
        thread::Builder::new()
            .name("nbd-write".into())
            .spawn(move || outbox.run_writer())
    };
    let Ok(writer) = writer else {
        shared.table().counts.refused += 1;
        return;
    };
    let (for_session, client) = (Arc::clone(shared), Arc::clone(outbox));
    let admit = move || {
        let is_admitted = for_session.admit(&client);
        drop(newcomer);
        is_admitted
    };
    let end = session::run(
        Box::new(admit),
        Arc::clone(&shared.port),
        shared.engine.clone(),
        Arc::new(shared.export()),
        (shared.config.limits, shared.config.time_limits),
        outbox,
        Arc::clone(&shared.stopping),
    );
    outbox.close();
    writer.join().ok();
    match end {
        End::Closed(Close::Violation(_)) => shared.table().counts.violations += 1,
        End::Stalled => shared.table().counts.stalled += 1,
        _ => {}
    }
}
