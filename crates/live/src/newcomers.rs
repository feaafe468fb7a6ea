//! Connections whose peers have not shown yet that they may use the volume: NBD before an export is chosen, TLS before the certificate is
//! checked, iSCSI before the login is complete.
//!
//! Anybody who reaches the address can open such connections, and each costs a thread. So they are few, their protocols give them a time
//! limit, and they give way: one more than [`MOST`] ends the oldest. They do not count against the limit on users.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Largest number of newcomers of one server.
pub(crate) const MOST: usize = 32;
/// Longest wait for the thread of an ended newcomer. It only has to notice that its socket is shut down.
const LEAVING: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Table {
    /// In the order of arrival; each ends the connection when it is called.
    waiting: BTreeMap<u64, Box<dyn Fn() + Send>>,
    next: u64,
    closed: bool,
}

/// The newcomers of one server.
#[derive(Default)]
pub(crate) struct Newcomers {
    table: Mutex<Table>,
    left: Condvar,
}

/// A connection that is a newcomer until this is dropped.
pub(crate) struct Newcomer {
    all: Arc<Newcomers>,
    number: u64,
}

impl Newcomers {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has come, which `end` ends: it wakes the connection's thread, which drops the newcomer. If there are too many, the
    /// oldest is ended. `None`: no new connections are wanted.
    pub(crate) fn arrive(self: &Arc<Self>, end: impl Fn() + Send + 'static) -> Option<Newcomer> {
        let mut table = self.table();
        if table.waiting.len() >= MOST {
            if let Some(oldest) = table.waiting.values().next() {
                oldest();
            }
            let full = |t: &mut Table| t.waiting.len() >= MOST;
            let waited = self.left.wait_timeout_while(table, LEAVING, full);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if table.closed || table.waiting.len() >= MOST {
            return None;
        }
        let number = table.next;
        table.next += 1;
        table.waiting.insert(number, Box::new(end));
        Some(Newcomer {
            all: Arc::clone(self),
            number,
        })
    }

    /// Ends all newcomers; none are accepted from now on.
    pub(crate) fn refuse_new(&self) {
        let mut table = self.table();
        table.closed = true;
        for end in table.waiting.values() {
            end();
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let end = self.all.table().waiting.remove(&self.number);
        self.all.left.notify_all();
        // It may be the last owner of the connection, whose end needs no lock of ours.
        drop(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_oldest_gives_way_and_known_peers_do_not() {
        let all = Arc::new(Newcomers::default());
        let (ended, which) = channel();
        let arrive = |n: usize| {
            let ended = ended.clone();
            all.arrive(move || ended.send(n).expect("open"))
        };
        let mut waiting: Vec<_> = (0..MOST).map(|n| arrive(n).expect("room")).collect();
        // The first one becomes a user.
        drop(waiting.remove(0));
        waiting.push(arrive(MOST).expect("room"));
        assert!(which.try_recv().is_err(), "nobody had to go");
        std::thread::scope(|s| {
            let one_more = s.spawn(|| arrive(MOST + 1).is_some());
            assert_eq!(which.recv(), Ok(1), "the oldest that is no user");
            // Its thread ends.
            drop(waiting.remove(0));
            assert!(one_more.join().expect("it arrives"));
        });
        all.refuse_new();
        assert_eq!(which.try_iter().count(), MOST - 1, "all that are left");
        drop(waiting);
        assert!(arrive(0).is_none());
    }
}
