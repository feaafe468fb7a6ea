//! Listeners, and the threads of their connections: a reader and a writer for each.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::config::bind;
pub use super::config::{Config, TimeLimits};
use super::disk::Disk;
use super::entrance::{self, Begun};
use super::outbox::Outbox;
use super::reservation_file::ReservationFile;
pub use super::shared::Counts;
use super::shared::{ConnectionGuard, End, Entry, Shared};
use crate::newcomers::Newcomer;
use crate::port::Port;
use crate::sockets::prepare_tcp;

/// How long a server that stops waits for all initiators together to receive the pending answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
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
            present_blocks: AtomicU64::new(port.volume_bytes() / u64::from(block)),
            block,
            preferred: config.preferred,
            read_only: port.read_only(),
            zeros: port.discards_to_zeros(),
        };
        let shared = Arc::new(Shared::new(port, config, disk, kept));
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

    /// The volume has grown: from now on the disk has its present size, and each initiator gets a unit attention with its next command.
    pub fn resized(&self) {
        self.shared.resized();
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
        self.shared.newcomers.refuse_new();
    }

    /// Accepts no more requests, completes those that the volume has, and closes. Initiators that do not receive their answers in 3 s are
    /// closed, so a stop takes at most this time and what the volume needs for its answers.
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
        let until = Instant::now() + STOP_TIMEOUT;
        while !table.open.is_empty() && Instant::now() < until {
            table = self.shared.wait_for_leaving(table, until);
        }
        for e in &table.open {
            e.outbox.give_up();
        }
        // The volume still has to answer.
        while !table.open.is_empty() {
            table = self
                .shared
                .wait_for_leaving(table, Instant::now() + STOP_TIMEOUT);
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
    // Peers that do not receive answers must be noticed.
    let limit = shared.config.time_limits.transmission;
    let prepared = prepare_tcp(&socket).and_then(|()| socket.set_write_timeout(Some(limit)));
    let outbox = Arc::new(Outbox::new(socket));
    let to_end = Arc::clone(&outbox);
    let newcomer = shared.newcomers.arrive(move || to_end.give_up());
    let Some(newcomer) = newcomer.filter(|_| prepared.is_ok()) else {
        shared.table().counts.refused += 1;
        return;
    };
    {
        let mut table = shared.table();
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
        .spawn(move || serve_connection(&leave, newcomer));
    if started.is_err() {
        // The closure was dropped, and has removed the connection from the table.
        shared.table().counts.refused += 1;
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

fn serve_connection(at: &ConnectionGuard, newcomer: Newcomer) {
    let shared = &at.shared;
    let end = match challenge() {
        Ok(challenge) => match entrance::login(shared, &at.outbox, newcomer, challenge) {
            Ok(begun) => transmit(at, begun),
            Err(end) => end,
        },
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
