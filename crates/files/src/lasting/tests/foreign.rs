//! Disks whose files have numbers of another set in themselves, at each kind of mount.

use super::*;
use crate::settings::Refused;
use crate::tree::Tier;

const DISK: &str = "isotherm.disk";

/// A store over `fast` and these disks, as a mount that accepts them, or not.
fn mount(w: &World, disks: &[&str], accept: bool) -> Result<Store, Refused> {
    let mut settings = w.settings.clone();
    settings.tiers = vec![w.at("fast"), w.at(disks[0])];
    settings.more_slow = disks[1..].iter().map(|d| w.at(d)).collect();
    settings.accept = accept;
    Store::open(&settings)
}

/// A new file that is moved to a disk.
fn make_on(store: &Store, name: &str, disk: Tier) -> u64 {
    let number = make(store, name);
    let node = store.cat().find(name.as_bytes()).unwrap();
    assert_eq!(store.move_file(node, disk), Outcome::Done);
    number
}

/// A set, and beside it the directory `isotherm.disk` with the file `x` of another set. A file that is gone had its number here, which is
/// returned.
fn used_again() -> (World, u64) {
    let (w, other) = (World::new(), World::new());
    let theirs = make_on(&other.open(), "x", 1);
    let from = other.at("slow");
    fs::remove_dir_all(from.join(".isotherm")).unwrap();
    fs::rename(from, w.at(DISK)).unwrap();
    let store = w.open();
    while make(&store, "gone") < theirs {
        store.unlink(ROOT, b"gone").unwrap();
    }
    assert_eq!(number(&store, "gone"), theirs, "both count from the same");
    store.unlink(ROOT, b"gone").unwrap();
    drop(store);
    (w, theirs)
}

/// A mount of a known set names one more disk. That disk keeps the numbers that it gets, also when it was given up and is put back.
pub(super) fn one_more_disk() -> Result<(), String> {
    let (w, theirs) = used_again();
    let all = ["slow", DISK];
    let store = mount(&w, &all, false).unwrap();
    let x = number(&store, "x");
    expect("a number of another set", &(x > theirs), &true)?;
    unique(&store);
    let y = make_on(&store, "y", 2);
    drop(store);
    // A crash, and clean ends.
    for _ in 0..2 {
        let store = mount(&w, &all, false).unwrap();
        expect("the next mount", &numbers(&store, ["x", "y"]), &[x, y])?;
        store.names.save_numbers(&store.tiers).unwrap();
    }
    let store = mount(&w, &["slow"], true).unwrap();
    assert!(store.cat().find(b"x").is_none());
    store.names.save_numbers(&store.tiers).unwrap();
    drop(store);
    for accept in [true, false] {
        let store = mount(&w, &all, accept).unwrap();
        expect("put back", &numbers(&store, ["x", "y"]), &[x, y])?;
    }
    Ok(())
}

#[test]
fn a_disk_that_a_mount_names_first_gets_new_numbers() {
    one_more_disk().unwrap();
}

/// The mount that names it first ends between the list of the disks and the numbers: the next one does not take it for a disk of old.
#[test]
fn a_mount_that_ends_before_the_numbers_are_durable_is_done_again() {
    let (w, theirs) = used_again();
    // No record can be added.
    w.run("mv fast/.isotherm/numbers.log log; mkdir fast/.isotherm/numbers.log");
    let all = ["slow", DISK];
    let store = mount(&w, &all, false).unwrap();
    assert!(number(&store, "x") >= TEMPORARY);
    drop(store);
    w.run("rmdir fast/.isotherm/numbers.log; mv log fast/.isotherm/numbers.log");
    let store = mount(&w, &all, false).unwrap();
    let x = number(&store, "x");
    assert!(x > theirs && x < TEMPORARY, "{x}");
    drop(store);
    assert_eq!(number(&mount(&w, &all, false).unwrap(), "x"), x);
}

/// The same for a disk that joins while it is mounted.
#[test]
fn a_join_that_ends_before_the_numbers_are_durable_is_done_again() {
    let (w, theirs) = used_again();
    let store = w.open();
    // The numbers that are reserved are used, and no more can be.
    store.names.lasting().lock().reserved = 0;
    store.names.lasting().lock().log = None;
    w.run("mv fast/.isotherm/numbers.log log; mkdir fast/.isotherm/numbers.log");
    store.join(&w.at(DISK)).unwrap();
    assert!(number(&store, "x") >= TEMPORARY);
    drop(store);
    w.run("rmdir fast/.isotherm/numbers.log; mv log fast/.isotherm/numbers.log");
    let x = number(&mount(&w, &["slow", DISK], false).unwrap(), "x");
    assert!(x > theirs && x < TEMPORARY, "{x}");
}

/// A new set believes what is there: no handle of its own can name anything yet, because its generation is new.
#[test]
fn a_new_set_keeps_the_numbers_of_its_files() {
    let (w, theirs) = used_again();
    let generation = |store: &Store| store.names.lasting().generation(theirs);
    let before = generation(&w.open());
    w.run("rm -r fast; mkdir fast");
    let store = mount(&w, &[DISK], false).unwrap();
    assert_eq!(number(&store, "x"), theirs);
    assert_ne!(generation(&store), before);
}

/// A clone of a disk, inode by inode, takes its place under an id of its own: it is another disk. With the id, it is the disk.
#[test]
fn a_clone_is_the_disk_only_with_its_id() {
    let w = World::new();
    let store = w.open();
    let x = make_on(&store, "x", 1);
    store.names.save_numbers(&store.tiers).unwrap();
    drop(store);
    w.run("cp -a slow/.isotherm id; rm -r slow/.isotherm");
    let store = mount(&w, &["slow"], true).unwrap();
    let clone = number(&store, "x");
    assert!(clone > x, "{clone}");
    drop(store);
    w.run("rm -r slow/.isotherm; mv id slow/.isotherm");
    let store = mount(&w, &["slow"], true).unwrap();
    assert_eq!(number(&store, "x"), x);
}
