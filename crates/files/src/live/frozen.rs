//! Attributes of a file whose descriptor a move keeps locked.

use super::{Held, Live, State};
use crate::disk::cached_facts_of;
use crate::tree::Facts;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// The way to the attributes of a file in use.
pub(crate) enum Look<'a> {
    /// From its descriptor.
    Held(Held<'a>),
    /// A move keeps the descriptor, and nothing can change the file meanwhile.
    Frozen(Facts),
    /// The file is being opened for the first time.
    Opening,
}

/// The lock of a move on the descriptor of a file in use, which stops readers and writers. The attributes can be read meanwhile: the move
/// may wait long for a tier that does not answer.
#[derive(Debug)]
pub(crate) struct Freeze<'a> {
    live: &'a Live,
    pub(crate) state: RwLockWriteGuard<'a, State>,
}

impl Drop for Freeze<'_> {
    fn drop(&mut self) {
        // Before the lock is released: then others may change the file.
        self.live.set_frozen(None);
    }
}

impl Live {
    fn set_frozen(&self, facts: Option<Facts>) {
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = facts;
    }
    /// Locks the descriptor for a move.
    pub(crate) fn freeze(&self) -> Freeze<'_> {
        let state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // What the kernel knows is right: every change of an open file goes through this descriptor.
        let facts = state
            .home
            .as_ref()
            .and_then(|b| cached_facts_of(&b.fd).ok());
        self.set_frozen(facts.map(|f| self.with_shown_ctime(f)));
        Freeze { live: self, state }
    }
    /// The way to the attributes that waits for no tier.
    pub(crate) fn look(&self) -> Look<'_> {
        loop {
            match self.state.try_read() {
                Ok(state) => return Look::Held(Held(state)),
                Err(TryLockError::Poisoned(state)) => return Look::Held(Held(state.into_inner())),
                Err(TryLockError::WouldBlock) => {}
            }
            if !self.opened.load(Ordering::SeqCst) {
                return Look::Opening;
            }
            let frozen = *self.frozen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(facts) = frozen {
                return Look::Frozen(facts);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
