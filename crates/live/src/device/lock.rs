//! The lock on a member: only one server at a time, and the holder's identity.
//!
//! A server that was killed holds its locks as long as the kernel needs to end it: the files of its io_uring stay open until all requests
//! in progress are answered. On a busy disk this takes many seconds, and the next server must wait for it, because those requests write to
//! the member. So the lock of a process that has ended, or is about to end, is waited for, and a message states this; the lock of a live
//! process is refused at once.

use super::fail;
use crate::error::{Error, ErrorKind};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for the lock of a process that has ended or is ending. Devices answer or fail within this time: the kernel gives up a SCSI
/// command after 30 s and at most five repetitions.
const WAIT_FOR_ENDED: Duration = Duration::from_secs(300);
/// Longest wait for the lock of a running process: it may be about to close the device.
const WAIT_FOR_RUNNING: Duration = Duration::from_millis(300);
/// Longest wait if no holder of the lock is visible: it may be a process that ended, or a process of another user or container.
const WAIT_FOR_UNSEEN: Duration = Duration::from_secs(30);
/// The wait is reported after this time, and again at intervals of [`REPORT_EVERY`].
const REPORT_AFTER: Duration = Duration::from_secs(2);
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// The holder of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// A running process.
    Running(String),
    /// A process that has ended or was killed.
    Ended(String),
    /// No holder that this process may see.
    Unseen,
}

impl Holder {
    fn of(pid: String) -> Holder {
        if is_ending(&pid) {
            Holder::Ended(pid)
        } else {
            Holder::Running(pid)
        }
    }

    fn wait_limit(&self) -> Duration {
        match self {
            Holder::Running(_) => WAIT_FOR_RUNNING,
            Holder::Ended(_) => WAIT_FOR_ENDED,
            Holder::Unseen => WAIT_FOR_UNSEEN,
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Running(pid) => {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                write!(f, " by process {pid} ({})", name.trim())
            }
            Holder::Ended(pid) => write!(
                f,
                " by process {pid}, which was ended while its requests were under way"
            ),
            Holder::Unseen => Ok(()),
        }
    }
}

/// Repeats `take` until it gets the lock, or until the time limit for this kind of holder has passed. The inner error is that holder.
fn wait_for(
    path: &Path,
    mut take: impl FnMut() -> io::Result<bool>,
    holder: impl Fn() -> Holder,
) -> Result<Result<(), Holder>, io::Error> {
    let begun = Instant::now();
    let mut say_at = REPORT_AFTER;
    // The search for a holder may have to examine all processes, so it becomes rarer and rarer.
    let (mut look_at, mut by) = (Duration::ZERO, Holder::Unseen);
    loop {
        if take()? {
            return Ok(Ok(()));
        }
        let waited = begun.elapsed();
        if waited >= look_at {
            by = holder();
            look_at = waited + (waited / 4).max(Duration::from_millis(50));
            if waited >= by.wait_limit() {
                return Ok(Err(by));
            }
        }
        if waited >= say_at {
            tracing::warn!("{}: is held{by}: waiting for that", path.display());
            say_at = waited + REPORT_EVERY;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a process that was killed is gone, as for its lock, and says so. If it does not go, this returns all the same.
pub(crate) fn wait_for_end(
    path: &Path,
    process: u64,
    mut is_gone: impl FnMut() -> bool,
) -> io::Result<()> {
    let holder = || Holder::Ended(process.to_string());
    wait_for(path, || Ok(is_gone()), holder).map(drop)
}

/// Whether the list of locks has one of this process, which may be gone: its files are open until its last request has ended.
pub(crate) fn holds_any(pid: &str) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks
        .lines()
        .any(|l| l.split_whitespace().nth(4) == Some(pid))
}

pub(super) fn lock(file: &File, path: &Path, shared: bool) -> Result<(), Error> {
    let how = if shared {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let take = || match rustix::fs::flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(e.into()),
    };
    // The lock belongs to the process that called flock, so its number is in the list even when that process is gone.
    let holder = || {
        let mut all = pids_of_lock(file, "FLOCK").into_iter();
        all.next().map_or(Holder::Unseen, Holder::of)
    };
    match wait_for(path, take, holder) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(by)) => Err(fail(
            path,
            ErrorKind::InUse,
            match by {
                Holder::Ended(_) => {
                    format!(
                        "device in use{by}: see why its disk does not answer (dmesg), and try again"
                    )
                }
                _ => format!("device in use{by}: stop that first"),
            },
        )),
        Err(e) => Err(fail(path, ErrorKind::Device, e)),
    }
}

/// Takes the lock on bytes `start` to `start + bytes` of `file` (0 bytes: to the end, however large the file becomes). It belongs to the
/// open file and not to a process; `rustix` has only locks of processes, so libc makes this call. `path` is the member whose data is in
/// that file, for messages during the wait.
///
/// # Errors
/// A message about the holder, if another has the lock; the outer error is that of a file system without such locks.
pub(crate) fn lock_bytes(
    file: &File,
    path: &Path,
    shared: bool,
    (start, bytes): (i64, i64),
) -> io::Result<Result<(), String>> {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    let take = || match set_byte_lock(file, kind, (start, bytes)) {
        Ok(()) => Ok(true),
        Err(e) => match Errno::from_io_error(&e) {
            Some(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            _ => Err(e),
        },
    };
    let taken = wait_for(path, take, || byte_holder(file))?;
    Ok(taken.map_err(|by| by.to_string()))
}

/// Gives back all byte locks of this open file, which other descriptors may keep open. If that fails, their last close does it.
pub(super) fn unlock_bytes(file: &File) {
    let _ = set_byte_lock(file, libc::F_UNLCK, (0, 0));
}

fn set_byte_lock(file: &File, kind: libc::c_int, (start, bytes): (i64, i64)) -> io::Result<()> {
    // SAFETY: all-zero is a valid `flock`.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = kind as libc::c_short;
    wanted.l_whence = libc::SEEK_SET as libc::c_short;
    wanted.l_start = start;
    wanted.l_len = bytes;
    // SAFETY: a valid descriptor and lock description.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process that has a byte lock on this file. The list of locks does not name it, but the processes' own lists of open files do.
fn byte_holder(file: &File) -> Holder {
    let Some(id) = id_in_locks(file) else {
        return Holder::Unseen;
    };
    let own = std::process::id().to_string();
    let mut found = Holder::Unseen;
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let pid = process.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        // The descriptor that waits for the lock does not count. Another descriptor of this process, opened before, is a holder like any
        // other.
        let ours = (pid == own).then(|| file.as_raw_fd().to_string());
        let files = fs::read_dir(process.path().join("fdinfo"));
        let has = files.into_iter().flatten().flatten().any(|f| {
            ours.as_deref().is_none_or(|o| f.file_name() != o)
                && fs::read_to_string(f.path()).is_ok_and(|t| shows_lock(&t, &id))
        });
        match has.then(|| Holder::of(pid)) {
            Some(Holder::Running(pid)) => return Holder::Running(pid),
            Some(by) => found = by,
            None => {}
        }
    }
    found
}

/// Whether this `fdinfo` shows a byte lock on the file `id`.
fn shows_lock(fdinfo: &str, id: &str) -> bool {
    fdinfo
        .lines()
        .any(|l| l.starts_with("lock:") && l.contains(" OFDLCK ") && l.contains(&format!(" {id} ")))
}

/// Whether the process is gone, is a zombie that waits for its parent, or was killed and is ending.
pub(crate) fn is_ending(pid: &str) -> bool {
    /// A flag in `/proc/PID/stat`, since Linux 2.6.
    const PF_EXITING: u64 = 4;
    // "1234 (name) Z parent group session terminal its-group flags …"; the name may contain anything.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(") ") else {
        return true;
    };
    let flags = rest.split(' ').nth(6).and_then(|f| f.parse::<u64>().ok());
    rest.starts_with(['Z', 'X'])
        || flags.is_some_and(|f| f & PF_EXITING != 0)
        || is_killed(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

/// Whether SIGKILL is pending, which a process that waits for a disk cannot obey yet.
fn is_killed(status: &str) -> bool {
    let bit = 1 << (rustix::process::Signal::KILL.as_raw() - 1);
    status
        .lines()
        .filter_map(|l| {
            l.strip_prefix("SigPnd:")
                .or_else(|| l.strip_prefix("ShdPnd:"))
        })
        .any(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|m| m & bit != 0))
}

/// The running process that has locked this file, as the errors name it.
pub(super) fn server_of(file: &File) -> Option<String> {
    let pids = pids_of_lock(file, "FLOCK").into_iter().map(Holder::of);
    pids.filter(|by| matches!(by, Holder::Running(_)))
        .map(|by| by.to_string().trim_start_matches(" by ").to_owned())
        .next()
}

/// The number of the running `isotherm serve` that has locked a member, if this process may see it. Nothing on the device is read.
pub fn serving(path: &Path) -> Option<u32> {
    crate::mounts::check(path).ok()?;
    let file = File::open(path).ok()?;
    let serves = |pid: &String| {
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.split(|b| *b == 0).nth(1) == Some(b"serve") && !is_ending(pid)
    };
    let pid = pids_of_lock(&file, "FLOCK").into_iter().find(serves)?;
    pid.parse().ok()
}

/// The file's id in the form of `/proc/locks`: "fe:00:131".
fn id_in_locks(file: &File) -> Option<String> {
    let m = file.metadata().ok()?;
    Some(format!(
        "{:02x}:{:02x}:{}",
        rustix::fs::major(m.dev()),
        rustix::fs::minor(m.dev()),
        m.ino()
    ))
}

/// The processes that hold locks of this kind on this file, according to `/proc/locks`.
fn pids_of_lock(file: &File, kind: &str) -> Vec<String> {
    let Some(id) = id_in_locks(file) else {
        return Vec::new();
    };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF"
    let holds = |l: &str| {
        let f: Vec<&str> = l.split_whitespace().collect();
        (f.get(1) == Some(&kind) && f.get(5) == Some(&id.as_str())).then(|| f[4].to_owned())
    };
    let mut pids: Vec<String> = (locks.lines())
        .filter(|l| !l.contains("->"))
        .filter_map(holds)
        .collect();
    // A live process is the better reason, so it comes first.
    pids.sort_by_key(|p| is_ending(p));
    pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_lock_of_a_process_that_ended_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::write(&path, [0; 4096]).unwrap();
        let file = File::open(&path).unwrap();
        // `flock` ends, and the open file that it locked stays open in `cat`.
        let mut child = Command::new("sh")
            .args(["-c", "exec 9>>\"$0\"; flock 9; exec cat"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let end = child.stdin.take();
        // In a container the list omits a lock whose process is gone.
        let taken = || {
            let free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
            if free {
                rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
            }
            !free
        };
        let begun = Instant::now();
        while !taken() || pids_of_lock(&file, "FLOCK").iter().any(|p| !is_ending(p)) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::spawn(move || {
            std::thread::sleep(2 * WAIT_FOR_RUNNING);
            drop(end);
        });
        lock(&file, &path, false).unwrap();
        assert!(child.wait().unwrap().success());
        // Now the lock is ours, and this process is alive.
        let own = std::process::id().to_string();
        // While others lock and unlock, the kernel's list can lack a lock for a moment.
        let begun = Instant::now();
        while pids_of_lock(&file, "FLOCK") != [own.as_str()] {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        let other = File::open(&path).unwrap();
        let named = || {
            let e = lock(&other, &path, false).unwrap_err().to_string();
            e.contains(&format!("by process {own}"))
        };
        assert!((0..100).any(|_| named()));
    }

    #[test]
    fn a_lock_on_bytes_has_a_holder_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::write(&path, [0; 4096]).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (first, second) = (open(), open());
        assert_eq!(lock_bytes(&first, &path, false, (0, 0)).unwrap(), Ok(()));
        let own = std::process::id().to_string();
        assert_eq!(byte_holder(&second), Holder::Running(own.clone()));
        let by = lock_bytes(&second, &path, false, (100, 1)).unwrap();
        assert!(by.is_err_and(|w| w.contains(&format!("by process {own}"))));
        drop(first);
        assert_eq!(lock_bytes(&second, &path, false, (100, 1)).unwrap(), Ok(()));
    }

    #[test]
    fn a_process_that_was_killed_is_ending() {
        let status = |mask: &str| {
            format!(
                "State:\tD (disk sleep)\nSigQ:\t0/1\nSigPnd:\t{mask}\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n"
            )
        };
        assert!(is_killed(&status("0000000000000100")));
        assert!(!is_killed(&status("0000000000004000")));
        assert!(!is_ending(&std::process::id().to_string()));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().to_string();
        let begun = Instant::now();
        // It is a zombie until its parent waits for it.
        while !is_ending(&pid) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(is_ending(&pid));
    }
}
