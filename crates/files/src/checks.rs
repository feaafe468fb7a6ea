//! The turn of long questions, and the answer to the last one.

use rustix::io::Errno;
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Instant;

/// The last check.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) last: Mutex<Option<(Instant, Value)>>,
    /// Held by a check, and by another long question of a user who may not give commands.
    pub(crate) turn: Mutex<()>,
}

impl Checks {
    /// The turn for a long question of a user who may not give commands. Such users do not wait for it, because each one that waits takes a
    /// thread of this program.
    ///
    /// # Errors
    /// `EAGAIN`: another question is in progress.
    pub(crate) fn turn(&self) -> Result<MutexGuard<'_, ()>, Errno> {
        match self.turn.try_lock() {
            Ok(turn) => Ok(turn),
            Err(TryLockError::Poisoned(turn)) => Ok(turn.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Errno::AGAIN),
        }
    }
}
