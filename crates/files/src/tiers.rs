//! Opens the directories of the tiers, checks that they are disjoint, and locks them.

use crate::disk::Root;
use crate::store::{Refused, Settings, refuse};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of tiers, as in the core.
pub const TIERS_MAX: usize = 8;
/// Time limit for getting the lock of a tier.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Opens a tier. Returns `None` if it is absent and `may_miss` allows that.
fn open_tier(path: &Path, fast: Option<&Root>, may_miss: bool) -> Result<Option<Root>, Refused> {
    let shown = path.display();
    let real = match path.canonicalize() {
        Err(_) if may_miss => return Ok(None),
        Err(e) => {
            return refuse(format!(
                "{shown}: this tier is missing ({e}): mount its disk, or make the directory"
            ));
        }
        Ok(real) => real,
    };
    let root =
        Root::open(&real).map_err(|e| Refused(format!("{shown}: cannot open this tier: {e}")))?;
    // If a disk is not mounted, there is an empty directory at its place.
    if may_miss && fast.is_some_and(|f| !crate::identity::is_known(f, &root)) {
        return Ok(None);
    }
    Ok(Some(root))
}

/// Locks a tier, and waits a short time for a lock that will soon be released: the previous server may just be ending, or a child process
/// that inherited the lock may not have called exec yet.
fn lock_soon(lock: &rustix::fd::OwnedFd) -> Result<(), Errno> {
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
}

/// Opens all tiers and locks them. A tier that is absent, if that is allowed, gets an entry without a directory.
///
/// # Errors
/// A message in words.
pub(crate) fn open(settings: &Settings) -> Result<(Vec<Root>, Vec<rustix::fd::OwnedFd>), Refused> {
    let paths = &settings.tiers;
    if !(2..=TIERS_MAX).contains(&paths.len()) {
        return refuse(format!(
            "a tiering file system has 2 to {TIERS_MAX} tiers, not {}",
            paths.len()
        ));
    }
    let (mut roots, mut locks): (Vec<Root>, _) = (Vec::new(), Vec::new());
    for path in paths {
        let shown = path.display();
        let may_miss = settings.degraded && !roots.is_empty();
        let Some(root) = open_tier(path, roots.first(), may_miss)? else {
            let root = Root::missing(path);
            roots.push(root.map_err(|e| Refused(format!("/dev/null: {e}")))?);
            continue;
        };
        let path = &root.path;
        for other in roots.iter().filter(|r| !r.absent) {
            if path.starts_with(&other.path) || other.path.starts_with(path) {
                return refuse(format!(
                    "{shown}: lies in another tier ({}): tiers must be apart",
                    other.path.display()
                ));
            }
        }
        let failed = |what: &str, e: Errno| Refused(format!("{shown}: cannot {what}: {e}"));
        root.prepare()
            .map_err(|e| failed("write to this tier (is it full or read-only?)", e))?;
        let flags = OFlags::CREATE | OFlags::RDWR;
        let lock = root
            .open_at(b".isotherm/lock", flags, 0o600)
            .map_err(|e| failed("open .isotherm/lock", e))?;
        lock_soon(&lock).map_err(|e| {
            if e == Errno::WOULDBLOCK {
                Refused(format!(
                    "{shown}: this tier is served already: unmount that file system first"
                ))
            } else {
                failed("lock .isotherm/lock", e)
            }
        })?;
        roots.push(root);
        locks.push(lock);
    }
    Ok((roots, locks))
}
