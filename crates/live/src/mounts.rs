//! File systems whose answers come from a server: FUSE, network file systems. If the server hangs, every process that accesses a file there
//! hangs as well, and cannot even be killed. So another process tests the file system first, and is abandoned if it does not return.
//!
//! The mount table, and the links that are read on the way, give the file system of a path, so nothing on such a mount is accessed before
//! its server has answered. For mounts of other kinds the only cost is reading the mount table.

use crate::block_file::{FS_TYPE, LINEAGE};
use isotherm_paths::{Mount, device_words};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A server that does not answer a query for the free space within this time is treated as dead.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer, or the lack of one, stays valid.
const FRESH: Duration = Duration::from_secs(1);
const STALE: Duration = Duration::from_secs(30);
/// Largest number of links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;

/// The time of the last test of each mount, and whether it answered.
static TESTED: Mutex<BTreeMap<PathBuf, (Instant, bool)>> = Mutex::new(BTreeMap::new());

/// The mount points of file systems with servers.
fn served() -> Vec<PathBuf> {
    let all = isotherm_paths::mounts().unwrap_or_default().into_iter();
    all.filter(has_server).map(|m| m.point).collect()
}

/// File systems that fetch a file into a cache of their own and store it whole, some time after it was closed. A flush there makes nothing
/// durable, no other way to the file shows what was written, and the kernel has no means to pass that cache. (FUSE; without `fuse.`.)
const WHOLE_FILES: [&str; 18] = [
    "rclone",
    "s3fs",
    "gcsfuse",
    "blobfuse",
    "blobfuse2",
    "goofys",
    "geesefs",
    "mount-s3",
    "mountpoint-s3",
    "ossfs",
    "cosfs",
    "obsfs",
    "riofs",
    "yas3fs",
    "curlftpfs",
    "google-drive-ocamlfuse",
    "onedriver",
    "davfs",
];

/// The kind of the file system with this device number, if it is one of [`WHOLE_FILES`].
fn whole_files(mounts: &[Mount], device: u64) -> Option<&'static str> {
    let number = device_words(device);
    let of = |m: &&Mount| m.device == number;
    mounts.iter().filter(of).find_map(|m| {
        let source = m.source.to_string_lossy();
        let own = m.kind.strip_prefix("fuse.");
        // Some have no kind of their own, or another one by `-o subtype`. The source may still say what they are: the program's name, or
        // (davfs2) an address of the web.
        let is_fuse = m.kind == "fuse" || own.is_some();
        let web = source.starts_with("http://") || source.starts_with("https://");
        let is = |k: &&str| *k == own.unwrap_or(&m.kind) || (is_fuse && *k == source);
        let named = WHOLE_FILES.into_iter().find(is);
        named.or_else(|| (m.kind == "fuse" && web).then_some("davfs"))
    })
}

/// Refuses a file of the file system with this device number if that keeps whole files ([`WHOLE_FILES`]).
///
/// # Errors
/// Names the kind of file system, and the remedy.
pub(crate) fn refuse_whole_files(device: u64) -> Result<(), String> {
    let mounts = isotherm_paths::mounts().unwrap_or_default();
    whole_files(&mounts, device).map_or(Ok(()), |kind| {
        Err(format!(
            "lies on {kind}, which stores files whole after they were closed: a flush would not make data durable there, and a second server would not be noticed; use a local file or device"
        ))
    })
}

/// What names the server of the block file on the file system with this device number, so that a successor of it is known
/// ([`crate::block_file::Options::lineage`]); `None` for all other files.
pub(crate) fn lineage(device: u64) -> Option<String> {
    lineage_in(&isotherm_paths::mounts().ok()?, device)
}

fn lineage_in(mounts: &[Mount], device: u64) -> Option<String> {
    let number = device_words(device);
    let ours = |m: &&Mount| m.device == number && m.kind == FS_TYPE;
    let source = mounts.iter().find(ours)?.source.to_str()?;
    source.strip_prefix(LINEAGE).map(str::to_owned)
}

/// Whether the file system has a server.
fn has_server(mount: &Mount) -> bool {
    let kinds = [
        "fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph",
    ];
    kinds.contains(&&mount.kind[..]) || mount.kind.starts_with("fuse.")
}

/// The first of `mounts` on the way to `path`. Links before it are followed; nothing on it is touched.
fn first_on(path: &Path, mounts: &[PathBuf]) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let parts = |p: &Path| -> Vec<OsString> {
        let parts = p.components().map(|c| c.as_os_str().to_owned());
        parts.collect()
    };
    let mut ahead: VecDeque<OsString> = parts(&path).into();
    let (mut here, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = ahead.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => {
                here.pop();
                continue;
            }
            Some(Component::Normal(name)) => here.push(name),
            _ => continue,
        }
        if mounts.contains(&here) {
            return Some(here);
        }
        if let Ok(target) = std::fs::read_link(&here) {
            links += 1;
            if links > LINKS_MAX {
                return None;
            }
            here.pop();
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            let target = parts(&target).into_iter().rev();
            target.for_each(|p| ahead.push_front(p));
        }
    }
    None
}

/// Tests the file system at `point` by a process that can be abandoned.
fn test_mount(point: &Path) -> bool {
    let child = Command::new("stat")
        .args(["-f", "--"])
        .arg(point)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // If that program is missing, the state is unknown, and the mount is assumed to answer.
    let Ok(mut child) = child else { return true };
    let (tell, told) = mpsc::channel();
    let waiter = std::thread::Builder::new().name("mount".into());
    let waits = waiter.spawn(move || {
        let _ = child.wait();
        // After the deadline there is no receiver.
        let _ = tell.send(());
    });
    waits.is_err() || told.recv_timeout(TIMEOUT).is_ok()
}

/// The mount on the way to `path` whose server does not answer, if there is one. May take 5 s the first time.
#[must_use]
pub fn dead(path: &Path) -> Option<PathBuf> {
    let mounts = served();
    if mounts.is_empty() {
        return None;
    }
    let point = first_on(path, &mounts)?;
    let mut known = TESTED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = known.get(&point).copied().filter(|(when, alive)| {
        let counts = if *alive { FRESH } else { STALE };
        when.elapsed() < counts
    });
    let alive = before.map_or_else(|| test_mount(&point), |(_, alive)| alive);
    if before.is_none() {
        known.insert(point.clone(), (Instant::now(), alive));
    }
    (!alive).then_some(point)
}

/// Checks that [`dead`] finds no such mount on the way to `path`.
///
/// # Errors
/// Names the mount, and the remedy.
pub fn check(path: &Path) -> io::Result<()> {
    dead(path).map_or(Ok(()), |point| {
        let what = format!(
            "lies on the file system at {}, whose server does not answer: restart that, or unmount it (umount -l)",
            point.display()
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn mounts_with_servers_are_known_by_their_kind() {
        for (kind, has) in [
            ("fuse", true),
            ("fuse.sshfs", true),
            ("nfs4", true),
            ("ext4", false),
            ("fusectl", false),
            ("nfsd", false),
        ] {
            let line = format!("36 35 98:0 /root /mnt rw,noatime shared:1 - {kind} src rw");
            let mount = &isotherm_paths::parse_mounts(line.as_bytes())[0];
            assert_eq!(has_server(mount), has, "{kind}");
        }
    }

    #[test]
    fn what_stores_whole_files_is_known_by_its_kind() {
        let table = b"36 35 0:42 / /mnt rw shared:1 - fuse.rclone r: rw\n37 35 0:43 / /b rw - fuse.bindfs b rw\n38 35 0:44 / /c rw - ext4 rclone rw\n39 35 0:45 / /d rw - fuse.mine s3fs rw\n40 35 0:46 / /e rw - fuse https://x/ rw\n41 35 0:47 / /f rw - fuse.s3backer https://x/ rw\n42 35 0:48 / /g rw - fuse\n";
        let mounts = isotherm_paths::parse_mounts(table);
        let of = |minor| whole_files(&mounts, rustix::fs::makedev(0, minor));
        assert_eq!(
            [of(42), of(43), of(44), of(4)],
            [Some("rclone"), None, None, None]
        );
        // By the source, if the kind does not say it.
        assert_eq!([of(45), of(46)], [Some("s3fs"), Some("davfs")]);
        assert_eq!([of(47), of(48)], [None, None]);
    }

    #[test]
    fn only_block_files_with_a_lineage_have_successors() {
        let table = b"36 35 0:42 / /a rw - fuse.isotherm isotherm-lineage:a-b rw\n37 35 0:43 / /b rw - fuse.isotherm isotherm:disk rw\n38 35 0:44 / /c rw - fuse.mine isotherm-lineage:a-b rw\n";
        let mounts = isotherm_paths::parse_mounts(table);
        let of = |minor| lineage_in(&mounts, rustix::fs::makedev(0, minor));
        assert_eq!(of(42).as_deref(), Some("a-b"));
        assert_eq!([of(43), of(44), of(45)], [None, None, None]);
    }

    #[test]
    fn the_way_down_follows_links() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("mnt/in")).unwrap();
        std::os::unix::fs::symlink("mnt/in", root.join("link")).unwrap();
        let mounts = [root.join("mnt")];
        for (path, on) in [
            ("mnt", true),
            ("mnt/in/x", true),
            ("link/x", true),
            ("other", false),
            ("mnt2/x", false),
        ] {
            assert_eq!(first_on(&root.join(path), &mounts).is_some(), on, "{path}");
        }
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        assert_eq!(first_on(&root.join("loop/x"), &mounts), None);
        assert!(check(&root).is_ok());
    }
}
