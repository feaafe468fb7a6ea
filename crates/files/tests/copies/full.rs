//! A full fast tier, and calls that fail for other reasons half-way: copies make room, nothing is left half done.

use crate::{CREATOR, Pair, owner, size};
use isotherm_files::disk::{Disk, Root};
use isotherm_files::mover::{Outcome, Why};
use isotherm_files::names::Creator;
use isotherm_files::store::{Settings, Store};
use isotherm_files::tree::{At, Tree};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Creates empty files directly in a directory until no inode is left.
fn fill(dir: &Path) {
    for n in 0..10_000 {
        if fs::write(dir.join(format!("full-{n}")), "").is_err() {
            return;
        }
    }
    panic!("it does not become full");
}

fn make(store: &Store, kind: &str, name: &[u8], node: u64) -> Result<(), Errno> {
    let who = owner();
    match kind {
        "directory" => store.mkdir(0, name, 0o750, who).map(|_| ()),
        "link" => store.symlink(0, name, b"to", who).map(|_| ()),
        "pipe" => store.mknod(0, name, 0o010_600, 0, who).map(|_| ()),
        "file" => (store.create(0, name, 0o600, who)).map(|(_, live, _)| store.release(&live)),
        "name" => store.link(node, 0, name),
        _ => unreachable!("{kind}"),
    }
}

/// Everything that gets a name on a full fast tier drops copies first, and then goes to the next tier.
#[test]
fn names_make_room_on_a_full_fast_tier() {
    for kind in ["file", "directory", "link", "pipe", "name"] {
        let Some(pair) = Pair::with_limits("fast", "size=1M,nr_inodes=64") else {
            return;
        };
        let store = pair.store();
        pair.copied("copied", b"of no more use than another");
        let (node, live, _) = store.create(0, b"on fast", 0o600, owner()).unwrap();
        store.release(&live);
        fill(&pair.root.join("fast"));
        assert_eq!(make(store, kind, b"x", node), Ok(()), "{kind}");
        assert_eq!(store.copies.count(), 0, "{kind}");
        assert!(fs::symlink_metadata(pair.root.join("fast/x")).is_ok());
        // No copy is left. A name stays on the tier of its file.
        fill(&pair.root.join("fast"));
        let next = make(store, kind, b"y", node);
        if kind == "name" {
            assert_eq!(next, Err(Errno::NOSPC));
            continue;
        }
        assert_eq!(next, Ok(()), "{kind}");
        assert!(fs::symlink_metadata(pair.slow("y")).is_ok(), "{kind}");
        if kind == "directory" {
            assert_eq!(store.rmdir(0, b"y"), Ok(()));
        } else {
            assert!(store.unlink(0, b"y").is_ok());
        }
        assert!(fs::symlink_metadata(pair.slow("y")).is_err(), "{kind}");
    }
}

/// A failure that has nothing to do with space does not cost the copies.
#[test]
fn a_value_that_is_too_large_drops_no_copy() {
    let pair = Pair::new();
    let store = pair.store();
    pair.copied("copied", b"still there");
    let (node, live, _) = store.create(0, b"f", 0o600, owner()).unwrap();
    // Some file systems have room for it.
    let _ = store.set_xattr(node, b"user.large", &vec![7; 60_000], 0);
    store.release(&live);
    assert_eq!(store.copies.count(), 1);
}

/// A file with holes needs the space of its data.
#[test]
fn a_file_with_holes_moves_to_a_tier_that_is_smaller_than_its_size() {
    let Some(pair) = Pair::with_small("fast") else {
        return;
    };
    let store = pair.store();
    let node = pair.file("f", &[7; 4096]);
    store.set_attr(node, &size(1 << 30)).unwrap();
    let blocks = || fs::metadata(pair.root.join("fast/f")).map(|m| (m.len(), m.blocks()));
    assert_eq!(store.fetch(node), Outcome::Done);
    assert!(store.copies.has(node));
    assert_eq!(store.move_file(node, 0), Outcome::Done);
    assert_eq!(blocks().unwrap(), (1 << 30, 8));
    assert_eq!(pair.read_anew(node)[..4096], [7; 4096]);
    // Data that does not fit is refused as before.
    let node = pair.file("g", &vec![7; 500_000]);
    assert_eq!(store.move_file(node, 0), Outcome::Done);
    let node = pair.file("h", &vec![7; 900_000]);
    assert_eq!(store.move_file(node, 0), Outcome::Refused(Why::Full));
}

/// Runs as another user, who may not change owners, in a directory of that user.
fn as_nobody(run: impl FnOnce(Store, &Path) + Send) {
    if !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let nobody = 65_534;
    for d in ["", "fast", "slow"] {
        let _ = fs::create_dir(root.join(d));
        std::os::unix::fs::chown(root.join(d), Some(nobody), Some(nobody)).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let user = rustix::thread::Uid::from_raw(nobody);
            // Only this thread.
            rustix::thread::set_thread_uid(user).unwrap();
            let store = Store::open(&Settings {
                tiers: ["fast", "slow"].map(|t| root.join(t)).into(),
                marks: (100, 100),
                moves: false,
                ..Settings::default()
            });
            run(store.unwrap(), &root);
        });
    });
}

/// A file or directory that cannot get its owner is not left behind with another owner.
#[test]
fn nothing_is_left_if_the_owner_cannot_be_set() {
    as_nobody(|store, root| {
        let who = Creator { uid: 7, ..CREATOR };
        let made = [
            store.create(0, b"x", 0o600, who).map(|_| ()),
            store.mkdir(0, b"x", 0o700, who).map(|_| ()),
            store.symlink(0, b"x", b"to", who).map(|_| ()),
            store.mknod(0, b"x", 0o010_600, 0, who).map(|_| ()),
        ];
        assert_eq!(made, [Err(Errno::PERM); 4]);
        let left = fs::read_dir(root.join("fast")).unwrap().count();
        assert_eq!(left, 1, "only .isotherm");
        assert_eq!(store.cat().files(), 0);
    });
}

/// Git objects, for example, may not be written by their owner.
#[test]
fn a_file_that_its_owner_may_not_write_is_moved() {
    as_nobody(|store, root| {
        let gid = fs::metadata(root).unwrap().gid();
        let gid = if gid == 0 {
            0
        } else {
            rustix::process::getgid().as_raw()
        };
        let who = Creator {
            uid: 65_534,
            gid,
            umask: 0,
        };
        let (node, live, _) = store.create(0, b"f", 0o444, who).unwrap();
        store.write(&live, 0, b"an object", false).unwrap();
        assert_eq!(store.move_file(node, 1), Outcome::Done);
        // A program that had it open for writing may continue.
        store.write(&live, 3, b"OBJECT", false).unwrap();
        store.release(&live);
        let path = root.join("slow/f");
        assert_eq!(fs::read(&path).unwrap(), b"an OBJECT");
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o444);
    });
}

/// A change of several tiers that has begun needs space for names, which is set aside.
#[test]
fn names_of_changes_that_have_begun_have_space() {
    let Some(pair) = Pair::with_limits("fast", "size=1M,nr_inodes=64") else {
        return;
    };
    let fast = pair.root.join("fast");
    let roots = Arc::new(vec![Root::open(&fast).unwrap()]);
    roots[0].prepare().unwrap();
    fs::write(fast.join("f"), "x").unwrap();
    fill(&fast);
    assert!(fs::hard_link(fast.join("f"), fast.join("g")).is_err());
    let mut disk = Disk::new(roots);
    assert_eq!(disk.link(&At::new(0, "f"), b"g"), Ok(()));
    assert_eq!(fs::read(fast.join("g")).unwrap(), b"x");
}

/// A directory whose attributes a tier cannot hold is not left there without them, and one above it is known there.
#[test]
fn a_directory_is_whole_or_not_there() {
    let Some(pair) = Pair::with_small("fast") else {
        return;
    };
    let store = pair.store();
    let up = store.mkdir(0, b"up", 0o751, owner()).unwrap();
    let dir = store.mkdir(up, b"d", 0o750, owner()).unwrap();
    if store
        .set_xattr(dir, b"user.large", &vec![7; 60_000], 0)
        .is_err()
    {
        println!("SKIPPED: tmpfs has no extended attributes here");
        return;
    }
    let (node, live, _) = store.create(dir, b"f", 0o600, owner()).unwrap();
    store.release(&live);
    let outcome = store.move_file(node, 1);
    if outcome == Outcome::Done {
        println!("SKIPPED: the file system below takes large attributes");
        return;
    }
    assert!(fs::metadata(pair.slow("up")).is_ok_and(|m| m.mode() & 0o777 == 0o751));
    assert!(!pair.slow("up/d").exists());
    assert_eq!(fs::read_dir(pair.slow(".isotherm/tmp")).unwrap().count(), 0);
    store.unlink(dir, b"f").unwrap();
    store.rmdir(up, b"d").unwrap();
    store.rmdir(0, b"up").unwrap();
    assert!(!pair.slow("up").exists());
}

/// The remains of a directory that was not complete at a crash are removed.
#[test]
fn incomplete_directories_are_removed_at_mount() {
    let mut pair = Pair::new();
    fs::create_dir(pair.slow(".isotherm/tmp/d0")).unwrap();
    pair.mount();
    assert!(!pair.slow(".isotherm/tmp/d0").exists());
}

/// Pins that cannot be stored are not in force.
#[test]
fn settings_are_stored_or_not_in_force() {
    let pair = Pair::new();
    let store = pair.store();
    let pins = || {
        let policy = store.placement.policy.lock().unwrap();
        policy.settings.pins.len()
    };
    // The place of the new file is taken by a directory.
    fs::create_dir(pair.root.join("fast/.isotherm/settings.json.new")).unwrap();
    let failed = store.change_settings(|s| {
        s.pins.insert("f".into(), 1);
    });
    assert!(failed.is_err() && pins() == 0);
    fs::remove_dir(pair.root.join("fast/.isotherm/settings.json.new")).unwrap();
    store
        .change_settings(|s| {
            s.pins.insert("f".into(), 1);
        })
        .unwrap();
    assert_eq!(pins(), 1);
}

/// The fast tier is above its upper mark and has space, the slow one is full: the space that is there is used. If no tier has space for a
/// file, its write fails and leaves it whole.
#[test]
fn space_is_used_on_whatever_tier_it_is() {
    let Some(mut pair) = Pair::with_limits("slow", "size=1M") else {
        return;
    };
    pair.mount_as(|s| {
        s.quotas = vec![Some(16 << 20), None];
        s.marks = (1, 2);
    });
    let node = pair.file("grows", &vec![1; 200_000]);
    let (_, live, _) = pair.store().create(0, b"base", 0o600, owner()).unwrap();
    pair.store()
        .write(&live, 0, &vec![2; 1 << 20], false)
        .unwrap();
    pair.store().release(&live);
    let (_, live, _) = pair.store().create(0, b"hot", 0o600, owner()).unwrap();
    pair.store()
        .write(&live, 0, &vec![2; 400_000], false)
        .unwrap();
    pair.store().release(&live);
    // A tmpfs writes what fits.
    let _ = fs::write(pair.slow("filler"), vec![3; 2 << 20]);
    let place = |name: &[u8]| {
        let cat = pair.store().cat();
        cat.find(name).and_then(|n| cat.get(n)).unwrap().tier
    };
    assert_eq!((place(b"grows"), place(b"hot")), (1, 1));
    for name in ["new", "another"] {
        let (_, live, _) = pair
            .store()
            .create(0, name.as_bytes(), 0o600, owner())
            .unwrap();
        assert_eq!(
            pair.store().write(&live, 0, &vec![4; 1 << 20], false),
            Ok(())
        );
        pair.store().release(&live);
        assert_eq!(place(name.as_bytes()), 0);
    }
    let live = pair.store().live(node).unwrap();
    assert_eq!(
        pair.store().write(&live, 200_000, &vec![5; 600_000], false),
        Ok(())
    );
    assert_eq!(place(b"grows"), 0);
    let read = pair.read(&live);
    assert!(read[..200_000] == vec![1; 200_000] && read[200_000..] == vec![5; 600_000]);
    pair.store().release(&live);
    // Now the fast one has no space for it either.
    let quota = pair.store().bytes_on[0].load(std::sync::atomic::Ordering::Relaxed);
    pair.mount_as(|s| s.quotas = vec![Some(quota + 1000), None]);
    let node = pair.store().cat().find(b"hot").unwrap();
    let live = pair.store().live(node).unwrap();
    let before = pair.read(&live);
    let _ = fs::write(pair.slow("filler2"), vec![3; 2 << 20]);
    let done = pair
        .store()
        .write(&live, before.len() as u64, &vec![6; 900_000], false);
    assert_eq!(done, Err(Errno::NOSPC));
    assert!(pair.read(&live)[..before.len()] == before);
    pair.store().release(&live);
}

/// A tier with hardly any space can be mounted.
#[test]
fn a_slow_tier_with_little_space_is_mounted() {
    for size in ["size=16K", "size=64K", "size=512K"] {
        if let Some(pair) = Pair::with_limits("slow", size) {
            let node = pair.store().create(0, b"f", 0o600, owner()).unwrap().0;
            assert_eq!(pair.store().cat().get(node).unwrap().tier, 0, "{size}");
        }
    }
}

/// A file on a full slow tier is renamed into a directory that only the fast tier has.
#[test]
fn a_file_of_a_full_tier_is_renamed_into_a_new_directory() {
    let Some(pair) = Pair::with_limits("slow", "size=1M,nr_inodes=64") else {
        return;
    };
    pair.file("f", b"text");
    let store = pair.store();
    let dir = store.mkdir(0, b"d", 0o750, owner()).unwrap();
    fill(&pair.root.join("slow"));
    let done = store.rename(
        (0, b"f"),
        (dir, b"g"),
        isotherm_files::names::IfPresent::Refuse,
    );
    assert_eq!(done, Ok(()));
    assert_eq!(fs::read(pair.slow("d/g")).unwrap(), b"text");
}

/// A slow tier without space for a byte, or for a name, is served: its files are read, removed and moved away, and no second server gets in.
/// What it could not store is stored when there is room.
#[test]
fn a_full_slow_tier_can_be_mounted_for_the_first_time() {
    for (options, names) in [("size=1M", false), ("size=1M,nr_inodes=64", true)] {
        let Some(mut pair) = Pair::with_limits("slow", options) else {
            return;
        };
        pair.store = None;
        for tier in ["fast", "slow"] {
            fs::remove_dir_all(pair.root.join(tier).join(".isotherm")).unwrap();
        }
        fs::write(pair.slow("old"), [7; 5000]).unwrap();
        fs::write(pair.slow("gone"), vec![8; 400_000]).unwrap();
        if names {
            fill(&pair.root.join("slow"));
        } else {
            let _ = fs::write(pair.slow("filler"), vec![9; 1 << 20]);
        }
        pair.mount_plain();
        let store = pair.store();
        assert_eq!(fs::metadata(pair.slow(".isotherm")).is_err(), names);
        let said = store.said.lock().unwrap().clone();
        assert!(
            said.iter().any(|l| l.contains("is full: it has no room")),
            "{said:?}"
        );
        let (_, live, _) = store.create(0, b"new", 0o600, owner()).unwrap();
        store.release(&live);
        assert!(pair.root.join("fast/new").exists());
        // The lock of the slow tier alone keeps a second server out.
        let other = tempfile::tempdir().unwrap();
        let second = Settings {
            tiers: vec![other.path().to_owned(), pair.root.join("slow")],
            ..Settings::default()
        };
        let why = Store::open(&second).err().map(|e| e.to_string());
        assert!(
            why.as_ref().is_some_and(|w| w.contains("served already")),
            "{why:?}"
        );
        let old = store.cat().find(b"old").unwrap();
        assert_eq!(store.move_file(old, 0), Outcome::Done);
        assert!(store.unlink(0, b"gone").is_ok());
        for n in (0..20).filter(|_| names) {
            let name = format!("full-{n}");
            assert!(store.unlink(0, name.as_bytes()).is_ok());
        }
        // There is room now, and the directories are made for the first move that needs them.
        assert_eq!(store.move_file(old, 1), Outcome::Done);
        assert_eq!(fs::read(pair.slow("old")).unwrap(), [7; 5000]);
        pair.mount_plain();
        assert!(pair.store().said.lock().unwrap().is_empty());
        assert!(pair.slow(".isotherm/identity.json").exists());
    }
}

/// A read that waits for the disk at home keeps the file from being changed. Its copy is dropped all the same, because whoever needs the space on
/// the fastest tier must not wait for that disk, and the space is free at once.
#[test]
fn a_copy_is_dropped_while_a_read_waits_at_home() {
    let pair = Pair::new();
    let node = pair.copied("f", b"some bytes");
    let live = pair.store().live(node).unwrap();
    let open_copies = || {
        let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = all.filter_map(|fd| fs::read_link(fd.path()).ok());
        links
            .filter(|to| to.starts_with(pair.root.join("fast/.isotherm/copies")))
            .count()
    };
    assert_eq!(open_copies(), 1);
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waits = live.hold();
        let store = pair.store();
        scope.spawn(move || {
            store.drop_copy(node);
            tell.send(()).unwrap();
        });
        let dropped = hear.recv_timeout(std::time::Duration::from_secs(30));
        let left = open_copies();
        drop(waits);
        assert_eq!((dropped, left), (Ok(()), 0));
    });
    assert_eq!(pair.read(&live), b"some bytes");
    pair.store().release(&live);
}
