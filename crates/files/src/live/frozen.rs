//! Attributes of a file whose descriptor a move keeps locked.

use super::{Held, Live, State};
use crate::disk::cached_facts_of;
use crate::sync::{lock, write_lock};
use crate::tree::Facts;
use std::sync::atomic::Ordering;
use std::sync::{RwLockWriteGuard, TryLockError};
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
        *lock(&self.frozen) = facts;
    }
    /// Locks the descriptor for a move.
    pub(crate) fn freeze(&self) -> Freeze<'_> {
        let state = write_lock(&self.state);
        // What the kernel knows is right: every change of an open file goes through this descriptor.
        let facts = (state.home)
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
            let frozen = *lock(&self.frozen);
            if let Some(facts) = frozen {
                return Look::Frozen(facts);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::facts_of;
    use rustix::fs::{FallocateFlags, fallocate};
    use std::time::Duration;

    /// A move shows the change time from before it, also after its last steps have changed the time on the tier once more. A user's change between
    /// the swap and those steps is none of them: who looks at change times, as programs for backups do, must see it.
    #[test]
    fn the_end_of_a_move_hides_no_change_of_a_user() {
        let pause = || std::thread::sleep(Duration::from_millis(20));
        let change = |fd: &rustix::fd::OwnedFd| {
            pause();
            fallocate(fd, FallocateFlags::empty(), 0, 1).unwrap();
        };
        for by_user in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (_store, _, live) = crate::store::with_a_file(dir.path());
            let held = live.hold();
            let before = live.facts_of(held.backing().unwrap()).unwrap().ctime;
            change(held.fd().unwrap());
            let moved = facts_of(held.fd().unwrap()).unwrap().ctime;
            assert_ne!(moved, before);
            live.show_ctime(moved, before);
            assert_eq!(
                live.facts_of(held.backing().unwrap()).unwrap().ctime,
                before
            );
            change(held.fd().unwrap());
            if by_user {
                live.mark_changed();
            }
            drop(held);
            live.update_shown_ctime();
            let shown = live.facts().unwrap().ctime;
            assert_eq!(shown == before, !by_user, "{by_user}");
        }
    }
}
