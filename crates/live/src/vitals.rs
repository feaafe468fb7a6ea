//! What the members of a served volume have answered lately: their errors, and operations that they do not answer.
//!
//! The engine's thread writes it, once per error and once per second while operations are in progress. Other threads read it without asking
//! that thread, so that a volume can say how it is although its engine waits.

use rustix::io::Errno;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An error counts as recent for this long. Errors that follow each other within this time are one series.
pub const RECENT: Duration = Duration::from_secs(300);

/// From this age on, an operation counts as not answered.
const LATE: Duration = Duration::from_secs(1);

/// What an operation on a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Reads data.
    Read,
    /// Writes data, zeros or metadata.
    Write,
    /// Writes back the device's cache.
    Flush,
    /// Discards.
    Discard,
}

impl Deed {
    /// As a noun.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Deed::Read => "read",
            Deed::Write => "write",
            Deed::Flush => "flush",
            Deed::Discard => "discard",
        }
    }
}

/// A series of errors of one member.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// Time of the first and of the last one.
    pub first: Instant,
    /// See `first`.
    pub last: Instant,
    /// Number of errors.
    pub count: u64,
    /// What the last one answered.
    pub deed: Deed,
    /// The system's number of the last one; `None`: fewer bytes than asked for, as of a file that was cut.
    pub errno: Option<i32>,
}

impl Errors {
    /// Whether the last one is recent.
    #[must_use]
    pub fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < RECENT
    }
    /// Whether the last one says that there is no space.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        let errno = self.errno.filter(|n| *n > 0).map(Errno::from_raw_os_error);
        matches!(errno, Some(Errno::NOSPC | Errno::DQUOT))
    }
}

/// Operations that a member has not answered.
#[derive(Clone, Copy, Debug)]
pub struct Unanswered {
    /// Begin of the oldest one.
    pub since: Instant,
    /// Numbers of reads, writes, flushes.
    pub reads: u32,
    /// See `reads`.
    pub writes: u32,
    /// See `reads`.
    pub flushes: u32,
}

/// One member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vital {
    /// Its last series of errors.
    pub errors: Option<Errors>,
    /// What it has not answered, if the oldest operation has taken longer than a second.
    pub unanswered: Option<Unanswered>,
    /// Whether it is a regular file of a local file system, whose free space can be asked for without waiting.
    pub local_file: bool,
}

/// All members.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    /// In the order of the member list.
    pub members: Vec<Vital>,
    /// FLUSHes of clients that are not answered; counted while a member does not answer.
    pub flushes_waiting: u32,
}

/// The place where the engine's thread leaves them.
#[derive(Debug, Default)]
pub(crate) struct Board {
    vitals: Mutex<Vitals>,
    /// The operation for which the engine's thread itself waits: its member, and its begin.
    alone: Mutex<Option<(usize, Deed, Instant)>>,
}

impl Board {
    pub(crate) fn locked(&self) -> MutexGuard<'_, Vitals> {
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's thread begins an operation and waits for its end.
    pub(crate) fn begun(&self, member: usize, deed: Deed) {
        *self.waits_for() = Some((member, deed, Instant::now()));
    }

    /// That operation has ended.
    pub(crate) fn ended(&self) {
        *self.waits_for() = None;
    }

    fn waits_for(&self) -> MutexGuard<'_, Option<(usize, Deed, Instant)>> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is to see now.
    pub(crate) fn seen(&self) -> Vitals {
        let mut seen = self.locked().clone();
        let alone = *self.waits_for();
        if let Some((member, deed, since)) = alone.filter(|a| a.2.elapsed() > LATE)
            && let Some(m) = seen.members.get_mut(member)
        {
            let is = |d| u32::from(deed == d);
            m.unanswered = Some(Unanswered {
                since,
                reads: is(Deed::Read),
                writes: is(Deed::Write),
                flushes: is(Deed::Flush),
            });
        }
        seen
    }

    /// An operation of `member` failed.
    pub(crate) fn failed(&self, member: usize, deed: Deed, errno: Option<i32>) {
        let now = Instant::now();
        if let Some(m) = self.locked().members.get_mut(member) {
            let before = m.errors.filter(|e| e.is_recent(now));
            m.errors = Some(Errors {
                first: before.map_or(now, |e| e.first),
                last: now,
                count: before.map_or(0, |e| e.count) + 1,
                deed,
                errno,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_follow_each_other_are_one_series() {
        let board = Board::default();
        board.locked().members = vec![Vital::default(); 2];
        board.failed(1, Deed::Read, Some(5));
        board.failed(1, Deed::Write, Some(28));
        board.failed(7, Deed::Read, None);
        let seen = board.locked().clone();
        assert!(seen.members[0].errors.is_none());
        let errors = seen.members[1].errors.expect("noted");
        assert_eq!((errors.count, errors.deed), (2, Deed::Write));
        assert!(errors.is_no_space() && errors.is_recent(errors.last));
        assert!(!errors.is_recent(errors.last + RECENT));
        // A series that ended long ago is not continued.
        if let Some(long_ago) = errors.last.checked_sub(RECENT) {
            board.locked().members[1].errors = Some(Errors {
                first: long_ago,
                last: long_ago,
                ..errors
            });
            board.failed(1, Deed::Read, Some(5));
            let errors = board.locked().members[1].errors.expect("noted");
            assert_eq!((errors.count, errors.first), (1, errors.last));
        }
    }
}
