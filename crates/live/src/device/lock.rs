//! The lock on a member: one server at a time, and who has it.

use super::fail;
use crate::error::{Error, ErrorKind};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process that just ended may hold its locks a little longer: the kernel closes the files of its io_uring in the
/// background. So a lock is tried for this long, if its holder is gone or seems to live.
const HOLDER_GONE: Duration = Duration::from_secs(10);
const HOLDER_LIVES: Duration = Duration::from_millis(300);

pub(super) fn lock(file: &File, path: &Path, shared: bool) -> Result<(), Error> {
    let how = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    let begun = Instant::now();
    loop {
        // SAFETY: flock on a descriptor that we own.
        if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.raw_os_error() != Some(libc::EWOULDBLOCK) {
            return Err(fail(path, ErrorKind::Device, e));
        }
        let pid = holder(file);
        let lives = pid.as_deref().is_none_or(|pid| !has_ended(pid));
        if begun.elapsed() >= if lives { HOLDER_LIVES } else { HOLDER_GONE } {
            let by = pid.map_or_else(String::new, |pid| {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                format!(" by process {pid} ({})", name.trim())
            });
            return Err(fail(
                path,
                ErrorKind::InUse,
                format!("device in use{by}: stop that first"),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Gone, or a zombie that waits for its parent.
fn has_ended(pid: &str) -> bool {
    // "1234 (name) Z …"; the name may contain anything.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// The process that holds a lock on this file, as far as `/proc/locks` tells.
fn holder(file: &File) -> Option<String> {
    let m = file.metadata().ok()?;
    let id = format!(
        "{:02x}:{:02x}:{}",
        libc::major(m.dev()),
        libc::minor(m.dev()),
        m.ino()
    );
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF"
    locks.lines().filter(|l| !l.contains("->")).find_map(|l| {
        let f: Vec<&str> = l.split_whitespace().collect();
        (f.get(1) == Some(&"FLOCK") && f.get(5) == Some(&id.as_str())).then(|| f[4].to_owned())
    })
}
