//! Finds every place where a member may be: the system's block devices, and files near the description.

use super::probe::{Second, probe};
use crate::device::Device;
use crate::{mounts, stack};
use isotherm_core::store::Superblock;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A device that does not answer a read of 4 KiB within this time is left out.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of names in a directory that are examined.
const NAMES_MAX: usize = 4096;
/// Smallest size of a member.
const LEAST_BYTES: u64 = 1 << 20;
/// Number of directories above a description that are tried in place of those above a member's path.
const DEPTH_MAX: usize = 8;

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// The places with a superblock, and the superblocks.
    pub found: Vec<(PathBuf, Superblock)>,
    /// Messages for people about places that could not be examined.
    pub notes: Vec<String>,
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

/// Block devices that are worth reading: not those without a medium, nor those whose reads wait for another process (suspended device
/// mapper targets, drives for removable discs).
pub fn block_devices() -> Vec<PathBuf> {
    let all = fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten();
    let mut paths: Vec<PathBuf> = all
        .filter(|d| {
            let name = d.file_name();
            let name = name.to_string_lossy();
            let sys = d.path();
            let strange = ["ram", "zram", "sr", "fd"].iter().any(|kind| {
                name.strip_prefix(kind)
                    .is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
            });
            let sectors: u64 = text(&sys.join("size")).map_or(0, |s| s.parse().unwrap_or(0));
            let suspended = text(&sys.join("dm/suspended")).is_some_and(|s| s == "1");
            !strange && sectors * 512 >= LEAST_BYTES && !suspended
        })
        // `cciss!c0d0` is /dev/cciss/c0d0.
        .map(|d| Path::new("/dev").join(d.file_name().to_string_lossy().replace('!', "/")))
        .collect();
    paths.sort();
    paths
}

/// The places among `paths` that hold a superblock. A place that does not answer delays the scan by at most `TIMEOUT`.
pub fn probe_all(paths: Vec<PathBuf>, second: &[u64], wake: bool) -> Scan {
    let mut scan = Scan::default();
    let second = second.to_vec();
    let ask = move |path: &Path| probe(path, Second::At(&second)).ok()?.ok();
    scan.found = ask_all(paths, wake, ask, &mut scan.notes);
    scan
}

/// The places among `paths` about which `ask` tells something, and what it tells. As for [`probe_all`].
pub(super) fn ask_all<T: Send + 'static>(
    paths: Vec<PathBuf>,
    wake: bool,
    ask: impl Fn(&Path) -> Option<T> + Clone + Send + 'static,
    notes: &mut Vec<String>,
) -> Vec<(PathBuf, T)> {
    let mut found = Vec::new();
    let mut waiting: BTreeSet<PathBuf> = BTreeSet::new();
    let (tell, told) = mpsc::channel();
    for path in paths {
        if let Err(e) = stack::reachable(&path) {
            notes.push(format!("{} {e}", path.display()));
            continue;
        }
        let (tell, ask, asked) = (tell.clone(), ask.clone(), path.clone());
        let started = std::thread::Builder::new()
            .name("probe".into())
            .spawn(move || {
                let asleep = || File::open(&asked).is_ok_and(|f| Device::is_asleep(&f));
                let seen = if !wake && asleep() { None } else { ask(&asked) };
                // After the deadline there is no receiver.
                let _ = tell.send((asked, seen));
            });
        match started {
            Ok(_) => drop(waiting.insert(path)),
            Err(e) => notes.push(format!("{}: not looked at: {e}", path.display())),
        }
    }
    drop(tell);
    let deadline = Instant::now() + TIMEOUT;
    while !waiting.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((path, seen)) = told.recv_timeout(left) else {
            break;
        };
        waiting.remove(&path);
        found.extend(seen.map(|told| (path, told)));
    }
    notes.extend(waiting.iter().map(|path| {
        let s = TIMEOUT.as_secs();
        format!(
            "{}: does not answer within {s} s and was left out of the search",
            path.display()
        )
    }));
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Regular files of `dir` that are large enough, and messages for people about parts that could not be examined because their file system
/// does not answer.
pub fn files_in(dir: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let passed_over = |path: &Path, mount: &Path| {
        format!(
            "{}: not looked at: the server of the file system at {} does not answer; restart that, or unmount it (umount -l)",
            path.display(),
            mount.display()
        )
    };
    if let Some(mount) = mounts::dead(dir) {
        return (Vec::new(), vec![passed_over(dir, &mount)]);
    }
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    for path in names.take(NAMES_MAX).map(|d| d.path()) {
        if let Some(mount) = mounts::dead(&path) {
            notes.push(passed_over(&path, &mount));
        } else if fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() >= LEAST_BYTES) {
            files.push(path);
        }
    }
    files.sort();
    (files, notes)
}

/// The possible places of the file that was at `hint`, after a directory above it and the description was renamed: each tail of its path,
/// below each directory above the description.
pub fn moved_along(hint: &Path, dir: &Path) -> Vec<PathBuf> {
    let parts: Vec<&OsStr> = hint.iter().collect();
    let mut places = Vec::new();
    for above in dir.ancestors().take(DEPTH_MAX) {
        for n in 1..parts.len().min(DEPTH_MAX) {
            let tail: PathBuf = parts[parts.len() - n..].iter().collect();
            let place = above.join(tail);
            let there =
                mounts::dead(&place).is_none() && fs::metadata(&place).is_ok_and(|m| m.is_file());
            if place != hint && there {
                places.push(place);
            }
        }
    }
    places.sort();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_renamed_above_is_found_by_its_tail() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("new/volumes");
        fs::create_dir_all(dir.join("disks")).unwrap();
        fs::write(dir.join("disks/fast"), "").unwrap();
        let hint = root.path().join("old/volumes/disks/fast");
        assert_eq!(moved_along(&hint, &dir), [dir.join("disks/fast")]);
        fs::create_dir_all(root.path().join("new/elsewhere")).unwrap();
        fs::write(root.path().join("new/elsewhere/slow"), "").unwrap();
        let hint = root.path().join("old/elsewhere/slow");
        assert_eq!(
            moved_along(&hint, &dir),
            [root.path().join("new/elsewhere/slow")]
        );
        // A name that does not exist in the directories above.
        let hint = Path::new("/gone/isotherm-no-such-member");
        assert!(moved_along(hint, &dir).is_empty());
    }

    #[test]
    fn only_files_that_may_be_members_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("note"), "small").unwrap();
        let big = root.path().join("big");
        File::create(&big).unwrap().set_len(LEAST_BYTES).unwrap();
        fs::create_dir(root.path().join("dir")).unwrap();
        assert_eq!(files_in(root.path()), (vec![big.clone()], Vec::new()));
        let scan = probe_all(vec![big, root.path().join("gone")], &[], true);
        assert!(scan.found.is_empty() && scan.notes.is_empty());
    }
}
