//! Opens the disks of the tiers, checks that they are disjoint, and locks them.

use crate::disk::{LOCK, Root, Roots};
use crate::layout::DISKS_MAX;
use crate::settings::{Refused, Settings, refuse};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
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

/// The path of a tier as the list of the last mount has it, also if its directory is not there.
fn real_of(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = whole.canonicalize().ok();
    let above = || {
        Some(
            whole
                .parent()?
                .canonicalize()
                .ok()?
                .join(whole.file_name()?),
        )
    };
    real.or_else(above).unwrap_or(whole)
}

/// Locks a tier, and waits a short time for a lock that will soon be released: the previous server may just be ending, or a child process
/// that inherited the lock may not have called exec yet.
fn lock_soon(lock: &OwnedFd) -> Result<(), Errno> {
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

/// What helps against an error of the first write to a tier; empty if that is unknown.
fn fix_of(e: Errno) -> &'static str {
    match e {
        Errno::ROFS => ": it is read-only: remount it writable (`mount -o remount,rw`)",
        Errno::NOSPC | Errno::DQUOT => {
            ": it is full: free some space there, 64 KiB (1 MiB on XFS and Btrfs)"
        }
        Errno::ACCESS | Errno::PERM => {
            if rustix::process::geteuid().is_root() {
                ": root may not: see whether it is immutable (`lsattr`), its server keeps root out (NFS: export it with no_root_squash), or a policy does (AppArmor, SELinux)"
            } else {
                ": this user may not: serve as root, or own the directory"
            }
        }
        Errno::IO | Errno::NOTCONN | Errno::STALE => {
            ": its device or server fails: repair it and mount it again"
        }
        Errno::NOTDIR => ": `.isotherm` there is not a directory: move it away",
        _ => "",
    }
}

fn cannot(tier: &str, what: &str, e: Errno) -> Refused {
    Refused(format!("{tier}: cannot {what}: {e}{}", fix_of(e)))
}

/// Locks a tier. One that is full may have no file to lock; its directory can be locked without space, on a local file system.
fn lock(root: &Root, tier: &str, is_first: bool) -> Result<Vec<OwnedFd>, Refused> {
    let mut files = Vec::new();
    if root.local {
        let directory = root.directory(b".");
        files.push(directory.map_err(|e| cannot(tier, "open the directory", e))?);
    }
    let flags = OFlags::CREATE | OFlags::RDWR;
    match root.open_at(LOCK, flags, 0o600) {
        Err(Errno::NOENT | Errno::NOSPC | Errno::DQUOT) if !is_first && root.local => {}
        file => files.push(file.map_err(|e| cannot(tier, "open .isotherm/lock", e))?),
    }
    for file in &files {
        lock_soon(file).map_err(|e| match e {
            Errno::WOULDBLOCK => {
                // Another mount uses the hidden directory, although this one has made it.
                root.taken();
                Refused(format!(
                    "{tier}: this tier is served already: unmount that file system first"
                ))
            }
            _ => cannot(tier, "lock .isotherm/lock", e),
        })?;
    }
    Ok(files)
}

/// Whether a server holds this directory as a tier.
pub(crate) fn is_served(directory: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let lock = directory.join(std::ffi::OsStr::from_bytes(LOCK));
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // One that may not be read, or is not there, says nothing.
    rustix::fs::open(&lock, flags, rustix::fs::Mode::empty()).is_ok_and(|file| {
        let held = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        held == Err(Errno::WOULDBLOCK)
    })
}

/// Where a file system of this program with that device number is mounted.
fn mount_of_this_program(dev: u64) -> Option<String> {
    let dev = isotherm_paths::device_words(dev);
    let mut all = isotherm_paths::mounts().ok()?.into_iter();
    let ours = all.find(|m| m.device == dev && crate::dead_mount::is_ours(m));
    ours.map(|m| m.point.display().to_string())
}

/// Refuses a directory that lies in another tier, of this mount or of one that is served, or that another tier lies in.
fn must_be_apart<'a>(
    root: &Root,
    given: &Path,
    others: impl IntoIterator<Item = &'a Root>,
) -> Result<(), Refused> {
    let shown = given.display();
    // A directory has several paths if it is mounted at several places.
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let place = |root: &Root| isotherm_paths::place(&table, &root.path);
    let here = place(root);
    for other in others.into_iter().filter(|r| !r.absent) {
        let there = place(other).zip(here.as_ref());
        let there = there.filter(|(there, here)| there.device == here.device);
        let mut pairs = vec![(&root.path, &other.path)];
        pairs.extend(
            there
                .as_ref()
                .map(|(there, here)| (&here.path, &there.path)),
        );
        if pairs.iter().any(|(a, b)| a == b) {
            return refuse(format!(
                "{shown}: is given twice, or is a disk already ({}): each directory is one disk of one tier",
                other.path.display()
            ));
        }
        if pairs
            .iter()
            .any(|(a, b)| a.starts_with(b) || b.starts_with(a))
        {
            return refuse(format!(
                "{shown}: lies in another tier ({}), or that in it: tiers must be apart",
                other.path.display()
            ));
        }
    }
    if let Some(tier) = root.path.ancestors().skip(1).find(|p| is_served(p)) {
        return refuse(format!(
            "{shown}: lies in the tier {}, which is served: two servers would move the same files; name a directory outside of it",
            tier.display()
        ));
    }
    let Some(at) = mount_of_this_program(root.dev) else {
        return Ok(());
    };
    refuse(format!(
        "{shown}: lies on a file system that `isotherm mount` serves at {at}: a tier of such a file system cannot be a tier of another; name a directory of the disk below, outside of its tiers"
    ))
}

/// Opens all disks, those of faster tiers first, and locks them. A disk that is absent, if that is allowed, gets an entry without a directory.
pub(crate) fn open(settings: &Settings) -> Result<(Vec<Root>, Vec<OwnedFd>), Refused> {
    let tiers = settings.tiers.len();
    if !(2..=TIERS_MAX).contains(&tiers) {
        return refuse(format!(
            "a tiering file system has 2 to {TIERS_MAX} tiers, not {tiers}"
        ));
    }
    let paths = settings.tiers.iter().chain(&settings.more_slow);
    let disks = paths.clone().count();
    if disks > DISKS_MAX {
        return refuse(format!(
            "a tiering file system has at most {DISKS_MAX} directories in all, not {disks}"
        ));
    }
    // After an error the directories are dropped first: what this mount has made there is removed under its locks.
    let mut locks = Vec::new();
    let mut roots: Vec<Root> = Vec::new();
    for path in paths {
        let may_miss = settings.degraded && !roots.is_empty();
        let Some(root) = open_tier(path, roots.first(), may_miss)? else {
            let root = Root::missing(&real_of(path));
            roots.push(root.map_err(|e| Refused(format!("/dev/null: {e}")))?);
            continue;
        };
        let mut opened = take(root, path, &roots, !roots.is_empty())?;
        locks.append(&mut opened.locks);
        roots.push(opened.root);
    }
    Ok((roots, locks))
}

/// A directory that is a disk from now on. It is dropped before its locks.
pub(crate) struct Opened {
    pub(crate) root: Root,
    pub(crate) locks: Vec<OwnedFd>,
}

/// Prepares and locks a directory that is to be a disk beside those. One that is full can be prepared later, if it may.
fn take<'a>(
    root: Root,
    given: &Path,
    others: impl IntoIterator<Item = &'a Root>,
    may_be_full: bool,
) -> Result<Opened, Refused> {
    must_be_apart(&root, given, others)?;
    let shown = given.display().to_string();
    let prepared = if may_be_full {
        root.prepare_if_room()
    } else {
        root.prepare().map(|()| true)
    };
    let prepared = prepared.map_err(|e| {
        let fix = fix_of(e);
        Refused(format!(
            "{shown}: cannot write to .isotherm in this tier: {e}{fix}"
        ))
    })?;
    let exposed = match root.is_exposed() {
        Err(Errno::NOENT) if !prepared => false,
        other => other.map_err(|e| cannot(&shown, "look at .isotherm", e))?,
    };
    if exposed {
        return refuse(format!(
            "{shown}: another user made or can change .isotherm in this tier: move it away, or `chown root` and `chmod 700` it if you trust what is in it"
        ));
    }
    let locks = lock(&root, &shown, !may_be_full)?;
    Ok(Opened { root, locks })
}

/// Opens and locks a directory that is to join these disks.
pub(crate) fn open_further(path: &Path, others: &Roots) -> Result<Opened, Refused> {
    let gone = || Refused(format!("{}: this tier is missing", path.display()));
    let root = open_tier(path, None, false)?.ok_or_else(gone)?;
    take(root, path, others.iter(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        let is_root = rustix::process::geteuid().is_root();
        assert_ne!(fix_of(Errno::ACCESS).contains("serve as root"), is_root);
    }
}
