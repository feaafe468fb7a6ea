//! Answers without data: success or an error.

use crate::mutants::{LiveMutant, broken};
use fuser::{Errno, ReplyEmpty};
use isotherm_core::IoError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

pub(super) fn errno(error: IoError) -> Errno {
    match error {
        IoError::Io => Errno::EIO,
        IoError::NoSpace => Errno::ENOSPC,
        IoError::Invalid => Errno::EINVAL,
        IoError::ReadOnly => Errno::EROFS,
        IoError::Gone => Errno::ENODEV,
    }
}

/// One reply for a range request that was cut into pieces.
pub(super) struct Pieces {
    left: AtomicU32,
    state: Mutex<(Option<ReplyEmpty>, Result<(), IoError>)>,
}

impl Pieces {
    /// A reply for `count` pieces.
    pub(super) fn new(reply: ReplyEmpty, count: u32) -> Pieces {
        Pieces {
            left: AtomicU32::new(count),
            state: Mutex::new((Some(reply), Ok(()))),
        }
    }

    pub(super) fn done(&self, result: Result<(), IoError>) {
        // No code panics while it holds the lock; even then the reply would be consistent.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1.is_ok() || broken(LiveMutant::LastPieceCounts) {
            state.1 = result;
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(reply) = state.0.take()
        {
            answer(reply, state.1);
        }
    }
}

pub(super) fn answer(reply: ReplyEmpty, result: Result<(), IoError>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}
