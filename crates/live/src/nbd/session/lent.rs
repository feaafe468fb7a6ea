//! A session that the engine's thread serves.

use super::Session;
use crate::nbd::socket;
use crate::world::{Source, Watch};
use rustix::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

/// A session on the engine's thread. The reader gets it back, whatever the reason for its end there.
struct Lent {
    session: Option<Box<Session>>,
    back: SyncSender<Box<Session>>,
    /// The time for a payload that the outbox was told.
    told: Option<Instant>,
}

/// Lets the engine's thread serve the session; returns it when this thread should serve it again.
pub(super) fn lend(session: Session) -> Option<Session> {
    let Some(engine) = session.engine.clone() else {
        return Some(session);
    };
    let (back, returned) = sync_channel(1);
    let mut session = Box::new(session);
    session.lent = true;
    session.outbox.lend();
    let (outbox, pause) = (
        Arc::clone(&session.outbox),
        session.time_limits.transmission / 4,
    );
    let source = Lent {
        session: Some(session),
        back,
        told: None,
    };
    // A closed volume drops the source, which returns the session.
    let _ = engine.call(move |_, world| world.add_source(Box::new(source)));
    // The engine's thread has no clock for its peers, so this thread watches over the payload of a WRITE.
    let mut session = loop {
        match returned.recv_timeout(pause) {
            Ok(session) => break *session,
            Err(RecvTimeoutError::Timeout) if outbox.is_payload_late() => {
                // The engine's thread takes this for the end of the stream, and returns the session.
                socket::shut(outbox.socket(), Shutdown::Read);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    };
    (session.lent, session.light, session.heavy) = (false, 0, 0);
    Some(session)
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.outbox.take_back();
            // The reader waits for exactly one message.
            let _ = self.back.try_send(session);
        }
    }
}

impl Source for Lent {
    fn fd(&self) -> RawFd {
        self.session
            .as_ref()
            .map_or(-1, |s| s.outbox.socket().as_raw_fd())
    }

    fn receive(&mut self) -> Watch {
        let Some(session) = &mut self.session else {
            return Watch::Ended;
        };
        let goes_on = session.take_some();
        let until = session.writing.as_ref().map(|w| w.until);
        if until != self.told {
            session.outbox.awaits_payload(until);
            self.told = until;
        }
        // At the end the source is dropped, which returns the session.
        if goes_on { Watch::Empty } else { Watch::Ended }
    }

    fn settle(&mut self) {
        if let Some(session) = &mut self.session {
            session.pause();
        }
    }
}
