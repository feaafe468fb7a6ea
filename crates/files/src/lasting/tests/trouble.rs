//! Tiers that are lost, replaced, absent, full or without attributes; many numbers.

use super::*;

/// An older copy of the fast tier is put back: files keep the numbers that are in them, and no new number is one of these.
#[test]
fn an_older_fast_tier_repeats_no_number() {
    let w = World::new();
    let store = w.open();
    make(&store, "old");
    store.names.save_numbers(&store.tiers).unwrap();
    drop(store);
    w.run("cp -a --preserve=all fast backup");
    let store = w.open();
    for i in 0..20 {
        make(&store, &format!("f{i}"));
        let node = store.cat().find(format!("f{i}").as_bytes()).unwrap();
        assert_eq!(store.move_file(node, 1), Outcome::Done);
    }
    let before = unique(&store);
    let f = numbers(&store, ["f0", "f19"]);
    drop(store);
    w.run("echo >slow/found; rm -r fast; mv backup fast");
    let store = w.open();
    assert_eq!(numbers(&store, ["f0", "f19"]), f);
    unique(&store);
    let new = [make(&store, "new"), number(&store, "found")];
    assert!(new.iter().all(|n| !before.contains(n)), "{new:?}");
}

/// Another disk takes the place of a tier, and the first one comes back.
#[test]
fn numbers_wait_for_a_tier_that_is_away() {
    let mut w = World::new();
    w.settings.accept = true;
    w.run("mkdir slow/d; echo >slow/found; echo >slow/d/f");
    let store = w.open();
    let first = numbers(&store, ["found", "d", "d/f"]);
    let new = make(&store, "new");
    drop(store);
    w.run("mv slow away; mkdir slow; echo >slow/other");
    let store = w.open();
    let other = number(&store, "other");
    assert!(!first.contains(&other));
    store.names.save_numbers(&store.tiers).unwrap();
    drop(store);
    w.run("mv slow second; mv away slow");
    let store = w.open();
    assert_eq!(numbers(&store, ["found", "d", "d/f"]), first);
    assert_eq!(number(&store, "new"), new);
    store.names.save_numbers(&store.tiers).unwrap();
    drop(store);
    // While it is absent, its files are shown with their numbers, also those that it got shortly before.
    let store = w.open();
    make(&store, "moved");
    let node = store.cat().find(b"moved").unwrap();
    assert_eq!(store.move_file(node, 1), Outcome::Done);
    store.save_names().unwrap();
    let paths = ["found", "d", "d/f", "moved"];
    let first = numbers(&store, paths);
    drop(store);
    w.run("mv slow away");
    (w.settings.accept, w.settings.degraded) = (false, true);
    for _ in 0..2 {
        let store = w.open();
        assert_eq!(numbers(&store, paths), first);
        unique(&store);
        store.names.save_numbers(&store.tiers).unwrap();
    }
    w.run("mv away slow");
    assert_eq!(numbers(&w.open(), paths), first);
}

/// A directory that gets a second place, and loses its first one.
#[test]
fn a_directory_has_one_number_on_all_tiers() {
    let w = World::new();
    w.run("mkdir -p slow/d/e");
    let store = w.open();
    let first = numbers(&store, ["d", "d/e"]);
    let e = store.cat().find(b"d/e").unwrap();
    let (_, live, _) = store.create(e, b"f", 0o600, me()).unwrap();
    store.release(&live);
    let f = number(&store, "d/e/f");
    assert!(w.at("fast/d/e/f").exists());
    drop(store);
    for clean in [false, true] {
        let store = w.open();
        assert_eq!(numbers(&store, ["d", "d/e"]), first);
        if clean {
            store.names.save_numbers(&store.tiers).unwrap();
        }
    }
    w.run("rmdir slow/d/e slow/d");
    assert_eq!(
        numbers(&w.open(), ["d", "d/e", "d/e/f"]),
        [first[0], first[1], f]
    );
}

/// More than 2^32 numbers.
#[test]
fn large_numbers_last() {
    let w = World::new();
    let store = w.open();
    let small = make(&store, "small");
    {
        let mut state = store.names.lasting().lock();
        state.next = (1 << 32) - 3;
        state.reserved = state.next;
    }
    for i in 0..6 {
        make(&store, &format!("f{i}"));
    }
    let paths = ["small", "f0", "f1", "f2", "f3", "f4", "f5"];
    let first = numbers(&store, paths);
    assert!(first[0] == small && first[6] == (1 << 32) + 2);
    drop(store);
    for _ in 0..2 {
        let store = w.open();
        assert_eq!(numbers(&store, paths), first);
        store.names.save_numbers(&store.tiers).unwrap();
    }
}

/// A file that replaces another one keeps its own number, on one tier and over two.
#[test]
fn a_file_that_replaces_another_keeps_its_number() {
    let w = World::new();
    let store = w.open();
    let [a, b, c, _] = ["a", "b", "c", "d"].map(|n| make(&store, n));
    for n in [&b"b"[..], b"d"] {
        let node = store.cat().find(n).unwrap();
        assert_eq!(store.move_file(node, 1), Outcome::Done);
    }
    for (from, to) in [("a", "d"), ("b", "c")] {
        let (from, to) = ((ROOT, from.as_bytes()), (ROOT, to.as_bytes()));
        store.rename(from, to, IfPresent::Replace).unwrap();
    }
    let now = || numbers(&w.open(), ["d", "c"]);
    assert_eq!(numbers(&store, ["d", "c"]), [a, b]);
    drop(store);
    assert_eq!(now(), [a, b]);
    assert!(make(&w.open(), "e") > c);
}

/// The fast tier is full: what is there can be used, and new files are made on the slower tier with numbers that last. If not even the
/// reservation can be stored, nothing is created, and what others have made is shown with a number until the unmount.
#[test]
fn a_full_fast_tier() {
    if !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let w = World::new();
    w.run("mount -t tmpfs -o size=2m none fast");
    let unmount = Unmount(w.at("fast"));
    let store = w.open();
    let f = make(&store, "f");
    drop(store);
    let fill = "head -c 9m /dev/zero >fast/full 2>/dev/null || true";
    w.run(fill);
    let store = w.open();
    let new = make(&store, "new");
    let full = number(&store, "full");
    unique(&store);
    drop(store);
    assert_eq!(numbers(&w.open(), ["f", "new", "full"]), [f, new, full]);
    w.run("rm fast/.isotherm/numbers.log fast/.isotherm/spare; echo >slow/found");
    w.run(fill);
    w.run(&fill.replace("full", "full2"));
    let store = w.open();
    assert_eq!(numbers(&store, ["f", "new"]), [f, new]);
    assert!(number(&store, "found") >= TEMPORARY);
    assert!(
        store
            .said
            .lock()
            .unwrap()
            .iter()
            .any(|s| s.contains("cannot be stored"))
    );
    let refused = store.create(ROOT, b"more", 0o600, me());
    assert!(refused.is_err_and(|e| e == Errno::NOSPC));
    drop(store);
    w.run("rm fast/full fast/full2");
    let store = w.open();
    assert_eq!(numbers(&store, ["f", "new"]), [f, new]);
    unique(&store);
    drop((store, unmount));
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A tier without extended attributes and without times of birth: the table has all numbers.
#[test]
fn a_tier_without_attributes() {
    if !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let w = World::new();
    w.run("mount -t ramfs none slow; echo >slow/found");
    let unmount = Unmount(w.at("slow"));
    let store = w.open();
    let f = make(&store, "f");
    let g = make(&store, "g");
    for n in [&b"f"[..], b"g"] {
        let node = store.cat().find(n).unwrap();
        assert_eq!(store.move_file(node, 1), Outcome::Done);
    }
    let found = number(&store, "found");
    drop(store);
    for _ in 0..2 {
        let store = w.open();
        assert_eq!(numbers(&store, ["f", "g", "found"]), [f, g, found]);
        unique(&store);
        store.names.save_numbers(&store.tiers).unwrap();
    }
    drop(unmount);
}

/// A table of a first mount of many files is written at once, and an unmount without changes writes the same one.
#[test]
fn many_files_are_found() {
    let w = World::new();
    w.run(&format!("cd slow; seq 1 {} | xargs touch", MANY + 100));
    let store = w.open();
    let first = unique(&store);
    assert!(w.at("fast/.isotherm/numbers").exists());
    drop(store);
    let store = w.open();
    assert_eq!(unique(&store), first);
    store.names.save_numbers(&store.tiers).unwrap();
    let table = fs::read(w.at("fast/.isotherm/numbers")).unwrap();
    drop(store);
    let store = w.open();
    store.names.save_numbers(&store.tiers).unwrap();
    assert_eq!(fs::read(w.at("fast/.isotherm/numbers")).unwrap(), table);
}

/// Files that come from another mount, with numbers of that one in their attributes: high ones are not believed, and one that will be given out
/// here is not shown for another file meanwhile.
#[test]
fn numbers_of_another_mount_are_not_believed() {
    let w = World::new();
    let mark = |path: &str, number: u64| {
        fs::write(w.at(path), b"").unwrap();
        let fd = fs::File::open(w.at(path)).unwrap();
        let id = crate::disk::facts_of(&fd).unwrap().id;
        assert!(crate::disk::set_number(&fd, id, number).unwrap());
    };
    mark("slow/huge", (1 << 63) - 1);
    let store = w.open();
    let first = [number(&store, "huge"), make(&store, "new")];
    assert!(first.iter().all(|n| *n < 1 << 32), "{first:?}");
    // While it is mounted: what others have made there is found when its name is used.
    let soon = first[1] + 3;
    mark("fast/soon", soon);
    let made = store.create(ROOT, b"soon", 0o600, me());
    assert_eq!(made.err(), Some(Errno::EXIST));
    assert_ne!(number(&store, "soon"), soon);
    for i in 0..8 {
        make(&store, &format!("f{i}"));
    }
    let all = unique(&store);
    drop(store);
    let store = w.open();
    assert!(unique(&store).iter().all(|n| *n < 1 << 32));
    assert_eq!(number(&store, "huge"), first[0]);
    assert!(all.contains(&number(&store, "f7")));
}

/// The fast tier takes no reservation: files are made elsewhere, and have lasting numbers after the next mount.
#[test]
fn a_fast_tier_that_fails_stops_no_creation() {
    let w = World::new();
    w.run("mkdir -p fast/.isotherm/numbers.log");
    let store = w.open();
    assert!(make(&store, "f") >= TEMPORARY);
    drop(store);
    w.run("rmdir fast/.isotherm/numbers.log");
    let store = w.open();
    let number = number(&store, "f");
    assert!(number < TEMPORARY);
    assert_ne!(make(&store, "g"), number);
}

/// Number and generation name one file for ever: over remounts, the loss of the fast tier, and an older copy of it. What has its number in
/// itself keeps both.
pub(super) fn generations() -> Result<(), String> {
    let mut w = World::new();
    w.settings.accept = true;
    let name = |store: &Store, path: &str| {
        let number = number(store, path);
        (number, store.names.lasting().generation(number))
    };
    w.run("echo >slow/found");
    let store = w.open();
    assert_eq!(name(&store, ".").1, 0, "the kernel wants that");
    let found = name(&store, "found");
    let temporary = store.names.lasting().generation(TEMPORARY);
    drop(store);
    let store = w.open();
    expect("found", &name(&store, "found"), &found)?;
    assert_ne!(store.names.lasting().generation(TEMPORARY), temporary);
    drop(store);
    // No file has a number in itself, so all begin anew.
    w.run("rm -r fast; mkdir fast");
    let store = w.open();
    let again = name(&store, "found");
    expect("another", &(again != found), &true)?;
    make(&store, "new");
    let node = store.cat().find(b"new").unwrap();
    assert_eq!(store.move_file(node, 1), Outcome::Done);
    let new = name(&store, "new");
    drop(store);
    w.run("rm -r fast; mkdir fast; rm slow/found; echo >slow/found");
    let store = w.open();
    expect("new", &name(&store, "new"), &new)?;
    let third = name(&store, "found");
    assert!(![found, again].contains(&third));
    // A disk with a damaged list gets it from the others.
    drop(store);
    w.run("cp fast/.isotherm/generations.json list; echo >fast/.isotherm/generations.json");
    expect("damaged", &name(&w.open(), "new"), &new)?;
    w.run("cmp list fast/.isotherm/generations.json; cmp list slow/.isotherm/generations.json");
    Ok(())
}

#[test]
fn a_number_that_is_given_again_has_another_generation() {
    generations().unwrap();
}
