//! A copy is read while nothing is open at home, and copies that outlive the mount.

use crate::{Pair, edit, size};
use isotherm_files::data::{SetAttr, SetTime};
use isotherm_files::live::Live;
use isotherm_files::mover::Outcome;
use isotherm_files::store::Store;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The kernel forgets what it knows of files. False without the right to tell it.
fn forget_all() -> bool {
    rustix::fs::sync();
    // What was used a moment ago only counts as old at the first time.
    let told = (0..4).all(|_| fs::write("/proc/sys/vm/drop_caches", "2").is_ok());
    if !told {
        println!("SKIPPED: needs the right to drop the kernel's caches");
    }
    told
}

/// The last use, after which nothing of it is open.
fn end(store: &Store, live: Arc<Live>) {
    store.release(&live);
    drop(live);
}

fn is_asleep(live: &Arc<Live>) -> bool {
    live.hold().backing().is_err()
}

/// A file with a copy, opened for reading when the kernel knows nothing of it. Somebody who looks for it at the same time makes the kernel
/// know it again, so it is tried more than once.
fn asleep(pair: &Pair, name: &str) -> Option<Arc<Live>> {
    let node = pair.store().cat().find(name.as_bytes()).unwrap();
    for _ in 0..5 {
        if !forget_all() {
            return None;
        }
        let live = pair.store().live_to_read(node).unwrap();
        if is_asleep(&live) {
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

/// Whatever the kernel has in memory is compared, so a change underneath is shown at once.
pub(crate) fn a_change_that_the_kernel_knows() {
    let pair = Pair::new();
    pair.copied("f", b"one and two");
    edit(&pair.slow("f"), b"two");
    assert_eq!(read_to_read(&pair, "f"), b"two and two");
}

/// A change was noticed in passing, with the attributes of a file that lost one of its names, and then the kernel forgot the file.
pub(crate) fn a_change_that_is_known() -> bool {
    let pair = Pair::new();
    let node = pair.copied("f", b"one and two");
    pair.store().link(node, 0, b"g").unwrap();
    edit(&pair.slow("f"), b"two");
    pair.store().unlink(0, b"g").unwrap();
    if !forget_all() {
        return false;
    }
    assert_eq!(read_to_read(&pair, "f"), b"two and two");
    true
}

/// Its last name is removed while only the copy is open: it can still be opened for anything, as any file in use.
pub(crate) fn removed_in_its_sleep() -> bool {
    let pair = Pair::new();
    let store = pair.store();
    for (name, over) in [("f", false), ("g", true)] {
        let node = pair.copied(name, b"still read");
        let Some(live) = asleep(&pair, name) else {
            return false;
        };
        if over {
            pair.file("other", b"another");
            let done = store.rename(0, b"other", 0, name.as_bytes(), false, false);
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
    let Some(live) = asleep(&pair, "f") else {
        return;
    };
    assert_eq!(pair.read(&live), b"what is read");
    assert!(is_asleep(&live) && store.copies.reads.load(Ordering::SeqCst) > 0);
    assert_eq!(store.facts(node).unwrap().size, 12);
    // Every use that needs the home opens it, and both are changed.
    store.write(&live, 5, b"WAS", false).unwrap();
    assert!(!is_asleep(&live) && store.copies.has(node));
    assert_eq!(pair.read(&live), b"what WASread");
    end(store, live);
    assert_eq!(fs::read(pair.slow("f")).unwrap(), b"what WASread");
    for wake in ["truncate", "sync", "move", "times"] {
        let live = asleep(&pair, "f").unwrap();
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

/// Changed underneath while only the copy is open: noticed by the first call that needs the home, and nothing is overwritten.
#[test]
fn what_sleeps_is_compared_when_it_wakes() {
    let pair = Pair::new();
    let node = pair.copied("f", b"one and two");
    let Some(live) = asleep(&pair, "f") else {
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
    // Its copy gives way while it is read.
    pair.store().fetch(node);
    let live = asleep(&pair, "f").unwrap();
    pair.store().drop_copy(node);
    assert_eq!(pair.read(&live), b"two and six");
    end(pair.store(), live);
}

/// Several files, changed in ways that a copy does not survive, between an unmount and a mount.
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
    let renamed = pair.store().rename(0, b"renamed", 0, b"new", true, false);
    assert_eq!((renamed, pair.left()), (Ok(()), 7));
    pair.unmount();
    edit(&pair.slow("edited"), b"WHAT");
    fs::write(pair.slow("x"), "what is at HOME").unwrap();
    fs::rename(pair.slow("x"), pair.slow("replaced")).unwrap();
    fs::remove_file(pair.slow("gone")).unwrap();
    // In the order of their making.
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
    // New copies are no old ones.
    let node = pair.store().cat().find(b"edited").unwrap();
    assert_eq!(pair.store().fetch(node), Outcome::Done);
    assert_eq!(pair.left(), 4);
    // The policy leaves them alone.
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
    // A list that somebody spoilt keeps nothing, and stops nothing.
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
