//! Files with copies are read, through the kernel, while the disk of their homes sleeps.

use crate::trouble::{Requests, kill_slow_disk, requests, slow_disk};
use crate::world::World;
use isotherm_files::mover::Outcome;
use std::fs;
use std::sync::atomic::Ordering;

/// Reads every file after the kernel has dropped its caches. Returns what the disk below the slow tier was asked for before and after.
fn read_all(w: &World) -> (Requests, Requests) {
    rustix::fs::sync();
    for _ in 0..4 {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    }
    let before = requests(&w.root.join("slow"));
    for n in 0..20 {
        let file = w.at(&format!("d{n}/f"));
        assert_eq!(fs::read(&file).unwrap(), vec![n; 70_000]);
    }
    (before, requests(&w.root.join("slow")))
}

/// Other programs of the machine may read block devices at any time, so only one of several tries must be without a request.
fn sleeps(w: &World) {
    let mut tries = Vec::new();
    while tries.len() < 4 {
        let (before, after) = read_all(w);
        if before == after {
            return;
        }
        tries.push((before, after));
    }
    panic!("the disk was woken each time: {tries:?}");
}

#[test]
fn a_slow_disk_sleeps_while_copies_are_read() {
    let Some((mut w, disk)) = slow_disk(|s| s.copies = true) else {
        return;
    };
    for n in 0..20 {
        let dir = w.on("slow", &format!("d{n}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), vec![n; 70_000]).unwrap();
    }
    w.mount();
    {
        let store = &w.mounted.as_ref().unwrap().store;
        for n in 0..20 {
            let node = store.cat().find(format!("d{n}/f").as_bytes()).unwrap();
            assert_eq!(store.fetch(node), Outcome::Done);
        }
    }
    sleeps(&w);
    let woke = w.ask("", "status")["tiers"][1]["last_opened"].clone();
    assert!(woke.is_null() || woke["pid"] == 0, "{woke}");
    w.unmount();
    w.mount();
    sleeps(&w);
    let store = &w.mounted.as_ref().unwrap().store;
    assert_eq!(store.copies.count(), 20);
    assert!(store.copies.reads.load(Ordering::SeqCst) >= 20);
    // A write wakes the disk, which is visible in the number of requests.
    let before = requests(&w.root.join("slow"));
    let file = fs::OpenOptions::new().write(true).open(w.at("d7/f"));
    std::io::Write::write_all(&mut file.unwrap(), b"x").unwrap();
    assert_ne!(requests(&w.root.join("slow")), before);
    assert_eq!(fs::read(w.on("slow", "d7/f")).unwrap()[..2], [b'x', 7]);
    assert_eq!(fs::read(w.at("d7/f")).unwrap()[..2], [b'x', 7]);
    assert_eq!(w.ask("", "check")["ok"], true);
    w.unmount();
    drop(disk);
}

/// A file is read, then changed directly on its tier without a change of its size. After `check --repair` has found that, reads return the
/// new bytes, not those in the kernel's cache. The same holds for a file of which only the copy is open, and if the mount notices the
/// change when the file loses one of its names.
#[test]
fn what_check_mends_is_read_anew() {
    let Some((mut w, disk)) = slow_disk(|s| s.copies = true) else {
        return;
    };
    for name in ["plain", "copied", "linked"] {
        fs::write(w.on("slow", name), b"what was there").unwrap();
    }
    fs::hard_link(w.on("slow", "linked"), w.on("slow", "other")).unwrap();
    w.mount();
    let copied = w.at("copied");
    {
        let store = &w.mounted.as_ref().unwrap().store;
        let node = store.cat().find(b"copied").unwrap();
        assert_eq!(store.fetch(node), Outcome::Done);
    }
    for name in ["plain", "copied", "linked"] {
        assert_eq!(fs::read(w.at(name)).unwrap(), b"what was there");
    }
    rustix::fs::sync();
    for _ in 0..4 {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    }
    for name in ["plain", "linked"] {
        assert_eq!(fs::read(w.at(name)).unwrap(), b"what was there");
    }
    let open = fs::File::open(&copied).unwrap();
    assert_eq!(std::io::read_to_string(&open).unwrap(), "what was there");
    for name in ["plain", "copied", "linked"] {
        fs::write(w.on("slow", name), b"what is there!").unwrap();
    }
    fs::remove_file(w.at("other")).unwrap();
    let store = std::sync::Arc::clone(&w.mounted.as_ref().unwrap().store);
    let found = isotherm_files::check::check(&store, true);
    assert_eq!(found["findings"].as_array().unwrap().len(), 2, "{found}");
    for name in ["plain", "copied", "linked"] {
        // A separate thread tells the kernel, so this may take a moment.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while fs::read(w.at(name)).unwrap() != b"what is there!" {
            assert!(std::time::Instant::now() < until, "{name}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    drop((open, store));
    w.unmount();
    drop(disk);
}

/// The disk fails. Files that have copies can still be read, whether the kernel has them in memory or not. They cannot be changed, so that
/// a copy never differs from its file.
#[test]
fn copies_are_read_when_their_disk_is_dead() {
    let Some((mut w, disk)) = slow_disk(|s| s.copies = true) else {
        return;
    };
    for name in ["known", "forgotten", "plain"] {
        fs::write(w.on("slow", name), name).unwrap();
    }
    w.mount();
    let fetch = |name: &str| {
        let store = &w.mounted.as_ref().unwrap().store;
        let node = store.cat().find(name.as_bytes()).unwrap();
        assert_eq!(store.fetch(node), Outcome::Done);
    };
    fetch("known");
    fetch("forgotten");
    rustix::fs::sync();
    kill_slow_disk(&w);
    assert_eq!(fs::read_to_string(w.at("known")).unwrap(), "known");
    for _ in 0..4 {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    }
    assert_eq!(fs::read_to_string(w.at("forgotten")).unwrap(), "forgotten");
    assert!(fs::read(w.at("plain")).is_err());
    let written = fs::OpenOptions::new().write(true).open(w.at("known"));
    let written = written.and_then(|mut f| std::io::Write::write_all(&mut f, b"KNOWN"));
    assert!(written.is_err());
    assert!(
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(w.at("known"))
            .is_err()
    );
    assert_eq!(fs::read_to_string(w.at("known")).unwrap(), "known");
    assert_eq!(w.ask("", "status")["state"], "degraded");
    w.unmount();
    drop(disk);
    crate::world::run("mount -o loop disk slow", &w.root);
    w.mount();
    for name in ["known", "forgotten", "plain"] {
        assert_eq!(fs::read_to_string(w.at(name)).unwrap(), name);
    }
    w.unmount();
    crate::world::run("umount slow", &w.root);
}

/// Once the unmount has returned, the disks of the tiers can be unmounted as well: no thread of the session has their descriptors any more.
#[test]
fn nothing_of_a_tier_is_held_after_the_unmount() {
    let Some(mut w) = World::new(|_| {}, isotherm_files::fuse::Io::Cached) else {
        return;
    };
    for n in 0..40 {
        fs::write(w.at("f"), n.to_string()).unwrap();
        let store = std::sync::Arc::downgrade(&w.mounted.as_ref().unwrap().store);
        w.unmount();
        assert_eq!(store.strong_count(), 0, "after unmount {n}");
        w.mount();
    }
}
