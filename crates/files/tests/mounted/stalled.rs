//! A slow tier that does not answer: every call that changes something there waits, until the file system is thawed. All files of other
//! tiers must work meanwhile.

use crate::trouble::{Unmount, slow_disk};
use crate::world::{World, run};
use isotherm_files::mover::Outcome;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// The slow tier takes no change until this is dropped.
struct Stalled(PathBuf);

impl Stalled {
    fn new(w: &World) -> Stalled {
        rustix::fs::sync();
        run("fsfreeze -f slow", &w.root);
        Stalled(w.root.clone())
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        run("fsfreeze -u slow", &self.0);
    }
}

/// Directories that both tiers have, with a file on each; `calls` of them are for calls that will hang.
fn world(calls: usize) -> Option<(World, Unmount)> {
    let (mut w, disk) = slow_disk(|_| {})?;
    w.mount();
    for n in 0..calls {
        fs::create_dir(w.at(&format!("d{n}"))).unwrap();
        for (f, tier) in [("fast", 0), ("slow", 1)] {
            let f = format!("d{n}/{f}");
            fs::write(w.at(&f), &f).unwrap();
            assert_eq!(w.send(&f, tier), Outcome::Done);
        }
    }
    Some((w, disk))
}

type Call = fn(PathBuf) -> std::io::Result<()>;

/// Calls that change the file `slow` in a directory, or the directory itself, on the slow tier. The directory has the mode 0755 afterwards.
const CALLS: [Call; 8] = [
    |d| fs::set_permissions(d.join("slow"), fs::Permissions::from_mode(0o600)),
    |d| {
        let flags = rustix::fs::XattrFlags::empty();
        Ok(rustix::fs::setxattr(d.join("slow"), "user.a", b"b", flags)?)
    },
    |d| File::open(d.join("slow"))?.set_modified(std::time::UNIX_EPOCH),
    |d| std::os::unix::fs::chown(d.join("slow"), Some(7), Some(8)),
    |d| fs::set_permissions(d, fs::Permissions::from_mode(0o755)),
    |d| {
        let file = OpenOptions::new().write(true).open(d.join("slow"))?;
        file.write_all_at(b"W", 0)
    },
    |d| fs::rename(d.join("slow"), d.join("renamed")),
    |d| fs::remove_file(d.join("slow")),
];

/// Uses an open file of the fast tier in a directory that the kernel itself locks: it does so while a name in it is removed or changed, and
/// while its attributes are.
fn use_open(file: &File) {
    file.write_all_at(b"W", 0).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640))
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, *b"W");
}

/// Does everything with files of the fast tier, in a directory on both.
pub(crate) fn use_fast(d: &Path) {
    let at = |n: &str| d.join(n);
    assert!(fs::metadata(at("fast")).unwrap().len() > 0);
    assert!(fs::metadata(at("slow")).unwrap().len() > 0, "only its name");
    assert!(fs::metadata(at("nobody")).is_err());
    assert_eq!(fs::read_dir(d).unwrap().count(), 2);
    let mut new = File::create(at("new")).unwrap();
    new.write_all(b"bytes").unwrap();
    if d.ends_with("d0") {
        new.sync_all().unwrap();
    }
    fs::set_permissions(at("new"), fs::Permissions::from_mode(0o640)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(at("new"), "user.a", b"b", flags).unwrap();
    fs::hard_link(at("new"), at("other")).unwrap();
    fs::rename(at("new"), at("fast")).unwrap();
    assert_eq!(fs::read(at("fast")).unwrap(), b"bytes");
    symlink("fast", at("points")).unwrap();
    fs::create_dir(at("sub")).unwrap();
    fs::rename(at("other"), at("sub/other")).unwrap();
    fs::remove_file(at("sub/other")).unwrap();
    fs::remove_dir(at("sub")).unwrap();
    fs::remove_file(at("points")).unwrap();
}

/// The worst day: many programs change files of a tier that does not answer.
fn others_go_on(calls: usize) {
    let Some((mut w, disk)) = world(calls) else {
        return;
    };
    let mut way = OpenOptions::new();
    let way = way.read(true).write(true);
    let open = (0..calls).map(|n| way.open(w.at(&format!("d{n}/fast"))).unwrap());
    let open: Vec<File> = open.collect();
    let stalled = Stalled::new(&w);
    let start = |n: usize| {
        let (dir, call) = (w.at(&format!("d{n}")), CALLS[n % CALLS.len()]);
        std::thread::spawn(move || call(dir))
    };
    let hung: Vec<JoinHandle<std::io::Result<()>>> = (0..calls).map(start).collect();
    std::thread::sleep(Duration::from_millis(500));
    let (tell, hear) = channel();
    let (dirs, state) = ((0..calls).map(|n| w.at(&format!("d{n}"))), w.at(""));
    let dirs: Vec<PathBuf> = dirs.collect();
    std::thread::spawn(move || {
        for (n, dir) in dirs.into_iter().enumerate() {
            match n % CALLS.len() {
                4 | 6 | 7 => use_open(&open[n]),
                _ => use_fast(&dir),
            }
            // The receiver may have given up.
            let _ = tell.send(n);
        }
        let mut status = vec![0; 1 << 20];
        rustix::fs::getxattr(&state, "user.isotherm.status", &mut status[..]).unwrap();
        rustix::fs::statvfs(&state).unwrap();
        let _ = tell.send(calls);
    });
    // Other tests may keep the disk below busy, so there is much time for each directory.
    let until = |n: usize| hear.recv_timeout(Duration::from_secs(60)) == Ok(n);
    let stopped = (0..=calls).find(|n| !until(*n));
    let waiting = hung.iter().filter(|h| !h.is_finished()).count();
    drop(stalled);
    assert_eq!(stopped, None, "files of the fast tier wait, too");
    assert_eq!(waiting, calls, "every call needed the slow tier");
    for (n, call) in hung.into_iter().enumerate() {
        call.join().unwrap().unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    w.unmount();
    drop(disk);
}

#[test]
fn one_call_on_a_stalled_tier_stops_no_other_file() {
    others_go_on(1);
}

/// There are four session threads here.
#[test]
fn many_calls_on_a_stalled_tier_stop_no_other_file() {
    others_go_on(16);
}
