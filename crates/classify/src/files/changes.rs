//! Detects whether anything has changed on a mounted file system (fanotify), so that a walk over a million files is not repeated
//! needlessly.
//!
//! rustix has no fanotify, so the two calls that open the watch come from libc.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Files that were written and closed, created, removed or moved, or whose attributes changed.
const KINDS: u64 = libc::FAN_CLOSE_WRITE
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR;

/// Receives the kernel's notifications of changes on one file system. The names of the files are not examined.
#[derive(Debug)]
pub struct Changes(std::fs::File);

impl Changes {
    /// Watches the file system that is mounted there.
    ///
    /// # Errors
    /// The user is not root, or the kernel is older than 5.1.
    pub fn of(mountpoint: &Path) -> io::Result<Changes> {
        let flags =
            libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID | libc::FAN_NONBLOCK | libc::FAN_CLOEXEC;
        let mode = (libc::O_RDONLY | libc::O_LARGEFILE) as u32;
        // SAFETY: no pointers.
        let fd = unsafe { libc::fanotify_init(flags, mode) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let file = unsafe { std::fs::File::from_raw_fd(fd) };
        let path = CString::new(mountpoint.as_os_str().as_bytes())?;
        let mark = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: `path` is a terminated string that outlives the call.
        let marked = unsafe { libc::fanotify_mark(fd, mark, KINDS, libc::AT_FDCWD, path.as_ptr()) };
        if marked != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Changes(file))
    }

    /// Waits for `time` at most. Returns whether anything has changed since the last call.
    ///
    /// # Errors
    /// The kernel ended the watch.
    pub fn wait(&mut self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        let mut any = false;
        let mut buf = vec![0; 64 << 10];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let limit = Timespec::try_from(left).ok();
            let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut watched, limit.as_ref()) {
                Ok(0) => return Ok(any),
                Ok(_) => match self.0.read(&mut buf) {
                    Ok(n) => {
                        any |= n > 0;
                        // Changes come in bursts, so a burst is read in one go.
                        std::thread::sleep(Duration::from_millis(100).min(left));
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                },
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_seen_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut changes = match Changes::of(dir.path()) {
            Ok(changes) => changes,
            Err(e) => return println!("skipped: no fanotify here: {e}"),
        };
        std::fs::write(dir.path().join("new"), [1]).unwrap();
        assert!(changes.wait(Duration::from_millis(20)).unwrap());
        assert!(Changes::of(Path::new("/nowhere/at/all")).is_err());
    }
}
