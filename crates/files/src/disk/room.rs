//! Free space of a tier, asked such that a server that does not answer stops nobody.

use super::root::Root;
use super::roots::Roots;
use crate::sync::lock;
use crate::tree::Tier;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Maximum time that a caller waits for the answer.
const WAIT: Duration = Duration::from_secs(1);
/// A tier that has not answered for this time counts as failing.
const FAILS_AFTER: Duration = Duration::from_secs(5);

/// The last answer of a tier that is not on a local device, and the question that it has not answered yet.
#[derive(Debug, Default)]
pub(super) struct Asked {
    last: Option<(u64, u64)>,
    since: Option<Instant>,
    /// Whether a question was answered since [`Root::take_answered`] was last called.
    answered: bool,
}

fn ask(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    let s = rustix::fs::fstatvfs(fd)?;
    Ok((s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize))
}

/// Of these disks, one of each file system: several on one share its space. Absent ones are left out.
pub(crate) fn apart(roots: &Roots, disks: Range<Tier>) -> impl Iterator<Item = Tier> {
    let mut seen = Vec::new();
    disks.filter(move |disk| {
        let root = &roots[usize::from(*disk)];
        let new = !root.absent && !seen.contains(&root.dev);
        seen.push(root.dev);
        new
    })
}

impl Root {
    /// Free space for files, and total space, in bytes. A tier on a network is asked by another thread. If it does not answer within a second,
    /// the result is its last answer.
    ///
    /// # Errors
    /// A device error, or there is no answer and never was one.
    pub fn room(&self) -> Result<(u64, u64), Errno> {
        if self.absent {
            return Ok((0, 0));
        }
        if self.local {
            return ask(&self.fd);
        }
        let asked = || lock(&self.asked);
        {
            let mut asked = asked();
            if asked.since.is_some() {
                return asked.last.ok_or(Errno::TIMEDOUT);
            }
            asked.since = Some(Instant::now());
        }
        let (answer, answered) = sync_channel(1);
        let state = Arc::clone(&self.asked);
        let begun = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).and_then(|fd| {
            let work = move || {
                let room = ask(&fd);
                let mut asked = lock(&state);
                asked.since = None;
                if let Ok(room) = room {
                    asked.last = Some(room);
                    asked.answered = true;
                }
                drop(asked);
                // The caller may not wait any more.
                let _ = answer.send(room);
            };
            let thread = std::thread::Builder::new().name("room".into()).spawn(work);
            thread.map(|_| ()).map_err(|_| Errno::AGAIN)
        });
        if let Err(e) = begun {
            asked().since = None;
            return Err(e);
        }
        match answered.recv_timeout(WAIT) {
            Ok(room) => room,
            Err(_) => asked().last.ok_or(Errno::TIMEDOUT),
        }
    }
    /// Whether the tier, on a network, has answered a question about its space since the last call of this function.
    pub(crate) fn take_answered(&self) -> bool {
        let mut asked = lock(&self.asked);
        std::mem::take(&mut asked.answered)
    }
    /// Whether a question to the tier, on a network, is open.
    pub(crate) fn is_asked(&self) -> bool {
        let asked = lock(&self.asked);
        asked.since.is_some()
    }
    /// Leaves a question without an answer, as a server that is away does, or answers it.
    #[cfg(test)]
    pub(crate) fn leave_open(&self, open: bool) {
        let mut asked = lock(&self.asked);
        asked.since = open.then(Instant::now);
    }
    /// Whether the tier, on a network, has not answered for a while.
    pub(crate) fn hangs(&self) -> bool {
        let asked = lock(&self.asked);
        asked.since.is_some_and(|s| s.elapsed() >= FAILS_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question without an answer neither blocks nor is asked again, and the last answer is given instead.
    #[test]
    fn the_last_answer_is_given_while_there_is_no_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut root = Root::open(dir.path()).unwrap();
        root.local = false;
        let (_, all) = root.room().unwrap();
        assert!(all > 0 && !root.hangs());
        assert!(root.take_answered() && !root.take_answered());
        let before = Instant::now().checked_sub(FAILS_AFTER).unwrap();
        *root.asked.lock().unwrap() = Asked {
            last: Some((3, 7)),
            since: Some(before),
            answered: false,
        };
        assert_eq!(root.room(), Ok((3, 7)));
        assert!(root.hangs() && !root.take_answered());
        *root.asked.lock().unwrap() = Asked {
            last: None,
            since: Some(before),
            answered: false,
        };
        assert_eq!(root.room(), Err(Errno::TIMEDOUT));
        *root.asked.lock().unwrap() = Asked::default();
        assert_eq!(root.room().unwrap().1, all);
        assert!(!root.hangs());
    }
}
