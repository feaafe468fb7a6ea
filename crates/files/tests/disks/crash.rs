//! What a crash leaves of a change on several disks, and the order in which the disks are named afterwards.

use crate::{DISKS, Place, file_on, find, mkdir, read};
use isotherm_files::intent::{Op, encode};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::names::IfPresent;
use isotherm_files::tree::At;
use std::fs;

/// What a server left that was killed while it renamed a directory of all disks, after `done` of the steps; `reverse`: the intent has the
/// slower disks first.
fn killed(place: &Place, done: usize, reverse: bool) {
    let store = place.open();
    mkdir(&store, "dir");
    for (disk, d) in (1..).zip(DISKS) {
        file_on(&store, &format!("dir/{d}"), disk);
    }
    let id = |disk: u8| {
        let facts = store.roots[usize::from(disk)].stat(b"dir").unwrap();
        facts.unwrap().id
    };
    let op = |disk: u8| Op::Rename(id(disk), At::new(disk, "dir"), b"new".to_vec());
    let mut ops: Vec<Op> = (0..=3).map(op).collect();
    if reverse {
        ops.reverse();
    }
    store.save_names().unwrap();
    drop(store);
    let intent = place.root.join("fast/.isotherm/intents/n1");
    fs::write(intent, encode(&ops)).unwrap();
    for op in &ops[..done] {
        let disk = ["fast", "d1", "d2", "d3"][usize::from(op.at().tier)];
        let at = |name| place.root.join(disk).join(name);
        fs::rename(at("dir"), at("new")).unwrap();
    }
}

/// Whether the directory has one name, and all files, on all disks; the next mount names them in another order.
fn is_whole(place: &mut Place) -> Result<(), String> {
    place.named = vec!["d3", "d1", "d2"];
    let store = place.open_as(|_| {}).map_err(|e| e.0)?;
    for name in ["dir", "new"] {
        let on = place.on(name);
        if !on.is_empty() && on.len() < 4 {
            return Err(format!("{name} is on {on:?} only"));
        }
    }
    let name = if place.has("fast/new") { "new" } else { "dir" };
    for d in DISKS {
        let was = read(&store, &format!("{name}/{d}"));
        if was.as_deref() != Ok(format!("dir/{d}").as_bytes()) {
            return Err(format!("{name}/{d}: {was:?}"));
        }
    }
    let check = isotherm_files::check::check(&store, false);
    (check["ok"] == true).then_some(()).ok_or(check.to_string())
}

/// kill -9 after each step of a rename of a directory that all disks have: the next mount finishes it, on the right disks although they are
/// named in another order.
#[test]
fn a_directory_rename_over_disks_survives_a_kill_after_each_step() {
    for reverse in [false, true] {
        for done in 0..=4 {
            let mut place = Place::new();
            killed(&place, done, reverse);
            is_whole(&mut place).unwrap_or_else(|e| panic!("{done}, {reverse}: {e}"));
            assert_eq!(place.on("new").len(), 4, "{done}");
        }
    }
    let mut noticed = 0;
    for done in 0..=4 {
        let mut place = Place::new();
        killed(&place, done, false);
        choose(Some(Mutant::TrustOrder));
        noticed += u32::from(is_whole(&mut place).is_err());
        choose(None);
    }
    assert!(
        noticed > 0,
        "the rule about the order of disks is not needed"
    );
}

/// A change that a crash left half done needs a disk: without it nothing is mounted, and with it everything is whole.
#[test]
fn a_change_that_needs_a_missing_disk_waits_for_it() {
    let mut place = Place::new();
    killed(&place, 2, false);
    fs::rename(place.root.join("d3"), place.root.join("away")).unwrap();
    let said = place.refused(|s| s.degraded = true);
    assert!(said.contains("a disk that it needs is missing"), "{said}");
    fs::rename(place.root.join("away"), place.root.join("d3")).unwrap();
    is_whole(&mut place).unwrap();
    assert_eq!(place.on("new").len(), 4);
}

/// While a change is half done, no disk gets another number: it would be finished on the wrong one.
#[test]
fn numbers_stay_while_a_change_is_half_done() {
    let given_up = |place: &mut Place| {
        fs::create_dir(place.root.join("new")).unwrap();
        place.named = vec!["d2", "d3", "new"];
        place.refused(|s| s.accept = true)
    };
    let mut place = Place::new();
    killed(&place, 2, false);
    let said = given_up(&mut place);
    let order: Vec<String> = ["fast", "d1", "d2", "d3"]
        .map(|d| place.root.join(d).display().to_string())
        .into();
    assert!(
        said.contains("half done") && said.contains(&order.join(", ")),
        "{said}"
    );
    let mut place2 = Place::new();
    killed(&place2, 2, false);
    choose(Some(Mutant::TrustNumbers));
    let said = given_up(&mut place2);
    choose(None);
    assert_eq!((&*said, place2.on("dir")), ("mounted", vec!["d2", "d3"]));
    is_whole(&mut place).unwrap();
}

/// Renames, links, exchanges and removals over disks: each file stays on its disk, a link too, and nothing is EXDEV.
#[test]
fn names_change_over_disks_without_a_move() {
    let place = Place::new();
    let store = place.open();
    for d in ["a", "b"] {
        mkdir(&store, d);
    }
    let f = file_on(&store, "a/f", 1);
    let g = file_on(&store, "b/g", 2);
    let [a, b] = ["a", "b"].map(|d| find(&store, d));
    let on = |node| store.cat().get(node).unwrap().tier;
    // The directory is made where the file is.
    store
        .rename((a, b"f"), (b, b"f"), IfPresent::Refuse)
        .unwrap();
    assert_eq!((on(f), place.on("b/f")), (1, vec!["d1"]));
    store.link(f, a, b"h").unwrap();
    assert_eq!(place.on("a/h"), ["d1"]);
    // One over the other, which is on another disk.
    store
        .rename((b, b"f"), (b, b"g"), IfPresent::Replace)
        .unwrap();
    assert_eq!(place.on("b/g"), ["d1"]);
    assert!(store.cat().get(g).is_none() || store.cat().paths(g).is_empty());
    // All names move together.
    assert_eq!(store.move_file(f, 3), isotherm_files::mover::Outcome::Done);
    assert_eq!((place.on("b/g"), place.on("a/h")), (vec!["d3"], vec!["d3"]));
    file_on(&store, "a/x", 2);
    store
        .rename((a, b"x"), (b, b"g"), IfPresent::Exchange)
        .unwrap();
    assert_eq!((place.on("a/x"), place.on("b/g")), (vec!["d3"], vec!["d2"]));
    // Directories: over all disks that have them.
    store
        .rename((0, b"a"), (b, b"in"), IfPresent::Refuse)
        .unwrap();
    assert!(place.on("a").is_empty() && place.on("b/in/x") == ["d3"]);
    let inner = find(&store, "b/in");
    for name in [&b"x"[..], b"h"] {
        store.unlink(inner, name).unwrap();
    }
    store.rmdir(b, b"in").unwrap();
    assert!(place.on("b/in").is_empty());
    let check = isotherm_files::check::check(&store, false);
    assert_eq!(check["ok"], true, "{check}");
}
