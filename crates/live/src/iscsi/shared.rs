//! What the threads of a target share: its settings, its open connections, and the reservations of its initiators.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::{Duration, Instant};

use super::config::Config;
use super::disk::Disk;
use super::login::Target;
use super::outbox::Outbox;
use super::reservations::{Nexus, Order, Refusal, Reservations};
use super::sense::Sense;
use crate::newcomers::Newcomers;
use crate::port::Port;

/// Interval of the checks in this time.
const TAKE_OVER_CHECK: Duration = Duration::from_millis(100);

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

/// An open connection.
pub(super) struct Entry {
    pub outbox: Arc<Outbox>,
    /// The nexus of the initiator, once it has logged in.
    pub session: Option<Nexus>,
    pub discovery: bool,
}

/// The open connections.
#[derive(Default)]
pub(super) struct Table {
    pub open: Vec<Entry>,
    pub counts: Counts,
}

/// What the threads of a target share.
pub(super) struct Shared {
    pub port: Arc<dyn Port>,
    pub config: Config,
    pub disk: Disk,
    pub stopping: AtomicBool,
    /// No new connections are accepted.
    pub full: AtomicBool,
    /// Connections whose initiators have not logged in.
    pub newcomers: Arc<Newcomers>,
    table: Mutex<Table>,
    left: Condvar,
    next_tsih: AtomicU16,
    reservations: RwLock<Reservations>,
}

impl Shared {
    pub(super) fn new(
        port: Arc<dyn Port>,
        config: Config,
        disk: Disk,
        reservations: Reservations,
    ) -> Shared {
        Shared {
            port,
            config,
            disk,
            stopping: AtomicBool::new(false),
            full: AtomicBool::new(false),
            newcomers: Arc::default(),
            table: Mutex::default(),
            left: Condvar::new(),
            next_tsih: AtomicU16::new(1),
            reservations: RwLock::new(reservations),
        }
    }

    /// The number of the next session; never 0.
    pub(super) fn next_tsih(&self) -> u16 {
        self.next_tsih.fetch_add(1, Ordering::Relaxed).max(1)
    }

    /// Waits until a connection has left, at most until this time.
    pub(super) fn wait_for_leaving<'a>(
        &self,
        table: MutexGuard<'a, Table>,
        until: Instant,
    ) -> MutexGuard<'a, Table> {
        let limit = until.saturating_duration_since(Instant::now());
        let waited = self.left.wait_timeout(table, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self) -> Target {
        Target {
            name: self.disk.target.clone(),
            secrets: self.config.secrets.clone(),
        }
    }

    /// Returns true if the server is stopping and ends this session.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
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

    /// The disk gets the present size of the volume. Initiators that are logged in get a unit attention.
    pub(super) fn resized(&self) {
        let blocks = self.port.volume_bytes() / u64::from(self.disk.block);
        self.disk.present_blocks.store(blocks, Ordering::Release);
        let table = self.table();
        let users = table.open.iter().filter(|e| !e.discovery);
        let users: Vec<Nexus> = users.filter_map(|e| e.session.clone()).collect();
        drop(table);
        let mut reservations = self.change_reservations();
        for who in users {
            reservations.tell_also(who, Sense::CAPACITY);
        }
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
                        tracing::warn!("iSCSI reservations are not changed: {e}");
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
    /// none of them is executed after a command of the new session. An error: the older session's commands do not end, there are too many
    /// sessions, or the server is stopping.
    pub(super) fn enter(
        &self,
        outbox: &Arc<Outbox>,
        who: &Nexus,
        discovery: bool,
    ) -> Result<(), &'static str> {
        let until = Instant::now() + self.config.take_over;
        let is_same =
            |e: &Entry| !Arc::ptr_eq(&e.outbox, outbox) && e.session.as_ref() == Some(who);
        let mut table = self.table();
        while table.open.iter().any(is_same) {
            if Instant::now() >= until {
                return Err("its older session does not end: the volume has not answered it");
            }
            if self.is_stopping() {
                return Err("the server is stopping");
            }
            for e in table.open.iter().filter(|e| is_same(e)) {
                e.outbox.give_up();
            }
            let moment = Instant::now() + TAKE_OVER_CHECK;
            table = self.wait_for_leaving(table, moment.min(until));
        }
        let sessions = table.open.iter().filter(|e| e.session.is_some()).count();
        if sessions >= self.config.max_sessions {
            return Err("there are too many sessions");
        }
        let mut all = table.open.iter_mut();
        if let Some(e) = all.find(|e| Arc::ptr_eq(&e.outbox, outbox)) {
            e.session = Some(who.clone());
            e.discovery = discovery;
        }
        Ok(())
    }
}

/// Removes the connection from the table when its thread ends, in whichever way.
pub(super) struct ConnectionGuard {
    pub outbox: Arc<Outbox>,
    pub shared: Arc<Shared>,
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
