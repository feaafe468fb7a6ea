//! The names of a spool's files, and its lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// For so long the spool of a process that was killed is waited for: the kernel has it until the last request has ended.
const KILLED_ENDS: Duration = Duration::from_secs(2);

/// The lock of the one process that has the spool, as long as the file is open.
///
/// # Errors
/// Another process has it, or I/O.
pub fn lock(dir: &Path) -> Result<File, String> {
    let failed = |e: io::Error| format!("spool {}: {e}", dir.display());
    let mut how = OpenOptions::new();
    how.create(true).truncate(false).write(true);
    let lock = how.open(dir.join("lock")).map_err(failed)?;
    let begun = Instant::now();
    while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if begun.elapsed() > KILLED_ENDS {
            let here = dir.display();
            return Err(format!("spool {here}: another isotherm-store serves it"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(lock)
}

/// The file of this number.
pub fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}.spool"))
}

/// The numbers of all files, in order.
pub fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".spool"));
        numbers.extend(number.and_then(|n| n.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
