//! The open connections: few, and those that wait for nothing give way.
//!
//! A connection is *busy* from the head of a request to the last byte of its answer; a stream of events is an answer that does not end. All
//! others are idle: no request yet, a handshake, or kept open for the next request. One more connection than [`MOST`] ends the one that has
//! been idle for the longest time. If all are busy, there is no room.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

/// Most connections at a time.
pub(crate) const MOST: usize = 64;

struct Open {
    /// Answers that have not ended.
    busy: usize,
    /// Its place in the order in which connections became idle.
    idle_since: u64,
    /// Ends it.
    end: oneshot::Sender<()>,
}

#[derive(Default)]
struct Table {
    open: BTreeMap<u64, Open>,
    /// Counts arrivals and ends of answers.
    moment: u64,
}

impl Table {
    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }
}

/// The open connections of one view.
#[derive(Default)]
pub(crate) struct Peers {
    table: Mutex<Table>,
}

/// A connection, as long as this exists.
pub(crate) struct Peer {
    all: Arc<Peers>,
    number: u64,
}

/// An answer that has not ended.
pub(crate) struct Busy {
    all: Arc<Peers>,
    number: u64,
}

impl Peers {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every critical section leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has come. The receiver gets a message, or an error, when it must end. `None`: all are busy.
    pub(crate) fn arrive(self: &Arc<Self>) -> Option<(Peer, oneshot::Receiver<()>)> {
        let mut table = self.table();
        if table.open.len() >= MOST {
            let idle = table.open.iter().filter(|(_, open)| open.busy == 0);
            let oldest = idle.min_by_key(|(_, open)| open.idle_since);
            let oldest = *oldest?.0;
            if let Some(open) = table.open.remove(&oldest) {
                // An error means that it has ended by itself.
                let _ = open.end.send(());
            }
        }
        let (end, ended) = oneshot::channel();
        let number = table.moment();
        let open = Open {
            busy: 0,
            idle_since: number,
            end,
        };
        table.open.insert(number, open);
        let all = Arc::clone(self);
        Some((Peer { all, number }, ended))
    }
}

impl Peer {
    /// A request has come; the connection is busy until the result is dropped.
    pub(crate) fn begin(&self) -> Busy {
        if let Some(open) = self.all.table().open.get_mut(&self.number) {
            open.busy += 1;
        }
        Busy {
            all: Arc::clone(&self.all),
            number: self.number,
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.all.table().open.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut table = self.all.table();
        let moment = table.moment();
        if let Some(open) = table.open.get_mut(&self.number) {
            open.busy -= 1;
            open.idle_since = moment;
        }
    }
}

/// The body of an answer, whose connection is busy until it was sent.
pub(crate) struct Answer<B> {
    body: B,
    _busy: Busy,
}

impl<B> Answer<B> {
    pub(crate) fn new(body: B, busy: Busy) -> Answer<B> {
        Answer { body, _busy: busy }
    }
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_idle_for_the_longest_gives_way() {
        let all = Arc::new(Peers::default());
        let mut open: Vec<_> = (0..MOST).map(|_| all.arrive().expect("room")).collect();
        // The first is busy, the second has just been answered: the third has been idle for the longest time.
        let busy = open[0].0.begin();
        drop(open[1].0.begin());
        open.push(all.arrive().expect("one gives way"));
        let has_to_go = |open: &mut Vec<(Peer, oneshot::Receiver<()>)>| -> Vec<usize> {
            let ended = |end: &mut oneshot::Receiver<()>| end.try_recv() == Ok(());
            let each = open.iter_mut().enumerate();
            each.filter_map(|(i, (_, end))| ended(end).then_some(i))
                .collect()
        };
        assert_eq!(has_to_go(&mut open), [2]);
        // It takes no further place until it is gone, and gives none back then.
        drop(open.remove(2));
        assert_eq!(all.table().open.len(), MOST);
        let all_busy: Vec<Busy> = open.iter().map(|(peer, _)| peer.begin()).collect();
        assert!(all.arrive().is_none(), "nobody gives way");
        drop((busy, all_busy));
        assert!(all.arrive().is_some());
        drop(open);
        assert_eq!(all.table().open.len(), 0);
    }
}
