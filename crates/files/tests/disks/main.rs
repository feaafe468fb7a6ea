//! A slow tier of several disks: where files go, which disks a mount takes, and what a crash leaves. With any rule about the set of disks
//! removed, the same tests must fail.

mod alike;
mod crash;
mod each_call;
mod empty;
mod join;
mod room;
mod set;
mod trust;

use isotherm_files::catalogue::NodeId;
use isotherm_files::layout::Create;
use isotherm_files::mover::Outcome;
use isotherm_files::names::Creator;
use isotherm_files::store::{Refused, Settings, Store};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// The slow disks of the tests.
const DISKS: [&str; 3] = ["d1", "d2", "d3"];

fn owner() -> Creator {
    Creator {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        umask: 0,
    }
}

/// A directory `fast` and directories for disks beside it.
struct Place {
    root: PathBuf,
    /// The disks of the next mount, as a user would name them.
    named: Vec<&'static str>,
    create: Create,
    /// File systems of their own, which are unmounted at the end.
    mounted: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        for dir in &self.mounted {
            let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH);
        }
    }
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for d in DISKS.iter().chain(&["fast"]) {
            fs::create_dir(root.join(d)).unwrap();
        }
        Place {
            root,
            named: DISKS.to_vec(),
            create: Create::default(),
            mounted: Vec::new(),
            _dir: dir,
        }
    }
    /// With disks of so many MiB. `None` without the right to mount.
    fn with_sizes(mib: [u32; 3]) -> Option<Place> {
        let mut place = Place::new();
        for (disk, mib) in DISKS.iter().zip(mib) {
            let at = place.root.join(disk);
            let options = std::ffi::CString::new(format!("size={mib}M")).unwrap();
            let flags = MountFlags::empty();
            if rustix::mount::mount("disk", &at, "tmpfs", flags, &*options).is_err() {
                println!("SKIPPED: needs the right to mount");
                return None;
            }
            place.mounted.push(at);
        }
        Some(place)
    }
    fn settings(&self) -> Settings {
        let at = |d: &&str| self.root.join(d);
        Settings {
            tiers: vec![self.root.join("fast"), at(&self.named[0])],
            more_slow: self.named[1..].iter().map(at).collect(),
            create: self.create,
            moves: false,
            marks: (100, 100),
            ..Settings::default()
        }
    }
    fn open_as(&self, change: impl FnOnce(&mut Settings)) -> Result<Store, Refused> {
        let mut settings = self.settings();
        change(&mut settings);
        Store::open(&settings)
    }
    fn open(&self) -> Store {
        self.open_as(|_| {}).unwrap()
    }
    /// What a mount says that is refused.
    fn refused(&self, change: impl FnOnce(&mut Settings)) -> String {
        match self.open_as(change) {
            Ok(_) => "mounted".into(),
            Err(e) => e.0,
        }
    }
    fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.root.join(path)).is_ok()
    }
    /// The disks that have a path, of `fast` and all others.
    fn on(&self, path: &str) -> Vec<&'static str> {
        let all = ["fast"].into_iter().chain(DISKS);
        all.filter(|d| self.has(&format!("{d}/{path}"))).collect()
    }
}

/// Puts an empty directory in the place of one, as if its disk were not mounted; and the other way round.
fn unmount(place: &Place, disk: &str) {
    fs::rename(place.root.join(disk), place.root.join("away")).unwrap();
    fs::create_dir(place.root.join(disk)).unwrap();
}

fn mount_again(place: &Place, disk: &str) {
    fs::remove_dir_all(place.root.join(disk)).unwrap();
    fs::rename(place.root.join("away"), place.root.join(disk)).unwrap();
}

fn find(store: &Store, path: &str) -> NodeId {
    let found = store.cat().find(path.as_bytes());
    found.unwrap_or_else(|| panic!("{path} is not there"))
}

fn mkdir(store: &Store, path: &str) -> NodeId {
    let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
    let dir = find(store, dir);
    store.mkdir(dir, name.as_bytes(), 0o755, owner()).unwrap()
}

/// A new file with its path as its bytes.
fn file(store: &Store, path: &str) -> NodeId {
    let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
    let dir = find(store, dir);
    let (node, live, _) = store.create(dir, name.as_bytes(), 0o600, owner()).unwrap();
    store.write(&live, 0, path.as_bytes(), false).unwrap();
    store.release(&live);
    node
}

/// A new file that is moved to that disk.
fn file_on(store: &Store, path: &str, disk: u8) -> NodeId {
    let node = file(store, path);
    if store.cat().get(node).unwrap().tier != disk {
        assert_eq!(store.move_file(node, disk), Outcome::Done, "{path}");
    }
    node
}

fn read(store: &Store, path: &str) -> Result<Vec<u8>, rustix::io::Errno> {
    let live = store.live(find(store, path))?;
    let mut bytes = vec![0; 1 << 16];
    let n = store.read(&live, 0, &mut bytes);
    store.release(&live);
    bytes.truncate(n?);
    Ok(bytes)
}

fn said(store: &Store) -> String {
    store.said.lock().unwrap().join("\n")
}

fn status(store: &Store) -> serde_json::Value {
    serde_json::from_slice(&isotherm_files::control::answer(store, 0, "status").unwrap()).unwrap()
}

/// Moves everything to the slow tier by a pin, as the mover does.
fn send_down(store: &Store) {
    store
        .change_settings(|s| {
            s.pins.insert(".".into(), 1);
        })
        .unwrap();
    store.migrate_now();
    assert_eq!(store.placement.done[2].load(Ordering::Relaxed), 0);
}
