//! A directory joins while the tree is mounted.

use crate::set::filled;
use crate::{DISKS, Place, file, file_on, find, mkdir, read, said};
use isotherm_files::catalogue::ROOT;
use isotherm_files::check::check;
use isotherm_files::control;
use isotherm_files::mover::Outcome;
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::store::Store;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What the directory that joins has: a file with two names, a link, a directory of its own, and one that other disks have.
const OLD: [&str; 5] = ["old", "its/own/name", "link", "its/more", "dir/new"];

pub(crate) fn place() -> Place {
    let place = filled();
    let at = |p: &str| place.root.join("new").join(p);
    fs::create_dir_all(at("its/own")).unwrap();
    fs::create_dir(at("dir")).unwrap();
    for name in ["old", "its/more", "dir/new"] {
        fs::write(at(name), name).unwrap();
    }
    fs::hard_link(at("old"), at("its/own/name")).unwrap();
    symlink("old", at("link")).unwrap();
    place
}

fn disks(store: &Store) -> serde_json::Value {
    serde_json::from_slice(&control::answer(store, 0, "disks").unwrap()).unwrap()
}

pub(crate) fn numbers(store: &Store) -> Vec<u64> {
    let cat = store.cat();
    let number = |p: &&str| cat.lasting(cat.find(p.as_bytes()).unwrap());
    OLD.iter().map(number).collect()
}

/// Whether the tree has all that the disk has had, and all of the others.
pub(crate) fn is_whole(store: &Store) {
    for (path, bytes) in [
        ("old", "old"),
        ("its/own/name", "old"),
        ("its/more", "its/more"),
        ("dir/new", "dir/new"),
    ] {
        assert_eq!(read(store, path).unwrap(), bytes.as_bytes(), "{path}");
    }
    let link = find(store, "link");
    assert_eq!(store.cat().get(link).unwrap().target(), Some(&b"old"[..]));
    assert_eq!(find(store, "old"), find(store, "its/own/name"));
    assert_eq!(store.facts(find(store, "old")).unwrap().nlink, 2);
    others_are_whole(store);
    let check = check(store, false);
    assert_eq!(check["ok"], true, "{check}");
}

pub(crate) fn others_are_whole(store: &Store) {
    for d in DISKS {
        let path = format!("dir/{d}");
        assert_eq!(read(store, &path).unwrap(), path.as_bytes());
    }
}

/// It is a disk like the others from then on, with all that it held; and at the next mount, which must name it.
#[test]
fn a_directory_joins_with_what_it_holds() {
    let mut place = place();
    let new = place.root.join("new");
    let store = place.open();
    assert_eq!(store.join(&new), Ok(4));
    is_whole(&store);
    let at_first = numbers(&store);
    assert!(at_first.iter().all(|n| *n > 1), "{at_first:?}");
    assert!(at_first[0] == at_first[1] && at_first[1] != at_first[3]);
    let list = disks(&store);
    assert_eq!(list["disks"][4]["path"], new.display().to_string());
    assert_eq!(
        (&list["disks"][4]["files"], &list["disks"][4]["tier"]),
        (&3.into(), &1.into())
    );
    // Files go there, of old and new directories, and from there.
    let up = file_on(&store, "dir/up", 4);
    assert!(place.has("new/dir/up"));
    mkdir(&store, "fresh");
    file_on(&store, "fresh/f", 4);
    assert_eq!(store.move_file(find(&store, "its/more"), 0), Outcome::Done);
    assert_eq!(store.move_file(up, 2), Outcome::Done);
    is_whole(&store);
    // The server is killed.
    drop(store);
    let said = place.refused(|_| {});
    assert!(
        said.starts_with(&new.display().to_string()) && said.contains("is not named"),
        "{said}"
    );
    place.named = vec!["d3", "new", "d1", "d2"];
    let store = place.open();
    assert_eq!(store.tier_name(4), new.display().to_string());
    is_whole(&store);
    assert_eq!(numbers(&store), at_first);
    assert_eq!(read(&store, "fresh/f").unwrap(), b"fresh/f");
}

/// A file of another set of disks has a number of that set in itself. Here a file that is gone had it, and a handle may still name that one.
#[test]
fn no_number_is_given_out_again() {
    let (place, other) = (filled(), filled());
    let number = |store: &Store, path: &str| store.cat().lasting(find(store, path));
    let store = other.open();
    file_on(&store, "x", 2);
    let theirs = number(&store, "x");
    drop(store);
    let new = other.root.join("d2");
    fs::remove_dir_all(new.join("dir")).unwrap();
    fs::remove_dir_all(new.join(".isotherm")).unwrap();
    let store = place.open();
    loop {
        file(&store, "gone");
        let ours = number(&store, "gone");
        store.unlink(ROOT, b"gone").unwrap();
        if ours >= theirs {
            assert_eq!(ours, theirs, "both count from the same number");
            break;
        }
    }
    store.join(&new).unwrap();
    assert!(number(&store, "x") > theirs);
}

/// It goes missing right after: its names stay.
#[test]
fn what_a_disk_held_that_joined_is_known_when_it_is_missing() {
    let mut place = place();
    let store = place.open();
    store.join(&place.root.join("new")).unwrap();
    drop(store);
    fs::rename(place.root.join("new"), place.root.join("away")).unwrap();
    place.named = vec!["d1", "d2", "d3", "new"];
    assert!(place.refused(|_| {}).contains("missing"));
    let store = place.open_as(|s| s.degraded = true).unwrap();
    assert_eq!(read(&store, "old"), Err(Errno::IO));
    assert_eq!(store.cat().get(find(&store, "dir")).unwrap().on() & 16, 16);
    others_are_whole(&store);
}

/// The only disk of its tier gets a second one, and may leave.
#[test]
fn a_single_disk_is_replaced_while_mounted() {
    let mut place = Place::new();
    place.named = vec!["d1"];
    let store = place.open();
    file_on(&store, "f", 1);
    let one = store.order_drain("1").unwrap_err();
    assert!(one.0.contains("files disk add"), "{one}");
    assert_eq!(store.join(&place.root.join("d2")), Ok(2));
    store.order_drain("1").unwrap();
    for _ in 0..3 {
        store.tend_disks(None);
    }
    drop(store);
    place.named = vec!["d2"];
    let store = place.open();
    assert_eq!(
        (read(&store, "f").unwrap(), place.on("f")),
        (b"f".to_vec(), vec!["d2"])
    );
    // The one that left is to come back.
    let said = refused(&store, &place.root.join("d1"));
    assert!(said.contains("belongs to another set"), "{said}");
    fs::remove_dir_all(place.root.join("d1/.isotherm")).unwrap();
    assert_eq!(store.join(&place.root.join("d1")), Ok(2));
}

/// What a writer could not get before is there.
#[test]
fn a_full_tier_has_space_again() {
    let Some(mut place) = Place::with_sizes([4, 24, 4]) else {
        return;
    };
    place.named = vec!["d1"];
    // What is on the fast tier does not count.
    let store = place.open_as(|s| s.quotas = vec![Some(0)]).unwrap();
    let node = file_on(&store, "f", 1);
    let live = store.live(node).unwrap();
    let some = vec![7; 1 << 20];
    let fill = |from: u64| {
        let full = (from..20).find(|n| store.write(&live, n << 20, &some, false).is_err());
        full.unwrap_or(20)
    };
    let before = fill(0);
    assert!(before < 5, "{before}");
    store.join(&place.root.join("d2")).unwrap();
    assert_eq!(fill(before), 20);
    store.release(&live);
    assert_eq!(place.on("f"), ["d2"]);
    assert_eq!(disks(&store)["disks"][2]["files"], 1);
}

/// A directory is as private as on any disk, also on one that joins.
#[test]
fn what_is_private_on_the_disk_that_joins_is_private_in_the_tree() {
    let place = place();
    let store = place.open();
    let mode = |store: &Store| store.facts(find(store, "dir")).unwrap().mode & 0o777;
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(place.root.join("new/dir"), private).unwrap();
    assert_eq!(mode(&store), 0o755);
    store.join(&place.root.join("new")).unwrap();
    assert_eq!(mode(&store), 0o700);
    for d in ["d1", "d2", "d3", "new"] {
        let there = fs::metadata(place.root.join(d).join("dir")).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, 0o700, "{d}");
    }
    assert!(said(&store).contains("dir: owner, mode or access lists"));
    is_whole(&store);
}

/// Changes go on meanwhile, and none fails.
#[test]
fn programs_work_while_a_directory_joins() {
    let place = place();
    let store = place.open();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        let (store, stop) = (&store, &stop);
        for n in 0..2 {
            scope.spawn(move || {
                let mut done = 0;
                while !stop.load(order) || done < 20 {
                    let path = format!("dir/n{n}.{}", done % 5);
                    let node = file(store, &path);
                    store.move_file(node, 1 + (done % 3) as u8);
                    let name = path.rsplit_once('/').unwrap().1;
                    store.unlink(find(store, "dir"), name.as_bytes()).unwrap();
                    done += 1;
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(30));
        let joined = store.join(&place.root.join("new"));
        stop.store(true, order);
        assert_eq!(joined, Ok(4));
    });
    is_whole(&store);
}

/// The thread that moves files carries it out; a refusal is shown until the next order.
#[test]
fn an_order_is_carried_out_or_its_refusal_is_shown() {
    let place = place();
    let store = place.open();
    let give = |path: &Path| {
        let path = path.display().to_string();
        control::command(&store, 0, "add", path.as_bytes())
    };
    let nowhere = place.root.join("nowhere");
    give(&nowhere).unwrap();
    let joining = disks(&store)["joining"].clone();
    assert_eq!(joining["path"], nowhere.display().to_string());
    assert!(joining["refused"].is_null());
    assert_eq!(give(&place.root.join("new")), Err(Errno::INVAL));
    assert!(said(&store).contains("is joining: wait for that"));
    store.join_ordered();
    let why = disks(&store)["joining"]["refused"].clone();
    assert!(why.as_str().unwrap().contains("missing"), "{why}");
    assert!(said(&store).contains(why.as_str().unwrap()));
    assert_eq!(give(Path::new("new")), Err(Errno::INVAL));
    give(&place.root.join("new")).unwrap();
    store.join_ordered();
    assert!(disks(&store)["joining"].is_null());
    store.join_ordered();
    assert_eq!(disks(&store)["disks"].as_array().unwrap().len(), 5);
    is_whole(&store);
    // One that is being read when the tree is unmounted is no disk.
    fs::create_dir_all(place.root.join("late/dir")).unwrap();
    store.placement.stop();
    let said = refused(&store, &place.root.join("late"));
    assert!(
        said.contains("stopped") && !place.has("late/.isotherm"),
        "{said}"
    );
}

/// A mount of one directory at another place, until this is dropped.
struct Bound(PathBuf);

impl Bound {
    fn new(from: &Path, at: PathBuf) -> Option<Bound> {
        fs::create_dir(&at).unwrap();
        if rustix::mount::mount_bind(from, &at).is_err() {
            println!("SKIPPED: needs the right to mount");
            return None;
        }
        Some(Bound(at))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// What a join says that is refused.
fn refused(store: &Store, path: &Path) -> String {
    match store.join(path) {
        Ok(n) => format!("joined as {n}"),
        Err(e) => e.0,
    }
}

/// What cannot be a disk of this mount is refused, and left as it was.
#[test]
fn what_cannot_be_a_disk_is_refused() {
    let place = place();
    let store = place.open();
    let at = |p: &str| place.root.join(p);
    let must = |path: &Path, why: &str| {
        let said = refused(&store, path);
        let right = said.starts_with(&path.display().to_string()) && said.contains(why);
        assert!(right, "{}: {why}: {said}", path.display());
    };
    must(&at("d2"), "is a disk already");
    must(&at("fast"), "is a disk already");
    symlink(at("d2"), at("link")).unwrap();
    must(&at("link"), "is a disk already");
    must(&at("d1/dir"), "lies in another tier");
    must(&place.root.clone(), "or that in it");
    must(&at("nowhere"), "is missing");
    fs::write(at("file"), "").unwrap();
    must(&at("file"), "cannot open this tier");
    // The fast tier and a disk of another mount; also while that is served.
    let other = filled();
    must(&other.root.join("fast"), "was the fast tier of a mount");
    must(&other.root.join("d2"), "belongs to another set");
    let served = other.open();
    must(&other.root.join("d2"), "is served already");
    must(&other.root.join("d2/dir"), "which is served");
    drop(served);
    // A copy of a disk, taken before that had other files.
    let json = ".isotherm/identity.json";
    fs::create_dir_all(at("twin/.isotherm")).unwrap();
    fs::copy(at("d2").join(json), at("twin").join(json)).unwrap();
    must(&at("twin"), "one is a copy of the other");
    // A crash of another mount left something there.
    fs::create_dir_all(at("half/.isotherm/intents")).unwrap();
    fs::set_permissions(at("half/.isotherm"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(at("half/.isotherm/intents/m1"), "").unwrap();
    must(&at("half"), "half done");
    // Damaged.
    fs::write(at("twin").join(json), "{").unwrap();
    let said = refused(&store, &at("twin"));
    assert!(said.contains("identity.json"), "{said}");
    if let Some(bound) = Bound::new(&at("d2"), at("bound")) {
        must(&bound.0, "is a disk already");
    }
    if let Some(bound) = Bound::new(&at("d1/dir"), at("inside")) {
        must(&bound.0, "lies in another tier");
    }
    if let Some(bound) = Bound::new(&at("new"), at("read-only")) {
        let flags = MountFlags::RDONLY | MountFlags::BIND;
        rustix::mount::mount_remount(&bound.0, flags, "").unwrap();
        must(&bound.0, "it is read-only");
    }
    assert_eq!(disks(&store)["disks"].as_array().unwrap().len(), 4);
    others_are_whole(&store);
    assert!(!place.has("new/.isotherm"));
    drop(store);
    others_are_whole(&place.open());
}

/// Another file system below the directory would be on no disk.
#[test]
fn a_directory_with_another_file_system_below_is_refused() {
    let place = place();
    let store = place.open();
    fs::create_dir(place.root.join("new/below")).unwrap();
    let at = place.root.join("new/below");
    if rustix::mount::mount("disk", &at, "tmpfs", MountFlags::empty(), c"size=1M").is_err() {
        println!("SKIPPED: needs the right to mount");
        return;
    }
    let bound = Bound(at);
    let said = refused(&store, &place.root.join("new"));
    assert!(
        said.contains("another file system is mounted there"),
        "{said}"
    );
    assert!(!place.has("new/.isotherm"));
    drop(bound);
    assert_eq!(store.join(&place.root.join("new")), Ok(4));
    is_whole(&store);
}

/// A name that is another file's is not hidden and hides nothing: the disk is refused, and named. Directories are joined.
#[test]
fn names_that_others_have_are_refused() {
    for (path, is_dir) in [("dir/d2", false), ("dir/d2", true), ("dir", false)] {
        let place = filled();
        let at = place.root.join("new").join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        if is_dir {
            fs::create_dir(&at).unwrap();
        } else {
            fs::write(&at, "mine").unwrap();
        }
        let store = place.open();
        let said = refused(&store, &place.root.join("new"));
        let new = place.root.join("new").display().to_string();
        for part in [path, "names are taken", &new, "rename or remove one"] {
            assert!(said.contains(part), "{said}");
        }
        others_are_whole(&store);
        assert!(at.exists() && !place.has("new/.isotherm"));
        drop(store);
        others_are_whole(&place.open());
    }
    // Without the rule a name hides another file, and the next mount is refused.
    let mut place = filled();
    fs::create_dir_all(place.root.join("new/dir")).unwrap();
    fs::write(place.root.join("new/dir/d2"), "mine").unwrap();
    let store = place.open();
    choose(Some(Mutant::JoinClashes));
    let joined = refused(&store, &place.root.join("new"));
    choose(None);
    assert_eq!(joined, "joined as 4");
    drop(store);
    place.named = vec!["d1", "d2", "d3", "new"];
    assert!(place.refused(|_| {}).contains("names are taken"));
}

/// While a disk is missing, the directory could be its empty mount point.
#[test]
fn nothing_joins_while_a_disk_is_missing() {
    let place = place();
    fs::rename(place.root.join("d2"), place.root.join("away")).unwrap();
    let store = place.open_as(|s| s.degraded = true).unwrap();
    let said = refused(&store, &place.root.join("new"));
    let d2 = place.root.join("d2").display().to_string();
    assert!(said.contains(&d2) && said.contains("is missing"), "{said}");
    assert!(!place.has("new/.isotherm"));
}

/// There are as many disks as there can be.
#[test]
fn one_disk_too_many_is_refused() {
    let place = filled();
    let store = place.open();
    for n in 4..=16u8 {
        let dir = place.root.join(format!("e{n}"));
        fs::create_dir(&dir).unwrap();
        let said = refused(&store, &dir);
        if n < 16 {
            assert_eq!(said, format!("joined as {n}"));
            file_on(&store, &format!("dir/e{n}"), n);
        } else {
            assert!(said.contains("16 directories already"), "{said}");
        }
    }
    let check = check(&store, false);
    assert_eq!(check["ok"], true, "{check}");
}

/// Without the rule about disks of others, one would be two sets' at the same time.
#[test]
fn the_rule_about_disks_of_others_is_needed() {
    let (place, other) = (filled(), filled());
    // A name that only it has.
    fs::rename(other.root.join("d2/dir/d2"), other.root.join("d2/dir/x")).unwrap();
    let store = place.open();
    choose(Some(Mutant::TrustStranger));
    let said = refused(&store, &other.root.join("d2"));
    choose(None);
    assert_eq!(said, "joined as 4");
}
