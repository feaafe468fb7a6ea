//! The disks that a mount takes.

use crate::{DISKS, Place, file_on, find, mkdir, read, said, status};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::names::IfPresent;
use rustix::io::Errno;
use std::fs;

/// A place whose disks have a file each, in one directory. It was unmounted.
pub(crate) fn filled() -> Place {
    let place = Place::new();
    let store = place.open();
    mkdir(&store, "dir");
    for (disk, d) in (1..).zip(DISKS) {
        file_on(&store, &format!("dir/{d}"), disk);
    }
    store.save_names().unwrap();
    place
}

fn id(place: &Place, disk: &str) -> String {
    fs::read_to_string(place.root.join(disk).join(".isotherm/identity.json")).unwrap()
}

fn exchange(place: &Place, a: &str, b: &str) {
    let [a, b, c] = [a, b, "away"].map(|d| place.root.join(d));
    for (from, to) in [(&a, &c), (&b, &a), (&c, &b)] {
        fs::rename(from, to).unwrap();
    }
}

/// The number of a disk is the same whatever the order in which the disks are named or the directories in which they are mounted.
#[test]
fn disks_are_known_in_any_order() {
    let mut place = filled();
    let ids: Vec<String> = DISKS.map(|d| id(&place, d)).into();
    for named in [["d3", "d1", "d2"], ["d2", "d3", "d1"]] {
        place.named = named.to_vec();
        let store = place.open();
        for (disk, d) in (1..).zip(DISKS) {
            assert_eq!(
                store.tier_name(disk),
                place.root.join(d).display().to_string()
            );
            assert_eq!(
                read(&store, &format!("dir/{d}")).unwrap(),
                format!("dir/{d}").as_bytes()
            );
        }
        assert_eq!(
            said(&store).matches("same file system").count(),
            0,
            "only a mount looks"
        );
    }
    exchange(&place, "d1", "d3");
    let store = place.open();
    assert_eq!(
        store.tier_name(1),
        place.root.join("d3").display().to_string()
    );
    assert_eq!(read(&store, "dir/d1").unwrap(), b"dir/d1");
    drop(store);
    exchange(&place, "d1", "d3");
    assert_eq!(ids, DISKS.map(|d| id(&place, d)));
}

/// A new disk joins; the others keep their numbers.
#[test]
fn a_new_disk_joins() {
    let mut place = filled();
    fs::create_dir(place.root.join("new")).unwrap();
    fs::write(place.root.join("new/old"), "old").unwrap();
    place.named = vec!["new", "d2", "d3", "d1"];
    let store = place.open();
    assert_eq!(
        store.tier_name(4),
        place.root.join("new").display().to_string()
    );
    assert_eq!(
        store.tier_name(1),
        place.root.join("d1").display().to_string()
    );
    drop(store);
    // It goes missing at once: what it held when it joined is known.
    fs::rename(place.root.join("new"), place.root.join("away")).unwrap();
    let store = place.open_as(|s| s.degraded = true).unwrap();
    assert_eq!(read(&store, "old"), Err(Errno::IO));
    drop(store);
    fs::rename(place.root.join("away"), place.root.join("new")).unwrap();
    place.named = DISKS.to_vec();
    let said = place.refused(|_| {});
    assert!(
        said.starts_with(&place.root.join("new").display().to_string()),
        "{said}"
    );
}

/// A disk of the last mount is not left out without a word: neither one that is not named, nor one whose directory is empty.
#[test]
fn a_disk_that_is_missing_is_refused_and_named() {
    let mut place = filled();
    place.named = vec!["d1", "d3"];
    let d2 = place.root.join("d2").display().to_string();
    let said = place.refused(|_| {});
    assert!(
        said.starts_with(&d2) && said.contains("is not named"),
        "{said}"
    );
    assert!(
        said.contains("--degraded") && said.contains("--accept-tiers"),
        "{said}"
    );
    // One disk less, and a tier for a disk: also then.
    let one = place.refused(|s| {
        s.more_slow.clear();
        s.tiers.push(place.root.join("d3"));
    });
    assert!(one.starts_with(&d2), "{one}");
    place.named = DISKS.to_vec();
    fs::rename(place.root.join("d2"), place.root.join("away")).unwrap();
    let gone = place.refused(|_| {});
    assert!(gone.starts_with(&d2) && gone.contains("missing"), "{gone}");
    fs::create_dir(place.root.join("d2")).unwrap();
    let empty = place.refused(|_| {});
    assert!(
        empty.starts_with(&d2) && empty.contains("is its disk mounted?"),
        "{empty}"
    );
    // An empty directory for a disk that is there elsewhere: named twice as many, one is missing all the same.
    fs::create_dir(place.root.join("d4")).unwrap();
    place.named = vec!["d1", "d4", "d3"];
    let other = place.refused(|_| {});
    assert!(other.contains("d4") && other.contains(&d2), "{other}");
    fs::remove_dir_all(place.root.join("d2")).unwrap();
    fs::rename(place.root.join("away"), place.root.join("d2")).unwrap();
    place.named = DISKS.to_vec();
    assert_eq!(read(&place.open(), "dir/d2").unwrap(), b"dir/d2");
}

/// Without a disk: its names are shown, its data and changes answer EIO, the rest goes on, and `status` names it. Named or not.
#[test]
fn without_a_disk_its_names_stay_and_the_rest_goes_on() {
    for named in [&["d1", "d2", "d3"][..], &["d3", "d1"]] {
        let mut place = filled();
        fs::rename(place.root.join("d2"), place.root.join("away")).unwrap();
        fs::create_dir(place.root.join("d2")).unwrap();
        place.named = named.to_vec();
        let store = place.open_as(|s| s.degraded = true).unwrap();
        assert_eq!(read(&store, "dir/d2"), Err(Errno::IO));
        for d in ["d1", "d3"] {
            assert_eq!(
                read(&store, &format!("dir/{d}")).unwrap(),
                format!("dir/{d}").as_bytes()
            );
        }
        let dir = find(&store, "dir");
        assert_eq!(store.unlink(dir, b"d2"), Err(Errno::IO));
        let over = store.rename((dir, b"d1"), (dir, b"d2"), IfPresent::Replace);
        assert_eq!(over, Err(Errno::IO));
        assert_eq!(
            store.rename((0, b"dir"), (0, b"x"), IfPresent::Refuse),
            Err(Errno::IO)
        );
        // New files of the directory go to the other disks.
        let new = crate::file(&store, "dir/new");
        crate::send_down(&store);
        assert!([1, 3].contains(&store.cat().get(new).unwrap().tier));
        let status = status(&store);
        assert_eq!(status["state"], "degraded");
        let slow = &status["tiers"][1];
        assert_eq!(
            (&slow["missing"], &slow["disks"][1]["missing"]),
            (&true.into(), &true.into())
        );
        assert_eq!(slow["disks"][0]["missing"], false);
        let d2 = place.root.join("d2").display().to_string();
        assert_eq!(slow["disks"][1]["path"], d2);
        assert!(said(&store).contains(&format!(
            "{d2}: this tier is missing: its 1 files are shown"
        )));
        // A new disk cannot join meanwhile: it could be the empty directory of the missing one.
        drop(store);
        fs::create_dir(place.root.join("d9")).unwrap();
        place.named = vec!["d1", "d2", "d3", "d9"];
        let said = place.refused(|s| s.degraded = true);
        assert!(said.contains("d9") && said.contains("joins only"), "{said}");
        // It is back.
        fs::remove_dir_all(place.root.join("d2")).unwrap();
        fs::rename(place.root.join("away"), place.root.join("d2")).unwrap();
        place.named = DISKS.to_vec();
        let store = place.open();
        for d in DISKS {
            assert_eq!(
                read(&store, &format!("dir/{d}")).unwrap(),
                format!("dir/{d}").as_bytes()
            );
        }
    }
}

/// A disk is given up for good. The numbers of others change, so names that were saved by number are those of the right disks afterwards.
#[test]
fn a_disk_that_is_given_up_takes_no_names_of_others_along() {
    let mut place = filled();
    place.named = vec!["d3", "d2"];
    let store = place.open_as(|s| s.accept = true).unwrap();
    assert!(store.cat().find(b"dir/d1").is_none());
    assert_eq!(
        store.tier_name(1),
        place.root.join("d2").display().to_string()
    );
    // Killed here; and then the second disk does not come back.
    drop(store);
    fs::rename(place.root.join("d3"), place.root.join("away")).unwrap();
    let store = place.open_as(|s| s.degraded = true).unwrap();
    assert_eq!(read(&store, "dir/d3"), Err(Errno::IO));
    assert_eq!(read(&store, "dir/d2").unwrap(), b"dir/d2");
    assert!(store.cat().find(b"dir/d1").is_none());
}

/// What cannot be a disk of this mount is refused, and the message names it.
#[test]
fn strangers_twins_and_doubles_are_refused() {
    let mut place = filled();
    let other = filled();
    let (d1, theirs) = (place.root.join("d1"), other.root.join("d2"));
    let starts = |said: &str, path: &std::path::Path, why: &str| {
        let right = said.starts_with(&path.display().to_string()) && said.contains(why);
        assert!(right, "{said}");
    };
    starts(
        &place.refused(|s| s.more_slow.push(d1.clone())),
        &d1,
        "is given twice",
    );
    let inside = d1.join("dir");
    starts(
        &place.refused(|s| s.more_slow.push(inside.clone())),
        &inside,
        "lies in another tier",
    );
    // A disk of another set, in addition and instead of one.
    let said = place.refused(|s| s.more_slow.push(theirs.clone()));
    starts(&said, &theirs, "belongs to another set");
    let said = place.refused(|s| s.more_slow[0] = theirs.clone());
    starts(
        &said,
        &theirs,
        "is not the directory that was this tier the last time",
    );
    assert!(
        said.contains(&place.root.join("d2").display().to_string()),
        "{said}"
    );
    // The fast tier in the place of a disk.
    let said = place.refused(|s| {
        let fast = std::mem::replace(&mut s.tiers[0], d1.clone());
        s.tiers[1] = fast;
    });
    starts(&said, &place.root.join("fast"), "name it with --fast");
    // A clone of a disk.
    let twin = place.root.join("twin");
    fs::create_dir_all(twin.join(".isotherm")).unwrap();
    let json = ".isotherm/identity.json";
    fs::copy(place.root.join("d2").join(json), twin.join(json)).unwrap();
    starts(
        &place.refused(|s| s.more_slow.push(twin.clone())),
        &twin,
        "is a copy of the other",
    );
    starts(
        &place.refused(|s| s.more_slow[1] = twin.clone()),
        &twin,
        "is a copy of the other",
    );
    place.named = DISKS.to_vec();
    assert_eq!(read(&place.open(), "dir/d3").unwrap(), b"dir/d3");
}

/// A name that two disks have at the first mount is refused like one on two tiers; nothing is changed.
#[test]
fn a_name_on_two_disks_is_refused() {
    let place = Place::new();
    for (d, text) in [("d1", "one"), ("d3", "three")] {
        fs::create_dir(place.root.join(d).join("dir")).unwrap();
        fs::write(place.root.join(d).join("dir/f"), text).unwrap();
    }
    let said = place.refused(|_| {});
    for part in ["dir/f", "d1", "d3", "rename or remove one"] {
        assert!(said.contains(part), "{said}");
    }
    for (d, text) in [("d1", "one"), ("d3", "three")] {
        let file = place.root.join(d).join("dir/f");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
    fs::rename(place.root.join("d3/dir/f"), place.root.join("d3/dir/g")).unwrap();
    let store = place.open();
    assert_eq!(read(&store, "dir/g").unwrap(), b"three");
    assert_eq!(store.cat().get(find(&store, "dir")).unwrap().on(), 0b1010);
}

/// The disks of a mount from before there were several are taken over, with the same numbers.
#[test]
fn a_mount_of_two_tiers_becomes_one_of_several_disks() {
    let mut place = Place::new();
    place.named = vec!["d2"];
    let store = place.open();
    file_on(&store, "f", 1);
    drop(store);
    // The record of an older version.
    let path = place.root.join("fast/.isotherm/identity.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record
        .as_object_mut()
        .unwrap()
        .retain(|k, _| k == "id" || k == "tiers");
    fs::write(&path, record.to_string()).unwrap();
    place.named = vec!["d1", "d2"];
    let store = place.open();
    assert_eq!(
        store.tier_name(1),
        place.root.join("d2").display().to_string()
    );
    assert_eq!(store.cat().get(find(&store, "f")).unwrap().tier, 1);
    assert_eq!(read(&store, "f").unwrap(), b"f");
}

/// Without the rule, a disk of the last mount could be left out, and its names would vanish.
#[test]
fn the_rule_about_missing_disks_is_needed() {
    let mut place = filled();
    place.named = vec!["d1", "d2"];
    choose(Some(Mutant::ForgetDisk));
    let store = place.open();
    choose(None);
    assert!(store.cat().find(b"dir/d3").is_none());
}
