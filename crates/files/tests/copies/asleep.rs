//! Copies that are read while the files at home are closed, and copies that outlive the mount.

use crate::{Pair, edit, size};
use isotherm_files::attributes::{SetAttr, SetTime};
use isotherm_files::live::Live;
use isotherm_files::mover::Outcome;
use isotherm_files::names::IfPresent;
use isotherm_files::store::Store;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes the kernel drop files from its caches. Returns false without the right to do so.
pub(crate) fn drop_caches() -> bool {
    rustix::fs::sync();
    // The first call only marks recently used entries as old, so several calls are needed.
    let told = (0..4).all(|_| fs::write("/proc/sys/vm/drop_caches", "2").is_ok());
    if !told {
        println!("SKIPPED: needs the right to drop the kernel's caches");
    }
    told
}

/// Ends the last use of a file, so that no descriptor of it is open.
pub(crate) fn end(store: &Store, live: Arc<Live>) {
    store.release(&live);
    drop(live);
}

pub(crate) fn only_copy_is_open(live: &Arc<Live>) -> bool {
    live.hold().backing().is_err()
}

/// Opens a file with a copy for reading after the kernel has dropped it from its caches. Another program that looks the file up at the same
/// time brings it back into the caches, so this is tried more than once.
fn open_only_copy(pair: &Pair, name: &str) -> Option<Arc<Live>> {
    let node = pair.store().cat().find(name.as_bytes()).unwrap();
    for _ in 0..5 {
        if !drop_caches() {
            return None;
        }
        let live = pair.store().live_to_read(node).unwrap();
        if only_copy_is_open(&live) {
            return Some(live);
        }
        end(pair.store(), live);
    }
    panic!("the home is opened each time, or this is a file system that does not sleep");
}

fn read_to_read(pair: &Pair, name: &str) -> Vec<u8> {
    let node = pair.store().cat().find(name.as_bytes()).unwrap();
    let live = pair.store().live_to_read(node).unwrap();
    let all = pair.read(&live);
    end(pair.store(), live);
    all
}

/// A file that the kernel has in memory is compared with its copy, so a change that was made directly on the tier is shown at once.
pub(crate) fn a_change_that_the_kernel_knows() {
    let pair = Pair::new();
    pair.copied("f", b"one and two");
    edit(&pair.slow("f"), b"two");
    assert_eq!(read_to_read(&pair, "f"), b"two and two");
}

/// A file is changed directly on its tier. The mount notices it when it reads the attributes after the file lost one of its names; then the
/// kernel drops the file from its caches.
pub(crate) fn a_change_that_is_known() -> bool {
    let pair = Pair::new();
    let node = pair.copied("f", b"one and two");
    pair.store().link(node, 0, b"g").unwrap();
    edit(&pair.slow("f"), b"two");
    pair.store().unlink(0, b"g").unwrap();
    if !drop_caches() {
        return false;
    }
    assert_eq!(read_to_read(&pair, "f"), b"two and two");
    true
}

/// The last name is removed while only the copy is open. The file can still be used in every way, as any file in use.
pub(crate) fn removed_while_only_the_copy_is_open() -> bool {
    let pair = Pair::new();
    let store = pair.store();
    for (name, over) in [("f", false), ("g", true)] {
        let node = pair.copied(name, b"still read");
        let Some(live) = open_only_copy(&pair, name) else {
            return false;
        };
        if over {
            pair.file("other", b"another");
            let done = store.rename((0, b"other"), (0, name.as_bytes()), IfPresent::Replace);
            assert_eq!(done, Ok(()));
        } else {
            store.unlink(0, name.as_bytes()).unwrap();
        }
        assert_eq!(pair.read(&live), b"still read");
        let again = store.live(node).unwrap();
        store.write(&again, 0, b"again", false).unwrap();
        assert_eq!(pair.read(&live), b"again read");
        store.release(&again);
        end(store, live);
    }
    true
}

#[test]
fn a_copy_is_read_while_its_home_sleeps() {
    let pair = Pair::new();
    let store = pair.store();
    let node = pair.copied("f", b"what is read");
    let Some(live) = open_only_copy(&pair, "f") else {
        return;
    };
    assert_eq!(pair.read(&live), b"what is read");
    assert!(only_copy_is_open(&live) && store.copies.reads.load(Ordering::SeqCst) > 0);
    assert_eq!(store.facts(node).unwrap().size, 12);
    // Every use that needs the file at home opens it, and a write changes both.
    store.write(&live, 5, b"WAS", false).unwrap();
    assert!(!only_copy_is_open(&live) && store.copies.has(node));
    assert_eq!(pair.read(&live), b"what WASread");
    end(store, live);
    assert_eq!(fs::read(pair.slow("f")).unwrap(), b"what WASread");
    for wake in ["truncate", "sync", "move", "times"] {
        let live = open_only_copy(&pair, "f").unwrap();
        match wake {
            "truncate" => drop(store.set_attr(node, &size(12)).unwrap()),
            "sync" => store.sync(&live, false).unwrap(),
            "times" => {
                let later = SetTime::Now;
                let set = SetAttr {
                    size: None,
                    mtime: later,
                    ..size(0)
                };
                std::thread::sleep(std::time::Duration::from_millis(12));
                store.set_attr(node, &set).unwrap();
            }
            _ => {
                assert_eq!(store.move_file(node, 0), Outcome::Done);
                assert_eq!(store.move_file(node, 1), Outcome::Done);
            }
        }
        assert_eq!(pair.read(&live), b"what WASread", "{wake}");
        end(store, live);
        assert_eq!(pair.read_anew(node), b"what WASread", "{wake}");
        assert_eq!(store.fetch(node), Outcome::Done);
    }
}

/// `cp` of a file with a copy: the kernel asks for a copy of a range, and before that for holes.
#[test]
fn a_copy_is_copied_while_its_home_sleeps() {
    let pair = Pair::new();
    let store = pair.store();
    pair.copied("f", b"what is copied");
    let Some(live) = open_only_copy(&pair, "f") else {
        return;
    };
    let (_, to, _) = store.create(0, b"g", 0o600, crate::owner()).unwrap();
    assert_eq!(store.seek(&live, 0, false), Ok(0));
    assert_eq!(store.seek(&live, 0, true), Ok(14));
    assert_eq!(store.copy(&live, 5, &to, 5, 1 << 20), Ok(9));
    assert!(only_copy_is_open(&live));
    assert_eq!(pair.read(&to), b"\0\0\0\0\0is copied");
    end(store, live);
    end(store, to);
}

/// The file is changed directly on its tier while only the copy is open. The first call that needs the file at home notices it, and nothing
/// is overwritten.
#[test]
fn a_file_is_compared_when_it_is_opened_at_home() {
    let pair = Pair::new();
    let node = pair.copied("f", b"one and two");
    let Some(live) = open_only_copy(&pair, "f") else {
        return;
    };
    assert_eq!(pair.read(&live), b"one and two");
    edit(&pair.slow("f"), b"two");
    pair.store().write(&live, 8, b"six", false).unwrap();
    assert_eq!(fs::read(pair.slow("f")).unwrap(), b"two and six");
    assert_eq!(pair.read(&live), b"two and six");
    assert!(!pair.store().copies.has(node));
    let said = pair.store().said.lock().unwrap().join("\n");
    assert!(said.contains("f: changed underneath"), "{said}");
    end(pair.store(), live);
    // The copy is dropped while it is read.
    pair.store().fetch(node);
    let live = open_only_copy(&pair, "f").unwrap();
    pair.store().drop_copy(node);
    assert_eq!(pair.read(&live), b"two and six");
    end(pair.store(), live);
}

/// Changes several files between an unmount and a mount, in ways after which their copies must be dropped.
pub(crate) fn kept_over_a_remount() {
    let mut pair = Pair::new();
    let names = [
        "same", "edited", "replaced", "gone", "torn", "written", "renamed",
    ];
    for name in names {
        pair.copied(name, b"what is at home");
    }
    let node = pair.store().cat().find(b"written").unwrap();
    let live = pair.store().live(node).unwrap();
    pair.store().write(&live, 0, b"WHAT", false).unwrap();
    end(pair.store(), live);
    let renamed = pair
        .store()
        .rename((0, b"renamed"), (0, b"new"), IfPresent::Refuse);
    assert_eq!((renamed, pair.left()), (Ok(()), 7));
    pair.unmount();
    edit(&pair.slow("edited"), b"WHAT");
    fs::write(pair.slow("x"), "what is at HOME").unwrap();
    fs::rename(pair.slow("x"), pair.slow("replaced")).unwrap();
    fs::remove_file(pair.slow("gone")).unwrap();
    // The copy of `torn` itself is changed.
    edit(
        &pair
            .root
            .join("fast/.isotherm/copies")
            .join(pair.copy_of("torn")),
        b"torn",
    );
    pair.mount();
    let copies = &pair.store().copies;
    let has = |name: &str| {
        let node = pair.store().cat().find(name.as_bytes());
        node.is_some_and(|n| copies.has(n))
    };
    for (name, expected) in [
        ("same", "what is at home"),
        ("edited", "WHAT is at home"),
        ("replaced", "what is at HOME"),
        ("torn", "what is at home"),
        ("written", "WHAT is at home"),
        ("new", "what is at home"),
    ] {
        let read = String::from_utf8(read_to_read(&pair, name)).unwrap();
        assert_eq!(read, expected, "{name}");
        let stays = matches!(name, "same" | "written" | "new");
        assert_eq!(has(name), stays, "{name}");
    }
    assert_eq!((pair.left(), copies.count()), (3, 3));
    // A new copy does not get the number of a kept one.
    let node = pair.store().cat().find(b"edited").unwrap();
    assert_eq!(pair.store().fetch(node), Outcome::Done);
    assert_eq!(pair.left(), 4);
    // The policy does not move files whose copies were kept.
    pair.store().migrate_now();
    let tier = |name: &str| {
        let cat = pair.store().cat();
        cat.get(cat.find(name.as_bytes()).unwrap()).unwrap().tier
    };
    for name in ["same", "written", "new"] {
        assert!(has(name) && tier(name) == 1, "{name}");
    }
    // There is no list while it is mounted: a crash now leaves no copy.
    pair.mount();
    assert_eq!((pair.left(), pair.store().copies.count()), (0, 0));
}

#[test]
fn copies_are_kept_over_a_remount_if_nothing_changed() {
    kept_over_a_remount();
    // A mount without copies removes them.
    let mut pair = Pair::new();
    pair.copied("f", b"of a mount before");
    pair.unmount();
    pair.mount_plain();
    assert_eq!(pair.left(), 0);
    pair.mount();
    assert_eq!(read_to_read(&pair, "f"), b"of a mount before");
    // With a damaged list, no copy is kept, and the mount succeeds.
    let list = pair.root.join("fast/.isotherm/copies.json");
    let print = r#"{"ino": 1, "born": 2, "size": 3, "written": [4, 5]}"#;
    let odd = format!(
        r#"[{{"number": 18446744073709551615, "path": [102], "home": {print}, "copy": {print}, "changed": [6, 7]}}]"#
    );
    for text in ["", "[{]", "{}", &odd] {
        fs::write(&list, text).unwrap();
        pair.mount();
        assert!(!list.exists() && pair.store().copies.count() == 0);
        let node = pair.store().cat().find(b"f").unwrap();
        assert_eq!(pair.store().fetch(node), Outcome::Done);
        assert_eq!(read_to_read(&pair, "f"), b"of a mount before");
    }
}
