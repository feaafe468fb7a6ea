//! File systems whose answers come from a server: FUSE, network file systems. If the server hangs, every process that accesses a file there
//! hangs as well, and cannot even be killed. So another process tests the file system first, and is abandoned if it does not return.
//!
//! The mount table, and the links that are read on the way, give the file system of a path, so nothing on such a mount is accessed before
//! its server has answered. For mounts of other kinds the only cost is reading the mount table.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
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
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|&b| b == b'\n');
    lines.filter_map(mount_point).collect()
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
fn whole_files(table: &[u8], device: u64) -> Option<&'static str> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let number = format!("{major}:{minor}");
    let of = |line: &[u8]| {
        let mut words = line.split(|&b| b == b' ');
        (words.nth(2)? == number.as_bytes()).then_some(())?;
        let mut words = words.skip_while(|w| *w != b"-").skip(1);
        let (kind, source) = (words.next()?, words.next()?);
        let own = kind.strip_prefix(b"fuse.");
        // Some have no kind of their own, or another one by `-o subtype`. The source may still say what they are: the program's name, or
        // (davfs2) an address of the web.
        let is_fuse = kind == b"fuse" || own.is_some();
        let web = source.starts_with(b"http://") || source.starts_with(b"https://");
        let is =
            |k: &&str| k.as_bytes() == own.unwrap_or(kind) || (is_fuse && k.as_bytes() == source);
        let named = WHOLE_FILES.into_iter().find(is);
        named.or_else(|| (kind == b"fuse" && web).then_some("davfs"))
    };
    table.split(|&b| b == b'\n').find_map(of)
}

/// Refuses a file of the file system with this device number if that keeps whole files ([`WHOLE_FILES`]).
///
/// # Errors
/// Names the kind of file system, and the remedy.
pub(crate) fn refuse_whole_files(device: u64) -> Result<(), String> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    whole_files(&table, device).map_or(Ok(()), |kind| {
        Err(format!(
            "lies on {kind}, which stores files whole after they were closed: a flush would not make data durable there, and a second server would not be noticed; use a local file or device"
        ))
    })
}

/// The mount point of a line of the mount table, if its file system has a server.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let mut words = line.split(|&b| b == b' ');
    let point = words.nth(4)?;
    let kind = words.skip_while(|w| *w != b"-").nth(1)?;
    let kinds: [&[u8]; 8] = [
        b"fuse", b"fuseblk", b"nfs", b"nfs4", b"cifs", b"smb3", b"9p", b"ceph",
    ];
    (kinds.contains(&kind) || kind.starts_with(b"fuse.")).then(|| unescaped(point))
}

/// Decodes a path: space, tab, newline and backslash are written as a backslash and three octal digits.
pub(crate) fn unescaped(text: &[u8]) -> PathBuf {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(&b) = text.get(at) {
        let digits = text.get(at + 1..at + 4).filter(|_| b == b'\\');
        let code = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        out.push(code.unwrap_or(b));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(out))
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
        let line = |kind: &str| {
            format!("36 35 98:0 /root /mnt/a\\040b rw,noatime shared:1 - {kind} src rw")
        };
        let point = Some(PathBuf::from("/mnt/a b"));
        for kind in ["fuse", "fuse.sshfs", "nfs4"] {
            assert_eq!(mount_point(line(kind).as_bytes()), point, "{kind}");
        }
        for kind in ["ext4", "fusectl", "nfsd"] {
            assert_eq!(mount_point(line(kind).as_bytes()), None, "{kind}");
        }
        assert_eq!(mount_point(b""), None);
    }

    #[test]
    fn what_stores_whole_files_is_known_by_its_kind() {
        let table = b"36 35 0:42 / /mnt rw shared:1 - fuse.rclone r: rw\n37 35 0:43 / /b rw - fuse.bindfs b rw\n38 35 0:44 / /c rw - ext4 rclone rw\n39 35 0:45 / /d rw - fuse.mine s3fs rw\n40 35 0:46 / /e rw - fuse https://x/ rw\n41 35 0:47 / /f rw - fuse.s3backer https://x/ rw\n42 35 0:48 / /g rw - fuse\n";
        let of = |minor| whole_files(table, rustix::fs::makedev(0, minor));
        assert_eq!(
            [of(42), of(43), of(44), of(4)],
            [Some("rclone"), None, None, None]
        );
        // By the source, if the kind does not say it.
        assert_eq!([of(45), of(46)], [Some("s3fs"), Some("davfs")]);
        assert_eq!([of(47), of(48)], [None, None]);
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
