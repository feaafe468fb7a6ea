//! A disk is emptied, and disks are made equally full.

use crate::{DISKS, Place, file_on, find, mkdir, read, said};
use isotherm_files::check::check;
use isotherm_files::control;
use isotherm_files::disk::Root;
use isotherm_files::intent::{Op, encode};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::store::Store;
use isotherm_files::tree::At;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

fn disks(store: &Store) -> serde_json::Value {
    serde_json::from_slice(&control::answer(store, 0, "disks").unwrap()).unwrap()
}

fn drain_of(store: &Store, disk: usize) -> (String, Option<u64>) {
    let d = &disks(store)["disks"][disk];
    (d["drain"].as_str().unwrap().to_owned(), d["left"].as_u64())
}

/// A place whose disk 1 has a file with two names, a link, a pipe and directories that no other disk has.
pub(crate) fn filled() -> Place {
    let place = Place::new();
    let at = |p: &str| place.root.join("d1").join(p);
    fs::create_dir_all(at("album/deep")).unwrap();
    fs::create_dir(at("nothing")).unwrap();
    fs::write(at("album/photo"), "photo").unwrap();
    fs::hard_link(at("album/photo"), at("album/deep/photo")).unwrap();
    std::os::unix::fs::symlink("album/photo", at("link")).unwrap();
    fs::hard_link(at("link"), at("album/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o620),
        0,
    )
    .unwrap();
    fs::set_permissions(at("pipe"), fs::Permissions::from_mode(0o620)).unwrap();
    fs::write(place.root.join("d2/other"), "other").unwrap();
    place
}

pub(crate) const ALL: [&str; 6] = [
    "album/photo",
    "album/deep/photo",
    "link",
    "album/link",
    "pipe",
    "nothing",
];

/// Everything leaves the disk, keeps its inode number and attributes, and nothing new comes; then the next mount may leave the disk out at
/// once, and has all names.
#[test]
fn a_drained_disk_may_be_left_out() {
    drain_and_leave_out();
    for rule in [Mutant::FillDrained, Mutant::DrainFilesOnly] {
        choose(Some(rule));
        let done = std::panic::catch_unwind(drain_and_leave_out);
        choose(None);
        assert!(done.is_err(), "{rule:?} removed, and nothing noticed it");
    }
}

fn drain_and_leave_out() {
    let mut place = filled();
    let store = place.open();
    let number = |store: &Store, path: &str| {
        let cat = store.cat();
        cat.lasting(cat.find(path.as_bytes()).unwrap())
    };
    let before = ALL.map(|p| number(&store, p));
    let pipe = store.facts(find(&store, "pipe")).unwrap();
    drop(store);
    // While it has files, it may not be left out.
    place.named = vec!["d2", "d3"];
    assert!(place.refused(|_| {}).contains("was part of the last mount"));
    place.named = DISKS.to_vec();
    let store = place.open();
    let shown = store.tier_name(1);
    store.order_drain(&shown).unwrap();
    assert_eq!(drain_of(&store, 1), ("draining".into(), Some(3)));
    assert_eq!(store.tend_disks(None), 3);
    assert_eq!(drain_of(&store, 1), ("draining".into(), Some(0)));
    store.tend_disks(None);
    assert_eq!(
        drain_of(&store, 1),
        ("empty".into(), Some(0)),
        "{}",
        said(&store)
    );
    for path in ALL.iter().filter(|p| **p != "nothing") {
        assert!(!place.has(&format!("d1/{path}")), "{path}");
    }
    // Neither new files nor others come there, wherever the directory is.
    for n in 0..8 {
        file_on(&store, &format!("album/new {n}"), 0);
        let node = find(&store, &format!("album/new {n}"));
        let wanted = isotherm_files::placement::Wanted {
            node,
            from: 0,
            to: 1,
            why: isotherm_answers::files::WantedBy::Pin,
            how: isotherm_files::placement::How::Move,
        };
        assert_eq!(store.carry_out(&[wanted], None), 1);
        assert!(!place.has(&format!("d1/album/new {n}")));
    }
    assert_eq!(check(&store, false)["ok"], true);
    drop(store);
    place.named = vec!["d2", "d3"];
    fs::remove_dir_all(place.root.join("d1")).unwrap();
    let store = place.open();
    assert_eq!(ALL.map(|p| number(&store, p)), before);
    assert_eq!(read(&store, "album/photo").unwrap(), b"photo");
    let now = store.facts(find(&store, "pipe")).unwrap();
    assert_eq!(
        (now.mode, now.uid, now.mtime),
        (pipe.mode, pipe.uid, pipe.mtime)
    );
    let cat = store.cat();
    for (a, b) in [("album/photo", "album/deep/photo"), ("link", "album/link")] {
        assert_eq!(cat.find(a.as_bytes()), cat.find(b.as_bytes()));
    }
    drop(cat);
    let disk = ["d2", "d3"]
        .into_iter()
        .find(|d| place.has(&format!("{d}/pipe")))
        .unwrap();
    let there = fs::symlink_metadata(place.root.join(disk).join("pipe")).unwrap();
    assert!(there.file_type().is_fifo() && there.mode() & 0o7777 == 0o620);
    assert_eq!(check(&store, false)["ok"], true);
}

/// The order outlives the mount, also one that is killed, and can be taken back; a disk that has got files since it was empty may not be left
/// out.
#[test]
fn a_drain_goes_on_after_a_crash() {
    let mut place = filled();
    let store = place.open();
    store.order_drain("1").unwrap();
    // No unmount.
    drop(store);
    let store = place.open();
    assert_eq!(drain_of(&store, 1), ("draining".into(), Some(3)));
    store.tend_disks(None);
    store.tend_disks(None);
    assert_eq!(drain_of(&store, 1).0, "empty");
    drop(store);
    // Somebody writes to it directly.
    fs::write(place.root.join("d1/late"), "late").unwrap();
    let store = place.open();
    assert_eq!(drain_of(&store, 1), ("draining".into(), Some(1)));
    drop(store);
    place.named = vec!["d2", "d3"];
    assert!(place.refused(|_| {}).contains("was part of the last mount"));
    place.named = DISKS.to_vec();
    let store = place.open();
    store.end_drain("1").unwrap();
    assert_eq!(
        (store.tend_disks(None), drain_of(&store, 1).0),
        (0, "none".into())
    );
    assert!(place.has("d1/late"));
    drop(store);
    // A disk that was left out and comes back is not emptied again.
    let store = place.open();
    store.order_drain("1").unwrap();
    store.tend_disks(None);
    store.tend_disks(None);
    drop(store);
    place.named = vec!["d2", "d3"];
    drop(place.open());
    place.named = DISKS.to_vec();
    let store = place.open_as(|s| s.accept = true).unwrap();
    let all = disks(&store)["disks"].clone();
    assert!(
        all.as_array().unwrap().iter().all(|d| d["drain"] == "none"),
        "{all}"
    );
}

/// Others put a file on a disk while it is emptied. Whoever takes the disk away then, or deletes its directories, must not lose it.
#[test]
fn what_others_put_on_a_disk_that_is_emptied_is_not_lost() {
    let put = || {
        let place = filled();
        let store = place.open();
        store.order_drain("1").unwrap();
        assert_eq!(store.tend_disks(None), 3);
        fs::write(place.root.join("d1/album/deep/late"), "late").unwrap();
        store.tend_disks(None);
        (drain_of(&store, 1).0, place, store)
    };
    let (drain, place, store) = put();
    let told = said(&store);
    assert!(
        drain == "draining" && told.contains("such as album/deep/late"),
        "{told}"
    );
    check(&store, true);
    for _ in 0..600 {
        store.tend_disks(None);
        if drain_of(&store, 1).0 == "empty" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(drain_of(&store, 1).0, "empty", "{}", said(&store));
    assert_eq!(read(&store, "album/deep/late").unwrap(), b"late");
    assert!(!place.has("d1/album/deep/late"));
    choose(Some(Mutant::TrustNames));
    let (drain, ..) = put();
    choose(None);
    assert_eq!(drain, "empty", "the rule is not needed");
}

/// A disk is not drained if that cannot end well, and the reason is said.
#[test]
fn a_drain_is_refused_in_words() {
    let place = filled();
    let store = place.open();
    let refused = |name: &str| store.order_drain(name).unwrap_err().0;
    assert!(refused("0").contains("none of the disks of the slowest tier"));
    assert!(refused("d9").contains("none of the disks of the slowest tier"));
    store.order_drain("1").unwrap();
    store.order_drain("3").unwrap();
    assert!(refused("2").contains("no other disk of its tier takes files"));
    drop(store);
    let mut one = Place::new();
    one.named = vec!["d1"];
    assert!(
        one.open()
            .order_drain("1")
            .unwrap_err()
            .0
            .contains("has one disk")
    );
    let Some(small) = Place::with_sizes([8, 2, 2]) else {
        return;
    };
    let store = small.open();
    fs::write(small.root.join("d1/large"), vec![1; 5 << 20]).unwrap();
    drop(store);
    let store = small.open();
    let why = store.order_drain("1").unwrap_err().0;
    assert!(why.contains("free") && why.contains("add a disk"), "{why}");
    assert_eq!(drain_of(&store, 1).0, "none");
}

/// The fuller disks give to the emptier ones until none is above the aim.
#[test]
fn disks_become_equally_full() {
    let Some(place) = Place::with_sizes([16, 16, 16]) else {
        return;
    };
    for n in 0..12 {
        fs::write(place.root.join(format!("d1/{n}")), vec![n; 1 << 20]).unwrap();
    }
    let store = place.open();
    mkdir(&store, "d");
    assert!(
        store
            .order_balance(Some(5))
            .unwrap_err()
            .0
            .contains("full together")
    );
    store.order_balance(None).unwrap();
    drop(store);
    // It goes on after a crash.
    let store = place.open();
    assert!(disks(&store)["balance_percent"].as_u64().is_some());
    while disks(&store)["balance_percent"].as_u64().is_some() {
        store.tend_disks(None);
    }
    let files = |d: usize| disks(&store)["disks"][d]["files"].as_u64().unwrap();
    assert!(
        (1..=3).all(|d| (3..=5).contains(&files(d))),
        "{}",
        disks(&store)
    );
    for n in 0..12u8 {
        assert_eq!(read(&store, &n.to_string()).unwrap()[7], n);
    }
}

/// A crash between the steps that put a link in the place of the one on the other disk: the next mount has one of the two, complete, and
/// nothing is left of the other.
#[test]
fn a_link_is_on_one_disk_after_a_crash() {
    for done in 0..=3 {
        let place = filled();
        drop(place.open());
        let id = |path: &str| {
            let root = Root::open(&place.root).unwrap();
            root.stat(path.as_bytes()).unwrap().unwrap().id
        };
        let at = |p: &str| place.root.join(p);
        fs::remove_file(at("d1/album/link")).unwrap();
        let temp = "d3/.isotherm/tmp/m9";
        std::os::unix::fs::symlink("album/photo", at(temp)).unwrap();
        let ops = [
            Op::Rename(id(temp), At::new(3, ".isotherm/tmp/m9"), b"link".to_vec()),
            Op::Unlink(id("d1/link"), At::new(1, "link")),
        ];
        if done > 0 {
            fs::write(at("fast/.isotherm/intents/n9"), encode(&ops)).unwrap();
        }
        if done > 1 {
            fs::rename(at(temp), at("d3/link")).unwrap();
        }
        if done > 2 {
            fs::remove_file(at("d1/link")).unwrap();
        }
        let store = place.open();
        assert_eq!(
            place.on("link"),
            [if done > 0 { "d3" } else { "d1" }],
            "{done}"
        );
        assert!(!place.has(temp) && !place.has("fast/.isotherm/intents/n9"));
        assert_eq!(check(&store, false)["ok"], true, "{done}");
    }
}

/// A rename that leaves a whiteout is done as a whole or not at all.
#[test]
fn a_whiteout_is_there_with_the_new_name_after_a_crash() {
    for done in 0..=3 {
        let place = Place::new();
        let store = place.open();
        file_on(&store, "old", 1);
        drop(store);
        let at = |p: &str| place.root.join(p);
        let temp = "d1/.isotherm/tmp/m9";
        let (kind, mode) = (
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::empty(),
        );
        if rustix::fs::mknodat(rustix::fs::CWD, at(temp), kind, mode, 0).is_err() {
            println!("SKIPPED: needs the right to make devices");
            return;
        }
        let id = |path: &str| {
            let root = Root::open(&place.root).unwrap();
            root.stat(path.as_bytes()).unwrap().unwrap().id
        };
        let ops = [
            Op::Rename(id("d1/old"), At::new(1, "old"), b"new".to_vec()),
            Op::Rename(id(temp), At::new(1, ".isotherm/tmp/m9"), b"old".to_vec()),
        ];
        if done > 0 {
            fs::write(at("fast/.isotherm/intents/n9"), encode(&ops)).unwrap();
        }
        for (from, to) in [("d1/old", "d1/new"), (temp, "d1/old")]
            .iter()
            .take(done.max(1) - 1)
        {
            fs::rename(at(from), at(to)).unwrap();
        }
        let store = place.open();
        let is_device = fs::symlink_metadata(at("d1/old"))
            .unwrap()
            .file_type()
            .is_char_device();
        assert_eq!(is_device, done > 0, "{done}");
        assert_eq!(place.has("d1/new"), done > 0, "{done}");
        assert!(!place.has(temp));
        assert_eq!(
            read(&store, if done > 0 { "new" } else { "old" }).unwrap(),
            b"old"
        );
        assert_eq!(check(&store, false)["ok"], true, "{done}");
    }
}
