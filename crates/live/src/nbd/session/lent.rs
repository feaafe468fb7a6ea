//! A session that the engine's thread serves.

use super::Session;
use crate::world::{Source, Watch};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{SyncSender, sync_channel};

/// A session on the engine's thread. The reader gets it back, whatever the reason for its end there.
struct Lent {
    session: Option<Box<Session>>,
    back: SyncSender<Box<Session>>,
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
    let source = Lent {
        session: Some(session),
        back,
    };
    // A closed volume drops the source, which returns the session.
    let _ = engine.call(move |_, world| world.add_source(Box::new(source)));
    let mut session = *returned.recv().ok()?;
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
        let goes_on = self.session.as_mut().is_some_and(|s| s.take_some());
        // At the end the source is dropped, which returns the session.
        if goes_on { Watch::Empty } else { Watch::Ended }
    }

    fn settle(&mut self) {
        if let Some(session) = &mut self.session {
            session.pause();
        }
    }
}
