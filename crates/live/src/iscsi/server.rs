//! Listeners, and the threads of their connections: a reader and a writer for each.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use super::config::Config;
use super::config::bind;
use super::entrance::{self, Begun};
use super::login::Target;
use super::outbox::Outbox;
use super::reservation_file::ReservationFile;
use super::reservations::{Nexus, Order, Refusal, Reservations};
use super::scsi::{Disk, Sense};
pub use crate::nbd::server::TimeLimits;
use crate::port::Port;

/// How long a server that stops waits for initiators to receive the pending answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a session that is taken over may need to finish its commands.
const TAKE_OVER: Duration = Duration::from_secs(30);

/// Figures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once because too many were open, or because no thread could be started.
    pub refused: u64,
    /// Logins refused: a missing or wrong secret, or the name of another target.
    pub unknown: u64,
    /// Connections ended because the peer broke the protocol.
    pub violations: u64,
    /// Connections ended because the peer did not log in, or stopped in the middle of a request.
    pub stalled: u64,
    /// The reason of the last refused login, or of the last connection that ended because of its peer.
    pub last_fault: Option<&'static str>,
}

/// The way in which a connection ended.
pub(super) enum End {
    /// The socket failed.
    Lost,
    /// The peer closed the connection.
    Eof,
    /// The peer stalled in the middle of a request.
    Stalled,
    /// The peer broke the protocol.
    Violation(&'static str),
    /// The peer could not log in.
    Refused(&'static str),
}

struct Entry {
    outbox: Arc<Outbox>,
    /// The nexus of the initiator, once it has logged in.
    session: Option<Nexus>,
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
    /// No new connections are accepted.
    full: AtomicBool,
    table: Mutex<Table>,
    left: Condvar,
    next_tsih: AtomicU16,
    reservations: RwLock<Reservations>,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self) -> Target {
        Target {
            name: self.disk.target.clone(),
            secrets: self.config.secrets.clone(),
        }
    }

    /// The registrations and the reservation.
    pub(super) fn reservations(&self) -> RwLockReadGuard<'_, Reservations> {
        // The value is always replaced as a whole.
        let all = self.reservations.read();
        all.unwrap_or_else(PoisonError::into_inner)
    }

    fn change_reservations(&self) -> RwLockWriteGuard<'_, Reservations> {
        let all = self.reservations.write();
        all.unwrap_or_else(PoisonError::into_inner)
    }

    /// The unit attention that is pending for `who`.
    pub(super) fn attention(&self, who: &Nexus) -> Option<Sense> {
        if self.reservations().attentions.is_empty() {
            return None;
        }
        self.change_reservations().attention(who)
    }

    /// PERSISTENT RESERVE OUT. When this returns, reservations that must be kept are durable, and the volume has no command of the
    /// initiators whose commands must be aborted: earlier commands whose data is still arriving are refused when the data is complete.
    pub(super) fn reserve(&self, who: &Nexus, order: &Order) -> Result<(), Refusal> {
        let gone = {
            let mut now = self.change_reservations();
            let mut next = now.clone();
            let gone = next.change(who, order)?;
            match &self.config.reservation_file {
                Some(reservation_file) if next.aptpl || now.aptpl => {
                    reservation_file.save(&next).map_err(|e| {
                        eprintln!("isotherm: iSCSI reservations are not changed: {e}");
                        // Insufficient resources.
                        Sense(5, 0x55, 3)
                    })?;
                }
                None if next.aptpl => return Err(Sense::PARAMETER.into()),
                _ => {}
            }
            *now = next;
            gone
        };
        let is_gone =
            |e: &&Entry| (e.session.as_ref()).is_some_and(|s| s != who && gone.contains(s));
        let fenced: Vec<Arc<Outbox>> = (self.table().open.iter().filter(is_gone))
            .map(|e| Arc::clone(&e.outbox))
            .collect();
        for outbox in fenced {
            outbox.wait_for_volume();
        }
        Ok(())
    }

    /// Begins a session. If there is an older session of the same nexus, it is ended; all its commands have ended before this returns, so
    /// none of them is executed after a command of the new session.
    pub(super) fn enter(&self, outbox: &Arc<Outbox>, who: &Nexus, discovery: bool) {
        let until = Instant::now() + TAKE_OVER;
        let is_same =
            |e: &Entry| !Arc::ptr_eq(&e.outbox, outbox) && e.session.as_ref() == Some(who);
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
            e.session = Some(who.clone());
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
    /// Listens on all of `addresses` (`HOST:PORT`), or on none and returns the reason.
    ///
    /// # Errors
    /// An address is malformed, in use, or not local (without [`Config::allow_remote`]); a name in `config` is invalid; no thread can be
    /// started.
    pub fn start(port: Arc<dyn Port>, addresses: &[String], config: Config) -> io::Result<Server> {
        config.check()?;
        let mut bound = Vec::new();
        for address in addresses {
            bind(address, config.allow_remote, &mut bound)?;
        }
        let kept = config
            .reservation_file
            .as_ref()
            .map(ReservationFile::load)
            .transpose()?;
        let kept = kept.unwrap_or_default();
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
            reservations: RwLock::new(kept),
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

    /// The addresses on which the server listens, with the actual ports.
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

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.table().open.len()
    }

    /// Number of initiators that have logged in to the disk.
    pub fn clients(&self) -> usize {
        let table = self.shared.table();
        let clients = table
            .open
            .iter()
            .filter(|e| e.session.is_some() && !e.discovery);
        clients.count()
    }

    /// Stops listening, and closes connections that have not logged in yet. Sessions continue.
    pub fn refuse_new(&mut self) {
        self.shared.full.store(true, Ordering::SeqCst);
        for (listener, thread) in self.listeners.drain(..) {
            // This makes `accept` fail. It fails itself only for a socket that is already shut down.
            let _ = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
        let table = self.shared.table();
        for e in table.open.iter().filter(|e| e.session.is_none()) {
            e.outbox.give_up();
        }
    }

    /// Accepts no more requests, completes the accepted ones, and closes. A connection whose initiator does not receive its answers is
    /// closed.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.refuse_new();
        let mut table = self.shared.table();
        for e in &table.open {
            // The reader sees the end of the stream after the data that was already received.
            let _ = e.outbox.socket().shutdown(std::net::Shutdown::Read);
        }
        while !table.open.is_empty() {
            let waited = self.shared.left.wait_timeout(table, STOP_TIMEOUT);
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

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.full.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((socket, _)) => start_connection(socket, shared),
            Err(_) if shared.full.load(Ordering::SeqCst) => return,
            // There are no descriptors left, or a peer left before it was accepted. Neither ends the server; the pause prevents a busy loop
            // in the first case.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn start_connection(socket: TcpStream, shared: &Arc<Shared>) {
    // Answers are sent as a whole. Peers that have disappeared silently, or that do not receive answers, must be detected.
    let prepared = socket
        .set_nodelay(true)
        .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(&socket, true)?))
        .and_then(|()| socket.set_write_timeout(Some(shared.config.time_limits.transmission)));
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
    let leave = ConnectionGuard {
        outbox,
        shared: Arc::clone(shared),
    };
    let started = thread::Builder::new()
        .name("iscsi-read".into())
        .spawn(move || serve_connection(&leave));
    if started.is_err() {
        // The closure was dropped, and has removed the connection from the table.
        shared.table().counts.refused += 1;
    }
}

/// Removes the connection from the table when its thread ends, in whichever way.
struct ConnectionGuard {
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.outbox.give_up();
        let mut table = self.shared.table();
        let at = table
            .open
            .iter()
            .position(|e| Arc::ptr_eq(&e.outbox, &self.outbox));
        let entry = at.map(|at| table.open.remove(at));
        if let Some(who) = entry.and_then(|e| e.session) {
            self.shared.change_reservations().left(&who);
        }
        self.shared.left.notify_all();
    }
}

/// An identifier and a challenge that cannot be predicted.
fn challenge() -> io::Result<(u8, [u8; 16])> {
    let mut bytes = [0; 17];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut challenge = [0; 16];
    challenge.copy_from_slice(&bytes[1..]);
    Ok((bytes[0], challenge))
}

fn serve_connection(at: &ConnectionGuard) {
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

fn transmit(at: &ConnectionGuard, begun: Begun) -> End {
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
    // A panic of the thread was already reported.
    let _ = writer.join();
    end
}
