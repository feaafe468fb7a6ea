//! Listeners and their connections' threads: a reader and a writer for each.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::chap::Secrets;
use super::entrance::{self, Begun};
use super::login::Target;
use super::outbox::Outbox;
use super::scsi::Disk;
pub use crate::nbd::server::Patience;
use crate::port::Port;

/// How long a stopping server waits for initiators to take the answers that they are owed.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// How long a session that is taken over may need to finish what it had begun.
const TAKE_OVER: Duration = Duration::from_secs(30);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the volume, for people.
    pub name: String,
    /// Name of the target, `iqn.…`; without it one is made of the volume's name.
    pub target: Option<String>,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Preferred bytes of a transfer: an extent.
    pub preferred: u32,
    /// Who may log in; everybody if there are no secrets.
    pub secrets: Option<Arc<Secrets>>,
    /// Listen on addresses that other machines can reach; only with `secrets`.
    pub allow_remote: bool,
    /// Connections at once; more are closed as they come.
    pub max_connections: usize,
    /// How long peers that stop in the middle of something are waited for.
    pub patience: Patience,
}

impl Config {
    /// Local initiators only, 64 connections, no secrets.
    pub fn new(name: &str, uuid: [u8; 16]) -> Config {
        Config {
            name: name.to_owned(),
            target: None,
            uuid,
            preferred: 64 << 10,
            secrets: None,
            allow_remote: false,
            max_connections: 64,
            patience: Patience::default(),
        }
    }

    /// The target's name.
    pub fn target(&self) -> String {
        self.target.clone().unwrap_or_else(|| {
            let plain = |c: char| match c.to_ascii_lowercase() {
                c if c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-') => c,
                _ => '-',
            };
            let name: String = self.name.chars().map(plain).take(128).collect();
            format!("iqn.2026-01.local.isotherm:{name}")
        })
    }

    fn check(&self) -> io::Result<()> {
        let target = self.target();
        let starts = ["iqn.", "eui.", "naa."]
            .iter()
            .any(|p| target.starts_with(p));
        let fine =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b':' | b'-');
        if !starts || target.len() > 223 || !target.bytes().all(fine) {
            return Err(invalid(&format!(
                "iSCSI target name {target}: write iqn.YYYY-MM.DOMAIN:NAME, at most 223 of a-z, 0-9, '.', ':' and '-'"
            )));
        }
        if self.allow_remote && self.secrets.is_none() {
            return Err(invalid(
                "iSCSI for other machines without secrets: whoever can reach the address could read and write the volume",
            ));
        }
        Ok(())
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Figures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once because too many were open, or no thread could be had.
    pub refused: u64,
    /// Logins refused: no or a wrong secret, another target's name.
    pub unknown: u64,
    /// Connections ended because the peer broke the protocol.
    pub violations: u64,
    /// Connections ended because the peer did not log in, or stopped in the middle of a request.
    pub stalled: u64,
    /// Why the last login was refused or the last connection ended for its peer's fault.
    pub last_fault: Option<&'static str>,
}

/// How a connection ended.
pub(super) enum End {
    /// The socket failed.
    Lost,
    /// The peer left.
    Eof,
    /// The peer began something and did not go on.
    Stalled,
    /// The peer broke the protocol.
    Violation(&'static str),
    /// It could not log in.
    Refused(&'static str),
}

struct Entry {
    outbox: Arc<Outbox>,
    /// Name of the initiator and its part of the session's name, once it has logged in.
    session: Option<(String, [u8; 6])>,
    discovery: bool,
}

#[derive(Default)]
struct Table {
    open: Vec<Entry>,
    counts: Counts,
}

pub(super) struct Shared {
    pub port: Arc<dyn Port>,
    pub config: Config,
    pub disk: Disk,
    pub stopping: AtomicBool,
    /// No new connections.
    full: AtomicBool,
    table: Mutex<Table>,
    left: Condvar,
    next_tsih: AtomicU16,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self) -> Target {
        Target {
            name: self.disk.target.clone(),
            secrets: self.config.secrets.clone(),
        }
    }

    /// A session begins. An older one of that name ends, and what it had begun is over before this returns: nothing of it
    /// overtakes what the initiator sends now.
    pub(super) fn enter(
        &self,
        outbox: &Arc<Outbox>,
        initiator: &str,
        isid: [u8; 6],
        discovery: bool,
    ) {
        let until = Instant::now() + TAKE_OVER;
        let is_same = |e: &Entry| {
            !Arc::ptr_eq(&e.outbox, outbox)
                && (e.session.as_ref()).is_some_and(|s| s.0 == initiator && s.1 == isid)
        };
        let mut table = self.table();
        while table.open.iter().any(is_same) && Instant::now() < until {
            for e in table.open.iter().filter(|e| is_same(e)) {
                e.outbox.give_up();
            }
            let waited = self.left.wait_timeout(table, Duration::from_millis(100));
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(e) = table
            .open
            .iter_mut()
            .find(|e| Arc::ptr_eq(&e.outbox, outbox))
        {
            e.session = Some((initiator.to_owned(), isid));
            e.discovery = discovery;
        }
    }
}

/// A running target; dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<(Arc<TcpListener>, JoinHandle<()>)>,
}

impl Server {
    /// Listens on all of `addresses` (`HOST:PORT`), or on none and says why not.
    ///
    /// # Errors
    /// An address that is malformed, taken, not local (without [`Config::allow_remote`]); a bad name in `config`; no thread.
    pub fn start(port: Arc<dyn Port>, addresses: &[String], config: Config) -> io::Result<Server> {
        config.check()?;
        let mut bound = Vec::new();
        for address in addresses {
            bind(address, config.allow_remote, &mut bound)?;
        }
        let block = port.block_bytes();
        let disk = Disk {
            name: config.name.clone(),
            target: config.target(),
            uuid: config.uuid,
            blocks: port.volume_bytes() / u64::from(block),
            block,
            preferred: config.preferred,
            read_only: port.read_only(),
        };
        let shared = Arc::new(Shared {
            port,
            config,
            disk,
            stopping: AtomicBool::new(false),
            full: AtomicBool::new(false),
            table: Mutex::default(),
            left: Condvar::new(),
            next_tsih: AtomicU16::new(1),
        });
        let mut server = Server {
            shared,
            listeners: Vec::new(),
        };
        for listener in bound {
            let listener = Arc::new(listener);
            let (for_thread, shared) = (Arc::clone(&listener), Arc::clone(&server.shared));
            let thread = thread::Builder::new()
                .name("iscsi-accept".into())
                .spawn(move || accept(&for_thread, &shared))?;
            server.listeners.push((listener, thread));
        }
        Ok(server)
    }

    /// Where it listens; the ports are the real ones.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let all = self
            .listeners
            .iter()
            .filter_map(|(l, _)| l.local_addr().ok());
        all.collect()
    }

    /// Name of the target.
    pub fn target(&self) -> &str {
        &self.shared.disk.target
    }

    /// Figures since the start.
    pub fn counts(&self) -> Counts {
        self.shared.table().counts
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.shared.table().open.len()
    }

    /// Initiators that have logged in to the disk.
    pub fn clients(&self) -> usize {
        let table = self.shared.table();
        let clients = table
            .open
            .iter()
            .filter(|e| e.session.is_some() && !e.discovery);
        clients.count()
    }

    /// Listens no more, and closes connections that have not logged in yet. Initiators go on.
    pub fn refuse_new(&mut self) {
        self.shared.full.store(true, Ordering::SeqCst);
        for (listener, thread) in self.listeners.drain(..) {
            // Makes `accept` fail; fails itself only for a socket that is shut down already.
            let _ = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
            // A panic there was reported already.
            let _ = thread.join();
        }
        let table = self.shared.table();
        for e in table.open.iter().filter(|e| e.session.is_none()) {
            e.outbox.give_up();
        }
    }

    /// Takes in no more, completes what was begun, closes. An initiator that does not take its answers is cut off.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.refuse_new();
        let mut table = self.shared.table();
        for e in &table.open {
            // The reader sees the end of the stream behind what it received already.
            let _ = e.outbox.socket().shutdown(std::net::Shutdown::Read);
        }
        while !table.open.is_empty() {
            let waited = self.shared.left.wait_timeout(table, STOP_PATIENCE);
            let (back, wait) = waited.unwrap_or_else(PoisonError::into_inner);
            table = back;
            if wait.timed_out() {
                for e in &table.open {
                    e.outbox.give_up();
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn bind(address: &str, allow_remote: bool, bound: &mut Vec<TcpListener>) -> io::Result<()> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("iSCSI address {address}: {e}"));
    let resolved: Vec<SocketAddr> = (address.to_socket_addrs())
        .map_err(|e| {
            let why =
                format!("iSCSI address {address}: write HOST:PORT, such as 127.0.0.1:3260 ({e})");
            io::Error::new(e.kind(), why)
        })?
        .collect();
    if let Some(remote) = resolved.iter().find(|a| !a.ip().is_loopback())
        && !allow_remote
    {
        return Err(invalid(&format!(
            "iSCSI address {address} ({remote}) is reachable from other machines, which could then read and write the \
             volume: use 127.0.0.1, or give --iscsi-allow-remote with --iscsi-chap FILE"
        )));
    }
    if resolved.is_empty() {
        return Err(invalid(&format!(
            "iSCSI address {address} names no network address"
        )));
    }
    for a in resolved {
        bound.push(TcpListener::bind(a).map_err(at)?);
    }
    Ok(())
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.full.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((socket, _)) => welcome(socket, shared),
            Err(_) if shared.full.load(Ordering::SeqCst) => return,
            // Out of descriptors, or a peer that left before it was accepted. Neither ends the server; the pause keeps the
            // first from spinning.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn welcome(socket: TcpStream, shared: &Arc<Shared>) {
    // Answers are sent whole; a peer that vanished without a word must not stay for ever; nor one that takes no answers.
    let prepared = socket
        .set_nodelay(true)
        .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(&socket, true)?))
        .and_then(|()| socket.set_write_timeout(Some(shared.config.patience.transmission)));
    let outbox = Arc::new(Outbox::new(socket));
    {
        let mut table = shared.table();
        let is_full = table.open.len() >= shared.config.max_connections;
        if prepared.is_err() || is_full || shared.full.load(Ordering::SeqCst) {
            table.counts.refused += 1;
            return;
        }
        table.counts.accepted += 1;
        table.open.push(Entry {
            outbox: Arc::clone(&outbox),
            session: None,
            discovery: false,
        });
    }
    let leave = Leave {
        outbox,
        shared: Arc::clone(shared),
    };
    let started = thread::Builder::new()
        .name("iscsi-read".into())
        .spawn(move || converse(&leave));
    if started.is_err() {
        // What was to run there is dropped, and has left the table.
        shared.table().counts.refused += 1;
    }
}

/// Takes the connection out of the table however its thread ends.
struct Leave {
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.outbox.give_up();
        let mut table = self.shared.table();
        table.open.retain(|e| !Arc::ptr_eq(&e.outbox, &self.outbox));
        self.shared.left.notify_all();
    }
}

/// An identifier and a challenge that nobody can guess.
fn challenge() -> io::Result<(u8, [u8; 16])> {
    let mut bytes = [0; 17];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut challenge = [0; 16];
    challenge.copy_from_slice(&bytes[1..]);
    Ok((bytes[0], challenge))
}

fn converse(at: &Leave) {
    let shared = &at.shared;
    let end = match challenge() {
        Ok(challenge) => {
            let tsih = shared.next_tsih.fetch_add(1, Ordering::Relaxed).max(1);
            match entrance::login(shared, &at.outbox, tsih, challenge) {
                Ok(begun) => transmit(at, begun),
                Err(end) => end,
            }
        }
        Err(_) => End::Lost,
    };
    let counts = &mut shared.table().counts;
    match end {
        End::Violation(why) => {
            counts.violations += 1;
            counts.last_fault = Some(why);
        }
        End::Stalled if !shared.is_stopping() => counts.stalled += 1,
        End::Refused(why) => {
            counts.unknown += 1;
            counts.last_fault = Some(why);
        }
        End::Stalled | End::Lost | End::Eof => {}
    }
}

fn transmit(at: &Leave, begun: Begun) -> End {
    let outbox = Arc::clone(&at.outbox);
    let (stat_sn, terms) = (begun.stat_sn, begun.terms);
    let writer = thread::Builder::new()
        .name("iscsi-write".into())
        .spawn(move || outbox.run_writer(stat_sn, &terms));
    let Ok(writer) = writer else {
        return End::Lost;
    };
    let end = begun.session.run();
    at.outbox.close();
    // A panic there was reported already.
    let _ = writer.join();
    end
}
