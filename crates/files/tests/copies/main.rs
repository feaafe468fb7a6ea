//! Copies on real directories: whatever is done to a file that has a copy, a read returns the bytes of the file at home, and after a crash
//! no copy is used. With any safety rule removed, the same tests must fail.

mod asleep;
mod attributes;
mod full;
mod heads;
mod ranges;
mod restless;
mod underneath;

use isotherm_core::random::SplitMix64;
use isotherm_files::attributes::{SetAttr, SetTime};
use isotherm_files::catalogue::NodeId;
use isotherm_files::live::Live;
use isotherm_files::mover::Outcome;
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::names::{Creator, IfPresent};
use isotherm_files::store::{Settings, Store};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CREATOR: Creator = Creator {
    uid: 0,
    gid: 0,
    umask: 0,
};

/// Two tiers; a small tier is a tmpfs of its own.
struct Pair {
    store: Option<Store>,
    root: PathBuf,
    small: Option<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new() -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for tier in ["fast", "slow"] {
            fs::create_dir(root.join(tier)).unwrap();
        }
        let mut pair = Pair {
            store: None,
            root,
            small: None,
            _dir: dir,
        };
        pair.mount();
        pair
    }
    /// With one tier of 1 MiB. `None` without the right to mount.
    fn with_small(tier: &str) -> Option<Pair> {
        Pair::with_limits(tier, "size=1M")
    }
    /// With one tier that is a tmpfs with these options. `None` without the right to mount.
    fn with_limits(tier: &str, options: &str) -> Option<Pair> {
        let mut pair = Pair::new();
        let small = pair.root.join(tier);
        pair.store = None;
        // No process is started: until it runs, it has the descriptors of all tests, and the space of their removed files is not free.
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::empty();
        if rustix::mount::mount("small", &small, "tmpfs", flags, &*options).is_err() {
            println!("SKIPPED: needs the right to mount");
            return None;
        }
        pair.small = Some(small);
        pair.mount();
        Some(pair)
    }
    /// Mounts; also used as after a crash, when the previous server is gone and has not cleaned up.
    fn mount(&mut self) {
        self.mount_with(true);
    }
    /// Without copies.
    fn mount_plain(&mut self) {
        self.mount_with(false);
    }
    fn mount_with(&mut self, copies: bool) {
        self.mount_as(|s| s.copies = copies);
    }
    fn mount_as(&mut self, change: impl FnOnce(&mut Settings)) {
        self.store = None;
        let mut settings = Settings {
            tiers: ["fast", "slow"].map(|t| self.root.join(t)).into(),
            marks: (100, 100),
            moves: false,
            accept: true,
            ..Settings::default()
        };
        change(&mut settings);
        self.store = Some(Store::open(&settings).unwrap());
    }
    /// Does what a clean unmount does.
    fn unmount(&mut self) {
        self.store().keep_copies().unwrap();
        self.store = None;
    }
    /// The name of the copy of a file in the list that an unmount left.
    fn copy_of(&self, name: &str) -> String {
        let list = fs::read(self.root.join("fast/.isotherm/copies.json")).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        let path = serde_json::json!(name.as_bytes());
        let all = list.as_array().unwrap().iter();
        let mut of = all.filter(|c| c["path"] == path);
        format!("c{}", of.next().unwrap()["number"])
    }
    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }
    /// A file on the slow tier.
    fn file(&self, name: &str, data: &[u8]) -> NodeId {
        let store = self.store();
        let (node, live, _) = store.create(0, name.as_bytes(), 0o600, owner()).unwrap();
        store.write(&live, 0, data, false).unwrap();
        store.release(&live);
        assert_eq!(store.move_file(node, 1), Outcome::Done);
        node
    }
    fn copied(&self, name: &str, data: &[u8]) -> NodeId {
        let node = self.file(name, data);
        assert_eq!(self.store().fetch(node), Outcome::Done);
        assert!(self.store().copies.has(node));
        node
    }
    /// What a user reads.
    fn read(&self, live: &Arc<Live>) -> Vec<u8> {
        let mut all = vec![0; 1 << 21];
        let n = self.store().read(live, 0, &mut all).unwrap();
        all.truncate(n);
        all
    }
    fn read_anew(&self, node: NodeId) -> Vec<u8> {
        let live = self.store().live(node).unwrap();
        let all = self.read(&live);
        self.store().release(&live);
        all
    }
    fn slow(&self, name: &str) -> PathBuf {
        self.root.join("slow").join(name)
    }
    fn left(&self) -> usize {
        let dir = self.root.join("fast/.isotherm/copies");
        fs::read_dir(dir).unwrap().count()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.store = None;
        if let Some(small) = &self.small {
            let _ = rustix::mount::unmount(small, UnmountFlags::DETACH);
        }
    }
}

fn owner() -> Creator {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    Creator {
        uid: uid.as_raw(),
        gid: gid.as_raw(),
        ..CREATOR
    }
}

fn size(size: u64) -> SetAttr {
    SetAttr {
        mode: None,
        uid: None,
        gid: None,
        size: Some(size),
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        strip: false,
    }
}

fn edit(path: &Path, data: &[u8]) {
    // The modification time must change even if the clock of the file system is coarse.
    std::thread::sleep(std::time::Duration::from_millis(12));
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(data, 0).unwrap();
}

/// Random changes of a file that gets a copy and loses it again.
fn random_changes(seed: u64) {
    let pair = Pair::new();
    let store = pair.store();
    let mut random = SplitMix64::new(seed);
    let mut expected = vec![7u8; 30_000];
    let node = pair.file("f0", &expected);
    let other = pair.file("other", &vec![9; 70_000]);
    let mut live = store.live(node).unwrap();
    let mut name = 0;
    for _ in 0..400 {
        let (at, len) = (random.below(60_000), 1 + random.below(9_000));
        match random.below(14) {
            0..=3 => {
                let data = vec![random.draw() as u8; len as usize];
                store.write(&live, at, &data, len % 2 == 0).unwrap();
                let end = (at + len) as usize;
                expected.resize(expected.len().max(end), 0);
                expected[at as usize..end].copy_from_slice(&data);
            }
            4 => {
                store.set_attr(node, &size(at)).unwrap();
                expected.resize(at as usize, 0);
            }
            5 => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let mode = mode.bits() as i32;
                if store.fallocate(&live, at, len, mode) != Err(Errno::OPNOTSUPP) {
                    let all = expected.len();
                    expected[all.min(at as usize)..all.min((at + len) as usize)].fill(0);
                }
            }
            6 => {
                let from = store.live(other).unwrap();
                let n = store.copy(&from, at, &live, at, len).unwrap();
                store.release(&from);
                let end = (at + n) as usize;
                expected.resize(expected.len().max(end), 0);
                expected[at as usize..end].fill(9);
            }
            7 => {
                store.release(&live);
                live = store.live(node).unwrap();
            }
            8 => {
                let (old, new) = (format!("f{name}"), format!("f{}", name + 1));
                let done =
                    store.rename((0, old.as_bytes()), (0, new.as_bytes()), IfPresent::Refuse);
                assert_eq!(done, Ok(()));
                name += 1;
            }
            9 => store.drop_copy(node),
            10 if random.below(4) == 0 => {
                assert_eq!(store.move_file(node, 0), Outcome::Done);
                assert!(!store.copies.has(node) && pair.read(&live) == expected);
                assert_eq!(store.move_file(node, 1), Outcome::Done);
            }
            _ => assert_eq!(store.fetch(node), Outcome::Done),
        }
        assert!(pair.read(&live) == expected, "seed {seed}");
        let home = fs::read(pair.slow(&format!("f{name}"))).unwrap();
        assert!(home == expected, "seed {seed}: at home");
    }
    store.release(&live);
    let c = &store.copies;
    let count = |a: &std::sync::atomic::AtomicU64| a.load(std::sync::atomic::Ordering::Relaxed);
    assert!(count(&c.made) > 10 && count(&c.reads) > 50);
    store.drop_copy(node);
    assert_eq!((pair.left(), count(&c.bytes)), (0, 0));
}

/// The fast tier has no space for a write to a file that has its copy there.
fn a_full_fast_tier() -> bool {
    let Some(pair) = Pair::with_small("fast") else {
        return false;
    };
    let node = pair.copied("f", &vec![1; 500_000]);
    let live = pair.store().live(node).unwrap();
    let data = vec![2; 1_500_000];
    pair.store().write(&live, 100_000, &data, false).unwrap();
    let now = pair.read(&live);
    assert!(now == fs::read(pair.slow("f")).unwrap() && now.len() == 1_600_000);
    assert!(!pair.store().copies.has(node));
    pair.store().release(&live);
    true
}

/// A write at home fails after a part of it is done.
fn a_full_home() -> bool {
    let Some(mut pair) = Pair::with_small("slow") else {
        return false;
    };
    pair.mount_as(|s| {
        s.copies = true;
        s.quotas = vec![Some(400_000), None];
    });
    let node = pair.copied("f", &vec![1; 300_000]);
    // The file cannot move to the fast tier.
    let (_, other, _) = pair.store().create(0, b"g", 0o600, owner()).unwrap();
    pair.store()
        .write(&other, 0, &vec![3; 200_000], false)
        .unwrap();
    pair.store().release(&other);
    let live = pair.store().live(node).unwrap();
    let written = pair.store().write(&live, 100_000, &vec![2; 1 << 20], false);
    assert_eq!(written, Err(Errno::NOSPC));
    assert!(pair.read(&live) == fs::read(pair.slow("f")).unwrap());
    pair.store().release(&live);
    true
}

fn changed_underneath() {
    let pair = Pair::new();
    let node = pair.copied("f", b"one and two");
    assert_eq!(pair.read_anew(node), b"one and two");
    edit(&pair.slow("f"), b"two");
    assert_eq!(pair.read_anew(node), b"two and two", "while closed");
    assert!(!pair.store().copies.has(node));
    assert_eq!(pair.store().fetch(node), Outcome::Done);
    let live = pair.store().live(node).unwrap();
    assert_eq!(pair.read(&live), b"two and two");
    edit(&pair.slow("f"), b"six");
    pair.store().release(&live);
    assert_eq!(pair.read_anew(node), b"six and two", "while open");
    // Another file takes its place.
    assert_eq!(pair.store().fetch(node), Outcome::Done);
    fs::write(pair.slow("new"), "another one").unwrap();
    fs::rename(pair.slow("new"), pair.slow("f")).unwrap();
    assert_eq!(pair.read_anew(node), b"another one");
    // A change that `check` finds and adopts does not count as a change that was also made on the copy.
    assert_eq!(pair.store().fetch(node), Outcome::Done);
    edit(&pair.slow("f"), b"checked one");
    isotherm_files::check::check(pair.store(), true);
    assert_eq!(pair.read_anew(node), b"checked one");
}

fn a_crash() {
    let mut pair = Pair::new();
    let node = pair.copied("f", b"what is at home");
    assert_eq!(pair.left(), 1);
    let copies = fs::read_dir(pair.root.join("fast/.isotherm/copies")).unwrap();
    for copy in copies {
        fs::write(copy.unwrap().path(), "what was torn..").unwrap();
    }
    assert_eq!(pair.read_anew(node), b"what was torn..", "it was used");
    pair.mount();
    let node = pair.store().cat().find(b"f").unwrap();
    assert_eq!(pair.read_anew(node), b"what is at home");
    assert_eq!(pair.left(), 0);
}

#[test]
fn reads_give_what_is_at_home() {
    let base = std::env::var("ISOTHERM_SEED").ok();
    let base = base.and_then(|s| s.parse().ok()).unwrap_or(2026u64);
    for seed in base..base + 8 {
        random_changes(seed);
    }
}

#[test]
fn tiers_that_are_full() {
    let _ = (a_full_fast_tier(), a_full_home());
}

#[test]
fn changes_underneath_and_crashes() {
    changed_underneath();
    a_crash();
    asleep::a_change_that_the_kernel_knows();
    let _ = (
        asleep::a_change_that_is_known(),
        asleep::removed_while_only_the_copy_is_open(),
    );
}

#[test]
fn every_rule_of_copies_is_needed() {
    let caught = |mutant, scene: fn() -> bool| {
        choose(Some(mutant));
        let caught = std::panic::catch_unwind(scene);
        choose(None);
        assert_ne!(caught.ok(), Some(true), "not noticed: {mutant:?}");
    };
    caught(Mutant::ForgetUpdate, || {
        random_changes(1);
        true
    });
    caught(Mutant::TrustFailedUpdate, a_full_fast_tier);
    caught(Mutant::TrustFailedHome, a_full_home);
    caught(Mutant::TrustChangedHome, || {
        changed_underneath();
        true
    });
    caught(Mutant::NeverLook, || {
        asleep::a_change_that_the_kernel_knows();
        true
    });
    caught(Mutant::TrustOldRecord, asleep::a_change_that_is_known);
    caught(
        Mutant::ForgetSleeper,
        asleep::removed_while_only_the_copy_is_open,
    );
    for mutant in [Mutant::TrustKeptHome, Mutant::TrustKeptCopy] {
        caught(mutant, || {
            asleep::kept_over_a_remount();
            true
        });
    }
    caught(Mutant::KeepCopies, || {
        a_crash();
        true
    });
}

/// A file that is deleted while it is open keeps its bytes. Copies are dropped to make space for new files and to keep the fast tier below
/// its mark.
#[test]
fn copies_are_dropped_to_make_space() {
    let pair = Pair::new();
    let node = pair.copied("f", b"still read");
    let live = pair.store().live(node).unwrap();
    pair.store().unlink(0, b"f").unwrap();
    assert_eq!(pair.read(&live), b"still read");
    pair.store().write(&live, 0, b"again", false).unwrap();
    assert_eq!(pair.read(&live), b"again read");
    pair.store().release(&live);
    pair.copied("g", b"another");
    let Some(pair) = Pair::with_small("fast") else {
        return;
    };
    let node = pair.copied("f", &vec![1; 500_000]);
    let (new, live, _) = pair.store().create(0, b"new", 0o600, owner()).unwrap();
    pair.store()
        .write(&live, 0, &vec![3; 600_000], false)
        .unwrap();
    pair.store().release(&live);
    assert_eq!(pair.store().cat().get(new).unwrap().tier, 0);
    assert!(!pair.store().copies.has(node) && pair.left() == 0);
    assert!(pair.read_anew(node) == vec![1; 500_000]);
}

/// A policy that caches gets copies. A pin moves the file itself, and then its copy is dropped.
#[test]
fn policies_that_cache_get_copies() {
    let pair = Pair::new();
    let store = pair.store();
    let nodes: Vec<NodeId> = (0..4)
        .map(|i| pair.file(&format!("f{i}"), &vec![i; 20_000]))
        .collect();
    for node in &nodes {
        let facts = store.cat().get(*node).unwrap().facts;
        let path = store.cat().path(*node).unwrap();
        store.placement.report_tier(*node, 1, &facts, &path, true);
    }
    for turn in 0..60u64 {
        let live = store.live(nodes[2]).unwrap();
        let mut bytes = [0; 512];
        store
            .read(&live, (turn * 7919) % 19_000, &mut bytes)
            .unwrap();
        store.release(&live);
        store.feed_policy();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    store.migrate_now();
    let tier = |node| store.cat().get(node).unwrap().tier;
    assert!(store.copies.has(nodes[2]) && tier(nodes[2]) == 1);
    assert!(store.would_move().is_empty());
    assert!(pair.read_anew(nodes[2]) == vec![2; 20_000]);
    store
        .change_settings(|r| {
            r.pins.insert("f2".into(), 0);
        })
        .unwrap();
    store.migrate_now();
    assert!(!store.copies.has(nodes[2]) && tier(nodes[2]) == 0);
    assert_eq!(pair.left(), store.copies.count());
    assert!(pair.read_anew(nodes[2]) == vec![2; 20_000]);
}
