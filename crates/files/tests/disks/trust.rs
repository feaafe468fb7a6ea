//! What a mount must not take for granted: that the fast tier is there, and that the names of an absent disk are known.

use crate::{DISKS, Place, file, mount_again, read, unmount};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::store::Settings;
use rustix::io::Errno;
use std::fs;
use std::path::PathBuf;

/// The path of the record of a disk.
fn record(place: &Place, disk: &str) -> PathBuf {
    place.root.join(disk).join(".isotherm/identity.json")
}

/// The fast tier is an empty mount point: its files would vanish. Whatever the number of disks, and whatever the mount is told but the one
/// word that accepts it.
#[test]
fn an_empty_fast_tier_does_not_take_the_disks_of_another() {
    for named in [&["d1"][..], &DISKS] {
        let mut place = Place::new();
        place.named = named.to_vec();
        let store = place.open();
        file(&store, "f");
        drop(store);
        unmount(&place, "fast");
        let marked = place.root.join("d1").display().to_string();
        for degraded in [false, true] {
            let said = place.refused(|s| s.degraded = degraded);
            let parts = [
                &marked,
                "fast tier is not here",
                "is its disk mounted?",
                "--accept-tiers",
            ];
            assert!(parts.iter().all(|p| said.contains(p)), "{said}");
        }
        // Named in another way: a disk of the set as the fast tier, and a new directory beside one.
        if named.len() > 1 {
            let said = place.refused(|s| {
                s.tiers = ["d1", "d2"].map(|d| place.root.join(d)).into();
                s.more_slow.clear();
            });
            assert!(said.contains("fast tier is not here"), "{said}");
            fs::create_dir(place.root.join("new")).unwrap();
            let said = place.refused(|s| s.tiers[1] = place.root.join("new"));
            assert!(said.contains("fast tier is not here"), "{said}");
        }
        mount_again(&place, "fast");
        assert_eq!(read(&place.open(), "f").unwrap(), b"f");
        // The fast tier is lost.
        unmount(&place, "fast");
        drop(place.open_as(|s| s.accept = true).unwrap());
        drop(place.open());
        taken_without_the_rule(&place);
    }
}

/// Without the rule, the empty mount point is taken.
fn taken_without_the_rule(place: &Place) {
    fs::remove_dir_all(place.root.join("fast")).unwrap();
    fs::create_dir(place.root.join("fast")).unwrap();
    choose(Some(Mutant::ForgetFast));
    let said = place.refused(|_| {});
    choose(None);
    assert_eq!(said, "mounted");
}

/// Directories that nobody has marked are a new set, also if they hold files.
#[test]
fn disks_without_ids_are_a_new_set() {
    let place = Place::new();
    for d in DISKS {
        fs::write(place.root.join(d).join(d), d).unwrap();
    }
    assert_eq!(read(&place.open(), "d2").unwrap(), b"d2");
}

/// A power failure between any two records of a set that is made, or of a disk that joins it: the next mount goes on.
#[test]
fn a_set_that_was_being_made_is_made() {
    for lost in 1..=3 {
        let place = Place::new();
        fs::write(place.root.join("d1/f"), "f").unwrap();
        drop(place.open());
        // What the fast tier has before the disks get theirs, and the slower disks last.
        forget_list(&place, &[]);
        for d in &DISKS[..lost] {
            fs::remove_file(record(&place, d)).unwrap();
        }
        assert_eq!(read(&place.open(), "f").unwrap(), b"f", "{lost}");
    }
    let mut place = Place::new();
    place.named = vec!["d1"];
    drop(place.open());
    let before = ids(&place, "tiers");
    place.named = vec!["d1", "d2"];
    drop(place.open());
    forget_list(&place, &before);
    // Also without it in between.
    place.named = vec!["d1"];
    drop(place.open());
    place.named = vec!["d2", "d1"];
    drop(place.open());
    assert_eq!(ids(&place, "tiers").len(), 3);
    assert!(ids(&place, "next").is_empty());
}

fn json(place: &Place) -> serde_json::Value {
    serde_json::from_slice(&fs::read(record(place, "fast")).unwrap()).unwrap()
}

fn ids(place: &Place, key: &str) -> Vec<serde_json::Value> {
    json(place)[key].as_array().cloned().unwrap_or_default()
}

/// The record of the fast tier as it is before the last write of a change: the list before, and the ids that were given out.
fn forget_list(place: &Place, before: &[serde_json::Value]) {
    let mut whole = json(place);
    whole["next"] = whole["tiers"].take();
    whole["tiers"] = before.into();
    fs::write(record(place, "fast"), whole.to_string()).unwrap();
}

/// A mount that is refused because a disk is not mounted leaves nothing in its mount point, where it would take space unseen; one with that
/// disk finds all.
#[test]
fn a_refused_mount_leaves_nothing_in_a_mount_point() {
    let place = Place::new();
    let store = place.open();
    file(&store, "f");
    drop(store);
    for disk in ["d2", "fast"] {
        unmount(&place, disk);
        let left = || fs::read_dir(place.root.join(disk)).unwrap().count();
        let said = place.refused(|_| {});
        assert!(said.contains("is its disk mounted?"), "{said}");
        assert_eq!(left(), 0, "{disk}");
        mount_again(&place, disk);
    }
    drop(place.open());
    assert!(place.has("d2/.isotherm/spare") && place.has("d2/.isotherm/identity.json"));
    assert_eq!(read(&place.open(), "f").unwrap(), b"f");
}

/// Two mounts meet in a directory that neither has used: what the one that is refused has made belongs to the other.
#[test]
fn a_refused_mount_leaves_what_another_uses() {
    let place = Place::new();
    drop(place.open());
    fs::remove_dir_all(place.root.join("d2/.isotherm")).unwrap();
    let other = fs::File::open(place.root.join("d2")).unwrap();
    other.lock().unwrap();
    let said = place.refused(|s| s.accept = true);
    assert!(said.contains("is served already"), "{said}");
    assert!(place.has("d2/.isotherm/lock") && place.has("d2/.isotherm/intents"));
}

/// A directory of a tier that is served would be moved by two servers.
#[test]
fn a_tier_inside_a_served_one_is_refused() {
    let place = Place::new();
    for dir in ["d1/in/deep", "other"] {
        fs::create_dir_all(place.root.join(dir)).unwrap();
    }
    let (deep, other) = (place.root.join("d1/in/deep"), place.root.join("other"));
    let store = place.open();
    let inside = |s: &mut Settings| {
        s.tiers = vec![other.clone(), deep.clone()];
        s.more_slow.clear();
    };
    let said = place.refused(inside);
    assert!(said.contains("d1, which is served"), "{said}");
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    drop(store);
    assert_eq!(place.refused(inside), "mounted", "nobody serves it now");
}

#[test]
fn a_tier_around_a_served_one_is_refused() {
    let place = Place::new();
    for dir in ["around/in", "other", "third"] {
        fs::create_dir_all(place.root.join(dir)).unwrap();
    }
    let of = |fast: &str, slow: &str| {
        let tiers = [fast, slow].map(|d| place.root.join(d));
        move |s: &mut Settings| {
            s.tiers = tiers.to_vec();
            s.more_slow.clear();
        }
    };
    let store = place.open_as(of("other", "around/in")).unwrap();
    let said = place.refused(of("third", "around"));
    let why = "around/in lies in it, which is served";
    assert!(said.contains(why), "{said}");
    drop(store);
    let said = place.refused(of("third", "around"));
    assert_eq!(said, "mounted", "nobody serves it now");
}

/// Two disks are absent and one of them is named, relative to the working directory: each keeps its path.
#[test]
fn absent_disks_keep_their_paths() {
    let place = Place::new();
    drop(place.open());
    for d in ["d2", "d3"] {
        fs::remove_dir_all(place.root.join(d)).unwrap();
    }
    std::os::unix::fs::symlink(&place.root, place.root.join("link")).unwrap();
    let store = place
        .open_as(|s| {
            s.degraded = true;
            s.more_slow = vec![place.root.join("link/./d3")];
        })
        .unwrap();
    let shown = |d| place.root.join(d).display().to_string();
    assert_eq!([2, 3].map(|n| store.tier_name(n)), ["d2", "d3"].map(shown));
}

/// The names of a disk are saved before the first mount serves. Without them, or if they are damaged, nothing is served without the disk
/// unless the owner says so.
#[test]
fn names_that_are_not_known_do_not_vanish() {
    let place = Place::new();
    fs::create_dir(place.root.join("d2/album")).unwrap();
    fs::write(place.root.join("d2/album/photo"), "photo").unwrap();
    // Killed: no unmount.
    drop(place.open());
    unmount(&place, "d2");
    let store = place.open_as(|s| s.degraded = true).unwrap();
    assert_eq!(read(&store, "album/photo"), Err(Errno::IO));
    drop(store);
    let names = place.root.join("fast/.isotherm/names.2");
    let whole = fs::read(&names).unwrap();
    for damage in ["flipped", "cut", "gone"] {
        match damage {
            "flipped" => {
                let mut bad = whole.clone();
                bad[40] ^= 1;
                fs::write(&names, bad).unwrap();
            }
            "cut" => fs::write(&names, &whole[..whole.len() / 2]).unwrap(),
            _ => fs::remove_file(&names).unwrap(),
        }
        let said = place.refused(|s| s.degraded = true);
        let d2 = place.root.join("d2").display().to_string();
        let parts = [
            &d2,
            "what it holds is not known",
            "--degraded --accept-tiers",
        ];
        assert!(parts.iter().all(|p| said.contains(p)), "{damage}: {said}");
    }
    let both = |s: &mut isotherm_files::store::Settings| (s.degraded, s.accept) = (true, true);
    let store = place.open_as(both).unwrap();
    assert!(store.cat().find(b"album").is_none());
    drop(store);
    mount_again(&place, "d2");
    // The disk stayed one of the set, and what is missing is saved again.
    let store = place.open();
    assert_eq!(read(&store, "album/photo").unwrap(), b"photo");
    assert_eq!(fs::read(&names).unwrap().len(), whole.len());
}
