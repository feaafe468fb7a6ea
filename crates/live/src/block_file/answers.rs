//! Promises and answers that are the same on every way by which the kernel's requests come: session threads, pump, ring.

use super::O_DSYNC;
use crate::mutants::{LiveMutant, broken};
use crate::port::{Completion, IoRequest, Port};
use fuser::{Errno, ReplyEmpty};
use isotherm_core::IoError;

/// Whether changes through a descriptor with these flags are durable before they are answered. `O_SYNC` contains `O_DSYNC`, and the kernel
/// adds it to a write with `RWF_DSYNC` or `RWF_SYNC`.
pub(super) fn is_durable(flags: i32) -> bool {
    flags & O_DSYNC != 0 && !broken(LiveMutant::DropDsyncFlag)
}

/// `fsync` and `fdatasync`.
pub(super) fn fsync(port: &dyn Port, done: Completion) {
    if broken(LiveMutant::AnswerFsync) {
        return done.call(Ok(()), None);
    }
    port.submit(IoRequest::flush(), done);
}

pub(super) fn errno(error: IoError) -> Errno {
    match error {
        IoError::Io => Errno::EIO,
        IoError::NoSpace => Errno::ENOSPC,
        IoError::Invalid => Errno::EINVAL,
        IoError::ReadOnly => Errno::EROFS,
        IoError::Gone => Errno::ENODEV,
    }
}

pub(super) fn answer(reply: ReplyEmpty, result: Result<(), IoError>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}
