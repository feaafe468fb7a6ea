//! A session that the engine's thread serves.

use super::Session;
use crate::world::{Source, Watch};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{SyncSender, sync_channel};

/// A session on the engine's thread. However it ends there, the reader gets it back.
struct Lent {
    session: Option<Box<Session>>,
    back: SyncSender<Box<Session>>,
}

/// Let the engine's thread serve; the session when it is to be served here again.
pub(super) fn lend(session: Session) -> Option<Session> {
    let Some(engine) = session.engine.clone() else {
        return Some(session);
    };
    let (back, returned) = sync_channel(1);
    let mut session = Box::new(session);
    session.lent = true;
    let source = Lent {
        session: Some(session),
        back,
    };
    // A volume that is closed drops the source, which sends the session back.
    let _ = engine.call(move |_, world| world.add_source(Box::new(source)));
    let mut session = *returned.recv().ok()?;
    (session.lent, session.lone, session.crowd) = (false, 0, 0);
    Some(session)
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // The reader waits for exactly one.
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
        // At the end the source is dropped, which sends the session back.
        if goes_on { Watch::Empty } else { Watch::Ended }
    }
}
